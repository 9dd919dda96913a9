"""Prometheus and Alertmanager of the embedded run: their programs on this machine, their files, and their start as parts.

Both are optional, because the page and its built-in alerts do not need them. Prometheus adds burn-rate alerts and three days of
history; Alertmanager groups alerts.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from deploy.settings import Settings
from deploy.settings_file import write_private
from ingest.contract.errors import UnavailableError
from monitoring.scrape import SILENT, healthz

__all__ = ["HINT", "WATCHERS", "Watcher", "find_watcher", "make_watchers", "watcher_obstacle"]

WatcherName = Literal["prometheus", "alertmanager"]

HINT: Final = "Burn-rate alerts need it. Run apt-get install prometheus prometheus-alertmanager."
HOST: Final = "127.0.0.1"
PROGRAMS: Final[Mapping[WatcherName, tuple[str, ...]]] = {
    "prometheus": ("prometheus",),
    "alertmanager": ("prometheus-alertmanager", "alertmanager"),
}
"""Names of each server's program, Debian's first."""
WATCHERS: Final[tuple[WatcherName, ...]] = ("prometheus", "alertmanager")
OLDEST: Final[Mapping[WatcherName, tuple[int, int]]] = {"prometheus": (2, 42), "alertmanager": (0, 22)}
"""The first versions that know `keep_firing_for` and matchers."""
FLAGS: Final[Mapping[WatcherName, tuple[str, ...]]] = {
    # The longest burn-rate window is three days; a laptop's disk must never fill.
    "prometheus": (
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        "--storage.tsdb.retention.time=3d",
        "--storage.tsdb.retention.size=512MB",
    ),
    # An empty cluster address: one of its kind needs no port to talk to others.
    "alertmanager": ("--config.file=alertmanager.yml", "--storage.path=data", "--cluster.listen-address="),
}


def find_watcher(name: WatcherName) -> Path | None:
    """The program of `prometheus` or `alertmanager`; None where this machine has none."""
    return next((Path(found) for program in PROGRAMS[name] if (found := shutil.which(program))), None)


def watcher_obstacle(name: WatcherName) -> str | None:
    """Why it cannot be started here, for people; None where it can."""
    program = find_watcher(name)
    if program is None:
        return f"{name} is not on PATH"
    version = _version(program)
    if version is not None and version < OLDEST[name]:
        wanted = ".".join(map(str, OLDEST[name]))
        return f"{program} is {'.'.join(map(str, version))}, but the alerts need {wanted}"
    return None


def _version(program: Path) -> tuple[int, int] | None:
    """Return the version that a program prints; None if it prints none: then it is tried."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=5.0, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"version (\d+)\.(\d+)", said.stdout + said.stderr)
    return (int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True)
class Watcher:
    """One of the two servers, on loopback; `folder` is its own, `files` are what it reads."""

    name: WatcherName
    folder: Path
    port: int
    files: Callable[[], Mapping[str, Any]]

    @property
    def url(self) -> str:
        """Address for people and for the monitor."""
        return f"http://{HOST}:{self.port}"

    def prepare(self) -> None:
        """Write its files, readable by this user only; to be called before each start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files().items():
            write_private(self.folder / name, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))

    def command(self) -> list[str]:
        """Command to start, after `prepare`. The life cycle and admin interfaces stay off, because nothing here uses them.

        Raises:
            UnavailableError: it was taken off this machine.
        """
        program = find_watcher(self.name)
        if program is None:
            message = f"{self.name} is no longer on this machine. Install it, or start with --no-prometheus."
            raise UnavailableError(message)
        listen = f"--web.listen-address={HOST}:{self.port}"
        return [str(program), *(_absolute(flag, self.folder) for flag in FLAGS[self.name]), listen, "--log.level=warn"]

    def ready(self) -> tuple[bool, str]:
        """Return whether it answers, and where."""
        healthy, words = healthz(f"{self.url}/-/ready")
        if healthy:
            return True, f"on {HOST}:{self.port}"
        return False, SILENT if words == SILENT else "reading its stored data"


def _absolute(flag: str, folder: Path) -> str:
    """Paths of flags lie in the server's own folder."""
    name, _, value = flag.partition("=")
    return f"{name}={folder / value}" if name.endswith((".path", ".file")) else flag


def make_watchers(settings: Settings, data: Path, ports: Mapping[str, int]) -> list[Watcher]:
    """Return the watchers that got a port."""
    files: Mapping[WatcherName, Callable[[], Mapping[str, Any]]] = {
        "prometheus": lambda: _prometheus_files(settings),
        "alertmanager": lambda: _alertmanager_files(settings),
    }
    return [Watcher(name, data / name, ports[name], files[name]) for name in WATCHERS if name in ports]


def _prometheus_files(settings: Settings) -> dict[str, Any]:
    from monitoring.alerts.rules import rule_file
    from monitoring.prometheus.scrape_config import scrape_config

    return {"prometheus.yml": scrape_config(settings.monitoring), "rules.yml": rule_file(settings.monitoring)}


def _alertmanager_files(settings: Settings) -> dict[str, Any]:
    from monitoring.alerts.alertmanager import alertmanager_config

    return {"alertmanager.yml": alertmanager_config(settings.monitoring)}
