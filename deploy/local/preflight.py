"""The checks before a start: missing requirements are reported with their remedy before anything runs, in under a second."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from deploy.local import artifacts
from deploy.local.budget import describe_memory_budget
from deploy.local.java import find_java
from deploy.local.packages import find_foreign_packages
from deploy.local.prometheus_servers import HINT, WATCHERS, find_watcher, watcher_obstacle
from deploy.settings import Settings
from ingest.contract.errors import FatalError, TidegateError, UnavailableError

__all__ = ["PreflightCheck", "preflight", "run_checks"]

DISK_NEEDED_BYTES: Final = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class PreflightCheck:
    """One finding; `fix` says what to do where it is not ok."""

    name: str
    state: Literal["ok", "warn", "fail"]
    text: str
    fix: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the check as JSON-ready data."""
        return asdict(self)


def run_checks(settings: Settings, data: Path, *, prometheus: bool = True) -> Iterator[PreflightCheck]:
    """Everything that an embedded run needs, one finding at a time; `prometheus` where it is to be started."""
    yield _packages()
    yield _tried("java", lambda: str(find_java()))
    yield _tried("jvm parts", _jars)
    yield _memory(settings)
    yield _disk(data)
    yield _broker(settings)
    if prometheus:
        yield _prometheus()


def preflight(settings: Settings, data: Path, *, prometheus: bool = True) -> list[str]:
    """Lines to show before the start.

    Raises:
        TidegateError: something without which nothing can run.
    """
    lines = []
    for check in run_checks(settings, data, prometheus=prometheus):
        if check.state == "fail":
            message = f"{check.text} {check.fix}".strip()
            raise UnavailableError(message) if check.name != "packages" else FatalError(message)
        warning = f" {check.fix}" if check.state == "warn" else ""
        lines.append(f"{check.name + ':':<11} {check.text}{'.' if warning else ''}{warning}")
    return lines


def _tried(name: str, ask: Callable[[], str]) -> PreflightCheck:
    try:
        return PreflightCheck(name, "ok", ask())
    except TidegateError as error:
        return PreflightCheck(name, "fail", str(error))


def _packages() -> PreflightCheck:
    if found := find_foreign_packages():
        return PreflightCheck("packages", "fail", " ".join(found), "Use a separate Python environment for Tidegate.")
    return PreflightCheck("packages", "ok", "all six packages are Tidegate's")


def _jars() -> str:
    count = len(artifacts.spark_jars()) + len(artifacts.kafka_classpath())
    return f"{count} in {artifacts.cache_dir()}"


def _memory(settings: Settings) -> PreflightCheck:
    fits, text = describe_memory_budget(settings)
    if fits:
        return PreflightCheck("memory", "ok", text)
    fix = "Close other programs, or lower stream.driver_memory and embedded.kafka_heap."
    return PreflightCheck("memory", "warn", text, fix)


def _disk(data: Path) -> PreflightCheck:
    folder = next(parent for parent in (data, *data.parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    text = f"{free / 1024**3:.1f} GB free at {folder}"
    if free < DISK_NEEDED_BYTES:
        return PreflightCheck(
            "disk", "warn", text, "Kafka keeps up to 2 GB. Free some space, or name another folder with --data."
        )
    return PreflightCheck("disk", "ok", text)


def _broker(settings: Settings) -> PreflightCheck:
    from deploy.local.broker import choose_broker

    return _tried("broker", lambda: str(choose_broker(settings.embedded.broker)))


def _prometheus() -> PreflightCheck:
    """Check Prometheus, which is optional: the page and its threshold alerts work without it."""
    if obstacles := [why for name in WATCHERS if (why := watcher_obstacle(name))]:
        return PreflightCheck("prometheus", "warn", ", ".join(obstacles), HINT)
    return PreflightCheck("prometheus", "ok", ", ".join(str(find_watcher(name)) for name in WATCHERS))
