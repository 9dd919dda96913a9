"""Usual native messages to the readings of their Kafka records, as JSON text, without an object per reading.

One typed parse (msgspec, C) checks everything that the native decoder checks. The text is assembled from pieces that stay
the same for a metric or a set of metrics. Other messages are for the native decoder, which says what is wrong.
"""

import json
from sys import getsizeof
from typing import Annotated, Final

import msgspec

from gateway.decoders.values import metric_fault
from gateway.fast_path.bounded_cache import BoundedCache
from gateway.plausible.table import CALM_HIGH, CALM_LOW, PlausibilityCheck, load_table
from gateway.policy import NumberLimits

__all__ = ["MAX_DEPTH", "NativeJsonEncoder", "Readings"]

MAX_DEPTH: Final = 3
"""Deepest nesting of messages taken here: `{"values": {"temp": {"value": 21.5}}}`."""

_Float = Annotated[float, msgspec.Meta(gt=-(2.0**53), lt=2.0**53)]
"""An integer from 2^53 on keeps its digits as text, so the native decoder takes it; all below are exact."""
_Counter = Annotated[int, msgspec.Meta(ge=0, lt=2**63 - 1)]


class _Item(msgspec.Struct, gc=False):
    values: dict[str, _Float]
    ts: int | None = None
    boot: _Counter | None = None
    seq: _Counter | None = None


class _Quantity(msgspec.Struct, gc=False):
    value: _Float | bool | str
    unit: str | None = None


class _MixedItem(msgspec.Struct, gc=False):
    values: dict[str, _Float | bool | str | _Quantity]
    ts: int | None = None
    boot: _Counter | None = None
    seq: _Counter | None = None


Readings = tuple[str, int, int | None, int | None]
"""The members of `readings`, how many they are, and boot and seq: both or neither."""

_Watched = tuple[int, float, float, PlausibilityCheck]
"""Place of a number of a known quantity, the ends of its certain range, and the watch for numbers outside of it."""
_Shape = tuple[str, tuple[_Watched, ...]]

_decode = msgspec.json.Decoder(_Item).decode
_decode_mixed = msgspec.json.Decoder(_MixedItem).decode
_ANY_FAULT: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_MAX_METRICS: Final = 200
_MAX_SHAPE_BYTES: Final = 64 * 1024
"""Most bytes of a remembered set of metrics: enough for the most metrics with usual names, not with the longest."""
_MAX_PIECE_BYTES: Final = 4096
_MANY_ZEROS: Final = b"0" * 300
_TIME: Final = "\0"
"""Placeholder of the time in a piece: no JSON text contains it."""


class NativeJsonEncoder:
    """Bounded memory of the pieces. Not thread-safe."""

    def __init__(self, max_readings: int, limits: NumberLimits | None = None) -> None:
        """Take the limits: `max_readings` per message, and `limits` for their numbers."""
        self._limits = limits
        self._table = load_table() if limits is None else limits.table
        self._codes = load_table().usual.codes
        self._is_usual = (self._codes | {0.0}).isdisjoint
        self._units = {} if limits is None else {name: f',"unit":{json.dumps(u)}' for name, u in limits.units.items()}
        self._max_metrics = min(_MAX_METRICS, max_readings)
        self._shapes: BoundedCache[tuple[str, ...], _Shape] = BoundedCache(_MAX_SHAPE_BYTES)
        self._pieces: BoundedCache[str, str] = BoundedCache(_MAX_PIECE_BYTES)
        self._mixed: BoundedCache[bytes, None] = BoundedCache(_MAX_PIECE_BYTES)

    def read(self, topic: bytes, payload: bytes, first_ms: int, last_ms: int) -> Readings | None:
        """Return the readings, or None if the native decoder must look.

        Args:
            topic: its next message is probably of the same kind.
            payload: as received.
            first_ms: earliest time that needs no second look.
            last_ms: latest such time.
        """
        if topic in self._mixed:
            return self._read_mixed(payload, first_ms, last_ms)
        try:
            item = _decode(payload)
        except _ANY_FAULT:
            return self._try_mixed(topic, payload, first_ms, last_ms)
        values, ts, boot, seq = item.values, item.ts, item.boot, item.seq
        if ts is None or boot is None or seq is None:
            return self._read_mixed(payload, first_ms, last_ms)
        shape, watched = self._shapes.get(tuple(values)) or self._make_shape(values)
        # Every key has a colon. More colons than keys: a key occurs twice or is unknown, or a name contains a colon.
        if shape is None or payload.count(b":") != len(values) + 4 or not first_ms <= ts <= last_ms:
            return None
        numbers = tuple(values.values())
        odd = not self._is_usual(numbers) and (not self._codes.isdisjoint(numbers) or _may_underflow(payload))
        for place, low, high, watch in watched:
            if not low < numbers[place] < high and not watch.passes(numbers[place]):
                odd = True
        if odd or (self._limits is not None and not self._limits.hold(values)):
            return None
        return (shape % numbers).replace(_TIME, f',"time_us":{ts}000'), len(numbers), boot, seq

    def _try_mixed(self, topic: bytes, payload: bytes, first_ms: int, last_ms: int) -> Readings | None:
        found = self._read_mixed(payload, first_ms, last_ms)
        if found is not None:
            self._mixed.put(topic, None, getsizeof(topic))
        return found

    def _make_shape(self, values: dict[str, float]) -> _Shape | tuple[None, tuple[()]]:
        """Return the readings of these metrics with a place for each number; None if one is not a metric, or too many."""
        if not 0 < len(values) <= self._max_metrics:
            return None, ()
        pieces: list[str] = []
        watched: list[_Watched] = []
        for place, metric in enumerate(values):
            piece, unit = self._piece(metric), self._units.get(metric, "")
            if piece is None:
                return None, ()
            watch = self._table.watch(metric, None)
            if watch is not load_table().usual:
                watched.append((place, *watch.calm, watch))
            pieces.append(f'{piece.replace("%", "%%")},"value":%r{unit.replace("%", "%%")}{_TIME}}}')
        shape = ",".join(pieces)
        made = shape, tuple(watched)
        self._shapes.put(tuple(values), made, getsizeof(shape) + sum(map(getsizeof, values)) + 200 * len(watched))
        return made

    def _piece(self, metric: str) -> str | None:
        known = self._pieces.get(metric)
        if known is None and metric_fault(metric) is None:
            known = f'{{"metric":{json.dumps(metric)}'
            self._pieces.put(metric, known, getsizeof(metric) + getsizeof(known))
        return known

    def _read_mixed(self, payload: bytes, first_ms: int, last_ms: int) -> Readings | None:
        """Read values of all kinds, with and without units, and missing fields."""
        try:
            item = _decode_mixed(payload)
        except _ANY_FAULT:
            return None
        values, ts = item.values, item.ts
        counted = item.boot is not None
        if (
            not 0 < len(values) <= self._max_metrics
            or counted != (item.seq is not None)
            or (self._limits is not None and not self._limits.hold(values))
            or (ts is not None and not first_ms <= ts <= last_ms)
        ):
            return None
        time = "" if ts is None else f',"time_us":{ts}000'
        colons = 1 + len(values) + (ts is not None) + 2 * counted
        parts: list[str] = []
        odd = False
        for metric, value in values.items():
            piece, unit, given = self._piece(metric), self._units.get(metric, ""), None
            if type(value) is _Quantity:
                colons += 1
                given = value.unit
                if given is not None:
                    colons, unit = colons + 1, f',"unit":{json.dumps(given)}'
                value = value.value  # noqa: PLW2901 - what it is a quantity of
            if piece is None or (value == 0.0 and _may_underflow(payload)):
                return None
            if type(value) is float and not CALM_LOW < value < CALM_HIGH:
                odd = odd or not self._table.watch(metric, given).passes(value)
            parts.append(f"{piece}{_value_text(value)}{unit}{time}}}")
        if odd or payload.count(b":") != colons:
            return None
        return ",".join(parts), len(parts), item.boot, item.seq


def _value_text(value: object) -> str:
    if type(value) is float:
        return f',"value":{value!r}'
    if type(value) is bool:
        return ',"value":1.0,"text":"true"' if value else ',"value":0.0,"text":"false"'
    return f',"text":{json.dumps(value)}'


def _may_underflow(payload: bytes) -> bool:
    """Return whether a number that became 0 may have been a very small one, which is flagged."""
    return b"e-" in payload or b"E-" in payload or _MANY_ZEROS in payload
