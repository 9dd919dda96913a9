"""Check of a written batch for copies: the interface of its two ways, by the driver and by the executors.

The driver's way (streaming/driver_check.py) costs a small batch the least. The way of the executors
(streaming/executors/executor_check.py) keeps no row in the driver, so that workers add throughput.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakehouse.append import Append

__all__ = ["CheckedBatch", "CopyCheck", "IdentityIndex", "Refusals"]


class IdentityIndex(Protocol):
    """The identities in `readings`, as an erasure needs them."""

    def forget(self, device: str) -> None:
        """Forget a device, here and on disk; callable from any thread."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """Records of a batch that become dead letters because of their copies.

    Attributes:
        letters: rows of CONFLICT_SCHEMA; None if there are none.
        conflicts: number of records with other content than the stored row.
        unchecked: number of copies that could not be compared.
    """

    letters: "DataFrame | None"
    conflicts: int
    unchecked: int


class CheckedBatch(Protocol):
    """A batch of readings that is written and not committed.

    Attributes:
        rows: number of rows in the files that were written last.
        records: number of Kafka records that the rows came from at first.
        copies: number of rows that are stored already, or twice in the batch.
    """

    rows: int
    records: int
    copies: int

    def refusals(self) -> Refusals:
        """Compare the copies with the stored rows."""

    def duplicate_rows(
        self, began_at: datetime, topic: str, landed: Sequence[tuple[str, int, int]]
    ) -> "tuple[DataFrame, int] | None":
        """Return rows of `duplicates` and their number; None if there are none.

        Args:
            began_at: start of the batch.
            topic: topic of the readings.
            landed: topic, partition and end of what the commits of `duplicates` already cover.
        """

    def without_copies(self, rows: "DataFrame") -> "DataFrame":
        """Return the rows (with `position`) without the copies and without `position`, in the same order."""

    def rewritten(self) -> None:
        """Take note that the append now holds the rows without the copies."""

    def committed(self, paths: Sequence[str], began_at: datetime, committed_at: float) -> None:
        """Learn the rows of these files, which are committed; `committed_at` is in epoch seconds."""

    def close(self) -> None:
        """Free what only this batch needs."""


class CopyCheck(Protocol):
    """A way to check batches, which knows all stored identities. Not thread-safe: the landing's batch calls it."""

    def check(self, append: "Append", counted: Sequence[tuple[int, int]]) -> CheckedBatch:
        """Find the copies in what was written.

        Args:
            append: the append with the written files.
            counted: partition and end that earlier commits of `duplicates` cover: a run of this batch was cut off there.
        """

    def close(self, landed_at: datetime | None) -> None:
        """Save what the next start needs, for rows that landed up to then."""
