"""The ZooKeeper of a Kafka in ZooKeeper mode: one server, its files under one folder."""

import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from deploy.local import artifacts
from deploy.local.java import Java
from deploy.local.kafka_java import java_command, last_error, property_lines, write_log_settings
from deploy.testbed.layout import HOST
from deploy.testbed.process import ServerProcess

__all__ = ["ZooKeeper"]

HEAP: Final = "128m"
TICK_MS: Final = 2000


class ZooKeeper:
    """Keeps which brokers there are and which of them leads; `data_dir` is its own."""

    name = "The ZooKeeper"

    def __init__(self, data_dir: Path, java: Java, port: int, process: ServerProcess) -> None:
        self.port = port
        self.process = process
        self._folder, self._java = data_dir, java

    @property
    def address(self) -> str:
        """What brokers connect to."""
        return f"{HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        """Its log."""
        return self._folder / "logs" / "server.log"

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process.alive

    def last_words(self) -> str:
        """The last error in its log."""
        return last_error(self.log_file)

    def spawn(self) -> None:
        """Start it on the data that it has; returns before it answers."""
        log_settings, properties = self._folder / "log4j2.yaml", self._folder / "zoo.properties"
        write_log_settings(log_settings, self.log_file.parent)
        properties.write_text(self._properties(), encoding="utf-8")
        command = java_command(self._java, artifacts.zookeeper_classpath(), log_settings=log_settings)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.process.spawn([*command, f"-Xmx{HEAP}", "-XX:+ExitOnOutOfMemoryError", main, str(properties)])

    def ready(self) -> bool:
        """Whether it serves requests."""
        return self._ask(b"srvr").startswith(b"Zookeeper version")

    def keeps(self, broker_id: int) -> bool:
        """Whether it holds a broker of this number for alive: after a kill until the session of that broker has run out."""
        return f"/brokers/ids/{broker_id}".encode() in self._ask(b"dump").split()

    def _ask(self, word: bytes) -> bytes:
        """The answer to one of its four-letter words; empty where none comes."""
        answer = b""
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=1.0) as connection:
            connection.sendall(word)
            while piece := connection.recv(65536):
                answer += piece
        return answer

    def _properties(self) -> str:
        return property_lines(
            {
                "dataDir": str(self._folder / "records"),
                "clientPort": self.port,
                "clientPortAddress": HOST,
                "tickTime": TICK_MS,
                "maxClientCnxns": 0,
                "admin.enableServer": "false",
                "4lw.commands.whitelist": "srvr,dump",
                "autopurge.purgeInterval": 24,
                "autopurge.snapRetainCount": 3,
            }
        )
