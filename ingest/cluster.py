"""Looks at Kafka from outside of all that it watches: topics, what groups have not read and since when, time to loss."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError

from ingest.cluster_facts import ClusterFacts
from ingest.cluster_reader import ClusterReader
from ingest.cluster_samples import Samples, cluster_samples, unreachable
from ingest.cluster_state import ClusterState, GroupPartition, Partition
from ingest.contract.errors import RetryableError
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, LAND_GROUP, OUTCOMES, READINGS, stream_topic
from ingest.group_reader import GroupReader
from ingest.lag import LagBook
from ingest.settings import KafkaSettings
from monitoring.poll import IncompleteError

__all__ = ["LAND_TOPICS", "ClusterProbe", "is_own_topic"]

logger = logging.getLogger("tidegate.ingest.cluster")

LOOK_SECONDS: Final = 2.8
ASK_SECONDS: Final = 1.2
LAND_TOPICS: Final[Mapping[str, Sequence[str]]] = {LAND_GROUP: (READINGS, DEAD_LETTERS)}
"""What a group must read: counted as unread even where it never committed anything."""


def is_own_topic(name: str) -> bool:
    """Whether Tidegate writes this topic."""
    return name in {READINGS, DEAD_LETTERS, OUTCOMES, GATEWAY_STATE} or name.startswith(stream_topic(""))


class ClusterProbe:
    """Each look asks once, and waits about three seconds at most; clients live on and find Kafka again by themselves."""

    def __init__(
        self,
        settings: KafkaSettings,
        groups: Callable[[], Iterable[str]],
        *,
        topics: Callable[[str], bool] = is_own_topic,
        must_read: Mapping[str, Sequence[str]] = LAND_TOPICS,
    ) -> None:
        """Connect in the background.

        Args:
            settings: the cluster.
            groups: names the groups to look at, anew at each look.
            topics: which topics to look at.
            must_read: topics of a group that count as unread though it never committed anything.

        Raises:
            ConfigError: the settings cannot work.
        """
        self._settings, self._names = settings, groups
        self._topics, self._must_read = topics, must_read
        self._reader = ClusterReader(settings)
        self._groups: dict[str, GroupReader] = {}
        self._facts, self._lags = ClusterFacts(), LagBook()
        self._untold: list[str] = []
        self._why: str | None = None
        self._lock = threading.Lock()
        self._closed = False

    def look(self) -> Samples:
        """Samples under the names of the families KAFKA; only `tidegate_kafka_reachable` 0 where Kafka does not answer.

        Raises:
            IncompleteError: with the samples of what could be seen: Kafka answers, and does not tell all that alerts rest on.
        """
        try:
            samples = cluster_samples(self.state())
        except RetryableError:
            return unreachable()
        if self._untold:
            more = f" And {len(self._untold) - 1} more of that kind." if len(self._untold) > 1 else ""
            raise IncompleteError(self._untold[0] + more, samples)
        return samples

    def state(self) -> ClusterState:
        """The same as values.

        Raises:
            RetryableError: Kafka does not answer in time; says why.
        """
        with self._lock:
            if self._closed:
                message = "the monitor of Kafka is closed"
                raise RetryableError(message)
            try:
                state = self._look(time.monotonic() + LOOK_SECONDS)
            except RetryableError as error:
                self._tell(str(error))
                raise
            self._tell("")
            return state

    def close(self) -> None:
        """End it. A look that hangs is waited for, but not for long."""
        self._closed = True
        if self._lock.acquire(timeout=LOOK_SECONDS + 1.0):
            self._reader.close()
            for reader in self._groups.values():
                reader.close()
            self._groups = {}
            self._lock.release()

    def _tell(self, why: str) -> None:
        # Said once: in a long outage the reason changes with each try.
        if why and not self._why:
            logger.warning("%s", why)
        elif not why and self._why:
            logger.info("Kafka answers the monitor again")
        self._why = why

    def _look(self, until: float) -> ClusterState:
        asked_at = time.time()
        brokers, named = self._reader.topics(self._topics, ASK_SECONDS)
        partitions = self._reader.with_offsets(named, until - time.monotonic())
        self._facts.learn(self._reader, partitions, asked_at=asked_at)
        self._untold = []
        groups = [one for name in self._wanted_groups() for one in self._group(name, partitions, until)]
        self._lags.keep(groups)
        return ClusterState(brokers, tuple(partitions), tuple(groups), self._facts.min_in_sync)

    def _wanted_groups(self) -> list[str]:
        """Each has a reader, and no other has."""
        wanted = sorted(set(self._names()))
        for name in self._groups.keys() - wanted:
            self._groups.pop(name).close()
        for name in wanted:
            if name not in self._groups:
                self._groups[name] = GroupReader(self._settings, name, _ignore)
        return wanted

    def _group(self, name: str, partitions: list[Partition], until: float) -> list[GroupPartition]:
        known = [(one.topic, one.partition) for one in partitions if one.end is not None]
        reader = self._groups[name]
        try:
            committed = reader.committed(known, min(_left(name, until), ASK_SECONDS))
        except RetryableError as error:
            self._untold.append(str(error))
            return []
        read = {topic for topic, _ in committed} | set(self._must_read.get(name, ()))
        own = [one for one in partitions if one.topic in read]
        found = self._lags.group(name, reader, own, committed, self._facts)
        self._untold += [text for topic in sorted(read) for text in self._untold_of(topic, own, reader)]
        return found

    def _untold_of(self, topic: str, partitions: list[Partition], reader: GroupReader) -> Iterator[str]:
        """What Kafka does not tell of a topic that a group reads: its lag, the lag's age or its end is then not known."""
        parts = [one for one in partitions if one.topic == topic]
        if not parts:
            yield f"Kafka shows the monitor no topic {topic}: it was not made, or the monitor's user may not describe it."
        elif topic not in self._facts.retention:
            yield f"Kafka does not tell the monitor how long it keeps {topic}. Allow its user to describe the topic's settings."
        if any(one.end is None and one.leader >= 0 for one in parts):
            yield f"Kafka does not tell the monitor where all partitions of {topic} end: a leader does not answer."
        if topic in reader.refused:
            yield f"Kafka lets the monitor read no record of {topic}, to see how old its lag is: {reader.refused[topic]}."


def _left(group: str, until: float) -> float:
    """Seconds that are left of this look. Without any the group is left out: the next look may have more."""
    left = until - time.monotonic()
    if left <= 0:
        message = f"Kafka was too slow to tell the monitor how far the group {group} has read."
        raise RetryableError(message)
    return left


def _ignore(_error: KafkaError) -> None:
    """The reader of the cluster tells what is wrong."""
