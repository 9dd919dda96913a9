"""Topics in Kafka: names, ids, partitions, configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

from ingest.contract.topics import topic_specs
from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import DENIED, TIMEOUT_SECONDS, admin_client, no_answer_error, partition_counts, result_of

__all__ = ["TopicState", "describe_topics", "topic_ids", "topic_limits", "topic_names"]

_SET_FOR_TOPIC: Final = ConfigSource.DYNAMIC_TOPIC_CONFIG.value


@dataclass(frozen=True, slots=True)
class TopicState:
    """An existing topic. `config` is empty if this user may not read it; `own` holds the settings of this topic alone."""

    partitions: int
    config: Mapping[str, str]
    own: Mapping[str, str] = field(default_factory=dict)


def describe_topics(settings: KafkaSettings, names: list[str]) -> dict[str, TopicState]:
    """Return the topics of these names that exist.

    Raises:
        RetryableError: Kafka does not answer.
    """
    client = admin_client(settings)
    existing = {name: count for name, count in partition_counts(client, settings).items() if name in names}
    if not existing:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in existing]
    configs: dict[str, Mapping[str, str]] = {}
    own: dict[str, Mapping[str, str]] = {}
    for resource, future in client.describe_configs(resources, request_timeout=TIMEOUT_SECONDS).items():
        try:
            entries = result_of(future)
            configs[resource.name] = {key: entry.value for key, entry in entries.items()}
            set_here = {key: entry.value for key, entry in entries.items() if entry.source == _SET_FOR_TOPIC}
            own[resource.name] = set_here
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, TimeoutError) or error.args[0].code() not in DENIED:
                raise no_answer_error(settings, error, f"describing topic {resource.name}") from error
            configs[resource.name] = {}
    return {name: TopicState(count, configs[name], own.get(name, {})) for name, count in existing.items()}


def topic_names(settings: KafkaSettings) -> list[str]:
    """Return every topic that this user sees.

    Raises:
        RetryableError: Kafka does not answer.
    """
    return sorted(partition_counts(admin_client(settings), settings))


def topic_limits(settings: KafkaSettings) -> dict[str, int] | None:
    """Return the largest record (strictly: batch) that each topic takes now; None if this user may not read it.

    Raises:
        RetryableError: Kafka does not answer.
    """
    names = [spec.name for spec in topic_specs(partitions=1, max_record_bytes=1, retention_bytes=1, retention_ms=1)]
    states = describe_topics(settings, names)
    if any(not state.config for state in states.values()):
        return None
    return {name: int(state.config["max.message.bytes"]) for name, state in states.items()}


def topic_ids(settings: KafkaSettings, names: Sequence[str]) -> dict[str, str]:
    """Return Kafka's own id of each existing topic: a topic that was deleted and recreated gets a new id.

    Raises:
        RetryableError: Kafka does not answer.
    """
    found = {}
    client = admin_client(settings)
    described = client.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT_SECONDS)
    for name, future in described.items():
        try:
            found[name] = str(result_of(future).topic_id)
        except (KafkaException, TimeoutError) as error:
            # An old cluster has no ids, and the user may lack the right to describe: then only offsets show a change.
            if isinstance(error, TimeoutError) or error.args[0].code() == KafkaError._TIMED_OUT:
                raise no_answer_error(settings, error, f"describing topic {name}") from error
    return found
