"""Comparison of Kafka's log with the log that filled the tables, before a query starts.

A topic that was deleted and created again has another id. A log that was cut back (power cut, unclean election, restored
snapshot) keeps the id and gives its offsets to other records. So the newest mark names the last record of each partition, and a
start asks Kafka for the records at those offsets. If a name came too late for its mark, stored rows show offset and time.

The edge of a cut is the first offset that has another record than before. Marks find it to a batch (each names a record),
stored rows to a row, and Kafka's own times to a record: a record that was appended after the cut is later than all earlier
ones, unless Kafka's clock was set back.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from ingest.kafka_settings import KafkaSettings
from ingest.read.record_names import NameReader, Names, RecordName
from ingest.topics.offsets import offsets_at
from streaming.landing_offsets import Cuts, Mark, Offsets
from streaming.lost_records import LostRecords, StartInstruction, find_lost_records, recreated_topics
from streaming.stored_times import StoredTimes, no_times

__all__ = ["KafkaLog", "KafkaView", "LogIdentitySource", "accepted_cuts", "known_names", "lost_records"]


class LogIdentitySource(Protocol):
    """Source of the facts that identify a log in Kafka."""

    def names(self, wanted: Mapping[str, Mapping[int, int]]) -> Names:
        """Return the names of the records at these offsets; records that do not exist are missing."""

    def first_after(self, topic: str, part: int, time_ms: int) -> int:
        """Return the first offset whose record has a later time than `time_ms`; without one, the partition's end."""


class KafkaLog:
    """Source that asks Kafka."""

    def __init__(self, settings: KafkaSettings, reader: NameReader) -> None:
        self._settings, self._reader = settings, reader

    def names(self, wanted: Mapping[str, Mapping[int, int]]) -> Names:
        """See LogIdentitySource.

        Raises:
            RetryableError: Kafka does not answer in time.
        """
        return self._reader.read_all(wanted)

    def first_after(self, topic: str, part: int, time_ms: int) -> int:
        """See LogIdentitySource."""
        return offsets_at(self._settings, topic, time_ms + 1)[part]


@dataclass(frozen=True, slots=True)
class KafkaView:
    """Ends of the topics in Kafka, and the ids of the topics."""

    oldest: Offsets
    newest: Offsets
    ids: Mapping[str, str]

    def holds(self, topic: str, part: int, offset: int) -> bool:
        """Return whether a record may be at this offset."""
        first, end = self.oldest.get(topic, {}).get(part), self.newest.get(topic, {}).get(part)
        return first is not None and end is not None and first <= offset < end


def lost_records(
    view: KafkaView,
    mark: Mark | None,
    following: Offsets,
    reached: Offsets,
    history: Callable[[], Iterable[Mark]],
    log: LogIdentitySource,
    stored: StoredTimes = no_times,
) -> list[LostRecords]:
    """Return the next records that Kafka no longer has, and the logs that were cut back.

    Args:
        view: of Kafka now.
        mark: the newest of all tables.
        following: the offsets where reading continues.
        reached: as far as anything was planned, or stored.
        history: all marks that are kept; asked only where a log was cut.
        log: Kafka's records.
        stored: the times of records that the tables hold.
    """
    anew = recreated_topics(mark, view.ids)
    held = {topic: parts for topic, parts in reached.items() if topic not in anew}
    cut = _find_cut_logs(view, mark, held, history, log, stored)
    found = {each[:2] for each in cut}
    # Planned records, or those in one table only, count too: Spark would go on with a plan of the former topic.
    following = {topic: reached.get(topic, parts) if topic in anew else parts for topic, parts in following.items()}
    return [
        *(each for each in find_lost_records(following, view.oldest, view.newest, anew) if each[:2] not in found),
        *cut,
    ]


def _find_cut_logs(
    view: KafkaView,
    mark: Mark | None,
    reached: Offsets,
    history: Callable[[], Iterable[Mark]],
    log: LogIdentitySource,
    stored: StoredTimes = no_times,
) -> list[LostRecords]:
    """Return the partitions whose log ends before the offset read, or holds another record by a mark or a row."""
    last = mark.last if mark else {}
    known: Names = {}
    for topic in reached:
        if held := {part: name for part, name in last.get(topic, {}).items() if view.holds(topic, part, name.offset)}:
            known[topic] = held
    now = log.names({topic: {part: name.offset for part, name in parts.items()} for topic, parts in known.items()})
    cut, kept = list[LostRecords](), list[Mark]()
    for topic, parts in reached.items():
        for part, at in parts.items():
            name, found = known.get(topic, {}).get(part), now.get(topic, {}).get(part)
            is_other = name is not None and found is not None and not name.is_same(found)
            is_other |= at > view.newest.get(topic, {}).get(part, at)
            if not is_other and mark is not None and _is_unnamed(mark, topic, part):
                kept = kept or list(history())
                is_other = _holds_others(view, mark, kept, topic, part, log, stored)
            if is_other:
                kept = kept or list(history())
                names = _trace_lineage(mark, kept, topic, part)
                edge = _edge(view, topic, part, names, mark.at_ms if mark else 0, log, stored)
                cut.append(LostRecords(topic, part, at, edge))
    return cut


def _is_unnamed(mark: Mark, topic: str, part: int) -> bool:
    """Return whether the last record that the mark reached is not the one that it names.

    A partition without a name is of an older version, unless its names were cut off or none came at all.
    """
    name, end = mark.last.get(topic, {}).get(part), mark.reach.get(topic, {}).get(part, 0)
    if name is not None:
        return name.offset < end - 1
    return end > 0 and mark.era > 0 and (not mark.last or bool(mark.cuts.get(topic, {}).get(part)))


def _holds_others(
    view: KafkaView,
    mark: Mark,
    marks: Iterable[Mark],
    topic: str,
    part: int,
    log: LogIdentitySource,
    stored: StoredTimes,
) -> bool:
    """Return whether Kafka has another record at a stored row behind the last name; one row per batch is compared."""
    name, end = mark.last.get(topic, {}).get(part), mark.reach[topic][part]
    first = max(view.oldest[topic][part], name.offset + 1 if name is not None else 0)
    times = stored(
        topic, part, range(first, min(end, view.newest[topic][part])), name.time_ms if name is not None else 0
    )
    ends = {each.reach.get(topic, {}).get(part, 0) for each in marks}
    asked = {max((offset for offset in times if offset < each), default=-1) for each in (*ends, end)} - {-1}
    return any(not _is_at(topic, part, offset, times[offset], log) for offset in asked)


def _is_at(topic: str, part: int, offset: int, times: set[int], log: LogIdentitySource) -> bool:
    found = log.names({topic: {part: offset}}).get(topic, {}).get(part)
    return found is not None and found.time_ms in times


def _trace_lineage(newest: Mark | None, marks: Iterable[Mark], topic: str, part: int) -> list[RecordName]:
    """The named records of a partition, by offset, without those of a former topic or of what was cut off before."""
    names: dict[int, RecordName] = {}
    if newest is None:
        return []
    for mark in (*marks, newest):
        name = mark.last.get(topic, {}).get(part)
        if name is None or mark.topics.get(topic) != newest.topics.get(topic):
            continue
        if all(name.offset < edge for edge in mark.edges_since(newest.cuts, topic, part)):
            names[name.offset] = name
    return sorted(names.values())


def known_names(
    mark: Mark | None, ids: Mapping[str, str], cuts: Cuts, history: Callable[[], Iterable[Mark]] = lambda: ()
) -> Names:
    """The newest names that still hold: of the same topics, before what was cut off.

    `history` gives all marks that are kept; it is asked only where a log was cut since the newest one.
    """
    if mark is None:
        return {}
    anew, kept, names = recreated_topics(mark, ids), list[Mark](), Names()
    for topic, parts in mark.last.items():
        for part, name in parts.items():
            if topic in anew:
                continue
            if all(name.offset < edge for edge in mark.edges_since(cuts, topic, part)):
                names.setdefault(topic, {})[part] = name
                continue
            kept = kept or list(history())
            if held := _trace_lineage(replace(mark, cuts=cuts, last={}), [*kept, mark], topic, part):
                names.setdefault(topic, {})[part] = held[-1]
    return names


def _edge(
    view: KafkaView,
    topic: str,
    part: int,
    names: list[RecordName],
    at_ms: int,
    log: LogIdentitySource,
    stored: StoredTimes,
) -> int:
    """Return the first offset that holds another record than before; at most a batch too early where times don't tell.

    Without a name the commit's own time must do: what was stored was appended before it.
    """
    first, end = view.oldest[topic][part], view.newest[topic][part]

    def is_same(name: RecordName) -> bool:
        if name.offset < first or name.offset >= end:
            return name.offset < first
        return name.is_same(log.names({topic: {part: name.offset}}).get(topic, {}).get(part))

    low, high = 0, len(names)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if is_same(names[middle]) else (low, middle)
    least = names[low - 1].offset + 1 if low else 0
    most = min(names[low].offset, end) if low < len(names) else end
    times = stored(topic, part, range(max(first, least), most), names[low - 1].time_ms if low else 0)
    offsets = sorted(times)
    begin, end = 0, len(offsets)
    while begin < end:
        middle = (begin + end) // 2
        is_held = _is_at(topic, part, offsets[middle], times[offsets[middle]], log)
        begin, end = (middle + 1, end) if is_held else (begin, middle)
    least = offsets[begin - 1] + 1 if begin else least
    most = offsets[begin] if begin < len(offsets) else most
    edge = log.first_after(topic, part, names[low].time_ms if low < len(names) else at_ms)
    return max(first, edge if least <= edge <= most else least)


def accepted_cuts(mark: Mark | None, order: StartInstruction, anew: Iterable[str]) -> Cuts:
    """Return all accepted cuts: those that the newest mark names, and those of the repair before this start."""
    other = set(anew)
    cuts = {
        topic: {part: list(edges) for part, edges in parts.items()}
        for topic, parts in (mark.cuts if mark else {}).items()
        if topic not in other
    }
    fresh: dict[tuple[str, int], int] = {}
    for topic, part, _, edge in order.cuts:
        if topic not in other:
            fresh[topic, part] = min(edge, fresh.get((topic, part), edge))
    for (topic, part), edge in fresh.items():
        cuts.setdefault(topic, {}).setdefault(part, []).append(edge)
    return cuts
