"""Keeps `ledger`: what became of the messages of each device and minute, from outcomes, readings and dead letters.

A book of arrivals: a correction of readings changes no row of it, and an erased device is erased from it.

A pass looks in this order: how far the outcomes reach, how far the landed topics reach, what has landed. So when the
landing has come to where its topics ended, all records of all messages that those outcomes count have landed, and what is
missing are duplicates: the row is settled. Under load that is true of what the pass before read.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from ingest.offsets import begin_offsets, end_offsets
from ingest.topic_state import topic_ids
from lakehouse.append import Append
from lakehouse.changes import DataFile
from lakehouse.derived import LEDGER
from streaming.checkpoint import Checkpoint
from streaming.derive.arrivals import Arrivals, News, without
from streaming.derive.ledger_facts import (
    Settling,
    counted_facts,
    ledger_rows,
    merged_facts,
    own_facts,
    refused_facts,
    stored_facts,
)
from streaming.derive.outcomes import Counted, count_outcomes, read_outcomes
from streaming.derive.own import OwnTable, moment
from streaming.offsets import Offsets
from streaming.writer import Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DEAD_LETTER_COLUMNS", "READING_COLUMNS", "LedgerDerivation"]

logger = logging.getLogger("tidegate.streaming.ledger")

YOUNG: Final = timedelta(minutes=15)
"""So long an outcome may come after its records have landed; the gateway gives its connection up far sooner."""
KEPT_EPOCHS: Final = 64
"""Connections of gateways whose last number is remembered, once all that they counted has landed."""
HOT_ROWS: Final = 5_000
"""A file with more rows is divided: what is older than the minute before the newest is not written again."""
_WIDE: Final = timedelta(hours=1)

READING_COLUMNS: Final = (
    "device", "metric", "value", "text", "unit", "event_time", "device_time", "received_at", "landed_at", "boot", "seq",
    "index", "flags", "offset", "gateway", "gateway_epoch", "message_number",
)  # fmt: skip
"""What ledger, latest and devices read of `readings` together."""
DEAD_LETTER_COLUMNS: Final = (
    "reason", "stage", "device", "received_at", "profile", "gateway", "offset", "source_topic", "gateway_epoch",
    "message_number", "partial",
)  # fmt: skip


@dataclass(slots=True)
class _Cursor:
    """What the ledger has seen: versions, offsets of the outcomes, the last number of each epoch; and what is to be settled.

    `topic` is Kafka's id of the topic that the offsets are of; None where an older version wrote the cursor, or Kafka has none.
    """

    readings: int | None = None
    dead_letters: int | None = None
    outcomes: dict[int, int] = field(default_factory=dict)
    upto: dict[str, dict[str, int]] = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    all_landed: bool = True
    unsettled: set[datetime] = field(default_factory=set)
    topic: str | None = None

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> "_Cursor":
        if found is None:
            return cls()
        return cls(
            found["readings"],
            found["dead_letters"],
            {int(part): offset for part, offset in found["outcomes"].items()},
            found["upto"],
            {topic: {int(p): end for p, end in parts.items()} for topic, parts in found["ends"].items()},
            found["all_landed"],
            {datetime.fromtimestamp(minute * 60, UTC) for minute in found["unsettled"]},
            found.get("topic"),
        )

    def differs(self, ends: Mapping[int, int]) -> bool:
        """Whether the outcomes end elsewhere than where they were read to; before that, where a power cut took some."""
        return any(self.outcomes.get(part, 0) != end for part, end in ends.items())

    def starts(self, ends: Mapping[int, int], topic: str | None) -> dict[int, int]:
        """Where to read on in the topic of this id: at 0 only where it was made anew, so that nothing is counted twice."""
        is_same = topic is None or self.topic in (None, topic)
        return {part: min(self.outcomes.get(part, 0), end) if is_same else 0 for part, end in ends.items()}

    def may_settle(self, landed: Offsets, young: datetime) -> bool:
        """Whether unsettled rows can be settled without any news: the landing has come up, or notes grew old."""
        if not self.has_landed(landed):
            return False
        return any(minute < young or not self.all_landed for minute in self.unsettled)

    def has_landed(self, landed: Offsets) -> bool:
        """Whether all records of the messages that the outcomes up to here count have landed by now."""
        return self.all_landed or _reaches(landed, self.ends)

    def landed_upto(self, before: "_Cursor", settling: Settling) -> Mapping[str, Mapping[str, int]]:
        """Gateway -> epoch -> the last number counted, of what has landed; `before` is the cursor of the pass before."""
        return self.upto if settling.all_landed else before.upto if settling.older_landed else {}

    def encode(self) -> dict[str, Any]:
        return {
            "readings": self.readings,
            "dead_letters": self.dead_letters,
            "outcomes": self.outcomes,
            "upto": self.upto,
            "ends": self.ends,
            "all_landed": self.all_landed,
            "unsettled": sorted(int(minute.timestamp()) // 60 for minute in self.unsettled),
            "topic": self.topic,
        }


class LedgerDerivation:
    """`run` is one pass. Not thread-safe: the chores' thread calls it."""

    name = "ledger"

    def __init__(self, writer: Writer, arrivals: Arrivals) -> None:
        self._writer, self._arrivals = writer, arrivals
        writer.beside["hasten"] = arrivals.hasten
        self._own = OwnTable(writer, LEDGER)
        self._checked = False

    def run(self) -> bool:
        """One pass; False where there was nothing to take in or to settle."""
        if not self._arrivals.begin():
            return False
        self._own.refresh()
        cursor = _Cursor.of(self._own.cursor)
        ends = end_offsets(self._writer.kafka, self._writer.topics.outcomes)
        differs = cursor.differs(ends)
        topic = self._topic() if differs else cursor.topic
        starts = self._starts(cursor, ends, topic)
        counts_more = starts != ends
        landed_ends = self._landed_ends() if counts_more or not cursor.ends else cursor.ends
        self._arrivals.look()
        readings = self._arrivals.readings.news(cursor.readings)
        letters = self._arrivals.dead_letters.news(cursor.dead_letters)
        has_news = differs or not (readings.is_empty and letters.is_empty)
        if not has_news:
            self._own.idle()
        if not (has_news or cursor.unsettled):
            return False
        landed, now = self._landed(ask=not has_news), datetime.now(UTC)
        if not has_news and not cursor.may_settle(landed, now - YOUNG):
            return False
        counted = self._count(starts, ends) if counts_more else None
        try:
            following = _Cursor(readings.upto, letters.upto, ends, _later(cursor.upto, counted), landed_ends)
            following.topic = topic or cursor.topic
            following.all_landed = _reaches(landed, landed_ends)
            settling = Settling(
                following.upto,
                now,
                now - YOUNG,
                all_landed=following.all_landed,
                older_landed=cursor.has_landed(landed),
                forgotten=_forgotten_before(cursor.upto),
            )
            following.upto = _newest_epochs(following.upto, following.landed_upto(cursor, settling))
            self._commit(cursor, following, settling, readings, letters, counted)
        finally:
            if counted is not None:
                counted.release()
        self._checked = True
        return True

    def _topic(self) -> str | None:
        name = self._writer.topics.outcomes
        return topic_ids(self._writer.kafka, [name]).get(name)

    def _starts(self, cursor: _Cursor, ends: dict[int, int], topic: str | None) -> dict[int, int]:
        """Where to read on; what Kafka's retention deleted unread is told, and its messages are counted from their records."""
        starts = cursor.starts(ends, topic)
        if self._checked or starts == ends:
            return starts
        begin = begin_offsets(self._writer.kafka, self._writer.topics.outcomes)
        reached = {part: min(max(start, begin.get(part, 0)), ends[part]) for part, start in starts.items()}
        if reached != starts and self._own.cursor is not None:
            logger.warning(
                "Kafka deleted %d records of %s before the ledger read them: messages of that time count as what is stored.",
                sum(reached.values()) - sum(starts.values()),
                self._writer.topics.outcomes,
            )
        return reached

    def _count(self, starts: dict[int, int], ends: dict[int, int]) -> Counted:
        writer = self._writer
        self._checked = False  # a range that cannot be read is looked at again in the next pass
        counted = count_outcomes(read_outcomes(writer.spark, writer.kafka, writer.topics.outcomes, starts, ends))
        writer.metrics.poison_outcomes.inc(counted.poison)
        return counted

    def _landed_ends(self) -> Offsets:
        return {topic: end_offsets(self._writer.kafka, topic) for topic in self._writer.topics.names}

    def _landed(self, *, ask: bool) -> Offsets:
        """How far the landing is, by its commits; by its checkpoint where `ask`: a batch of duplicates commits nothing."""
        found: Offsets = {}
        sources = [self._arrivals.readings.ends(), self._arrivals.dead_letters.ends()]
        if ask:
            sources.append(Checkpoint(self._writer.spark, self._writer.settings.checkpoint).next_offsets() or {})
        for ends in sources:
            for topic, parts in ends.items():
                known = found.setdefault(topic, {})
                known |= {part: max(end, known.get(part, 0)) for part, end in parts.items()}
        return found

    def _commit(
        self,
        cursor: _Cursor,
        following: _Cursor,
        settling: Settling,
        readings: News,
        letters: News,
        counted: Counted | None,
    ) -> None:
        arrivals, erased = self._arrivals, self._own.erased
        whole = readings.whole or letters.whole
        if whole:
            readings, letters = self._whole()
        # While the landing is far behind nothing can be settled: those rows are not looked at again in each pass.
        waiting = cursor.unsettled if settling.may_settle else set()
        following.unsettled = cursor.unsettled - waiting
        parts, minutes = [], set(waiting)
        rows = without(arrivals.readings_rows(readings, READING_COLUMNS), erased - readings.erased)
        if rows is not None:
            minutes |= _minutes(readings.files, rows)
            late_us = int(self._writer.settings.watermark_delay_seconds * 1_000_000)
            parts.append(stored_facts(rows, settling, late_us))
        refused = without(arrivals.rows(arrivals.dead_letters, letters, DEAD_LETTER_COLUMNS), erased - letters.erased)
        if refused is not None:
            minutes |= _minutes(letters.files, refused)
            parts.append(refused_facts(refused, settling, self._writer.topics.readings))
        if counted is not None and counted.minutes:
            minutes |= counted.minutes
            sums = without(counted.sums, erased | readings.erased | letters.erased)
            parts.append(counted_facts(counted.sums if sums is None else sums))
        replaced = self._since(readings) if whole else self._own.holding("minute", minutes)
        if replaced and self._own.cursor is not None and (parts or waiting):
            own = arrivals.rows(arrivals.ledger, News(0, [(replaced, frozenset())]), [c.name for c in LEDGER.columns])
            assert own is not None  # noqa: S101
            parts.append(own_facts(own, only_counted=whole))
        if not parts:
            self._own.replace(None, (), lambda _append: following.encode())
            return
        merged = ledger_rows(merged_facts(parts), settling)
        cuts = [] if whole else _cuts(replaced, minutes)
        if cuts:
            merged.persist()
        try:
            self._own.replace(
                _divided(merged, cuts), replaced, lambda append: _settled_cursor(following, append).encode()
            )
        finally:
            if cuts:
                merged.unpersist()

    def _whole(self) -> tuple[News, News]:
        """Everything that the tables hold, from the oldest day of readings on: what was stored is counted anew from it."""
        arrivals = self._arrivals
        readings, letters = arrivals.readings.news(None), arrivals.dead_letters.news(None)
        day = _oldest_day(readings)
        letters.groups = [([f for f in files if _day(f) >= day], hashes) for files, hashes in letters.groups]
        letters.groups = [group for group in letters.groups if group[0]]
        return readings, letters

    def _since(self, readings: News) -> list[DataFile]:
        """Our files of the days that the readings still reach; all of them where none of them was ever counted."""
        day = _oldest_day(readings) if self._own.cursor is not None else ""
        return [file for file in self._own.files.values() if _day(file) >= day]


def _day(file: DataFile) -> str:
    return str(file.partition.get("date"))


def _oldest_day(news: News) -> str:
    return min((_day(file) for file in news.files), default="")


def _settled_cursor(following: _Cursor, append: Append) -> _Cursor:
    import pyarrow.compute as pc

    if append.paths:
        written = append.read_back(["minute", "settled"])
        waiting = written.filter(pc.invert(written["settled"]))["minute"].unique().to_pylist()
        following.unsettled |= {each if each.tzinfo else each.replace(tzinfo=UTC) for each in waiting}
    return following


def _minutes(files: Iterable[DataFile], rows: "DataFrame") -> set[datetime]:
    """The minutes of receipt in these files: by their statistics, or by the rows where one file spans hours."""
    found: set[datetime] = set()
    for file in files:
        low, high = moment(file.low.get("received_at")), moment(file.high.get("received_at"))
        if low is None or high is None or high - low > _WIDE:
            return _exact_minutes(rows)
        minute = _floor(low)
        while minute <= high + timedelta(milliseconds=1):
            found.add(minute)
            minute += timedelta(minutes=1)
    return found


def _exact_minutes(rows: "DataFrame") -> set[datetime]:
    found = rows.selectExpr("unix_seconds(date_trunc('minute', received_at)) AS minute").distinct().collect()
    return {datetime.fromtimestamp(row[0], UTC) for row in found}


def _floor(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _cuts(replaced: list[DataFile], minutes: set[datetime]) -> list[datetime]:
    """Where the rows are divided into files: as the files were before, and before the newest minutes once there are many."""
    lows = {low for file in replaced if (low := moment(file.low.get("minute"))) is not None}
    cuts = lows - {min(lows)} if lows else set()
    newest = max(
        replaced, key=lambda file: moment(file.high.get("minute")) or datetime.min.replace(tzinfo=UTC), default=None
    )
    if newest is not None and (newest.rows or 0) > HOT_ROWS and minutes:
        cuts.add(max(minutes) - timedelta(minutes=1))
    return sorted(cuts) if len(cuts) < 20 else []


def _divided(rows: "DataFrame", cuts: list[datetime]) -> "DataFrame":
    from pyspark.sql import functions as F

    if not cuts:
        return rows.coalesce(1)
    bounds = [None, *cuts, None]
    pieces = []
    for low, high in pairwise(bounds):
        piece = rows if low is None else rows.where(F.col("minute") >= F.lit(low))
        pieces.append((piece if high is None else piece.where(F.col("minute") < F.lit(high))).coalesce(1))
    divided = pieces[0]
    for piece in pieces[1:]:
        divided = divided.unionAll(piece)
    return divided


def _later(upto: Mapping[str, Mapping[str, int]], counted: Counted | None) -> dict[str, dict[str, int]]:
    """Both maps, the newest epochs last."""
    merged = {gateway: dict(epochs) for gateway, epochs in upto.items()}
    for gateway, epochs in (counted.upto if counted else {}).items():
        known = merged.setdefault(gateway, {})
        for epoch, number in sorted(epochs.items(), key=lambda each: int(each[0])):
            known[epoch] = max(number, known.pop(epoch, number))
    return merged


def _newest_epochs(
    upto: Mapping[str, dict[str, int]], landed: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Without old epochs whose messages have all landed: those that the pass before knew, and no outcome counted in since."""
    kept = {}
    for gateway, epochs in upto.items():
        known, newest = landed.get(gateway, {}), list(epochs)[-KEPT_EPOCHS:]
        kept[gateway] = {
            epoch: number for epoch, number in epochs.items() if epoch in newest or known.get(epoch) != number
        }
    return kept


def _forgotten_before(upto: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The oldest epoch of each gateway that may have forgotten some: epochs ascend, so those were before it."""
    return {gateway: min(map(int, epochs)) for gateway, epochs in upto.items() if len(epochs) >= KEPT_EPOCHS}


def _reaches(landed: Offsets, ends: Offsets) -> bool:
    return all(
        landed.get(topic, {}).get(part, 0) >= end for topic, parts in ends.items() for part, end in parts.items()
    )
