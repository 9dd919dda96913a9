"""Kafka as seen by the monitor: topics, unread records and their age, time until loss."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError

from ingest.contract.errors import RetryableError
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, LAND_GROUP, OUTCOMES, READINGS, stream_topic
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_facts import ClusterFacts
from ingest.lag.cluster_reader import ClusterReader
from ingest.lag.cluster_state import ClusterState, GroupPartition, PartitionState
from ingest.lag.group_reader import GroupReader
from ingest.lag.samples import Samples, cluster_samples, unreachable_samples
from ingest.lag.tracker import LagTracker
from monitoring.periodic_query import IncompleteError

__all__ = ["LAND_TOPICS", "ClusterProbe", "is_own_topic"]

logger = logging.getLogger("tidegate.ingest.cluster")

LOOK_SECONDS: Final = 2.8
ASK_SECONDS: Final = 1.2
LAND_TOPICS: Final[Mapping[str, Sequence[str]]] = {LAND_GROUP: (READINGS, DEAD_LETTERS)}
"""Topics that a group must read. They count as unread even if the group never committed."""


def is_own_topic(name: str) -> bool:
    """Return whether Tidegate writes this topic."""
    return name in {READINGS, DEAD_LETTERS, OUTCOMES, GATEWAY_STATE} or name.startswith(stream_topic(""))


class ClusterProbe:
    """Probe of a Kafka cluster. Each look asks once and waits about three seconds at most; clients reconnect by themselves."""

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
            groups: returns the names of the groups to look at; called at each look.
            topics: which topics to look at.
            must_read: topics of a group that count as unread although it never committed anything.

        Raises:
            ConfigError: the settings cannot work.
        """
        self._settings, self._names = settings, groups
        self._topics, self._must_read = topics, must_read
        self._reader = ClusterReader(settings)
        self._groups: dict[str, GroupReader] = {}
        self._facts, self._lags = ClusterFacts(), LagTracker()
        self._untold: list[str] = []
        self._why: str | None = None
        self._lock = threading.Lock()
        self._closed = False

    def look(self) -> Samples:
        """Return samples under the names of the families KAFKA; only `tidegate_kafka_reachable` 0 if Kafka does not answer.

        Raises:
            IncompleteError: Kafka answers, but not everything that alerts need. Holds the samples that are known.
        """
        try:
            samples = cluster_samples(self.state())
        except RetryableError:
            return unreachable_samples()
        if self._untold:
            more = f" And {len(self._untold) - 1} more of this kind." if len(self._untold) > 1 else ""
            raise IncompleteError(self._untold[0] + more, samples)
        return samples

    def state(self) -> ClusterState:
        """Return the same as values.

        Raises:
            RetryableError: Kafka does not answer in time; the text says why.
        """
        with self._lock:
            if self._closed:
                message = "The Kafka monitor is closed"
                raise RetryableError(message)
            try:
                state = self._look(time.monotonic() + LOOK_SECONDS)
            except RetryableError as error:
                self._tell(str(error))
                raise
            self._tell("")
            return state

    def close(self) -> None:
        """Close the probe. A hanging look is waited for, but not for long."""
        self._closed = True
        if self._lock.acquire(timeout=LOOK_SECONDS + 1.0):
            self._reader.close()
            for reader in self._groups.values():
                reader.close()
            self._groups = {}
            self._lock.release()

    def _tell(self, why: str) -> None:
        # Log once: in a long outage the reason changes with each try.
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
        """Return the wanted groups, and make and close readers so that each group has exactly one."""
        wanted = sorted(set(self._names()))
        for name in self._groups.keys() - wanted:
            self._groups.pop(name).close()
        for name in wanted:
            if name not in self._groups:
                self._groups[name] = GroupReader(self._settings, name, _ignore)
        return wanted

    def _group(self, name: str, partitions: list[PartitionState], until: float) -> list[GroupPartition]:
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

    def _untold_of(self, topic: str, partitions: list[PartitionState], reader: GroupReader) -> Iterator[str]:
        """Yield what is unknown about a topic that a group reads: its lag, the age of the lag, or its end."""
        parts = [one for one in partitions if one.topic == topic]
        if not parts:
            yield f"The monitor does not see topic {topic}: it does not exist, or the monitor's user may not describe it."
        elif topic not in self._facts.retention:
            yield f"The monitor cannot read the retention of {topic}. Grant its user DESCRIBE_CONFIGS on the topic."
        if any(one.end is None and one.leader >= 0 for one in parts):
            yield f"The monitor does not know the end offset of every partition of {topic}: a leader does not answer."
        if topic in reader.refused:
            yield f"The monitor cannot read records of {topic}, so the age of its lag is unknown: {reader.refused[topic]}."


def _left(group: str, until: float) -> float:
    """Return the seconds left for this look. A group without time is left out; the next look may have more."""
    left = until - time.monotonic()
    if left <= 0:
        message = f"Kafka was too slow: the monitor does not know the committed offsets of group {group}."
        raise RetryableError(message)
    return left


def _ignore(_error: KafkaError) -> None:
    """Ignore an error: the reader of the cluster reports it."""
