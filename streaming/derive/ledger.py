"""Derivation of `ledger`: what became of the messages of each device and minute, from outcome records and the landed tables.

A correction of readings changes no row of the ledger. An erasure removes the device's rows, and a later outcome that counts
older messages of the device does not bring them back.

A pass reads in this order: the ends of the outcomes, the ends of the landed topics, the offsets of the last finished batch, and
the logs of the tables. If that batch has reached the ends of its topics, the tables have all records of the messages that
those outcomes count. The row is then settled, and its missing messages are unaccounted. Under load, this holds for the
outcomes of the pass before.

The rows of a day are in several files, divided by minute, so that a pass rewrites only the newest minutes.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from ingest.topics.describe import topic_ids
from ingest.topics.offsets import begin_offsets, end_offsets
from lakehouse.append import Append
from lakehouse.changes import DataFile
from lakehouse.data_files import read_columns
from lakehouse.derived_tables import LEDGER
from lakehouse.file_stats import STEP, as_utc
from lakehouse.paths import is_local, table_uri, to_path
from streaming.checkpoint import Checkpoint, LocalCheckpoint
from streaming.derive.derived_table import DerivedTable
from streaming.derive.ledger_facts import (
    copied_facts,
    counted_facts,
    ledger_rows,
    merged_facts,
    own_facts,
    refused_facts,
    stored_facts,
)
from streaming.derive.ledger_progress import (
    LedgerCursor,
    Settling,
    forgotten_before,
    has_landed_up_to,
    holes_after,
    later_numbers,
    newest_epochs,
)
from streaming.derive.outcomes import OutcomeSums, count_outcomes, read_outcomes
from streaming.derive.shared_arrivals import (
    DEAD_LETTER_COLUMNS,
    DUPLICATE_COLUMNS,
    READING_COLUMNS,
    SharedArrivals,
    TableChanges,
    drop_devices,
)
from streaming.history.journal import CorrectionJournal
from streaming.history.receipt import erased_devices
from streaming.landing_offsets import Offsets
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["HOT_ROWS", "LedgerDerivation", "cuts_of", "minutes_in"]

logger = logging.getLogger("tidegate.streaming.ledger")

YOUNG: Final = timedelta(minutes=15)
"""Time that a row waits for the outcomes of its messages. A later outcome still counts them, once."""

HOT_ROWS: Final = 5_000
"""Above this number of rows a file is divided, so that only the newest two minutes are written again."""
_WIDE: Final = timedelta(hours=1)

_Facts = Callable[["DataFrame", Settling], "DataFrame"]


class LedgerDerivation:
    """The derivation; `run` is one pass. Not thread-safe: the chores' thread calls it."""

    name = "ledger"

    def __init__(self, writer: WriterContext, arrivals: SharedArrivals) -> None:
        self._writer, self._arrivals = writer, arrivals
        writer.background_tasks["run_soon"] = arrivals.run_soon
        self._own = DerivedTable(writer, LEDGER)
        self._checked = False
        self._unbalanced: tuple[list[str], list[tuple[datetime, int]]] = ([], [])

    def run(self) -> bool:
        """Run one pass; return False if there was nothing to take in or to settle."""
        if not self._arrivals.begin():
            return False
        self._own.refresh()
        has_worked = self._run()
        self._show_balance()
        return has_worked

    def _run(self) -> bool:
        cursor = LedgerCursor.of(self._own.cursor)
        ends = end_offsets(self._writer.kafka, self._writer.topics.outcomes)
        differs = cursor.differs(ends)
        topic = self._topic() if differs else cursor.topic
        starts = self._starts(cursor, ends, topic)
        counts_more = starts != ends
        landed_ends = self._landed_ends() if counts_more or not cursor.ends else cursor.ends
        landed, now = self._landed(), datetime.now(UTC)
        self._arrivals.look()
        landings = self._landings(cursor)
        has_news = differs or not landings.is_empty
        if not has_news:
            self._own.idle()
        if not (has_news or cursor.unsettled):
            return False
        if not has_news and not cursor.may_settle(landed, now - YOUNG):
            return False
        counted = self._count(starts, ends) if counts_more else None
        try:
            following = LedgerCursor(
                landings.readings.upto,
                landings.letters.upto,
                ends,
                later_numbers(cursor.upto, counted),
                landed_ends,
                topic=topic or cursor.topic,
                duplicates=landings.copies.upto,
                holes=holes_after(cursor.holes, cursor.upto, counted),
            )
            following.all_landed = has_landed_up_to(landed, landed_ends)
            settling = Settling(
                following.upto,
                now,
                now - YOUNG,
                all_landed=following.all_landed,
                older_landed=cursor.has_landed(landed),
                forgotten=forgotten_before(cursor.upto),
                holes=following.holes,
                copies_known=cursor.copies_known,
                uncertain=self._deleted_from() if self._own.cursor is None else (),
                retained_since=self._retained_since() if self._own.cursor is None else "",
            )
            following.forget(newest_epochs(following.upto, following.landed_upto(cursor, settling)))
            self._commit(cursor, following, settling, landings, counted)
        finally:
            if counted is not None:
                counted.release()
        self._checked = True
        return True

    def _topic(self) -> str | None:
        name = self._writer.topics.outcomes
        return topic_ids(self._writer.kafka, [name]).get(name)

    def _starts(self, cursor: LedgerCursor, ends: dict[int, int], topic: str | None) -> dict[int, int]:
        """Return the offsets to read from. If Kafka deleted unread outcomes, log it; stored rows count in their place."""
        starts = cursor.starts(ends, topic)
        if self._checked or starts == ends:
            return starts
        begin = begin_offsets(self._writer.kafka, self._writer.topics.outcomes)
        reached = {part: min(max(start, begin.get(part, 0)), ends[part]) for part, start in starts.items()}
        if reached != starts and self._own.cursor is not None:
            logger.warning(
                "Kafka deleted %d records of %s before the ledger read them; the ledger counts messages of that time from the "
                "stored rows.",
                sum(reached.values()) - sum(starts.values()),
                self._writer.topics.outcomes,
            )
        return reached

    def _count(self, starts: dict[int, int], ends: dict[int, int]) -> OutcomeSums:
        writer = self._writer
        self._checked = False  # if the range cannot be read, the next pass looks at it again
        counted = count_outcomes(read_outcomes(writer.spark, writer.kafka, writer.topics.outcomes, starts, ends))
        writer.metrics.poison_outcomes.inc(counted.poison)
        return counted

    def _landed_ends(self) -> Offsets:
        return {topic: end_offsets(self._writer.kafka, topic) for topic in self._writer.topics.names}

    def _landed(self) -> Offsets:
        """Return the end of the landing's last finished batch: the tables hold all of it."""
        path = self._writer.settings.checkpoint
        if is_local(path):
            return LocalCheckpoint(to_path(path)).next_offsets() or {}
        return Checkpoint(self._writer.spark, path).next_offsets() or {}

    def _landings(self, cursor: LedgerCursor) -> "_Landings":
        arrivals = self._arrivals
        return _Landings(
            arrivals.readings.news(cursor.readings),
            arrivals.dead_letters.news(cursor.dead_letters),
            arrivals.duplicates.news(cursor.duplicates if cursor.duplicates is not None else -1),
        )

    def _commit(
        self,
        cursor: LedgerCursor,
        following: LedgerCursor,
        settling: Settling,
        landings: "_Landings",
        counted: OutcomeSums | None,
    ) -> None:
        arrivals, erased = self._arrivals, self._own.erased
        whole = landings.whole
        if whole:
            landings = self._whole()
        # While the landing is far behind, no row can be settled, so a pass does not read waiting rows again.
        waiting = cursor.unsettled if settling.may_settle else set()
        following.unsettled = cursor.unsettled - waiting
        parts, minutes = [], set(waiting)
        for news, rows, facts in self._landed_rows(landings):
            if rows is not None:
                minutes |= minutes_in(news.files, rows)
                parts.append(facts(rows, settling))
        if counted is not None and counted.minutes:
            minutes |= counted.minutes
            sums = drop_devices(counted.sums, erased | landings.erased)
            parts.append(counted_facts(counted.sums if sums is None else sums))
        if minutes:
            settling.erased = self._erased_since(min(minutes))
        replaced = self._since(landings.day) if whole else self._own.holding("minute", minutes)
        if replaced and self._own.cursor is not None and (parts or waiting):
            own = arrivals.rows(
                arrivals.ledger, TableChanges(0, [(replaced, frozenset())]), [c.name for c in LEDGER.columns]
            )
            assert own is not None  # noqa: S101
            parts.append(own_facts(own, only_counted=whole, deleted_from=self._deleted_from() if whole else ()))
        if not parts:
            self._own.replace(None, (), lambda _append: following.encode())
            return
        merged = ledger_rows(merged_facts(parts), settling)
        cuts = [] if whole else cuts_of(replaced, minutes)
        if cuts:
            merged.persist()
        try:
            self._own.replace(
                _divide_rows(merged, cuts), replaced, lambda append: _settled_cursor(following, append).encode()
            )
        finally:
            if cuts:
                merged.unpersist()

    def _landed_rows(self, landings: "_Landings") -> "Iterator[tuple[TableChanges, DataFrame | None, _Facts]]":
        """Yield the rows landed in each table, without erased devices, and the function that makes facts of them."""
        arrivals, erased = self._arrivals, self._own.erased
        late_us = int(self._writer.settings.watermark_delay_seconds * 1_000_000)
        topic = self._writer.topics.readings
        readings, copies, letters = landings.readings, landings.copies, landings.letters
        rows = arrivals.readings_rows(readings, READING_COLUMNS)
        yield readings, drop_devices(rows, erased - readings.erased), partial(stored_facts, late_after_us=late_us)
        rows = arrivals.rows(arrivals.duplicates, copies, DUPLICATE_COLUMNS)
        yield copies, drop_devices(rows, erased - copies.erased), copied_facts
        rows = arrivals.rows(arrivals.dead_letters, letters, DEAD_LETTER_COLUMNS)
        yield letters, drop_devices(rows, erased - letters.erased), partial(refused_facts, readings_topic=topic)

    def _erased_since(self, oldest: datetime) -> dict[str, int]:
        """Return the devices (by hash) that were erased since this minute, each with the end of its erased time in epoch µs."""
        ends: dict[str, int] = {}
        for device, at_us in erased_devices(self._writer.root, since_us=oldest.timestamp() * 1e6):
            ends[device] = max(at_us, ends.get(device, 0))
        return ends

    def _show_balance(self) -> None:
        """Set the metric of unaccounted messages of the last day. Only files with such messages are read, each once."""
        files = _unbalanced_files(self._own.files.values())
        paths = [file.path for file in files]
        if paths != self._unbalanced[0]:
            uri = table_uri(self._writer.root, LEDGER.name)
            names = ["unaccounted", "updated_at"]
            rows = read_columns(uri, [unquote(path) for path in paths], names).to_pylist() if paths else []
            self._unbalanced = paths, [(row["updated_at"], abs(row["unaccounted"] or 0)) for row in rows]
        since = datetime.now(UTC) - timedelta(days=1)
        missing = sum(count for at, count in self._unbalanced[1] if at >= since)
        self._writer.metrics.ledger_unaccounted.set(missing)

    def _whole(self) -> "_Landings":
        """Return all rows from the first day that is complete in every table, for a recount."""
        arrivals = self._arrivals
        readings = arrivals.readings.news(None)
        oldest = min(map(_day_of, readings.files), default="")
        day = max(oldest, self._retained_since() if self._own.cursor is not None else "")
        found = _Landings(readings, arrivals.dead_letters.news(None), arrivals.duplicates.news(None), day)
        for news in (found.readings, found.letters, found.copies):
            groups = [([file for file in files if _day_of(file) >= day], hashes) for files, hashes in news.groups]
            news.groups = [group for group in groups if group[0]]
        return found

    def _retained_since(self) -> str:
        """Return the first day from which retention has dropped nothing; empty without retention."""
        lake = self._writer.lake
        days = [each for each in (lake.readings_days, lake.dead_letters_days) if each > 0]
        return (datetime.now(UTC).date() - timedelta(days=min(days))).isoformat() if days else ""

    def _since(self, day: str) -> list[DataFile]:
        """Return the ledger's files from a day on; all files if the ledger has no cursor yet."""
        first = day if self._own.cursor is not None else ""
        return [file for file in self._own.files.values() if _day_of(file) >= first]

    def _deleted_from(self) -> set[str]:
        """Return the devices of which a correction deleted readings."""
        entries = CorrectionJournal(self._writer.root).entries()
        return {str(entry["device"]) for entry in entries if entry.get("delete") and entry.get("device")}


@dataclass(frozen=True, slots=True)
class _Landings:
    """Rows landed in the three tables since the cursor; for a recount, everything from `day` on."""

    readings: TableChanges
    letters: TableChanges
    copies: TableChanges
    day: str = ""

    @property
    def is_empty(self) -> bool:
        return self.readings.is_empty and self.letters.is_empty and self.copies.is_empty

    @property
    def whole(self) -> bool:
        return self.readings.whole or self.letters.whole or self.copies.whole

    @property
    def erased(self) -> set[str]:
        return self.readings.erased | self.letters.erased | self.copies.erased


def _settled_cursor(following: LedgerCursor, append: Append) -> LedgerCursor:
    import pyarrow.compute as pc

    if append.paths:
        written = append.read_back(["minute", "settled"])
        waiting = written.filter(pc.invert(written["settled"]))["minute"].unique().to_pylist()
        following.unsettled |= {each if each.tzinfo else each.replace(tzinfo=UTC) for each in waiting}
    return following


def _day_of(file: DataFile) -> str:
    """Return the day of the file's rows."""
    return str(file.partition.get("date"))


def minutes_in(files: Iterable[DataFile], rows: "DataFrame") -> set[datetime]:
    """Return the minutes of receipt in these files, from their statistics, or from the rows if a file covers over an hour."""
    found: set[datetime] = set()
    for file in files:
        low, high = as_utc(file.low.get("received_at")), as_utc(file.high.get("received_at"))
        if low is None or high is None or high - low > _WIDE:
            return _exact_minutes(rows)
        minute = low.replace(second=0, microsecond=0)
        while minute <= high + STEP:
            found.add(minute)
            minute += timedelta(minutes=1)
    return found


def _unbalanced_files(files: Iterable[DataFile]) -> list[DataFile]:
    """Return the files whose statistics show a row with `unaccounted` other than 0."""
    return [file for file in files if file.low.get("unaccounted") or file.high.get("unaccounted")]


def _exact_minutes(rows: "DataFrame") -> set[datetime]:
    found = rows.selectExpr("unix_seconds(date_trunc('minute', received_at)) AS minute").distinct().collect()
    return {datetime.fromtimestamp(row[0], UTC) for row in found}


def cuts_of(replaced: list[DataFile], minutes: set[datetime]) -> list[datetime]:
    """Return the minutes that divide the rows into files: those of the replaced files, and a new one if the newest is large."""
    lows = {low for file in replaced if (low := as_utc(file.low.get("minute"))) is not None}
    cuts = lows - {min(lows)} if lows else set()
    newest = max(
        replaced, key=lambda file: as_utc(file.high.get("minute")) or datetime.min.replace(tzinfo=UTC), default=None
    )
    if newest is not None and (newest.rows or 0) > HOT_ROWS and minutes:
        cuts.add(max(minutes) - timedelta(minutes=1))
    return sorted(cuts) if len(cuts) < 20 else []


def _divide_rows(rows: "DataFrame", cuts: list[datetime]) -> "DataFrame":
    """Return the rows with one partition, and so one file, between each two cuts."""
    from pyspark.sql import functions as F

    if not cuts:
        return rows.coalesce(1)
    bounds = [None, *cuts, None]
    pieces = []
    for low, high in pairwise(bounds):
        piece = rows if low is None else rows.where(F.col("minute") >= F.lit(low))
        pieces.append((piece if high is None else piece.where(F.col("minute") < F.lit(high))).coalesce(1))
    together = pieces[0]
    for piece in pieces[1:]:
        together = together.unionAll(piece)
    return together
