"""The test bed before anything starts: its nodes' properties, its needs, its description, and whose process it may end."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.temporary import PREFIX, clear_orphans, sign_folder
from deploy.cli import run
from deploy.commands.cluster import cluster_state, started_lines, status_lines
from deploy.local import artifacts
from deploy.local.java import find_java
from deploy.testbed.budget import NODE_DISK_MB, ClusterBudget, check_budget
from deploy.testbed.cluster import KafkaCluster
from deploy.testbed.cluster_layout import LAYOUT_FILE, ClusterRequest, hold_folder, new_layout, read_layout
from deploy.testbed.node import node_profile
from deploy.testbed.server_process import ProcessIdentity, ServerProcess, find_process, stop_child
from deploy.testbed.zookeeper import ZooKeeper, make_users
from ingest.contract.errors import ConfigError, UnavailableError

CERTIFICATES = Path("/test bed/certificates")


def properties(node_id: int = 1, **wish: Any) -> dict[str, Any]:
    return dict(node_profile(new_layout(ClusterRequest(**wish)), node_id, CERTIFICATES).properties)


@pytest.mark.parametrize(("brokers", "copies", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_topics_have_as_many_copies_as_brokers_allow(brokers: int, copies: int, in_sync: int) -> None:
    found = properties(brokers=brokers)
    assert {value for name, value in found.items() if name.endswith("replication.factor")} == {copies}
    assert found["min.insync.replicas"] == found["transaction.state.log.min.isr"] == in_sync


def test_each_kraft_node_knows_all_voters() -> None:
    layout = new_layout(ClusterRequest(brokers=3))
    found = [node_profile(layout, number, CERTIFICATES).properties for number in (1, 2, 3)]
    assert [one["node.id"] for one in found] == [1, 2, 3]
    (voters,) = {one["controller.quorum.voters"] for one in found}
    assert voters == ",".join(f"{number}@127.0.0.1:{layout.ports[str(number)]['controller']}" for number in (1, 2, 3))
    assert len({port for ports in layout.ports.values() for port in ports.values()}) == 12


def test_a_node_of_zookeeper_mode_has_no_property_of_kraft() -> None:
    found = properties(2, brokers=3, mode="zookeeper")
    assert found["broker.id"] == 2
    assert str(found["zookeeper.connect"]).startswith("127.0.0.1:")
    assert "CONTROLLER" not in str(found["listeners"])
    assert [found[name] for name in ("process.roles", "node.id", "controller.quorum.voters")] == [None] * 3


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_a_secured_node_has_no_listener_in_the_clear(mode: str) -> None:
    found = properties(mode=mode, security="sasl_ssl")
    protocols = dict(pair.split(":") for pair in str(found["listener.security.protocol.map"]).split(","))
    assert protocols.pop("CLIENT") == "SASL_SSL"
    assert set(protocols.values()) == {"SSL"}
    assert found["inter.broker.listener.name"] == "INTERNAL"
    assert found["ssl.client.auth"] == "required"
    assert found["super.users"] == "User:broker;User:admin"
    assert found["ssl.keystore.type"] == found["ssl.truststore.type"] == "PEM"
    assert not [name for name in found if "password" in name], "Kafka accepts none with a PEM store"


@pytest.fixture(scope="module")
def jars_of_zookeeper() -> None:
    """Those of ZooKeeper mode are fetched by the first start alone, and these tests start none."""
    artifacts.fetch_jars("zookeeper", print)


@pytest.mark.usefixtures("jars_of_zookeeper")
@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_a_node_with_tls_alone_asks_nobody_for_a_user(mode: str, tmp_path: Path) -> None:
    found = properties(mode=mode, security="ssl")
    protocols = dict(pair.split(":") for pair in str(found["listener.security.protocol.map"]).split(","))
    assert set(protocols.values()) == {"SSL"}
    assert found["listener.name.client.ssl.client.auth"] == "none"
    assert not [name for name in found if "sasl" in name or name in ("authorizer.class.name", "super.users")]
    layout = new_layout(ClusterRequest(mode=mode, security="ssl"))  # type: ignore[arg-type]
    assert layout.passwords == {}
    assert node_profile(layout, 1, CERTIFICATES).users == {}
    layout.write(tmp_path)
    cluster = KafkaCluster.attach(tmp_path)
    settings = cluster.settings
    assert (settings.security_protocol, settings.sasl_mechanism, settings.sasl_username) == ("SSL", None, None)
    assert settings.ssl_ca_file == str(tmp_path / "certificates" / "ca.pem")
    assert "--command-config" in cluster.tool("org.apache.kafka.tools.TopicCommand")
    lines = "\n".join(started_lines(cluster))
    assert f"{mode}, ssl, not ready" in lines and "holds a password" not in lines


def test_a_description_that_says_secure_is_read_as_it_was_meant(tmp_path: Path) -> None:
    for secure, security in ((True, "sasl_ssl"), (False, "plaintext")):
        layout = new_layout(ClusterRequest(security=security))  # type: ignore[arg-type]
        layout.write(tmp_path)
        file = tmp_path / LAYOUT_FILE
        described = json.loads(file.read_text())
        del described["wish"]["security"]
        described["wish"]["secure"] = secure
        file.write_text(json.dumps(described))
        assert read_layout(tmp_path) == layout


def test_what_the_caller_sets_wins() -> None:
    assert properties(properties={"min.insync.replicas": 1, "num.io.threads": 8}, brokers=3)["min.insync.replicas"] == 1


@given(
    brokers=st.integers(1, 9),
    memory=st.integers(0, 9000),
    disk=st.integers(0, 9000),
    mode=st.sampled_from(["kraft", "zookeeper"]),
)
def test_what_is_said_to_fit_fits_and_one_more_does_not(brokers: int, memory: int, disk: int, mode: Any) -> None:
    wish, folder = ClusterRequest(brokers=brokers, mode=mode), Path("/somewhere")
    fitting = ClusterBudget(wish).fitting(memory, disk)
    if brokers <= fitting:
        line = check_budget(wish, folder, memory_mb=memory, disk_mb=disk)
        assert f"{ClusterBudget(wish).memory_mb} MB of memory" in line
    else:
        with pytest.raises(UnavailableError, match=f"{fitting} broker" if fitting else "not even one broker"):
            check_budget(wish, folder, memory_mb=memory, disk_mb=disk)


def test_too_little_disk_is_named_with_its_folder() -> None:
    with pytest.raises(UnavailableError, match=r"900 MB of disk in /data, but 700 MB are free; 2 brokers would fit"):
        check_budget(ClusterRequest(brokers=3), Path("/data"), memory_mb=90_000, disk_mb=2 * NODE_DISK_MB + 100)


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"brokers": 0}, "1 to 9 brokers, not 0"),
        ({"brokers": 10}, "not 10"),
        ({"mode": "raft"}, "kraft or zookeeper, not raft"),
        ({"security": "tls"}, "plaintext, ssl, sasl_ssl, not tls"),
        ({"heap": "lots"}, "'lots'"),
        ({"heap": "0m"}, "'0m'"),
        ({"heap": ""}, "''"),
    ],
)
def test_what_can_be_no_test_bed_is_a_sentence(wish: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ClusterRequest(**wish)


def test_the_description_is_kept_whole_and_private(tmp_path: Path) -> None:
    layout = new_layout(
        ClusterRequest(brokers=3, security="sasl_ssl", properties={"num.io.threads": 2}, java_options=("-Xss1m",))
    )
    layout.processes["1"] = ProcessIdentity(4711, 12.5)
    layout.write(tmp_path / "bed")
    (file,) = (tmp_path / "bed").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_layout(tmp_path / "bed") == layout
    file.write_text(file.read_text()[:-20])
    assert read_layout(tmp_path / "bed") is None


def test_a_folder_of_another_test_bed_is_refused(tmp_path: Path) -> None:
    new_layout(ClusterRequest(brokers=3, security="sasl_ssl")).write(tmp_path)
    with pytest.raises(ConfigError, match=r"holds another test bed \(3 brokers, kraft, sasl_ssl\)"):
        KafkaCluster(tmp_path, brokers=3)


def test_a_folder_without_a_test_bed_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=f"no test bed in {tmp_path}"):
        KafkaCluster.attach(tmp_path)


def test_clients_of_a_secured_test_bed_get_all_they_need(tmp_path: Path) -> None:
    new_layout(ClusterRequest(security="sasl_ssl")).write(tmp_path)
    cluster = KafkaCluster.attach(tmp_path)
    settings, guest = cluster.settings, cluster.settings_of("guest")
    assert (settings.security_protocol, settings.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert settings.sasl_username == "admin"
    assert guest.sasl_password != settings.sasl_password
    assert settings.ssl_ca_file == str(tmp_path / "certificates" / "ca.pem")
    assert not cluster.nodes[0].alive


@pytest.mark.parametrize(
    ("mode", "why"), [("kraft", "could not prepare"), ("zookeeper", "The ZooKeeper of the test bed ended")]
)
def test_a_start_that_fails_leaves_no_process(
    mode: Any, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "fetch_jars", lambda group, told: None)
    for classpath in ("kafka_classpath", "zookeeper_classpath"):
        monkeypatch.setattr(artifacts, classpath, lambda cache=None: [])
    told: list[str] = []
    cluster = KafkaCluster(tmp_path / "new" / "bed", mode=mode, notify=told.append)
    with pytest.raises(UnavailableError, match=why):
        cluster.start()
    assert "1 broker of at most" in told[0]
    assert not cluster.alive
    assert not KafkaCluster.attach(tmp_path / "new" / "bed").started


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[KafkaCluster]:
    """A cluster of ZooKeeper mode whose processes are programs that hear no SIGTERM."""
    cluster = KafkaCluster(tmp_path / "bed", mode="zookeeper")
    (keeper,) = cluster.zookeepers
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    for name, process in (("1", cluster.nodes[0].process), ("zookeeper", keeper.process)):
        process.spawn([sys.executable, "-c", program])
        cluster._remember(name, process)
    yield cluster
    cluster.stop(0)


def test_a_second_interrupt_while_it_stops_leaves_no_process(
    stubborn: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_deadline: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stubborn, "_wait_for_end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stubborn.stop()
    assert not stubborn.alive
    assert not KafkaCluster.attach(stubborn.folder).started


def test_the_next_run_ends_what_a_killed_one_left_and_nothing_else(stubborn: KafkaCluster, tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    names = ("killed", "runs", "unsigned", "broken", "empty")
    killed, runs, unsigned, broken, empty = folders = [place / f"{PREFIX}{name}" for name in names]
    for folder in folders:
        folder.mkdir(parents=True)
    shutil.copy(stubborn.folder / LAYOUT_FILE, killed)
    sign_folder(runs)
    broken.joinpath("owner.json").write_text("[")
    gone = json.dumps({"pid": 2**22 + 1, "started_at": 1.0})
    for folder in (killed, empty):
        folder.joinpath("owner.json").write_text(gone)
    (place / f"{PREFIX}link").symlink_to(killed)
    assert clear_orphans(place) == [empty, killed]
    assert not stubborn.alive
    assert runs.exists() and unsigned.exists() and broken.exists() and not killed.exists()


@pytest.mark.usefixtures("jars_of_zookeeper")
@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_no_command_line_shows_a_password(mode: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of the machine can read the command line of a process."""
    started, arguments = list[list[str]](), list[str]()

    class Tool(subprocess.Popen[str]):
        def __init__(self, command: list[str], **more: Any) -> None:
            started.append(command)
            file = Path(command[1].removeprefix("@"))
            assert file.stat().st_mode & 0o777 == 0o600
            arguments.append(file.read_text("utf-8"))
            super().__init__([sys.executable, "-c", "raise SystemExit(3)"], **more)

    monkeypatch.setattr(subprocess, "Popen", Tool)
    cluster = KafkaCluster(tmp_path / "bed", mode=mode, security="sasl_ssl")
    (tmp_path / "bed").mkdir()
    with pytest.raises(UnavailableError):
        if mode == "zookeeper":
            make_users(cluster._layout.passwords, "127.0.0.1:1", cluster.nodes[0].part.tool, tmp_path / "bed")
        else:
            cluster.nodes[0].part.prepare()
    passwords = [cluster._layout.passwords[name] for name in ("admin", "guest")]
    assert all(any(password in text for text in arguments) for password in passwords)
    assert not any(password in word for command in started for word in command for password in passwords)
    assert not list(tmp_path.rglob("*.args"))


DUMP = b"""SessionTracker dump:
Session Sets (1)/(1):
1 expire at Sun Nov 29 10:46:48 UTC 2026:
ephemeral nodes dump:
Sessions with Ephemerals (2):
0x1000:
\t/brokers/ids/12
\t/controller
0x1001:
\t/brokers/ids/3
"""


def test_a_broker_is_kept_under_its_whole_number(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(4):
                connection, _ = server.accept()
                with connection:
                    assert connection.recv(4) == b"dump"
                    connection.sendall(DUMP)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        keeper = ZooKeeper(tmp_path, find_java(), {"client": server.getsockname()[1]}, ServerProcess(tmp_path / "log"))
        assert [keeper.keeps(number) for number in (1, 2, 3, 12)] == [False, False, True, True]
        thread.join()
    assert not keeper.keeps(3)
    assert not keeper.ready()


def test_a_server_that_runs_is_not_started_again(tmp_path: Path) -> None:
    """The first process would be nobody's, and stay."""
    process = ServerProcess(tmp_path / "log")
    process.spawn([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        first = process.pid
        with pytest.raises(RuntimeError, match="runs already"):
            process.spawn([sys.executable, "-c", "pass"])
        assert process.pid == first
    finally:
        process.kill()
    process.spawn([sys.executable, "-c", "pass"])
    assert process.wait() == 0


@pytest.fixture
def sleeper(tmp_path: Path, wait_until: Callable[..., Any]) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "log")
    process.spawn([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"])
    wait_until(lambda: process.log() == "up\n", what="the program being loaded")
    yield process
    process.kill()


def test_another_command_ends_what_it_did_not_start(sleeper: ServerProcess, tmp_path: Path) -> None:
    other = ServerProcess(tmp_path / "log", identity=sleeper.identity)
    assert other.alive
    assert other.pid == sleeper.pid
    assert other.resident_mb > 0
    other.end(60)
    assert not other.alive
    assert not sleeper.alive
    assert sleeper.pid is None


def test_a_process_with_the_same_id_and_another_start_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as stranger:
        try:
            reused = ServerProcess(tmp_path / "log", identity=ProcessIdentity(stranger.pid, 12345.0))
            assert not reused.alive
            reused.kill()
            reused.end(1)
            # What was sent to it before is delivered first.
            stop_child(stranger.pid)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_process_that_is_gone_is_not_found() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert find_process(ProcessIdentity(ended.pid, 0.0)) is None
    assert find_process(ProcessIdentity(os.getpid(), 0.0)) is None


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["status"], 69, "There is no test bed in"),
        (["down"], 69, "There is no test bed in"),
        (["down", "--remove"], 69, "There is no test bed in"),
        (["kill", "1"], 69, "There is no test bed in"),
        (["restart", "1"], 69, "There is no test bed in"),
        (["up", "--brokers", "0"], 78, "1 to 9 brokers, not 0"),
        (["up", "--heap", "big"], 78, "'big'"),
        (["up", "--brokers", "9", "--heap", "900g"], 69, "not even one broker would fit"),
    ],
)
def test_a_command_that_cannot_work_says_why(
    arguments: list[str], code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", *arguments, "--data", str(tmp_path / "none")]) == code
    assert words in capsys.readouterr().err


def test_a_command_waits_for_no_other_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new_layout(ClusterRequest(brokers=1)).write(tmp_path)
    with hold_folder(tmp_path):
        assert run(["cluster", "down", "--remove", "--data", str(tmp_path)]) == 1
    assert "Another command is changing the cluster" in capsys.readouterr().err
    assert run(["cluster", "down", "--data", str(tmp_path)]) == 69
    assert "No server of the cluster" in capsys.readouterr().err


def test_a_node_that_would_be_alone_is_not_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = new_layout(ClusterRequest(brokers=3))
    layout.processes["2"] = ProcessIdentity(os.getpid(), 0.0)
    layout.write(tmp_path)
    assert run(["cluster", "restart", "2", "--data", str(tmp_path)]) == 69
    assert "not be a majority of 3 nodes" in capsys.readouterr().err
    assert run(["cluster", "kill", "2", "--data", str(tmp_path)]) == 69
    assert "Node 2 is not running" in capsys.readouterr().err
    assert run(["cluster", "kill", "4", "--data", str(tmp_path)]) == 78
    assert run(["cluster", "status", "--data", str(tmp_path)]) == 1


@pytest.mark.parametrize(
    "name", ["tidegate.toml", "client.properties", "certificates", "node-1", "zookeeper", LAYOUT_FILE]
)
def test_files_of_somebody_else_are_not_written_over(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("mine")
    assert run(["cluster", "up", "--brokers", "1", "--data", str(tmp_path)]) == 78
    assert f"holds {name}, but not a test bed" in capsys.readouterr().err
    assert [(place.name, place.read_text()) for place in tmp_path.iterdir()] == [(name, "mine")]


def test_what_is_removed_is_the_test_beds_own(tmp_path: Path) -> None:
    folder = tmp_path / "bed"
    new_layout(ClusterRequest(brokers=2)).write(folder)
    (folder / "node-2").mkdir()
    (folder / "my notes").touch()
    assert run(["cluster", "down", "--remove", "--data", str(folder)]) == 0
    assert [path.name for path in folder.iterdir()] == ["my notes"]


def test_the_state_is_told_in_words_and_names_no_password(tmp_path: Path) -> None:
    layout = new_layout(ClusterRequest(brokers=2, security="sasl_ssl", mode="zookeeper"))
    layout.write(tmp_path)
    cluster = KafkaCluster.attach(tmp_path)
    state = cluster_state(cluster)
    assert not state["ready"]
    text = json.dumps(state) + "\n".join(started_lines(cluster))
    assert not [password for password in layout.passwords.values() if password in text]
    lines = status_lines(state)
    assert lines[0] == "zookeeper, sasl_ssl, not ready"
    assert [line.split()[0] for line in lines[1:]] == ["zookeeper", "node", "node"]
    assert all("down, see" in line for line in lines[1:])
