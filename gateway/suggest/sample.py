"""Messages to draft a route from: lines of text to samples, and samples to families that one route can take."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.decode_file import BadLine, read_line
from gateway.json_text import Document, parse_json
from gateway.settings import GatewaySettings

__all__ = ["Family", "Sample", "group_samples", "read_samples"]


class Sample(NamedTuple):
    """One real message. `received_us` is None where nobody noted it."""

    topic: str
    payload: bytes
    received_us: int | None = None


class Family(NamedTuple):
    """Messages that one route takes: topics of one length and beginning, payloads of one kind.

    `documents` are the parsed payloads, one for each sample; None where the payload is not a JSON object or array.
    """

    samples: list[Sample]
    documents: list[Any]

    @property
    def structured(self) -> bool:
        """Whether the payloads are JSON objects or arrays."""
        return self.documents[0] is not None


def read_samples(lines: Iterable[str]) -> list[Sample]:
    """Samples from lines, each `TOPIC PAYLOAD` (as mosquitto_sub -v prints) or JSON as `tidegate decode` takes it.

    Raises:
        BadLine: a line has no payload.
    """
    return [_read(number, line.rstrip("\r\n")) for number, line in enumerate(lines, start=1) if line.strip()]


def _read(number: int, line: str) -> Sample:
    if line.lstrip().startswith("{"):
        _identity, topic, payload = read_line(number, line)
        return Sample(topic.decode("utf-8", "backslashreplace"), payload)
    topic_text, space, text = line.partition(" ")
    if not space:
        message = f"line {number}: wanted TOPIC PAYLOAD, or a JSON object with topic and payload; got one word"
        raise BadLine(message)
    return Sample(topic_text, text.encode("utf-8", "surrogateescape"))


def group_samples(samples: Iterable[Sample], limits: GatewaySettings) -> list[Family]:
    """Families in the order of their first messages. Empty payloads delete retained messages: they are left out."""
    found: dict[tuple[Any, ...], Family] = {}
    for sample in samples:
        if not sample.payload:
            continue
        document = _document(sample.payload, limits)
        levels = sample.topic.split("/")
        head = levels[: 2 if levels[0] == "" else 1]
        family = found.setdefault((type(document), len(levels), *head), Family([], []))
        family.samples.append(sample)
        family.documents.append(document)
    return list(found.values())


def _document(payload: bytes, limits: GatewaySettings) -> dict[str, Any] | list[Any] | None:
    if payload[:64].lstrip()[:1] not in (b"{", b"["):
        return None
    parsed = parse_json(payload, max_bytes=limits.max_payload_bytes, max_depth=limits.max_json_depth)
    value = parsed.value if isinstance(parsed, Document) else None
    return value if isinstance(value, dict | list) else None
