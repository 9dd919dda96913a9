"""Checks of this machine: before a start, in under a second, and for `tidegate doctor`, also of the servers of the settings.

Each finding has a next step.
"""

import importlib.metadata
import importlib.util
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from deploy.local import artifacts
from deploy.local.budget import describe_memory_budget
from deploy.local.java import find_java
from deploy.local.prometheus_servers import HINT, WATCHERS, find_watcher, watcher_obstacle
from deploy.settings import Settings
from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import ConfigError, FatalError, MissingRightError, TidegateError, UnavailableError

__all__ = ["DISK_NEEDED_BYTES", "PACKAGES", "PreflightCheck", "examine_setup", "find_foreign_packages", "preflight"]

DISK_NEEDED_BYTES: Final = 2 * 1024**3
REFUSAL_SECONDS: Final = 0.5
PACKAGES: Final = ("gateway", "ingest", "streaming", "lakehouse", "monitoring", "deploy")
OURS: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class PreflightCheck:
    """One finding; `fix` is the next step if it is not ok."""

    name: str
    state: Literal["ok", "warn", "fail"]
    text: str
    fix: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the check as JSON-ready data."""
        return asdict(self)


def _run_checks(settings: Settings, data: Path, *, prometheus: bool = True) -> Iterator[PreflightCheck]:
    """Yield one finding per requirement of an embedded run; `prometheus`: also those of Prometheus."""
    yield from _spark_checks(settings, embedded=True)
    yield _disk(data)
    yield _broker(settings)
    if prometheus:
        yield _prometheus()


def _spark_checks(settings: Settings, *, embedded: bool) -> Iterator[PreflightCheck]:
    """Yield one finding per requirement of any run, also of the hops in production."""
    yield _packages()
    yield _tried("java", lambda: str(find_java()))
    yield _tried("jvm parts", _jars)
    yield _memory(settings, embedded=embedded)


def preflight(settings: Settings, data: Path, *, prometheus: bool = True) -> list[str]:
    """Return lines to show before the start.

    Raises:
        TidegateError: a requirement without which the run cannot start is missing.
    """
    lines = []
    for check in _run_checks(settings, data, prometheus=prometheus):
        if check.state == "fail":
            message = f"{check.text} {check.fix}".strip()
            raise UnavailableError(message) if check.name != "packages" else FatalError(message)
        warning = f" {check.fix}" if check.state == "warn" else ""
        lines.append(f"{check.name + ':':<11} {check.text}{'.' if warning else ''}{warning}")
    return lines


def examine_setup(settings: Settings, data: Path, *, servers: bool, timeout_seconds: float) -> Iterator[PreflightCheck]:
    """Yield every finding; with `servers` also those about broker and Kafka: they answer, the login works, its rights."""
    yield from _spark_checks(settings, embedded=False) if servers else _run_checks(settings, data)
    if servers:
        yield _broker_reachable(settings.mqtt, timeout_seconds)
        brokers = list(_brokers(settings, timeout_seconds))
        yield from brokers
        if any(check.state == "ok" for check in brokers):
            from deploy.local.kafka_rights import check_kafka

            yield from check_kafka(settings.kafka)
            yield from _streams(settings)


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


def _memory(settings: Settings, *, embedded: bool) -> PreflightCheck:
    fits, text = describe_memory_budget(settings, embedded=embedded)
    if fits:
        return PreflightCheck("memory", "ok", text)
    fix = f"Close other programs, or lower stream.driver_memory{' and embedded.kafka_heap' if embedded else ''}."
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


def find_foreign_packages(owners: Mapping[str, Sequence[str]] | None = None, root: Path = OURS) -> list[str]:
    """Return one sentence per package that is foreign or has a second owner."""
    found = [sentence for name in PACKAGES if (sentence := _elsewhere(name, root))]
    owners = importlib.metadata.packages_distributions() if owners is None else owners
    for name in PACKAGES:
        others = sorted(set(owners.get(name, [])) - {"tidegate"})
        if others:
            found.append(f"The package {name} is also installed by {', '.join(others)}.")
    return found


def _elsewhere(name: str, root: Path) -> str | None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return f"The package {name} is missing."
    if Path(spec.origin).resolve().parent.parent != root.resolve():
        return f"The package {name} comes from {Path(spec.origin).parent}, not from {root}."
    return None


def _brokers(settings: Settings, timeout_seconds: float) -> Iterator[PreflightCheck]:
    for server in settings.kafka.bootstrap_servers.split(","):
        host, _, port = server.strip().rpartition(":")
        yield _reachable("kafka", host or server, int(port) if port.isdecimal() else 9092, timeout_seconds)


def _streams(settings: Settings) -> Iterator[PreflightCheck]:
    """Check whether the Kafka user may use the topics of applied SQL streams, also after a crash."""
    from ingest.contract.topics import stream_topic
    from ingest.topics.describe import topic_names
    from ingest.topics.rights import check_stream_rights, topic_not_found
    from streaming.sql.applied_streams import load_applied

    try:
        names = [name for name, one in load_applied(settings.lake.root).items() if "topic" in one.shape.sinks]
        known = topic_names(settings.kafka) if names else []
    except TidegateError as error:
        yield PreflightCheck("streams", "fail", str(error))
        return
    for name in names:
        topic = stream_topic(name)
        try:
            if topic in known:
                check_stream_rights(settings.kafka, name)
                yield PreflightCheck("streams", "ok", f"{topic} is writable and readable")
            elif isinstance(hidden := topic_not_found(settings.kafka, topic, known), MissingRightError):
                yield PreflightCheck("streams", "fail", str(hidden))
        except TidegateError as error:
            yield PreflightCheck("streams", "fail", str(error))


def _broker_reachable(mqtt: MqttSettings, timeout_seconds: float) -> PreflightCheck:
    """Connect to the broker and, with TLS, do the handshake: it checks the broker's certificate and presents ours."""
    from gateway.mqtt.tls import client_context, tls_fault

    address = f"{mqtt.host}:{mqtt.port}"
    try:
        context = client_context(mqtt) if mqtt.tls else None
        with socket.create_connection((mqtt.host, mqtt.port), timeout_seconds) as plain:
            if context is not None:
                # TLS 1.3 refuses a client certificate behind the handshake; a broker says nothing else before CONNECT.
                with context.wrap_socket(plain, server_hostname=mqtt.host) as secure, suppress(TimeoutError):
                    secure.settimeout(REFUSAL_SECONDS)
                    secure.recv(1)
    except ConfigError as error:
        return PreflightCheck("mqtt", "fail", f"{error}.")
    except OSError as error:
        if why := tls_fault(error, presents_certificate=mqtt.cert_file is not None):
            return PreflightCheck("mqtt", "fail", f"{address} cannot be used with TLS: {why}.")
        return _silent("mqtt", address, error)
    return PreflightCheck("mqtt", "ok", f"{address} answers" + (" with TLS" if mqtt.tls else ""))


def _reachable(name: str, host: str, port: int, timeout_seconds: float) -> PreflightCheck:
    try:
        socket.create_connection((host, port), timeout_seconds).close()
    except OSError as error:
        return _silent(name, f"{host}:{port}", error)
    return PreflightCheck(name, "ok", f"{host}:{port} answers")


def _silent(name: str, address: str, error: OSError) -> PreflightCheck:
    fix = f"Check that the server runs there and that [{name}] has the right address and port."
    return PreflightCheck(name, "fail", f"{address} does not answer ({error.strerror or error})", fix)
