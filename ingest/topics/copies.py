"""Copies of a topic's records: how many the settings ask for, how many exist, and how many must be in sync.

The number in sync decides what an acknowledgement is worth: with one, a record that Kafka acknowledged can be on one disk.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import TIMEOUT_SECONDS, admin_client, no_answer_error

__all__ = ["MIN_IN_SYNC", "Copies", "TopicCopies", "copies_config", "read_copies", "replication_now", "wanted_copies"]

USUAL_COPIES: Final = 3
"""Copies of a new topic on a cluster with this many brokers, if the settings do not name a number."""
MIN_IN_SYNC: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of each partition (`replication`), and those that must have a record before Kafka acknowledges it."""

    replication: int
    min_in_sync: int


@dataclass(frozen=True, slots=True)
class TopicCopies:
    """Copies in a cluster: the number of its brokers, and per topic the copies of the partition that has the fewest."""

    brokers: int
    by_topic: Mapping[str, int] = field(default_factory=dict)


def wanted_copies(settings: KafkaSettings, brokers: int) -> Copies:
    """Return the copies that the settings ask for on a cluster of this size."""
    replication = settings.replication or max(1, min(USUAL_COPIES, brokers))
    return Copies(replication, settings.min_in_sync or max(min(2, replication), replication - 1))


def copies_config(copies: Copies) -> dict[str, str]:
    """Return the topic settings that make an acknowledged record safe; none for one copy, where nothing can be in sync."""
    if copies.replication == 1:
        return {}
    # An unclean election would make a copy without the newest acknowledged records the leader.
    return {MIN_IN_SYNC: str(copies.min_in_sync), "unclean.leader.election.enable": "false"}


def read_copies(
    client: AdminClient, settings: KafkaSettings, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> TopicCopies:
    """Return the copies of every topic that this user sees.

    Raises:
        RetryableError: Kafka does not answer.
    """
    try:
        found = client.list_topics(timeout=timeout_seconds)
    except KafkaException as error:
        raise no_answer_error(settings, error, "listing brokers and topics") from error
    fewest = {
        name: min(len(one.replicas) for one in topic.partitions.values())
        for name, topic in found.topics.items()
        if topic.partitions
    }
    return TopicCopies(len(found.brokers), fewest)


def replication_now(settings: KafkaSettings) -> int:
    """Return the copies that a new topic gets; asks Kafka for its brokers only if the settings do not name a number.

    Raises:
        RetryableError: Kafka does not answer.
    """
    return (
        settings.replication
        or wanted_copies(settings, read_copies(admin_client(settings), settings).brokers).replication
    )
