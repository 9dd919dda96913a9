"""The brokers' files, and which broker is chosen."""

import base64
import hashlib
import os
import socket
import threading
import tomllib
from pathlib import Path

import pytest

from deploy.local import broker
from deploy.local.broker_answer import connect_accepted
from ingest.contract.errors import ConfigError, UnavailableError
from monitoring.alerts.catalog_flow import HALF_QUEUE_BYTES, HALF_QUEUE_MESSAGES

USERS = {"gateway": 'p"w\\ ü', "device": "x"}


def test_mosquitto_is_taken_where_it_is_also_outside_of_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(broker, "SYSTEM_FOLDERS", str(tmp_path))
    assert broker.find_broker() == "iotcore"
    (tmp_path / "mosquitto").touch(mode=0o755)
    assert broker.find_broker() == "mosquitto"
    assert broker.choose_broker("auto") == "mosquitto"
    assert broker.choose_broker("iotcore") == "iotcore"


def test_a_mosquitto_that_was_asked_for_and_is_not_here_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "find_mosquitto", lambda: None)
    with pytest.raises(UnavailableError, match=r"Install it or set embedded\.broker to auto"):
        broker.choose_broker("mosquitto")


def test_limits_of_mosquitto_are_explicit_and_never_zero(tmp_path: Path) -> None:
    part = broker.Mosquitto(tmp_path / "a folder", 1883, users=USERS, window=500)
    part.prepare()
    lines = (tmp_path / "a folder" / "mosquitto.conf").read_text(encoding="utf-8").splitlines()
    values = dict(line.split(" ", 1) for line in lines)
    assert values["listener"] == "1883 127.0.0.1"
    assert values["allow_anonymous"] == "false"
    assert (values["persistence"], values["autosave_interval"]) == ("true", "1")
    assert values["max_inflight_messages"] == "500"
    for limit in ("max_queued_messages", "max_queued_bytes", "max_packet_size"):
        assert int(values[limit]) > 0
    assert ("user" in values) is (os.geteuid() == 0)
    assert part.port_v5 == part.port
    assert part.warnings == []


def test_the_queue_that_devices_md_promises_is_the_one_that_is_set(tmp_path: Path) -> None:
    part = broker.Mosquitto(tmp_path, 1883, users=USERS)
    part.prepare()
    values = dict(line.split(" ", 1) for line in (tmp_path / "mosquitto.conf").read_text("utf-8").splitlines())
    messages, size_bytes = int(values["max_queued_messages"]), int(values["max_queued_bytes"])
    page = (Path(__file__).parents[3] / "DEVICES.md").read_text("utf-8")
    assert f"{messages:,} messages or {size_bytes // 1024**2} MB" in page
    assert (messages // 2, size_bytes // 2) == (HALF_QUEUE_MESSAGES, HALF_QUEUE_BYTES), "the alert comes before a drop"


def test_a_password_line_holds_a_salted_hash_only() -> None:
    line = broker.password_line("gateway", "secret")
    name, rest = line.rstrip("\n").split(":")
    _, kind, iterations, salt, hashed = rest.split("$")
    assert (name, kind) == ("gateway", "7")
    wanted = hashlib.pbkdf2_hmac("sha512", b"secret", base64.b64decode(salt), int(iterations))
    assert base64.b64decode(hashed) == wanted
    assert broker.password_line("gateway", "secret") != line


def test_the_file_of_iotcore_is_toml_with_every_user_on_both_listeners(tmp_path: Path) -> None:
    part = broker.Iotcore(tmp_path, 1883, port_v5=1884, users=USERS, window=500)
    part.prepare()
    written = tomllib.loads((tmp_path / "rumqttd.toml").read_text(encoding="utf-8"))
    assert (written["v4"]["1"]["listen"], written["v5"]["1"]["listen"]) == ("127.0.0.1:1883", "127.0.0.1:1884")
    for version in ("v4", "v5"):
        assert written[version]["1"]["connections"]["auth"] == USERS
        assert written[version]["1"]["connections"]["max_inflight_count"] == 500
    assert not part.durable


@pytest.mark.parametrize("port_v5", [None, 1883])
def test_iotcore_needs_a_second_port(port_v5: int | None, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="second port"):
        broker.Iotcore(tmp_path, 1883, port_v5=port_v5, users=USERS)


@pytest.mark.parametrize("user", [("a:b", "x"), ("", "x"), ("a", ""), ("a", "x\ny"), ("a\0", "x")])
def test_users_that_a_file_cannot_hold_are_refused(user: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="MQTT user"):
        broker.Mosquitto(tmp_path, 1883, users=dict([user]))


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [(b"\x20\x02\x00\x00", True), (b"\x20\x02\x00\x05", False), (b"", False), (b"HTTP", False)],
)
def test_only_an_accepting_answer_counts(answer: bytes, accepted: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        said = connect_accepted("127.0.0.1", port, level=4, name="a", password="b" * 300, timeout=5)
        thread.join()
    assert said is accepted


def test_no_look_at_a_broker_uses_the_client_id_of_an_earlier_one() -> None:
    """rumqttd shuts its listener for good where a client that gave up before its CONNACK comes again."""
    packets: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    packets.append(connection.recv(1024))

        thread = threading.Thread(target=serve)
        thread.start()
        for _ in range(2):
            port = server.getsockname()[1]
            assert not connect_accepted("127.0.0.1", port, level=4, name="a", password="b", timeout=5)
        thread.join()
    assert len(packets[0]) == len(packets[1]) > 20
    assert packets[0] != packets[1]


def test_nobody_on_the_port_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert not connect_accepted("127.0.0.1", port, level=5, name="a", password="b", timeout=5)
