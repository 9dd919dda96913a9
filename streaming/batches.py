"""Input of `foreachBatch`: one batch at a time, none after a stop, and the exception that ended the batches.

Spark reports an exception only as text of the JVM, so it is kept here. A query that is stopped in the middle of a batch runs
the batch again.
"""

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ingest.contract.errors import RetryableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchRunner"]


class BatchRunner(ABC):
    """Batches of one query. `failure` is the exception that ended it; None while none did."""

    def __init__(self) -> None:
        self._busy, self._stopping = threading.Lock(), False
        self.failure: BaseException | None = None

    def __call__(self, rows: "DataFrame", number: int) -> None:
        """Write one batch; an exception ends the query."""
        with self._busy:
            if self._stopping:
                message = "stopping between two batches"
                raise RetryableError(message)
            try:
                self._write(rows, number)
            except BaseException as error:
                self.failure = error
                raise

    def stop(self) -> None:
        """Wait for the batch in hand and take no further one."""
        with self._busy:
            self._stopping = True

    @abstractmethod
    def _write(self, rows: "DataFrame", number: int) -> None:
        """Write the rows of this batch where they belong."""
