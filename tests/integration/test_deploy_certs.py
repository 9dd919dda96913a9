"""Files of `tidegate certs` in real servers: mosquitto and Kafka accept them, also while the authority is replaced."""

import os
import pwd
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.certificates.folder import (
    drop_old_authorities,
    init_folder,
    issue_leaves,
    revoke_leaves,
    rotate_authority,
    rotate_leaves,
)
from deploy.certificates.issue import LeafRequest, create_authority, sign_leaf
from deploy.local.broker import find_mosquitto
from deploy.local.ports import choose_port
from deploy.testbed.cluster import KafkaCluster, open_cluster
from ingest.producer import KafkaWriter
from ingest.security import client_conf

NOW = datetime.now(UTC)
AUTHORIZED, NOT_AUTHORIZED = {0x00, 0x10}, {0x87}


def text(value: str) -> bytes:
    return len(value).to_bytes(2) + value.encode()


def packet(kind: int, body: bytes) -> bytes:
    assert len(body) < 128
    return bytes([kind, len(body)]) + body


class Device:
    """A client of MQTT 5 that shows a certificate."""

    def __init__(self, port: int, bundle: Path, certificate: Path | None) -> None:
        context = ssl.create_default_context(cafile=str(bundle))
        if certificate is not None:
            context.load_cert_chain(certificate)
        plain = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        connect = text("MQTT") + b"\x05\x02\x00\x3c\x00" + text("")  # the broker chooses an id
        assert self._ask(packet(0x10, connect))[:2] == b"\x00\x00", "accepted"

    def publish(self, topic: str) -> int:
        """The reason of the PUBACK."""
        answer = self._ask(packet(0x32, text(topic) + b"\x00\x01\x00" + b"21.5"))
        return answer[2] if len(answer) > 2 else 0

    def _ask(self, data: bytes) -> bytes:
        self._socket.sendall(data)
        head = self._read(2)
        return self._read(head[1])

    def _read(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            piece = self._socket.recv(count - len(got))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            got += piece
        return got

    def close(self) -> None:
        self._socket.close()


class Broker:
    """A mosquitto that demands a certificate and takes its subject as the user."""

    def __init__(self, folder: Path, pki: Path, wait_until: Any) -> None:
        self._folder, self._wait = folder, wait_until
        self.port, _ = choose_port(0)
        (folder / "acl").write_text("pattern readwrite tidegate/v1/%u/#\n")
        server = pki / "server-127.0.0.1.pem"
        user = f"user {pwd.getpwuid(0).pw_name}\n" if os.geteuid() == 0 else ""
        (folder / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\ncafile {pki}/ca.pem\ncertfile {server}\nkeyfile {server}\n"
            f"require_certificate true\nuse_identity_as_username true\nallow_anonymous false\nacl_file {folder}/acl\n{user}"
        )
        self.start()

    def read_list(self, file: Path) -> None:
        """Refuse the certificates on this list from the next start on."""
        with (self._folder / "mosquitto.conf").open("a") as configuration:
            configuration.write(f"crlfile {file}\n")

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            command = [str(find_mosquitto()), "-v", "-c", str(self._folder / "mosquitto.conf")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._wait(lambda: _listens(self.port), seconds=30, what="mosquitto's port")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def hang_up(self) -> None:
        self._process.send_signal(signal.SIGHUP)

    def accepts(self, trusted: Path, certificate: Path | None) -> bool:
        try:
            Device(self.port, trusted, certificate).close()
        except (ssl.SSLError, ConnectionError):
            return False
        return True


@pytest.fixture
def broker(tmp_path: Path, wait_until: Any) -> Iterator[Broker]:
    """With its certificates in `pki`."""
    requests = [LeafRequest.server("127.0.0.1", days=30), LeafRequest.client("sim-01", days=30)]
    init_folder(tmp_path / "pki", requests, authority_days=90, now=NOW)
    made = Broker(tmp_path, tmp_path / "pki", wait_until)
    yield made
    made.stop()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not on this machine")
def test_mosquitto_knows_clients_by_their_certificates(broker: Broker, tmp_path: Path) -> None:
    bundle, own, other = tmp_path / "pki" / "ca.pem", tmp_path / "pki" / "client-sim-01.pem", tmp_path / "other"
    init_folder(other, [LeafRequest.client("sim-01", days=30)], authority_days=90, now=NOW)
    device = Device(broker.port, bundle, own)
    assert device.publish("tidegate/v1/sim-01/temperature") in AUTHORIZED
    assert device.publish("tidegate/v1/sim-02/temperature") in NOT_AUTHORIZED
    device.close()
    assert not broker.accepts(bundle, None) and not broker.accepts(bundle, other / "client-sim-01.pem")
    assert not broker.accepts(other / "ca.pem", own)


@pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not on this machine")
def test_mosquitto_follows_a_new_authority_by_the_steps_of_the_page(
    broker: Broker, tmp_path: Path, wait_until: Any
) -> None:
    """It loads its own certificate on SIGHUP, but the bundle only at a restart."""
    pki = tmp_path / "pki"
    bundle, own = pki / "ca.pem", pki / "client-sim-01.pem"
    old_bundle, old = tmp_path / "old-bundle.pem", tmp_path / "old.pem"
    old_bundle.write_bytes(bundle.read_bytes())
    old.write_bytes(own.read_bytes())

    rotate_authority(pki, days=90, now=NOW)
    broker.restart()
    assert broker.accepts(old_bundle, old) and broker.accepts(bundle, old)

    rotate_leaves(pki, days=None, now=NOW)
    assert broker.accepts(old_bundle, own), "it shows its former certificate, and knows both authorities"
    device = Device(broker.port, bundle, own)
    broker.hang_up()
    wait_until(lambda: not broker.accepts(old_bundle, own), seconds=30, what="the new certificate of the broker")
    assert broker.accepts(bundle, old) and broker.accepts(bundle, own)
    assert device.publish("tidegate/v1/sim-01/temperature") in AUTHORIZED, "a connection outlives it"
    device.close()

    drop_old_authorities(pki)
    broker.restart()
    assert broker.accepts(bundle, own) and not broker.accepts(bundle, old)


@pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not on this machine")
def test_mosquitto_refuses_a_device_whose_certificate_is_revoked(
    broker: Broker, tmp_path: Path, wait_until: Any
) -> None:
    """By the steps of OPERATORS.md: it reads the list at its start and at SIGHUP. Only a restart ends a connection of before."""
    pki, bundle = tmp_path / "pki", tmp_path / "pki" / "ca.pem"
    stolen = pki / "client-sim-01.pem"
    (other,) = issue_leaves(pki, [LeafRequest.client("sim-02", days=30)], now=NOW)
    device = Device(broker.port, bundle, stolen)
    revoke_leaves(pki, ["sim-01"], (), now=NOW)
    broker.read_list(pki / "crl.pem")
    broker.restart()
    with pytest.raises(OSError):
        device.publish("tidegate/v1/sim-01/temperature")
    assert not broker.accepts(bundle, stolen) and broker.accepts(bundle, other)

    connected = Device(broker.port, bundle, other)
    revoke_leaves(pki, ["sim-02"], (), now=NOW)
    broker.hang_up()
    wait_until(lambda: not broker.accepts(bundle, other), seconds=30, what="the later list at the broker")
    assert connected.publish("tidegate/v1/sim-02/temperature") in AUTHORIZED, "a connection outlives it"

    # A new authority does not shut the others out.
    rotate_authority(pki, days=90, now=NOW)
    broker.restart()
    with pytest.raises(OSError):
        connected.publish("tidegate/v1/sim-02/temperature")
    assert not broker.accepts(bundle, other) and not broker.accepts(bundle, stolen)
    (new,) = issue_leaves(pki, [LeafRequest.client("sim-03", days=30)], now=NOW)
    assert broker.accepts(bundle, new)


def admin(cluster: KafkaCluster, bundle: Path, certificate: Path | None) -> AdminClient:
    shown = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(certificate)} if certificate else {}
    return AdminClient(client_conf(cluster.settings, client_id="t") | {"ssl.ca.location": str(bundle)} | shown)


def accepted(cluster: KafkaCluster, bundle: Path, certificate: Path | None) -> bool:
    try:
        return bool(admin(cluster, bundle, certificate).list_topics(timeout=10).brokers)
    except KafkaException:
        return False


def test_kafka_accepts_clients_of_its_authority_only(tmp_path: Path) -> None:
    # Of the same name: the client does not show a certificate whose issuer the server does not name.
    stranger = create_authority("Tidegate test bed", now=NOW, days=90)
    foreign, other = tmp_path / "foreign.pem", tmp_path / "other.pem"
    foreign.write_text(sign_leaf(stranger, LeafRequest.client("gateway", days=30), now=NOW).pem)
    other.write_text(stranger.certificate_pem)
    wanted = {"listener.name.client.ssl.client.auth": "requested"}
    with open_cluster(tmp_path / "bed", brokers=1, security="ssl", properties=wanted) as cluster:
        folder = tmp_path / "bed" / "certificates"
        own, old = issue_leaves(
            folder,
            [LeafRequest.client("gateway", days=30), LeafRequest.client("old", days=30, key_kind="rsa")],
            now=NOW,
        )
        for certificate in (own, old, None):
            assert accepted(cluster, folder / "ca.pem", certificate)
        assert not accepted(cluster, folder / "ca.pem", foreign)
        assert not accepted(cluster, other, own)


@pytest.mark.chaos
def test_kafka_writes_on_while_its_authority_is_replaced_node_by_node(
    tmp_path: Path, unique_name: str, wait_until: Any
) -> None:
    """Two steps of OPERATORS.md: each node restarts with the new files while the others still have the former ones."""
    with open_cluster(tmp_path / "bed", brokers=3, security="ssl") as cluster:
        folder = tmp_path / "bed" / "certificates"
        before = tmp_path / "before.pem"
        before.write_bytes((folder / "ca.pem").read_bytes())
        client = admin(cluster, before, None)
        client.create_topics([NewTopic(unique_name, 1, 3)])[unique_name].result()
        outcomes: list[Any] = []

        def restart_all() -> None:
            writer = KafkaWriter(cluster.settings, None)  # the bundle of this step
            for node in cluster.nodes:
                cluster.restart(node.node_id)
                for number in range(20):
                    writer.produce(unique_name, b"key", b"%d" % number, outcomes.append)
                assert writer.flush(90) == 0
                wait_until(lambda: len(_partition(cluster, unique_name).isrs) == 3, seconds=90, what="all in sync")
            writer.close()

        rotate_authority(folder, days=90, now=NOW)
        restart_all()
        assert accepted(cluster, before, None), "a client that has the former bundle only"
        rotate_leaves(folder, days=30, now=NOW)
        restart_all()
        assert not accepted(cluster, before, None)
        assert outcomes == [None] * 120


def _partition(cluster: KafkaCluster, topic: str) -> Any:
    listed = AdminClient(client_conf(cluster.settings, client_id="t")).list_topics(topic, timeout=30)
    return listed.topics[topic].partitions[0]
