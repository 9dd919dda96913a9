"""What every process says of itself."""

from prometheus_client import CollectorRegistry, Gauge, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics import disable_created_metrics

__all__ = ["build_info", "process_metrics"]


def build_info(registry: CollectorRegistry, version: str, part: str) -> None:
    """One series that says which version of which part answers."""
    Gauge("tidegate_build_info", "Version of the running part.", ["version", "part"], registry=registry).labels(
        version, part
    ).set(1)


def process_metrics(registry: CollectorRegistry) -> None:
    """CPU, memory, files and garbage collection of this process, under the names that every Python exporter uses.

    From here on the process serves no `_created` series: one beside each counter and histogram, which nothing reads and
    which would be a third of all series.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
