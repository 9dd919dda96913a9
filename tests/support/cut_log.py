"""A topic of several partitions in memory, and two tables that land it by the landing's own rules: for tests of cut logs."""

from collections.abc import Mapping
from dataclasses import replace

from ingest.read.record_names import Names, RecordName
from streaming.commit_marker import Marker
from streaming.landing_offsets import Mark, Offsets, behind, beyond, largest_offsets, newest_of, next_era, parse_mark
from streaming.log_identity import KafkaView, accepted_cuts, known_names, lost_records
from streaming.lost_records import LostRecords, StartInstruction, recreated_topics
from streaming.start_landing import choose_start_offsets, first_offsets, select_valid_marks
from streaming.stored_times import Times

__all__ = ["TOPIC", "PartedLog", "PartedTables"]

TOPIC = "a"


class PartedLog:
    """Each record is a number that no other has; `clock` is Kafka's."""

    def __init__(self) -> None:
        self.parts: list[list[RecordName]] = [[], []]
        self.clock, self.epoch, self.made, self.count = 1_000, 0, 0, 0

    def append(self, part: int, count: int) -> None:
        for _ in range(count):
            self.clock, self.count = self.clock + 1, self.count + 1
            self.parts[part].append(RecordName(len(self.parts[part]), self.epoch, self.clock, self.count))

    def cut(self, part: int, count: int, *, clock_back: int = 0) -> None:
        del self.parts[part][max(0, len(self.parts[part]) - count) :]
        self.epoch, self.clock = self.epoch + 1, self.clock + 1 - clock_back

    def remake(self) -> None:
        self.parts, self.made = [[] for _ in self.parts], self.made + 1

    def ends(self) -> dict[int, int]:
        return {part: len(records) for part, records in enumerate(self.parts)}

    def names(self, wanted: Mapping[str, Mapping[int, int]]) -> Names:
        asked = {part: at for part, at in wanted.get(TOPIC, {}).items() if at < self.ends().get(part, 0)}
        return {TOPIC: {part: self.parts[part][at] for part, at in asked.items()}} if asked else {}

    def first_after(self, topic: str, part: int, time_ms: int) -> int:
        return min((name.offset for name in self.parts[part] if name.time_ms > time_ms), default=len(self.parts[part]))

    def view(self) -> KafkaView:
        return KafkaView({TOPIC: dict.fromkeys(self.ends(), 0)}, {TOPIC: self.ends()}, {TOPIC: f"id{self.made}"})


class PartedTables:
    """`readings`, and `letters` that has a row of odd records only. `position` is the checkpoint's; None where that is lost."""

    def __init__(self, log: PartedLog) -> None:
        self.log = log
        self.rows: dict[str, list[tuple[int, RecordName]]] = {"readings": [], "letters": []}
        self.marks: dict[str, Mark | None] = dict.fromkeys(self.rows)
        self.history: list[Mark] = []
        self.position: dict[int, int] | None = None
        self.planned: dict[int, int] | None = None
        self.apps = self.batch = 0
        self.order = StartInstruction()
        self.is_late = False

    def start(self) -> list[LostRecords]:
        """What a start refuses; else it is ready to land."""
        newest, view, begun = newest_of(self.marks.values()), self.log.view(), self.position is not None
        order = self.order.unless_in(newest)
        following = {TOPIC: dict(self.position or {})} if begun else first_offsets(self.marks.values(), {})
        planned: Offsets = {TOPIC: self.planned} if begun and self.planned else {}
        reached = largest_offsets(following or {}, newest.reach if newest else {}, planned)
        lost = lost_records(view, newest, following or {}, reached, lambda: self.history, self.log, self.stored)
        refused = order.refused_by_checkpoint(lost, following or {}) if begun else order.refused(lost)
        if refused:
            return refused
        cuts = accepted_cuts(newest, order, recreated_topics(newest, view.ids))
        if not begun:
            self.position = choose_start_offsets(following, view.oldest, [*order.cuts, *lost])[TOPIC]
            self.planned, self.apps, self.batch = None, self.apps + 1, 0
        fit = select_valid_marks(self.marks, view.newest, view.ids, cuts)
        self.done = {
            name: [(TOPIC, part, end) for part, end in (mark.reach.get(TOPIC, {}) if mark else {}).items()]
            for name, mark in fit.items()
        }
        names, app = known_names(newest, view.ids, cuts, lambda: self.history), f"app{self.apps}" if begun else None
        self.marker = Marker(view.ids, order, cuts, names, self.read, era=next_era(self.marks.values(), app))
        return []

    def restart(self) -> None:
        """A start; where it refuses, a person accepts the loss; more is received before the next start."""
        while lost := self.start():
            self.position, self.order = None, StartInstruction({}, (*self.order.accepted, *lost))
            self.log.append(0, 1)

    def read(self, wanted: Mapping[str, Mapping[int, int]], _seconds: float) -> tuple[Names, bool]:
        return ({}, False) if self.is_late else (self.log.names(wanted), True)

    def stored(self, _topic: str, part: int, offsets: range, _since_ms: int) -> Times:
        found: Times = {}
        for own, name in self.rows["readings"]:
            if own == part and name.offset in offsets:
                found.setdefault(name.offset, set()).add(name.time_ms)
        return found

    def land(self, most: int, *, killed_after: str | None = None) -> None:
        """A batch of so many records of each partition; a plan that is left is run again."""
        assert self.position is not None
        ends = self.planned or {
            part: min(self.position.get(part, 0) + most, end) for part, end in self.log.ends().items()
        }
        if ends == self.position:
            return
        self.planned = ends
        starts: Offsets = {TOPIC: self.position}
        self.marker.begin(starts, {TOPIC: ends})
        self.marker.before()
        for name, rows in self.rows.items():
            skipped = {part: end for _, part, end in behind(starts, self.done[name])}
            fresh = [
                (part, self.log.parts[part][at])
                for part, end in ends.items()
                for at in range(max(self.position.get(part, 0), skipped.get(part, 0)), end)
                if name == "readings" or at % 2
            ]
            if fresh:
                rows.extend(fresh)
                further = beyond({TOPIC: ends}, self.done[name])
                mark = self.marker.mark(f"app{self.apps}", self.batch, starts, {TOPIC: ends}, beyond=further)
                mark = replace(parse_mark(mark.encode()) or mark, at_ms=self.log.clock)
                self.marks[name] = mark
                self.history.insert(0, mark)
                self.marker.settle()
                self.order = StartInstruction()
            if killed_after == name:
                return
        self.position, self.planned, self.batch = ends, None, self.batch + 1
