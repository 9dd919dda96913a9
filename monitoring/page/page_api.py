"""Requests of the page that metrics cannot answer: devices, dead letters, redrives, topics. The serving process answers them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer", "PageApi", "PageError", "TopicRequest"]

Answer = dict[str, Any]


class PageError(Exception):
    """An HTTP status and one sentence for a person, in place of an answer."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """A request for records of one topic; every attribute is within its bounds.

    Attributes:
        name: of the topic.
        begin: `newest`, `oldest`, `offset`, `time`, `before` or `after`.
        at: the offset, or the time in epoch ms.
        places: offset by partition, before or after which the next page begins.
        partition: only this partition.
        key: only records with exactly this key.
        limit: the maximum number of records.
    """

    name: str
    begin: str
    at: int
    places: Mapping[int, int] | None
    partition: int | None
    key: str | None
    limit: int


@dataclass(frozen=True, slots=True)
class PageApi:
    """Slow callables that answer the page. Each runs outside the server's thread, with the arguments as the browser sent them.

    Attributes:
        device: (device) -> everything that the page of one device shows.
        devices: (search, limit) -> devices whose id contains the text.
        dead_letters: (reason, device, limit, before) -> counts by reason, and the newest dead letters older than the id `before`.
        dead_letter: (id) -> one dead letter with its bytes.
        redrive: (ids, dry run) -> the report.
        topics: () -> the topics with their partitions.
        topic: (request) -> records of one topic.
    """

    device: Callable[[str], Answer]
    devices: Callable[[str, int], Answer]
    dead_letters: Callable[[str | None, str | None, int, str | None], Answer]
    dead_letter: Callable[[str], Answer]
    redrive: Callable[[Sequence[str], bool], Answer]
    topics: Callable[[], Answer]
    topic: Callable[[TopicRequest], Answer]
