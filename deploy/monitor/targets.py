"""Whom the monitor scrapes, by the settings: the ports of the parts, or the addresses given instead."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from monitoring.look import Target
from monitoring.settings import MonitoringSettings

__all__ = ["addresses", "targets_of"]

JVMS: Final = ("kafka", "spark")


def addresses(settings: MonitoringSettings) -> dict[str, tuple[str, ...]]:
    """`/metrics` addresses by part; an embedded part without a port has none."""
    ports = {
        "gateway": settings.gateway_port,
        "stream": settings.stream_port,
        "canary": settings.canary_port,
        "kafka": settings.kafka_jmx_port,
        "spark": settings.spark_jmx_port,
    }
    found = {part: (f"http://{_host(settings.host)}:{port}/metrics",) for part, port in ports.items() if port}
    return {**found, **{part: tuple(map(_whole, given)) for part, given in settings.targets.items() if given}}


def targets_of(settings: MonitoringSettings) -> Iterator[Target]:
    """One per address; several of a part are told apart by `instance`, as Prometheus does."""
    for part, urls in addresses(settings).items():
        every = settings.jmx_seconds if part in JVMS else settings.look_seconds
        for url in urls:
            instance = urlsplit(url).netloc if len(urls) > 1 else None
            yield Target(f"tidegate-{part}", url, every_seconds=every, instance=instance)


def _host(host: str) -> str:
    """Where a server that is bound to every address is found."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - looked up, not bound
    return f"[{shown}]" if ":" in shown else shown


def _whole(address: str) -> str:
    """`host:port` means what Prometheus means by it."""
    url = address if "://" in address else f"http://{address}"
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/metrics"
