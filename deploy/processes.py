"""Start of a hop as a process: log, signals, metrics, exporter, and the hop's own server."""

import errno
import importlib.metadata
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.process_signals import configure_logging, stop_on_signals
from deploy.settings import Settings
from deploy.settings_reload import SettingsFile
from ingest.contract.errors import UnavailableError
from monitoring.exporter import CollectorRegistry, Exporter
from monitoring.metrics.canary import CanaryMetrics
from monitoring.metrics.gateway import GatewayMetrics
from monitoring.metrics.process_metrics import build_info, process_metrics
from monitoring.metrics.stream import StreamMetrics
from monitoring.service_notify import notify_service_manager

if TYPE_CHECKING:
    from gateway.service import GatewayService

__all__ = [
    "explain_bind_failure",
    "follow_inputs",
    "run_canary_process",
    "run_gateway",
    "run_stream",
    "serve_metrics",
    "version",
]

logger = logging.getLogger("tidegate.gateway")


@contextmanager
def serve_metrics(
    registry: CollectorRegistry,
    *,
    host: str,
    port: int,
    part: str,
    healthy: Callable[[], tuple[bool, str]],
    alive: Callable[[], bool] = lambda: True,
) -> Iterator[None]:
    """Serve one process's metrics while the block runs; systemd gets the same answers, if it asks for them.

    Raises:
        UnavailableError: the address cannot be had.
    """
    build_info(registry, version(), part)
    process_metrics(registry)
    try:
        exporter = Exporter(registry, host=host, port=port, healthy=healthy, alive=alive)
    except OSError as error:
        raise UnavailableError(
            explain_bind_failure(error, host, port, "the metrics", f"{part}_port", "metrics_host")
        ) from error
    try:
        with notify_service_manager(healthy, alive):
            yield
    finally:
        exporter.close()


def explain_bind_failure(
    error: OSError, host: str, port: int, what: str, setting: str, host_setting: str = "host"
) -> str:
    """Why an address cannot be served at, and which setting helps: another port only where the port is at fault."""
    shown, why = f"[{host}]" if ":" in host else host, error.strerror or error
    if error.errno in (errno.EADDRINUSE, errno.EACCES):
        wanted = "a free port" if error.errno == errno.EADDRINUSE else "a port above 1023"
        step = f"Set monitoring.{setting} to {wanted}"
    else:
        step = f"Set monitoring.{host_setting} to an address of this machine, or to 127.0.0.1"
    return f"{shown}:{port} cannot serve {what} ({why}). {step}."


def version() -> str:
    """Our version; a checkout that was never installed has none."""
    try:
        return importlib.metadata.version("tidegate")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def run_gateway(source: SettingsFile) -> None:
    """Run hop 1 until a signal asks to stop; changed routes of the settings file apply within seconds."""
    from ingest.contract.reasons import IgnoredReason, Reason

    configure_logging()
    settings, stop = source.settings, stop_on_signals()
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry, reasons=list(Reason), ignored_reasons=list(IgnoredReason))
    condition, monitoring = _GatewayCondition(settings), settings.monitoring
    with (
        # First of all: a platform ends a process whose probes nobody answers, and the wait for shared inputs may be long.
        serve_metrics(
            registry,
            host=monitoring.metrics_host,
            port=monitoring.gateway_port,
            part="gateway",
            healthy=condition.healthy,
            alive=condition.alive,
        ),
        follow_inputs(settings, stop, say=condition.waits),
    ):
        if not stop.is_set():
            _work_as_gateway(source, metrics, condition, stop)


class _GatewayCondition:
    """Answers for `/healthz` and `/livez` over the life of a gateway: those of its service, once there is one."""

    def __init__(self, settings: Settings) -> None:
        self.service: GatewayService | None = None
        self._detail = "starting"
        if settings.gateway.shared_inputs:
            kafka = settings.kafka.bootstrap_servers
            self._detail = f"waiting for the shared profiles and devices in Kafka at {kafka}"

    def waits(self, what: str) -> None:
        """Log and show a sentence about the wait for shared inputs."""
        logger.warning(what)
        self._detail = what

    def healthy(self) -> tuple[bool, str]:
        """Return whether messages flow, and a sentence."""
        return (False, self._detail) if self.service is None else self.service.healthy()

    def alive(self) -> bool:
        """Return whether a restart would not help. It helps nobody who waits for Kafka."""
        return self.service is None or self.service.alive()


def follow_inputs(
    settings: Settings, stop: threading.Event, *, say: Callable[[str], None] = logger.warning
) -> AbstractContextManager[None]:
    """Follow the profiles and devices in Kafka while the block runs; does nothing unless `gateway.shared_inputs` asks for it.

    `say` gets a sentence about each wait for Kafka before the block.
    """
    if not settings.gateway.shared_inputs:
        return nullcontext()
    from gateway.shared_inputs import SharedInputs
    from ingest.contract.shared_input import is_shared_input
    from ingest.state_follower import StateFollower

    state = StateFollower(settings.kafka, is_shared_input, held=is_shared_input)
    return SharedInputs(state, settings.gateway).following(stop, tell=say)


def _work_as_gateway(
    source: SettingsFile, metrics: GatewayMetrics, condition: _GatewayCondition, stop: threading.Event
) -> None:
    from deploy.stored_notifier import notify_stored
    from gateway.build import build_gateway
    from gateway.profiles.policy import make_policy
    from gateway.replies.receipts import make_receipts
    from ingest.lag.kafka_clock import watch_clock

    settings = source.settings
    service = build_gateway(
        mqtt=settings.mqtt,
        gateway=settings.gateway,
        routes=settings.routes,
        kafka=settings.kafka,
        metrics=metrics,
        policy=make_policy(settings.gateway, settings.routes, metrics=metrics),
        receipts=make_receipts(settings.receipts, settings.routes, settings.gateway, metrics),
        read_routes=source.new_routes,
    )
    condition.service = service
    with notify_stored(settings, metrics, stop, is_active=service.is_active):
        watch_clock(settings.kafka, metrics.clock_skew, stop)
        service.run(stop)


def run_stream(settings: Settings, *, log_dir: Path) -> None:
    """Run hop 3 until a signal asks to stop; Spark's own log goes to `log_dir`."""
    from deploy.local.artifacts import lake_jars
    from deploy.local.java import find_java
    from deploy.local.jmx import spark_flags
    from ingest.contract.topics import DEAD_LETTERS, LAND_GROUP, READINGS
    from ingest.groups.offset_mirror import OffsetMirror
    from ingest.kafka_login import java_flags
    from lakehouse.derived_tables import ALL_TABLES
    from lakehouse.jvm import JvmOptions
    from streaming.background_tasks import CHORE_NAMES
    from streaming.landing_progress import StreamState
    from streaming.service import run
    from streaming.start_landing import LAND

    configure_logging()
    stop = stop_on_signals()
    registry = CollectorRegistry()
    topics = (READINGS, DEAD_LETTERS)
    metrics = StreamMetrics(registry, query=LAND, tables=ALL_TABLES, topics=topics, chores=CHORE_NAMES)
    java = find_java()
    monitoring = settings.monitoring
    flags = (
        *java.gc_options,
        *spark_flags(monitoring.metrics_host, monitoring.spark_jmx_port),
        *java_flags(settings.kafka),
    )
    jars = lake_jars(settings.lake.root, settings.stream.checkpoint, progress=logger.info)
    jvm = JvmOptions(java.home, tuple(jars), log_dir, flags=flags)
    state = StreamState()
    mirror = OffsetMirror(settings.kafka, LAND_GROUP)
    with serve_metrics(
        registry, host=monitoring.metrics_host, port=monitoring.stream_port, part="stream", healthy=state.healthy
    ):
        try:
            run(settings.kafka, settings.stream, settings.lake, jvm, metrics, stop, state=state, mirror=mirror.mirror)
        finally:
            mirror.close()


def run_canary_process(settings: Settings) -> None:
    """Run the canary until a signal asks to stop."""
    from deploy.local.canary_probe import COLUMNS, DEVICE, Canary, run_canary
    from gateway.devtools.publisher import Publisher
    from lakehouse.table_follower import TableFollower

    configure_logging()
    stop = stop_on_signals()
    registry = CollectorRegistry()
    every = settings.embedded.canary_seconds
    canary = Canary(CanaryMetrics(registry), boot=int(time.time() * 1000), late_seconds=max(15.0, 5 * every))
    follower = TableFollower(settings.lake.root, "readings", columns=COLUMNS, device=DEVICE)
    mqtt = settings.mqtt.with_login("canary")
    publisher = Publisher(mqtt, client_id=DEVICE, acknowledged=canary.acknowledged, stop=stop)
    monitoring = settings.monitoring
    with serve_metrics(
        registry, host=monitoring.metrics_host, port=monitoring.canary_port, part="canary", healthy=canary.healthy
    ):
        run_canary(publisher, follower, canary, every_seconds=every, stop=stop)
    publisher.close()
