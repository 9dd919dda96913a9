"""Create and delete topics, and report differences between existing ones and the settings.

Each change waits until Kafka shows it: the controller answers before the brokers know of it.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from ingest.contract.errors import ConfigError, RetryableError
from ingest.contract.topics import TopicSpec, topic_specs
from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import (
    TIMEOUT_SECONDS,
    admin_client,
    await_deleted,
    no_answer_error,
    partition_counts,
    result_of,
)
from ingest.topics.copies import Copies, copies_config, read_copies, wanted_copies
from ingest.topics.describe import TopicState, describe_topics
from ingest.topics.rights import is_denied, missing_right

__all__ = ["await_topics", "create_topic", "delete_topic", "ensure_topics", "topic_differences", "wanted_config"]

_REFUSED: Final = frozenset(
    {
        KafkaError.INVALID_CONFIG, KafkaError.INVALID_PARTITIONS, KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
    }
)  # fmt: skip
"""Errors of the request itself: settings, number of partitions, a rule of the cluster, a name that Kafka rejects."""

SHOWN_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.02


def ensure_topics(settings: KafkaSettings, *, on_made: Callable[[str], None] = lambda name: None) -> list[str]:
    """Create the missing topics (`on_made` gets each name) and compare the existing ones.

    Returns when Kafka shows the new topics.

    Returns one sentence per difference. It never changes an existing topic: fewer bytes kept or other partitions would
    delete data or break the order of devices, so that step is the operator's.

    Raises:
        ConfigError: Kafka cannot create them like this, for example with fewer brokers than `kafka.replication`.
        MissingRightError: this user may not create topics.
        RetryableError: Kafka does not answer.
    """
    specs = _specs(settings, settings.partitions)
    client = admin_client(settings)
    existing = partition_counts(client, settings)
    missing = [spec for spec in specs if spec.name not in existing]
    if missing:
        copies = wanted_copies(settings, read_copies(client, settings).brokers)
        new = [NewTopic(s.name, s.partitions, copies.replication, config=_wanted(s, copies)) for s in missing]
        for name, future in client.create_topics(new, request_timeout=TIMEOUT_SECONDS).items():
            if _created(future, name, settings, copies):
                on_made(name)
        await_topics(client, [spec.name for spec in missing])
    differences = topic_differences(settings, [spec.name for spec in specs if spec.name in existing])
    return [line for lines in differences.values() for line in lines]


def topic_differences(settings: KafkaSettings, names: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Return one sentence per difference between an existing topic of Tidegate and the settings, by topic.

    Topics that do not exist are left out. Without `names` it compares all topics of Tidegate but those of SQL streams.

    Raises:
        RetryableError: Kafka does not answer.
    """
    specs = [spec for spec in _specs(settings, settings.partitions) if names is None or spec.name in names]
    states = describe_topics(settings, [spec.name for spec in specs]) if specs else {}
    if not states:
        return {}
    has = read_copies(admin_client(settings), settings)
    copies = wanted_copies(settings, has.brokers)
    return {
        spec.name: [
            *_drift(spec, states[spec.name], copies),
            *_fewer_or_more(spec.name, has.by_topic.get(spec.name), copies.replication),
        ]
        for spec in specs
        if spec.name in states
    }


def create_topic(
    settings: KafkaSettings, name: str, *, partitions: int, config: Mapping[str, str] | None = None
) -> bool:
    """Create a topic with as many copies as the settings ask for; True if it was created, False if it existed.

    Returns when Kafka shows it.

    `config` holds the topic's own settings; without them it is kept like `telemetry.readings`, as for derived streams.

    Raises:
        ConfigError: Kafka cannot create it like this.
        MissingRightError: this user may not create topics.
        RetryableError: Kafka does not answer.
    """
    client = admin_client(settings)
    if name in partition_counts(client, settings):
        return False
    copies = wanted_copies(settings, read_copies(client, settings).brokers)
    if config is None:
        first, *_ = _specs(settings, partitions)
        config = _wanted(first, copies)
    new = NewTopic(name, partitions, copies.replication, config=dict(config))
    is_new = any(_created(made, name, settings, copies) for made in client.create_topics([new]).values())
    await_topics(client, [name])
    return is_new


def delete_topic(settings: KafkaSettings, name: str) -> None:
    """Delete a topic; does nothing if it does not exist. Returns when Kafka no longer shows it.

    Raises:
        MissingRightError: this user may not delete it.
        RetryableError: Kafka does not answer.
    """
    client = admin_client(settings)
    futures = client.delete_topics([name], request_timeout=TIMEOUT_SECONDS)
    try:
        await_deleted(settings, futures, f"deleting topic {name}")
    except RetryableError as error:
        if is_denied(error.__cause__):
            raise missing_right(settings, f"delete topic {name}", "DELETE") from error
        raise
    await_topics(client, [name], there=False)


def await_topics(client: AdminClient, names: Collection[str], *, there: bool = True) -> None:
    """Wait until Kafka shows these topics, each partition with a leader; with `there=False`, until it shows none of them.

    A request right after the controller's answer may get the opposite answer. Returns after five seconds at the latest,
    without an error: the change is made, although this user may never see it.
    """
    deadline, waiting = time.monotonic() + SHOWN_SECONDS, set(names)
    while waiting and (left := deadline - time.monotonic()) > 0:
        asked = client.describe_topics(TopicCollection(sorted(waiting)), request_timeout=left)
        waiting = {name for name, future in asked.items() if _is_late(future, left, there=there)}
        if waiting:
            time.sleep(PAUSE_SECONDS)


def _is_late(future: "Future[Any]", seconds: float, *, there: bool) -> bool:
    try:
        found = future.result(seconds)
    except TimeoutError:
        return True
    except KafkaException as error:
        # Waiting does not help with other errors, such as a missing right.
        return there and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    return not there or any(one.leader is None for one in found.partitions)


def _created(future: "Future[None]", name: str, settings: KafkaSettings, copies: Copies) -> bool:
    """Return True if the topic was created, False if another client was faster."""
    try:
        result_of(future)
    except TimeoutError as error:
        raise no_answer_error(settings, error, f"creating topic {name}") from error
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if code == KafkaError.INVALID_REPLICATION_FACTOR:
            message = (
                f"Kafka cannot create topic {name} with {copies.replication} copies: {error.args[0].str()} Set "
                "--replication, or kafka.replication in the settings, to at most the number of brokers."
            )
            raise ConfigError(message) from error
        if code in _REFUSED:
            message = f"Kafka refuses to create topic {name!r}: {error.args[0].str()}"
            raise ConfigError(message) from error
        if is_denied(error):
            raise missing_right(
                settings, f"create topic {name}", "CREATE", "cluster", instead="let an administrator create the topic"
            ) from error
        raise no_answer_error(settings, error, f"creating topic {name}") from error
    return True


def wanted_config(settings: KafkaSettings, name: str) -> dict[str, str]:
    """Return the settings' configuration of one topic; topics of derived streams are kept like `telemetry.readings`.

    Raises:
        RetryableError: Kafka does not answer.
    """
    readings, *others = _specs(settings, settings.partitions)
    copies = wanted_copies(settings, read_copies(admin_client(settings), settings).brokers)
    return _wanted(next((spec for spec in others if spec.name == name), readings), copies)


def _specs(settings: KafkaSettings, partitions: int) -> Sequence[TopicSpec]:
    return topic_specs(
        partitions=partitions,
        max_record_bytes=settings.max_record_bytes,
        retention_bytes=settings.retention_bytes,
        retention_ms=settings.retention_hours * 3_600_000,
    )


def _wanted(spec: TopicSpec, copies: Copies) -> dict[str, str]:
    return spec.config | copies_config(copies)


def _fewer_or_more(name: str, has: int | None, wanted: int) -> list[str]:
    """Return the difference in copies. Kafka's protocol can add copies, but this client library cannot ask for it."""
    if has is None or has == wanted:
        return []
    return [
        f"Topic {name} has {has} {'copy' if has == 1 else 'copies'} of each partition, the settings say {wanted}. Tidegate uses "
        f"it unchanged. Change the copies with Kafka's kafka-reassign-partitions, or set kafka.replication = {has}."
    ]


def _drift(spec: TopicSpec, state: TopicState, copies: Copies) -> list[str]:
    lines = []
    if state.partitions != spec.partitions:
        lines.append(
            f"Topic {spec.name} has {state.partitions} partitions, the settings say {spec.partitions}. Tidegate uses it "
            "unchanged: another number would send known devices to other partitions and break their order."
        )
    for key, wanted in _wanted(spec, copies).items():
        has = state.config.get(key, wanted)
        if has != wanted:
            lines.append(
                f"Topic {spec.name} has {key}={has}, the settings say {wanted}. Tidegate uses it unchanged. To change it, "
                f"run `tidegate topics set {spec.name} --as-settings` with the same --config or --data."
            )
    return lines
