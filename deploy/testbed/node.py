"""One Kafka process of a test bed: started, killed, held still and started again on its data."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from deploy.local.kafka import EmbeddedKafka
from deploy.testbed.server_process import ServerProcess
from ingest.contract.errors import UnavailableError

__all__ = ["POLL_SECONDS", "READY_SECONDS", "KafkaNode", "wait_for_server"]

READY_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.05


class KafkaNode:
    """One node of a cluster; `started` is called after each start of its process."""

    def __init__(
        self,
        node_id: int,
        part: EmbeddedKafka,
        process: ServerProcess,
        jmx_url: str | None,
        started: Callable[[], None] = lambda: None,
    ) -> None:
        self.node_id = node_id
        self.jmx_url = jmx_url
        self.part = part
        self.process = process
        self._started = started

    @property
    def name(self) -> str:
        """Name for people."""
        return f"Node {self.node_id}"

    @property
    def address(self) -> str:
        """The address that clients connect to."""
        return self.part.bootstrap_servers

    @property
    def pid(self) -> int | None:
        """Process id; None while it does not run."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """True if its process runs."""
        return self.process.alive

    @property
    def log_file(self) -> Path:
        """Kafka's own log of this node."""
        return self.part.log_file

    def last_words(self) -> str:
        """The last error in its log."""
        return self.part.last_words()

    def spawn(self) -> None:
        """Start it on the data that it has; returns before it answers."""
        (self.part.data_dir / "tmp").mkdir(parents=True, exist_ok=True)
        self.part.prepare()
        self.process.spawn(self.part.command())
        self._started()

    def start(self) -> None:
        """Start it on the data that it has, and wait until it answers.

        Raises:
            UnavailableError: it ended or took too long.
        """
        self.spawn()
        wait_for_server(self, self.part.ready, time.monotonic() + READY_SECONDS)

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()

    def hold(self) -> None:
        """Let it stand still: its connections stay open, and nothing answers until `let_go`."""
        self.process.hold()

    def let_go(self) -> None:
        """Let it go on."""
        self.process.let_go()


class StartedServer(Protocol):
    """A server as the wait for it needs it."""

    @property
    def name(self) -> str:
        """Name for people."""

    @property
    def alive(self) -> bool:
        """True if its process runs."""

    @property
    def log_file(self) -> Path:
        """Log file."""

    def last_words(self) -> str:
        """The last error in its log."""


def wait_for_server(server: StartedServer, ready: Callable[[], bool], deadline: float) -> None:
    """Wait until a started server is ready.

    Raises:
        UnavailableError: it ended or took too long; ends with its last words.
    """
    while not ready():
        if not server.alive or time.monotonic() > deadline:
            how = "is too slow" if server.alive else "ended"
            message = f"{server.name} of the test bed {how}; see {server.log_file}. {server.last_words()}"
            raise UnavailableError(message)
        time.sleep(POLL_SECONDS)
