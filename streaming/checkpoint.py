"""What the landing reads of Spark's checkpoint: does it exist, is it whole, how far did it plan.

Through Hadoop's file system, so that it works wherever Spark's checkpoint lies.
"""

import json
from typing import TYPE_CHECKING, Any

from ingest.contract.errors import FatalError
from streaming.offsets import Offsets, parse_offset_log, parse_source_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Checkpoint"]


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

    def planned(self) -> int | None:
        """Number of the newest batch that was planned."""
        return max(self._numbers("offsets"), default=None)

    def next_offsets(self) -> Offsets | None:
        """Where the next batch begins: the end of the newest finished one. None before the first."""
        finished = max(self._numbers("commits"), default=None)
        return self.ends(finished) if finished is not None else self._begin()

    def starts(self, batch: int) -> Offsets:
        """Where a batch began."""
        return self.ends(batch - 1) if batch > 0 else self._begin() or {}

    def ends(self, batch: int) -> Offsets:
        """Where a batch ends.

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
            f"The checkpoint {self.path} can't be used: {what}. The tables are whole and hold their own offsets: move this "
            "folder away and start again; landing then goes on from what the tables say, neither losing nor doubling rows."
        )

    def _read(self, name: str) -> str | None:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}")
        files = path.getFileSystem(self._configuration)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _numbers(self, folder: str) -> list[int]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{folder}")
        files = path.getFileSystem(self._configuration)
        if not files.exists(path):
            return []
        names = (status.getPath().getName() for status in files.listStatus(path))
        return [int(name) for name in names if name.isdigit()]
