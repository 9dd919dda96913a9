"""Homie 4 and 5: one value per topic; its unit and datatype come on other topics and are remembered.

Topics `homie/<device>/<node>/<property>` (4) and `homie/5/<device>/<node>/<property>` (5); the metric is `node/property`. Unit
and datatype come from `…/<property>/$unit` and `$datatype` (4) or from the device's `$description` (5). Until they are known,
a value is read like any plain text and has no unit. `$state` and other attributes, `set` and `$target` are not readings.

Descriptions are remembered by the rules of gateway/decoders/versioned_state.py. Homie's messages have no times. If a
restart leaves open whether a value was sent before or after a change of its unit, the value has no unit and the flag
`unit_uncertain`.
Source: Homie convention 4.0.0 and 5.0.0.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from gateway.decoders.parse_cache import ParseCache, cache_topics
from gateway.decoders.plain_value import read_scalar
from gateway.decoders.shape import Decoded, Ignored, RouteMatch
from gateway.decoders.state import MAX_KEY_CHARACTERS, DecoderState
from gateway.decoders.values import NO_VALUE, read_value
from gateway.decoders.versioned_state import MAX_VALUE_BYTES, VersionStore
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import parse_json
from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import IgnoredReason, Reason

__all__ = ["HomieDecoder"]

UNIT_UNCERTAIN: Final = "unit_uncertain"
_MAX_WORD_BYTES: Final = 64
_VERSION_5: Final = "5"
_VALUE_SEGMENTS: Final = 3
_SET_SEGMENTS: Final = 4
_STATUS: Final = frozenset({"$state", "$alert", "$log", "$stats", "$online", "$broadcast"})
_BY_OTHERS: Final = frozenset({"set", "$broadcast"})
"""Topics to which controllers publish: they do not show that a device is alive."""
_TEXTS: Final = frozenset({"string", "enum", "color", "datetime", "duration", "json"})
_INTEGER = re.compile(r"[+-]?\d{1,308}", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}

_Traits = tuple[str | None, str | None]
"""Unit and datatype of a property."""
_UNKNOWN: Final[_Traits] = (None, None)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, _Traits]).decode


class _Address(NamedTuple):
    """Parts of a topic of the convention. `owner` is the topic that describes units: a property (4), a device (5).

    `attribute` is the part after a `$`, or `set`; None for a value. `tells`: it describes units or datatypes.
    """

    device: str
    owner: str
    metric: str
    attribute: str | None
    tells: bool


@cache_topics
def _read_topic(topic: str) -> _Address | None:
    """Return the parts of a topic; None if the convention has no such topic."""
    parts = topic.split("/")
    base = parts.index("homie") if "homie" in parts else 0
    version_5 = parts[base + 1 : base + 2] == [_VERSION_5]
    first = base + (2 if version_5 else 1)
    path = parts[first:]
    attribute = next((part for part in path if part.startswith("$")), None)
    if attribute is None and len(path) == _SET_SEGMENTS and path[-1] == "set":
        attribute = "set"
    if not path or not all(path) or (attribute is None and len(path) != _VALUE_SEGMENTS):
        return None
    if version_5:
        owner, tells = parts[: first + 1], path[1:] == ["$description"]
    else:
        owner, tells = parts[: first + 3], path[3:] in (["$unit"], ["$datatype"]) and attribute == path[3]
    return _Address(path[0], "/".join(owner), "/".join(path[1:3]), attribute, tells)


class HomieDecoder:
    """Homie decoder of one gateway; see `Decoder`. Called in receive order."""

    def __init__(self, state: DecoderState) -> None:
        self._memory = VersionStore(state)
        self._traits = ParseCache(_unpack)

    def __call__(
        self, payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int
    ) -> Decoded | Reject | Ignored:
        """Decode one message."""
        where = _read_topic(match.topic)
        if where is None:
            wanted = "homie/<device>/<node>/<property> or homie/5/<device>/<node>/<property>, or an attribute of one"
            return Reject(Reason.UNDECODED, "topic", show_text(match.topic), wanted)
        # A route without its own device gives the topic without its last segment: that is not a device here.
        device = where.device if match.device == match.topic.rpartition("/")[0] else match.device
        if len(payload) > limits.max_payload_bytes:
            wanted = f"at most {limits.max_payload_bytes} bytes"
            return _refuse(device, Reject(Reason.TOO_LARGE, got=f"{len(payload)} bytes", wanted=wanted))
        if where.attribute is not None:
            refused = self._learn(payload, where, limits)
            if refused is not None:
                return _refuse(device, refused)
            return Ignored(_ignored_as(where.attribute), "" if where.attribute in _BY_OTHERS else device)
        return self._read_value(payload, where, device, match)

    def _learn(self, payload: bytes, where: _Address, limits: GatewaySettings) -> Reject | None:
        """Remember the unit or datatype in this attribute; returns why it cannot be read."""
        if not where.tells:
            return None
        is_description = where.attribute == "$description"
        told = _read_description(payload, limits) if is_description else self._read_attribute(payload, where)
        if isinstance(told, Reject):
            return told
        if self._memory.entry(_key(where)).learn(_encode(told), None):
            return None
        wanted = (
            f"a description of at most {MAX_VALUE_BYTES} bytes on a topic of at most {MAX_KEY_CHARACTERS} characters, and "
            "free space in the remembered state of all devices"
        )
        return Reject(Reason.TOO_LARGE, "$", f"{len(told)} properties", wanted)

    def _read_attribute(self, payload: bytes, where: _Address) -> dict[str, _Traits] | Reject:
        word = _read_text(payload)
        if isinstance(word, Reject) or len(payload) > _MAX_WORD_BYTES:
            return Reject(
                Reason.OUT_OF_RANGE, "$", show_text(repr(payload[:80])), f"at most {_MAX_WORD_BYTES} bytes of text"
            )
        contents = self._memory.entry(_key(where)).contents(None)
        unit, datatype = self._traits.read(contents[0]).get(where.metric, _UNKNOWN) if contents else _UNKNOWN
        return {where.metric: (word or None, datatype) if where.attribute == "$unit" else (unit, word or None)}

    def _read_value(self, payload: bytes, where: _Address, device: str, match: RouteMatch) -> Decoded | Ignored:
        text = _read_text(payload)
        if isinstance(text, Reject):
            return _refuse(device, text)
        contents = self._memory.entry(_key(where)).contents(None)
        known = {self._traits.read(content).get(where.metric, _UNKNOWN) for content in contents}
        unit, datatype = known.pop() if len(known) == 1 else _UNKNOWN
        flags = [UNIT_UNCERTAIN] if known else None
        # Homie writes an empty text as one NUL, because a message without bytes deletes a retained one.
        if text in ("", "\0") or (datatype not in _TEXTS and text.lower() in NO_VALUE):
            return Ignored(IgnoredReason.NO_VALUE, device)
        value, named = _read_as(datatype, text)
        if isinstance(value, Reject):
            return _refuse(device, value)
        reading = read_value(where.metric, value, unit or named or match.units.get(where.metric), "$")
        if isinstance(reading, Reject):
            return _refuse(device, reading)
        return Decoded(device, [reading], [], flags, match.tags)


def _key(where: _Address) -> str:
    return f"homie/{where.owner}"


def _refuse(device: str, fault: Reject) -> Decoded:
    return Decoded(device, [], [fault])


def _ignored_as(attribute: str) -> IgnoredReason:
    if attribute == "set":
        return IgnoredReason.COMMAND
    return IgnoredReason.STATUS if attribute in _STATUS else IgnoredReason.METADATA


def _unpack(content: bytes) -> dict[str, _Traits]:
    """Return traits by metric; none if the bytes are not ours."""
    try:
        return _decode(content)
    except msgspec.MsgspecError:
        return {}


def _read_text(payload: bytes) -> str | Reject:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        got = f"byte 0x{payload[error.start]:02x} at position {error.start}"
        return Reject(Reason.BAD_ENCODING, "$", got, "UTF-8 text")


def _read_as(datatype: str | None, text: str) -> tuple[float | int | bool | str | Reject, str | None]:
    """Return the value by its datatype, and a unit that the text itself names (looked for only without a datatype)."""
    if datatype in _TEXTS:
        return text, None
    read = _READ_AS.get(datatype or "")
    return read_scalar(text.strip(" \t\r\n")) if read is None else (read(text), None)


def _read_boolean(text: str) -> bool | Reject:
    value = _BOOLEANS.get(text)
    return (
        Reject(Reason.WRONG_TYPE, "$", show_text(text), "true or false, as its datatype says")
        if value is None
        else value
    )


def _read_integer(text: str) -> int | Reject:
    if _INTEGER.fullmatch(text):
        return int(text)
    return Reject(Reason.BAD_NUMBER, "$", show_text(text), "an integer, as its datatype says")


def _read_float(text: str) -> float | Reject:
    number = float(text) if _FLOAT.fullmatch(text) else math.nan
    if math.isfinite(number):
        return number
    return Reject(Reason.BAD_NUMBER, "$", show_text(text), "a finite number, as its datatype says")


_READ_AS: Final[dict[str, Callable[[str], float | int | bool | Reject]]] = {
    "boolean": _read_boolean,
    "integer": _read_integer,
    "float": _read_float,
    "percent": _read_float,
}


def _read_description(payload: bytes, limits: GatewaySettings) -> dict[str, _Traits] | Reject:
    """Return unit and datatype of each property that has one of them."""
    document = parse_json(payload, max_bytes=limits.max_payload_bytes, max_depth=limits.max_json_depth)
    if isinstance(document, Reject):
        return document
    if not isinstance(document.value, dict):
        return Reject(Reason.NOT_OBJECT, "$", show_text(repr(document.value)[:80]), "a device description")
    told: dict[str, _Traits] = {}
    for node, inside in _members(document.value.get("nodes")):
        for name, traits in _members(inside.get("properties")):
            unit, datatype = _word(traits.get("unit")), _word(traits.get("datatype"))
            if unit is not None or datatype is not None:
                told[f"{node}/{name}"] = (unit, datatype)
                if len(told) > limits.max_readings_per_message:
                    wanted = f"at most {limits.max_readings_per_message} properties"
                    return Reject(Reason.TOO_LARGE, "$.nodes", "more properties", wanted)
    return told


def _members(value: object) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(value, dict):
        return []
    return [(name, member) for name, member in value.items() if isinstance(member, dict)]


def _word(value: object) -> str | None:
    """Return a unit or a datatype; None for anything else."""
    return value if isinstance(value, str) and 0 < len(value) <= _MAX_WORD_BYTES else None
