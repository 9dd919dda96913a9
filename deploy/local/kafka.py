"""A Kafka node on this machine: its configuration files, the command that starts it, its cluster id and its disk use.

All files are in one folder, and their sizes are bounded. A supervisor or a test bed starts, watches and stops the process. A
data folder can be started again after `kill -9`, also with other ports. Without a profile it is the single KRaft node of
`tidegate up`. deploy/testbed passes profiles for several nodes, for security and for ZooKeeper mode.
"""

import base64
import logging
import os
import shutil
import socket
import ssl
import struct
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from deploy.local import artifacts
from deploy.local.java import Java
from deploy.local.jmx import KAFKA_RULES, agent_flag, agent_obstacle
from deploy.local.kafka_java import java_command, last_error, private_command, property_lines, write_log_settings
from deploy.settings import java_locale
from deploy.settings_file import write_private
from ingest.contract.errors import ConfigError, UnavailableError

__all__ = ["EmbeddedKafka", "KafkaProfile", "cluster_id", "new_cluster_id", "topic_bytes"]

logger = logging.getLogger("tidegate.deploy.local.kafka")

MEGABYTE = 1024 * 1024
FORMAT_SECONDS = 120.0
ANSWER_BYTES: Final = 65536

# Sized for one node that shares two cores and a laptop's memory with all the rest. Topics bring their own retention;
# the limits here hold for those created by hand.
_FIXED: Mapping[str, str | int | None] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.segment.bytes": 4 * MEGABYTE,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.segment.bytes": 4 * MEGABYTE,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    # After kill -9 the node must wait until its own former session has run out: 3 s instead of 9.
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 1000,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "num.recovery.threads.per.data.dir": 2,
    "log.cleaner.dedupe.buffer.size": 8 * MEGABYTE,
    "log.cleaner.io.buffer.size": 128 * 1024,
    "log.segment.bytes": 64 * MEGABYTE,
    "log.index.size.max.bytes": MEGABYTE,
    "log.retention.bytes": 256 * MEGABYTE,
    "log.retention.check.interval.ms": 30_000,
    "metadata.log.segment.bytes": 16 * MEGABYTE,
    "metadata.max.retention.bytes": 32 * MEGABYTE,
}


@dataclass(frozen=True)
class KafkaProfile:
    """Differences of a node from the single one of `tidegate up`.

    Args:
        properties: properties that replace the node's own; None removes one.
        jars: `zookeeper` is the last version that runs with ZooKeeper; its data folder needs no format.
        cluster_id: id of the node's cluster; None makes a new one.
        users: names and passwords (SCRAM-SHA-512) with which a new KRaft cluster begins.
        authority: file of the only certificate authority of this cluster; the node's port then speaks TLS.
        java_options: options after the node's own, so they win.
    """

    properties: Mapping[str, str | int | None] = field(default_factory=dict)
    jars: Literal["kafka", "zookeeper"] = "kafka"
    cluster_id: str | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    authority: Path | None = None
    java_options: Sequence[str] = ()


class EmbeddedKafka:
    """One node; `data_dir` is its own folder and keeps its records; `jmx` is the host and port of its JVM's metrics.

    `flush_records`: after this many records of a partition, Kafka calls fsync before it acknowledges them; 0 leaves fsync to
    the operating system.

    Raises:
        ConfigError: Kafka cannot use a folder of this name.
    """

    def __init__(
        self,
        data_dir: Path,
        java: Java,
        port: int,
        controller_port: int,
        *,
        heap: str = "512m",
        host: str = "127.0.0.1",
        cache: Path | None = None,
        temporary: Path | None = None,
        jmx: tuple[str, int] | None = None,
        flush_records: int = 0,
        profile: KafkaProfile | None = None,
    ) -> None:
        self.data_dir = data_dir.resolve()
        if "," in str(self.data_dir):
            message = f"Kafka ends a folder's name at a comma: {self.data_dir}. Name another folder with --data."
            raise ConfigError(message)
        self.java = java
        self.port = port
        self.controller_port = controller_port
        self.host = host
        self._heap = heap
        self._cache = cache
        self._temporary = temporary
        self._jmx = jmx
        self._flush_records = flush_records
        self._profile = profile or KafkaProfile()

    @property
    def bootstrap_servers(self) -> str:
        """Address that clients connect to."""
        return f"{self.host}:{self.port}"

    @property
    def log_file(self) -> Path:
        """Log file of the node; it rotates at 10 MB, and three old files stay."""
        return self.data_dir / "logs" / "server.log"

    def prepare(self) -> None:
        """Write the node's files, and format a new data folder: cluster id and first records.

        Raises:
            UnavailableError: Kafka's own tool could not format the folder.
        """
        write_log_settings(self._log4j_file, self.log_file.parent)
        write_private(self._properties_file, self._properties(self._records))
        if self._profile.jars == "kafka" and not (self._records / "meta.properties").is_file():
            self._format()

    def command(self) -> list[str]:
        """Return the command that starts the node, after `prepare`."""
        return [*self._java_command(), *self._agent(), *self._limits(), "kafka.Kafka", str(self._properties_file)]

    def env(self) -> dict[str, str]:
        """Return the environment that the process needs besides the caller's: a locale in which it can open any path."""
        return java_locale()

    def tool(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command of one of Kafka's own tools, such as ConsumerGroupCommand, by its class."""
        return [*self._java_command(quiet=True), "-Xmx256m", main_class, *arguments]

    def ready(self, timeout: float = 1.0) -> bool:
        """Return whether this node answers; it does so only when it can serve requests.

        Another Kafka on the same port counts as no answer: it has another cluster id, or a certificate of another authority.
        """
        try:
            with socket.create_connection((self.host, self.port), timeout=timeout) as connection:
                if self._profile.authority is not None:
                    return self._shows_certificate(connection, self._profile.authority)
                answering = cluster_id(connection)
        except (OSError, ValueError):
            return False
        return answering is not None and answering == self._own_cluster_id()

    def wait_ready(self, process: "subprocess.Popen[bytes]", seconds: float = 90.0) -> None:
        """Wait until the started `process` answers.

        Raises:
            UnavailableError: it ended or took too long; the message ends with the last error of its log.
        """
        deadline = time.monotonic() + seconds
        while not self.ready():
            if process.poll() is not None or time.monotonic() > deadline:
                how = f"ended with code {process.returncode}" if process.returncode is not None else "is too slow"
                message = f"The embedded Kafka {how}; see {self.log_file}. {self.last_log_lines()}"
                raise UnavailableError(message)
            time.sleep(0.05)

    def last_log_lines(self) -> str:
        """Return the last error of its log; empty without any."""
        return last_error(self.log_file)

    def _shows_certificate(self, connection: socket.socket, authority: Path) -> bool:
        context = ssl.create_default_context(cafile=str(authority))
        with context.wrap_socket(connection, server_hostname=self.host):
            return True

    @property
    def _records(self) -> Path:
        return self.data_dir / "records"

    @property
    def _properties_file(self) -> Path:
        return self.data_dir / "server.properties"

    @property
    def _log4j_file(self) -> Path:
        return self.data_dir / "log4j2.yaml"

    def _properties(self, records: Path) -> str:
        listeners = f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{self.controller_port}"
        values: dict[str, str | int | None] = {
            **_FIXED,
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "controller.quorum.voters": f"1@{self.host}:{self.controller_port}",
            "log.dirs": str(records),
            **({"log.flush.interval.messages": self._flush_records} if self._flush_records else {}),
            **self._profile.properties,
        }
        return property_lines(values)

    def _java_command(self, *, quiet: bool = False) -> list[str]:
        settings = None if quiet else self._log4j_file
        return java_command(self.java, self._classpath(), log_settings=settings, temporary=self._temporary)

    def _classpath(self) -> list[Path]:
        if self._profile.jars == "zookeeper":
            return artifacts.zookeeper_classpath(self._cache)
        return artifacts.kafka_classpath(self._cache)

    def _limits(self) -> list[str]:
        # Without memory the process ends, so that a supervisor restarts it: a half-dead one would not recover.
        return [f"-Xmx{self._heap}", "-XX:+ExitOnOutOfMemoryError", *self._profile.java_options]

    def _agent(self) -> list[str]:
        if self._jmx is None:
            return []
        host, port = self._jmx
        if obstacle := agent_obstacle(host, port, cache=self._cache):
            logger.warning("Kafka starts without metrics of its JVM: %s.", obstacle)
            return []
        return [agent_flag(host=host, port=port, rules=KAFKA_RULES, cache=self._cache)]

    def _format(self) -> None:
        """Format a folder next to the final one, then rename it: an interrupted run leaves no incomplete folder."""
        fresh = self.data_dir / "records.new"
        shutil.rmtree(fresh, ignore_errors=True)
        properties = self.data_dir / "format.properties"
        write_private(properties, self._properties(fresh))
        identity = self._profile.cluster_id or new_cluster_id()
        arguments = ["format", "--cluster-id", identity, "--config", str(properties)]
        for name, password in self._profile.users.items():
            arguments += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        command = self.tool("kafka.tools.StorageTool", *arguments)
        environment = {**os.environ, **self.env()}
        with private_command(command, self.data_dir / "format.args") as hidden:
            result = subprocess.run(
                hidden, capture_output=True, text=True, timeout=FORMAT_SECONDS, check=False, env=environment
            )
        if result.returncode:
            said = " ".join((result.stderr + result.stdout).strip().splitlines()[-2:])
            message = f"Kafka could not prepare its data folder {self.data_dir}: {said}"
            raise UnavailableError(message)
        fresh.rename(self._records)
        properties.unlink()

    def _own_cluster_id(self) -> str | None:
        try:
            lines = (self._records / "meta.properties").read_text(encoding="utf-8").splitlines()
        except OSError:
            return None
        return next(
            (line.removeprefix("cluster.id=").strip() for line in lines if line.startswith("cluster.id=")), None
        )


def new_cluster_id() -> str:
    """Return a new id of 22 characters in Kafka's form, without a leading hyphen, which Kafka's tools read as an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def topic_bytes(records: Path) -> dict[str, int]:
    """Return the disk space of each topic in bytes, including segments that Kafka will delete within a minute."""
    found: dict[str, int] = {}
    for folder in _folders(records):
        topic, _, partition = folder.name.rpartition("-")
        if topic and partition.isdecimal():
            found[topic] = found.get(topic, 0) + sum(map(_size, _files(folder)))
    return found


def cluster_id(connection: socket.socket) -> str | None:
    """Return the id of the cluster that answers; None if the server is not a Kafka.

    It needs no Kafka client: it sends one metadata request without topics (key 3, version 2).

    Raises:
        OSError: the connection ended or is too slow.
        ValueError: the answer has another form.
    """
    connection.sendall(struct.pack(">ihhihi", 14, 3, 2, 1, -1, 0))
    length, correlation = struct.unpack(">ii", _read(connection, 8))
    if correlation != 1 or not 8 < length < ANSWER_BYTES:
        return None
    try:
        return _named(_read(connection, length - 4))
    except struct.error as error:
        message = "the answer is truncated"
        raise ValueError(message) from error


def _named(answer: bytes) -> str:
    """Return the cluster's id, which follows the brokers (id, host, port, rack) in the answer."""
    (brokers,) = struct.unpack_from(">i", answer)
    at = 4
    for _ in range(brokers):
        at = _after_text(answer, at + 4) + 4
        at = _after_text(answer, at)
    return answer[at + 2 : _after_text(answer, at)].decode()


def _after_text(answer: bytes, at: int) -> int:
    (length,) = struct.unpack_from(">h", answer, at)
    return int(at + 2 + max(0, length))


def _read(connection: socket.socket, count: int) -> bytes:
    answer = b""
    while len(answer) < count:
        piece = connection.recv(count - len(answer))
        if not piece:
            message = "the connection was closed"
            raise ConnectionError(message)
        answer += piece
    return answer


def _folders(records: Path) -> Iterable[Path]:
    return [entry for entry in records.iterdir() if entry.is_dir()] if records.is_dir() else []


def _files(folder: Path) -> Iterable[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # the partition was deleted in between
        return []


def _size(file: Path) -> int:
    """Return the size of the used blocks, not the length: Kafka creates index files longer than their content."""
    try:
        return os.stat(file).st_blocks * 512
    except OSError:  # deleted in between
        return 0
