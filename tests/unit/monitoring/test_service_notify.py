"""Messages to systemd: ready first, signs of life while the process is alive, a stop at the end, and nothing without systemd."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from monitoring.service_notify import notify_service_manager


class Manager:
    """The receiving end, as systemd has it."""

    def __init__(self, name: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name)
        self.socket.settimeout(10)
        self.environ = {"NOTIFY_SOCKET": name.replace("\0", "@"), "WATCHDOG_USEC": "60000"}

    def next(self) -> list[str]:
        return self.socket.recv(4096).decode().splitlines()


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, unique_name: str) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify") if request.param == "file" else f"\0{unique_name}")
    yield made
    made.socket.close()


def test_a_process_is_ready_lives_and_stops(manager: Manager) -> None:
    with notify_service_manager(lambda: (False, "waiting for\nKafka"), environ=manager.environ):
        assert manager.next() == ["READY=1", "WATCHDOG=1", "STATUS=waiting for Kafka"]
        for _ in range(3):
            assert manager.next() == ["WATCHDOG=1", "STATUS=waiting for Kafka"]
    while (last := manager.next()) != ["STOPPING=1"]:
        assert "READY=1" not in last


def test_a_process_that_only_a_restart_helps_gives_no_sign_of_life(manager: Manager) -> None:
    alive = [True]
    with notify_service_manager(lambda: (True, "well"), lambda: alive[0], environ=manager.environ):
        assert "WATCHDOG=1" in manager.next()
        alive[0] = False
        manager.next()  # may have been under way
        assert manager.next() == ["STATUS=well"]


@pytest.mark.parametrize(
    "more", [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}], ids=["another", "text", "none"]
)
def test_without_a_watchdog_there_is_only_the_state(manager: Manager, more: dict[str, str]) -> None:
    with notify_service_manager(lambda: (True, "well"), environ=manager.environ | more):
        assert manager.next() == ["READY=1", "STATUS=well"]


@pytest.mark.parametrize(
    "environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}, {"NOTIFY_SOCKET": "/away"}]
)
def test_nobody_to_notify_is_no_fault(environ: dict[str, str], wait_until: Callable[..., Any]) -> None:
    asked = []

    def healthy() -> tuple[bool, str]:
        asked.append(os.getpid())
        return True, "well"

    with notify_service_manager(healthy, environ=environ):
        if environ.get("NOTIFY_SOCKET") == "/away":
            wait_until(lambda: asked, what="the question")
    assert bool(asked) == (environ.get("NOTIFY_SOCKET") == "/away")
