"""Where a SQL stream's batches go: offsets decide what a table holds of a batch."""

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

import streaming.sql.sent_records
from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.read.tail import TailRecord, TailStart, judge_error
from streaming.batches import BatchRunner
from streaming.landing_offsets import Offsets
from streaming.sql.applied_streams import AppliedStream
from streaming.sql.definition_changes import CheckpointShape
from streaming.sql.marks import newest_stream_mark
from streaming.sql.position import StreamPosition
from streaming.sql.sent_records import Records, SentFile, SentRecords, sent_after, sent_since
from streaming.sql.sinks import StreamSink, find_unstored_start
from streaming.sql.swap import sent_until

SHAPE = CheckpointShape(
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
    assert find_unstored_start(starts, ends, stored, replay=replay) == begin


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
            begin = find_unstored_start(starts, ends, {"a": {0: stored}}, replay=number <= done)
            if begin is not None:
                rows += range(begin["a"][0], ends["a"][0])
                stored, done = ends["a"][0], number
            plans.append(ends["a"][0])
    while plans[-1] < end:
        plans.append(end)
        begin = find_unstored_start({"a": {0: plans[-2]}}, {"a": {0: end}}, {"a": {0: stored}}, replay=False)
        rows += range(begin["a"][0], end) if begin is not None else ()
    assert rows == list(range(end))


def test_of_a_batch_that_the_table_has_in_part_the_rest_is_sent_and_written() -> None:
    written, sent = list[Any](), list[Any]()

    class Counted(StreamSink):
        def __init__(self) -> None:
            BatchRunner.__init__(self)
            self._applied = AppliedStream("s", "SELECT 1", "i", "", SHAPE, {"a": {0: 0}})
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
    assert sent == [(rest, 7, 0)], "before the table, which nobody waits for; what the table has was sent before it"

    # The statement may give other rows by now: what the table has is not sent in the new form.
    sink._number, sink._reached, sink._ends = 7, {"a": {0: 10}}, lambda number: {"a": {0: 15}}
    sink(cast("Any", "the same in a new form"), 7)
    assert (len(sent), len(written)) == (1, 1)


@pytest.mark.parametrize(("stateful", "held"), [(False, {"a": {0: 12, 1: 7}}), (True, {"a": {0: 11, 1: 7}})])
def test_a_batch_that_ends_earlier_in_one_partition_does_not_hide_what_the_table_has(
    stateful: bool, held: Offsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[str]()

    class Append(Appended):
        def commit(self, metadata: str) -> None:
            told.append(metadata)

    shape = replace(SHAPE, state=("windows",) if stateful else ())
    sink = StreamSink.__new__(StreamSink)
    sink._applied, sink._follow, sink._number = AppliedStream("s", "SELECT 1", "i", "", shape, {}), None, 3
    sink._reached, sink.stored, sink.rows = {"a": {0: 10, 1: 5}}, {"a": {0: 12, 1: 5}}, 0
    table = SimpleNamespace(partitioned_by=())
    appender: Any = SimpleNamespace(begin=lambda: nullcontext(Append()), table=table)
    rows: Any = SimpleNamespace(columns=["device"], coalesce=lambda _count: None)
    sink._commit(appender, rows, 3, {"a": {0: 11, 1: 7}})
    monkeypatch.setattr("deltalake.DeltaTable.is_deltatable", lambda _uri: True)
    monkeypatch.setattr("streaming.sql.marks.open_table", lambda _root, _name: None)
    monkeypatch.setattr("streaming.sql.marks.newest_commits", lambda _table: [{"userMetadata": told[0]}])
    mark = newest_stream_mark("root", "s")
    assert mark is not None
    assert (mark.reach, mark.offsets) == (held, {"a": {0: 11, 1: 7}})


class Appended:
    """What a commit is told."""

    paths = ("file",)

    def write(self, rows: Any) -> None:
        pass

    def read_back(self, columns: list[str]) -> Any:
        return SimpleNamespace(num_rows=1)


def _record(part: int, at: int, batch: str, incarnation: str = "i") -> TailRecord:
    headers = (("incarnation", incarnation.encode()), ("batch", batch.encode()))
    return TailRecord("t", part, at, 0, "create", b"k", f"{batch} {at}".encode(), headers)


def _topic(monkeypatch: pytest.MonkeyPatch, log: list[TailRecord]) -> list[tuple[int | None, int]]:
    """A topic of two partitions; gives the looks at it, as partition and records."""
    looks = list[tuple[int | None, int]]()
    ends = {part: max((one.offset + 1 for one in log if one.partition == part), default=0) for part in (0, 1)}

    def tail(
        _kafka: Any, _topic: str, start: TailStart, *, follow: bool, partition: int | None = None
    ) -> Iterator[TailRecord]:
        assert not follow
        looks.append((partition, start.at))
        for one in log:
            begin = start.at if start.kind == "offset" else ends[one.partition] - start.at
            if partition in (None, one.partition) and one.offset >= begin:
                yield one

    monkeypatch.setattr(streaming.sql.sent_records, "tail", tail)
    monkeypatch.setattr(streaming.sql.sent_records, "begin_offsets", lambda _kafka, _topic: {0: 0, 1: 0})
    monkeypatch.setattr(streaming.sql.sent_records, "end_offsets", lambda _kafka, _topic: dict(ends))
    return looks


def test_the_topic_is_read_back_to_the_batch_before_and_no_other_incarnation_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = [_record(0, at, "6") for at in range(50)]
    log += [_record(0, at, "7") for at in range(50, 2_500)] + [_record(0, 2_500, "8-rest-00ff00ff")]
    log += [_record(1, 0, "swap"), _record(1, 1, "7", "other"), _record(1, 2, "7")]
    looks = _topic(monkeypatch, log)
    sent = sent_since(KafkaSettings(), "t", incarnation="i", number=7)
    assert looks == [(None, 1_000), (0, 8_000)]
    assert (sent.newest, sent.records.total()) == (8, 2_452)
    assert sent.records["k", "7 50"] == 1
    assert sent.records["k", "6 49"] == 0
    assert sent_since(KafkaSettings(), "t", incarnation="i", number=9) == SentRecords()


def test_of_an_uneven_topic_only_the_partition_with_a_large_batch_is_read_further_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = [_record(1, at, "6") for at in range(70_000)] + [_record(0, at, "7") for at in range(9_000)]
    looks = _topic(monkeypatch, log)
    assert sent_since(KafkaSettings(), "t", incarnation="i", number=7).records.total() == 9_000
    assert looks == [(None, 1_000), (0, 8_000), (0, 64_000)]


def test_offsets_without_a_record_are_not_taken_for_the_beginning_of_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    # As compaction and the markers of transactions leave them.
    log = [_record(0, at, "6") for at in range(10)] + [_record(0, at, "7") for at in range(10, 4_000, 5)]
    log += [_record(1, 0, "6"), _record(1, 1, "7"), _record(1, 5_000, "8")]
    _topic(monkeypatch, log)
    sent = sent_since(KafkaSettings(), "t", incarnation="i", number=7)
    assert (sent.newest, sent.records.total()) == (8, 800)


_Rows = list[tuple[int, int]]
"""Partition and offset of each record, which is its row too."""


class _Rerun(StreamSink):
    """A sink that only sends; its topic is a list of batches and rows."""

    def __init__(
        self, log: list[tuple[int, tuple[int, int]]], plans: list[Offsets], kept: SentFile | None = None
    ) -> None:
        BatchRunner.__init__(self)
        self._applied, self._appender = AppliedStream("s", "SELECT 1", "i", "", SHAPE, plans[0]), None
        self._kafka, self._topic, self._follow = KafkaSettings(), True, None
        self._number, self._reached, self._sent = -1, plans[0], None
        self._sent_before, self._kept = Offsets(), kept
        self._ends = lambda number: plans[number + 1]
        self._mirror = lambda offsets: None
        self.log = log


_step = st.tuples(st.integers(0, 4), st.integers(0, 4))


@given(
    st.lists(_step, min_size=1, max_size=6),
    st.lists(_step, max_size=9),
    st.integers(0, 6),
    st.integers(0, 20),
    st.sets(st.tuples(st.integers(0, 15), st.booleans())),
    st.sampled_from([2, 1000]),
)
def test_over_plans_that_are_lost_and_planned_otherwise_each_record_is_sent_once(
    before: list[tuple[int, int]],
    after: list[tuple[int, int]],
    lost: int,
    unsent_rows: int,
    restarts: set[tuple[int, bool]],
    kinds: int,
) -> None:
    def plans_of(steps: list[tuple[int, int]], start: Offsets) -> list[Offsets]:
        plans = [start]
        for step in steps:
            plans.append({"a": {part: at + step[part] for part, at in plans[-1]["a"].items()}})
        return plans

    def rows_of(starts: Offsets, ends: Offsets) -> _Rows:
        return [(part, at) for part in (0, 1) for at in range(starts["a"][part], ends["a"][part])]

    def value(row: tuple[int, int]) -> str:
        return f"{row[0]} {row[1] % kinds}"

    old = plans_of(before, {"a": {0: 0, 1: 0}})
    log = [(number, row) for number in range(len(before)) for row in rows_of(old[number], old[number + 1])]
    # The newest batch may be there in part, and the newest plans may be gone.
    newest = [one for one in log if one[0] == len(before) - 1]
    log = log[: len(log) - min(unsent_rows, len(newest))]
    kept = old[: max(1, len(old) - lost)]
    first = max(0, len(kept) - 2)
    whole = {"a": {part: old[-1]["a"][part] + 3 for part in (0, 1)}}
    caught_up = [
        {"a": {part: min(at, whole["a"][part]) for part, at in plan["a"].items()}} for plan in plans_of(after, kept[-1])
    ]
    plans = [*kept, *caught_up[1:], whole]

    def found(ones: list[tuple[int, tuple[int, int]]]) -> SentRecords:
        counted = Counter((None, value(row)) for _, row in ones)
        return SentRecords(cast("Records", counted), max((at for at, _ in ones), default=-1))

    def sent_since(_kafka: Any, _topic: str, *, incarnation: str, number: int) -> SentRecords:
        assert incarnation == "i"
        return found([(at, row) for at, row in log if at >= number])

    def sent_after(_kafka: Any, _topic: str, *, incarnation: str, offsets: dict[int, int]) -> SentRecords:
        return found(log[offsets[0] :])

    def unsent(rows: Any, sent: Records) -> tuple[_Rows, Records]:
        left, again, counts = list[tuple[int, int]](), Counter[tuple[str | None, str | None]](), Counter(sent)
        for row in rows.rows:
            if counts[None, value(row)] > 0:
                counts[None, value(row)] -= 1
                again[None, value(row)] += 1
            else:
                left.append(row)
        return left, again

    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as root:
        target = "streaming.sql.sinks."
        patch.setattr(f"{target}sent_since", sent_since)
        patch.setattr(f"{target}sent_after", sent_after)
        patch.setattr(f"{target}separate_unsent", unsent)
        patch.setattr(f"{target}end_offsets", lambda _kafka, topic: whole["a"] if topic == "a" else {0: len(log)})
        patch.setattr(f"{target}_records", lambda rows, _applied: _Frame(rows))
        patch.setattr(f"{target}_with_headers", lambda rows, _applied, batch: (rows, batch))
        patch.setattr(
            f"{target}_produce", lambda sent, _k, _a: log.extend((int(sent[1].split("-")[0]), r) for r in sent[0])
        )
        patch.setattr(f"{target}write_topic", lambda rows, _k, _a, *, batch: log.extend((int(batch), r) for r in rows))
        sink = _Rerun(log, plans, SentFile(root, "s", "i"))
        for number in range(first, len(plans) - 1):
            sink(cast("Any", rows_of(plans[number], plans[number + 1])), number)
            for again in (True, False):  # a crash before the checkpoint says that the batch is done, or after it
                if (number, again) in restarts:
                    sink = _Rerun(log, plans, SentFile(root, "s", "i"))
                    if again:
                        sink(cast("Any", rows_of(plans[number], plans[number + 1])), number)
    assert sorted(value(row) for _, row in log) == sorted(map(value, rows_of({"a": {0: 0, 1: 0}}, whole)))


class _Frame:
    """Stands for Spark's rows."""

    def __init__(self, rows: _Rows) -> None:
        self.rows = rows

    def persist(self) -> "_Frame":
        return self

    def unpersist(self) -> None:
        """Nothing is held."""


def test_what_came_to_the_topic_since_is_found_by_offset_and_not_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    log = [_record(0, at, "9") for at in range(5)] + [_record(1, 0, "9"), _record(1, 1, "7-rest-00ff00ff")]
    log += [_record(1, 2, "8", "other")]
    _topic(monkeypatch, log)
    sent = sent_after(KafkaSettings(), "t", incarnation="i", offsets={0: 5, 1: 1})
    assert (dict(sent.records), sent.newest) == ({("k", "7-rest-00ff00ff 1"): 1}, 7)
    assert sent_after(KafkaSettings(), "t", incarnation="i", offsets={0: 4}).records.total() == 3
    done = {"9", "8-rest-1"}
    assert sent_since(KafkaSettings(), "t", incarnation="i", number=7, finished=done) == SentRecords(sent.records, 9)


def test_a_user_without_rights_on_the_readers_group_reads_all_the_same() -> None:
    judge_error(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), "t", KafkaSettings())
    with pytest.raises(UnavailableError, match="may not read topic t: grant it READ on the topic"):
        judge_error(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "t", KafkaSettings())


def test_a_swap_sends_no_batch_again_that_is_done_and_not_finished_in_the_checkpoint(tmp_path: Path) -> None:
    live = AppliedStream("s", "SELECT 1", "i", "", SHAPE, {"a": {0: 0, 1: 0}})
    (tmp_path / "_streams").mkdir()
    root, finished = str(tmp_path), {"a": {0: 10, 1: 7}}
    assert sent_until(root, live, finished) == finished
    StreamPosition("i", {"a": {0: 15, 1: 7}}).save(root, "s")
    assert sent_until(root, live, finished) == {"a": {0: 15, 1: 7}}
    assert sent_until(root, replace(live, incarnation="j"), finished) == finished
