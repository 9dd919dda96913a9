"""Which port a part gets when the wanted one is taken."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import ports
from ingest.contract.errors import UnavailableError


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        yield server.getsockname()[1]


def test_a_free_port_is_taken_without_a_word() -> None:
    port, _ = ports.choose_port(0)
    assert ports.choose_port(port) == (port, "")


def test_a_taken_port_gives_way_to_a_later_one_and_its_owner_is_named(taken: int) -> None:
    port, note = ports.choose_port(taken)
    assert taken < port < taken + ports.TRIED
    assert f"port {taken} is taken" in note
    assert f"pid {os.getpid()}" in note
    assert str(port) in note


def test_zero_asks_for_any_port() -> None:
    port, note = ports.choose_port(0)
    assert port > 0
    assert note == ""


def test_any_port_is_none_that_the_system_gives_to_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "SYSTEM_RANGE", told)
    for text, lowest in (("25000\t60999\n", 25_000), ("nonsense", ports.USUAL_SYSTEM_LOWEST), (None, 32_768)):
        told.unlink(missing_ok=True) if text is None else told.write_text(text)
        assert all(ports.LOWEST <= ports.choose_port(0)[0] < lowest for _ in range(20))
    told.write_text("1024\t65535\n")
    assert ports.choose_port(0)[0] > 0, "a system that gives away nearly all is asked for one"


def test_any_port_is_one_on_which_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter([5, 7, 9])
    monkeypatch.setattr(ports.secrets, "randbelow", lambda room: next(numbers))
    monkeypatch.setattr(ports, "_given", set())
    monkeypatch.setattr(ports, "is_free", lambda port, host: port == ports.LOWEST + 9)
    assert ports.choose_port(0) == (ports.LOWEST + 9, "")


def test_any_port_is_another_one_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens on the first one yet: a Kafka with two ports that are one does not start."""
    numbers = iter([5, 5, 7])
    monkeypatch.setattr(ports, "_given", set())
    monkeypatch.setattr(ports.secrets, "randbelow", lambda room: next(numbers))
    monkeypatch.setattr(ports, "is_free", lambda port, host: True)
    assert [ports.choose_port(0)[0] - ports.LOWEST for _ in range(2)] == [5, 7]


def test_ports_promised_to_other_parts_are_left_alone() -> None:
    first, _ = ports.choose_port(0)
    second, note = ports.choose_port(first, taken=[first])
    assert second != first
    assert "another part" in note


def test_an_unknown_owner_is_not_made_up(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "owner_of", lambda port: None)
    assert "another process" in ports.choose_port(taken)[1]


def test_no_free_port_is_one_sentence_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port, host: False)
    with pytest.raises(UnavailableError, match=r"No port from 1883 to 2082 is free on 127\.0\.0\.1.*--port-offset"):
        ports.choose_port(1883)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(UnavailableError, match="Use an address of this machine"):
        ports.choose_port(18830, "192.0.2.1")
