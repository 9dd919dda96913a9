"""Outages of a cluster that a benchmark started: the server that leads is killed, and starts again when the block ends."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from deploy.testbed.cluster import KafkaCluster
from ingest.contract.errors import UnavailableError
from monitoring.scrape import scrape

__all__ = ["active_controller", "without_controller", "without_leader", "without_zookeeper"]

ELECTION_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.2
_Found = TypeVar("_Found", int, str)
_IS_CONTROLLER: Final = "kafka_controller_kafkacontroller_activecontrollercount"


@contextmanager
def without_leader(cluster: KafkaCluster, topic: str) -> Iterator[int]:
    """Without the broker that leads partition 0 of a topic; the value is the time of the kill in microseconds since 1970."""
    from ingest.topics.overview import topic_overviews

    (sight,) = topic_overviews(cluster.settings, lambda name: name == topic, with_times=False)
    with _without(cluster, sight.partitions[0].leader) as killed_us:
        yield killed_us


@contextmanager
def without_controller(cluster: KafkaCluster) -> Iterator[int]:
    """Without the broker that is the active controller, in KRaft the leader of the quorum; the value is as above.

    Raises:
        UnavailableError: none is known.
    """
    with _without(cluster, _await(lambda: active_controller(cluster), "active controller")) as killed_us:
        yield killed_us


@contextmanager
def without_zookeeper(cluster: KafkaCluster) -> Iterator[int]:
    """Without the ZooKeeper that leads the ensemble; the value is as above.

    Raises:
        UnavailableError: there is none.
    """

    def leader() -> str | None:
        found = cluster.zookeepers.leader()
        return None if found is None else found.server_id

    with _without(cluster, _await(leader, "leading ZooKeeper")) as killed_us:
        yield killed_us


def active_controller(cluster: KafkaCluster) -> int | None:
    """Number of the one node that says so; None in the middle of an election."""
    found = []
    for node in cluster.nodes:
        seen = scrape(node.jmx_url, timeout_seconds=5.0) if node.jmx_url and node.alive else None
        if seen is not None and seen.total(_IS_CONTROLLER) == 1:
            found.append(node.node_id)
    return found[0] if len(found) == 1 else None


@contextmanager
def _without(cluster: KafkaCluster, server: int | str) -> Iterator[int]:
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
