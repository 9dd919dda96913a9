"""Beds of cells: the cluster or broker on which a cell runs, started for it or existing, with its topics and its outages.

An outage kills the leading server, and starts it again at the end of the block.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

from deploy.bench.suite.scenario import Parameters, ScenarioTarget
from deploy.bench.temporary import PREFIX, own_folder
from deploy.testbed.mosquitto import MqttAddress, open_mosquitto
from ingest.contract.errors import ConfigError, FatalError, MissingRightError, TidegateError, UnavailableError
from ingest.kafka_login import user_name
from ingest.kafka_settings import KafkaSettings
from monitoring.scrape import scrape

if TYPE_CHECKING:
    from deploy.bench.suite.pipeline_bed import RunningPipeline
    from deploy.settings import Settings
    from deploy.testbed.cluster import KafkaCluster
    from deploy.testbed.mosquitto import MqttSecurity
    from deploy.testbed.server_process import ServerProcess

__all__ = [
    "CellBed",
    "LivePids",
    "RunTopics",
    "active_controller",
    "check_rights",
    "cluster_bed",
    "existing_bed",
    "mosquitto_bed",
    "without_controller",
    "without_leader",
    "without_zookeeper",
]

_NO_KAFKA: Final = KafkaSettings(bootstrap_servers="127.0.0.1:1")
_DEAD_MEMBERS: Final = {
    "group.consumer.session.timeout.ms": 6000, "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.heartbeat.interval.ms": 1000, "group.consumer.min.heartbeat.interval.ms": 1000,
}  # fmt: skip
"""Give members of the new group protocol the session timeout of the classic one; in the new one the broker sets it."""
_DELETED_SOON: Final = {"log.segment.delete.delay.ms": 1000}
"""Delete the files of a removed topic after a second instead of a minute, so that the disk has one large run at a time."""
_BOTH_COMPILERS: Final = ("-XX:TieredStopAtLevel=4",)
"""Use both compilers of Java. An embedded Kafka uses only the first one to start sooner, but then needs more CPU per request."""
ELECTION_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.2
_Found = TypeVar("_Found", int, str)
_IS_CONTROLLER: Final = "kafka_controller_kafkacontroller_activecontrollercount"


class LivePids(Mapping[str, int]):
    """Process ids of servers, read at each look: a server that was killed and started again has a new one."""

    def __init__(self, processes: "Mapping[str, ServerProcess]") -> None:
        self._processes = processes

    def _now(self) -> dict[str, int]:
        pids = {name: process.pid for name, process in self._processes.items()}
        return {name: pid for name, pid in pids.items() if pid is not None}

    def __getitem__(self, name: str) -> int:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())


@dataclass(frozen=True)
class CellBed:
    """A Kafka (or mosquitto) that answers; `brokers` are the process ids of its servers on this machine, by name."""

    kafka: KafkaSettings
    brokers: Mapping[str, int] = field(default_factory=dict)
    jmx_urls: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    tool: Callable[..., list[str]] | None = None
    """Function that returns the command line of one of Kafka's own tools, by its class and arguments."""
    without_leader: Callable[[str], AbstractContextManager[int]] | None = None
    """Context that kills the broker which leads partition 0 of a topic, and starts it again at the end of the block."""
    without: Mapping[str, Callable[[], AbstractContextManager[int]]] = field(default_factory=dict)
    """The same for the active `controller` and the leading `zookeeper`, by these names."""
    pipeline: "Settings | None" = None
    """Settings of a whole pipeline that runs on the cluster."""
    running: "RunningPipeline | None" = None
    """A whole pipeline that is adapted to each cell."""
    fit: Callable[[Parameters], None] | None = None
    """Function that adapts the bed to a cell before its runs."""
    makes_topics: bool = True
    """True if runs create topics, so that the suite looks for remaining ones afterwards."""
    mqtt: MqttAddress | None = None
    """Address of a mosquitto that runs in place of Kafka."""


class RunTopics:
    """Names of the topics of one run. All begin with the prefix and a random text, so that they are the run's own."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._start = f"{PREFIX}{secrets.token_hex(4)}-"
        self._count = 0

    def name(self, ending: str = "") -> str:
        """Return an unused topic name."""
        self._count += 1
        return f"{self._start}{self._count}{'-' if ending else ''}{ending}"

    def sweep(self) -> list[str]:
        """Delete remaining topics of this run, such as after an interrupt; return the names of those that Kafka kept."""
        from ingest.topics.admin import admin_client, partition_counts
        from ingest.topics.setup import delete_topic

        try:
            left = [
                name
                for name in partition_counts(admin_client(self._kafka), self._kafka)
                if name.startswith(self._start)
            ]
        except TidegateError:
            return [f"{self._start}*"]
        kept = []
        for name in left:
            try:
                delete_topic(self._kafka, name)
            except TidegateError:
                kept.append(name)
        return kept


@contextmanager
def cluster_bed(target: ScenarioTarget) -> Iterator[CellBed]:
    """Yield a cluster in a temporary folder; it is stopped and removed afterwards.

    Raises:
        UnavailableError: it does not start, or this machine cannot run such a cluster.
    """
    from deploy.testbed.cluster import open_cluster

    with ExitStack() as parts:
        folder = parts.enter_context(own_folder())
        cluster = parts.enter_context(
            open_cluster(
                folder,
                brokers=target.brokers,
                mode=target.metadata,
                security=target.security,
                properties=_properties(target),
                java_options=_BOTH_COMPILERS,
            )
        )
        nodes = {f"broker_{node.node_id}": node for node in cluster.nodes}
        processes = {name: node.process for name, node in nodes.items()}
        processes |= {keeper.server_id.replace("-", "_"): keeper.process for keeper in cluster.zookeepers}
        yield CellBed(
            cluster.settings,
            LivePids(processes),
            {name: node.jmx_url for name, node in nodes.items() if node.jmx_url},
            folder,
            cluster.tool,
            lambda topic: without_leader(cluster, topic),
            {"controller": lambda: without_controller(cluster), "zookeeper": lambda: without_zookeeper(cluster)},
        )


def _properties(target: ScenarioTarget) -> dict[str, str | int]:
    """Return the properties of each node; those of the target override all others."""
    own = dict(pair.split("=", 1) for pair in target.broker_properties.split())
    return {**_DELETED_SOON, **_threads(), **(_DEAD_MEMBERS if target.metadata == "kraft" else {}), **own}


def _threads() -> dict[str, int]:
    """Return a broker's numbers of threads for the cores of this machine.

    With two network threads on two cores, a request needs a fifth more CPU.
    """
    cores = os.cpu_count() or 1
    return {"num.network.threads": max(1, cores // 2), "num.io.threads": max(2, cores)}


@contextmanager
def mosquitto_bed(target: ScenarioTarget) -> Iterator[CellBed]:
    """Yield a mosquitto in a temporary folder; it is stopped and removed afterwards.

    Raises:
        UnavailableError: it does not start, or this machine does not have it.
    """
    with ExitStack() as parts:
        folder = parts.enter_context(own_folder())
        server, address = parts.enter_context(open_mosquitto(folder, cast("MqttSecurity", target.security)))
        yield CellBed(_NO_KAFKA, LivePids({"mosquitto": server}), folder=folder, makes_topics=False, mqtt=address)


@contextmanager
def existing_bed(kafka: KafkaSettings, jmx_urls: Mapping[str, str]) -> Iterator[CellBed]:
    """Yield an existing cluster, which is never started or stopped here. `jmx_urls` are its brokers' JMX agents, if any.

    Raises:
        MissingRightError: this user lacks a right; the text says which. A topic of one partition is made for this check.
        RetryableError: Kafka does not answer.
    """
    check_rights(kafka)
    yield CellBed(kafka, jmx_urls=jmx_urls)


def check_rights(kafka: KafkaSettings) -> None:
    """Check the rights of this user on topics and groups of runs: make a topic, ask Kafka, and remove the topic.

    Raises:
        MissingRightError: a right is missing.
    """
    from ingest.topics.rights import missing_group_rights, missing_rights
    from ingest.topics.setup import create_topic, delete_topic

    topic = RunTopics(kafka).name("rights")
    try:
        create_topic(kafka.model_copy(update={"replication": 1}), topic, partitions=1)
        missing = missing_rights(kafka, topic)
        of_group = missing_group_rights(kafka, topic)
    except ConfigError:
        raise
    except FatalError as error:
        raise MissingRightError(_without_rights(kafka, ["CREATE"], [])) from error
    except BaseException:
        with suppress(TidegateError):
            delete_topic(kafka, topic)
        raise
    left = f" The topic {topic} could not be deleted." if "DELETE" in missing else ""
    if not left:
        delete_topic(kafka, topic)
    if missing or of_group:
        raise MissingRightError(_without_rights(kafka, missing, of_group) + left)


def _without_rights(kafka: KafkaSettings, of_topics: Sequence[str], of_groups: Sequence[str]) -> str:
    lacking = [
        f"{' and '.join(rights)} on {what} {PREFIX}*"
        for what, rights in (("topics", of_topics), ("groups", of_groups))
        if rights
    ]
    return (
        f"The Kafka user {user_name(kafka)} lacks {', and '.join(lacking)}: grant CREATE, DESCRIBE, WRITE, "
        f"READ and DELETE on topics with the prefix {PREFIX}, and READ on groups with that prefix."
    )


@contextmanager
def without_leader(cluster: "KafkaCluster", topic: str) -> Iterator[int]:
    """Kill the broker that leads partition 0 of a topic, for the time of the block; yields the time of the kill (epoch µs)."""
    from ingest.topics.overview import topic_overviews

    (sight,) = topic_overviews(cluster.settings, lambda name: name == topic, with_times=False)
    with _without(cluster, sight.partitions[0].leader) as killed_us:
        yield killed_us


@contextmanager
def without_controller(cluster: "KafkaCluster") -> Iterator[int]:
    """Kill the active controller (in KRaft the leader of the quorum) for the time of the block; yields the time as above.

    Raises:
        UnavailableError: no active controller was found within 60 s.
    """
    with _without(cluster, _await(lambda: active_controller(cluster), "active controller")) as killed_us:
        yield killed_us


@contextmanager
def without_zookeeper(cluster: "KafkaCluster") -> Iterator[int]:
    """Kill the leader of the ZooKeepers for the time of the block; yields the time as above.

    Raises:
        UnavailableError: no leader was found within 60 s.
    """

    def leader() -> str | None:
        found = cluster.zookeepers.leader()
        return None if found is None else found.server_id

    with _without(cluster, _await(leader, "leading ZooKeeper")) as killed_us:
        yield killed_us


def active_controller(cluster: "KafkaCluster") -> int | None:
    """Return the number of the active controller by JMX; None during an election, or without JMX."""
    found = []
    for node in cluster.nodes:
        seen = scrape(node.jmx_url, timeout_seconds=5.0) if node.jmx_url and node.alive else None
        if seen is not None and seen.total(_IS_CONTROLLER) == 1:
            found.append(node.node_id)
    return found[0] if len(found) == 1 else None


@contextmanager
def _without(cluster: "KafkaCluster", server: int | str) -> Iterator[int]:
    killed_us = time.time_ns() // 1000
    cluster.kill(server)
    try:
        yield killed_us
    finally:
        cluster.restart(server)


def _await(look: Callable[[], _Found | None], what: str) -> _Found:
    deadline = time.monotonic() + ELECTION_SECONDS
    while (found := look()) is None:
        if time.monotonic() > deadline:
            message = (
                f"No {what} was found within {ELECTION_SECONDS:g} s. JMX metrics show the active controller. Run `make setup` "
                "to fetch the JMX agent."
            )
            raise UnavailableError(message)
        time.sleep(_POLL_SECONDS)
    return found
