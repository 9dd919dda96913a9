"""Cache of parsed bytes: devices that send the same bytes share one result. The bytes bound it."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["ParseCache"]

MAX_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of parsed input; the results take about ten times that."""
T = TypeVar("T")


class ParseCache(Generic[T]):
    """Cache of one pure function of bytes."""

    def __init__(self, parse: Callable[[bytes], T], *, max_bytes: int = MAX_BYTES) -> None:
        self._parse, self._max_bytes = parse, max_bytes
        self._known: dict[bytes, T] = {}
        self._held_bytes = 0

    def read(self, content: bytes) -> T:
        """Return the result of `parse` for the content."""
        found = self._known.get(content)
        return self._add(content) if found is None else found

    def _add(self, content: bytes) -> T:
        result = self._known[content] = self._parse(content)
        self._held_bytes += len(content)
        while self._held_bytes > self._max_bytes and len(self._known) > 1:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._held_bytes -= len(oldest)
        return result
