"""State of Kafka at one moment: plain values that `ClusterProbe` fills and anyone may read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ingest.topics.copies import Copies

__all__ = ["ClusterState", "GroupPartition", "PartitionState", "TopicRetention", "TopicSettings"]

_ONE: Final = Copies(1, 1)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition of a topic.

    Attributes:
        topic: its name.
        partition: its number.
        oldest: first offset that still exists; None while its leader does not answer.
        end: next offset to be written; None as above.
        leader: id of the leading broker, -1 where there is none.
        replicas: the brokers that should have a copy.
        in_sync: those of them that have a complete copy.
    """

    topic: str
    partition: int
    oldest: int | None
    end: int | None
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def missing(self) -> tuple[int, ...]:
        """Brokers that should have a complete copy but do not."""
        return tuple(broker for broker in self.replicas if broker not in self.in_sync)

    def is_refused(self, least_in_sync: int) -> bool:
        """Return whether Kafka accepts no record for it. If fewer replicas exist than are required, Kafka requires only those."""
        return len(self.in_sync) < min(least_in_sync, len(self.replicas))


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One partition as a group sees it.

    Attributes:
        group: its name.
        topic: of the partition.
        partition: its number.
        committed: next offset that the group reads; None where it never committed one.
        lag: records that it has not read. Counted from the oldest record where nothing, or an offset out of range, is
            committed.
        lag_seconds: age of the oldest unread record by Kafka's clock; 0 without lag, None where it is unknown.
        seconds_to_loss: until retention deletes that record; infinite without lag, None where retention is unknown.
    """

    group: str
    topic: str
    partition: int
    committed: int | None
    lag: int
    lag_seconds: float | None
    seconds_to_loss: float | None


@dataclass(frozen=True, slots=True)
class ClusterState:
    """One look, with only the topics and groups that were asked for.

    Attributes:
        brokers: how many the cluster names.
        partitions: of all topics.
        groups: of all groups.
        min_in_sync: per topic, how many replicas must be in sync for Kafka to accept a record; where this user may see it.
        wanted: what the settings ask for on a cluster of this size.
    """

    brokers: int
    partitions: tuple[PartitionState, ...]
    groups: tuple[GroupPartition, ...]
    min_in_sync: Mapping[str, int] = field(default_factory=dict)
    wanted: Copies = _ONE

    def missing_copies(self, topic: str) -> int:
        """Return how many copies an acknowledged record of the topic may lack, compared with the settings; 0 if none."""
        replicas = min((len(one.replicas) for one in self.partitions if one.topic == topic), default=0)
        missing = self.wanted.replication - replicas
        if topic in self.min_in_sync:
            missing = max(missing, self.wanted.min_in_sync - min(self.min_in_sync[topic], replicas))
        return max(0, missing)


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """Rules by which a topic's partitions lose their oldest records.

    Attributes:
        seconds: age at which Kafka may delete a record; infinite where none is set.
        size_bytes: size of a partition beyond which Kafka deletes its oldest segment; infinite where none is set.
        segment_bytes: size that Kafka deletes at once.
        by_append_time: whether records carry Kafka's clock, not their producer's.
        policy: Kafka's `cleanup.policy`: delete, compact, or both.
    """

    seconds: float = math.inf
    size_bytes: float = math.inf
    segment_bytes: float = math.inf
    by_append_time: bool = True
    policy: str = "delete"


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of a topic that the monitor asks for.

    Attributes:
        retention: how it loses records.
        min_in_sync: how many replicas must be in sync for Kafka to accept a record.
    """

    retention: TopicRetention
    min_in_sync: int = 1
