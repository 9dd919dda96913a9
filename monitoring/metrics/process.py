"""What every process says of itself."""

from prometheus_client import CollectorRegistry, Gauge

__all__ = ["build_info"]


def build_info(registry: CollectorRegistry, version: str, part: str) -> None:
    """One series that says which version of which part answers."""
    Gauge("tidegate_build_info", "Version of the running part.", ["version", "part"], registry=registry).labels(
        version, part
    ).set(1)
