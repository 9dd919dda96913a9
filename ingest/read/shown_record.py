"""One Kafka record for people: text if its bytes are text, else base64. A large piece is cut and marked as cut."""

import base64
from dataclasses import dataclass
from typing import Final, Self

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

__all__ = ["MOST_BYTES", "RecordPiece", "ShownRecord", "show_record"]

MOST_BYTES: Final = 64 * 1024
MOST_HEADERS: Final = 64
MOST_NAME: Final = 4096
_TIME_TYPES: Final = {TIMESTAMP_CREATE_TIME: "create", TIMESTAMP_LOG_APPEND_TIME: "append"}
_UTF8_SIGN_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class RecordPiece:
    """Bytes of a record; exactly one of `text` and `base64` is set.

    Attributes:
        text: the bytes, if they are UTF-8.
        base64: the bytes, if they are not.
        size_bytes: how many there are in Kafka.
        is_cut: whether only the first of them are here.
    """

    text: str | None
    base64: str | None
    size_bytes: int
    is_cut: bool

    @classmethod
    def of(cls, content: bytes, most_bytes: int = MOST_BYTES) -> Self:
        """Make a piece of the first `most_bytes` of the content."""
        part, is_cut = content[:most_bytes], len(content) > most_bytes
        text = _text(part, is_cut)
        encoded = base64.b64encode(part).decode("ascii") if text is None else None
        return cls(text, encoded, len(content), is_cut)


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """One record.

    Attributes:
        partition: of its topic.
        offset: in it.
        at_ms: its time, in epoch ms; None if it has none.
        time_type: clock of that time: `append` is Kafka's, `create` its producer's.
        size_bytes: of key, value and headers, before compression.
        key: its key.
        headers: names and values in their order; None if a name is not UTF-8.
        value: its content; None is a tombstone, which deletes the key of a compacted topic.
    """

    partition: int
    offset: int
    at_ms: int | None
    time_type: str | None
    size_bytes: int
    key: RecordPiece | None
    headers: tuple[tuple[str, RecordPiece | None], ...] | None
    value: RecordPiece | None


def show_record(message: Message, most_bytes: int = MOST_BYTES) -> ShownRecord:
    """Return the record of a client's message. No piece of it is longer than `most_bytes`."""
    kind, at_ms = message.timestamp()
    key, value, headers = message.key(), message.value(), _headers(message)
    parts = [
        key,
        value,
        *(each for name, content in headers or () for each in (name.encode("utf-8", "replace"), content)),
    ]
    return ShownRecord(
        message.partition() or 0,
        message.offset() or 0,
        at_ms if kind in _TIME_TYPES else None,
        _TIME_TYPES.get(kind),
        sum(len(part) for part in parts if part is not None),
        _piece(key, most_bytes),
        None if headers is None else tuple((name[:MOST_NAME], _piece(each, most_bytes)) for name, each in headers),
        _piece(value, most_bytes),
    )


def _headers(message: Message) -> list[tuple[str, bytes | None]] | None:
    try:
        found = message.headers() or []
    except UnicodeDecodeError:
        # Kafka requires UTF-8 names but does not check them.
        return None
    listed = list(found.items() if isinstance(found, dict) else found)[:MOST_HEADERS]
    return [(name, content.encode() if isinstance(content, str) else content) for name, content in listed]


def _piece(content: str | bytes | None, most_bytes: int) -> RecordPiece | None:
    if content is None:
        return None
    return RecordPiece.of(content.encode() if isinstance(content, str) else content, most_bytes)


def _text(content: bytes, is_cut: bool) -> str | None:
    """Return the text of the bytes, without a character that the cut split."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        if is_cut and error.reason == "unexpected end of data" and error.start > len(content) - _UTF8_SIGN_BYTES:
            return content[: error.start].decode("utf-8")
        return None
