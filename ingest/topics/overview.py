"""Topics for people: their partitions, the time range of each, and how long they are kept."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ingest.contract.errors import RetryableError
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_reader import CLIENT_ID, ClusterReader
from ingest.lag.cluster_state import PartitionState, TopicSettings
from ingest.lag.group_reader import GroupReader

__all__ = ["TopicOverview", "topic_overviews"]

MOST_SECONDS: Final = 5.0
READ_SECONDS: Final = 1.0
MOST_READ: Final = 200
"""Partitions whose oldest and newest record are read for their times; larger clusters are shown without times."""

Where = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class TopicOverview:
    """One topic.

    Attributes:
        name: its name.
        partitions: by number.
        settings: how it loses records; None if this user may not see it.
        oldest_ms: per partition, the time of its oldest record, if it was read.
        newest_ms: the same for its newest record.
    """

    name: str
    partitions: tuple[PartitionState, ...]
    settings: TopicSettings | None
    oldest_ms: Mapping[int, int] = field(default_factory=dict)
    newest_ms: Mapping[int, int] = field(default_factory=dict)

    @property
    def records(self) -> int | None:
        """Used offsets. Compaction and transactions leave fewer records. None if a partition is unknown."""
        known = [one.end - one.oldest for one in self.partitions if one.end is not None and one.oldest is not None]
        return sum(known) if len(known) == len(self.partitions) else None

    def problems(self) -> list[str]:
        """Return what is wrong with its partitions, one sentence each."""
        least = self.settings.min_in_sync if self.settings else 1
        return [problem for one in self.partitions if (problem := _problem(one, least))]


def topic_overviews(
    settings: KafkaSettings,
    wanted: Callable[[str], bool],
    *,
    most_seconds: float = MOST_SECONDS,
    with_times: bool = True,
) -> list[TopicOverview]:
    """Return the wanted topics by name, without parts that do not come in time; without `with_times`, without times.

    Raises:
        RetryableError: Kafka does not answer.
    """
    until = time.monotonic() + most_seconds
    reader = ClusterReader(settings)
    try:
        _brokers, named = reader.topics(wanted, most_seconds)
        names = sorted({one.topic for one in named})
        partitions = reader.with_offsets(named, _left(until)) if named else []
        told = _settings(reader, names, until)
    finally:
        reader.close()
    oldest, newest = _times(settings, partitions, until) if with_times else ({}, {})
    return [
        TopicOverview(
            name,
            tuple(one for one in partitions if one.topic == name),
            told.get(name),
            {where[1]: at for where, at in oldest.items() if where[0] == name},
            {where[1]: at for where, at in newest.items() if where[0] == name},
        )
        for name in names
    ]


def _problem(one: PartitionState, least_in_sync: int) -> str:
    missing = ", ".join(map(str, one.missing))
    if one.leader < 0:
        return f"partition {one.partition} has no leader, so nobody can read or write it (missing brokers: {missing})"
    if not missing and one.end is None:
        return f"partition {one.partition} shows no offsets: its leader, broker {one.leader}, does not answer"
    if not missing:
        return ""
    have = f"partition {one.partition} has {len(one.in_sync)} of {len(one.replicas)} replicas in sync"
    refused = f", needs {least_in_sync}: Kafka refuses its records" if one.is_refused(least_in_sync) else ""
    return f"{have}{refused} (missing brokers: {missing})"


def _settings(reader: ClusterReader, names: Sequence[str], until: float) -> dict[str, TopicSettings]:
    try:
        return reader.topic_settings(names, _left(until))
    except RetryableError:
        return {}


def _times(
    settings: KafkaSettings, partitions: Sequence[PartitionState], until: float
) -> tuple[dict[Where, int], dict[Where, int]]:
    """Return the times of the first and the last record of each partition that has any."""
    filled = [one for one in partitions if one.oldest is not None and one.end is not None and one.oldest < one.end]
    first = {(one.topic, one.partition): one.oldest or 0 for one in filled[:MOST_READ]}
    last = {(one.topic, one.partition): (one.end or 0) - 1 for one in filled[:MOST_READ]}
    reader = GroupReader(settings, CLIENT_ID, lambda _error: None)
    try:
        oldest = reader.append_times(first, min(READ_SECONDS, _left(until)))
        return oldest, reader.append_times(last, min(READ_SECONDS, _left(until)))
    finally:
        reader.close()


def _left(until: float) -> float:
    return max(0.05, until - time.monotonic())
