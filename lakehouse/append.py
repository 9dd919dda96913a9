"""Append to a Delta table in two steps, write and commit, so that the writer can read the new rows in between.

`DataFrame.write` commits at once. Here Delta's own transaction (`OptimisticTransaction`, proved for the pinned version) writes
the data files first. The caller reads the key columns back, may write again without rows that must not be there, and commits
only the last files. Files without a commit are invisible to every reader. They are deleted, unless a commit was tried: then it
is unknown whether they are part of the table.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from lakehouse.changes import DataFile
from lakehouse.conditional_puts import is_put_conflict
from lakehouse.data_files import read_columns, sync_files
from lakehouse.log_holds import log_holds, snapshot_checkpoint
from lakehouse.paths import is_local, log_name, table_uri
from lakehouse.tables import Table
from lakehouse.writer_epoch import fence_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Append", "Appender", "reopen_appender"]

_LOCKS: dict[str, threading.Lock] = {}
"""One per table: who commits holds it, so that no commit of this process ever finds another one in its way."""


class Appender:
    """The way into one table; begins one append at a time.

    One process writes under a root: see lakehouse/lock.py, and lakehouse/writer_epoch.py for an object store. There a commit of
    another process makes `begin` and `commit` raise CommitConflictError, and the process must end.
    """

    def __init__(self, spark: "SparkSession", root: str, table: Table, *, fsync: bool = False) -> None:
        """`fsync`: on a local disk, each commit is on the disk when it returns, and what it names was before it."""
        self.uri = table_uri(root, table.name)
        self.fsync = fsync and is_local(self.uri)
        self.table = table
        self._spark = spark
        jvm: Any = spark._jvm
        self.jvm = jvm
        self.hadoop: Any = spark._jsc.hadoopConfiguration()
        self.gateway: Any = spark.sparkContext._gateway
        # Looked up once: each name on the way to a class is a question to the JVM, which searches all jars for `org`, for
        # `org.apache`, and so on; some forty of them cost a batch more than its commit.
        delta = jvm.org.apache.spark.sql.delta
        self.path, self.action = jvm.org.apache.hadoop.fs.Path, delta.actions.Action
        self.to_seq: Any = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        self._some, self._nothing = jvm.scala.Option.apply, jvm.scala.Option.empty()
        self._write, self._mode = delta.DeltaOperations.Write, jvm.org.apache.spark.sql.SaveMode.Append
        self._partitioned_by = self._some(self.to_seq(list(table.partitioned_by)))
        self.log: Any = delta.DeltaLog.forTable(spark._jsparkSession, self.uri)
        self.lock = _LOCKS.setdefault(self.uri, threading.Lock())
        self.holds = log_holds(self.uri)
        self.holds.watch(self)
        self.fence = fence_of(self.uri)
        if self._is_behind():
            self.log.update(False, self._nothing, self._nothing)

    @property
    def folder(self) -> Path:
        """Return the folder of a table on a local disk."""
        return Path(self.uri.removeprefix("file:"))

    def begin(self) -> "Append":
        """Start a transaction on the newest version; what its snapshot reads of the log is held until the block is left."""
        with self.lock:  # no thread adopts a checkpoint, and removes the one before, until this one is held
            return Append(self, self.transaction())

    def transaction(self) -> Any:
        """Delta's own transaction, on the newest version that this JVM knows; nobody else writes newer ones.

        Left to itself, Delta lists the whole log to look for them: 25 µs per commit that is kept, before each commit.

        Raises:
            CommitConflictError: another process has committed.
        """
        self.check_version()
        return self.log.startTransaction(self._nothing, self._some(self.log.unsafeVolatileSnapshot()))

    @property
    def version(self) -> int:
        """Newest version that this JVM knows; nobody else writes newer ones."""
        return int(self.log.unsafeVolatileSnapshot().version())

    def held_commits(self) -> int:
        """Commits since the checkpoint that this JVM began with, each of which it keeps in mind."""
        return int(self.log.unsafeVolatileSnapshot().logSegment().deltas().size())

    def beginning(self) -> int:
        """Version of the checkpoint that this JVM's newest snapshot begins with; -1 before the first."""
        return snapshot_checkpoint(self.log.unsafeVolatileSnapshot())

    def _is_behind(self) -> bool:
        """Return whether this JVM already knew the table and another process has written to it since (while no stream ran)."""
        following = f"{self.uri}/{log_name(self.log.unsafeVolatileSnapshot().version() + 1)}"
        path = self.path(following)
        return bool(path.getFileSystem(self.hadoop).exists(path))

    def check_version(self) -> None:
        """Compare the newest version that this JVM knows with the one that this process committed; the lock is held.

        Raises:
            CommitConflictError: another process has committed.
        """
        if self.fence is not None:
            self.fence.check(self.version)

    def operation(self, user_metadata: str) -> Any:
        """Name of the operation in Delta's history of the commit."""
        rest = [self._nothing] * 5
        return self._write(self._mode, self._partitioned_by, self._nothing, self._some(user_metadata), *rest)


class Append:
    """One transaction: `write` (again, to replace), `read_back`, then `commit`; leaving the block discards the rest.

    `committed` is the version that `commit` made, None before.
    """

    def __init__(self, appender: Appender, transaction: Any) -> None:
        self._appender = appender
        self._transaction = transaction
        self._files: Any = None
        self._removed: dict[str, DataFile] = {}
        self.paths: list[str] = []
        self.committed: int | None = None
        self._held: int | None = snapshot_checkpoint(transaction.snapshot())
        appender.holds.begin(self._held)

    @property
    def uri(self) -> str:
        """Place of the table."""
        return self._appender.uri

    @property
    def version(self) -> int:
        """The version of the table that this transaction began on."""
        return int(self._transaction.readVersion())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        with suppress(Exception):
            self.discard()
        if self._held is not None:
            self._appender.holds.end(self._held)
            self._held = None

    def write(self, rows: "DataFrame") -> None:
        """Write the rows as data files, in the order of the frame's partitions; replaces an earlier `write`."""
        # The earlier files stay until now: the rows may be made of them.
        files = self._transaction.writeFiles(rows._jdf)
        self.discard()
        self._files, self.paths = files, [unquote(files.apply(i).path()) for i in range(files.size())]

    @property
    def row_count(self) -> int:
        """Rows in what was written."""
        written = [json.loads(self._files.apply(i).json())["add"] for i in range(len(self.paths))]
        return sum(json.loads(add["stats"])["numRecords"] for add in written)

    def read_back(self, columns: Sequence[str]) -> "pa.Table":
        """Read these columns of the written rows, in the order written."""
        return read_columns(self._appender.uri, self.paths, columns)

    def replace(self, files: "Iterable[DataFile]") -> None:
        """Remove these files from the table in the same commit; the written rows replace them."""
        self._removed |= {file.path: file for file in files}

    def commit(self, user_metadata: "str | Callable[[], str]", *, data_change: bool = True) -> int:
        """Make the rows visible, all at once; returns the version.

        Args:
            user_metadata: the commit's metadata (see lakehouse/commit_metadata.py); a function is called while nobody else
                of this process may commit to the table.
            data_change: False where the same rows are only rearranged: readers that follow the table pass it over.

        Raises:
            CommitConflictError: another process has committed, or the object store reports this commit as another one.
        """
        written, paths, self._files, self.paths = self._files, self.paths, None, []
        fence = self._appender.fence
        is_plain = data_change and written is not None and not self._removed and fence is None
        sequence = written if is_plain else None
        if sequence is None:
            sequence = self._appender.to_seq(self._actions(written, data_change=data_change))
        if self._appender.fsync:
            sync_files(self._appender.folder, paths)
        with self._appender.lock:
            self._appender.check_version()
            # Another thread (compaction) may have committed since this one began: Delta would list the log to see what.
            newest = self._appender.log.unsafeVolatileSnapshot().version()
            fresh = newest != self._transaction.readVersion()
            transaction = self._appender.transaction() if fresh else self._transaction
            told = user_metadata if isinstance(user_metadata, str) else user_metadata()
            operation = self._appender.operation(told)
            try:
                version = self.committed = int(transaction.commit(sequence, operation))
            except Exception as error:
                if fence is not None and is_put_conflict(error):
                    raise fence.conflict() from error
                raise
            if fence is not None:
                fence.version = version
        if self._appender.fsync:
            sync_files(self._appender.folder, [log_name(version)])
        return version

    def _actions(self, written: Any, *, data_change: bool) -> list[Any]:
        actions = [written.apply(i) for i in range(written.size())] if written is not None else []
        if not data_change:
            actions = [self._unchanged(action) for action in actions]
        actions += [self._remove(file, data_change) for file in self._removed.values()]
        if (fence := self._appender.fence) is not None:
            actions.append(self._appender.action.fromJson(json.dumps(fence.action())))
        return actions

    def _remove(self, file: "DataFile", data_change: bool) -> Any:
        action = {
            "path": file.path,
            "deletionTimestamp": int(time.time() * 1000),
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": file.partition,
            "size": file.bytes,
        }
        return self._appender.action.fromJson(json.dumps({"remove": action}))

    def _unchanged(self, action: Any) -> Any:
        data = json.loads(action.json())
        data["add"]["dataChange"] = False
        return self._appender.action.fromJson(json.dumps(data))

    def discard(self) -> None:
        """Delete what was written and not committed."""
        for path in self.paths:
            file = self._appender.path(f"{self._appender.uri}/{path}")
            file.getFileSystem(self._appender.hadoop).delete(file, False)
        self._files, self.paths = None, []


def reopen_appender(spark: "SparkSession", root: str, table: Table, table_id: str) -> Appender:
    """An appender of the table that has this id; the JVM may still know one of the same path that is gone."""
    appender = Appender(spark, root, table)
    if appender.log.unsafeVolatileSnapshot().metadata().id() == table_id:
        return appender
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(spark._jsparkSession, appender.path(appender.uri))
    return Appender(spark, root, table)
