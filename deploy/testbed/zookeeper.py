"""One ZooKeeper of a Kafka in ZooKeeper mode: alone or one of three, its files under one folder."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from deploy.local import artifacts
from deploy.local.java import Java
from deploy.local.kafka_java import java_command, last_error, property_lines, write_log_settings
from deploy.testbed.cluster_layout import HOST
from deploy.testbed.server_process import ServerProcess

__all__ = ["ZooKeeper"]

HEAP: Final = "128m"
TICK_MS: Final = 2000
INIT_TICKS: Final = 10
"""Ticks that a server may take to follow its leader at the start."""
SYNC_TICKS: Final = 2
"""Ticks without an answer after which a follower, or a leader without a majority, gives up: 4 s."""


class ZooKeeper:
    """Keeps which brokers there are and which of them is the controller.

    Args:
        data_dir: its own.
        java: that runs it.
        ports: by listener: `client`, and in an ensemble `peer` and `election`.
        process: that runs, or will.
        server_id: `zookeeper`, or `zookeeper-2` of an ensemble.
        voters: `HOST:PEER:ELECTION` of each server of the ensemble by number; empty of a single one.
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

    def last_words(self) -> str:
        """The last error in its log."""
        return last_error(self.log_file)

    def spawn(self) -> None:
        """Start it on the data that it has; returns before it answers."""
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
        """`leader`, `follower` or `standalone`; empty where it does not serve."""
        lines = self._ask(b"srvr").decode("utf-8", "replace").splitlines()
        return next((line.partition(": ")[2] for line in lines if line.startswith("Mode: ")), "")

    def keeps(self, broker_id: int) -> bool:
        """Return whether it counts this broker as alive: after a kill until the session of the broker has expired."""
        return f"/brokers/ids/{broker_id}".encode() in self._ask(b"dump").split()

    @property
    def _number(self) -> int:
        return int(self.server_id.rpartition("-")[2])

    @property
    def _records(self) -> Path:
        return self._folder / "records"

    def _ask(self, word: bytes) -> bytes:
        """The answer to one of its four-letter words; empty where none comes."""
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
