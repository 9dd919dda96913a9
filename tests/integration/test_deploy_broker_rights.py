"""The embedded mosquitto with its access list, as its users meet it."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from deploy.cli import run as run_command
from deploy.local.broker import RIGHTS_FILE, Mosquitto, find_mosquitto
from deploy.local.broker_answer import connect_accepted
from deploy.local.broker_rights import find_plugin
from deploy.local.device_logins import remove_login, set_login
from deploy.local.ports import choose_port
from deploy.local.run_broker import make_run_broker
from deploy.local.run_logins import load_logins
from deploy.local.run_plan import embedded_settings
from deploy.local.runfile import DataLock, RunFile
from deploy.settings import load_settings
from deploy.settings_file import to_toml, write_private
from deploy.snippets import PublishTarget, render_snippet
from deploy.testbed.server_process import SingleServer
from gateway.gateway_settings import MqttSettings
from gateway.mqtt.broker_probe import BrokerProbe
from gateway.mqtt.session import MqttSession
from tests.support.authority import Authority
from tests.support.session import Heard

PROTOCOLS: Final = {"3.1.1": mqtt.MQTTv311, "5": mqtt.MQTTv5}
DENIED: Final = 0x80


class Run:
    """What an embedded run has of its broker: settings, users and files; no other part runs."""

    def __init__(self, data: Path, overrides: dict[str, object]) -> None:
        executable = find_mosquitto()
        if executable is None or find_plugin(executable) is None:
            pytest.skip("mosquitto with its plugin is not on this machine")
        names = ("mqtt", "kafka", *(["mqtt_tls"] if "embedded.mqtt_cert_file" in overrides else []))
        self.data, self.ports = data, {name: choose_port(0)[0] for name in names}
        self.ports["mqtt_v5"] = self.ports["mqtt"]
        person = load_settings(environ={}, overrides=overrides)
        has_session = (data / "mqtt" / "mosquitto.db").exists()
        self.logins = load_logins(data / "credentials.json", person.mqtt, has_session=has_session)
        self.settings = embedded_settings(person, data, self.ports, self.logins)
        part = make_run_broker(self.settings, data / "mqtt", self.ports, self.logins)
        self.server = SingleServer(part, data / "broker.log")
        self.file = RunFile("run", 1, 0.0, ports=self.ports, has_access_list=part.has_access_list)
        self._clients: list[mqtt.Client] = []

    def client(self, user: str, password: str | None = None, **more: Any) -> "Client":
        made = Client(self, user, self.logins.passwords[user] if password is None else password, **more)
        self._clients.append(made.paho)
        return made

    def close(self) -> None:
        for client in self._clients:
            client.disconnect()
            client.loop_stop()
        self.server.kill()


class Client:
    """A user of the broker, with everything that it gets."""

    def __init__(
        self, run: Run, user: str, password: str, *, protocol: str = "5", client_id: str = "", keeps: bool = False
    ) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.accepted: list[bool] = []
        self.ended = threading.Event()
        self._granted: list[int] = []
        self._published: dict[int, int] = {}
        is_5 = protocol == "5"
        client = self.paho = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=client_id, protocol=PROTOCOLS[protocol], reconnect_on_failure=False,
            clean_session=None if is_5 else not keeps,
        )  # fmt: skip
        client.username_pw_set(user, password)
        client.on_connect = lambda _c, _d, _f, reason, _p: self.accepted.append(not reason.is_failure)
        client.on_disconnect = lambda *_: self.ended.set()
        client.on_subscribe = lambda _c, _d, _m, reasons, _p: self._granted.append(reasons[0].value)
        client.on_publish = lambda _c, _d, mid, reason, _p: self._published.update({mid: reason.value})
        client.on_message = lambda _c, _d, message: self.messages.append((message.topic, bytes(message.payload)))
        extra: dict[str, Any] = {}
        if is_5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 3600 if keeps else 0
            extra = {"clean_start": not keeps, "properties": properties}
        client.connect("127.0.0.1", run.ports["mqtt"], **extra)
        client.loop_start()
        await_true(lambda: self.accepted or self.ended.is_set())

    def subscribe(self, topic: str) -> bool:
        """Whether the broker grants it."""
        self._granted.clear()
        self.paho.subscribe(topic, 1)
        await_true(lambda: self._granted)
        return self._granted[0] < DENIED

    def publish(self, topic: str, payload: str = "x") -> bool:
        """Whether the broker takes it, as far as the protocol says: MQTT 3.1.1 acknowledges a denied message too."""
        mid = self.paho.publish(topic, payload, 1).mid
        await_true(lambda: mid in self._published)
        return self._published[mid] < DENIED


def await_true(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(**overrides: object) -> Run:
        data = tmp_path / "data of a run"
        data.mkdir(exist_ok=True)
        made.append(Run(data, {name.replace("__", "."): value for name, value in overrides.items()}))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_user_publishes_and_reads_its_own_topics_only(protocol: str, make_run: Callable[..., Run]) -> None:
    run = make_run()
    gateway, devices, canary = (run.client(name, protocol=protocol) for name in ("gateway", "tidegate", "canary"))
    assert gateway.subscribe("#")
    assert devices.subscribe("tidegate/receipts/#")
    assert canary.subscribe("tidegate/receipts/tidegate-canary")
    for topic in ("#", "tidegate/v1/+/readings", "tidegate/v1/attic/readings", "$SYS/#", "$CONTROL/#", "+/+/attic"):
        assert not devices.subscribe(topic), topic
    assert not canary.subscribe("tidegate/receipts/attic") and not canary.subscribe("tidegate/v1/#")

    tries = [
        (devices, "tidegate/receipts/attic", False), (devices, "$SYS/broker/version", False),
        (devices, "$CONTROL/dynamic-security/v1", False), (canary, "tidegate/v1/attic/readings", False),
        (canary, "tidegate/receipts/tidegate-canary", False), (gateway, "tidegate/v1/attic/readings", False),
        (devices, "tidegate/v1/attic/readings", True), (devices, "shellies/x/sensor/temperature", True),
        (devices, "spBv1.0/group/NCMD/node", True), (canary, "tidegate/v1/tidegate-canary/readings", True),
        (gateway, "tidegate/receipts/attic", True), (gateway, "plant/spBv1.0/group/NCMD/node", True),
    ]  # fmt: skip
    for client, topic, is_allowed in tries:
        taken = client.publish(topic)
        assert protocol == "3.1.1" or taken is is_allowed, topic
    await_true(lambda: devices.messages)
    allowed = [topic for _, topic, is_allowed in tries if is_allowed]
    await_true(lambda: len(gateway.messages) >= len(allowed))
    assert [topic for topic, _ in gateway.messages] == allowed
    assert [topic for topic, _ in devices.messages] == ["tidegate/receipts/attic"]
    assert canary.messages == []


def test_the_monitor_reads_the_brokers_figures_and_nothing_else(make_run: Callable[..., Run]) -> None:
    run = make_run()
    probe = BrokerProbe(run.settings.mqtt.with_login("monitor"), "monitor")
    assert probe.look()["tidegate_broker_sys_available"] == [((), 1.0)]
    probe.close()
    assert not run.client("monitor").subscribe("tidegate/v1/#")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_gateways_session_survives_the_broker_and_a_new_login(protocol: str, make_run: Callable[..., Run]) -> None:
    """While the gateway is away: the broker ends and starts again, and a device gets a login."""
    run = make_run(mqtt__protocol=protocol)
    heard = Heard()
    session = MqttSession(run.settings.mqtt, window=10, events=heard)
    _turn(session, lambda: session.connected)
    session.close()
    run.client("tidegate").publish("a/1", "before")
    run.server.stop()
    run.server.start()
    run.client("tidegate").publish("a/1", "after the start")
    set_login(run.settings.mqtt, run.data, run.file, "attic", ())
    run.client("tidegate").publish("a/1", "after the login")
    _turn(session, lambda: len(heard.messages) == 3)
    assert session.session_present
    assert [message.payload for message in heard.messages] == [b"before", b"after the start", b"after the login"]
    session.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_session_of_an_older_version_loses_nothing(
    protocol: str, tmp_path: Path, make_run: Callable[..., Run]
) -> None:
    """There the gateway was the user tidegate; until it connects as gateway, mosquitto asks what tidegate may read."""
    data, port = tmp_path / "data of a run", choose_port(0)[0]
    data.mkdir()
    (data / "credentials.json").write_text('{"username": "tidegate", "password": "known"}')
    old = SingleServer(Mosquitto(data / "mqtt", port, users={"tidegate": "known"}), data / "broker.log")
    given = {"port": port, "protocol": protocol, "username": "tidegate", "password": "known"}
    session = MqttSession(MqttSettings.model_validate(given), window=10, events=Heard())
    _turn(session, lambda: session.connected)
    session.close()
    old.stop()

    run = make_run(mqtt__protocol=protocol)
    run.client("tidegate").publish("a/1", "before the gateway")
    heard = Heard()
    session = MqttSession(run.settings.mqtt, window=10, events=heard)
    _turn(session, lambda: heard.messages)
    assert [message.payload for message in heard.messages] == [b"before the gateway"]
    session.close()


def _turn(session: MqttSession, condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, session.detail
        session.loop(0.01)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_device_cannot_take_the_gateways_session_over(protocol: str, make_run: Callable[..., Run]) -> None:
    """mosquitto gives a session to each user that names its client id, so the id must not be known."""
    run = make_run(mqtt__protocol=protocol)
    heard = Heard()
    session = MqttSession(run.settings.mqtt, window=10, events=heard)
    _turn(session, lambda: session.connected)
    run.client("tidegate", client_id="tidegate-gateway", protocol=protocol, keeps=True).publish("a/1", "kept")
    _turn(session, lambda: heard.messages)
    assert heard.losses == []
    assert run.settings.mqtt.client_id not in f"{session.state} {session.name}"
    session.close()

    # The other half of the proof: with the id, the same user takes the messages that wait, and they are lost.
    run.client("tidegate").publish("a/1", "waits")
    thief = run.client("tidegate", client_id=run.settings.mqtt.client_id, protocol=protocol, keeps=True)
    assert thief.accepted == [True]
    thief.paho.disconnect()
    await_true(thief.ended.is_set)
    run.client("tidegate").publish("a/1", "next")
    again = MqttSession(run.settings.mqtt, window=10, events=heard)
    _turn(again, lambda: again.connected)
    run.client("tidegate").publish("a/1", "last")
    _turn(again, lambda: heard.messages[-1].payload == b"last")
    assert b"waits" not in [message.payload for message in heard.messages]
    again.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_device_with_a_login_is_itself_only(protocol: str, make_run: Callable[..., Run]) -> None:
    run = make_run()
    gateway = run.client("gateway")
    assert gateway.subscribe("#")
    passwords = {name: set_login(run.settings.mqtt, run.data, run.file, name, ()) for name in ("attic", "cellar")}
    attic = run.client("attic", passwords["attic"], protocol=protocol)
    assert attic.subscribe("tidegate/receipts/attic")
    for topic in ("tidegate/receipts/cellar", "tidegate/receipts/+", "tidegate/v1/cellar/readings", "#", "$SYS/#"):
        assert not attic.subscribe(topic), topic
    for topic in (
        "tidegate/v1/cellar/readings",
        "tidegate/receipts/attic",
        "tidegate/v1/attic2/readings",
        "shellies/attic/x",
    ):
        assert attic.publish(topic) is (protocol == "3.1.1"), topic
    assert attic.publish("tidegate/v1/attic/readings")
    assert gateway.publish("tidegate/receipts/cellar") and gateway.publish("tidegate/receipts/attic")
    await_true(lambda: attic.messages)
    assert [topic for topic, _ in gateway.messages if topic.startswith("tidegate/v1/")] == [
        "tidegate/v1/attic/readings"
    ]
    assert [topic for topic, _ in attic.messages] == ["tidegate/receipts/attic"]


def test_a_login_changes_at_once_and_outlives_the_broker(make_run: Callable[..., Run]) -> None:
    run = make_run()
    first = set_login(run.settings.mqtt, run.data, run.file, "attic", ())
    attic = run.client("attic", first)
    assert not attic.publish("shellies/attic/sensor")
    second = set_login(run.settings.mqtt, run.data, run.file, "attic", ["shellies/attic/#"])
    await_true(attic.ended.is_set)
    assert run.client("attic", first).accepted != [True]
    run.server.restart()
    attic = run.client("attic", second)
    assert attic.accepted == [True]
    assert attic.publish("shellies/attic/sensor") and not attic.publish("shellies/cellar/sensor")
    assert remove_login(run.settings.mqtt, run.data, run.file, "attic")
    await_true(attic.ended.is_set)
    assert run.client("attic", second).accepted != [True]
    assert not remove_login(run.settings.mqtt, run.data, run.file, "attic")
    kept = f"{(run.data / 'mqtt' / RIGHTS_FILE).read_text()}{(run.data / 'broker.log').read_text()}"
    assert first not in kept and second not in kept


def test_the_command_prints_the_password_once(make_run: Callable[..., Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    write_private(run.data / "config.toml", to_toml(run.settings))
    run.file.write(run.data)
    lock = DataLock(run.data)

    def login(*arguments: str) -> tuple[int, str, str]:
        code = run_command(["device", "login", *arguments, "--data", str(run.data)])
        return code, *capsys.readouterr()

    try:
        code, password, words = login("attic")
        assert (code, words) == (0, "Password of user attic, shown only once:\n")
        password = password.strip()
        assert run.client("attic", password).accepted == [True]
        assert login("a/+/b")[:2] == (78, "")
        assert login("attic", "--remove") == (0, "", "attic has no login any more.\n")
        assert run.client("attic", password).accepted != [True]
        run.file.has_access_list = False
        run.file.write(run.data)
        code, _, words = login("attic")
        assert code == 69 and "has no access list" in words
    finally:
        lock.release()


def listens(port: int) -> bool:
    """Whether a server listens there. It connects, because a look that listens itself could take the port from the server."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


@pytest.mark.parametrize("content", ["", "{}", "{", None])
def test_an_access_list_without_users_admits_nobody(content: str | None, make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.server.kill()
    part = run.server.part
    part.prepare()
    if content is None:
        (part.folder / RIGHTS_FILE).unlink()
    else:
        (part.folder / RIGHTS_FILE).write_text(content)
    with subprocess.Popen(part.command(), stderr=subprocess.DEVNULL) as process:
        await_true(lambda: listens(run.ports["mqtt"]) or process.poll() is not None)
        for user, password in (*run.logins.passwords.items(), ("", "")):
            assert not connect_accepted(
                "127.0.0.1", run.ports["mqtt"], level=5, name=user, password=password, timeout=5.0
            ), user
        assert content != "{}" or process.poll() is None, "only a list that it cannot read may end the broker"
        process.kill()


@pytest.mark.parametrize("name", ["#", "+", "tidegate/#", "../gateway", ""])
def test_no_user_name_or_client_id_is_taken_for_a_wildcard(name: str, make_run: Callable[..., Run]) -> None:
    run = make_run()
    assert run.client(name, "x").accepted != [True]
    attic = run.client("attic", set_login(run.settings.mqtt, run.data, run.file, "attic", ()), client_id=name)
    assert attic.accepted == [True]
    assert not attic.publish("tidegate/v1/cellar/readings") and not attic.subscribe("#")


def test_other_machines_come_in_by_tls_with_the_same_users(make_run: Callable[..., Run], tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pair = authority.issue("broker")
    files = {"embedded__mqtt_cert_file": str(pair.certificate), "embedded__mqtt_key_file": str(pair.key)}
    run = make_run(**files)
    devices = run.settings.mqtt.with_login("devices")
    secure = {"port": run.ports["mqtt_tls"], "tls": True, "ca_file": str(authority.file)}
    heard = Heard()
    reader = MqttSession(
        devices.model_copy(update={**secure, "subscriptions": ("tidegate/receipts/#",)}), window=1, events=heard
    )
    _turn(reader, lambda: reader.connected)
    assert run.client("gateway").publish("tidegate/receipts/attic", "by TLS")
    _turn(reader, lambda: heard.messages)
    reader.close()
    password = set_login(run.settings.mqtt, run.data, run.file, "attic", ())
    target = PublishTarget(
        "127.0.0.1", run.ports["mqtt_tls"], "attic", None, tls=True, ca_text=authority.file.read_text()
    )
    done = subprocess.run(
        [sys.executable, "-c", render_snippet("python", "attic", target)], capture_output=True, text=True, timeout=60,
        check=False, env={**os.environ, "MQTT_PASSWORD": password},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "connected: Success" in done.stdout
    # Without TLS the port does not speak MQTT.
    assert not connect_accepted(
        "127.0.0.1",
        run.ports["mqtt_tls"],
        level=5,
        name="tidegate",
        password=run.logins.passwords["tidegate"],
        timeout=1.0,
    )
