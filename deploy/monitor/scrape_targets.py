"""Addresses that the monitor scrapes, by the settings."""

from collections.abc import Iterator

from monitoring.monitoring_settings import MonitoringSettings, Part
from monitoring.scrape_loop import ScrapeTarget
from monitoring.targets import JVMS, metrics_targets

__all__ = ["metrics_addresses", "scrape_targets"]


def metrics_addresses(settings: MonitoringSettings) -> dict[Part, tuple[str, ...]]:
    """Return `/metrics` addresses by part; the monitor does not scrape itself."""
    found = metrics_targets(settings).items()
    return {part: tuple(each.address.url for each in targets) for part, targets in found if part != "monitor"}


def scrape_targets(settings: MonitoringSettings) -> Iterator[ScrapeTarget]:
    """Yield one target per address; `instance` distinguishes several of one part, as in Prometheus."""
    for part, targets in metrics_targets(settings).items():
        if part == "monitor":
            continue
        every = settings.jmx_seconds if part in JVMS else settings.look_seconds
        for each in targets:
            instance = each.instance if len(targets) > 1 else None
            yield ScrapeTarget(f"tidegate-{part}", each.address.url, every_seconds=every, instance=instance)
