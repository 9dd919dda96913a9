"""What `tidegate doctor` examines: this machine and, for a given configuration, the servers that it names."""

import socket
from collections.abc import Iterator
from pathlib import Path

from deploy.local.preflight import Check, checks
from deploy.settings import Settings

__all__ = ["examine"]


def examine(settings: Settings, data: Path, *, servers: bool, timeout_seconds: float) -> Iterator[Check]:
    """Every finding; with `servers` also whether broker and Kafka of the settings answer."""
    yield from checks(settings, data)
    if servers:
        yield _reachable("mqtt", settings.mqtt.host, settings.mqtt.port, timeout_seconds)
        for server in settings.kafka.bootstrap_servers.split(","):
            host, _, port = server.strip().rpartition(":")
            yield _reachable("kafka", host or server, int(port) if port.isdecimal() else 9092, timeout_seconds)


def _reachable(name: str, host: str, port: int, timeout_seconds: float) -> Check:
    try:
        socket.create_connection((host, port), timeout_seconds).close()
    except OSError as error:
        cause = error.strerror or str(error)
        fix = f"Check that it runs there and that [{name}] names the right address and port."
        return Check(name, "fail", f"{host}:{port} does not answer ({cause})", fix)
    return Check(name, "ok", f"{host}:{port} answers")
