"""Records of a SenML pack, resolved with the base fields of the records before them.

An invalid base field spoils every record after it, so it rejects the whole pack. So does an unknown field that must be
understood (`foo_`). Any other fault rejects only its own record.
Source: RFC 8428 sections 4 and 5; RFC 9100 for versions.
"""

import base64
import math
from typing import Any, Final, NamedTuple

from gateway.json_text import BadNumber
from gateway.safe_text import json_path, show_text, show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["BadPack", "PackState", "ResolvedRecord"]

_BASE_FIELDS: Final = frozenset({"bn", "bt", "bu", "bv", "bs", "bver"})
_VALUES: Final = ("v", "vb", "vs", "vd")
_MAX_SHAPES: Final = 1000
_MAX_SHAPE_CHARACTERS: Final = 200
_MAX_VERSION: Final = 31
"""Versions are sets of features (RFC 9100): up to bit 4, units of the second registry, which are kept unchanged."""
_MAX_SECONDS: Final = 10**12


class BadPack(Exception):
    """The whole pack is rejected."""

    def __init__(self, reject: Reject) -> None:
        super().__init__(reject.reason)
        self.reject = reject


_Value = float | int | bool | str | BadNumber


class ResolvedRecord(NamedTuple):
    """One record. `time_us` is base time plus time, in µs; `values` are (label, value), of v, vb, vs, vd and s."""

    base: str
    name: str
    unit: str | None
    time_us: int
    values: list[tuple[str, _Value]]


class _Shape(NamedTuple):
    """Facts that the labels of a record show; the few shapes of a sender recur with every pack."""

    unknown: str | None
    base: tuple[str, ...]
    values: tuple[str, ...]
    empty: bool


_shapes: dict[tuple[Any, ...], _Shape] = {}


def _shape_of(record: dict[Any, Any]) -> _Shape:
    labels = tuple(record)
    shape = _shapes.get(labels)
    if shape is None:
        texts = [label for label in labels if isinstance(label, str)]
        shape = _Shape(
            next((label for label in texts if label.endswith("_")), None),
            tuple(label for label in texts if label in _BASE_FIELDS),
            tuple(label for label in _VALUES if label in record),
            record.keys() <= _BASE_FIELDS,
        )
        if len(_shapes) < _MAX_SHAPES and sum(map(len, texts)) + len(labels) <= _MAX_SHAPE_CHARACTERS:
            _shapes[labels] = shape
    return shape


class PackState:
    """Base fields after the records so far."""

    __slots__ = ("_name", "_sum", "_time_us", "_unit", "_value")

    def __init__(self) -> None:
        self._name, self._time_us = "", 0
        self._unit: str | None = None
        self._value: float | None = None
        self._sum: float | None = None

    def resolve(self, record: object, path: str) -> ResolvedRecord | Reject | None:
        """Return the next record; None if it only sets base fields.

        Raises:
            BadPack: this record spoils the pack.
        """
        if not isinstance(record, dict):
            return Reject(Reason.NOT_OBJECT, path, show_value(record), "a SenML record: an object, or map")
        shape = _shape_of(record)
        if shape.unknown is not None:
            wanted = "fields of RFC 8428 only: one that ends in _ must be understood"
            raise BadPack(
                Reject(Reason.UNSUPPORTED_VERSION, json_path(path, shape.unknown), show_text(shape.unknown), wanted)
            )
        if shape.base:
            self._take_base(record, shape.base, path)
        if shape.empty:
            return None
        name, unit = record.get("n"), record.get("u")
        fault = _text_fault(name, path, "n") or _text_fault(unit, path, "u")
        if fault is not None:
            return fault
        time_us = _read_microseconds(record["t"], path, "t") if "t" in record else 0
        if isinstance(time_us, Reject):
            return time_us
        values = self._values(record, shape.values, path)
        if isinstance(values, Reject):
            return values
        return ResolvedRecord(self._name, name or "", unit or self._unit, self._time_us + time_us, values)

    def names(self, record: object) -> tuple[str, str]:
        """Return base name and name of a record; empty if they cannot be read."""
        if not isinstance(record, dict):
            return "", ""
        # A record that spoils the pack may not have set its base name yet.
        base, name = record.get("bn", self._name), record.get("n", "")
        return (base, name) if isinstance(base, str) and isinstance(name, str) else ("", "")

    def _take_base(self, record: dict[Any, Any], labels: tuple[str, ...], path: str) -> None:
        for label in labels:
            value = record[label]
            fault = None if value is None else self._take(label, value, path)
            if fault is not None:
                raise BadPack(fault)

    def _take(self, label: str, value: Any, path: str) -> Reject | None:
        """Take one base field; returns why it is invalid."""
        fault: Reject | None = None
        if label == "bver":
            if not (type(value) is int and 0 < value <= _MAX_VERSION):
                wanted = f"a version from 1 to {_MAX_VERSION}"
                return Reject(Reason.UNSUPPORTED_VERSION, f"{path}.bver", show_value(value), wanted)
        elif label == "bt":
            time_us = _read_microseconds(value, path, label)
            if isinstance(time_us, Reject):
                return time_us
            self._time_us = time_us
        elif label in ("bn", "bu"):
            fault = _text_fault(value, path, label)
            if label == "bn":
                self._name = value
            else:
                self._unit = value or None
        else:
            fault = _number_fault(value, path, label)
            if label == "bv":
                self._value = value
            else:
                self._sum = value
        return fault

    def _values(self, record: dict[Any, Any], labels: tuple[str, ...], path: str) -> list[tuple[str, _Value]] | Reject:
        """Return the record's own value with the base value, and its sum with the base sum."""
        given = [label for label in labels if record[label] not in (None, "")]
        if len(given) > 1:
            return Reject(Reason.OUT_OF_RANGE, path, " and ".join(given), "one of v, vb, vs and vd")
        if not labels and "s" not in record:
            # RFC 8428 4.5.4: a missing value next to a base is zero.
            if self._value is None and self._sum is None:
                return Reject(Reason.MISSING_FIELD, f"{path}.v", "nothing", "one of v, vb, vs and vd, or s")
            given = [] if self._value is None else ["v"]
        values: list[tuple[str, _Value]] = []
        for label in given:
            value = _read_value(label, record.get(label), self._value, path)
            if isinstance(value, Reject):
                return value
            values.append((label, value))
        if self._sum is not None or record.get("s") is not None:
            total = _read_number(record.get("s"), self._sum, path, "s")
            if isinstance(total, Reject):
                return total
            values.append(("s", total))
        return values


def _text_fault(value: object, path: str, label: str) -> Reject | None:
    if value is None or isinstance(value, str):
        return None
    return Reject(Reason.WRONG_TYPE, f"{path}.{label}", show_value(value), "a text")


def _number_fault(value: object, path: str, label: str) -> Reject | None:
    if type(value) is float or type(value) is int:
        return None
    if isinstance(value, BadNumber):
        return Reject(Reason.BAD_NUMBER, f"{path}.{label}", value.text, "a finite number")
    return Reject(Reason.WRONG_TYPE, f"{path}.{label}", show_value(value), "a number")


def _read_microseconds(value: Any, path: str, label: str) -> int | Reject:
    """Return seconds as µs, to the nearest one; null is 0."""
    if value is None:
        return 0
    fault = _number_fault(value, path, label)
    if fault is not None:
        return fault
    if not -_MAX_SECONDS < value < _MAX_SECONDS:
        wanted = "seconds, since 1970 or relative to now"
        return Reject(Reason.BAD_TIMESTAMP, f"{path}.{label}", show_value(value), wanted)
    return value * 1_000_000 if isinstance(value, int) else round(value * 1_000_000)


def _read_value(label: str, value: Any, base: float | None, path: str) -> _Value | Reject:
    """Return the value with its base value; binary data (`vd`) as base64 text without padding, as in JSON."""
    if label == "v":
        return _read_number(value, base, path, label)
    if label == "vb":
        wanted = "true or false"
        return value if type(value) is bool else Reject(Reason.WRONG_TYPE, f"{path}.vb", show_value(value), wanted)
    if label == "vd" and isinstance(value, bytes):
        return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")
    fault = _text_fault(value, path, label)
    text: str = value
    return text if fault is None else fault


def _read_number(value: Any, base: float | None, path: str, label: str) -> float | BadNumber | Reject:
    """Return number plus base; a missing one is zero."""
    if value is None:
        return 0 if base is None else base
    fault = _number_fault(value, path, label)
    if fault is not None:
        return fault
    number: float = value
    return number if base is None else _add(number, base)


def _add(value: float, base: float) -> float | BadNumber:
    try:
        total = value + base
    except OverflowError:
        total = math.inf
    return total if isinstance(total, int) or math.isfinite(total) else BadNumber("a sum beyond the range of a double")
