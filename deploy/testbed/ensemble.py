"""The ZooKeepers of a test bed together: started, asked for their leader and for the brokers that they hold for alive."""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from deploy.local.java import Java
from deploy.local.kafka_java import private_command
from deploy.testbed.cluster_layout import HOST, ClusterLayout
from deploy.testbed.node import READY_SECONDS, wait_for_server
from deploy.testbed.server_process import ServerProcess
from deploy.testbed.zookeeper import ZooKeeper
from ingest.contract.errors import UnavailableError

__all__ = ["ZooKeeperEnsemble", "make_users"]


class ZooKeeperEnsemble:
    """One ZooKeeper, or three that go on when one dies; none of a KRaft cluster.

    Args:
        folder: of the test bed.
        layout: of the test bed.
        java: that runs them.
        started: is called with the name and the process of each that was started.
    """

    def __init__(
        self, folder: Path, layout: ClusterLayout, java: Java, started: Callable[[str, ServerProcess], None]
    ) -> None:
        names = layout.zookeepers
        voters = {
            number: f"{HOST}:{ports['peer']}:{ports['election']}"
            for number, ports in enumerate(names.values(), start=1)
            if "peer" in ports
        }
        self._started = started
        self.connect = layout.zookeeper_connect
        self.servers = tuple(
            ZooKeeper(
                folder / name, java, ports,
                ServerProcess(folder / name / "stdout.log", identity=layout.processes.get(name)),
                server_id=name, voters=voters,
            )
            for name, ports in names.items()
        )  # fmt: skip

    def __iter__(self) -> Iterator[ZooKeeper]:
        return iter(self.servers)

    @property
    def alive(self) -> bool:
        """True if any of them runs."""
        return any(one.alive for one in self)

    @property
    def majority(self) -> int:
        """Number that must run; with fewer none answers."""
        return len(self.servers) // 2 + 1

    @property
    def serves(self) -> bool:
        """True if enough of them run."""
        return not self.servers or sum(one.alive for one in self) >= self.majority

    def start(self) -> None:
        """Start those that do not run, and wait until each of them answers.

        Raises:
            UnavailableError: one did not start.
        """
        fresh = [one for one in self if not one.alive]
        for one in fresh:
            one.spawn()
            self._started(one.server_id, one.process)
        deadline = time.monotonic() + READY_SECONDS
        for one in fresh:
            wait_for_server(one, one.ready, deadline)

    def restart(self, server: ZooKeeper) -> None:
        """Start one again on its data, and wait until it answers.

        Raises:
            UnavailableError: it did not start.
        """
        server.spawn()
        self._started(server.server_id, server.process)
        wait_for_server(server, server.ready, time.monotonic() + READY_SECONDS)

    def leader(self) -> ZooKeeper | None:
        """The one that leads, or the only one; None while there is none."""
        return next((one for one in self if one.alive and one.role() in ("leader", "standalone")), None)

    def wait_without(self, broker_id: int) -> None:
        """Wait until the session of a killed broker has run out: before that, a new one of its number ends at once.

        Raises:
            UnavailableError: it takes too long.
        """
        leader = self.leader()
        if leader is not None:
            wait_for_server(leader, lambda: not leader.keeps(broker_id), time.monotonic() + READY_SECONDS)

    def end(self, seconds: float) -> None:
        """Ask each to end, and kill it where it still runs after some seconds."""
        for one in self:
            one.process.end(seconds)


def make_users(passwords: Mapping[str, str], connect: str, tool: Callable[..., list[str]], folder: Path) -> None:
    """Give ZooKeeper these users, as KRaft's format does: a broker of ZooKeeper mode knows no user before.

    Args:
        passwords: by name.
        connect: addresses of the ZooKeepers.
        tool: says how to start one of Kafka's own tools.
        folder: for files with arguments, which are private and removed.

    Raises:
        UnavailableError: Kafka's tool failed.
    """

    def command(name: str) -> AbstractContextManager[list[str]]:
        words = tool(
            "kafka.admin.ConfigCommand", "--zookeeper", connect, "--alter", "--entity-type", "users",
            "--entity-name", name, "--add-config", f"SCRAM-SHA-512=[password={passwords[name]}]",
        )  # fmt: skip
        return private_command(words, folder / f"user-{name}.args")

    with ExitStack() as parts:
        commands = [parts.enter_context(command(name)) for name in passwords]
        tools = [
            subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
            )
            for words in commands
        ]
        for one in tools:
            said, _ = one.communicate()
            if one.returncode:
                message = f"Kafka's tool could not create the users of the test bed: {said[-300:]}"
                raise UnavailableError(message)
