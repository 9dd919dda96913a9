"""A Kafka log that was cut back and written on: recognised by the names of records, and landed once where it is new."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.contract.errors import FatalError
from ingest.read.record_names import Names, RecordName
from streaming.commit_marker import Marker
from streaming.landing_offsets import Mark, Offsets, behind, largest_offsets, newest_of, parse_mark
from streaming.log_identity import KafkaView, accepted_cuts, known_names, lost_records
from streaming.lost_records import LostRecords, StartInstruction, describe_lost_records, recreated_topics
from streaming.start_landing import choose_start_offsets, first_offsets, select_valid_marks

TOPIC = "a"


class MemoryLog:
    """One partition: each record is its number, appended at a later time than the one before."""

    def __init__(self) -> None:
        self.records: dict[int, RecordName] = {}
        self.end, self.first, self.clock, self.epoch = 0, 0, 1000, 0

    def append(self, count: int) -> None:
        for _ in range(count):
            self.clock += 1
            self.records[self.end] = RecordName(self.end, self.epoch, self.clock, self.clock * 7)
            self.end += 1

    def cut(self, end: int) -> None:
        self.records = {offset: name for offset, name in self.records.items() if offset < end}
        self.end, self.epoch, self.clock = end, self.epoch + 1, self.clock + 1

    def expire(self, first: int) -> None:
        self.first = min(first, self.end)
        self.records = {offset: name for offset, name in self.records.items() if offset >= self.first}

    def names(self, wanted: Mapping[str, Mapping[int, int]]) -> Names:
        found = {part: self.records[at] for part, at in wanted.get(TOPIC, {}).items() if at in self.records}
        return {TOPIC: found} if found else {}

    def first_after(self, topic: str, part: int, time_ms: int) -> int:
        return min((offset for offset, name in self.records.items() if name.time_ms > time_ms), default=self.end)

    def view(self) -> KafkaView:
        return KafkaView({TOPIC: {0: self.first}}, {TOPIC: {0: self.end}}, {TOPIC: "id"})


class Tables:
    """Two tables over that log, landed by the landing's own rules; of odd records the second table has a row too."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.rows: dict[str, list[int]] = {"readings": [], "letters": []}
        self.marks: dict[str, Mark | None] = dict.fromkeys(self.rows)
        self.history: list[Mark] = []
        self.position: int | None = None
        self.apps = 0
        self.order = StartInstruction()

    def start(self) -> list[LostRecords]:
        """What a start refuses; else it is ready to land."""
        newest, view, begun = newest_of(self.marks.values()), self.log.view(), self.position is not None
        order = self.order.unless_in(newest)
        following = {TOPIC: {0: self.position}} if self.position is not None else first_offsets(self.marks.values(), {})
        reached = largest_offsets(following or {}, newest.ends if newest else {})
        lost = lost_records(view, newest, following or {}, reached, lambda: self.history, self.log)
        refused = order.refused_by_checkpoint(lost, following or {}) if begun else order.refused(lost)
        if refused:
            assert "tidegate repair" in describe_lost_records(refused)
            return refused
        self.cuts = accepted_cuts(newest, order, recreated_topics(newest, view.ids))
        start = choose_start_offsets(following, view.oldest, [*order.cuts, *lost])
        if not begun:
            self.position, self.apps, self.batch = start[TOPIC][0], self.apps + 1, 0
        self.done = {
            name: [(TOPIC, 0, mark.ends[TOPIC][0])] if mark and 0 in mark.ends.get(TOPIC, {}) else []
            for name, mark in select_valid_marks(self.marks, view.newest, view.ids, self.cuts).items()
        }
        self.marker = Marker(view.ids, order, self.cuts, known_names(newest, view.ids, self.cuts), self.read)
        return []

    def read(self, wanted: Mapping[str, Mapping[int, int]], _seconds: float) -> tuple[Names, bool]:
        return self.log.names(wanted), True

    def land(self, most: int) -> None:
        assert self.position is not None
        starts: Offsets = {TOPIC: {0: self.position}}
        ends: Offsets = {TOPIC: {0: min(self.position + most, self.log.end)}}
        if ends == starts:
            return
        self.marker.begin(starts, ends)
        for name, rows in self.rows.items():
            skipped = max((end for _, _, end in behind(starts, self.done[name])), default=0)
            fresh = [
                self.log.records[at].crc
                for at in range(self.position, ends[TOPIC][0])
                if at >= skipped and at in self.log.records and (name == "readings" or at % 2)
            ]
            if fresh:
                rows.extend(fresh)
                mark = self.marker.mark(f"app{self.apps}", self.batch, starts, ends)
                mark = parse_mark(mark.encode()) or mark
                self.marks[name] = replace(mark, at_ms=self.log.clock)
                self.history.insert(0, self.marks[name])
                self.marker.settle()
                self.order = StartInstruction()
        self.position, self.batch = ends[TOPIC][0], self.batch + 1

    def repair(self, lost: list[LostRecords]) -> None:
        self.position, self.order = None, StartInstruction({}, (*self.order.accepted, *lost))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("land"), st.integers(1, 8)),
        st.tuples(st.just("cut"), st.integers(0, 12)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("lose checkpoint"), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_over_any_cuts_each_record_that_kafka_holds_is_landed_once_and_none_twice(steps: list[tuple[str, int]]) -> None:
    log = MemoryLog()
    tables = Tables(log)
    assert tables.start() == []
    for step, count in steps:
        if step == "append":
            log.append(count)
        elif step == "land":
            tables.land(count)
        elif step == "cut":
            log.cut(max(0, log.end - count))
            log.append(count % 3)
            restart(tables)
        elif step == "lose checkpoint":
            tables.position = None
            restart(tables)
        else:
            restart(tables)
    log.append(3)
    restart(tables)
    while tables.position != log.end:
        tables.land(5)
    for name, rows in tables.rows.items():
        assert len(rows) == len(set(rows)), f"{name}: landed twice"
        kept = {record.crc for at, record in log.records.items() if name == "readings" or at % 2}
        assert kept <= set(rows), f"{name}: skipped"


def restart(tables: Tables) -> None:
    """A start; where it refuses, a person accepts the loss; more is received before the next start."""
    while lost := tables.start():
        tables.repair(lost)
        tables.log.append(1)


def landed(count: int = 1_000, batch: int = 100) -> Tables:
    log = MemoryLog()
    tables = Tables(log)
    assert tables.start() == []
    log.append(count)
    while tables.position != log.end:
        tables.land(batch)
    return tables


@pytest.mark.parametrize("deep", [1, 99, 100, 250, 1_000])
@pytest.mark.parametrize("refilled", [0, 1, 5_000])
def test_a_cut_is_refused_with_its_edge_however_deep_and_however_far_it_was_refilled(deep: int, refilled: int) -> None:
    tables = landed()
    tables.log.cut(1_000 - deep)
    tables.log.append(refilled)
    assert tables.start() == [LostRecords(TOPIC, 0, 1_000, 1_000 - deep)]
    said = describe_lost_records(tables.start())
    assert "a partition 0 was recreated or cut back: stored up to offset 999" in said
    assert deep == 1_000 or f"from offset {1_000 - deep} on" in said


def test_what_still_is_the_same_log_is_not_read_a_second_time() -> None:
    tables = landed()
    tables.log.expire(200)
    tables.log.cut(750)
    tables.repair(tables.start())
    assert tables.start() == []
    assert tables.position == 750
    assert tables.done["readings"] == [(TOPIC, 0, 750)]


def test_times_that_tell_nothing_cost_a_batch_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = landed()
    tables.log.cut(750)
    tables.log.append(900)
    monkeypatch.setattr(tables.log, "first_after", lambda topic, part, time_ms: 1_650)
    assert tables.start() == [LostRecords(TOPIC, 0, 1_000, 700)]


def test_marks_of_an_older_version_have_no_names_and_are_taken_as_they_are() -> None:
    tables = landed()
    tables.marks = {name: mark and replace(mark, last={}) for name, mark in tables.marks.items()}
    tables.history = [replace(mark, last={}) for mark in tables.history]
    tables.log.append(10)
    assert tables.start() == []
    # Without names the commit's time tells where the log was cut.
    tables.log.cut(900)
    tables.log.append(7)
    assert tables.start() == [LostRecords(TOPIC, 0, 1_000, 900)]


def test_a_repair_that_was_killed_before_it_moved_the_checkpoint_passes_over_nothing() -> None:
    tables = landed()
    tables.log.cut(900)
    lost = tables.start()
    tables.order = StartInstruction({}, tuple(lost))
    assert tables.start() == lost
    tables.position = None
    assert tables.start() == []
    # The new checkpoint is begun, and its first batch is yet to come.
    assert tables.start() == []


def test_an_order_that_a_mark_carries_already_is_not_applied_again() -> None:
    tables = landed()
    tables.log.cut(900)
    tables.log.append(5)
    tables.repair(tables.start())
    assert tables.start() == []
    order = tables.order
    tables.land(100)
    tables.order = order  # killed between commit and settle
    assert tables.start() == []
    assert tables.cuts == {TOPIC: {0: [900]}}
    assert tables.done["readings"] == [(TOPIC, 0, 905)]


def test_a_log_that_is_cut_back_while_it_is_read_ends_the_batch() -> None:
    tables = landed()
    tables.log.cut(900)
    tables.log.append(500)
    with pytest.raises(FatalError, match="a partition 0 offset 999 holds another record than the one that landed"):
        tables.land(500)
    assert "tidegate repair --accept-loss" in str(tables.marker._asked and tables.marker._asked.exception())


def test_a_new_leader_of_the_same_log_is_no_cut() -> None:
    tables = landed()
    tables.log.epoch += 1
    tables.log.append(50)
    tables.land(50)
    assert tables.marks["readings"] is not None
    assert tables.marks["readings"].last[TOPIC][0].leader_epoch == 1


def test_a_name_that_does_not_come_is_carried_from_the_mark_before() -> None:
    known = {TOPIC: {0: RecordName(4, 0, 9, 1)}}
    marker = Marker({}, StartInstruction(), {}, known, lambda wanted, seconds: ({}, False))
    marker.begin({TOPIC: {0: 5}}, {TOPIC: {0: 9}})
    mark = marker.mark("app", 1, {TOPIC: {0: 5}}, {TOPIC: {0: 9}})
    assert (mark.last, mark.ends) == (known, {TOPIC: {0: 9}})
    marker.close()


def test_a_mark_with_names_and_cuts_is_read_as_it_was_written() -> None:
    names: dict[str, Any] = {TOPIC: {0: RecordName(4, 2, 9, 1)}}
    written = Mark("app", 1, {TOPIC: {0: 1}}, {TOPIC: {0: 5}}, last=names, cuts={TOPIC: {0: [3]}})
    assert parse_mark(written.encode()) == written
