"""Kafka as seen by the monitor: topics, unread records and their age, time until loss.

The samples of a look have kafka_exporter's names and our own; label values are in the order of the families.
"""

import logging
import math
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
from ingest.lag.tracker import LagTracker
from ingest.topics.copies import wanted_copies
from monitoring.periodic_query import IncompleteError

__all__ = ["LAND_TOPICS", "ClusterProbe", "Samples", "cluster_samples", "is_own_topic", "unreachable_samples"]

logger = logging.getLogger("tidegate.ingest.cluster")

LOOK_SECONDS: Final = 2.8
ASK_SECONDS: Final = 1.2
LAND_TOPICS: Final[Mapping[str, Sequence[str]]] = {LAND_GROUP: (READINGS, DEAD_LETTERS)}
"""Topics that a group must read. They count as unread even if the group never committed."""

Samples = dict[str, list[tuple[tuple[str, ...], float]]]
"""Name -> (label values, value) per series."""


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
        self._unreadable: list[str] = []
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
        if self._unreadable:
            more = f" And {len(self._unreadable) - 1} more of this kind." if len(self._unreadable) > 1 else ""
            raise IncompleteError(self._unreadable[0] + more, samples)
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
        self._unreadable = []
        groups = [one for name in self._wanted_groups() for one in self._group(name, partitions, until)]
        self._lags.keep(groups)
        wanted = wanted_copies(self._settings, brokers)
        return ClusterState(brokers, tuple(partitions), tuple(groups), self._facts.min_in_sync, wanted)

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
            self._unreadable.append(str(error))
            return []
        read = {topic for topic, _ in committed} | set(self._must_read.get(name, ()))
        own = [one for one in partitions if one.topic in read]
        found = self._lags.group(name, reader, own, committed, self._facts)
        self._unreadable += [text for topic in sorted(read) for text in self._unreadable_of(topic, own, reader)]
        return found

    def _unreadable_of(self, topic: str, partitions: list[PartitionState], reader: GroupReader) -> Iterator[str]:
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


def unreachable_samples() -> Samples:
    """Return the samples of a Kafka that does not answer."""
    return {"tidegate_kafka_reachable": [((), 0.0)]}


def cluster_samples(state: ClusterState) -> Samples:
    """Return every series of one look."""
    counts: dict[str, int] = {}
    for one in state.partitions:
        counts[one.topic] = counts.get(one.topic, 0) + 1
    return {
        "tidegate_kafka_reachable": [((), 1.0)],
        "kafka_brokers": [((), float(state.brokers))],
        "kafka_topic_partitions": [((topic,), float(count)) for topic, count in counts.items()],
        **_partitions(state.partitions),
        "tidegate_kafka_under_min_isr_partitions": _under_min_isr(state),
        "tidegate_kafka_missing_copies": [((topic,), float(state.missing_copies(topic))) for topic in counts],
        **_groups(state.groups),
    }


def _partitions(partitions: Iterable[PartitionState]) -> Samples:
    names = "current_offset", "oldest_offset", "in_sync_replica", "leader", "under_replicated_partition"
    samples: Samples = {f"kafka_topic_partition_{name}": [] for name in names}
    for one in partitions:
        values = one.end, one.oldest, len(one.in_sync), one.leader, bool(one.missing)
        for name, value in zip(names, values, strict=True):
            if value is not None:
                samples[f"kafka_topic_partition_{name}"].append(((one.topic, str(one.partition)), float(value)))
    return samples


def _under_min_isr(state: ClusterState) -> list[tuple[tuple[str, ...], float]]:
    """Return per topic the number of partitions for which Kafka accepts no record, including 0, where the settings are known."""
    found: dict[tuple[str, ...], float] = {}
    for one in state.partitions:
        least = state.min_in_sync.get(one.topic)
        if least is not None:
            found[one.topic,] = found.get((one.topic,), 0.0) + one.is_refused(least)
    return list(found.items())


def _groups(groups: Iterable[GroupPartition]) -> Samples:
    offsets: list[tuple[tuple[str, ...], float]] = []
    lags: list[tuple[tuple[str, ...], float]] = []
    behind: dict[tuple[str, ...], list[GroupPartition]] = {}
    for one in groups:
        labels = (one.group, one.topic, str(one.partition))
        lags.append((labels, float(one.lag)))
        if one.committed is not None:
            offsets.append((labels, float(one.committed)))
        behind.setdefault(labels[:2], [])
        if one.lag:
            behind[labels[:2]].append(one)
    ages = [(where, _worst(max, [one.lag_seconds for one in parts], 0.0)) for where, parts in behind.items()]
    left = [(where, _worst(min, [one.seconds_to_loss for one in parts], math.inf)) for where, parts in behind.items()]
    return {
        "kafka_consumergroup_current_offset": offsets,
        "kafka_consumergroup_lag": lags,
        "tidegate_kafka_lag_seconds": [(where, value) for where, value in ages if value is not None],
        "tidegate_kafka_time_to_data_loss_seconds": [(where, value) for where, value in left if value is not None],
    }


def _worst(pick: Callable[[list[float]], float], values: list[float | None], none_behind: float) -> float | None:
    """Pick the worst value of the partitions that are behind; None where it is unknown for all of them."""
    known = [value for value in values if value is not None]
    return pick(known) if known else (None if values else none_behind)
