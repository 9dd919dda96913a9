"""The embedded Kafka's files, and which node is taken for it."""

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deploy.local import artifacts, jmx
from deploy.local.java import Java
from deploy.local.kafka import EmbeddedKafka, cluster_id
from ingest.contract.errors import ConfigError

JAVA = Java(Path("/java"), Path("/java/bin/java"), (17, 0, 9), False, "test")


def text(value: bytes | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value


def metadata(cluster: bytes, *, correlation: int = 1) -> bytes:
    broker = struct.pack(">i", 1) + text(b"127.0.0.1") + struct.pack(">i", 9092) + text(None)
    body = struct.pack(">ii", correlation, 1) + broker + text(cluster) + struct.pack(">ii", 1, 0)
    return struct.pack(">i", len(body)) + body


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], int]]:
    """A server that gives one answer; its port."""
    threads = []

    def start(answer: bytes) -> int:
        server = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            with closing(server):
                connection, _ = server.accept()
                with connection:
                    connection.recv(1024)
                    connection.sendall(answer)

        threads.append(threading.Thread(target=serve, daemon=True))
        threads[-1].start()
        return int(server.getsockname()[1])

    yield start
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(("cluster", "ready"), [(b"ours", True), (b"theirs", False)])
def test_another_kafka_on_the_port_is_not_taken_for_ours(
    cluster: bytes, ready: bool, tmp_path: Path, answering: Callable[[bytes], int]
) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "meta.properties").write_text("#\nversion=1\ncluster.id=ours\nnode.id=1\n")
    assert EmbeddedKafka(tmp_path, JAVA, answering(metadata(cluster)), 1).ready(timeout=5) is ready


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        metadata(b"ours", correlation=2),
        metadata(b"ours")[:-20],
        struct.pack(">iii", 12, 1, 9) + b"\0" * 4,
        struct.pack(">iiii", 12, 1, 0, -1),
    ],
)
def test_half_an_answer_and_another_protocol_are_no_answer(answer: bytes, answering: Callable[[bytes], int]) -> None:
    with socket.create_connection(("127.0.0.1", answering(answer)), timeout=5) as connection:
        found: Any = None
        try:
            found = cluster_id(connection)
        except (OSError, ValueError):
            found = None
    assert not found


def test_a_folder_with_any_letters_is_written_as_java_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "josé 🌊 \\ ü"
    (folder / "records").mkdir(parents=True)
    (folder / "records" / "meta.properties").touch()
    part = EmbeddedKafka(folder, JAVA, 1, 2)
    part.prepare()
    raw = (folder / "server.properties").read_bytes()
    assert raw.isascii()
    escaped = next(line for line in raw.decode().splitlines() if line.startswith("log.dirs="))
    assert escaped.endswith("/jos\\u00e9 \\ud83c\\udf0a \\\\ \\u00fc/records")
    assert "josé 🌊" in (folder / "log4j2.yaml").read_text("utf-8")
    monkeypatch.setattr(artifacts, "kafka_classpath", lambda cache: [])
    assert all(argument.isascii() for argument in part.command() if argument.startswith("-Dlog4j2"))


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({}, {"LC_ALL": "C.UTF-8"}), ({"LANG": "C"}, {"LC_ALL": "C.UTF-8"}), ({"LANG": "de_DE.UTF-8"}, {})],
)
def test_java_is_started_in_a_locale_that_knows_all_letters(
    environment: dict[str, str], wanted: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert EmbeddedKafka(tmp_path, JAVA, 1, 2).env() == wanted


def test_its_libraries_unpack_themselves_into_the_runs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "kafka_classpath", lambda cache: [])
    part = EmbeddedKafka(tmp_path, JAVA, 1, 2, temporary=tmp_path / "tmp")
    wanted = f"-Djava.io.tmpdir={tmp_path}/tmp"
    assert wanted in part.command()
    assert wanted in part.tool("kafka.tools.StorageTool")


def test_a_folder_that_kafka_would_take_for_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="comma"):
        EmbeddedKafka(tmp_path / "a, b", JAVA, 1, 2)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which nothing but the agent is."""
    monkeypatch.setattr(artifacts, "kafka_classpath", lambda cache: [])
    jar = artifacts.jmx_agent(tmp_path / "cache")
    jar.parent.mkdir()
    jar.touch()
    return jar


def agents(command: list[str]) -> list[str]:
    return [argument for argument in command if argument.startswith("-javaagent")]


def test_only_the_node_itself_loads_the_agent(agent: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    part = EmbeddedKafka(tmp_path, JAVA, 1, 2, cache=agent.parent, jmx=("127.0.0.1", port))
    wanted = f"-javaagent:{agent}=127.0.0.1:{port}:{jmx.KAFKA_RULES}"
    assert agents(part.command()) == [wanted]
    assert agents(part.tool("kafka.tools.StorageTool")) == []
    assert agents(EmbeddedKafka(tmp_path, JAVA, 1, 2, cache=agent.parent).command()) == []


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda agent: agent.unlink(), "is not in .* run `make setup`"),
        (lambda agent: agent.parent.rename(agent.parent.with_name("a=b")), "`=` in its name"),
    ],
)
def test_without_its_agent_kafka_starts_all_the_same_and_says_so(
    spoil: Callable[[Path], Any], why: str, agent: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(agent)
    cache = next(path for path in (tmp_path / "a=b", agent.parent) if path.exists())
    part = EmbeddedKafka(tmp_path, JAVA, 1, 2, cache=cache, jmx=("127.0.0.1", 0))
    assert agents(part.command()) == []
    assert re.search(f"Kafka starts without metrics of its JVM: .*{why}", caplog.text)
