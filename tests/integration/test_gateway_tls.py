"""TLS between the gateway and a broker: client certificates, and brokers that must not be trusted."""

import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deploy.bench.load_publisher import LoadPlan, broker_fields, native_payload, run_load
from deploy.certificates.folder import init_folder, issue_leaves, revoke_leaves
from deploy.certificates.issue import LeafRequest
from deploy.local.broker import Mosquitto, find_mosquitto
from deploy.local.ports import choose_port
from deploy.local.preflight import examine_setup
from deploy.monitor.certificate_probe import CertificateProbe, certificate_files, end_asker, tls_servers
from deploy.settings import Settings
from deploy.testbed.server_process import SingleServer
from gateway.devtools.listeners import ReceiptListener
from gateway.devtools.publisher import Publisher
from gateway.gateway_settings import MqttSettings
from gateway.mqtt.broker_probe import BrokerProbe
from gateway.mqtt.session import MqttSession
from ingest.contract.errors import ConfigError, UnavailableError
from monitoring.periodic_query import IncompleteError
from tests.support.authority import Authority, Pair
from tests.support.session import Heard


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def tls_server(pair: Pair | None, *, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> Iterator[int]:
    """A server that does TLS handshakes only, or, without a certificate, answers any bytes with HTTP; yields its port."""
    context = None
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = min(newest, ssl.TLSVersion.TLSv1_2)
            context.maximum_version = newest
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.load_cert_chain(*pair)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        threading.Thread(target=_serve, args=(server, context), daemon=True).start()
        yield server.getsockname()[1]


def _serve(server: socket.socket, context: ssl.SSLContext | None) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(5)
            try:
                if context is None:
                    connection.recv(1024)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                else:
                    context.wrap_socket(connection, server_side=True).close()
            except OSError:
                continue


def fault_of(settings: MqttSettings) -> str:
    """The first reason that a session gives for not being connected."""
    heard = Heard()
    session = MqttSession(settings, window=10, events=heard)
    deadline = time.monotonic() + 20
    while not heard.losses and time.monotonic() < deadline:
        session.loop(0.05)
    assert "next try in" in session.detail
    session.close()
    return heard.losses[0]


def settings_for(port: int, authority: Authority | None, **more: Any) -> MqttSettings:
    given = {"tls": True, **({"ca_file": str(authority.file)} if authority else {}), **more}
    return MqttSettings.model_validate({"port": port, "reconnect_max_seconds": 0.05, **given})


UNTRUSTED: dict[str, tuple[Callable[[Authority], Pair], str]] = {
    "expired": (lambda authority: authority.issue_expired("expired"), "its certificate has expired"),
    "wrong address": (
        lambda authority: authority.issue("elsewhere", host="192.0.2.1"), "its certificate is for another address",
    ),
    "self-signed": (lambda authority: authority.self_signed("alone"), "its certificate is self-signed"),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNTRUSTED)
def test_a_broker_with_a_bad_certificate_is_rejected_and_named(kind: str, authority: Authority) -> None:
    make, words = UNTRUSTED[kind]
    pair = make(authority)
    with tls_server(pair) as port:
        assert words in fault_of(settings_for(port, authority))


def test_a_broker_of_an_unknown_authority_is_rejected_and_named(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "other")
    with tls_server(authority.issue("broker")) as port:
        assert "mqtt.ca_file does not contain the authority" in fault_of(settings_for(port, other))
        assert "mqtt.ca_file does not contain the authority" in fault_of(settings_for(port, None))


def test_a_broker_whose_certificate_is_revoked_is_rejected_and_named(tmp_path: Path) -> None:
    now, request, pki = datetime.now(UTC), LeafRequest.server("127.0.0.1", days=9), tmp_path / "pki"
    file = init_folder(pki, [request], authority_days=90, now=now)[2]
    tls = {"tls": True, "ca_file": str(pki / "ca.pem"), "crl_file": str(pki / "crl.pem"), "reconnect_max_seconds": 0.05}

    def fault() -> str:
        with tls_server(Pair(file, file)) as port:
            return fault_of(MqttSettings.model_validate({"port": port, **tls}))

    with pytest.raises(ConfigError, match=r"mqtt\.crl_file: cannot use .* \(.*No such file"):
        fault()
    revoke_leaves(pki, ["127.0.0.1"], (), now=now)
    assert "its certificate is revoked; give the broker a new certificate" in fault()
    issue_leaves(pki, [request], now=now, force=True)
    assert "certificate" not in fault(), "with the new one the handshake is done, and the server then hangs up"

    init_folder(tmp_path / "other", [request], authority_days=90, now=now)
    revoke_leaves(tmp_path / "other", ["127.0.0.1"], (), now=now)
    tls["crl_file"] = str(tmp_path / "other" / "crl.pem")
    assert "mqtt.crl_file has no valid list of the authority" in fault()
    tls["crl_file"] = str(pki / "ca.pem")
    with pytest.raises(ConfigError, match=r"ca\.pem has no such list"):
        fault()


def test_a_broker_with_a_wrong_host_name_is_rejected_and_named(authority: Authority) -> None:
    with tls_server(authority.issue("named", host="broker.example")) as port:
        assert "its certificate is for another host" in fault_of(settings_for(port, authority, host="localhost"))


def test_a_broker_with_tls_1_1_is_rejected_and_named(authority: Authority) -> None:
    with tls_server(authority.issue("old"), newest=ssl.TLSVersion.TLSv1_1) as port:
        assert "it offers only TLS versions before 1.2" in fault_of(settings_for(port, authority))


def test_a_broker_without_tls_is_named(authority: Authority) -> None:
    with tls_server(None) as port:
        assert "it does not speak TLS on this port" in fault_of(settings_for(port, authority))


def test_the_tools_say_why_they_do_not_trust_a_broker(authority: Authority) -> None:
    with tls_server(authority.self_signed("alone")) as port:
        settings = settings_for(port, authority)
        with pytest.raises(UnavailableError, match="its certificate is self-signed"):
            Publisher(settings, client_id="p").connect(timeout_seconds=1.0)
        probe = BrokerProbe(settings, "m")
        assert probe.look() == {"tidegate_broker_reachable": [((), 0.0)]}
        probe.close()


class CertificateMosquitto(Mosquitto):
    """A broker whose users are the common names of client certificates."""

    def __init__(self, *arguments: Any, authority: Authority, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._authority = authority
        self._server, self._prober = authority.issue("broker"), authority.issue("prober")

    def _entrance(self) -> list[str]:
        (self.folder / "access").write_text(
            "user gateway\ntopic read #\ntopic write tidegate/receipts/#\n"
            "pattern write tidegate/v1/%u/#\npattern read tidegate/receipts/%u\n"
        )
        return [
            f"listener {self.port} {self.host}", f"certfile {self._server.certificate}", f"keyfile {self._server.key}",
            f"cafile {self._authority.file}", "require_certificate true", "use_identity_as_username true",
            "allow_anonymous false", f"acl_file {self.folder}/access",
        ]  # fmt: skip

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._authority.file)
        context.load_cert_chain(*self._prober)
        return context


@pytest.fixture
def broker(tmp_path: Path, authority: Authority) -> Iterator[SingleServer]:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not on this machine")
    part = CertificateMosquitto(tmp_path / "mqtt", choose_port(0)[0], users={"unused": "x"}, authority=authority)
    server = SingleServer(part, tmp_path / "broker.log")
    yield server
    server.kill()


def certificate(pair: Pair) -> dict[str, str]:
    return {"cert_file": str(pair.certificate), "key_file": str(pair.key)}


def test_doctor_does_the_handshake_of_the_gateway(
    broker: SingleServer, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.local.preflight._run_checks", lambda settings, data: iter(()))

    def mqtt(settings: MqttSettings) -> tuple[str, str]:
        checks = examine_setup(Settings(mqtt=settings), tmp_path, servers=True, timeout_seconds=5.0)
        check = next(check for check in checks if check.name == "mqtt")
        return check.state, check.text

    address = f"127.0.0.1:{broker.part.port}"
    good = settings_for(broker.part.port, authority, **certificate(authority.issue("gateway")))
    assert mqtt(good) == ("ok", f"{address} answers with TLS")
    state, text = mqtt(settings_for(broker.part.port, authority))
    assert (state, text.startswith(f"{address} cannot be used with TLS: it asks for a client certificate")) == (
        "fail",
        True,
    )
    state, text = mqtt(good.model_copy(update={"key_file": str(tmp_path / "none.key")}))
    assert (state, "mqtt.key_file: cannot read" in text) == ("fail", True)
    state, text = mqtt(settings_for(1, authority))
    assert (state, text) == ("fail", "127.0.0.1:1 does not answer (Connection refused)")


def test_the_monitor_sees_when_certificates_expire(broker: SingleServer, authority: Authority) -> None:
    settings = Settings(mqtt=settings_for(broker.part.port, authority, **certificate(authority.issue("gateway"))))
    probe = CertificateProbe(tls_servers(settings), files=certificate_files(settings), end_of=end_asker(settings))
    ((name, series),) = probe.look().items()
    assert name == "tidegate_certificate_expiry_timestamp_seconds"
    ends = {labels[0]: end - time.time() for labels, end in series}
    assert set(ends) == {"mqtt", "mqtt_client"}
    assert all(86_400 < left <= 2 * 86_400 for left in ends.values())
    gone = CertificateProbe({}, files={"mqtt_client": "/none.pem"})
    with pytest.raises(IncompleteError, match=r"the client certificate /none\.pem cannot be read"):
        gone.look()


@pytest.mark.parametrize("protocol", ["3.1.1", "5"])
def test_the_gateway_and_all_tools_present_their_certificates(
    protocol: str, broker: SingleServer, authority: Authority, unique_name: str
) -> None:
    port = broker.part.port
    settings = settings_for(
        port, authority, protocol=protocol, client_id=unique_name, **certificate(authority.issue("gateway")),
        canary=certificate(authority.issue("tidegate-canary")), devices=certificate(authority.issue("attic")),
        monitor=certificate(authority.issue("monitor")),
    )  # fmt: skip
    heard = Heard()
    session = MqttSession(settings, window=100, events=heard)

    def until(condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, session.detail
            session.loop(0.01)

    until(lambda: session.connected)
    receipts = ReceiptListener(settings.with_login("devices"), "attic", client_id=f"{unique_name}-watch")
    receipts.open()
    probe = BrokerProbe(settings.with_login("monitor"), f"{unique_name}-monitor")
    assert probe.look()["tidegate_broker_reachable"] == [((), 1.0)]
    probe.close()
    for login, device in (("canary", "tidegate-canary"), ("devices", "attic")):
        publisher = Publisher(settings.with_login(login), client_id=f"{unique_name}-{device}")  # type: ignore[arg-type]
        publisher.connect()
        publisher.publish(f"tidegate/v1/{device}/readings", device.encode())
        # The access list names the certificate's user: this one is not delivered.
        publisher.publish("tidegate/v1/other/readings", b"as another device")
        publisher.close()
    until(lambda: len(heard.messages) == 2)
    assert [message.payload for message in heard.messages] == [b"tidegate-canary", b"attic"]
    assert session.publish("tidegate/receipts/attic", b'{"reason":"x"}')
    until(lambda: not session._link.client.want_write())  # type: ignore[union-attr]
    assert receipts.next(5) == {"reason": "x"}
    receipts.close()
    session.close()


def test_messages_in_records_of_their_own_come_together(
    broker: SingleServer, authority: Authority, unique_name: str
) -> None:
    """A pass of the gateway that took one TLS record, so one message, made 30 messages a second of any load."""
    given = {"client_id": unique_name, **certificate(authority.issue("gateway"))}
    settings = settings_for(broker.part.port, authority, devices=certificate(authority.issue("attic")), **given)
    heard = Heard()
    session = MqttSession(settings, window=1000, events=heard)
    deadline = time.monotonic() + 60
    while not session.connected:
        assert time.monotonic() < deadline, session.detail
        session.loop(0.01)
    publisher = Publisher(settings.with_login("devices"), client_id=f"{unique_name}-attic", window=500)
    publisher.connect()
    for number in range(500):
        publisher.publish("tidegate/v1/attic/readings", b"%d" % number)
    assert publisher.drain()
    publisher.close()
    passes = 0
    while len(heard.messages) < 500:
        assert time.monotonic() < deadline, session.detail
        session.loop(1.0)
        passes += session.read_bytes > 0
    session.close()
    assert [message.payload for message in heard.messages] == [b"%d" % number for number in range(500)]
    assert passes < 50


def test_the_publisher_of_benchmarks_presents_its_certificate(broker: SingleServer, authority: Authority) -> None:
    settings = settings_for(broker.part.port, authority, devices=certificate(authority.issue("bench")))
    plan = LoadPlan(**broker_fields(settings), messages=20, devices=2, connections=1, name="bench")
    assert run_load(plan, native_payload(1, 0)).acknowledged == 20


def test_a_broker_that_wants_a_certificate_says_so(broker: SingleServer, authority: Authority, tmp_path: Path) -> None:
    port = broker.part.port
    assert "it asks for a client certificate" in fault_of(settings_for(port, authority))
    stranger = Authority(tmp_path / "other", "other").issue("gateway")
    assert "it refuses the client certificate" in fault_of(settings_for(port, authority, **certificate(stranger)))
    told = fault_of(settings_for(port, authority, **certificate(authority.issue_expired("late"))))
    assert "it refuses the client certificate (mqtt.cert_file), which has expired" in told
    with pytest.raises(UnavailableError, match="it asks for a client certificate"):
        Publisher(settings_for(port, authority), client_id="p").connect(timeout_seconds=1.0)
