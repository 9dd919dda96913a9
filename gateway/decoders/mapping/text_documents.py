"""Texts that are documents: a whole message, and parts inside one (JSON in text or base64, rows, columns).

A part that cannot be read is in the document as a `Reject`, so only that part is lost.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gateway.decoders.influx import parse_influx
from gateway.decoders.mapping.paths import ValuePath, parse_path
from gateway.decoders.mapping.row_formats import ColumnPivot, PairFormat, RowFormat
from gateway.decoders.mapping.text_settings import FormatSettings
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import Document, parse_json
from gateway.safe_text import show_text, show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["NestedDocuments", "TextReader"]

_JSON_STARTS: Final = ("{", "[", '"')
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


class TextReader:
    """One format, compiled."""

    def __init__(self, settings: FormatSettings) -> None:
        """Compile; `key` is the same for formats that make the same document of a message."""
        self.kind, self._encoding = settings.kind, settings.encoding
        self.key = settings.model_dump_json()
        self.delimited = settings.kind in ("rows", "pairs", "text")
        self._rows = RowFormat(settings) if settings.kind == "rows" else None
        self._pairs = PairFormat(settings) if settings.kind == "pairs" else None
        self._pivot = ColumnPivot(settings) if settings.kind == "columns" else None
        self._plain_json = settings.kind == "json" and settings.encoding == "text"

    def parse(self, payload: bytes, limits: GatewaySettings, depth: int = 0) -> Document | Reject:
        """Return bytes as a document; `depth` is how deep it is in another one."""
        most_bytes, most_depth = limits.max_payload_bytes, limits.max_json_depth - depth
        if self._plain_json:
            return parse_json(payload, max_bytes=most_bytes, max_depth=most_depth)
        if len(payload) > most_bytes:
            return Reject(Reason.TOO_LARGE, got=f"{len(payload)} bytes", wanted=f"at most {most_bytes} bytes")
        plain = payload if self._encoding == "text" else _decoded(payload, self._encoding)
        if isinstance(plain, Reject):
            return plain
        if self.kind in ("json", "auto"):
            return parse_json(plain, max_bytes=most_bytes, max_depth=most_depth)
        if self.kind == "influx":
            return parse_influx(plain, max_bytes=most_bytes, max_readings=limits.max_readings_per_message)
        return _parse_lines(plain, limits, depth) if self.kind == "ndjson" else self._parse_text(plain, limits)

    def _parse_text(self, payload: bytes, limits: GatewaySettings) -> Document | Reject:
        try:
            text = payload.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            got = f"byte 0x{payload[error.start]:02x} at position {error.start}"
            return Reject(Reason.BAD_ENCODING, got=got, wanted="UTF-8 text")
        most = limits.max_readings_per_message
        if self.kind == "text":
            return Document(text.strip())
        if self._pairs is not None:
            read = self._pairs.read(text, most)
            return read if isinstance(read, Reject) else Document(*read)
        rows = self._rows.read(text, most) if self._rows is not None else []
        return rows if isinstance(rows, Reject) else Document(rows)

    def open(self, value: object, limits: GatewaySettings, depth: int) -> Document | Reject | None:
        """Return the document in a value; None: the value stays unchanged."""
        if self._pivot is not None:
            return self._pivot.read(value, limits.max_readings_per_message)
        if self._rows is not None and type(value) is list:
            rows = self._rows.read(value, limits.max_readings_per_message)
            return rows if isinstance(rows, Reject) else Document(rows)
        if type(value) is not str:
            # It is a document already: some senders write the same member as object or as text.
            return None
        if self.kind == "auto" and self._encoding == "text" and not value.lstrip().startswith(_JSON_STARTS):
            return None
        return self.parse(value.encode("utf-8", "surrogatepass"), limits, depth)


class NestedDocuments:
    """Documents inside the messages of a mapping, read in the order of the table."""

    def __init__(self, settings: Mapping[str, FormatSettings]) -> None:
        """Compile.

        Raises:
            BadPath: a path cannot be read.
        """
        self._readers = [(parse_path(path, wild=True), TextReader(how)) for path, how in settings.items()]
        self.delimited = any(reader.delimited for _path, reader in self._readers)

    def __bool__(self) -> bool:
        return bool(self._readers)

    def open(self, document: Document, limits: GatewaySettings) -> Document | Reject:
        """Return a document with all of them read; the original stays unchanged."""
        root, flags = document.value, dict.fromkeys(document.flags)
        for path, reader in self._readers:
            places = list(_places(path, root, limits.max_readings_per_message))
            if len(places) > limits.max_readings_per_message:
                wanted = f"at most {limits.max_readings_per_message} readings in a message"
                return Reject(Reason.TOO_LARGE, "$", f"more of {show_text(path.text)}", wanted)
            changes: list[tuple[tuple[Any, ...], Any]] = []
            for value, steps in places:
                opened = reader.open(value, limits, len(steps))
                if isinstance(opened, Document):
                    flags.update(dict.fromkeys(opened.flags))
                    changes.append((steps, opened.value))
                elif opened is not None:
                    got = opened.got if opened.got is not None else show_value(value)
                    changes.append((steps, replace(opened, path=None, got=got)))
            root = _with_changes(root, changes)
        return Document(root, tuple(flags))


def _places(path: ValuePath, root: object, most: int) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    for count, (value, trail, _keys) in enumerate(path.spread(root)):
        if count > most:
            return
        steps: list[Any] = []
        here = trail
        while not isinstance(here, str):
            here, step = here
            steps.append(step)
        yield value, tuple(reversed(steps))


def _with_changes(root: Any, changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
    """Return a copy of what leads to the changed places; the rest is shared."""
    if not changes:
        return root
    copies: dict[tuple[Any, ...], Any] = {}

    def copied(steps: tuple[Any, ...]) -> Any:
        if steps not in copies:
            if not steps:
                copies[steps] = root.copy()
            else:
                parent = copied(steps[:-1])
                copies[steps] = parent[steps[-1]] = parent[steps[-1]].copy()
        return copies[steps]

    for steps, value in changes:
        if not steps:
            return value
        copied(steps[:-1])[steps[-1]] = value
    return copies[()]


def _decoded(payload: bytes, encoding: str) -> bytes | Reject:
    plain = b"".join(payload.split())
    try:
        if encoding == "hex":
            return bytes.fromhex(plain.decode("ascii"))
        plain = plain.translate(_URL_SAFE).rstrip(b"=")
        return base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except (ValueError, binascii.Error):
        return Reject(
            Reason.BAD_ENCODING, got=show_text(payload[:120].decode("utf-8", "replace")), wanted=f"text in {encoding}"
        )


def _parse_lines(payload: bytes, limits: GatewaySettings, depth: int) -> Document | Reject:
    """Parse JSON documents, one per line; a broken one is in the array as a rejection."""
    lines = payload.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    most = limits.max_readings_per_message
    if len(lines) > 2 * most + 2:
        return Reject(Reason.TOO_LARGE, "$", "more lines", f"at most {most} readings in a message")
    read: list[Any] = []
    broken: Reject | None = None
    flags: dict[str, None] = {}
    for line in lines:
        if not line.strip():
            continue
        document = parse_json(line, max_bytes=limits.max_payload_bytes, max_depth=limits.max_json_depth - depth - 1)
        if isinstance(document, Reject):
            broken = broken or document
            read.append(document)
        else:
            flags.update(dict.fromkeys(document.flags))
            read.append(document.value)
    if broken is not None and all(isinstance(one, Reject) for one in read):
        return broken
    return Document(read, tuple(flags))
