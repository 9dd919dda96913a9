"""Addresses of `/metrics` by the settings, for the monitor and for Prometheus."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from monitoring.addresses import Address, parse_address, reached_at
from monitoring.monitoring_settings import MonitoringSettings, Part

__all__ = ["JVMS", "MetricsTarget", "metrics_targets"]

JVMS: Final = ("kafka", "spark")
"""Parts whose answers cost more, so they are asked less often."""


@dataclass(frozen=True, slots=True)
class MetricsTarget:
    """One address of a part; `instance` distinguishes it from the part's other addresses."""

    address: Address
    instance: str


def metrics_targets(settings: MonitoringSettings) -> dict[Part, tuple[MetricsTarget, ...]]:
    """Return the targets by part: those in `targets`, else this host's port. Port 0 and an empty list mean no target."""
    ports: dict[Part, int] = {
        "gateway": settings.gateway_port,
        "stream": settings.stream_port,
        "canary": settings.canary_port,
        "monitor": settings.page_port,
        "kafka": settings.kafka_jmx_port,
        "spark": settings.spark_jmx_port,
    }
    hosts = {part: settings.host if part == "monitor" else settings.metrics_host for part in ports}
    own = {part: (f"http://{reached_at(hosts[part], port)}",) for part, port in ports.items() if port}
    chosen = {part: settings.targets.get(part, own.get(part, ())) for part in ports}
    return {part: _told_apart(given) for part, given in chosen.items() if given}


def _told_apart(given: tuple[str, ...]) -> tuple[MetricsTarget, ...]:
    """Return targets with host:port as instance, as in Prometheus; with two paths on one server, also with the path."""
    addresses = dict.fromkeys(map(parse_address, given))
    times = Counter(each.netloc for each in addresses)
    return tuple(MetricsTarget(each, each.netloc + (each.path if times[each.netloc] > 1 else "")) for each in addresses)
