"""Cache of parsed topics, because the same few topics come with every message. Bounded in number and length."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

__all__ = ["MAX_CHARACTERS", "cache_topics"]

MAX_TOPICS: Final = 20_000
MAX_CHARACTERS: Final = 256
"""Most characters of a kept topic; MQTT allows 65,535 bytes, and devices rarely repeat long topics."""
T = TypeVar("T")


def cache_topics(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return the same pure function of a topic with a cache of frequent topics."""
    known = lru_cache(maxsize=MAX_TOPICS)(read)

    def look_up(topic: str) -> T:
        return known(topic) if len(topic) <= MAX_CHARACTERS else read(topic)

    return look_up
