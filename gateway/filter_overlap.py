"""Overlap of MQTT topic filters: a topic that two filters both take, if there is one. Exact and pure."""

from collections.abc import Iterable
from typing import Final

from gateway.topic_filters import is_shared, subscription_filter

__all__ = ["common_topic", "find_overlap"]

_ANY: Final = "any"
"""Level of an example where both filters take every level."""


def find_overlap(ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, str, str] | None:
    """Return the first two filters that overlap, and a topic that both take; None if no two do.

    Members of one shared subscription (the same `$share` group and filter) share its messages and do not overlap. In any
    other case a shared subscription gets its own copy of each message.
    """
    others = tuple(theirs)
    for our in ours:
        for other in others:
            if is_shared(our) and our == other:
                continue
            topic = common_topic(_plain(our), _plain(other))
            if topic is not None:
                return our, other, topic
    return None


def common_topic(first: str, second: str) -> str | None:
    """Return a topic that both filters match; None if there is none.

    Args:
        first: MQTT topic filter with `+` and `#`, as a broker takes it.
        second: the same.
    """
    left, right = first.split("/"), second.split("/")
    if _is_hidden(left[0], right[0]) or _is_hidden(right[0], left[0]):
        return None
    levels: list[str] = []
    for place in range(max(len(left), len(right)) + 1):
        one, other = _at(left, place), _at(right, place)
        if "#" in (one, other):
            levels += _rest(left[place:] if other == "#" else right[place:])
            # `#` also takes the level above it, but an empty topic does not exist.
            return "/".join(levels) or None
        if one is None or other is None:
            return "/".join(levels) if one is other else None
        if "+" not in (one, other) and one != other:
            return None
        levels.append(_ANY if one == other == "+" else one if other == "+" else other)
    return None


def _rest(levels: list[str]) -> list[str]:
    """Return levels that such a rest of a filter takes and `#` takes too."""
    return [_ANY if level in ("+", "#") else level for level in levels]


def _at(levels: list[str], place: int) -> str | None:
    return levels[place] if place < len(levels) else None


def _is_hidden(wildcard: str, level: str) -> bool:
    """Return whether a filter that begins with a wildcard leaves out all topics of one that begins with this level."""
    return wildcard in ("+", "#") and level.startswith("$")


def _plain(text: str) -> str:
    """Return the filter without named segments and without the group of a shared subscription."""
    text = subscription_filter(text)
    return text.split("/", 2)[-1] if is_shared(text) else text
