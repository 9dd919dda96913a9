"""Topics partition by partition: who leads, which copies are in sync, which records are there, and how long they are kept."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicMetadata

from ingest.admin import TIMEOUT_SECONDS, admin_client, result_of, unanswered
from ingest.settings import KafkaSettings
from ingest.topic_state import describe_topics

__all__ = ["PartitionDetails", "TopicDetails", "topic_details"]

Where = tuple[str, int]
"""Topic and partition."""
_MIN_IN_SYNC: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class PartitionDetails:
    """One partition.

    Attributes:
        partition: its number.
        leader: id of the broker that leads it; None where none does.
        replicas: the brokers that should have it.
        in_sync: those of them that have all of it.
        oldest: first offset that is still there; None while its leader does not answer.
        end: next offset to be written; None as above.
    """

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    oldest: int | None
    end: int | None

    @property
    def missing(self) -> tuple[int, ...]:
        """Brokers that should have all of it and have not."""
        return tuple(broker for broker in self.replicas if broker not in self.in_sync)

    def problem(self, least_in_sync: int) -> str:
        """What is wrong with it, in words; nothing where all is well."""
        missing = ", ".join(map(str, self.missing))
        if self.leader is None:
            return (
                f"partition {self.partition} has no leader, so nobody can read or write it (missing brokers: {missing})"
            )
        if not self.missing:
            return ""
        have = f"partition {self.partition} has {len(self.in_sync)} of {len(self.replicas)} replicas in sync"
        refused = (
            "" if len(self.in_sync) >= least_in_sync else f", {least_in_sync} are wanted: Kafka refuses its records"
        )
        return f"{have}{refused} (missing brokers: {missing})"


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """One topic; `config` is empty where Kafka does not let this user read it."""

    name: str
    partitions: tuple[PartitionDetails, ...]
    config: Mapping[str, str]

    @property
    def records(self) -> int | None:
        """Offsets that are taken; compaction and transactions leave fewer records. None where a partition is not known."""
        known = [one.end - one.oldest for one in self.partitions if one.end is not None and one.oldest is not None]
        return sum(known) if len(known) == len(self.partitions) else None

    def problems(self) -> list[str]:
        """What is wrong with its partitions, a sentence each."""
        least = int(self.config.get(_MIN_IN_SYNC, 1))
        return [problem for one in self.partitions if (problem := one.problem(least))]


def topic_details(settings: KafkaSettings, wanted: Callable[[str], bool]) -> list[TopicDetails]:
    """The wanted topics by name. A partition whose leader does not answer is told without offsets.

    Raises:
        RetryableError: Kafka does not answer.
    """
    client = admin_client(settings)
    try:
        found = client.list_topics(timeout=TIMEOUT_SECONDS).topics
    except KafkaException as error:
        raise unanswered(settings, error, "listing topics") from error
    topics = {name: topic for name, topic in sorted(found.items()) if wanted(name)}
    oldest, ends = (_offsets(client, topics, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
    states = describe_topics(settings, list(topics))
    return [
        TopicDetails(name, _partitions(name, topic, oldest, ends), states[name].config if name in states else {})
        for name, topic in topics.items()
    ]


def _partitions(
    name: str, topic: TopicMetadata, oldest: Mapping[Where, int], ends: Mapping[Where, int]
) -> tuple[PartitionDetails, ...]:
    return tuple(
        PartitionDetails(
            number,
            one.leader if one.leader >= 0 else None,
            tuple(sorted(one.replicas)),
            tuple(sorted(one.isrs)),
            oldest.get((name, number)),
            ends.get((name, number)),
        )
        for number, one in sorted(topic.partitions.items())
    )


def _offsets(client: AdminClient, topics: Mapping[str, TopicMetadata], spec: OffsetSpec) -> dict[Where, int]:
    asked = {
        TopicPartition(name, number): spec
        for name, topic in topics.items()
        for number, one in topic.partitions.items()
        if one.leader >= 0
    }
    if not asked:
        return {}
    answers = client.list_offsets(asked, request_timeout=TIMEOUT_SECONDS)
    offsets = {(where.topic, where.partition): _offset(answer) for where, answer in answers.items()}
    return {where: offset for where, offset in offsets.items() if offset is not None}


def _offset(answer: "Future[object]") -> int | None:
    """The others' figures are worth having while one leader hangs."""
    try:
        return int(result_of(answer).offset)  # type: ignore[attr-defined]
    except (KafkaException, TimeoutError):
        return None
