"""The pipeline as in production: three brokers that want a password and rights, a mosquitto that wants a password and a
certificate, a gateway and a stream with secrets in files, a fleet under load.

`from tests.support.secured_pipeline import SecuredPipeline`.
"""

import logging
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from deltalake import DeltaTable

from deploy.balance_audit import AuditBounds, AuditReport, audit
from deploy.certificates.folder import init_folder, issue_leaves
from deploy.certificates.issue import LeafRequest
from deploy.chaos.numbered_load import NumberedLoad
from deploy.chaos.run import KafkaReader
from deploy.chaos.testbed import ROOT, ChaosTestbed
from deploy.chaos.verdict import DeliveryVerdict, MessageKey, RecordedMessages, judge
from deploy.local.broker import Mosquitto
from deploy.local.ports import choose_port
from deploy.settings import Settings
from deploy.settings_file import to_toml, write_private
from deploy.testbed.cluster import KafkaCluster, open_cluster
from deploy.testbed.node import KafkaNode
from deploy.testbed.server_process import ServerProcess, SingleServer
from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import RetryableError
from ingest.topics.acl import apply_acls, plan_acls
from ingest.topics.admin import admin_client
from ingest.topics.roles import Role
from ingest.topics.setup import ensure_topics
from tests.support.servers import set_scram_password

logger = logging.getLogger("tidegate.test")

NOW = datetime.now(UTC)
BROKERS = 3
NAME = "gw-secured"
ACKNOWLEDGED, INFLIGHT = "tidegate_gateway_messages_acknowledged_total", "tidegate_gateway_inflight_messages"
CONNECTIONS = "tidegate_gateway_connections_total"


class CertifiedMosquitto(Mosquitto):
    """A broker that demands a certificate of its authority, and a user with a password."""

    def __init__(self, folder: Path, port: int, pki: Path, users: dict[str, str]) -> None:
        super().__init__(folder, port, users=users)
        self._pki = pki

    def set_password(self, user: str, password: str) -> None:
        """Write the file that it reads at SIGHUP."""
        self._users[user] = password
        self.prepare()

    def _entrance(self) -> list[str]:
        server = self._pki / "server-127.0.0.1.pem"
        return [
            f"listener {self.port} {self.host}", f"certfile {server}", f"keyfile {server}",
            f"cafile {self._pki / 'ca.pem'}", "require_certificate true",
            "allow_anonymous false", f"password_file {self.folder}/passwords",
        ]  # fmt: skip

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._pki / "ca.pem")
        context.load_cert_chain(self._pki / "client-fleet.pem")
        return context


class SecuredPipeline:
    """All servers and processes."""

    def __init__(self, folder: Path, cluster: KafkaCluster) -> None:
        self.folder, self.cluster = folder, cluster
        self.pki, self.kafka_pki = folder / "pki", cluster.folder / "certificates"
        clients = [LeafRequest.client(name, days=30) for name in ("gateway", "fleet")]
        init_folder(self.pki, [LeafRequest.server("127.0.0.1", days=30), *clients], authority_days=90, now=NOW)
        issue_leaves(self.kafka_pki, clients[:1], now=NOW)
        self.passwords = {
            "gateway": "first-gateway-secret",
            "stream": "first-stream-secret",
            "mqtt": "first-mqtt-secret",
        }
        for name in self.passwords:
            self.write_secret(name, self.passwords[name])
        self.admin = cluster.settings.model_copy(update={"partitions": 3})
        _patiently(lambda: ensure_topics(self.admin))
        for user, role in (("gateway", Role.GATEWAY), ("stream", Role.STREAM)):
            self.set_kafka_password(user)
            _patiently(lambda user=user, role=role: self._grant(f"User:{user}", role))
        self.reader = KafkaReader(self.admin, NAME)
        self._client = admin_client(self.admin)
        self._keys: set[MessageKey] = set()
        self._seen = 0
        self._opened = ExitStack()
        try:
            self._start()
        except BaseException:
            self._opened.close()
            raise

    def _start(self) -> None:
        users = {"fleet": "fleet-secret", "gateway": self.passwords["mqtt"]}
        self.broker_part = CertifiedMosquitto(self.folder / "broker", choose_port(0)[0], self.pki, users)
        self.broker = SingleServer(self.broker_part, self.folder / "broker.log")
        self._opened.callback(self.broker.kill)
        node = self.cluster.nodes[0]
        stage = ChaosTestbed(self.folder, self.broker, node, username="gateway", password=self._reference("mqtt"))
        self._opened.callback(stage.close)
        own = self.kafka_pki / "client-gateway.pem"
        certificate = {"ssl_certificate_file": str(own), "ssl_key_file": str(own)}
        self.gateway = stage.gateway(
            stage.settings(
                NAME,
                mqtt=self._mqtt_tls("gateway"),
                gateway={"conflicts": "reject"},
                kafka=self._kafka("gateway") | certificate,
            )
        )
        self.gateway.start()
        self.stream = ServerProcess(self.folder / "stream.log", environment={"PYTHONPATH": str(ROOT)})
        self._opened.callback(self.stream.end, 20.0)
        self.root = self.folder / "tables"
        self.start_stream()
        fleet = {"port": self.broker_part.port, "username": "fleet", "password": "fleet-secret"}
        self.load = NumberedLoad(
            MqttSettings.model_validate(fleet | self._mqtt_tls("fleet")),
            name="fleet",
            devices=20,
            boot=int(time.time()),
        )
        self._opened.callback(self.load.close)
        self.wait(self.gateway.healthy, "the gateway")

    def _mqtt_tls(self, name: str) -> dict[str, Any]:
        file = str(self.pki / f"client-{name}.pem")
        return {"tls": True, "ca_file": str(self.pki / "ca.pem"), "cert_file": file, "key_file": file}

    def _kafka(self, user: str) -> dict[str, Any]:
        login = {"sasl_username": user, "sasl_password": self._reference(user)}
        return self.admin.model_dump() | login

    def _reference(self, name: str) -> str:
        return f"file:{self.folder / name}.secret"

    def write_secret(self, name: str, text: str) -> None:
        """What an operator, or a tool that keeps secrets, writes."""
        write_private(self.folder / f"{name}.secret", f"{text}\n")

    def set_kafka_password(self, user: str) -> None:
        """Give the user the password that `passwords` has for it."""
        _patiently(lambda: set_scram_password(self.admin, user, self.passwords[user]))

    def _grant(self, principal: str, role: Role) -> None:
        apply_acls(self.admin, principal, add=plan_acls(self.admin, principal, [role]).missing)

    def start_stream(self) -> None:
        settings = Settings.model_validate(
            {
                "kafka": self._kafka("stream"),
                "stream": {"checkpoint": str(self.folder / "checkpoint"), "warm_up": False},
                "lake": {"root": str(self.root)},
                "monitoring": {"stream_port": 0},
            }
        )
        config = self.folder / "stream.toml"
        write_private(config, to_toml(settings))
        logs = str(self.folder / "spark-logs")
        self.stream.spawn([sys.executable, "-m", "deploy.cli", "stream", "--config", str(config), "--log-dir", logs])

    def wait(self, condition: Callable[[], Any], what: str, *, seconds: float = 300.0) -> None:
        """Wait until it is true. Each look costs the machine something: the processes under test need it more."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"{what} did not come true within {seconds:g} s. Gateway: {self.gateway.log()[-2000:]}")
            time.sleep(0.25)

    # Looks.

    def acknowledged(self) -> float:
        """PUBACKs that this gateway process sent."""
        return self.gateway.metric(ACKNOWLEDGED)

    def in_kafka(self) -> int:
        """Messages of the gateway with a record in Kafka, each counted once."""
        return len({(one.epoch, one.number) for _, one in self.look().readings})

    def look(self) -> RecordedMessages:
        """What is in Kafka, as far as Kafka answers."""
        with suppress(RetryableError):
            self.reader.look()
        return self.reader.landed

    def _has(self, wanted: set[MessageKey]) -> bool:
        landed = self.look()
        self._keys |= landed.keys(self._seen)
        self._seen = len(landed.readings)
        return wanted <= self._keys

    def in_sync(self) -> bool:
        """Whether each partition has all of its copies in sync: the next node may go."""
        return self._partitions(lambda one: len(one.isrs) == BROKERS)

    def _partitions(self, right: Callable[[Any], bool]) -> bool:
        with suppress(Exception):
            topics = self._client.list_topics(timeout=5).topics.values()
            return all(right(one) for topic in topics for one in topic.partitions.values())
        return False

    def flows(self) -> None:
        """Messages are acknowledged now, and not only those that waited."""
        before, sent = self.acknowledged(), len(self.load.sent)
        self.wait(
            lambda: self.acknowledged() - before > 200 and len(self.load.sent) - sent > 200,
            "messages to flow",
        )

    def lands(self) -> None:
        """The stream adds rows now; the first time it may still start."""
        before = self._rows_version()
        self.wait(lambda: self._rows_version() > before, "rows in the table", seconds=900.0)

    def _rows_version(self) -> int:
        place = str(self.root / "readings")
        return DeltaTable(place).version() if DeltaTable.is_deltatable(place) else 0

    def back(self, *nodes: KafkaNode) -> None:
        """Start these nodes again at once, and wait until the cluster has all copies."""
        for node in nodes:
            node.spawn()
        self.cluster.wait_ready(seconds=600.0)
        self.wait(self.in_sync, "all copies in sync")

    def settled(self) -> DeliveryVerdict:
        """The verdict, once everything that the fleet sent is in Kafka and counted."""
        assert self.load.finish(seconds=120), "the fleet has no PUBACK for some messages"
        wanted = set(self.load.sent)
        self.wait(lambda: self._has(wanted), "all messages in Kafka")
        self.wait(lambda: not self.verdict().unexplained, "the last counts")
        self.wait(lambda: not self.gateway.metric(INFLIGHT), "the last PUBACK")
        verdict = self.verdict()
        assert verdict.whole, (verdict, self.gateway.log()[-2000:])
        assert (verdict.stored, verdict.dead_lettered) == (len(wanted), 0)
        assert "Traceback" not in self.gateway.log(), self.gateway.log()
        assert self.stream.alive, self.stream.log()[-2000:]
        return verdict

    def verdict(self) -> DeliveryVerdict:
        """What is in Kafka now, against what the fleet sent."""
        return judge(self.load.sent, self.load.acknowledged, self.look())

    def longest_gap(self, since: float) -> float:
        """Seconds, by Kafka's clock, in which no record of the gateway was appended."""
        times = sorted(record.timestamp_ms / 1000 for record, _ in self.look().readings)
        times = [since, *(at for at in times if at >= since)]
        return max((later - at for at, later in pairwise(times)), default=0.0)

    def note(self, what: str, since: float) -> None:
        """Log the longest gap for people: a test asserts no time."""
        logger.info("%s: longest gap %.2f s, %d messages sent", what, self.longest_gap(since), len(self.load.sent))

    def audit(self) -> AuditReport:
        """Compare what the gateway counted with the rows of the tables, once the stream has landed all of it."""
        bounds = AuditBounds.of(self.gateway.settings)
        return audit(self.admin, str(self.root), None, bounds=bounds, wait_seconds=900.0)

    def change_mqtt_password(self, password: str) -> None:
        """By the steps of OPERATORS.md. At SIGHUP mosquitto reads passwords and its certificate, and cuts who has another one."""
        before = self.gateway.metric(CONNECTIONS)
        self.write_secret("mqtt", password)
        self.broker_part.set_password("gateway", password)
        self.broker.signal(signal.SIGHUP)
        self.wait(lambda: self.gateway.metric(CONNECTIONS) > before, "a new connection")

    def close(self) -> None:
        self._opened.close()


def serves(port: int, file: Path) -> bool:
    """Whether the server shows the certificate of this file."""
    with suppress(OSError):
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=10).strip() in file.read_text()
    return False


def _patiently(ask: Callable[[], object], seconds: float = 300.0) -> None:
    """Ask again where Kafka does not answer in time: a busy machine is no failure."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            ask()
        except (RetryableError, KafkaException):
            if time.monotonic() > deadline:
                raise
        else:
            return


def ending_in(seconds: float) -> datetime:
    """The time at which a certificate of one day is to be signed, so that it ends then."""
    return datetime.now(UTC) - timedelta(days=1) + timedelta(seconds=seconds)


@contextmanager
def secured_pipeline(folder: Path) -> Iterator[SecuredPipeline]:
    """All of it, ready while the block runs."""
    properties: dict[str, str | int] = {"listener.name.client.ssl.client.auth": "requested"}
    bed = folder / "kafka"
    with open_cluster(bed, brokers=BROKERS, security="sasl_ssl", jmx=False, properties=properties) as cluster:
        pipeline = SecuredPipeline(folder, cluster)
        try:
            yield pipeline
        finally:
            pipeline.close()
