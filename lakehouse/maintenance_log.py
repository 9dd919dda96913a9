"""Maintenance of a table's log: checkpoints, and removal of entries past the log's retention, so that the log stays fast to read.

Delta would do both within every two-hundredth commit while rows wait: for seconds, with Spark jobs and a listing of a folder
with a file per commit of the last day. Here both run next to the commits, without a JVM.
"""

import json
import re
import time
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from lakehouse.changes import parse_change
from lakehouse.paths import is_local, log_name, table_uri

if TYPE_CHECKING:
    from lakehouse.append import Appender

__all__ = [
    "KEPT_EVERY_SECONDS",
    "adopt_checkpoint",
    "clean_log",
    "commit_time",
    "last_checkpoint",
    "write_checkpoint",
]

_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\..*parquet")
_COMMIT: Final = re.compile(r"(\d{20})\.json")
KEPT_EVERY_SECONDS: Final = 3600.0
"""Of older checkpoints, one an hour is kept: reading an old version then replays at most an hour of commits."""


def last_checkpoint(root: str, name: str) -> int:
    """Version of the newest checkpoint; -1 before the first."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    files = PyFileSystem(DeltaStorageHandler(table_uri(root, name)))
    try:
        with files.open_input_stream("_delta_log/_last_checkpoint") as stream:
            return int(json.loads(stream.readall())["version"])
    except (FileNotFoundError, ValueError, KeyError):
        return -1


def write_checkpoint(root: str, name: str) -> int:
    """Write a checkpoint of the newest version; returns that version."""
    from deltalake import DeltaTable

    table = DeltaTable(table_uri(root, name))
    table.create_checkpoint()
    return int(table.version())


def adopt_checkpoint(appender: "Appender", version: int) -> None:
    """Let this JVM forget the commits before a checkpoint: it holds a file status of each, some hundred bytes, for ever.

    Asked to refresh, Delta would list the whole log to find what it knows already; here it gets the version.
    """
    log, jvm = appender.log, appender.jvm
    nothing = jvm.scala.Option.empty()
    path = jvm.org.apache.hadoop.fs.Path(f"{appender.uri}/_delta_log/{version:020d}.checkpoint.parquet")
    status = path.getFileSystem(appender.hadoop).getFileStatus(path)
    with appender.lock:
        known = log.unsafeVolatileSnapshot()
        deltas, since = known.logSegment().deltas(), known.version() - version
        if since < 0 or deltas.size() <= since:
            return  # it begins with this checkpoint, or a newer one, already; or it does not know the version yet
        # With the checkpoint's own commit: without any, Delta takes the log for a torn one.
        later = deltas.takeRight(since + 1)
        files = appender.gateway.new_array(jvm.org.apache.hadoop.fs.FileStatus, since + 2)
        files[0] = status
        for i in range(since + 1):
            files[i + 1] = later.apply(i)
        given = jvm.scala.Option.apply(files)
        segment = log.getLogSegmentForVersion(nothing, given, False, nothing, nothing, nothing, nothing)
        fresh = log.createSnapshot(segment.get(), nothing, nothing, known.checksumOpt())
        log.installSnapshot(fresh, int(time.time() * 1000))


def commit_time(root: str, name: str, version: int) -> float | None:
    """Return the time of a version's commit, in epoch seconds; None if its file does not exist (yet, or no longer)."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import FileType, PyFileSystem

    files = PyFileSystem(DeltaStorageHandler(table_uri(root, name)))
    info = files.get_file_info(log_name(version))
    return info.mtime.timestamp() if info.type == FileType.File else None


def clean_log(
    root: str,
    name: str,
    *,
    keep_from: float,
    now: float | None = None,
    held: Collection[int] = (),
    every_seconds: float = KEPT_EVERY_SECONDS,
) -> int:
    """Remove commits and checkpoints that no version since `keep_from` (epoch seconds) needs; returns how many files.

    The newest checkpoint that is older than that stays, and every commit after it: all versions since can be read. So does
    the newest commit that says how far the table is (its landing's mark, its derivation's cursor), however old it is.

    Args:
        root: of the tables.
        name: of the table.
        keep_from: versions since then can be read afterwards.
        now: epoch seconds; the clock's where None.
        held: versions from which a running reader reads the log: the newest checkpoint at or before each of them stays,
            and every commit after the oldest of these; -1 holds the whole log.
        every_seconds: of older checkpoints, one per so many seconds stays. One that was the newest within this time stays
            too: a reader of another process may have begun with it.
    """
    from pyarrow.fs import FileSelector

    files, prefix = _file_system(table_uri(root, name))
    found = {info.base_name: info for info in files.get_file_info(FileSelector(f"{prefix}_delta_log"))}
    commits = {int(m[1]): n for n in found if (m := _COMMIT.fullmatch(n))}
    checkpoints = {int(m[1]): n for n in found if (m := _CHECKPOINT.fullmatch(n))}
    times = {version: found[n].mtime.timestamp() for version, n in checkpoints.items()}
    # A checkpoint is written after its version: that version is older still.
    needed = max((version for version, at in times.items() if at < keep_from), default=-1)
    bases = {max((version for version in times if version <= each), default=-1) for each in held}
    needed = min([needed, *bases])
    if any(version < needed for version in commits):
        marked = _newest_marked(files, f"{prefix}_delta_log", sorted(commits.values(), reverse=True))
        needed = max((version for version in times if version <= min(needed, marked)), default=-1)
    old = [n for version, n in [*commits.items(), *checkpoints.items()] if version < needed]
    between = _between(times, needed, now=time.time() if now is None else now, every_seconds=every_seconds)
    old += [checkpoints[version] for version in between if version not in bases]
    for each in old:
        files.delete_file(f"{prefix}_delta_log/{each}")
    return len(old)


def _newest_marked(files: Any, folder: str, commits: list[str]) -> int:
    """The newest version that carries a mark or a cursor; the newest of all where none does: there is nothing to keep."""
    for each in commits:
        with files.open_input_stream(f"{folder}/{each}") as stream:
            change = parse_change(int(each[:20]), str(stream.readall(), "utf-8"))
        if change.metadata.says_progress:
            return change.version
    return int(commits[0][:20])


def _between(times: Mapping[int, float], needed: int, *, now: float, every_seconds: float) -> list[int]:
    """Checkpoints that come soon after one that is kept; those that somebody may have begun with lately stay."""
    gone, kept_at = [], times.get(needed, float("-inf"))
    versions = sorted(times)
    for version, following in pairwise(versions[:-1]):
        if version <= needed:
            continue
        # Until the following one was written, this one was the newest.
        if times[version] - kept_at < every_seconds and times[following] < now - every_seconds:
            gone.append(version)
        else:
            kept_at = times[version]
    return gone


def _file_system(uri: str) -> tuple[Any, str]:
    """The file system of a table, and what to put before names in its folder."""
    from pyarrow.fs import LocalFileSystem, PyFileSystem

    if is_local(uri):
        return LocalFileSystem(), f"{uri.removeprefix('file://')}/"
    from deltalake.fs import DeltaStorageHandler

    return PyFileSystem(DeltaStorageHandler(uri)), ""
