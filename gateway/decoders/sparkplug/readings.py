"""Metrics of one Sparkplug message to readings: name, datatype and unit from the birth, time from the metric."""

from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.decoders.shape import Decoded, RouteMatch
from gateway.decoders.sparkplug.births import BirthDefinitions, MetricDefinition, is_protocol, properties_of
from gateway.decoders.sparkplug.payload import SparkplugMetric, TooManyMetrics
from gateway.decoders.sparkplug.values import (
    BOOLEAN,
    BOOLEAN_FIELD,
    PLAIN_BELOW,
    REALS,
    DatatypeMismatch,
    Scalar,
    read_datatype_value,
)
from gateway.decoders.values import read_value
from gateway.gateway_settings import GatewaySettings
from gateway.time_rules import YEAR_2000_S, check_plausible_time
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import Reason

__all__ = ["YEAR_2000_MS", "Lookup", "MetricConverter", "make_definition_lookup"]

CLOCK_UNSET: Final = "clock_unset"
HISTORICAL: Final = "historical"
TRANSIENT: Final = "transient"
YEAR_2000_MS: Final = YEAR_2000_S * 1000

_At = tuple[int | None, int | None, list[str]]
"""Event time and claimed time in epoch µs, and flags."""
Lookup = Callable[[SparkplugMetric], MetricDefinition | None]


def make_definition_lookup(known: list[BirthDefinitions]) -> Lookup:
    """Return the lookup of a metric's definition; it gives None if there is none, or if several births disagree about it."""
    return known[0].find if len(known) == 1 else partial(_find_agreed, known)


def _find_agreed(known: list[BirthDefinitions], metric: SparkplugMetric) -> MetricDefinition | None:
    found = {one.find(metric) for one in known}
    return found.pop() if len(found) == 1 else None


class MetricConverter:
    """Reader of one message's metrics to readings, into `decoded`.

    Attributes:
        stale: whether a metric did not fit its known birth.
    """

    def __init__(self, decoded: Decoded, match: RouteMatch, limits: GatewaySettings, received_us: int) -> None:
        self._decoded, self._match, self._limits, self._received_us = decoded, match, limits, received_us
        self._most = limits.max_readings_per_message
        self._sent_ms: int | None = None
        self._at_ms: int | None = None
        self._at: _At | Reject = (None, None, [])
        self.stale = False

    def read(self, metrics: list[SparkplugMetric], sent_ms: int | None, find: Lookup) -> None:
        """Add the readings of all metrics.

        Raises:
            BadProtobuf: the properties of one are not a property set.
            TooMany: there would be more readings than a message may have.
        """
        self._sent_ms = sent_ms
        readings = self._decoded.readings
        for place, metric in enumerate(metrics):
            definition = find(metric)
            if (
                definition is not None
                and metric.is_plain
                and metric.time_ms is not None
                and self._add_plain(definition, metric)
            ):
                continue
            if definition is None:
                self._add_undefined(metric, place)
            elif metric.field and not metric.null and not definition.steers:
                self._add(definition, metric, place)
        if len(readings) != len({reading.metric for reading in readings}):
            _number_values(readings)

    def _add_plain(self, definition: MetricDefinition, metric: SparkplugMetric) -> bool:
        """Add a usual metric on the fast path; False if the slow path must decide."""
        raw, datatype = metric.raw, metric.datatype or definition.datatype
        if type(raw) is float:
            if datatype not in REALS or raw - raw != 0.0:
                return False
            value, text = raw, None
        elif metric.field == BOOLEAN_FIELD:
            if datatype != BOOLEAN:
                return False
            value, text = (1.0, "true") if raw else (0.0, "false")
        elif type(raw) is int and raw < PLAIN_BELOW.get(datatype, 0) and metric.field:
            value, text = float(raw), None
        else:
            return False
        at = self._at if metric.time_ms == self._at_ms else self._read_time(metric.time_ms)
        if type(at) is not tuple or at[2] or definition.steers:
            return False
        self._check_room()
        name = definition.name
        unit = definition.unit or self._match.units.get(name)
        self._decoded.readings.append(Reading(name, value, text, unit, at[0]))
        return True

    def _add_undefined(self, metric: SparkplugMetric, place: int) -> None:
        if metric.name is None:
            self._refuse_unnamed(metric, place)
        elif metric.field and not metric.null and not is_protocol(metric.name):
            self._add(MetricDefinition(metric.name, None, None, None), metric, place)

    def _refuse_unnamed(self, metric: SparkplugMetric, place: int) -> None:
        path = f"$.metrics[{place}]"
        if metric.alias is None:
            fault = Reject(Reason.MISSING_FIELD, f"{path}.name", "neither name nor alias", "a name, or a birth's alias")
        else:
            self.stale = True
            wanted = "an alias that a birth of this node or device defined; the node is asked for a rebirth"
            fault = Reject(Reason.ALIAS_UNKNOWN, f"{path}.alias", str(metric.alias), wanted)
        self._decoded.rejects.append(fault)

    def _add(self, definition: MetricDefinition, metric: SparkplugMetric, place: int) -> None:
        time_ms = self._sent_ms if metric.time_ms is None else metric.time_ms
        at = self._at if time_ms == self._at_ms else self._read_time(time_ms)
        if isinstance(at, Reject):
            self._refuse(Reject(at.reason, f"$.metrics[{place}].timestamp", at.got, at.wanted))
            return
        unit, flags = definition.unit, at[2]
        if metric.historical or metric.transient or metric.properties is not None:
            named, more = properties_of(metric)
            unit, flags = named or unit, [*flags, *_flags(metric), *more]
        try:
            value = read_datatype_value(metric.datatype or definition.datatype, metric)
        except DatatypeMismatch as misfit:
            self.stale = self.stale or misfit.stale
            self._refuse(Reject(misfit.reason, f"$.metrics[{place}]", misfit.got, misfit.wanted))
            return
        for name, item in (
            _name_items(definition.name, value) if isinstance(value, list) else ((definition.name, value),)
        ):
            if item != "":
                self._add_value(name, item, unit or self._match.units.get(name), place, at, flags)

    def _add_value(self, name: str, value: Scalar, unit: str | None, place: int, at: _At, flags: list[str]) -> None:
        reading = read_value(name, value, unit, f"$.metrics[{place}]" if type(value) is not float else "")
        if isinstance(reading, Reject):
            self._refuse(reading)
            return
        self._check_room()
        reading.time_us, reading.claimed_us, _flags = at
        if flags:
            reading.flags = [*flags, *(reading.flags or ())]
        self._decoded.readings.append(reading)

    def _refuse(self, fault: Reject) -> None:
        self._check_room()
        self._decoded.rejects.append(fault)

    def _check_room(self) -> None:
        if len(self._decoded.readings) + len(self._decoded.rejects) >= self._most:
            raise TooManyMetrics(self._most)

    def _read_time(self, time_ms: int | None) -> _At | Reject:
        """Read a time; metrics of a message mostly share it, so the last one is cached."""
        self._at_ms = time_ms
        if time_ms is None or time_ms == 0:
            self._at = (None, None, [])
        elif time_ms < YEAR_2000_MS:
            self._at = (None, time_ms * 1000, [CLOCK_UNSET])
        else:
            refused = check_plausible_time(time_ms * 1000, self._received_us, self._limits.max_future_seconds, "")
            self._at = refused or (time_ms * 1000, None, [])
        return self._at


def _flags(metric: SparkplugMetric) -> list[str]:
    return [flag for flag, holds in ((HISTORICAL, metric.historical), (TRANSIENT, metric.transient)) if holds]


def _name_items(name: str, items: list[Scalar]) -> list[tuple[str, Scalar]]:
    return [(f"{name}[{place}]", item) for place, item in enumerate(items)]


def _number_values(readings: list[Reading]) -> None:
    """Give many values of one name, a batch of one metric's history, different indexes."""
    counts: dict[str, int] = {}
    for reading in readings:
        reading.index = counts.get(reading.metric, 0)
        counts[reading.metric] = reading.index + 1
