"""One value to one reading: rules for numbers, booleans, texts and metric names that all formats share."""

from typing import Final

from gateway.json_text import BadNumber
from gateway.safe_text import show_text, show_value
from gateway.topic_filters import empty_level, id_fault
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import Reason

__all__ = [
    "EXACT",
    "MAX_METRIC_BYTES",
    "NOT_FINITE",
    "NO_VALUE",
    "WANTED_VALUE",
    "metric_fault",
    "read_value",
    "refuse_topic_name",
    "refuse_value",
]

BEYOND_DOUBLE: Final = "beyond_double"
MAX_METRIC_BYTES: Final = 512
WANTED_VALUE: Final = 'a number, boolean, string or {"value": …, "unit": …}'
EXACT: Final = 2**53
NOT_FINITE: Final = frozenset({"nan", "inf", "infinity"})
NO_VALUE: Final = frozenset({"null", "none", "unavailable", "unknown", "undefined", "n/a"})
"""Texts that say that there is no value, in any format; in lower case."""
_known_metrics: set[str] = set()
"""Valid names: the same few come with every message. Bounded; only checked names are added."""


def metric_fault(metric: str) -> str | None:
    """Return what a metric name must be ("wanted") if this is not one; None if it is one."""
    if metric in _known_metrics:
        return None
    fault = id_fault(metric, MAX_METRIC_BYTES)
    if fault is None and len(_known_metrics) < 10_000:
        _known_metrics.add(metric)
    return fault


def read_value(metric: str, value: object, unit: str | None, path: str) -> Reading | Reject:
    """Return a reading without its time, or why the value is not valid."""
    fault = metric_fault(metric)
    if fault is not None:
        return Reject(Reason.OUT_OF_RANGE, path, show_value(metric), fault)
    match value:
        case bool():
            return Reading(metric, 1.0 if value else 0.0, "true" if value else "false", unit)
        case float():
            return Reading(metric, value, None, unit)
        case int():
            return _read_int(metric, value, unit, path)
        case str():
            return Reading(metric, None, value, unit)
    return refuse_value(value, path)


def refuse_value(value: object, path: str) -> Reject:
    """Return why this is not a value."""
    if isinstance(value, BadNumber):
        return Reject(Reason.BAD_NUMBER, path, value.text, value.wanted)
    return Reject(Reason.WRONG_TYPE, path, show_value(value), WANTED_VALUE)


def refuse_topic_name(topic: str) -> Reject:
    """Return why the topic gives a bare value no metric name."""
    level = empty_level(topic)
    wanted = f"a metric name: {level}; " if level else "a metric name; "
    return Reject(Reason.OUT_OF_RANGE, "topic", show_text(topic), f"{wanted}a route may name it (metric = …)")


def _read_int(metric: str, value: int, unit: str | None, path: str) -> Reading | Reject:
    if -EXACT <= value <= EXACT:
        return Reading(metric, float(value), None, unit)
    try:
        nearest = float(value)
    except OverflowError:
        return Reject(Reason.BAD_NUMBER, path, show_text("an integer beyond the range of a double"), "a finite number")
    return Reading(metric, nearest, str(value), unit, flags=[BEYOND_DOUBLE])
