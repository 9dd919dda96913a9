"""Metrics that every process serves about itself."""

from prometheus_client import CollectorRegistry, Gauge, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics import disable_created_metrics

__all__ = ["build_info", "process_metrics"]


def build_info(registry: CollectorRegistry, version: str, part: str) -> None:
    """Register one series with the version and the name of the part."""
    Gauge("tidegate_build_info", "Version of the running part.", ["version", "part"], registry=registry).labels(
        version, part
    ).set(1)


def process_metrics(registry: CollectorRegistry) -> None:
    """Register CPU, memory, files and garbage collection of this process, under the names that every Python exporter uses.

    This also turns off `_created` series for the process. There would be one for each counter and histogram, a third of all
    series, and nothing reads them.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
