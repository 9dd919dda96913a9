"""Parse a browser's request for records of a topic and check every parameter."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from monitoring.page.page_api import PageError, TopicRequest

__all__ = ["topic_request"]

MOST_TEXT: Final = 1024
MOST_PLACES: Final = 16 * 1024
MOST_RECORDS: Final = 200
RECORDS: Final = 50
LARGEST: Final = 2**63 - 1
"""Limit of Kafka's offsets, and of its times in ms."""
BEGINS: Final = ("newest", "oldest", "offset", "time", "before", "after")

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Kafka's own rule."""
_WHOLE: Final = re.compile("[0-9]{1,19}")
_PLACE: Final = re.compile("([0-9]{1,9}):([0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class _Given:
    query: Mapping[str, str]

    def text(self, name: str) -> str:
        found = self.query.get(name, "")
        if len(found) > MOST_TEXT:
            raise PageError(400, f"?{name}= is too long: at most {MOST_TEXT} characters are allowed.")
        return found

    def whole(self, name: str, largest: int, least: int = 0) -> int | None:
        found = self.query.get(name, "")
        if not found:
            return None
        if not _WHOLE.fullmatch(found) or not least <= int(found) <= largest:
            raise PageError(400, f"Invalid ?{name}=: use a whole number from {least} to {largest}.")
        return int(found)


def topic_request(query: Mapping[str, str]) -> TopicRequest:
    """Return the request in a query string.

    Raises:
        PageError: a parameter is invalid; the sentence says what is allowed.
    """
    given = _Given(query)
    name, begin = given.text("name"), given.text("from") or "newest"
    if not _NAME.fullmatch(name):
        raise PageError(
            400, "Missing or invalid ?name=: use the name of a topic, which has only letters, digits and ._-."
        )
    if begin not in BEGINS:
        raise PageError(400, f"Invalid ?from=: use one of {', '.join(BEGINS)}.")
    partition = given.whole("partition", 2**31 - 1)
    if begin == "offset" and partition is None:
        raise PageError(400, "Offsets are counted per partition: add ?partition=.")
    at, places = _AT.get(begin, _nowhere)(given)
    return TopicRequest(
        name=name,
        begin=begin,
        at=at,
        places=places,
        partition=partition,
        key=given.text("key") or None,
        limit=given.whole("limit", MOST_RECORDS, 1) or RECORDS,
    )


def _nowhere(_given: _Given) -> tuple[int, dict[int, int] | None]:
    return 0, None


def _offset(given: _Given) -> tuple[int, dict[int, int] | None]:
    found = given.whole("at", LARGEST)
    if found is None:
        raise PageError(400, "from=offset needs ?at= with the offset.")
    return found, None


def _time(given: _Given) -> tuple[int, dict[int, int] | None]:
    text = given.text("at")
    if _WHOLE.fullmatch(text):
        return min(int(text), LARGEST), None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or found.timestamp() < 0:
        raise PageError(400, "from=time needs ?at= with epoch milliseconds or a time such as 2026-01-31T12:00:00Z.")
    return int(found.timestamp() * 1000), None


def _places(given: _Given) -> tuple[int, dict[int, int] | None]:
    text = given.query.get("at", "")
    found = [_PLACE.fullmatch(each) for each in text.split(",")] if 0 < len(text) <= MOST_PLACES else [None]
    places = {int(each[1]): min(int(each[2]), LARGEST) for each in found if each is not None}
    if len(places) < len(found):
        raise PageError(400, "from=before and from=after need ?at= with the value of an answer's `older` or `newer`.")
    return 0, places


_AT: Final[Mapping[str, Callable[[_Given], tuple[int, dict[int, int] | None]]]] = {
    "offset": _offset,
    "time": _time,
    "before": _places,
    "after": _places,
}
