"""The draft for bare values: `21.5`, `on`. Topic levels say which device and which metric."""

from typing import Any

from gateway.decoders.plain import read_scalar
from gateway.suggest.device import Named, name_levels
from gateway.suggest.draft import Draft
from gateway.suggest.sample import Family
from gateway.suggest.units import unit_of_key

__all__ = ["draft_bare"]


def draft_bare(family: Family) -> Draft:
    """The draft for messages that are one value as text."""
    named = name_levels([sample.topic for sample in family.samples], metric=True, claimed=set(), by_payload=False)
    route: dict[str, Any] = {"filter": named.filter}
    if named.device is not None:
        route["device"] = named.device
    if named.route_metric is not None:
        route["metric"] = named.route_metric
    route["decoder"] = "plain"
    units = {}
    for sample in family.samples:
        name = sample.topic.rstrip("/").rpartition("/")[2]
        _value, unit = read_scalar(sample.payload.decode("utf-8", "replace").strip())
        found = unit_of_key(name)
        if unit is None and found is not None:
            units[_metric_of(named, sample.topic)] = found
    if units:
        route["units"] = units
    return Draft(route, notes=[f"device: {named.why}", "time: the receive time, since the payload has none"])


def _metric_of(named: Named, topic: str) -> str:
    """The metric that the route gives for a topic."""
    levels = dict(zip(named.filter.split("/"), topic.split("/"), strict=True))
    return ".".join(levels[part] for part in (named.metric or "{metric}").split(".") if part in levels)
