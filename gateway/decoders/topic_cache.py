"""What was read from a topic, kept since the same few topics come with every message. Bounded in number and length."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

__all__ = ["MAX_CHARACTERS", "remember_topics"]

MAX_TOPICS: Final = 20_000
MAX_CHARACTERS: Final = 256
"""Of the topics that are kept; MQTT allows 65,535 bytes, and those who send such send ever new ones."""
T = TypeVar("T")


def remember_topics(read: Callable[[str], T]) -> Callable[[str], T]:
    """The same pure function of a topic, which does not read twice what comes often."""
    known = lru_cache(maxsize=MAX_TOPICS)(read)

    def look_up(topic: str) -> T:
        return known(topic) if len(topic) <= MAX_CHARACTERS else read(topic)

    return look_up
