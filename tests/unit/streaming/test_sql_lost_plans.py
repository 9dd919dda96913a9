"""SQL streams whose checkpoint lost its newest plans: windows are written once or refused, and nothing is sent again."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.contract.errors import FatalError
from ingest.kafka_settings import KafkaSettings
from streaming.batches import BatchRunner
from streaming.landing_offsets import Offsets
from streaming.sql.applied_streams import AppliedStream
from streaming.sql.definition_changes import CheckpointShape
from streaming.sql.marks import StreamMark
from streaming.sql.position import StreamPosition
from streaming.sql.sent_records import SentFile, SentRecords, UnmatchedRecords
from streaming.sql.sinks import StreamSink, partial_batch_name

SHAPE = CheckpointShape(
    body="SELECT device FROM readings", sources=("readings",), tables=(), state=(), columns=(("device", "string"),),
    sinks=("topic",), key=None, watermark=None, late="drop", trigger_seconds=1.0, partitions=2,
)  # fmt: skip
WINDOWED = replace(SHAPE, state=("window",), sinks=("table",))


class Stored(StreamSink):
    """A sink of a stream with state, whose table is a list of marks with the rows of each commit."""

    def __init__(self, table: list[tuple[StreamMark, list[int]]], plans: list[int]) -> None:
        BatchRunner.__init__(self)
        self._applied = AppliedStream("s", "SELECT 1", "i", "", WINDOWED, {"a": {0: plans[0]}})
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


class Sending(StreamSink):
    """The sink of a stream without a table, which notes what it would send."""

    sent: list[Any]

    def _send(self, rows: Any, number: int, ends: Offsets) -> None:
        self.sent.append(rows)


def sending(root: Path, shape: CheckpointShape, known: StreamPosition | None, plans: list[int]) -> Sending:
    follow = SimpleNamespace(known=known, begin=lambda *_: None, reached=lambda *_: None)
    (root / "_streams").mkdir(exist_ok=True)
    sink = Sending(
        cast("Any", None), str(root), KafkaSettings(), AppliedStream("s", "SELECT 1", "i", "", shape, at(plans[0])),
        ends=lambda number: at(plans[number + 1]), again=cast("Any", lambda starts, ends: (starts, ends)),
        mirror=lambda _: None, follow=cast("Any", follow), log_retention_hours=1,
    )  # fmt: skip
    sink.sent = []
    return sink


@pytest.mark.parametrize(
    ("state", "known", "plans", "sent"),
    [
        ((), None, [0, 10, 15], ["rows"]),
        ((), StreamPosition("i", at(10), batch=0), [0, 10, 15], ["rows"]),
        ((), StreamPosition("i", at(15), batch=1), [0, 10, 15], []),
        ((), StreamPosition("i", at(15)), [0, 10, 15], []),
        ((), StreamPosition("i", at(15), batch=1), [0, 10, 13], []),
        ((), StreamPosition("i", at(15), batch=1), [0, 10, 40], [(at(15), at(40))]),
        # With state a batch gives more than its records: the very same one is known, another is compared with the topic.
        (("window",), StreamPosition("i", at(15), batch=1, starts=at(10)), [0, 10, 15], []),
        (("window",), StreamPosition("i", at(15), batch=1, starts=at(15)), [0, 10, 15], ["rows"]),
        (("window",), StreamPosition("i", at(15), batch=0, starts=at(10)), [0, 15, 15], ["rows"]),
        (("window",), StreamPosition("i", at(15), batch=1, starts=at(10)), [0, 10, 20], ["rows"]),
    ],
)
def test_without_a_table_the_position_says_what_was_sent(
    state: tuple[str, ...], known: StreamPosition | None, plans: list[int], sent: list[Any], tmp_path: Path
) -> None:
    sink = sending(tmp_path, replace(SHAPE, state=state), known, plans)
    sink(cast("Any", "rows"), 1)
    assert sink.sent == sent


@pytest.mark.parametrize(
    ("known", "number", "asked"),
    [
        (None, 7, {"number": 7}),
        (StreamPosition("i", at(15)), 7, {"number": 7}),
        (StreamPosition("i", at(15), batch=7), 8, {"number": 8}),
        # What the lost plan called 8 may come under a later number now.
        (StreamPosition("i", at(15), batch=7), 9, {"number": 8}),
        # Of a batch that is done in part, what was sent of it before would hide new records that are equal.
        (StreamPosition("i", at(15), batch=7), 6, {"number": 6, "finished": {"6", "7", partial_batch_name(7, at(15))}}),
    ],
)
def test_the_topic_is_asked_for_what_is_not_known_to_be_done(
    known: StreamPosition | None, number: int, asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[dict[str, Any]]()

    def sent_since(_kafka: Any, _topic: str, *, incarnation: str, **asked: Any) -> SentRecords:
        looks.append(asked)
        return SentRecords()

    monkeypatch.setattr("streaming.sql.sinks.sent_since", sent_since)
    monkeypatch.setattr("streaming.sql.sinks.end_offsets", lambda *_: {0: 0})
    monkeypatch.setattr("streaming.sql.sinks.write_topic", lambda *_, **__: None)
    sink = sending(tmp_path, SHAPE, known, [0] * 20)
    StreamSink._send(sink, cast("Any", "rows"), number, at(40))
    assert looks == [asked]


def test_what_is_left_for_a_batch_depends_on_its_being_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.sql.sinks.sent_after", lambda *_, offsets, **__: SentRecords(newest=offsets[0]))
    monkeypatch.setattr("streaming.sql.sinks.end_offsets", lambda *_: {0: 9})
    monkeypatch.setattr("streaming.sql.sinks.write_topic", lambda *_, **__: None)
    left = {at: UnmatchedRecords(Counter({("k", f"{at}"): 1}), {0: at}) for at in (5, 6)}
    SentFile(str(tmp_path), "s", "i").write(7, newest=7, until=at(30), before=left[5], after=left[6])
    for done, number, found in ((6, 7, 5), (7, 7, 6), (7, 8, 6), (None, 7, 5), (None, 8, 6)):
        known = None if done is None else StreamPosition("i", at(15), batch=done)
        sink = sending(tmp_path, SHAPE, known, [0] * 20)
        sent, until, _ = sink._look("t", number, at(40))
        assert (sent.records, until) == (left[found].records, at(30)), (done, number)
    assert SentFile(str(tmp_path), "s", "other").read(7) is None


def test_a_position_keeps_the_batch_that_reached_furthest_unless_there_is_state() -> None:
    first = StreamPosition("i", {"a": {0: 100, 1: 7}}, batch=4, starts={"a": {0: 0, 1: 0}})
    again = {"a": {0: 50, 1: 7}}
    assert first.after({"a": {0: 0, 1: 0}}, again, 4, stateful=False) == first
    assert first.after(again, {"a": {0: 60, 1: 9}}, 5, stateful=False) == replace(
        first, offsets={"a": {0: 100, 1: 9}}, batch=5, starts=again
    )
    assert first.after({}, again, 4, stateful=True) == replace(first, offsets=again, starts={})
