"""Writer epochs of tables in an object store: who starts takes the tables over, and the writer before cannot commit any more.

A local disk has a lock (lakehouse/lock.py). In an object store a commit is one put of the next file of the log that fails if the
file exists. So the log itself decides between two writers:

1. A stream that starts puts a commit with the next writer epoch into the log of each table, at the version after the newest one
   that it read (a transaction of the application `tidegate-writer`). It alters and creates tables when it has the existing ones.
2. Each later commit has the epoch too. It goes to the version after this writer's own last commit, and nowhere else: never on top
   of a commit that this writer did not make.
3. A conflict ends the process. Either another writer has the tables, or the store reported this writer's own put as a conflict
   after a repeated request. The next start reads the log, where a mark says what is stored.

Guarantee: when `take_tables` returns, no writer of an earlier epoch can add a commit to these tables, and all its commits are
before the new one's. A start that reads the marks afterwards misses none. The store must keep the condition `If-None-Match: *`
(`check_conditional_put` in lakehouse/conditional_puts.py tests it).
"""

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ingest.contract.errors import FatalError, UnavailableError
from lakehouse.commit_metadata import custom_metadata
from lakehouse.object_store import IMPATIENT
from lakehouse.paths import table_uri

__all__ = [
    "CommitConflictError",
    "Fence",
    "FencedError",
    "fence_of",
    "find_takeover",
    "refuse_overtaken",
    "take_tables",
]

WRITER: Final = "tidegate-writer"
TRIES: Final = 200
"""Commits of a living writer may come in between; each try costs some requests, so it has been stopped long before."""
PATIENCE_SECONDS: Final = 30.0
"""Time for which a writer with a conflict asks an unreadable log who has the table, before it ends as if nobody had."""
PAUSE_SECONDS: Final = 1.0

_FENCES: dict[str, "Fence"] = {}
"""By the table's URI: one writer per process."""


class CommitConflictError(FatalError):
    """A commit met another one of the same version. The process must end, and the next start finds in the log what is stored."""


class FencedError(CommitConflictError):
    """Another writer has taken the tables over. A supervisor should not start this one again: they would take turns."""

    exit_code = 78


@dataclass(slots=True)
class Fence:
    """This process's right to write one table: its epoch, and the version of its newest commit there."""

    uri: str
    epoch: int
    version: int

    def action(self) -> dict[str, Any]:
        """Return the action of Delta's log that a commit of this writer carries."""
        return {"txn": {"appId": WRITER, "version": self.epoch, "lastUpdated": int(time.time() * 1000)}}

    def check(self, version: int) -> None:
        """Compare the newest version that the JVM knows with this writer's own.

        Raises:
            CommitConflictError: another writer has committed.
        """
        if version != self.version:
            raise self.conflict()

    def takeover(self) -> FencedError | None:
        """Return the error to end with if another writer has this table now; None if not, or if the store does not answer."""
        try:
            return self._newer()
        except Exception:
            return None

    def _newer(self) -> FencedError | None:
        newest = _read(self.uri)[1]
        return FencedError(_taken(self.uri, self.epoch, newest)) if newest > self.epoch else None

    def conflict(self) -> CommitConflictError:
        """Return the error for a commit that met another one; it reads the log to say whose, for PATIENCE_SECONDS if it must."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if (taken := self._newer()) is not None:
                    return taken
            except Exception:
                if time.monotonic() < deadline:
                    time.sleep(PAUSE_SECONDS)
                    continue
            break
        message = (
            f"A commit to {self.uri} met another one of version {self.version + 1}: the store took this stream's own put twice, "
            "or another program writes there. Nothing is lost. The stream ends, and its next start goes on from the table's log."
        )
        return CommitConflictError(message)


def fence_of(uri: str) -> Fence | None:
    """Return the right to write this table; None if no epoch was taken, as for a local table."""
    return _FENCES.get(uri)


def find_takeover(uri: str) -> FencedError | None:
    """Return the error to end with if this process wrote the table and another writer has it now; None if not."""
    fence = fence_of(uri)
    return None if fence is None else fence.takeover()


def refuse_overtaken(uri: str) -> None:
    """Return if no other writer has this table, or if this process has no epoch there.

    Raises:
        FencedError: another writer has it.
        OSError: the store does not answer.
        DeltaError: the table is gone, or its log cannot be read.
    """
    if (fence := fence_of(uri)) is not None and (taken := fence._newer()) is not None:
        raise taken


@contextmanager
def take_tables(root: str, names: Iterable[str], prepare: Callable[[], object] | None = None) -> Iterator[int]:
    """Take the tables over from all earlier writers, and yield the epoch while the block runs.

    `prepare` creates and alters tables. It runs when the existing ones are taken, so that an earlier writer whose commit meets
    an alteration also finds the epoch.

    Raises:
        FencedError: another writer took them over at the same time.
        UnavailableError: other commits kept coming in between.
    """
    uris = [table_uri(root, name) for name in names]
    found = {uri: newest for uri in uris if (newest := _stored_epoch(uri)) is not None}
    epoch = 1 + max(found.values(), default=0)
    fences: dict[str, Fence] = {}
    for uri in found:
        # The first table decides: two starts that chose the same epoch meet there, and one of them takes the next.
        epoch, fences[uri] = _take(uri, epoch, may_raise=not fences)
    if prepare is not None:
        prepare()
        for fence in fences.values():
            fence.version, newest = _read(fence.uri)
            if newest > epoch:
                raise FencedError(_taken(fence.uri, epoch, newest))
    for uri in uris:
        if uri not in found:
            epoch, fences[uri] = _take(uri, epoch, may_raise=not fences)
    _FENCES.update(fences)
    try:
        yield epoch
    finally:
        for uri in fences:
            _FENCES.pop(uri, None)


def _take(uri: str, epoch: int, *, may_raise: bool) -> tuple[int, Fence]:
    """Commit the epoch to a table, or with `may_raise` a higher one if the table has it; return what was committed.

    Without `may_raise` the epoch is this process's alone: the first table made it so. If the table has it after a put that was
    reported as a conflict, that put is in the log, and only its answer was lost.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.exceptions import CommitFailedError

    for tried in range(TRIES):
        table = DeltaTable(uri)
        version, newest = int(table.version()), int(table.transaction_version(WRITER) or 0)
        if newest == epoch and tried and not may_raise:
            return epoch, Fence(uri, epoch, version)
        if newest >= epoch and not may_raise:
            raise FencedError(_taken(uri, epoch, newest))
        epoch = max(epoch, newest + 1)
        now = int(time.time() * 1000)
        # With no retries delta-rs puts this commit at the next version or nowhere.
        properties = CommitProperties(
            custom_metadata=custom_metadata(
                {"writer": {"epoch": epoch, "host": socket.gethostname(), "pid": os.getpid()}}
            ),
            max_commit_retries=0,
            app_transactions=[Transaction(WRITER, epoch, now)],
        )
        try:
            table.create_write_transaction(
                [],
                "append",
                table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=properties,
            )
        except CommitFailedError:
            continue
        return epoch, Fence(uri, epoch, version + 1)
    message = f"Other commits to {uri} came in between {TRIES} times. Stop the other writers, then start again."
    raise UnavailableError(message)


def _stored_epoch(uri: str) -> int | None:
    """Return the writer epoch of a table; None if there is no table."""
    from deltalake.exceptions import TableNotFoundError

    try:
        return _read(uri)[1]
    except TableNotFoundError:
        return None


def _read(uri: str) -> tuple[int, int]:
    """Return the newest version of a table and its writer epoch; epoch 0 if it never had one."""
    from deltalake import DeltaTable

    table = DeltaTable(uri, storage_options=dict(IMPATIENT))
    return int(table.version()), int(table.transaction_version(WRITER) or 0)


def _taken(uri: str, epoch: int, newest: int) -> str:
    return (
        f"Another stream has taken over the table {uri} (writer epoch {newest}, this one has {epoch}). This stream ends without "
        "its last commit; the other one lands those records. Run only one stream for these tables."
    )
