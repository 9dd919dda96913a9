"""Native format: `{"ts", "boot", "seq", "values": {metric: value}}`, or an array of these.

An item may also name its `device`, which must then be the topic's.

Shapes are pydantic types, compiled once here. The good case is one validation per item. Only if it fails are the values
tried one by one, so that a bad field does not affect its neighbours.
"""

from dataclasses import replace
from typing import Annotated, Any, Final, Required

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from gateway.decoders.shape import Decoded, RouteMatch
from gateway.decoders.values import WANTED_VALUE, metric_fault, read_value, refuse_value
from gateway.device_registry import identity_fault
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import BadNumber, parse_json
from gateway.safe_text import json_path, show_value
from gateway.time_rules import YEAR_2000_S, check_plausible_time, native_time
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import Reason

__all__ = ["decode_native", "native_schema"]

_Counter = Annotated[int, Field(ge=0, lt=2**63 - 1)]
"""The largest 64-bit integer is excluded, so that the number after each counter fits too."""


class _Quantity(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(strict=True, extra="ignore")  # type: ignore[misc]

    value: Required[bool | float | int | str]
    unit: str | None


_Value = float | int | bool | str | _Quantity


class _Item(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(strict=True, extra="ignore")  # type: ignore[misc]

    device: str | int | None
    ts: int | str | None
    boot: _Counter | None
    seq: _Counter | None
    values: dict[str, _Value]


YEAR_2000_MS: Final = YEAR_2000_S * 1000
_strict: Final = ConfigDict(strict=True)
_validate_item = TypeAdapter(_Item).validator.validate_python
_is_value = TypeAdapter(_Value, config=_strict).validator.isinstance_python
_is_plain = TypeAdapter(float | int | bool | str, config=_strict).validator.isinstance_python
_WANTED: Final = {
    "device": "the device of the topic, as text",
    "ts": "epoch milliseconds or RFC 3339 text",
    "boot": "an integer from 0 to 2^63-2",
    "seq": "an integer from 0 to 2^63-2",
    "values": "an object of metric: value",
}
_OUT_OF_RANGE: Final = frozenset({"less_than", "greater_than_equal"})


def decode_native(payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoded | Reject:
    """Decode one native message; see `Decoder`."""
    document = parse_json(payload, max_bytes=limits.max_payload_bytes, max_depth=limits.max_json_depth)
    if isinstance(document, Reject):
        return document
    body = document.value
    decoded = Decoded(match.device, [], [], list(document.flags) or None, match.tags, None, None, [])
    if type(body) is dict:
        refused = _Reader(decoded, limits, received_us).read_item(body, "$", None)
    elif type(body) is list:
        refused = _Reader(decoded, limits, received_us).read_batch(body)
    else:
        return Reject(Reason.NOT_OBJECT, "$", show_value(body), "an object with `values`, or an array of these")
    if refused is not None:
        # Not a bare Reject: the sequence number of a rejected message is not a gap.
        decoded.readings, decoded.rejects = [], [refused]
    return decoded


def native_schema() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON schemas of an item and of a value with its unit, to which the first refers as `#/$defs/_Quantity`."""
    item = TypeAdapter(_Item).json_schema()
    quantity: dict[str, Any] = item.pop("$defs")["_Quantity"]
    # The type leaves it out, so that an item without values has a reason of its own.
    return {**item, "title": "NativeItem", "required": ["values"]}, {**quantity, "title": "NativeQuantity"}


class _Reader:
    """Reader of one message, from document to readings. Its methods return why the whole item is rejected, else None."""

    __slots__ = ("_decoded", "_limits", "_numbered", "_received_us")

    def __init__(self, decoded: Decoded, limits: GatewaySettings, received_us: int) -> None:
        self._decoded, self._limits, self._received_us = decoded, limits, received_us
        self._numbered: dict[tuple[int, int], int] = {}

    def read_batch(self, items: list[object]) -> Reject | None:
        """Read each item with its own outcome; only a message with too many readings is rejected as a whole."""
        if len(items) > self._limits.max_readings_per_message:
            return self._too_many(len(items))
        for index, item in enumerate(items):
            refused = self.read_item(item, f"$[{index}]", index)
            if refused is not None:
                if refused.reason is Reason.TOO_LARGE:
                    return refused
                self._decoded.rejects.append(refused)
                self._keep_place(item)
        return None

    def _keep_place(self, item: object) -> None:
        """Keep a rejected item among those with its counters: redriven, it must not take another one's place."""
        if isinstance(item, dict):
            boot, seq = item.get("boot"), item.get("seq")
            if type(boot) is int and type(seq) is int:
                self._numbered[boot, seq] = self._numbered.get((boot, seq), 0) + 1

    def read_item(self, body: object, path: str, index: int | None) -> Reject | None:
        """Add an item's readings; `index` is its place in a batch."""
        try:
            item = _validate_item(body)
        except ValidationError:
            return self._read_faulty(body, path, index)
        refused = identity_fault(self._decoded.device, item.get("device"), f"{path}.device")
        if refused is not None:
            return refused
        values = item.get("values")
        if values is None:
            return Reject(Reason.MISSING_FIELD, f"{path}.values", "nothing", _WANTED["values"])
        count = len(values) + len(self._decoded.readings)
        if count > self._limits.max_readings_per_message:
            return self._too_many(count)
        boot, seq = item.get("boot"), item.get("seq")
        if boot is not None and seq is not None:
            self._decoded.sequence.append((boot, seq))
        time_us = self._read_time(item.get("ts"), path)
        if isinstance(time_us, Reject):
            return time_us
        first = len(self._decoded.readings)
        self._add_readings(values, path, time_us)
        if index is None:
            self._decoded.boot, self._decoded.seq = boot, seq
        else:
            self._number_item(self._decoded.readings[first:], boot, seq, index)
        return None

    def _number_item(self, readings: list[Reading], boot: int | None, seq: int | None, index: int) -> None:
        """Set the identity of an item of a batch: its own counters, else its position.

        Items with the same counters get a number by how many came before: else only the first would be stored.
        """
        message_id = None
        if boot is not None and seq is not None:
            message_id = f"bs:{boot}:{seq}"
            index = self._numbered.get((boot, seq), 0)
            self._numbered[boot, seq] = index + 1
        for reading in readings:
            reading.boot, reading.seq, reading.message_id, reading.index = boot, seq, message_id, index

    def _too_many(self, count: int) -> Reject:
        wanted = f"at most {self._limits.max_readings_per_message} readings in a message"
        return Reject(Reason.TOO_LARGE, "$", f"{count} or more readings", wanted)

    def _read_time(self, ts: int | str | None, path: str) -> int | Reject | None:
        if ts is None or (type(ts) is str and not ts.strip()):
            return None
        if type(ts) is int and YEAR_2000_MS <= ts <= self._received_us // 1000:
            return ts * 1000
        claimed = native_time(ts, f"{path}.ts")
        if isinstance(claimed, Reject):
            return claimed
        refused = check_plausible_time(claimed.us, self._received_us, self._limits.max_future_seconds, f"{path}.ts")
        return claimed.us if refused is None else refused

    def _add_readings(self, values: dict[str, Any], path: str, time_us: int | None) -> None:
        readings = self._decoded.readings
        for metric, value in values.items():
            if type(value) is float and metric_fault(metric) is None:
                readings.append(Reading(metric, value, None, None, time_us))
                continue
            scalar, unit = (value["value"], value.get("unit")) if type(value) is dict else (value, None)
            reading = read_value(metric, scalar, unit, "")
            if isinstance(reading, Reject):
                self._decoded.rejects.append(replace(reading, path=json_path(f"{path}.values", metric)))
                continue
            reading.time_us = time_us
            readings.append(reading)

    def _read_faulty(self, body: object, path: str, index: int | None) -> Reject | None:
        """Read an item that failed as a whole: remove the fields that are not values, then read it again."""
        if not isinstance(body, dict):
            return Reject(Reason.NOT_OBJECT, path, show_value(body), "an object with `values`")
        values = body.get("values")
        if not isinstance(values, dict):
            return _refuse_field(body, path)
        if len(values) > self._limits.max_readings_per_message:
            return self._too_many(len(values))
        good = {metric: value for metric, value in values.items() if _is_value(value)}
        if len(good) == len(values):
            return _refuse_field(body, path)
        refused = self.read_item({**body, "values": good}, path, index)
        if refused is None:
            inside = f"{path}.values"
            self._decoded.rejects += [
                _refuse_value(value, json_path(inside, metric))
                for metric, value in values.items()
                if metric not in good
            ]
        return refused


def _refuse_value(value: object, path: str) -> Reject:
    if isinstance(value, dict):
        if "value" not in value:
            return Reject(Reason.MISSING_FIELD, f"{path}.value", show_value(value), WANTED_VALUE)
        if _is_plain(value["value"]):
            return Reject(Reason.WRONG_TYPE, f"{path}.unit", show_value(value["unit"]), "a string")
        return refuse_value(value["value"], f"{path}.value")
    return refuse_value(value, path)


def _refuse_field(body: dict[Any, Any], path: str) -> Reject:
    """Translate pydantic's first error about `ts`, `boot`, `seq` or `values` itself."""
    try:
        _validate_item(body)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = str(fault["loc"][0])
        value = body.get(name)
        reason = Reason.OUT_OF_RANGE if fault["type"] in _OUT_OF_RANGE else Reason.WRONG_TYPE
        if isinstance(value, BadNumber):
            reason = Reason.BAD_NUMBER
        return Reject(reason, f"{path}.{name}", show_value(value), _WANTED.get(name))
    return Reject(Reason.INTERNAL_ERROR, path, "an item that passed the second time")
