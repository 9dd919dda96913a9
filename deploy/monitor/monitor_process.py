"""The monitor's process: connects probes, look, alerts, snapshot and page, and ends within seconds of a signal.

It also reads two things from the local disk: the supervisor's state next to the settings file, and the newest versions of the
tables. A table's log may have a hundred thousand files, so it is listed once, and then only checked for the next version.
"""

import os
import shlex
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.command_line import CommandLine, command_name, commands_for_data
from deploy.local.runfile import read_run, read_state
from deploy.monitor.audit_finding import finding_file, state_folder
from deploy.monitor.audit_probe import AuditProbe
from deploy.monitor.fleet_probe import FleetProbe
from deploy.monitor.page_answers import make_page_api
from deploy.monitor.probes import NEEDED, is_flowing, make_probes
from deploy.monitor.prometheus_alerts import Burning, burning, is_ready
from deploy.monitor.silent_devices import HealthyFlowSpans
from deploy.process_signals import configure_logging, stop_on_signals
from deploy.processes import explain_bind_failure, version
from deploy.settings import Settings
from deploy.settings_reload import SettingsFile
from ingest.contract.errors import ConfigError, UnavailableError
from ingest.contract.topics import LAND_GROUP, READINGS
from lakehouse.paths import is_local, to_path
from monitoring.alerts.catalog import alerts as alerts_of
from monitoring.alerts.evaluate import Evaluator, used_metrics
from monitoring.exporter import CollectorRegistry
from monitoring.metrics.monitor import MonitorMetrics
from monitoring.metrics.process_metrics import build_info, process_metrics
from monitoring.monitoring_settings import MonitoringSettings, Part
from monitoring.page.app import make_page
from monitoring.page.page_tokens import exposure_fault, may_write
from monitoring.page.server import PageServer
from monitoring.page.snapshot_broadcaster import SnapshotBroadcaster
from monitoring.periodic_query import PeriodicQuery
from monitoring.probe import ProbeSet
from monitoring.sample_history import History
from monitoring.scrape_loop import ScrapeLoop, ScrapeTarget, scrape_self
from monitoring.service_notify import notify_service_manager
from monitoring.snapshot.build import METRICS, build_snapshot
from monitoring.snapshot.snapshot_inputs import KafkaNames, SnapshotInputs
from monitoring.snapshot.sums import finite
from monitoring.targets import JVMS, metrics_targets

__all__ = ["Monitor", "TablesOnDisk", "metrics_addresses", "read_supervised_parts", "run_monitor", "scrape_targets"]

OWN_JOB: Final = "tidegate-monitor"
ASK_SECONDS: Final = 5.0

STALE_SECONDS: Final = 10.0


class TablesOnDisk:
    """Tables under a local root and their newest versions. It finds none on an object store: each look would cost a request."""

    def __init__(self, root: str) -> None:
        self._root = to_path(root) if is_local(root) else None
        self._known: dict[Path, int] = {}

    def look(self) -> list[dict[str, Any]]:
        """Return name, version and committed_at (epoch seconds) of each table, sorted by name."""
        return sorted(self._tables(), key=lambda table: str(table["name"]))

    def _tables(self) -> Iterator[dict[str, Any]]:
        for log in self._root.glob("*/_delta_log") if self._root is not None else ():
            # A table may be dropped during the look.
            with suppress(OSError):
                if (version := self._version(log)) is not None:
                    at = _commit(log, version).stat().st_mtime
                    yield {"name": log.parent.name, "version": version, "committed_at": at}

    def _version(self, log: Path) -> int | None:
        version = self._known.get(log)
        if version is None or not _commit(log, version).exists():
            version = _newest(log)  # a new or recreated table
        while version is not None and _commit(log, version + 1).exists():
            version += 1
        if version is not None:
            self._known[log] = version
        return version


def _commit(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"


def _newest(log: Path) -> int | None:
    with os.scandir(log) as entries:
        names = [entry.name for entry in entries if len(entry.name) == 25 and entry.name.endswith(".json")]
    return max((int(name[:20]) for name in names if name[:20].isdigit()), default=None)


@dataclass(frozen=True, slots=True)
class SupervisedParts:
    """State from the supervisor: each part, and whether the whole run is ready."""

    parts: Mapping[str, Mapping[str, Any]]
    ready: bool


def read_supervised_parts(data: Path) -> SupervisedParts | None:
    """Return the supervisor's state; None if it wrote nothing lately, so that the parts' own answers count."""
    state = read_state(data)
    try:
        if time.time() - float(state.get("at", 0.0)) > STALE_SECONDS:
            return None
        return SupervisedParts(
            {str(name): dict(part) for name, part in state["parts"].items()}, bool(state.get("ready"))
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


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


def run_monitor(settings: Settings, config: Path) -> None:
    """Run until a signal asks to stop.

    Raises:
        ConfigError: the page would be open to the network without a login.
        UnavailableError: the page's port is taken.
    """
    if fault := exposure_fault(settings.monitoring):
        raise ConfigError(fault)
    configure_logging()
    stop = stop_on_signals()
    with Monitor(settings, config, stop) as monitor:
        look = monitor.look
        # The monitor waits for no server, so a restart helps whenever it is unhealthy.
        with notify_service_manager(look.healthy, lambda: look.healthy()[0]):
            look.run(stop)


class Monitor:
    """One monitor as a context manager: it serves and probes inside the context, and looks while `look.run` runs.

    Args:
        settings: the settings of the whole pipeline.
        config: the settings file; the state of an embedded run is next to it.
        stop: event that ends the monitor.
    """

    def __init__(self, settings: Settings, config: Path, stop: threading.Event) -> None:
        monitoring = settings.monitoring
        self._settings, self._data, self._stop = settings, config.absolute().parent, stop
        self._source = SettingsFile(config, settings)
        self._registry = CollectorRegistry()
        self._metrics = MonitorMetrics(self._registry)
        build_info(self._registry, version(), "monitor")
        process_metrics(self._registry)
        self._alerts = alerts_of(monitoring)
        wanted = used_metrics(self._alerts) | METRICS | NEEDED
        self._history, self._evaluator, self._board = History(wanted), Evaluator(self._alerts), SnapshotBroadcaster()
        self._flow = HealthyFlowSpans()
        self._fleet = FleetProbe(settings.lake.root, self._flow)
        keep = finding_file(state_folder(monitoring, config))
        self._audit = AuditProbe(config, monitoring.audit_seconds, keep=keep)
        probes = make_probes(settings, self._history, self._fleet, self._audit, data=self._data)
        self._probes = ProbeSet(probes, self._metrics)
        self._polls = _Polls(
            settings, burning(monitoring.prometheus_url, self._alerts) if monitoring.prometheus_url else None
        )
        self._started_at = time.time()
        self._line = _command_line(config)
        self._names = KafkaNames(readings=READINGS, group=LAND_GROUP)
        self._targets = {f"tidegate-{part}": ", ".join(urls) for part, urls in metrics_addresses(monitoring).items()}
        self.look = ScrapeLoop(
            scrape_targets(monitoring),
            self._history,
            own=(OWN_JOB, lambda: scrape_self(self._registry, wanted)),
            publish=self._publish,
            every_seconds=monitoring.look_seconds,
            news=self._states,
        )
        self._cleanup = ExitStack()
        self.port = 0

    def __enter__(self) -> "Monitor":
        monitoring = self._settings.monitoring
        page = make_page(
            monitoring,
            self._board,
            make_page_api(self._settings, self._stop, self._flow, newest=self._source.newest),
            registry=self._registry,
            metrics=self._metrics,
            healthy=self.look.healthy,
        )
        try:
            server = PageServer(page.app, host=monitoring.host, port=monitoring.page_port)
        except OSError as error:
            msg = explain_bind_failure(error, monitoring.host, monitoring.page_port, "the page", "page_port")
            raise UnavailableError(msg) from error
        self.port = server.port
        self._cleanup.callback(server.close)
        self._cleanup.callback(page.close)
        self._probes.start()
        self._cleanup.callback(self._probes.close)
        self._polls.start()
        self._cleanup.callback(self._polls.close)
        return self

    def __exit__(self, *_fault: object) -> None:
        self._stop.set()
        self._cleanup.close()

    def _states(self) -> dict[str, Any]:
        """Return the state of each part of an embedded run, so that a part that dies is shown at once."""
        run = read_supervised_parts(self._data)
        return {name: part.get("state") for name, part in run.parts.items()} if run else {}

    def _publish(self, now: float) -> None:
        self._probes.check()
        self._flow.note(now, is_flowing(self._history))
        states = [state.as_dict() for state in self._evaluator.step(self._history, now)]
        for state in ("pending", "firing"):
            self._metrics.alerts.labels(state).set(sum(each["state"] == state for each in states))
        snapshot = build_snapshot(self._history, self._side(states), self._names, self._settings.monitoring, now=now)
        self._board.publish(snapshot)

    def _side(self, states: Iterable[Mapping[str, Any]]) -> SnapshotInputs:
        prometheus_up, burns = self._polls.burning
        run = read_supervised_parts(self._data)
        return SnapshotInputs(
            version=version(),
            started_at=self._started_at,
            targets=self._targets,
            probes=self._probes.faults(),
            parts=run.parts if run else None,
            ready=run.ready if run else None,
            tables=self._polls.tables,
            devices=self._fleet.devices,
            audit=self._audit.newest,
            alerts=self._line.fill_alerts({**each, "value": finite(each["value"])} for each in [*burns, *states]),
            command=self._line.as_dict(),
            prometheus_up=prometheus_up,
            alertmanager_up=self._polls.alertmanager_up,
            redrive=may_write(self._settings.monitoring),
            disk_free_bytes=_free(self._settings.lake.root),
        )


class _Polls:
    """Polls with their own threads, besides the look."""

    def __init__(self, settings: Settings, ask_burning: Any) -> None:
        monitoring, tables = settings.monitoring, TablesOnDisk(settings.lake.root)
        self._tables: PeriodicQuery[list[dict[str, Any]]] = PeriodicQuery(
            "poll tables", monitoring.look_seconds, tables.look, default=[]
        )
        unknown: tuple[bool | None, list[dict[str, Any]]] = (None, [])
        down: Burning = (False, [])
        self._burning = (
            PeriodicQuery("poll prometheus", ASK_SECONDS, ask_burning, default=down) if ask_burning else None
        )
        url = monitoring.alertmanager_url
        self._alertmanager = (
            PeriodicQuery("poll alertmanager", ASK_SECONDS, is_ready(url), default=False) if url else None
        )
        self._unknown = unknown

    def _all(self) -> list[PeriodicQuery[Any]]:
        return [poll for poll in (self._tables, self._burning, self._alertmanager) if poll is not None]

    def start(self) -> None:
        for poll in self._all():
            poll.start()

    def close(self) -> None:
        for poll in self._all():
            poll.stop()
        for poll in self._all():
            poll.join(0.2)

    @property
    def tables(self) -> list[dict[str, Any]]:
        return self._tables.newest

    @property
    def burning(self) -> tuple[bool | None, list[dict[str, Any]]]:
        return self._unknown if self._burning is None else self._burning.newest

    @property
    def alertmanager_up(self) -> bool | None:
        return None if self._alertmanager is None else self._alertmanager.newest


def _command_line(config: Path) -> CommandLine:
    """Return the command line for this monitor's pipeline: the embedded run of its folder, or else its settings file."""
    run, file = read_run(config.absolute().parent), config.absolute()
    if run is not None and file.name in run.configs:
        return commands_for_data(file.parent)
    return CommandLine(command_name(), f"--config {shlex.quote(str(file))}")


def _free(root: str) -> float | None:
    """Return the free bytes of the disk with the tables, or with the folder where they will be."""
    if not is_local(root):
        return None
    folder = to_path(root).absolute()
    for place in (folder, *folder.parents):
        with suppress(OSError):
            return float(shutil.disk_usage(place).free)
    return None
