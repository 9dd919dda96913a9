"""Generic JSON behind a route: any document, flattened by one documented rule.

`{"a": {"b": 1}}` gives metric `a.b`, `{"a": [1, 2]}` gives `a[0]`, `a[1]`. A top-level scalar is named by the topic's
last segment, so are the scalars of a top-level array: `samples[0]`. An object inside a top-level array is an item of a
batch: it has a time of its own, and its position is the readings' index. null and empty text are no values. An inner
object of exactly `value` and `unit` is one reading with that unit.
"""

from typing import Final

from gateway.decoders.shape import Decoded, RouteMatch
from gateway.decoders.values import MAX_METRIC_BYTES, metric_fault, read_value
from gateway.json_text import parse_json
from gateway.settings import GatewaySettings
from gateway.show import json_path, show_value
from gateway.times import Instant, plausible, read_time
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["decode_json"]

METRIC_TWICE: Final = "metric_twice"
_TWICE_STEP: Final = 200_000
"""Times the readings that a message may hold, an index still fits the 32 bits of the tables' column."""
_QUANTITY: Final = {"value", "unit"}


def decode_json(payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoded | Reject:
    """Decode one generic JSON message; see `Decoder`."""
    document = parse_json(payload, max_bytes=limits.max_payload_bytes, max_depth=limits.max_json_depth)
    if isinstance(document, Reject):
        return document
    decoded = Decoded(match.device, [], [], list(document.flags) or None, match.tags, None, None, [])
    refused = _Reader(decoded, match, limits, received_us).read(document.value)
    return decoded if refused is None else refused


class _Reader:
    """One message's way from document to readings."""

    def __init__(self, decoded: Decoded, match: RouteMatch, limits: GatewaySettings, received_us: int) -> None:
        self._decoded, self._match, self._limits, self._received_us = decoded, match, limits, received_us
        self._at: Instant | None = None
        self._index = 0
        self._seen: dict[tuple[str, int], int] = {}

    def read(self, body: object) -> Reject | None:
        """Fill `decoded`; returns why the whole message is refused."""
        if isinstance(body, dict):
            return self._read_object(body, "$", 0)
        self._at, self._index = None, 0
        if not isinstance(body, list):
            return self._flatten(body, self._match.metric, "$")
        if len(body) > self._limits.max_readings_per_message:
            return self._too_many()
        # Cut behind the limit: a name that is too long stays so, and costs each item no copy of the topic.
        name = self._match.metric[: MAX_METRIC_BYTES + 1]
        for index, item in enumerate(body):
            path = f"$[{index}]"
            if isinstance(item, dict):
                refused = self._read_object(item, path, index)
                if refused is not None and refused.reason is not Reason.TOO_LARGE:
                    self._decoded.rejects.append(refused)
                    continue
            else:
                self._at, self._index = None, 0
                refused = self._flatten(item, f"{name}[{index}]", path)
            if refused is not None:
                return refused
        return None

    def _read_object(self, body: dict[str, object], path: str, index: int) -> Reject | None:
        key = next((key for key in self._match.time if body.get(key) is not None), None)
        self._at, self._index = None, index
        if key is not None:
            claimed = self._read_time(body[key], json_path(path, key))
            if isinstance(claimed, Reject):
                return claimed
            self._at = claimed
        for name, value in body.items():
            refused = None if name == key else self._flatten(value, name, json_path(path, name))
            if refused is not None:
                return refused
        return None

    def _read_time(self, value: object, path: str) -> Instant | Reject:
        read = read_time(value, path, self._match.zone)
        if isinstance(read, Reject):
            return read
        return plausible(read.us, self._received_us, self._limits.max_future_seconds, path) or read

    def _flatten(self, value: object, metric: str, path: str) -> Reject | None:
        """Nesting is bounded by the parser, so recursion is too."""
        if isinstance(value, dict | list):
            if len(value) > self._limits.max_readings_per_message:
                return self._too_many()
            # Before expanding it: every name below would hold a copy of this one, and be refused all the same.
            fault = metric_fault(metric) if len(metric) > MAX_METRIC_BYTES and value else None
            if fault is not None:
                self._decoded.rejects.append(Reject(Reason.OUT_OF_RANGE, path, show_value(metric), fault))
                return None
        if isinstance(value, dict):
            quantity = value.keys() == _QUANTITY and isinstance(value["unit"], str)
            if quantity and not isinstance(value["value"], dict | list):
                return self._add(value["value"], metric, value["unit"], path)
            parts = ((item, f"{metric}.{key}", json_path(path, key)) for key, item in value.items())
        elif isinstance(value, list):
            parts = ((item, f"{metric}[{place}]", f"{path}[{place}]") for place, item in enumerate(value))
        else:
            return self._add(value, metric, None, path)
        return next((refused for part in parts if (refused := self._flatten(*part)) is not None), None)

    def _add(self, value: object, metric: str, unit: str | None, path: str) -> Reject | None:
        if value is None or value == "":
            return None
        decoded, at = self._decoded, self._at
        if len(decoded.readings) + len(decoded.rejects) >= self._limits.max_readings_per_message:
            return self._too_many()
        reading = read_value(metric, value, unit or self._match.units.get(metric), path)
        if isinstance(reading, Reject):
            decoded.rejects.append(reading)
            return None
        flags = list(reading.flags or ())
        if at is not None:
            reading.time_us = at.us
            flags += [at.flag] if at.flag is not None else []
        reading.index = self._own_index(metric, self._index)
        if reading.index != self._index:
            flags.append(METRIC_TWICE)
        reading.flags = flags or None
        decoded.readings.append(reading)
        return None

    def _too_many(self) -> Reject:
        wanted = f"at most {self._limits.max_readings_per_message} readings in a message"
        return Reject(Reason.TOO_LARGE, "$", "more readings", wanted)

    def _own_index(self, metric: str, index: int) -> int:
        """Two fields may flatten to one name (`a.b` and `a: {b}`): the second takes another index, so both are kept."""
        count = self._seen.get((metric, index), 0)
        self._seen[metric, index] = count + 1
        return index + count * _TWICE_STEP
