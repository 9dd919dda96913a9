"""Name and labels of every sample that Tidegate serves. Rules and dashboards may use only these."""

from collections.abc import Iterator
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from monitoring.metrics.bench import BENCH
from monitoring.metrics.canary import CanaryMetrics
from monitoring.metrics.gateway import GatewayMetrics
from monitoring.metrics.jvm import JVM
from monitoring.metrics.monitor import PROBES, MonitorMetrics
from monitoring.metrics.process_metrics import build_info, process_metrics
from monitoring.metrics.stream import StreamMetrics

__all__ = ["declared_samples"]

_ENDINGS: Final = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
_OF_PROMETHEUS: Final = {"up": ()}


@lru_cache(maxsize=1)
def declared_samples() -> MappingProxyType[str, tuple[str, ...]]:
    """Return sample name -> label names, without those that Prometheus adds (`job`, `instance`); a `_bucket` also has `le`."""
    found: dict[str, tuple[str, ...]] = dict(_OF_PROMETHEUS)
    for collector in _collectors():
        found.update(_samples(collector))
    for families in (*PROBES.values(), JVM, BENCH):
        found.update((family.name, family.labels) for family in families)
    return MappingProxyType(dict(sorted(found.items())))


def _collectors() -> list[Collector]:
    """Return the collectors that all processes register."""
    registry = _Recorder()
    GatewayMetrics(registry, reasons=(), ignored_reasons=())
    StreamMetrics(registry, query="", tables=(), topics=())
    CanaryMetrics(registry)
    MonitorMetrics(registry)
    build_info(registry, "", "")
    process_metrics(registry)
    return registry.collectors


class _Recorder(CollectorRegistry):
    """A registry that remembers its collectors: a normal one lists only existing series, so unused labels would be missing."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        super().register(collector)
        self.collectors.append(collector)


def _samples(collector: Collector) -> Iterator[tuple[str, tuple[str, ...]]]:
    own: Any = collector
    if not hasattr(own, "_labelnames"):
        for family in collector.collect():
            yield from ((sample.name, tuple(sample.labels)) for sample in family.samples)
        return
    for ending in _ENDINGS[own._type]:
        labels = (*own._labelnames, "le") if ending == "_bucket" else tuple(own._labelnames)
        yield f"{own._name}{ending}", labels
