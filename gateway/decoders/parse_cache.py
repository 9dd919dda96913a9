"""Bounded caches of parsed topics and parsed bytes, for decoders with a state.

The same few topics come with every message, and devices that send the same bytes share one result.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Generic, TypeVar

__all__ = ["MAX_CHARACTERS", "ParseCache", "cache_topics"]

MAX_TOPICS: Final = 20_000
MAX_CHARACTERS: Final = 256
"""Most characters of a kept topic; MQTT allows 65,535 bytes, and devices rarely repeat long topics."""
MAX_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of parsed input; the results take about ten times that."""
T = TypeVar("T")


def cache_topics(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return the same pure function of a topic with a cache of frequent topics."""
    known = lru_cache(maxsize=MAX_TOPICS)(read)

    def look_up(topic: str) -> T:
        return known(topic) if len(topic) <= MAX_CHARACTERS else read(topic)

    return look_up


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
