"""SQL streams whose checkpoint lost its newest plans: windows are written once or the stream refuses."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.contract.errors import FatalError
from streaming.batches import Batches
from streaming.offsets import Offsets
from streaming.sql.applied import Applied
from streaming.sql.marks import StreamMark
from streaming.sql.plan import Shape
from streaming.sql.sinks import Sink

SHAPE = Shape(
    body="SELECT device FROM readings", sources=("readings",), tables=(), state=(), columns=(("device", "string"),),
    sinks=("topic",), key=None, watermark=None, late="drop", trigger_seconds=1.0, partitions=2,
)  # fmt: skip
WINDOWED = replace(SHAPE, state=("window",), sinks=("table",))


class Stored(Sink):
    """A sink of a stream with state, whose table is a list of marks with the rows of each commit."""

    def __init__(self, table: list[tuple[StreamMark, list[int]]], plans: list[int]) -> None:
        Batches.__init__(self)
        self._applied = Applied("s", "SELECT 1", "i", "", WINDOWED, {"a": {0: plans[0]}})
        self._appender, self._topic, self._follow = cast("Any", SimpleNamespace(version=3)), False, None
        self._number, self._reached, self.done, self.stored = -1, self._applied.start, -2, Offsets()
        if table:
            mark = table[-1][0]
            self.done, self.stored, self._begun = mark.batch, mark.offsets, mark.starts or None
        self._ends = lambda number: {"a": {0: plans[number + 1]}}
        self._mirror = lambda offsets: None
        self.table = table

    def _commit(self, appender: Any, rows: Any, number: int, ends: Offsets) -> None:
        if rows:
            self.table.append((StreamMark("s", "i", number, ends, starts=self._starts(number)), rows))


def at(offset: int) -> Offsets:
    return {"a": {0: offset}}


@pytest.mark.parametrize(
    ("mark", "number", "plans", "refused"),
    [
        # The lost plan was a batch without records, which closed windows; the number comes again with records.
        (StreamMark("s", "i", 8, at(15), starts=at(15)), 8, (15, 20), True),
        (StreamMark("s", "i", 8, at(15)), 8, (15, 20), True),
        # The batch before it ended earlier this time, so it comes under a number that the table does not know.
        (StreamMark("s", "i", 7, at(15), starts=at(10)), 8, (12, 15), True),
        (StreamMark("s", "i", 7, at(15), starts=at(10)), 7, (10, 12), True),
        (StreamMark("s", "i", 8, at(15), starts=at(15)), 8, (12, 15), True),
        (StreamMark("s", "i", 7, at(15), starts=at(10)), 7, (10, 40), True),
        (StreamMark("s", "i", 7, at(15), starts=at(10)), 8, (12, 40), True),
        (StreamMark("s", "i", 7, at(15), starts=at(10)), 6, (5, 12), True),
        # The same plan again, the one after it, one that closes windows, and one that the table knows without its start.
        (StreamMark("s", "i", 7, at(15), starts=at(10)), 7, (10, 15), False),
        (StreamMark("s", "i", 7, at(15), starts=at(10)), 8, (15, 20), False),
        (StreamMark("s", "i", 7, at(15), starts=at(10)), 8, (15, 15), False),
        (StreamMark("s", "i", 7, at(15), starts=at(10)), 6, (5, 10), False),
        (StreamMark("s", "i", 7, at(15)), 7, (10, 15), False),
    ],
)
def test_a_table_of_a_stream_with_state_takes_the_plan_it_knows_or_the_next_one(
    mark: StreamMark, number: int, plans: tuple[int, int], refused: bool
) -> None:
    table = [(mark, [0])]
    sink = Stored(table, [0, *(plans[0] for _ in range(number)), plans[1]])
    if refused:
        with pytest.raises(FatalError, match="tidegate streams rewind s --since TIME --into shadow"):
            sink(cast("Any", [1]), number)
    else:
        sink(cast("Any", [1]), number)
    assert len(table) == (2 if not refused and number == 8 else 1)


def closed(before: int, until: int) -> list[int]:
    """Windows of three records that the watermark after `until` records closes, and the one after `before` did not."""
    return [window for window in range(until // 3) if 3 * window + 3 < until and not 3 * window + 3 < before]


@given(
    st.lists(
        st.tuples(st.sampled_from(["batch", "batch", "quiet", "lose plans", "restart"]), st.integers(1, 7)), max_size=30
    )
)
def test_over_any_plans_that_are_lost_a_window_is_written_once_or_the_stream_refuses(
    steps: list[tuple[str, int]],
) -> None:
    plans, table = [0], list[tuple[StreamMark, list[int]]]()
    sink, is_refused = Stored(table, plans), False
    for step, count in [*steps, ("batch", 1), ("quiet", 1)]:
        if step in ("batch", "quiet") and not is_refused:
            number = len(plans) - 1
            plans.append(plans[-1] + (count if step == "batch" else 0))
            rows = closed(plans[number - 1] if number else 0, plans[number])
            try:
                sink(cast("Any", rows), number)
            except FatalError:
                is_refused = True
        elif step == "lose plans":
            del plans[max(1, len(plans) - count) :]
            sink = Stored(table, plans)
        elif step == "restart":
            sink = Stored(table, plans)
    written = [window for _, rows in table for window in rows]
    assert len(written) == len(set(written))
    if not is_refused:
        assert set(closed(0, plans[-1])) <= set(written), "what the table had before the plans were lost may be more"
