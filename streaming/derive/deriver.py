"""The chore that keeps the derived tables up to date: it runs each derivation in turn; a failed one does not stop the others."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from ingest.contract.errors import RetryableError
from lakehouse.writer_epoch import CommitConflictError
from streaming.writer_context import WriterContext

__all__ = ["Derivation", "Deriver", "arrival_derivations", "derivations"]

logger = logging.getLogger("tidegate.streaming.derive")

ARRIVAL_SECONDS: Final = 6.0
"""Ledger, latest and devices are brought up this often at most, however short `derive_seconds` is."""


class Derivation(Protocol):
    """One or more tables derived from `readings`, `dead_letters` or the outcomes."""

    name: str

    def run(self) -> bool:
        """Take in what was committed since the table's own cursor; False where there was nothing new.

        Guarantee: rows and cursor are one commit; killed anywhere, the next run continues as if it had not been.
        """
        ...


class Deriver:
    """Runs them in turn. Not thread-safe: the chores' thread calls it."""

    def __init__(self, derivations: Sequence[Derivation]) -> None:
        self._derivations = derivations

    def run_pass(self) -> bool:
        """Run one pass over all; return whether any had changes.

        Raises:
            CommitConflictError: this process may not write any more.
            RetryableError: some failed; the others ran.
        """
        news, failed = False, []
        for derivation in self._derivations:
            try:
                news |= derivation.run()
            except CommitConflictError:
                raise
            except Exception as error:
                logger.debug("%s failed", derivation.name, exc_info=error)
                failed.append(f"{derivation.name}: {' '.join(str(error).split())[:200]}")
        if failed:
            raise RetryableError("; ".join(failed), retry_after_seconds=5.0)
        return news


def derivations(writer: WriterContext) -> list[Derivation]:
    """All derivations of this version, in the order in which they run."""
    from streaming.derive.rollups import RollupDerivation

    return [RollupDerivation(writer), *arrival_derivations(writer, every_seconds=ARRIVAL_SECONDS)]


def arrival_derivations(
    writer: WriterContext, *, every_seconds: float = 0.0, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> list[Derivation]:
    """Ledger, latest and devices: they share one look and one scan, and `devices`, the last, ends the pass."""
    from streaming.derive.devices_derivation import DevicesDerivation
    from streaming.derive.latest_derivation import LatestDerivation
    from streaming.derive.ledger import LedgerDerivation
    from streaming.derive.shared_arrivals import SharedArrivals

    arrivals = SharedArrivals(writer.spark, writer.root, every_seconds=every_seconds)
    latest = LatestDerivation(writer, arrivals, now=now)
    return [LedgerDerivation(writer, arrivals), latest, DevicesDerivation(writer, arrivals)]
