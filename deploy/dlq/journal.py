"""Which letters were redriven, when, by whom and with what end: JSON lines beside the tables, some files per run.

The tables have one writer, and it is not the redrive. So what a redrive did is written here, after Kafka has it, and
laid over the table by every `dlq` command. A redrive that was killed before it wrote is done again: the identities of
its readings make that harmless.
"""

import getpass
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ingest.contract.errors import FatalError
from lakehouse.files import is_local
from lakehouse.lock import WriterLock

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FOLDER", "Entry", "Journal", "LetterName", "read_journal"]

FOLDER: Final = "_redrive"

LetterName = tuple[str, int, int, int | None, int | None]
"""Source topic, partition, offset, gateway epoch and number: names a letter also where its topic was made anew."""


class Entry(msgspec.Struct, omit_defaults=True):
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

    @property
    def name(self) -> LetterName:
        """Which letter it is about."""
        return self.source_topic, self.partition, self.offset, self.epoch, self.number


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Entry)


class Journal:
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

    def entry(self, name: LetterName, ending: str, *, readings: int = 0, why: str | None = None) -> Entry:
        """An entry of this run, dated now."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return Entry(*name, self.run, at, self._by, ending, readings, why)

    def append(self, entries: Iterable[Entry]) -> None:
        """Write entries as a file of their own, there whole or not at all."""
        lines = b"".join(_encoder.encode(entry) + b"\n" for entry in entries)
        if not lines:
            return
        try:
            self._folder.write(f"{self.run}-{self._files:06d}.jsonl", lines)
        except OSError as error:
            message = (
                f"The journal of the redrive in {self._folder.name} cannot be written ({error.strerror or error}). Kafka "
                "has what was redriven; mend that and run the same command again: nothing is stored twice."
            )
            raise FatalError(message) from error
        self._files += 1

    def close(self) -> None:
        """Let the next redrive begin."""
        if self._lock is not None:
            self._lock.close()


def read_journal(root: str) -> "pa.Table":
    """Per letter its name, `attempts`, and time (`at`) and `ending` of the last one."""
    import pyarrow as pa

    known: dict[LetterName, tuple[int, Entry]] = {}
    for entry in _entries(_Folder(root)):
        known[entry.name] = (known.get(entry.name, (0, entry))[0] + 1, entry)
    rows = [
        dict(zip(_COLUMNS, (*name, attempts, datetime.fromisoformat(last.at), last.ending), strict=True))
        for name, (attempts, last) in known.items()
    ]
    kinds = (pa.string(), pa.int32(), *(pa.int64(),) * 3, pa.int32(), pa.timestamp("us", "UTC"), pa.string())
    return pa.Table.from_pylist(rows, schema=pa.schema(list(zip(_COLUMNS, kinds, strict=True))))


_COLUMNS: Final = ("source_topic", "partition", "offset", "epoch", "number", "attempts", "at", "ending")


def _entries(folder: "_Folder") -> Iterator[Entry]:
    """All of them, in the order of the runs; what is no entry is passed over."""
    for lines in folder.read():
        for line in lines.splitlines():
            try:
                yield _decoder.decode(line)
            except msgspec.DecodeError:
                continue


class _Folder:
    """The journal's folder under the root, on a disk or an object store."""

    def __init__(self, root: str) -> None:
        self.path = Path(root.removeprefix("file://")) / FOLDER if is_local(root) else None
        self.name = self._uri = f"{root.rstrip('/')}/{FOLDER}"

    def write(self, name: str, content: bytes) -> None:
        if self.path is None:
            with self._store().open_output_stream(name) as out:
                out.write(content)
            return
        part = self.path / f".{name}.part"
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path / name)

    def read(self) -> Iterator[bytes]:
        if self.path is not None:
            yield from (file.read_bytes() for file in sorted(self.path.glob("[!.]*.jsonl")))
            return
        from pyarrow.fs import FileSelector

        store = self._store()
        for info in sorted(store.get_file_info(FileSelector("", allow_not_found=True)), key=lambda found: found.path):
            with store.open_input_stream(info.path) as file:
                yield file.readall()

    def _store(self) -> Any:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self._uri))


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
