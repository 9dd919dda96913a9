"""What each record of a SenML pack says once the base fields of the records before it are applied to it.

A base field that cannot be relied on spoils every record behind it, so it refuses the whole pack; so does a field that
must be understood (`foo_`) and is not. Whatever else is wrong costs its own record.
Source: RFC 8428 sections 4 and 5; RFC 9100 for versions.
"""

import base64
import math
from typing import Any, Final, NamedTuple

from gateway.json_text import BadNumber
from gateway.show import json_path, show, show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["BadPack", "Pack", "Resolved"]

_BASE_FIELDS: Final = frozenset({"bn", "bt", "bu", "bv", "bs", "bver"})
_VALUES: Final = ("v", "vb", "vs", "vd")
_MAX_VERSION: Final = 31
"""Versions are sets of features (RFC 9100): up to bit 4, units of the second registry, which are kept as they are."""
_MAX_SECONDS: Final = 10**12


class BadPack(Exception):
    """The whole pack is refused."""

    def __init__(self, reject: Reject) -> None:
        super().__init__(reject.reason)
        self.reject = reject


class Resolved(NamedTuple):
    """One record. `time_us` is base time plus time, in µs; `values` are (label, value), of v, vb, vs, vd and s."""

    base: str
    name: str
    unit: str | None
    time_us: int
    values: list[tuple[str, float | int | bool | str | BadNumber]]


class Pack:
    """The base fields as they stand after the records so far."""

    def __init__(self) -> None:
        self._base: dict[str, Any] = {}

    def resolve(self, record: object, path: str) -> Resolved | Reject | None:
        """The next record; None where it only sets base fields.

        Raises:
            BadPack: this record spoils the pack.
        """
        if not isinstance(record, dict):
            return Reject(Reason.NOT_OBJECT, path, show_value(record), "a SenML record: an object, or map")
        self._take_base(record, path)
        if record.keys() <= _BASE_FIELDS:
            return None
        for label in ("n", "u"):
            fault = _text_fault(record.get(label), f"{path}.{label}")
            if fault is not None:
                return fault
        time_us = _read_microseconds(record.get("t"), f"{path}.t")
        if isinstance(time_us, Reject):
            return time_us
        values = self._values(record, path)
        if isinstance(values, Reject):
            return values
        base = self._base
        unit = record.get("u") or base.get("bu") or None
        return Resolved(base.get("bn", ""), record.get("n") or "", unit, base.get("bt", 0) + time_us, values)

    def _take_base(self, record: dict[Any, Any], path: str) -> None:
        for label in record:
            if isinstance(label, str) and label.endswith("_"):
                wanted = "fields of RFC 8428 only: one that ends in _ must be understood"
                raise BadPack(Reject(Reason.UNSUPPORTED_VERSION, json_path(path, label), show(label), wanted))
        for label in _BASE_FIELDS & record.keys():
            value = record[label]
            if value is None:
                continue
            taken = _read_base(label, value, f"{path}.{label}")
            if isinstance(taken, Reject):
                raise BadPack(taken)
            self._base[label] = taken

    def _values(self, record: dict[Any, Any], path: str) -> list[tuple[str, Any]] | Reject:
        base = self._base
        labels = [label for label in _VALUES if record.get(label) not in (None, "")]
        if len(labels) > 1:
            return Reject(Reason.OUT_OF_RANGE, path, " and ".join(labels), "one of v, vb, vs and vd")
        if not labels and record.get("s") is None and not {*_VALUES, "s"} & record.keys():
            if "bv" not in base and "bs" not in base:
                return Reject(Reason.MISSING_FIELD, f"{path}.v", "nothing", "one of v, vb, vs and vd, or s")
            labels = ["v"] if "bv" in base else []
        values: list[tuple[str, Any]] = []
        for label in labels:
            value = _read_value(label, record.get(label), base.get("bv"), f"{path}.{label}")
            if isinstance(value, Reject):
                return value
            values.append((label, value))
        if record.get("s") is not None or "bs" in base:
            total = _read_value("v", record.get("s"), base.get("bs"), f"{path}.s")
            if isinstance(total, Reject):
                return total
            values.append(("s", total))
        return values


def _read_base(label: str, value: object, path: str) -> object:
    """A base field's value (`bt` in µs), or a Reject."""
    if label == "bver":
        known = type(value) is int and 0 < value <= _MAX_VERSION
        wanted = f"a version from 1 to {_MAX_VERSION}"
        return value if known else Reject(Reason.UNSUPPORTED_VERSION, path, show_value(value), wanted)
    if label == "bt":
        return _read_microseconds(value, path)
    if label in ("bn", "bu"):
        return _text_fault(value, path) or value
    return _number_fault(value, path) or value


def _text_fault(value: object, path: str) -> Reject | None:
    if value is None or isinstance(value, str):
        return None
    return Reject(Reason.WRONG_TYPE, path, show_value(value), "a text")


def _number_fault(value: object, path: str) -> Reject | None:
    if isinstance(value, BadNumber):
        return Reject(Reason.BAD_NUMBER, path, value.text, "a finite number")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return None
    return Reject(Reason.WRONG_TYPE, path, show_value(value), "a number")


def _read_microseconds(value: Any, path: str) -> int | Reject:
    """Seconds as µs, to the nearest one; a missing time is 0."""
    if value is None:
        return 0
    fault = _number_fault(value, path)
    if fault is not None:
        return fault
    if not -_MAX_SECONDS < value < _MAX_SECONDS:
        return Reject(Reason.BAD_TIMESTAMP, path, show_value(value), "seconds, since 1970 or relative to now")
    return value * 1_000_000 if isinstance(value, int) else round(value * 1_000_000)


def _read_value(label: str, value: Any, base: Any, path: str) -> float | bool | str | BadNumber | Reject:
    """The value with its base value; binary data (`vd`) as base64 text without padding, as JSON has it."""
    if label == "vd" and isinstance(value, bytes):
        return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")
    if label in ("vs", "vd"):
        return _text_fault(value, path) or value
    if label == "vb":
        return value if isinstance(value, bool) else Reject(Reason.WRONG_TYPE, path, show_value(value), "true or false")
    if value is None or base is None:
        number = base if value is None else value
        return _number_fault(number, path) or number
    return _number_fault(value, path) or _add(value, base)


def _add(value: float, base: float) -> float | BadNumber:
    try:
        total = value + base
    except OverflowError:
        total = math.inf
    return total if isinstance(total, int) or math.isfinite(total) else BadNumber("a sum past every double")
