"""Messages to draft a route from: lines of text to samples, and samples to families for one route each."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.devtools.decode_file import BadLine, read_line
from gateway.gateway_settings import GatewaySettings
from gateway.suggest.payload import read_payload

__all__ = ["MessageFamily", "SampleMessage", "group_samples", "read_samples"]

_MOST_BYTES = 1024 * 1024
"""Most bytes of all payloads: more would add nothing, and a page waits for the draft."""
_NO_TOPIC = re.compile(r"[+#\0]")


class SampleMessage(NamedTuple):
    """One real message. `received_us` is None if unknown."""

    topic: str
    payload: bytes
    received_us: int | None = None


class MessageFamily(NamedTuple):
    """Messages for one route: topics of one length and beginning, similar payloads of one kind.

    `documents` are the parsed payloads, one for each sample, and `format` is that of a mapping; both are empty if the
    payloads are bare values.
    """

    samples: list[SampleMessage]
    documents: list[Any]
    format: dict[str, Any]


def read_samples(lines: Iterable[str]) -> list[SampleMessage]:
    """Read samples from lines, each `TOPIC PAYLOAD` (as mosquitto_sub -v prints) or JSON as `tidegate decode` takes it.

    Raises:
        BadLine: a line has no payload.
    """
    return [_read(number, line.rstrip("\r\n")) for number, line in enumerate(lines, start=1) if line.strip()]


def _read(number: int, line: str) -> SampleMessage:
    if line.lstrip().startswith("{"):
        _identity, topic, payload = read_line(number, line)
        return SampleMessage(topic.decode("utf-8", "backslashreplace"), payload)
    topic_text, space, text = line.partition(" ")
    if not space:
        message = f"line {number}: wanted TOPIC PAYLOAD, or a JSON object with topic and payload; got one word"
        raise BadLine(message)
    return SampleMessage(topic_text, text.encode("utf-8", "surrogateescape"))


def group_samples(samples: Iterable[SampleMessage], limits: GatewaySettings) -> list[MessageFamily]:
    """Return families in the order of their first messages.

    Left out are empty payloads, which delete retained messages, topics to which nobody can publish, and messages after the
    first megabyte.
    """
    found: dict[tuple[Any, ...], list[MessageFamily]] = {}
    held = 0
    for sample in samples:
        held += len(sample.payload)
        is_late = bool(found) and held > _MOST_BYTES
        if not sample.payload or not sample.topic or _NO_TOPIC.search(sample.topic) or is_late:
            continue
        read = read_payload(sample.payload, limits)
        levels = sample.topic.split("/")
        kind = None if read is None else (type(read.document), repr(read.format))
        families = found.setdefault((kind, len(levels), *levels[: 2 if levels[0] == "" else 1]), [])
        family = next((one for one in families if read is None or _alike(one.documents[0], read.document)), None)
        if family is None:
            family = MessageFamily([], [], {} if read is None else read.format)
            families.append(family)
        family.samples.append(sample)
        if read is not None:
            family.documents.append(read.document)
    return [family for families in found.values() for family in families]


def _alike(one: Any, other: Any) -> bool:
    """Return whether two documents may be of one format: they share at least a third of all their keys."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return True
    return 3 * len(one.keys() & other.keys()) >= len(one.keys() | other.keys())
