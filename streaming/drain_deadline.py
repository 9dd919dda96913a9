"""Bounds the end of a stream: what still waits for Spark's jobs then is cancelled.

A batch that was cancelled is not committed, so the next start reads it again: that is the same as a kill at this moment.
"""

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DrainDeadline"]

logger = logging.getLogger("tidegate.streaming.service")

DRAIN_SECONDS: Final = 20.0
LOOK_SECONDS: Final = 1.0


class DrainDeadline:
    """While its block runs: `seconds` after `stop` was set or `begin` was called, it cancels the jobs of Spark.

    A job of a cluster whose workers are all gone would wait for them for ever, and the end of the stream with it.
    `expired` is True once jobs were cancelled: errors of whoever waited for them say nothing new.
    """

    def __init__(self, spark: "SparkSession", stop: threading.Event, seconds: float = DRAIN_SECONDS) -> None:
        self._spark, self._stop, self._seconds = spark, stop, seconds
        self._ending, self._done = threading.Event(), threading.Event()
        self.expired = False
        self._thread = threading.Thread(target=self._watch, name="drain deadline", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def begin(self) -> None:
        """Count from now, also without a stop: the query ended, and another one starts soon."""
        self._ending.set()

    def _watch(self) -> None:
        while not (self._stop.is_set() or self._ending.is_set()):
            if self._done.wait(LOOK_SECONDS):
                return
        if self._done.wait(self._seconds):
            return
        logger.warning(
            "Spark has not finished the work in hand for %.0f s: it is cancelled, and read again at the next start.",
            self._seconds,
        )
        self.expired = True
        # Whoever waits may start one more job before it notices.
        while not self._done.is_set():
            with suppress(Exception):  # Spark has ended
                self._spark.sparkContext.cancelAllJobs()
            self._done.wait(LOOK_SECONDS)
