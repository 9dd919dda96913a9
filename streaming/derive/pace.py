"""When a pass over the derived tables begins: soon while somebody asks for them or much comes in, else every half minute.

A pass costs about two seconds of a core however few rows are new, because Spark plans each of its steps.
"""

import time
from collections.abc import Callable
from typing import Final

from lakehouse.looks import last_look, watch_looks
from streaming.stream_settings import StreamSettings

__all__ = ["DerivePace"]

LOOK_SECONDS: Final = 60.0
"""Time after a query of a derived table during which another one is expected."""
BUSY_ROWS_PER_SECOND: Final = 200


class DerivePace:
    """Says whether a pass is wanted; the pause after each pass (`derive_seconds`) is the caller's. Not thread-safe."""

    def __init__(
        self,
        root: str,
        settings: StreamSettings,
        rows: Callable[[], int],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rows` returns how many rows of `readings` this process has committed."""
        self._root, self._idle_seconds, self._rows, self._clock = root, settings.derive_idle_seconds, rows, clock
        self._began_at, self._began_rows = float("-inf"), 0
        watch_looks(root)

    def begin(self) -> None:
        """A pass begins."""
        self._began_at, self._began_rows = self._clock(), self._rows()

    def wanted(self) -> bool:
        """Return whether the next pass shall not wait."""
        past = self._clock() - self._began_at
        return (
            past >= self._idle_seconds
            or self._rows() - self._began_rows >= BUSY_ROWS_PER_SECOND * past
            or time.time() - last_look(self._root) < LOOK_SECONDS
        )
