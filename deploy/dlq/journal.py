"""Journal of redrives (letter, time, author, ending): JSON lines next to the tables, several files per run.

The tables have one writer, which is not the redrive. So a redrive writes its results here, after Kafka has the records, and
every `dlq` command combines the journal with the table. A redrive that was killed before this write is repeated, which is
harmless because of the readings' identities.

Readers keep what they have read, and read only new files. On a disk, a redrive that finds many files joins them into one entry
per letter, without letters that retention has deleted. The joined file `joined-<last>.jsonl` replaces each file up to <last>,
so a kill between its write and their removal changes nothing.
"""

import getpass
import os
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ingest.contract.errors import FatalError
from lakehouse.lock import WriterLock
from lakehouse.object_store import put_object
from lakehouse.paths import is_local, to_path

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LetterName", "RedriveEntry", "RedriveJournal", "read_journal"]

FOLDER: Final = "_redrive"
MOST_FILES: Final = 64
"""More are joined when the next redrive begins."""
JOINED: Final = "joined-"
SPARE_DAYS: Final = 2
"""Retention deletes whole days, and not on the minute."""

LetterName = tuple[str, int, int, int | None, int | None]
"""Source topic, partition, offset, gateway epoch and number: names a dead letter even if its topic was recreated."""


class RedriveEntry(msgspec.Struct, omit_defaults=True):
    """One letter in one run. `run` is the start of the redrive in epoch ms, the gateway epoch of what it produced."""

    source_topic: str
    partition: int
    offset: int
    epoch: int | None
    number: int | None
    run: int
    at: str
    by: str
    ending: str
    readings: int = 0
    why: str | None = None
    attempts: int = 1

    @property
    def name(self) -> LetterName:
        """Name of the dead letter that the entry is about."""
        return self.source_topic, self.partition, self.offset, self.epoch, self.number


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(RedriveEntry)


class RedriveJournal:
    """The entries of one run. Where the tables are on a disk it holds a lock: one redrive at a time."""

    def __init__(self, root: str, run: int) -> None:
        """Take the lock.

        Raises:
            FatalError: another redrive is at work.
        """
        self._folder, self.run = _Folder(root), run
        self._lock = None
        if self._folder.path is not None:
            self._lock = WriterLock(self._folder.path, what="redrive journal", patience_seconds=1.0)
        self._by, self._files = _who(), 0

    def entry(self, name: LetterName, ending: str, *, readings: int = 0, why: str | None = None) -> RedriveEntry:
        """An entry of this run, dated now."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return RedriveEntry(*name, self.run, at, self._by, ending, readings, why)

    def append(self, entries: Iterable[RedriveEntry]) -> None:
        """Write entries as a file of their own, there whole or not at all."""
        lines = b"".join(_encoder.encode(entry) + b"\n" for entry in entries)
        if not lines:
            return
        try:
            self._folder.write(f"{self.run}-{self._files:06d}.jsonl", lines)
        except OSError as error:
            message = (
                f"Cannot write the redrive journal in {self._folder.name} ({error.strerror or error}). Kafka has the redriven "
                "records. Fix the cause and run the same command again; nothing is stored twice."
            )
            raise FatalError(message) from error
        self._files += 1

    def join_files(self, keep_days: int) -> None:
        """Join many files into one entry per letter; only the holder of the lock may do this.

        Args:
            keep_days: how long letters are kept; 0 keeps all.
        """
        names = self._folder.names()
        if self._folder.path is None or len(names) <= MOST_FILES:
            return
        oldest = datetime.now(UTC) - timedelta(days=keep_days + SPARE_DAYS)
        known: dict[LetterName, RedriveEntry] = {}
        for name in names:
            _fold(known, self._folder.read(name))
        kept = [entry for entry in known.values() if not keep_days or datetime.fromisoformat(entry.at) >= oldest]
        lines = b"".join(_encoder.encode(entry) + b"\n" for entry in kept)
        try:
            self._folder.write(f"{JOINED}{names[-1].removeprefix(JOINED)}", lines)
            self._folder.remove_replaced()
        except OSError:
            return  # the files that are there say the same; the next redrive tries again

    def close(self) -> None:
        """Let the next redrive begin."""
        if self._lock is not None:
            self._lock.close()


def read_journal(root: str) -> "pa.Table":
    """Per letter its name, `attempts`, and time (`at`) and `ending` of the last one."""
    with _reading:
        return _read.setdefault(root, _Read()).table(_Folder(root))


_COLUMNS: Final = ("source_topic", "partition", "offset", "epoch", "number", "attempts", "at", "ending")


class _Read:
    """Known entries of one folder. Files are written whole and never changed, so each is read once."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._known: dict[LetterName, RedriveEntry] = {}
        self._table: pa.Table | None = None

    def table(self, folder: "_Folder") -> "pa.Table":
        names = folder.names()
        if self._table is not None and names == self._names:
            return self._table
        if names[: len(self._names)] != self._names:
            self._names, self._known = [], {}
        for name in names[len(self._names) :]:
            _fold(self._known, folder.read(name))
        self._names, self._table = names, _as_table(self._known)
        return self._table


_reading: Final = threading.Lock()
_read: Final[dict[str, _Read]] = {}


def _fold(known: dict[LetterName, RedriveEntry], lines: bytes) -> None:
    """Add a file's entries, of later runs than those before; what is not an entry is passed over."""
    for line in lines.splitlines():
        try:
            entry = _decoder.decode(line)
        except msgspec.DecodeError:
            continue
        before = known.get(entry.name)
        entry.attempts += before.attempts if before else 0
        known[entry.name] = entry


def _as_table(known: dict[LetterName, RedriveEntry]) -> "pa.Table":
    import pyarrow as pa

    rows = [
        dict(zip(_COLUMNS, (*name, last.attempts, datetime.fromisoformat(last.at), last.ending), strict=True))
        for name, last in known.items()
    ]
    kinds = (pa.string(), pa.int32(), *(pa.int64(),) * 3, pa.int32(), pa.timestamp("us", "UTC"), pa.string())
    return pa.Table.from_pylist(rows, schema=pa.schema(list(zip(_COLUMNS, kinds, strict=True))))


class _Folder:
    """The journal's folder under the root, on a disk or an object store."""

    def __init__(self, root: str) -> None:
        self.path = to_path(root) / FOLDER if is_local(root) else None
        self.name = self._uri = f"{root.rstrip('/')}/{FOLDER}"

    def names(self) -> list[str]:
        """The files that count, in the order of the runs: the newest joined one, and what came after it."""
        return _counting(self._all())

    def remove_replaced(self) -> None:
        """Remove the files that the newest joined file replaces."""
        assert self.path is not None  # noqa: S101
        every = self._all()
        for name in set(every) - set(_counting(every)):
            (self.path / name).unlink(missing_ok=True)

    def write(self, name: str, content: bytes) -> None:
        if self.path is None:
            put_object(self._uri, name, content)
            return
        part = self.path / f".{name}.part"
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path / name)

    def read(self, name: str) -> bytes:
        """One file; nothing where it was joined meanwhile, which the next look at the names shows."""
        try:
            if self.path is not None:
                return (self.path / name).read_bytes()
            with self._store().open_input_stream(name) as file:
                return bytes(file.readall())
        except FileNotFoundError:
            return b""

    def _all(self) -> list[str]:
        if self.path is not None:
            return [path.name for path in self.path.glob("[!.]*.jsonl")]
        from pyarrow.fs import FileSelector

        return [info.path for info in self._store().get_file_info(FileSelector("", allow_not_found=True))]

    def _store(self) -> Any:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self._uri))


def _counting(names: Iterable[str]) -> list[str]:
    """Return the names sorted, without those that the newest joined file replaces."""
    by_last = sorted(names, key=lambda name: (name.removeprefix(JOINED), name.startswith(JOINED)))
    newest = max((at for at, name in enumerate(by_last) if name.startswith(JOINED)), default=0)
    return by_last[newest:]


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
