"""Checks of `tidegate doctor`: this machine and, for a given configuration, the servers that it names."""

import socket
from collections.abc import Iterator
from pathlib import Path

from deploy.local.preflight import PreflightCheck, run_checks
from deploy.settings import Settings
from ingest.contract.errors import MissingRightError, TidegateError

__all__ = ["examine_setup"]


def examine_setup(settings: Settings, data: Path, *, servers: bool, timeout_seconds: float) -> Iterator[PreflightCheck]:
    """Every finding; with `servers` also whether broker and Kafka of the settings answer, and what the user may do there."""
    yield from run_checks(settings, data)
    if servers:
        yield _reachable("mqtt", settings.mqtt.host, settings.mqtt.port, timeout_seconds)
        brokers = list(_brokers(settings, timeout_seconds))
        yield from brokers
        if any(check.state == "ok" for check in brokers):
            yield from _streams(settings)


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


def _reachable(name: str, host: str, port: int, timeout_seconds: float) -> PreflightCheck:
    try:
        socket.create_connection((host, port), timeout_seconds).close()
    except OSError as error:
        cause = error.strerror or str(error)
        fix = f"Check that the server runs there and that [{name}] has the right address and port."
        return PreflightCheck(name, "fail", f"{host}:{port} does not answer ({cause})", fix)
    return PreflightCheck(name, "ok", f"{host}:{port} answers")
