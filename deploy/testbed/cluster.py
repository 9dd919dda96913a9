"""The only starter of Kafka clusters for benchmarks, faults and tests: N nodes on loopback, KRaft or ZooKeeper, also secured."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel

from deploy.local import artifacts
from deploy.local.java import Java, find_java
from deploy.local.kafka import EmbeddedKafka
from deploy.local.kafka_java import property_lines
from deploy.local.ports import is_free
from deploy.settings_file import to_toml, write_private
from deploy.testbed.budget import check_budget
from deploy.testbed.cluster_layout import (
    HOST,
    LAYOUT_FILE,
    ClusterLayout,
    ClusterRequest,
    Mode,
    Security,
    new_layout,
    read_layout,
)
from deploy.testbed.cluster_security import ADMIN, GUEST, client_security, make_certificates
from deploy.testbed.node import POLL_SECONDS, READY_SECONDS, KafkaNode, node_profile, wait_for_server
from deploy.testbed.server_process import ServerProcess
from deploy.testbed.zookeeper import ZooKeeper, ZooKeeperEnsemble, make_users
from ingest.contract.errors import ConfigError, FatalError, RetryableError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.security import jvm_conf

__all__ = ["KafkaCluster", "open_cluster"]

STOP_SECONDS: Final = 20.0
LONELY_SECONDS: Final = 2.0
CLIENT_PROPERTIES: Final = "client.properties"
SETTINGS_FILE: Final = "tidegate.toml"
_CLIENT_OPTION: Final = {"ProducerPerformance": "--producer.config", "ConsumerPerformance": "--consumer.config"}
"""Kafka's tools that name their file of client properties by another option than `--command-config`."""


class _SettingsFile(BaseModel):
    kafka: KafkaSettings


class KafkaCluster:
    """N Kafka nodes on loopback, each a process of its own; folders, ports and processes are its own.

    The folder keeps records, ports and users: a cluster of the same folder and options starts again on them.

    Args:
        folder: its own.
        brokers: 1 to 9. Topics get three copies, or as many as there are brokers; with three, two must be in sync.
        mode: `kraft`, each node a broker and a controller; or `zookeeper`, Kafka 3.9 with its ZooKeepers.
        security: of clients: `plaintext`; `ssl`, TLS alone; `sasl_ssl`, TLS with SCRAM-SHA-512 and an authorizer. The last
            two have TLS with certificates among nodes.
        heap: of each node.
        properties: of each node, laid over all others.
        java_options: of each node, such as `-XX:TieredStopAtLevel=4` for the second compiler.
        jmx: each node shows its JVM's metrics.
        notify: gets a line about memory and disk before anything starts.

    Raises:
        ConfigError: no such cluster can be, or the folder holds another one, or files that it would write over.
        UnavailableError: there is no Java.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 1,
        mode: Mode = "kraft",
        security: Security = "plaintext",
        heap: str = "384m",
        properties: Mapping[str, str | int] | None = None,
        java_options: tuple[str, ...] = (),
        jmx: bool = True,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        wish = ClusterRequest(brokers, mode, security, heap, dict(properties or {}), java_options, jmx)
        found = read_layout(folder)
        if found is not None and found.wish != wish:
            had = found.wish
            message = (
                f"{folder} holds another test bed ({had.brokers} brokers, {had.mode}, {had.security}) or other options. "
                "Give the same options, or name another folder."
            )
            raise ConfigError(message)
        self._build(folder, found or new_layout(wish), notify)
        if found is None:
            self._refuse_foreign()

    @classmethod
    def attach(cls, folder: Path, notify: Callable[[str], None] = lambda line: None) -> Self:
        """The cluster that was made in this folder, by whichever process.

        Raises:
            UnavailableError: there is none.
        """
        found = read_layout(folder)
        if found is None:
            message = f"There is no test bed in {folder}. Start one with `tidegate cluster up`, or name its folder with --data."
            raise UnavailableError(message)
        cluster = cls.__new__(cls)
        cluster._build(folder, found, notify)
        return cluster

    def _build(self, folder: Path, layout: ClusterLayout, notify: Callable[[str], None]) -> None:
        self.folder = folder.absolute()
        self.wish = layout.wish
        self._layout, self._notify = layout, notify
        self._java: Java = find_java()
        self._make_servers()

    def _refuse_foreign(self) -> None:
        """Refuse a folder with foreign files of these names: a start would overwrite them, and `down --remove` delete them."""
        if there := [place.name for place in self._places if place.exists()]:
            message = (
                f"{self.folder} holds {' and '.join(there)}, but not a test bed: a new cluster would overwrite them. Name "
                "another folder, or move them away."
            )
            raise ConfigError(message)

    @property
    def _places(self) -> tuple[Path, ...]:
        """All that it makes in its folder, its description last."""
        keepers = dict.fromkeys(["zookeeper", *self._layout.zookeepers])
        names = (*(f"node-{node.node_id}" for node in self.nodes), *keepers, "certificates")
        return tuple(self.folder / name for name in (*names, SETTINGS_FILE, CLIENT_PROPERTIES, LAYOUT_FILE))

    def _make_servers(self) -> None:
        self.nodes = tuple(self._make_node(number) for number in range(1, self.wish.brokers + 1))
        self.zookeepers = ZooKeeperEnsemble(self.folder, self._layout, self._java, self._remember)

    def _make_node(self, number: int) -> KafkaNode:
        folder, ports = self.folder / f"node-{number}", self._layout.ports[str(number)]
        part = EmbeddedKafka(
            folder, self._java, ports["client"], ports["controller"],
            heap=self.wish.heap, host=HOST, temporary=folder / "tmp",
            jmx=(HOST, ports["jmx"]) if self._shows_jmx else None,
            profile=node_profile(self._layout, number, self.folder / "certificates"),
        )  # fmt: skip
        process = ServerProcess(folder / "stdout.log", identity=self._layout.processes.get(str(number)))
        jmx_url = f"http://{HOST}:{ports['jmx']}/metrics" if self._shows_jmx else None
        return KafkaNode(number, part, process, jmx_url, lambda: self._remember(str(number), process))

    @property
    def _shows_jmx(self) -> bool:
        return self.wish.jmx and artifacts.jmx_agent().is_file()

    @property
    def bootstrap_servers(self) -> str:
        """The address of each node."""
        return ",".join(node.address for node in self.nodes)

    @property
    def settings(self) -> KafkaSettings:
        """Settings for clients; of a secured cluster as the user who may do everything."""
        return self.settings_of(ADMIN)

    def settings_of(self, user: str) -> KafkaSettings:
        """Return the settings for clients as this user: `admin`, or `guest`, who may do nothing until an ACL says so."""
        return KafkaSettings.model_validate(
            {
                "bootstrap_servers": self.bootstrap_servers,
                "replication": self.wish.replication,
                "security_protocol": self.wish.security.upper(),
                **client_security(
                    self.folder / "certificates", user, self._layout.passwords, encrypts=self.wish.encrypts
                ),
            }
        )

    @property
    def alive(self) -> bool:
        """True if any of its processes runs."""
        return any(node.alive for node in self.nodes) or self.zookeepers.alive

    @property
    def started(self) -> bool:
        """True if it was started and not stopped since; some or all of its processes may have been killed."""
        return bool(self._layout.processes)

    @property
    def settings_file(self) -> Path:
        """A settings file of Tidegate that names this cluster; private, as it may hold a password."""
        return self.folder / SETTINGS_FILE

    @property
    def client_properties(self) -> Path | None:
        """The file that Kafka's own tools need for a secured cluster."""
        return self.folder / CLIENT_PROPERTIES if self.wish.encrypts else None

    def start(self) -> None:
        """Start all nodes, and wait until the cluster answers; where it does not, none is left running.

        Raises:
            UnavailableError: too little memory or disk, a JVM part that cannot be had, or a node that did not start.
            FatalError: it runs already.
        """
        if self.alive:
            message = f"The test bed in {self.folder} is already running ({self.bootstrap_servers}); stop it first."
            raise FatalError(message)
        self._notify(check_budget(self.wish, self.folder))
        artifacts.fetch_jars("kafka" if self.wish.mode == "kraft" else "zookeeper", self._notify)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._find_free_ports()
        # From here on what is in the folder is known as its own, also after a kill.
        self._layout.write(self.folder)
        self._secure()
        write_private(self.settings_file, to_toml(_SettingsFile(kafka=self.settings)))
        try:
            self._start_zookeepers()
            for node in self.nodes:
                self._spawn(node)
            self.wait_ready()
        except BaseException:
            self.stop(seconds=0)
            raise

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Ask all nodes to end, and kill what still runs after some seconds; back when no process is left."""
        try:
            if seconds > 0:
                for node in self.nodes:
                    node.process.signal(signal.SIGTERM)
                self._wait_for_end(time.monotonic() + seconds)
        except BaseException:
            # Somebody who presses Ctrl-C once more will not wait, and wants no process left either.
            seconds = 0
            raise
        finally:
            for node in self.nodes:
                node.process.end(0)
            self.zookeepers.end(seconds)
            self._layout.processes.clear()
            self._layout.write(self.folder)

    def remove(self) -> None:
        """Remove what it made in its folder, and the folder where nothing else is in it; it must not run."""
        for place in self._places:
            if place.is_dir():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def kill(self, server: int | str) -> int:
        """End one server (number of a node, or name of a ZooKeeper) as a crash does; its process id.

        Raises:
            ConfigError: there is no such server.
            UnavailableError: it does not run.
        """
        found = self.server(server)
        pid = found.process.pid
        if pid is None:
            message = f"{found.name} is not running. Start it with `tidegate cluster restart {server}`."
            raise UnavailableError(message)
        found.process.kill()
        return pid

    def restart(self, server: int | str) -> None:
        """Start one server again on its data, and wait until the whole cluster has it back; a living one ends first.

        Raises:
            ConfigError: there is no such server.
            UnavailableError: it did not start.
        """
        found = self.server(server)
        if isinstance(found, ZooKeeper):
            self._refuse_minority(found, self.zookeepers.servers, self.zookeepers.majority)
            found.process.end(STOP_SECONDS)
            self.zookeepers.restart(found)
            return
        self._refuse_minority(found, self.nodes, self._majority)
        found.process.end(STOP_SECONDS)
        if not self.zookeepers.serves:
            self._start_zookeepers()
        self._spawn(found)
        self.wait_ready()

    def _refuse_minority(
        self, server: KafkaNode | ZooKeeper, servers: Sequence[KafkaNode | ZooKeeper], majority: int
    ) -> None:
        alive = 1 + sum(other.alive for other in servers if other is not server)
        if alive < majority:
            what = "nodes" if isinstance(server, KafkaNode) else "ZooKeepers"
            message = (
                f"{server.name} and the running ones would not be a majority of {len(servers)} {what}, so none would answer. "
                "Stop the cluster with `tidegate cluster down`, then start it."
            )
            raise UnavailableError(message)

    @property
    def _majority(self) -> int:
        """Nodes without which the others do not answer: KRaft's are their own controllers."""
        return self.wish.brokers // 2 + 1 if self.wish.mode == "kraft" else 1

    def server(self, server: int | str) -> KafkaNode | ZooKeeper:
        """A node by its number, or a ZooKeeper by its name.

        Raises:
            ConfigError: there is no such server.
        """
        known: dict[str, KafkaNode | ZooKeeper] = {str(node.node_id): node for node in self.nodes}
        known |= {keeper.server_id: keeper for keeper in self.zookeepers}
        if str(server) in known:
            return known[str(server)]
        keepers = "".join(f", {keeper.server_id}" for keeper in self.zookeepers)
        message = f"This test bed has the nodes 1 to {len(self.nodes)}{keepers}, not {server}; name one of them."
        raise ConfigError(message)

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until every node that runs answers, and the cluster counts them all as its brokers.

        Raises:
            UnavailableError: none runs, one ended, or it takes too long; ends with its last words.
        """
        from ingest.lag.cluster_reader import ClusterReader

        deadline = time.monotonic() + seconds
        waited = [node for node in self.nodes if node.alive]
        if not waited:
            message = f"No node of the test bed in {self.folder} is running. Start it with `tidegate cluster up`."
            raise UnavailableError(message)
        for node in waited:
            wait_for_server(node, node.part.ready, deadline)
        reader = ClusterReader(self.settings)
        try:
            for node in waited:
                wait_for_server(node, lambda: _brokers(reader) >= len(waited), deadline)
        finally:
            reader.close()

    def tool(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command of one of Kafka's own tools by its class; for a secured cluster with its client properties."""
        command = self.nodes[0].part.tool(main_class, *arguments)
        if self.client_properties is None:
            return command
        option = _CLIENT_OPTION.get(main_class.rpartition(".")[2], "--command-config")
        return [*command, option, str(self.client_properties)]

    def _spawn(self, node: KafkaNode) -> None:
        self.zookeepers.wait_until_gone(node.node_id)
        node.spawn()

    def _start_zookeepers(self) -> None:
        self.zookeepers.start()
        if self.wish.has_users and self.wish.mode == "zookeeper":
            passwords = {name: self._layout.passwords[name] for name in (ADMIN, GUEST)}
            make_users(passwords, self.zookeepers.connect, self.nodes[0].part.tool, self.folder)

    def _remember(self, name: str, process: ServerProcess) -> None:
        if process.identity is not None:
            self._layout.processes[name] = process.identity
        self._layout.write(self.folder)

    def _wait_for_end(self, deadline: float) -> None:
        """Wait for the end, but not for long: KRaft's last nodes wait for a majority that is gone."""
        majority = self._majority
        while alive := sum(node.alive for node in self.nodes):
            if alive < majority:
                deadline = min(deadline, time.monotonic() + LONELY_SECONDS)
                majority = 0
            if time.monotonic() > deadline:
                return
            time.sleep(POLL_SECONDS)

    def _find_free_ports(self) -> None:
        if all(is_free(port, HOST) for ports in self._layout.ports.values() for port in ports.values()):
            return
        self._layout.choose_ports()
        self._make_servers()

    def _secure(self) -> None:
        if not self.wish.encrypts:
            return
        make_certificates(self.folder / "certificates")
        write_private(self.folder / CLIENT_PROPERTIES, property_lines(jvm_conf(self.settings)))


def _brokers(reader: Any) -> int:
    with suppress(RetryableError):
        return int(reader.topics(lambda name: False, 1.0)[0])
    return 0


@contextmanager
def open_cluster(folder: Path, **options: Any) -> Iterator[KafkaCluster]:
    """A cluster that is started and ready while the block runs; `options` as of `KafkaCluster`.

    Its processes end with the block, however that ends; its data stays in the folder.
    """
    cluster = KafkaCluster(folder, **options)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()
