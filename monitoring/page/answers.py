"""What the page asks that metrics do not know: devices, dead letters, redrives. The process that serves it gives the answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer", "Answers", "PageError", "TopicRequest"]

Answer = dict[str, Any]


class PageError(Exception):
    """Instead of an answer: an HTTP status and one sentence for the person."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """Records of one topic that are asked for; each part is within its bounds.

    Attributes:
        name: of the topic.
        begin: `newest`, `oldest`, `offset`, `time`, `before` or `after`.
        at: the offset, or the time in epoch ms.
        places: offset by partition, before or after which it goes on.
        partition: this one alone.
        key: records with exactly this key alone.
        limit: at most so many.
    """

    name: str
    begin: str
    at: int
    places: Mapping[int, int] | None
    partition: int | None
    key: str | None
    limit: int


@dataclass(frozen=True, slots=True)
class Answers:
    """Callables that may take a while; each is run beside the server, its arguments are as the browser sent them.

    Attributes:
        device: (device) -> all that the page of one device shows.
        devices: (search, limit) -> devices whose id contains the text.
        dead_letters: (reason, device, limit, before) -> causes, and the newest letters that are older than the one of this id.
        dead_letter: (id) -> one letter with its bytes.
        redrive: (ids, dry run) -> the report.
        topics: () -> the topics with their partitions.
        topic: (what of it) -> records of one topic.
    """

    device: Callable[[str], Answer]
    devices: Callable[[str, int], Answer]
    dead_letters: Callable[[str | None, str | None, int, str | None], Answer]
    dead_letter: Callable[[str], Answer]
    redrive: Callable[[Sequence[str], bool], Answer]
    topics: Callable[[], Answer]
    topic: Callable[[TopicRequest], Answer]
