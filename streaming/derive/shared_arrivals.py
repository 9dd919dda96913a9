"""Changes of the landed tables and of `ledger` since a version, for derivations that share one look and one scan.

Rows that landed are news. Rows that a request changed (`correct`, `erase`) are not news; their devices are named instead. Rows
that landed before their device was erased are left out for every derivation.
"""

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lakehouse.changes import DataFile, LogExpired, VersionChange, newest_version, read_changes, table_files
from lakehouse.commit_metadata import CommitMetadata
from lakehouse.derived_tables import LEDGER
from lakehouse.frames import rows_of
from lakehouse.tables import DEAD_LETTERS, DUPLICATES, READINGS, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "DEAD_LETTER_COLUMNS",
    "DUPLICATE_COLUMNS",
    "READING_COLUMNS",
    "SharedArrivals",
    "TableChangeReader",
    "TableChanges",
    "coalesce_few_rows",
    "collect_changes",
    "drop_devices",
    "erased_device_hash",
    "request_device_hash",
]  # fmt: skip

SMALL_ROWS: Final = 200_000
"""Rows up to which one task does the work: exchanging few rows costs more than a second task saves."""
_KEPT_VERSIONS: Final = 500

READING_COLUMNS: Final = (
    "device", "metric", "value", "text", "unit", "event_time", "device_time", "received_at", "landed_at", "boot", "seq",
    "index", "flags", "offset", "gateway", "gateway_epoch", "message_number", "retained", "waited_since",
)  # fmt: skip
"""Columns of `readings` that ledger, latest and devices read together."""
DUPLICATE_COLUMNS: Final = ("device", "received_at", "landed_at", "gateway", "gateway_epoch", "message_number", "whole")
DEAD_LETTER_COLUMNS: Final = (
    "reason", "stage", "device", "received_at", "profile", "gateway", "offset", "source_topic", "gateway_epoch",
    "message_number", "partial", "landed_at", "retain",
)  # fmt: skip


@dataclass(slots=True)
class TableChanges:
    """Changes of one table since a version, from its log.

    Attributes:
        upto: the newest version that is described here.
        groups: landed files, each with the hashes of devices that were erased after it landed.
        corrected: devices with rows that a correction changed or deleted.
        erased: hashes of devices that were erased.
        whole: the groups are all files of the table, because the log no longer says since when.
    """

    upto: int
    groups: list[tuple[list[DataFile], frozenset[str]]] = field(default_factory=list)
    corrected: set[str] = field(default_factory=set)
    erased: set[str] = field(default_factory=set)
    whole: bool = False

    @property
    def files(self) -> list[DataFile]:
        """All landed files."""
        return [file for files, _ in self.groups for file in files]

    @property
    def rows(self) -> int:
        """Number of landed rows."""
        return sum(file.rows or 0 for file in self.files)

    @property
    def is_empty(self) -> bool:
        """True if nothing changes a derived table."""
        return not (self.whole or self.groups or self.corrected or self.erased)


def request_device_hash(device: str) -> str:
    """Return the name of a device in requests that must not name it: SHA-256 of its id."""
    return hashlib.sha256(device.encode()).hexdigest()


def erased_device_hash(metadata: CommitMetadata) -> str | None:
    """The hash of the device that this commit erased; None where it erased none."""
    if metadata.request.get("kind") != "erase":
        return None
    arguments = {**metadata.request, **metadata.arguments}
    device = arguments.get("device")
    named = arguments.get("device_sha256")
    return str(named) if named else request_device_hash(str(device)) if device else None


def collect_changes(found: Iterable[VersionChange], after: int) -> TableChanges | None:
    """The news of consecutive versions; None where rows were changed in a way that no request names, or were lost."""
    news = TableChanges(after)
    landed: list[tuple[list[DataFile], set[str]]] = []
    for change in found:
        news.upto = change.version
        if not change.removed:
            if change.added:
                landed.append((list(change.added), set()))
            continue
        metadata = change.metadata
        device = metadata.arguments.get("device")
        if erased := erased_device_hash(metadata):
            news.erased.add(erased)
            for _, hashes in landed:
                hashes.add(erased)
        elif device:
            news.corrected.add(str(device))
        elif change.added or metadata.is_repair:
            return None
        # Files that only left have reached the end of their retention: what is derived from them stays.
    merged: dict[frozenset[str], list[DataFile]] = {}
    for files, hashes in landed:
        merged.setdefault(frozenset(hashes), []).extend(files)
    news.groups = [(files, hashes) for hashes, files in merged.items()]
    return news


class TableChangeReader:
    """The log of one table as it grows. Not thread-safe."""

    def __init__(self, root: str, table: Table) -> None:
        self.root, self.table = root, table
        self.version = newest_version(root, table.name)
        self._recent: list[VersionChange] = []

    def look(self) -> None:
        """Take in what was committed since the last look; one look for a file where nothing was."""
        try:
            for change in read_changes(self.root, self.table.name, after=self.version):
                self._recent.append(change)
                self.version = change.version
        except LogExpired:
            self._recent = []
            self.version = newest_version(self.root, self.table.name)
        del self._recent[:-_KEPT_VERSIONS]

    def news(self, after: int | None) -> TableChanges:
        """Return the changes after a version; all rows if the log cannot tell, or if nothing was read yet (None)."""
        if after == self.version:
            return TableChanges(self.version)
        found = None if after is None else self._news_after(after)
        if found is not None:
            return found
        files = table_files(self.root, self.table.name, version=self.version)
        return TableChanges(self.version, [(files, frozenset())] if files else [], whole=True)

    def live_after(self, after: int | None) -> list[DataFile]:
        """Files that came after a version and are still part of the table: rows as they are now."""
        if after is None:
            return table_files(self.root, self.table.name, version=self.version)
        try:
            found = self._changes_after(after)
        except LogExpired:
            return table_files(self.root, self.table.name, version=self.version)
        gone = {file.path for change in found for file in change.removed}
        return [file for change in found for file in change.added if file.path not in gone]

    def _news_after(self, after: int) -> TableChanges | None:
        try:
            return collect_changes(self._changes_after(after), after)
        except LogExpired:
            return None

    def _changes_after(self, after: int) -> list[VersionChange]:
        if after > self.version:
            raise LogExpired(after)  # the table was recreated
        known = [change for change in self._recent if change.version > after]
        if known and known[0].version == after + 1:
            return known
        return list(read_changes(self.root, self.table.name, after=after, upto=self.version))


class SharedArrivals:
    """One look at the logs and one scan of the new readings for all who derive from them. Not thread-safe."""

    def __init__(self, spark: "SparkSession", root: str, *, every_seconds: float = 0.0) -> None:
        """`every_seconds`: how often a pass is due at most."""
        self._spark, self._root = spark, root
        self.readings, self.dead_letters, self.duplicates, self.ledger = (
            TableChangeReader(root, table) for table in (READINGS, DEAD_LETTERS, DUPLICATES, LEDGER)
        )
        self._held: tuple[tuple[str, ...], DataFrame] | None = None
        self._looked = False
        self._every, self._due_at, self._is_due = every_seconds, 0.0, False

    def begin(self) -> bool:
        """Return whether a pass is due; the first caller decides for all until `release`."""
        now = time.monotonic()
        if not self._is_due and now >= self._due_at:
            self._is_due, self._due_at = True, now + self._every
        return self._is_due

    def run_soon(self) -> None:
        """The next pass is due at once."""
        self._due_at = 0.0

    def look(self) -> None:
        """Look at all logs, once a pass: until `release` every caller gets the same versions."""
        if self._looked:
            return
        self._looked = True
        for log in (self.readings, self.dead_letters, self.duplicates, self.ledger):
            log.look()

    def rows(self, log: TableChangeReader, news: TableChanges, columns: Sequence[str]) -> "DataFrame | None":
        """Return these columns of the landed rows; None if there are no files."""
        parts = []
        for files, hashes in news.groups:
            part = rows_of(self._spark, self._root, log.table, files).select(*columns)
            parts.append(drop_devices(part, hashes) or part)
        if not parts:
            return None
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.unionByName(part)
        return coalesce_few_rows(rows, news.rows)

    def readings_rows(self, news: TableChanges, columns: Sequence[str]) -> "DataFrame | None":
        """Return rows of readings like `rows`; kept in memory for the next caller with the same files and columns."""
        if news.whole or news.rows > SMALL_ROWS:
            return self.rows(self.readings, news, columns)
        key = (str(news.upto), *columns, *(file.path for file in news.files), *(h for _, hs in news.groups for h in hs))
        if self._held is None or self._held[0] != key:
            self._drop()
            rows = self.rows(self.readings, news, columns)
            if rows is None:
                return None
            self._held = (key, rows.persist())
        return self._held[1]

    def release(self) -> None:
        """The pass is over: forget the rows that are kept in memory."""
        self._looked = self._is_due = False
        self._drop()

    def _drop(self) -> None:
        if self._held is not None:
            self._held[1].unpersist()
            self._held = None


def drop_devices(rows: "DataFrame | None", hashes: Iterable[str]) -> "DataFrame | None":
    """The rows of other devices than these, named by their hashes."""
    listed = sorted(hashes)
    if rows is None or not listed:
        return rows
    from pyspark.sql import functions as F

    return rows.where(~F.sha2(F.coalesce("device", F.lit("")).cast("binary"), 256).isin(listed))


def coalesce_few_rows(rows: "DataFrame", count: int) -> "DataFrame":
    """Return the rows in one partition if they are few, so that later steps exchange nothing."""
    return rows.coalesce(1) if count <= SMALL_ROWS else rows
