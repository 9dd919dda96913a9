"""Specifications of the embedded run's parts: how each starts, and how it shows that it is ready or that it hangs."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from deploy.local.announce import metrics_urls
from deploy.local.broker import EmbeddedBroker
from deploy.local.kafka import EmbeddedKafka
from deploy.local.page_access import page_address
from deploy.local.part import PartSpec
from deploy.local.prometheus_servers import Watcher
from deploy.settings import Settings
from monitoring.scrape import SILENT, healthz

__all__ = ["pipeline_specs", "reports_hang", "watcher_spec"]

HOST: Final = "127.0.0.1"


def pipeline_specs(
    settings: Settings, config: Path, broker: EmbeddedBroker, kafka: EmbeddedKafka, *, fleet: bool
) -> list[PartSpec]:
    """The parts of a run in the order in which they are shown."""
    seconds = settings.embedded.stop_timeout_seconds
    urls = {part: url.replace("/metrics", "/healthz") for part, url in metrics_urls(settings).items()}

    def hop(name: str, *after: str, flags: Sequence[str] = ()) -> PartSpec:
        return PartSpec(
            name=name,
            command=_ours(name, "--config", str(config), *flags),
            ready=_healthy(urls[name]),
            after=after,
            stop_seconds=seconds,
            stalled=reports_hang,
            stalls_with=("kafka",),
        )

    specs = [
        PartSpec(
            name="broker",
            command=_prepared(broker),
            ready=_answers(broker, f"{broker.kind} "),
            stop_seconds=seconds,
            stalled=reports_hang,
        ),
        PartSpec(
            name="kafka",
            command=_prepared(kafka),
            ready=_answers(kafka),
            stop_seconds=max(seconds, 30.0),
            stalled=reports_hang,
        ),
        PartSpec(
            name="topics",
            command=_ours("make-topics", "--config", str(config)),
            ready=_never,
            after=("kafka",),
            one_shot=True,
        ),
        hop("gateway", "topics", "broker"),
        # Spark takes longest to start and waits for Kafka by itself, so it need not wait for its turn.
        hop("stream", flags=("--log-dir", str(config.parent / "logs"))),
    ]
    if fleet and settings.embedded.fleet_devices:
        specs.append(_fleet(settings, config))
    return [*specs, hop("canary", "gateway", "stream"), _monitor(settings, config)]


def _monitor(settings: Settings, config: Path) -> PartSpec:
    """Return the monitor, which needs no other part, so that its page shows the start of all the others."""
    return PartSpec(
        name="monitor",
        command=_ours("monitor", "--config", str(config)),
        ready=_healthy(f"{page_address(settings.monitoring)}healthz"),
        stop_seconds=10.0,
        stalled=reports_hang,
    )


def watcher_spec(watcher: Watcher) -> PartSpec:
    """Prometheus or Alertmanager, without which the run is ready all the same."""
    return PartSpec(
        name=watcher.name,
        command=_prepared(watcher),
        ready=watcher.ready,
        stop_seconds=10.0,
        stalled=reports_hang,
        optional=True,
    )


def _fleet(settings: Settings, config: Path) -> PartSpec:
    devices, rate = settings.embedded.fleet_devices, settings.embedded.fleet_rate
    command = _ours("device", "simulate", "--config", str(config), "--devices", str(devices), "--rate", f"{rate:g}")
    return PartSpec(
        name="fleet", command=command, ready=lambda: (True, f"{devices} devices, {rate:g} messages/s"),
        after=("gateway", "stream"), stop_seconds=10.0,
    )  # fmt: skip


def _ours(*arguments: str) -> Callable[[], Sequence[str]]:
    # -P: a folder named like one of our packages in the working directory must not be imported.
    return lambda: [sys.executable, "-P", "-m", "deploy.cli", *arguments]


def _prepared(server: EmbeddedBroker | EmbeddedKafka | Watcher) -> Callable[[], Sequence[str]]:
    def command() -> Sequence[str]:
        server.prepare()
        return server.command()

    return command


def _answers(server: EmbeddedBroker | EmbeddedKafka, kind: str = "") -> Callable[[], tuple[bool, str]]:
    def ready() -> tuple[bool, str]:
        return (True, f"{kind}on {HOST}:{server.port}") if server.ready() else (False, SILENT)

    return ready


def reports_hang(detail: str) -> bool:
    """Return whether this detail means that the part hangs: it is silent, or reports that its own loop stopped.

    A part that waits for another one says so, and is left alone: a restart would not help it.
    """
    return detail == SILENT or "stalled" in detail or "has not turned" in detail


def _healthy(url: str) -> Callable[[], tuple[bool, str]]:
    return lambda: healthz(url)


def _never() -> tuple[bool, str]:
    return False, ""
