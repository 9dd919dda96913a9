"""Where a SQL stream's batches go: offsets decide what a table holds of a batch."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streaming.sql.sent
from ingest.contract.errors import FatalError
from ingest.settings import KafkaSettings
from ingest.tail import Start, TailRecord
from streaming.batches import Batches
from streaming.offsets import Offsets
from streaming.sql.applied import Applied
from streaming.sql.plan import Shape
from streaming.sql.sent import Sent, sent_since
from streaming.sql.sinks import Sink, unstored

SHAPE = Shape(
    body="SELECT device FROM readings", sources=("readings",), tables=(), state=(), columns=(("device", "string"),),
    sinks=("table", "topic"), key=None, watermark=None, late="drop", trigger_seconds=1.0, partitions=2,
)  # fmt: skip

A = {"a": {0: 10, 1: 5}}


@pytest.mark.parametrize(
    ("starts", "ends", "stored", "replay", "begin"),
    [
        (A, {"a": {0: 12, 1: 5}}, {}, False, A),  # a table that says nothing yet
        (A, {"a": {0: 12, 1: 5}}, A, False, A),  # the next batch
        (A, {"a": {0: 12, 1: 5}}, {"a": {0: 12, 1: 5}}, True, None),  # it is in the table
        (A, {"a": {0: 12, 1: 5}}, {"a": {0: 12, 1: 5}}, False, None),  # so it is under another number
        (A, {"a": {0: 19, 1: 7}}, {"a": {0: 12, 1: 5}}, True, {"a": {0: 12, 1: 5}}),  # it ends later than before
        (A, {"a": {0: 11, 1: 7}}, {"a": {0: 12, 1: 5}}, True, {"a": {0: 11, 1: 5}}),  # and earlier in one partition
        (A, {"a": {0: 12, 1: 5, 2: 3}}, A, False, {"a": {0: 10, 1: 5, 2: 0}}),  # a partition is new
        (A, A, A, False, A),  # a batch without records writes what its state gives
        (A, A, A, True, None),
    ],
)
def test_a_tables_offsets_say_what_of_a_batch_is_in_it_and_not_the_batchs_number(
    starts: Offsets, ends: Offsets, stored: Offsets, replay: bool, begin: Offsets | None
) -> None:
    assert unstored(starts, ends, stored, replay=replay) == begin


@given(
    st.lists(st.tuples(st.sampled_from(["more", "batch", "lose plan", "lose commit"]), st.integers(1, 9)), max_size=30)
)
def test_over_any_plans_that_are_lost_each_record_is_in_the_table_once(steps: list[tuple[str, int]]) -> None:
    end, plans, stored, done, rows = 0, [0], 0, -1, list[int]()
    for step, count in [*steps, ("more", 1), ("batch", 99)]:
        if step == "more":
            end += count
        elif step == "lose plan" and len(plans) > 1:
            del plans[-min(count, len(plans) - 1) :]
        elif step == "batch" and plans[-1] < end:
            starts, ends = {"a": {0: plans[-1]}}, {"a": {0: min(end, plans[-1] + count)}}
            number = len(plans) - 1
            begin = unstored(starts, ends, {"a": {0: stored}}, replay=number <= done)
            if begin is not None:
                rows += range(begin["a"][0], ends["a"][0])
                stored, done = ends["a"][0], number
            plans.append(ends["a"][0])
    while plans[-1] < end:
        plans.append(end)
        begin = unstored({"a": {0: plans[-2]}}, {"a": {0: end}}, {"a": {0: stored}}, replay=False)
        rows += range(begin["a"][0], end) if begin is not None else ()
    assert rows == list(range(end))


def test_a_batch_that_ends_later_than_the_table_says_is_sent_and_its_rest_is_written() -> None:
    written, sent = list[Any](), list[Any]()

    class Counted(Sink):
        def __init__(self) -> None:
            Batches.__init__(self)
            self._applied = Applied("s", "SELECT 1", "i", "", SHAPE, {"a": {0: 0}})
            self._appender, self._topic, self._follow = cast("Any", SimpleNamespace(version=3)), True, None
            self._number, self._reached, self.done, self.stored = 7, {"a": {0: 10}}, 7, {"a": {0: 15}}
            self._ends = lambda number: {"a": {0: 40}}
            self._again = cast("Any", lambda starts, ends: (starts, ends))
            self._mirror = lambda offsets: None

        def _commit(self, appender: Any, rows: Any, number: int, ends: Offsets) -> None:
            written.append(rows)

        def _send(self, rows: Any, number: int, ends: Offsets) -> None:
            sent.append((rows, number, len(written)))

    rest = ({"a": {0: 15}}, {"a": {0: 40}})
    sink = Counted()
    sink(cast("Any", "all of it"), 7)
    assert written == [rest]
    assert sent == [("all of it", 7, 0)], "before the table, which nobody waits for"

    # What remembers rows has no output of a part.
    sink._applied = Applied("s", "SELECT 1", "i", "", replace(SHAPE, state=("dedupe",)), {"a": {0: 0}})
    sink._number, sink._reached = 7, {"a": {0: 10}}
    with pytest.raises(FatalError, match="tidegate streams rewind s"):
        sink(cast("Any", None), 7)
    assert len(sent) == 1, "what is refused is not sent either"


def test_the_topic_is_read_back_to_the_batch_before_and_no_other_incarnation_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def record(part: int, at: int, batch: str, incarnation: str = "i") -> TailRecord:
        headers = (("incarnation", incarnation.encode()), ("batch", batch.encode()))
        return TailRecord("t", part, at, 0, "create", b"k", f"{batch} {at}".encode(), headers)

    log = [record(0, at, "6") for at in range(50)]
    log += [record(0, at, "7") for at in range(50, 2_500)] + [record(0, 2_500, "8-rest-00ff00ff")]
    log += [record(1, 0, "swap"), record(1, 1, "7", "other"), record(1, 2, "7")]
    looks = []

    def tail(_kafka: Any, _topic: str, start: Start, **_more: Any) -> list[TailRecord]:
        looks.append(start.at)
        return [one for part in (0, 1) for one in [each for each in log if each.partition == part][-start.at :]]

    monkeypatch.setattr(streaming.sql.sent, "tail", tail)
    sent = sent_since(KafkaSettings(), "t", incarnation="i", number=7)
    assert looks == [1_000, 8_000]
    assert (sent.newest, sent.records.total()) == (8, 2_452)
    assert sent.records["k", "7 50"] == 1
    assert sent.records["k", "6 49"] == 0
    assert sent_since(KafkaSettings(), "t", incarnation="i", number=9) == Sent()
