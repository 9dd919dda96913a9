"""Spark's checkpoint as the landing reads it: whether it exists, whether it is complete, and which offsets it has planned.

It is read through Hadoop's file system, so it can be in any place that Spark supports.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.contract.errors import FatalError
from streaming.landing_offsets import Offsets, parse_offset_log, parse_source_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Checkpoint", "LocalCheckpoint"]


class Checkpoint:
    """The checkpoint folder of the landing query."""

    def __init__(self, spark: "SparkSession", path: str) -> None:
        self.path = path.rstrip("/")
        self._jvm: Any = spark._jvm
        assert spark._jsc is not None  # noqa: S101
        self._configuration = spark._jsc.hadoopConfiguration()

    def query_id(self) -> str | None:
        """The id of the query that this checkpoint belongs to; None for a new one.

        Raises:
            FatalError: batches are there but the id is not, or is not readable: to go on would land them twice.
        """
        text = self._read("metadata")
        if text is None:
            if self.planned() is not None:
                raise FatalError(self._broken("its file `metadata` is missing"))
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise FatalError(self._broken("its file `metadata` is damaged")) from error

    def begun(self) -> bool:
        """Return whether the checkpoint has an offset to go on from; a new one has none, nor has one killed before its first."""
        return self.query_id() is not None and (self.planned() is not None or self._begin() is not None)

    def verify(self) -> None:
        """Refuse a checkpoint with which Spark would fail or skip records.

        Raises:
            FatalError: names the file and the next step.
        """
        self.query_id()
        if what := self.damage():
            raise FatalError(self._broken(what))

    def damage(self) -> str | None:
        """Return the damage in the newest batches' files: Spark goes on from the last two."""
        planned, finished = self._numbers("offsets"), self._numbers("commits")
        newest = max(planned, default=-1)
        if max(finished, default=-1) > newest:
            return f"its file `offsets/{max(finished)}` is missing"
        for batch in range(max(0, newest - 1), newest + 1):
            if not self._is_whole(f"offsets/{batch}", parse_offset_log):
                return f"its file `offsets/{batch}` is {'damaged' if batch in planned else 'missing'}"
        # Spark would run the newest batch again and pass over the one before it.
        if newest > 0 and not {newest, newest - 1} & set(finished):
            return f"its file `commits/{newest - 1}` is missing"
        for batch in finished:
            if batch >= newest - 1 and not self._is_whole(f"commits/{batch}", _parse_commit):
                return f"its file `commits/{batch}` is damaged"
        return self._damaged_begin() if newest < 0 else None

    def last_good(self) -> int | None:
        """Return the newest batch from which Spark can go on: finished, with complete offsets, its own and those before."""
        for batch in sorted(set(self._numbers("commits")), reverse=True):
            offsets = range(max(0, batch - 1), batch + 1)
            if self._is_whole(f"commits/{batch}", _parse_commit) and all(
                self._is_whole(f"offsets/{each}", parse_offset_log) for each in offsets
            ):
                return batch
        return None

    def _damaged_begin(self) -> str | None:
        try:
            self._begin()
        except ValueError:
            return "its file `sources/0/0` is damaged"
        return None

    def _is_whole(self, name: str, parse: Callable[[str], object]) -> bool:
        try:
            parse(self._read(name) or "")
        except ValueError:
            return False
        return True

    def planned(self) -> int | None:
        """Number of the newest batch that was planned."""
        return max(self._numbers("offsets"), default=None)

    def finished(self) -> int | None:
        """Number of the newest batch that is done; None before the first."""
        return max(self._numbers("commits"), default=None)

    def next_offsets(self) -> Offsets | None:
        """Return the start of the next batch: the end of the newest finished one. None before the first."""
        finished = self.finished()
        return self.ends(finished) if finished is not None else self._begin()

    def planned_ends(self) -> Offsets:
        """Return the end of the newest planned batch, which may not have run yet; nothing before the first."""
        planned = self.planned()
        return self.ends(planned) if planned is not None else {}

    def starts(self, batch: int) -> Offsets:
        """Return the start of a batch."""
        return self.ends(batch - 1) if batch > 0 else self._begin() or {}

    def ends(self, batch: int) -> Offsets:
        """Return the end of a batch.

        Raises:
            FatalError: the file is missing or torn.
        """
        text = self._read(f"offsets/{batch}")
        try:
            return parse_offset_log(text or "")
        except ValueError as error:
            raise FatalError(
                self._broken(f"its file `offsets/{batch}` is {'damaged' if text else 'missing'}")
            ) from error

    def _begin(self) -> Offsets | None:
        # Written by the Kafka source before its first batch: a zero byte, then version and offsets.
        text = self._read("sources/0/0")
        return None if text is None else parse_source_offsets(text[text.index("{") :])

    def _broken(self, what: str) -> str:
        return (
            f"The checkpoint {self.path} can't be used: {what}. The tables hold their own offsets, so nothing is lost. Run "
            "`tidegate repair` to see the fix, and again with --apply to make it; the repair neither loses nor doubles rows."
        )

    def _read(self, name: str) -> str | None:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}")
        files = path.getFileSystem(self._configuration)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        except Exception as error:
            if "ChecksumException" in str(error):
                return ""  # torn: parsing finds it
            raise
        finally:
            stream.close()

    def _numbers(self, folder: str) -> list[int]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{folder}")
        files = path.getFileSystem(self._configuration)
        if not files.exists(path):
            return []
        names = (status.getPath().getName() for status in files.listStatus(path))
        return [int(name) for name in names if name.isdigit()]


class LocalCheckpoint(Checkpoint):
    """The same checkpoint read without a JVM, on this machine's disk."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder = str(path), path

    def _read(self, name: str) -> str | None:
        try:
            return (self.folder / name).read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def _numbers(self, folder: str) -> list[int]:
        try:
            return [int(path.name) for path in (self.folder / folder).iterdir() if path.name.isdigit()]
        except FileNotFoundError:
            return []


def _parse_commit(text: str) -> object:
    """A file of `<checkpoint>/commits`: version, then one JSON object.

    Raises:
        ValueError: it is torn.
    """
    version, _, rest = text.strip().partition("\n")
    if version != "v1":
        message = f"version {version[:20]!r} instead of v1"
        raise ValueError(message)
    return json.loads(rest)
