"""Three ZooKeepers of a test bed: they know each other, are counted, keep their ports, and go by name."""

import os
from pathlib import Path

import pytest

from deploy.cli import run
from deploy.commands.cluster import cluster_state, status_lines
from deploy.testbed.budget import ZOOKEEPER_MB, ClusterBudget, check_budget
from deploy.testbed.cluster import KafkaCluster
from deploy.testbed.cluster_layout import ClusterRequest, new_layout
from deploy.testbed.node import node_profile
from deploy.testbed.server_process import ProcessIdentity

CERTIFICATES = Path("/test bed/certificates")


def test_three_brokers_get_three_zookeepers_that_know_each_other(tmp_path: Path) -> None:
    layout = new_layout(ClusterRequest(brokers=3, mode="zookeeper"))
    names = ["zookeeper-1", "zookeeper-2", "zookeeper-3"]
    assert list(layout.zookeepers) == names
    assert len({port for ports in layout.ports.values() for port in ports.values()}) == 3 * 4 + 3 * 3
    layout.write(tmp_path)
    cluster = KafkaCluster.attach(tmp_path)
    assert [keeper.server_id for keeper in cluster.zookeepers] == names
    texts = [keeper._properties() for keeper in cluster.zookeepers]
    for number, name in enumerate(names, start=1):
        ports = layout.ports[name]
        line = f"server.{number}=127.0.0.1:{ports['peer']}:{ports['election']}"
        assert all(line in text.splitlines() for text in texts)
    connect = node_profile(layout, 2, CERTIFICATES).properties["zookeeper.connect"]
    assert connect == ",".join(keeper.address for keeper in cluster.zookeepers) == cluster.zookeepers.connect
    assert [line.split()[0] for line in status_lines(cluster_state(cluster))[1:4]] == names


@pytest.mark.parametrize(("brokers", "zookeepers"), [(1, 1), (2, 1), (3, 3), (9, 3)])
def test_the_zookeepers_are_counted_in_the_needs(brokers: int, zookeepers: int) -> None:
    kraft, zookeeper = (ClusterBudget(ClusterRequest(brokers=brokers, mode=mode)) for mode in ("kraft", "zookeeper"))  # type: ignore[arg-type]
    assert zookeeper.memory_mb - kraft.memory_mb == zookeepers * ZOOKEEPER_MB
    line = check_budget(ClusterRequest(brokers=brokers, mode="zookeeper"), Path("/data"), memory_mb=9999, disk_mb=9999)
    assert f" and {zookeepers} ZooKeeper{'s' if zookeepers > 1 else ''} of at most {ZOOKEEPER_MB} MB:" in line


def test_new_ports_keep_the_servers_of_a_bed_that_was_made_with_others() -> None:
    layout = new_layout(ClusterRequest(brokers=3, mode="zookeeper"))
    ports = {name: layout.ports[name] for name in ("1", "2", "3")} | {"zookeeper": {"client": 1}}
    layout.ports = ports
    layout.choose_ports()
    assert layout.ports.keys() == ports.keys()
    assert layout.ports["zookeeper"].keys() == {"client"}


def test_a_zookeeper_is_killed_and_started_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = new_layout(ClusterRequest(brokers=3, mode="zookeeper"))
    layout.processes["zookeeper-2"] = ProcessIdentity(os.getpid(), 0.0)
    layout.write(tmp_path)
    at = ["--data", str(tmp_path)]
    for arguments, code, words in (
        (
            ["kill", "zookeeper-2"],
            69,
            "ZooKeeper 2 is not running. Start it with `tidegate cluster restart zookeeper-2`.",
        ),
        (["restart", "zookeeper-2"], 69, "ZooKeeper 2 and the running ones would not be a majority of 3 ZooKeepers"),
        (["kill", "zookeeper"], 78, "the nodes 1 to 3, zookeeper-1, zookeeper-2, zookeeper-3, not zookeeper; name"),
        (["kill", "4"], 78, "zookeeper-3, not 4; name one of them"),
    ):
        assert run(["cluster", *arguments, *at]) == code
        assert words in capsys.readouterr().err
