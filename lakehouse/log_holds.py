"""The part of a table's log that this process still reads: each snapshot of its JVM begins with one checkpoint.

Delta computes the state of a snapshot lazily, from the checkpoint at its beginning and the commits after it, maybe at a commit
hours later. So log cleaning keeps the files of each snapshot in use.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

__all__ = ["LogHolds", "log_holds", "snapshot_checkpoint"]

_HOLDS: "dict[str, LogHolds]" = {}
_MAKING: Final = threading.Lock()


def snapshot_checkpoint(snapshot: Any) -> int:
    """Version of the checkpoint that a snapshot of Delta begins with; -1 where it begins with the first commit."""
    return int(snapshot.logSegment().checkpointProvider().version())


class LogHolds:
    """The checkpoints that snapshots of one table begin with. Safe for threads.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: Counter[int] = Counter()
        self._noted: dict[int, float] = {}
        self._sources: WeakSet[Any] = WeakSet()

    def watch(self, source: Any) -> None:
        """Ask `source.beginning()` at each look; for as long as somebody else keeps the source."""
        with self._lock:
            self._sources.add(source)

    def begin(self, beginning: int) -> None:
        """Hold the checkpoint until `end`: a transaction reads a snapshot that begins with it."""
        with self._lock:
            self._open[beginning] += 1

    def end(self, beginning: int) -> None:
        """End one transaction on this checkpoint; its commit may have left a snapshot of it."""
        with self._lock:
            self._open = self._open - Counter([beginning])
            self._noted[beginning] = self._clock()

    def held(self, *, readers_seconds: float) -> frozenset[int]:
        """Return the checkpoints of the snapshots that a plan may still read: those of now and of the last `readers_seconds`."""
        with self._lock:
            sources = list(self._sources)
        installed = {source.beginning() for source in sources}  # asks the JVM, so without the lock
        with self._lock:
            now = self._clock()
            self._noted |= dict.fromkeys(installed, now)
            self._noted = {each: at for each, at in self._noted.items() if at >= now - readers_seconds}
            return frozenset(installed | set(self._open) | set(self._noted))


def log_holds(uri: str) -> LogHolds:
    """The holds of this process on the table of this URI."""
    with _MAKING:
        return _HOLDS.setdefault(uri, LogHolds())
