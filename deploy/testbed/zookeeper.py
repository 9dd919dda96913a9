"""ZooKeepers of a Kafka in ZooKeeper mode: the servers, their ensemble, and the users of the cluster.

Each server has its own folder. The ensemble starts and stops them, and finds their leader and the brokers that they take for
alive.
"""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Final

from deploy.local import artifacts
from deploy.local.java import Java
from deploy.local.kafka_java import java_command, last_error, private_command, property_lines, write_log_settings
from deploy.testbed.cluster_layout import HOST, ClusterLayout
from deploy.testbed.node import READY_SECONDS, wait_for_server
from deploy.testbed.server_process import ServerProcess
from ingest.contract.errors import UnavailableError

__all__ = ["ZooKeeper", "ZooKeeperEnsemble", "make_users"]

HEAP: Final = "128m"
TICK_MS: Final = 2000
INIT_TICKS: Final = 10
"""Most ticks until a server follows its leader at the start."""
SYNC_TICKS: Final = 2
"""Ticks without an answer after which a follower, or a leader without a majority, gives up: 4 s."""


class ZooKeeper:
    """One ZooKeeper server. It knows the brokers of the cluster, and which of them is the controller.

    Args:
        data_dir: folder of this server alone.
        java: the Java that runs it.
        ports: port by listener: `client`, and in an ensemble also `peer` and `election`.
        process: its process, which may not run yet.
        server_id: `zookeeper`, or in an ensemble a name such as `zookeeper-2`.
        voters: `HOST:PEER:ELECTION` of each server of the ensemble by number; empty for a single server.
    """

    def __init__(
        self,
        data_dir: Path,
        java: Java,
        ports: Mapping[str, int],
        process: ServerProcess,
        *,
        server_id: str = "zookeeper",
        voters: Mapping[int, str] | None = None,
    ) -> None:
        self.port = ports["client"]
        self.process = process
        self.server_id = server_id
        self._folder, self._java, self._voters = data_dir, java, dict(voters or {})

    @property
    def name(self) -> str:
        """Name for people."""
        return f"ZooKeeper {self._number}" if self._voters else "The ZooKeeper"

    @property
    def address(self) -> str:
        """Address that brokers connect to."""
        return f"{HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        """Log file."""
        return self._folder / "logs" / "server.log"

    @property
    def alive(self) -> bool:
        """True if its process runs."""
        return self.process.alive

    def last_log_lines(self) -> str:
        """Return the last error of its log."""
        return last_error(self.log_file)

    def spawn(self) -> None:
        """Start it with its data, and return before it answers."""
        log_settings, properties = self._folder / "log4j2.yaml", self._folder / "zoo.properties"
        write_log_settings(log_settings, self.log_file.parent)
        properties.write_text(self._properties(), encoding="utf-8")
        if self._voters:
            self._records.mkdir(exist_ok=True)
            (self._records / "myid").write_text(f"{self._number}\n", encoding="utf-8")
        command = java_command(self._java, artifacts.zookeeper_classpath(), log_settings=log_settings)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.process.spawn([*command, f"-Xmx{HEAP}", "-XX:+ExitOnOutOfMemoryError", main, str(properties)])

    def ready(self) -> bool:
        """Return whether it serves requests: alone, or with a majority of its ensemble."""
        return bool(self.role())

    def role(self) -> str:
        """Return `leader`, `follower` or `standalone`; empty if it does not serve requests."""
        lines = self._ask(b"srvr").decode("utf-8", "replace").splitlines()
        return next((line.partition(": ")[2] for line in lines if line.startswith("Mode: ")), "")

    def keeps(self, broker_id: int) -> bool:
        """Return whether it takes this broker for alive: after a kill, until the broker's session has expired."""
        return f"/brokers/ids/{broker_id}".encode() in self._ask(b"dump").split()

    @property
    def _number(self) -> int:
        return int(self.server_id.rpartition("-")[2])

    @property
    def _records(self) -> Path:
        return self._folder / "records"

    def _ask(self, word: bytes) -> bytes:
        """Return the answer to a four-letter command; empty without an answer."""
        answer = b""
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=1.0) as connection:
            connection.sendall(word)
            while piece := connection.recv(65536):
                answer += piece
        return answer

    def _properties(self) -> str:
        ensemble: dict[str, str | int] = {f"server.{number}": voter for number, voter in self._voters.items()}
        if self._voters:
            ensemble |= {"initLimit": INIT_TICKS, "syncLimit": SYNC_TICKS}
        return property_lines(
            {
                "dataDir": str(self._records),
                "clientPort": self.port,
                "clientPortAddress": HOST,
                "tickTime": TICK_MS,
                "maxClientCnxns": 0,
                "admin.enableServer": "false",
                "4lw.commands.whitelist": "srvr,dump",
                "autopurge.purgeInterval": 24,
                "autopurge.snapRetainCount": 3,
                **ensemble,
            }
        )


class ZooKeeperEnsemble:
    """One ZooKeeper, or three of which one may fail; none for a KRaft cluster.

    Args:
        folder: folder of the test bed.
        layout: layout of the test bed.
        java: the Java that runs them.
        started: called with name and process of each server that was started.
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
        """True if at least one server runs."""
        return any(one.alive for one in self)

    @property
    def majority(self) -> int:
        """Number of servers that must run; with fewer, none of them answers."""
        return len(self.servers) // 2 + 1

    @property
    def serves(self) -> bool:
        """True if a majority runs, or if the cluster needs no ZooKeeper."""
        return not self.servers or sum(one.alive for one in self) >= self.majority

    def start(self) -> None:
        """Start the servers that do not run, and wait until each of them answers.

        Raises:
            UnavailableError: a server did not start.
        """
        fresh = [one for one in self if not one.alive]
        for one in fresh:
            one.spawn()
            self._started(one.server_id, one.process)
        deadline = time.monotonic() + READY_SECONDS
        for one in fresh:
            wait_for_server(one, one.ready, deadline)

    def restart(self, server: ZooKeeper) -> None:
        """Restart one server with its data, and wait until it answers.

        Raises:
            UnavailableError: it did not start.
        """
        server.spawn()
        self._started(server.server_id, server.process)
        wait_for_server(server, server.ready, time.monotonic() + READY_SECONDS)

    def leader(self) -> ZooKeeper | None:
        """Return the leader, or the single server; None during an election."""
        return next((one for one in self if one.alive and one.role() in ("leader", "standalone")), None)

    def wait_until_gone(self, broker_id: int) -> None:
        """Wait until the session of a killed broker has expired: before that, a new broker with this number ends at once.

        Raises:
            UnavailableError: it takes too long.
        """
        leader = self.leader()
        if leader is not None:
            wait_for_server(leader, lambda: not leader.keeps(broker_id), time.monotonic() + READY_SECONDS)

    def end(self, seconds: float) -> None:
        """Ask each server to end, and kill those that still run after `seconds`."""
        for one in self:
            one.process.end(seconds)


def make_users(passwords: Mapping[str, str], connect: str, tool: Callable[..., list[str]], folder: Path) -> None:
    """Write these users to ZooKeeper before the first broker starts. In KRaft mode, the format of the data folder does this.

    Args:
        passwords: password by user name.
        connect: addresses of the ZooKeepers.
        tool: returns the command of one of Kafka's own tools.
        folder: folder for private files with arguments, which are removed afterwards.

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
