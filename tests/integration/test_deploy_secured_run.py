"""Kafka and mosquitto as `up --secure` starts them, on a folder that was plain before: who gets in, and what each part may do.

No other part runs.
"""

import json
import os
import secrets
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaError, Producer

from deploy.cli import run as run_command
from deploy.dlq.redrive import run_redrive
from deploy.local import artifacts
from deploy.local.broker import find_mosquitto
from deploy.local.broker_answer import connect_accepted
from deploy.local.broker_rights import find_plugin
from deploy.local.kafka import cluster_id
from deploy.local.part import PartSpec
from deploy.local.ports import PortClaims
from deploy.local.run_logins import load_logins
from deploy.local.run_plan import make_plan
from deploy.local.runfile import CREDENTIALS, DataLock, RunFile
from deploy.settings import Settings, load_settings
from deploy.testbed.server_process import ServerProcess
from gateway.gateway_settings import MqttSettings, RouteSettings
from gateway.mqtt.broker_probe import BrokerProbe
from ingest.contract.errors import MissingRightError
from ingest.contract.reading import REDRIVE_GATEWAY, decode_record
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, LAND_GROUP, READINGS
from ingest.gateway_state import read_state
from ingest.groups.offset_mirror import OffsetMirror, group_lag
from ingest.kafka_settings import KafkaSettings
from ingest.read.offset_range import read_range
from ingest.security import client_conf
from ingest.topics.offsets import end_offsets
from ingest.topics.scram_users import set_scram_users
from ingest.topics.setup import ensure_topics
from tests.support.dead_letters import Lake

Captured = pytest.CaptureFixture[str]
Wait = Callable[..., Any]
ROOT = Path(__file__).parents[2]
OFFSET = 11_300


class Secured:
    """A folder with one record in a plain Kafka, and then its servers in a secured run."""

    def __init__(self, data: Path, wait_until: Wait) -> None:
        self.data, self._wait, self._claims = data, wait_until, PortClaims(data.parent / "claims")
        self.processes: dict[str, ServerProcess] = {}
        (data / "tmp").mkdir(parents=True)
        self._lock = DataLock(data)

    def start(self) -> None:
        plain = self._plan(secure=False)
        self._start("kafka")
        assert ensure_topics(plain.kafka) == []
        assert send(plain.kafka, READINGS, b"plain") is None
        self.stop()
        self.settings = self._plan(secure=True)
        self._start("kafka")
        self._start("broker")
        self.steps = list(self.specs["topics"].command())
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            self.steps, capture_output=True, text=True, check=False, timeout=120, env=environment, cwd=self.data
        )
        assert done.returncode == 0, done.stderr

    def _plan(self, *, secure: bool) -> Settings:
        run, person = RunFile("run", 1, 0.0), load_settings(environ={})
        made = make_plan(
            person, self.data, run, self._claims, port_offset=OFFSET, fleet=False, prometheus=False, secure=secure
        )
        self.specs: dict[str, PartSpec] = {spec.name: spec for spec in made.specs}
        self.ports = run.ports
        return made.settings

    def _start(self, name: str) -> None:
        spec, process = self.specs[name], ServerProcess(self.data / f"{name}.log")
        process.spawn(list(spec.command()))
        self.processes[name] = process
        self._wait(lambda: spec.ready()[0] or not process.alive, seconds=120, what=name)
        assert process.alive, process.log()

    def of(self, part: str) -> Settings:
        """Return the settings that this part is started with."""
        return load_settings(self.data / f"config-{part}.toml", environ={})

    def stop(self) -> None:
        for process in self.processes.values():
            process.end(20)

    def close(self) -> None:
        self.stop()
        self._claims.release()
        self._lock.release()


def send(settings: KafkaSettings, topic: str, value: bytes) -> KafkaError | None:
    """Send a record to the first partition; return Kafka's refusal."""
    found: list[KafkaError | None] = []
    producer = Producer(client_conf(settings, client_id="test") | {"log_level": 2})
    producer.produce(topic, value, b"key", 0, on_delivery=lambda error, _record: found.append(error))
    assert producer.flush(30) == 0
    return found[0]


def read(settings: KafkaSettings, count: int) -> list[bytes | None]:
    return [one.value for batch in read_range(settings, READINGS, {0: 0}, {0: count}) for one in batch]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, wait_until: Wait) -> Iterator[Secured]:
    executable = find_mosquitto()
    if executable is None or find_plugin(executable) is None:
        pytest.skip("mosquitto with its plugin is not on this machine")
    artifacts.fetch_jars("kafka", lambda text: None)
    made = Secured(tmp_path_factory.mktemp("secured") / "da ta", wait_until)
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_the_gateway_writes_and_cannot_read_readings(secured: Secured) -> None:
    kafka = secured.of("gateway").kafka
    for topic in (READINGS, GATEWAY_STATE):
        assert send(kafka, topic, b"of the gateway") is None
    assert read_state(kafka) == [("key", b"of the gateway")]
    with pytest.raises(MissingRightError, match=r"user gateway may not read topic telemetry\.readings"):
        read(kafka, 1)
    with pytest.raises(MissingRightError, match="user gateway may not set passwords of users: grant it ALTER on the"):
        set_scram_users(kafka, {"operator": "of the gateway"})


def test_the_stream_reads_what_the_plain_folder_had_and_cannot_write(secured: Secured) -> None:
    kafka = secured.of("stream").kafka
    assert read(kafka, 1) == [b"plain"]
    refusal = send(kafka, READINGS, b"of the stream")
    assert refusal is not None and refusal.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    mirror = OffsetMirror(kafka, LAND_GROUP)
    mirror.mirror({READINGS: {0: 1}})
    assert mirror.drain(60)
    mirror.close()
    assert group_lag(secured.of("monitor").kafka, LAND_GROUP, [READINGS])[READINGS][0][0] == 1


def test_the_monitor_redrives_and_writes_nothing_else(secured: Secured, tmp_path: Path) -> None:
    lake, settings = Lake(tmp_path / "tables"), secured.of("monitor")
    lake.receive("site/attic/t", b"21.5")
    tables = {"lake": settings.lake.model_copy(update={"root": lake.root})}
    settings = settings.model_copy(
        update={**tables, "routes": (RouteSettings(filter="site/{device}/{metric}", device="{device}"),)}
    )
    whole = {"where": None, "limit": None, "again": False, "rate": 1e3, "dry_run": False, "stop": threading.Event()}
    report = run_redrive(settings, **whole)  # type: ignore[arg-type]
    assert (report.accepted, report.readings) == (1, 1)
    ends = end_offsets(settings.kafka, READINGS)
    batches = read_range(settings.kafka, READINGS, dict.fromkeys(ends, 0), ends)
    # The other records of this file are no readings.
    found = [decode_record(one.value) for batch in batches for one in batch if one.value and b"attic" in one.value]
    assert [(one.device, one.gateway, one.epoch) for one in found] == [("attic", REDRIVE_GATEWAY, report.run)]
    for topic in (DEAD_LETTERS, GATEWAY_STATE):
        refusal = send(settings.kafka, topic, b"of the monitor")
        assert refusal is not None and refusal.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, topic


def test_a_client_without_the_authority_or_a_login_does_not_get_in(secured: Secured) -> None:
    user = secured.settings.mqtt.with_login("devices")
    assert user.username is not None and user.password is not None
    address = {"host": "127.0.0.1", "port": user.port, "level": 4, "name": user.username, "timeout": 5.0}
    secret, trusting = user.password.get_secret_value(), ssl.create_default_context(cafile=user.ca_file)

    def accepted(password: str, context: ssl.SSLContext | None) -> bool:
        return connect_accepted(**address, password=password, context=context)  # type: ignore[arg-type]

    assert accepted(secret, trusting)
    assert not accepted(secret, None), "the broker speaks TLS only"
    assert not accepted(secret, ssl.create_default_context()), "this client does not know the authority"
    assert not accepted("wrong", trusting)

    for port in (secured.ports["kafka"], secured.ports["kafka_internal"]):
        with socket.create_connection(("127.0.0.1", port), 5) as plain, pytest.raises((OSError, ValueError)):
            cluster_id(plain)
        with socket.create_connection(("127.0.0.1", port), 5) as plain, pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(plain, server_hostname="127.0.0.1")
        with socket.create_connection(("127.0.0.1", port), 5) as plain, pytest.raises(OSError):
            # No login on one listener, no certificate on the other: Kafka ends the connection at the first request.
            cluster_id(trusting.wrap_socket(plain, server_hostname="127.0.0.1"))


def test_no_command_line_and_no_environment_has_a_password(secured: Secured) -> None:
    logins = load_logins(secured.data / CREDENTIALS, MqttSettings(), has_session=True, secure=True)
    known = {*logins.passwords.values(), *logins.kafka.values(), logins.client_id}
    assert len(known) == 10
    words = list(secured.steps)
    for process in secured.processes.values():
        assert process.pid is not None
        running = psutil.Process(process.pid)
        words += [*running.cmdline(), *running.environ().values()]
    assert [secret for secret in known if any(secret in word for word in words)] == []
    logs = [file for file in secured.data.rglob("*.log*") if file.is_file()]
    assert logs and not [secret for secret in known for file in logs if secret in file.read_text("utf-8", "replace")]
    open_to_others = [file for file in secured.data.glob("*.toml") if file.stat().st_mode & 0o077]
    assert open_to_others == []


def test_commands_find_their_login_and_the_administrators_file_sees_exact_rights(
    secured: Secured, capsys: Captured, tmp_path: Path
) -> None:
    def asked(*command: str, code: int = 0) -> Any:
        assert run_command([*command, "--json"]) == code, (command, capsys.readouterr().err)
        return json.loads(capsys.readouterr().out)

    run, admin = ("--data", str(secured.data)), ("--config", str(secured.data / "config-admin.toml"))
    lines = tmp_path / "lines"
    lines.write_text("of the administrator\n")
    assert READINGS in [one["topic"] for one in asked("topics", "ls", *run)]
    asked("topics", "describe", READINGS, *run)
    assert isinstance(asked("groups", "ls", *run), list)
    assert run_command(["tail", READINGS, "-o", "beginning", "-e", "--json", *run]) == 0
    assert "plain" in capsys.readouterr().out

    assert run_command(["topics", "create", "plans", *run]) == 69
    assert "The Kafka user operator may not create topic plans" in capsys.readouterr().err
    asked("topics", "create", "plans", *admin)
    asked("produce", "plans", "--lines", str(lines), *admin)
    assert run_command(["produce", "plans", "--lines", str(lines), *run]) == 69
    assert "user operator may not see it" in capsys.readouterr().err

    found = run_command(["doctor", "--config", str(secured.data / "config.toml"), "--json"])
    checks = {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert found in (0, 1)
    assert checks["kafka login"]["text"] == "the Kafka user operator is logged in (SCRAM-SHA-512, SASL_SSL)"
    assert (checks["mqtt"]["state"], checks["kafka rights"]["state"]) == ("ok", "ok")
    assert checks["mqtt"]["text"].endswith("answers with TLS")

    wanted = {"gateway": ["gateway"], "stream": ["stream"], "monitor": ["reader", "redrive"], "operator": ["operator"]}
    for user, roles in wanted.items():
        flags = [word for role in roles for word in ("--role", role)]
        state = asked("topics", "acl", "--principal", f"User:{user}", *flags, *admin)
        assert (state["missing"], state["surplus"]) == ([], []), user


def test_the_monitor_sees_the_broker_over_tls(secured: Secured, wait_until: Wait) -> None:
    probe = BrokerProbe(secured.of("monitor").mqtt.with_login("monitor"), f"test-{secrets.token_hex(6)}")
    try:
        wait_until(lambda: probe.look().get("tidegate_broker_reachable") == [((), 1.0)], what="the broker")
    finally:
        probe.close()
