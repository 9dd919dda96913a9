"""Revoked certificates at real servers: a device at the embedded broker, which also asks for a password, and a node of Kafka."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from deploy.certificates.folder import init_folder, issue_leaves, revoke_leaves
from deploy.certificates.issue import LeafRequest
from deploy.local.broker import find_mosquitto
from deploy.local.broker_answer import connect_accepted
from deploy.local.broker_rights import find_plugin
from deploy.local.ports import choose_port
from deploy.local.run_broker import make_run_broker
from deploy.local.run_logins import DEVICES_USER, load_logins
from deploy.settings import load_settings
from deploy.testbed.server_process import SingleServer
from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf

NOW = datetime.now(UTC)
Embedded = Callable[..., "Broker"]


class Broker:
    """The broker of an embedded run that is reached with TLS too."""

    def __init__(self, folder: Path, pki: Path, **more: str) -> None:
        self._pki, server = pki, str(pki / "server-127.0.0.1.pem")
        files = {"mqtt_cert_file": server, "mqtt_key_file": server, **more}
        settings = load_settings(environ={}, overrides={f"embedded.{name}": value for name, value in files.items()})
        self.ports = {name: choose_port(0)[0] for name in ("mqtt", "mqtt_tls")}
        self.ports["mqtt_v5"] = self.ports["mqtt"]
        logins = load_logins(folder / "credentials.json", settings.mqtt, has_session=False)
        self._password = logins.passwords[DEVICES_USER]
        self.server = SingleServer(make_run_broker(settings, folder / "mqtt", self.ports, logins), folder / "log")

    def accepts(self, certificate: Path | None, *, password: str | None = None) -> bool:
        context = ssl.create_default_context(cafile=str(self._pki / "ca.pem"))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return connect_accepted(
            "127.0.0.1", self.ports["mqtt_tls"], level=4, name=DEVICES_USER, password=password or self._password,
            timeout=10.0, context=context,
        )  # fmt: skip


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    executable = find_mosquitto()
    if executable is None or find_plugin(executable) is None:
        pytest.skip("mosquitto with its plugin is not on this machine")
    requests = [LeafRequest.server("127.0.0.1", days=30), LeafRequest.client("attic", days=30)]
    init_folder(tmp_path / "pki", requests, authority_days=90, now=NOW)
    return tmp_path / "pki"


@pytest.fixture
def embedded(tmp_path: Path, pki: Path) -> Iterator[Embedded]:
    started: list[Broker] = []

    def start(**more: str) -> Broker:
        folder = tmp_path / f"run-{len(started)}"
        folder.mkdir()
        made = Broker(folder, pki, **more)
        started.append(made)
        return made

    yield start
    for each in started:
        each.server.kill()


def test_a_device_with_a_revoked_certificate_is_refused(pki: Path, embedded: Embedded) -> None:
    own, lists = pki / "client-attic.pem", {"mqtt_client_ca_file": str(pki / "ca.pem")}
    broker = embedded(**lists)
    assert broker.accepts(own)
    assert not broker.accepts(None), "the password alone"
    assert not broker.accepts(own, password="wrong"), "the certificate alone"

    revoke_leaves(pki, ["attic"], (), now=NOW)
    (other,) = issue_leaves(pki, [LeafRequest.client("cellar", days=30)], now=NOW)
    broker = embedded(**lists, mqtt_crl_file=str(pki / "crl.pem"))
    assert not broker.accepts(own) and broker.accepts(other)


def test_tidegates_own_parts_need_no_certificate(pki: Path, embedded: Embedded) -> None:
    revoke_leaves(pki, ["attic"], (), now=NOW)
    broker = embedded(mqtt_client_ca_file=str(pki / "ca.pem"), mqtt_crl_file=str(pki / "crl.pem"))
    assert broker.server.part.ready(), "they connect on loopback, without TLS in a plain run"


@pytest.mark.parametrize(("setting", "file"), [("mqtt_client_ca_file", "crl.pem"), ("mqtt_crl_file", "ca.pem")])
def test_a_file_that_mosquitto_could_not_load_is_named_before_it_starts(
    pki: Path, tmp_path: Path, setting: str, file: str
) -> None:
    revoke_leaves(pki, ["attic"], (), now=NOW)
    good = {"mqtt_client_ca_file": str(pki / "ca.pem"), "mqtt_crl_file": str(pki / "crl.pem")}
    for wrong in (pki / file, tmp_path / "none"):
        with pytest.raises(ConfigError, match=rf"embedded\.{setting}: cannot use {wrong}"):
            Broker(tmp_path, pki, **{**good, setting: str(wrong)})


def kafka_faults(pki: Path, wait_until: Callable[..., object]) -> str:
    """What a client of Kafka says about a server that shows the certificate of `pki` and hangs up after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server-127.0.0.1.pem")

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with suppress(OSError), connection, context.wrap_socket(connection, server_side=True):
                    pass

    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        settings = KafkaSettings(
            bootstrap_servers=f"127.0.0.1:{listener.getsockname()[1]}", security_protocol="SSL",
            ssl_ca_file=str(pki / "ca.pem"), ssl_crl_file=str(pki / "crl.pem"),
        )  # fmt: skip
        conf = client_conf(settings, client_id="test") | {"log_level": 0}
        client = AdminClient(conf | {"error_cb": lambda error: said.append(error.str())})

        def heard() -> bool:
            client.poll(0.2)
            return bool(said)

        wait_until(heard, what="a fault")
    return said[0]


def test_a_node_of_kafka_with_a_revoked_certificate_is_refused(
    tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    pki, request = tmp_path / "pki", LeafRequest.server("127.0.0.1", days=30)
    init_folder(pki, [request, LeafRequest.client("attic", days=30)], authority_days=90, now=NOW)
    revoke_leaves(pki, ["attic"], (), now=NOW)
    assert "certificate" not in kafka_faults(pki, wait_until), "another one is revoked: the server hangs up later"
    revoke_leaves(pki, ["127.0.0.1"], (), now=NOW)
    assert "certificate verify failed" in kafka_faults(pki, wait_until)
