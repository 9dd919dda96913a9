"""The command `tidegate chaos`, and the proxy that it makes links bad with."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run
from deploy.local.broker import find_mosquitto

NAMES = {"fault", "seed", "lost", "duplicate", "reordered", "unexplained", "recovery_s"}


def test_the_list_names_each_fault_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chaos", "ls", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    numbers = [one["fault"] for one in listed["faults"]] + [one["fault"] for one in listed["skipped"]]
    assert len(set(numbers)) == len(numbers)
    gateway = {f"F{n}" for n in (*range(1, 21), 23, 24, 42, 43, 46, 47, 48, 50, 51)}
    assert gateway <= set(numbers)


def test_a_fault_that_is_tried_elsewhere_is_skipped_and_an_unknown_one_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.chaos.run.open_kafka", lambda folder: pytest.fail("nothing is to be started"))
    assert run(["chaos", "run", "--fault", "f18", "--json"]) == 0
    [skipped] = json.loads(capsys.readouterr().out)["skipped"]
    assert skipped["fault"] == "F18"
    assert "test_gateway_faults_kafka.py" in skipped["why"]
    assert run(["chaos", "run", "--fault", "F99"]) == 2
    assert "Unknown fault F99" in capsys.readouterr().err


@pytest.mark.durable_broker
def test_a_run_accounts_for_every_message(
    kafka_server: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not on this machine")

    @contextmanager
    def borrowed(folder: Path) -> Iterator[Any]:
        folder.mkdir(parents=True)
        yield kafka_server

    monkeypatch.setattr("deploy.chaos.run.open_kafka", borrowed)
    monkeypatch.setattr("deploy.chaos.run.CALM_SECONDS", 0.3)
    folder = tmp_path / "kept"
    arguments = ["--fault", "F13", "--fault", "F2", "--seconds", "1", "--rate", "100", "--seed", "7"]
    assert run(["chaos", "run", *arguments, "--keep", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["fault"] for one in found["skipped"]] == ["F2"]
    assert [one["protocol"] for one in found["runs"]] == ["5", "3.1.1"]
    for one in found["runs"]:
        assert one.keys() >= NAMES
        assert (one["fault"], one["seed"], one["connections"]) == ("F13", 7, 1)
        assert one["stored"] == one["sent"] > 50
        assert one["peak_rss_mb"] > 10
    assert list((folder / "F13").glob("*/gateway.log"))


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that says what it hears."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(sock: socket.socket) -> None:
        with sock:
            try:
                while data := sock.recv(65536):
                    sock.sendall(data)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def say(sock: socket.socket, text: bytes) -> bytes:
    sock.sendall(text)
    heard = b""
    while len(heard) < len(text) and (more := sock.recv(65536)):
        heard += more
    return heard


def test_a_link_carries_everything_and_then_what_it_is_told_to(echo: int, new_proxy: Callable[[int], Any]) -> None:
    proxy = new_proxy(echo)

    def connect() -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", proxy.port))
        sock.settimeout(5.0)
        return sock

    with connect() as sock:
        large = bytes(range(256)) * 2000
        assert say(sock, large) == large
        proxy.bytes_per_second, proxy.delay_seconds = 20_000, (0.0, 0.02)
        assert say(sock, b"slowly" * 500) == b"slowly" * 500, "in order, nothing left out"
        proxy.bytes_per_second, proxy.delay_seconds = 0, (0.0, 0.0)
        proxy.silence()
        sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            say(sock, b"anybody there?")
        proxy.restore(forget=False)
        sock.settimeout(5.0)
        assert sock.recv(100) == b"anybody there?"
        assert proxy.reset() == 1
        with pytest.raises(ConnectionResetError):
            say(sock, b"x")
    with connect() as sock:
        assert say(sock, b"again") == b"again"
        proxy.half_open()
        sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            say(sock, b"nobody told us")
    assert proxy.connections == 2
