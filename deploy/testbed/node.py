"""One Kafka node of a test bed: its properties, and its process, which tests start, kill, suspend and restart."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from deploy.local.kafka import EmbeddedKafka, KafkaProfile
from deploy.testbed.cluster_layout import HOST, ClusterLayout
from deploy.testbed.cluster_security import AUTHORITY_FILE, tls_properties, user_properties
from deploy.testbed.server_process import ServerProcess
from ingest.contract.errors import UnavailableError

__all__ = ["POLL_SECONDS", "READY_SECONDS", "KafkaNode", "node_profile", "wait_for_server"]

READY_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.05
KRAFT_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ZOOKEEPER_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
ZOOKEEPER_SESSION_MS: Final = 6000
"""Time for which ZooKeeper takes a killed broker for alive, so that it cannot restart. Kafka's default is 18 s."""


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
        """Address that clients connect to."""
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

    def last_log_lines(self) -> str:
        """Return the last error of its log."""
        return self.part.last_log_lines()

    def spawn(self) -> None:
        """Start it with its data, and return before it answers."""
        (self.part.data_dir / "tmp").mkdir(parents=True, exist_ok=True)
        self.part.prepare()
        self.process.spawn(self.part.command())
        self._started()

    def start(self) -> None:
        """Start it with its data, and wait until it answers.

        Raises:
            UnavailableError: it ended or took too long.
        """
        self.spawn()
        wait_for_server(self, self.part.ready, time.monotonic() + READY_SECONDS)

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()

    def hold(self) -> None:
        """Suspend it: its connections stay open, but it does not answer until `resume_process`."""
        self.process.hold()

    def resume_process(self) -> None:
        """Resume it."""
        self.process.resume_process()


class StartedServer(Protocol):
    """Properties of a server that `wait_for_server` needs."""

    @property
    def name(self) -> str:
        """Name for people."""

    @property
    def alive(self) -> bool:
        """True if its process runs."""

    @property
    def log_file(self) -> Path:
        """Log file."""

    def last_log_lines(self) -> str:
        """Return the last error of its log."""


def wait_for_server(server: StartedServer, ready: Callable[[], bool], deadline: float) -> None:
    """Wait until a started server is ready.

    Raises:
        UnavailableError: it ended or took too long; the text ends with the last error of its log.
    """
    while not ready():
        if not server.alive or time.monotonic() > deadline:
            how = "is too slow" if server.alive else "ended"
            message = f"{server.name} of the test bed {how}; see {server.log_file}. {server.last_log_lines()}"
            raise UnavailableError(message)
        time.sleep(POLL_SECONDS)


def node_profile(layout: ClusterLayout, node_id: int, folder: Path) -> KafkaProfile:
    """Return the profile of one node.

    Args:
        layout: layout of the whole test bed.
        node_id: 1 to the number of brokers.
        folder: folder with the certificates.
    """
    wish = layout.wish
    return KafkaProfile(
        properties={
            **_copies(layout),
            **_listeners(layout, node_id, folder),
            **(_kraft(layout, node_id) if wish.mode == "kraft" else _zookeeper(layout, node_id)),
            **wish.properties,
        },
        jars="kafka" if wish.mode == "kraft" else "zookeeper",
        cluster_id=layout.cluster_id,
        users=layout.passwords if wish.has_users else {},
        authority=folder / AUTHORITY_FILE if wish.encrypts else None,
        java_options=wish.java_options,
    )


def _copies(layout: ClusterLayout) -> dict[str, str | int | None]:
    copies, in_sync = layout.wish.replication, layout.wish.min_in_sync
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _listeners(layout: ClusterLayout, node_id: int, folder: Path) -> dict[str, str | int | None]:
    ports, wish = layout.ports[str(node_id)], layout.wish
    inner = "SSL" if wish.encrypts else "PLAINTEXT"
    names = {"CLIENT": wish.security.upper(), **({"INTERNAL": inner} if wish.encrypts else {})}
    advertised = ",".join(f"{name}://{HOST}:{ports[name.lower()]}" for name in names)
    controller = f",CONTROLLER://{HOST}:{ports['controller']}" if wish.mode == "kraft" else ""
    if wish.mode == "kraft":
        names["CONTROLLER"] = inner
    authorizer = KRAFT_AUTHORIZER if wish.mode == "kraft" else ZOOKEEPER_AUTHORIZER
    return {
        "listeners": advertised + controller,
        "advertised.listeners": advertised,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in names.items()),
        "inter.broker.listener.name": "INTERNAL" if wish.encrypts else "CLIENT",
        **(tls_properties(folder) if wish.encrypts else {}),
        **(user_properties(authorizer) if wish.has_users else {}),
    }


def _kraft(layout: ClusterLayout, node_id: int) -> dict[str, str | int | None]:
    voters = [f"{number}@{HOST}:{ports['controller']}" for number, ports in layout.ports.items()]
    return {"node.id": node_id, "controller.quorum.voters": ",".join(voters)}


def _zookeeper(layout: ClusterLayout, node_id: int) -> dict[str, str | int | None]:
    only_of_kraft = ("process.roles", "node.id", "controller.listener.names", "controller.quorum.voters")
    return {
        **dict.fromkeys(only_of_kraft),
        "broker.id": node_id,
        "zookeeper.connect": layout.zookeeper_connect,
        "zookeeper.session.timeout.ms": ZOOKEEPER_SESSION_MS,
    }
