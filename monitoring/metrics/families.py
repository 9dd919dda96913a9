"""Gauges and counters filled by a probe with the figures of another system, under its known names.

A probe replaces all samples of its families at once, so that a scrape never sees half of a cluster, and a partition or group
that is gone leaves no series.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["MetricFamily", "ProbeCollector", "Samples"]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric name; a counter's name ends in `_total`."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"


Samples = Mapping[str, Sequence[tuple[tuple[str, ...], float]]]
"""Family name -> (label values in the family's order, value) per series."""


class ProbeCollector(Collector):
    """The families of one registry that probes fill; safe from any thread."""

    def __init__(self, registry: CollectorRegistry, families: Iterable[MetricFamily]) -> None:
        self._families = {family.name: family for family in families}
        self._samples: dict[str, Samples] = {}
        self._lock = threading.Lock()
        registry.register(self)

    def replace(self, probe: str, samples: Samples) -> None:
        """Replace all samples of a probe.

        Raises:
            KeyError: a family is not declared.
        """
        for name in samples:
            self._families[name]
        with self._lock:
            self._samples[probe] = samples

    def collect(self) -> Iterator[Metric]:
        """Yield the families for the registry."""
        with self._lock:
            told = list(self._samples.values())
        for family in self._families.values():
            make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = make(family.name, family.help, labels=family.labels)
            for samples in told:
                for labels, value in samples.get(family.name, ()):
                    metric.add_metric(labels, value)
            yield metric
