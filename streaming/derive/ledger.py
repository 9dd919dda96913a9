"""Keeps `ledger`: what became of the messages of each device and minute, from outcomes, readings and dead letters.

A book of arrivals: a correction of readings changes no row of it, and an erased device is erased from it.

A pass looks in this order: how far the outcomes reach, how far the landed topics reach, what has landed. So when the
landing has come to where its topics ended, all records of all messages that those outcomes count have landed, and what is
missing are duplicates: the row is settled. Under load that is true of what the pass before read.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from ingest.offsets import begin_offsets, end_offsets
from ingest.topic_state import topic_ids
from lakehouse.append import Append
from lakehouse.changes import DataFile
from lakehouse.derived import LEDGER
from streaming.checkpoint import Checkpoint
from streaming.derive.arrivals import DEAD_LETTER_COLUMNS, READING_COLUMNS, Arrivals, News, without
from streaming.derive.ledger_cursor import LedgerCursor, reaches
from streaming.derive.ledger_epochs import forgotten_before, later_numbers, newest_epochs
from streaming.derive.ledger_facts import (
    Settling,
    counted_facts,
    ledger_rows,
    merged_facts,
    own_facts,
    refused_facts,
    stored_facts,
)
from streaming.derive.ledger_files import cuts_of, day_of, divided, minutes_in, oldest_day
from streaming.derive.outcomes import Counted, count_outcomes, read_outcomes
from streaming.derive.own import OwnTable
from streaming.offsets import Offsets
from streaming.writer import Writer

__all__ = ["LedgerDerivation"]

logger = logging.getLogger("tidegate.streaming.ledger")

YOUNG: Final = timedelta(minutes=15)
"""So long an outcome may come after its records have landed; the gateway gives its connection up far sooner."""


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
        cursor = LedgerCursor.of(self._own.cursor)
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
            following = LedgerCursor(
                readings.upto, letters.upto, ends, later_numbers(cursor.upto, counted), landed_ends
            )
            following.topic = topic or cursor.topic
            following.all_landed = reaches(landed, landed_ends)
            settling = Settling(
                following.upto,
                now,
                now - YOUNG,
                all_landed=following.all_landed,
                older_landed=cursor.has_landed(landed),
                forgotten=forgotten_before(cursor.upto),
            )
            following.upto = newest_epochs(following.upto, following.landed_upto(cursor, settling))
            self._commit(cursor, following, settling, readings, letters, counted)
        finally:
            if counted is not None:
                counted.release()
        self._checked = True
        return True

    def _topic(self) -> str | None:
        name = self._writer.topics.outcomes
        return topic_ids(self._writer.kafka, [name]).get(name)

    def _starts(self, cursor: LedgerCursor, ends: dict[int, int], topic: str | None) -> dict[int, int]:
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
        cursor: LedgerCursor,
        following: LedgerCursor,
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
            minutes |= minutes_in(readings.files, rows)
            late_us = int(self._writer.settings.watermark_delay_seconds * 1_000_000)
            parts.append(stored_facts(rows, settling, late_us))
        refused = without(arrivals.rows(arrivals.dead_letters, letters, DEAD_LETTER_COLUMNS), erased - letters.erased)
        if refused is not None:
            minutes |= minutes_in(letters.files, refused)
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
        cuts = [] if whole else cuts_of(replaced, minutes)
        if cuts:
            merged.persist()
        try:
            self._own.replace(
                divided(merged, cuts), replaced, lambda append: _settled_cursor(following, append).encode()
            )
        finally:
            if cuts:
                merged.unpersist()

    def _whole(self) -> tuple[News, News]:
        """Everything that the tables hold, from the oldest day of readings on: what was stored is counted anew from it."""
        arrivals = self._arrivals
        readings, letters = arrivals.readings.news(None), arrivals.dead_letters.news(None)
        day = oldest_day(readings)
        letters.groups = [([f for f in files if day_of(f) >= day], hashes) for files, hashes in letters.groups]
        letters.groups = [group for group in letters.groups if group[0]]
        return readings, letters

    def _since(self, readings: News) -> list[DataFile]:
        """Our files of the days that the readings still reach; all of them where none of them was ever counted."""
        day = oldest_day(readings) if self._own.cursor is not None else ""
        return [file for file in self._own.files.values() if day_of(file) >= day]


def _settled_cursor(following: LedgerCursor, append: Append) -> LedgerCursor:
    import pyarrow.compute as pc

    if append.paths:
        written = append.read_back(["minute", "settled"])
        waiting = written.filter(pc.invert(written["settled"]))["minute"].unique().to_pylist()
        following.unsettled |= {each if each.tzinfo else each.replace(tzinfo=UTC) for each in waiting}
    return following
