"""Definitions of a birth: each metric's name, alias, datatype and unit, as bytes to remember and to look up in.

A template's members are separate metrics here, named `template/member`.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from gateway.decoders.protobuf import BadProtobuf
from gateway.decoders.sparkplug.payload import SparkplugMetric, TooManyMetrics, read_properties, read_template
from gateway.decoders.sparkplug.values import TEMPLATE

__all__ = [
    "BirthDefinitions",
    "MetricDefinition",
    "flatten_metrics",
    "is_protocol",
    "pack_definitions",
    "properties_of",
    "unpack_definitions",
]

UNIT_PROPERTIES: Final = ("engUnit", "Engineering Units")
_WANTED_PROPERTIES: Final = (*UNIT_PROPERTIES, "Quality")
_QUALITIES: Final[dict[object, str]] = {0: "quality_bad", 500: "quality_stale"}
"""Codes of Sparkplug's Quality property; 192 is good."""
MAX_TEMPLATE_DEPTH: Final = 8
_TEMPLATE_FIELD: Final = 18
_PROTOCOL: Final = frozenset({"bdSeq", "Node Control", "Device Control"})


class MetricDefinition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One metric as its birth defined it. `steers`: it steers the protocol and is not a reading."""

    name: str
    alias: int | None
    datatype: int | None
    unit: str | None
    steers: bool = False


class BirthDefinitions:
    """Metrics of one edge node or device."""

    __slots__ = ("_by_alias", "_by_name")

    def __init__(self, definitions: list[MetricDefinition]) -> None:
        self._by_name = {one.name: one for one in definitions}
        self._by_alias = {one.alias: one for one in definitions if one.alias is not None}

    def find(self, metric: SparkplugMetric) -> MetricDefinition | None:
        """Return this metric's definition, by its name if it has one."""
        if metric.name is not None:
            return self._by_name.get(metric.name)
        return None if metric.alias is None else self._by_alias.get(metric.alias)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[MetricDefinition]).decode


def pack_definitions(definitions: list[MetricDefinition]) -> bytes:
    """Encode the definitions as bytes."""
    return _encode(definitions)


def unpack_definitions(packed: bytes) -> BirthDefinitions:
    """Decode the definitions; empty if the bytes are not ours."""
    try:
        return BirthDefinitions(_decode(packed))
    except msgspec.MsgspecError:
        return BirthDefinitions([])


def is_protocol(name: str) -> bool:
    """Return whether this metric steers the protocol: bdSeq, and metrics under Node Control and Device Control."""
    return name.partition("/")[0] in _PROTOCOL


def properties_of(metric: SparkplugMetric) -> tuple[str | None, list[str]]:
    """Return the engineering unit in the metric's properties, and flags for a quality that is not good.

    Raises:
        BadProtobuf: these are not properties.
    """
    if metric.properties is None:
        return None, []
    if metric.traits is not None:
        return metric.traits
    found = read_properties(metric.properties, _WANTED_PROPERTIES)
    unit = next((unit for key in UNIT_PROPERTIES if isinstance(unit := found.get(key), str) and unit), None)
    flag = _QUALITIES.get(found.get("Quality", 192))
    metric.traits = unit, [] if flag is None else [flag]
    return metric.traits


def flatten_metrics(
    metrics: list[SparkplugMetric], name_of: Callable[[SparkplugMetric], str | None], max_metrics: int
) -> list[SparkplugMetric]:
    """Return the metrics with each template instance followed by its members, named `template/member`.

    The instance itself stays, as a metric without a value; a member without its own time has the instance's. Definitions
    of templates, and instances with an unknown name, have no members here.

    Raises:
        TooMany: the result has more than `max_metrics`.
        BadProtobuf: a template's bytes are invalid, or templates are nested deeper than `MAX_TEMPLATE_DEPTH`.
    """
    if not any(metric.field == _TEMPLATE_FIELD for metric in metrics):
        return metrics
    flat: list[SparkplugMetric] = []
    waiting = [(metric, 0) for metric in reversed(metrics)]
    while waiting:
        metric, depth = waiting.pop()
        if len(flat) + len(waiting) >= max_metrics:
            raise TooManyMetrics(max_metrics)
        flat.append(metric)
        if metric.field == _TEMPLATE_FIELD:
            if depth >= MAX_TEMPLATE_DEPTH:
                message = f"templates nested deeper than {MAX_TEMPLATE_DEPTH}"
                raise BadProtobuf(message)
            members = _open_template(metric, name_of(metric), max_metrics)
            waiting += [(member, depth + 1) for member in reversed(members)]
    return flat


def _open_template(template: SparkplugMetric, name: str | None, max_metrics: int) -> list[SparkplugMetric]:
    """Return its members; the template is left without a value."""
    members = [] if template.null else read_template(template.raw, max_metrics=max_metrics)  # type: ignore[arg-type]
    template.field, template.null, template.datatype = 0, True, TEMPLATE
    if name is None or members is None:
        return []
    for member in members:
        if member.name is not None:
            member.name = f"{name}/{member.name}"
        if member.time_ms is None:
            member.time_ms = template.time_ms
        member.historical = member.historical or template.historical
        member.transient = member.transient or template.transient
    return members
