"""Topics and offsets as Kafka has them: wait for it, create what is missing, say what differs, look offsets up."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from ingest.clients import make_client
from ingest.contract.errors import ConfigError, FatalError, RetryableError
from ingest.contract.topics import TopicSpec, topic_specs
from ingest.security import client_conf
from ingest.settings import KafkaSettings

__all__ = [
    "TopicState",
    "begin_offsets",
    "create_topic",
    "delete_group",
    "delete_topic",
    "describe_topics",
    "end_offsets",
    "ensure_topics",
    "offsets_at",
    "topic_ids",
    "topic_limits",
    "topic_names",
    "wait_for_kafka",
]

TIMEOUT_SECONDS: Final = 10.0
_DENIED: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND})
_NO_LEADER: Final = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART}
)


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it is. `config` is empty where Kafka does not let this user read it."""

    partitions: int
    config: Mapping[str, str]


def wait_for_kafka(
    settings: KafkaSettings, stop: threading.Event, on_wait: Callable[[str], None], *, pause_seconds: float = 1.0
) -> bool:
    """Wait until Kafka answers; True when it does, False when `stop` was set first.

    `on_wait` is told in one sentence after each vain try (about every 3 s) why there is no answer yet.

    Raises:
        ConfigError: the settings can't work, see `client_conf`.
    """
    reasons: list[str] = []
    client = _client(settings, on_error=reasons.append)
    while not stop.is_set():
        try:
            client.list_topics(timeout=2.0)
        except KafkaException as error:
            client.poll(0)
            why = reasons[0] if reasons else error.args[0].str()
            on_wait(f"Kafka at {settings.bootstrap_servers} does not answer yet ({why}); trying again")
            reasons.clear()
            stop.wait(pause_seconds)
        else:
            return True
    return False


def ensure_topics(settings: KafkaSettings, *, on_made: Callable[[str], None] = lambda name: None) -> list[str]:
    """Create the topics that are missing (each is told to `on_made`) and compare those that exist.

    Returns one sentence per difference. An existing topic is never changed: fewer bytes kept or other partitions would
    delete data or break the order of devices, so that step is the operator's.

    Raises:
        ConfigError: Kafka can't create them so, for example fewer brokers than `kafka.replication`.
        FatalError: no permission to create.
        RetryableError: Kafka does not answer.
    """
    specs = topic_specs(
        partitions=settings.partitions,
        max_record_bytes=settings.max_record_bytes,
        retention_bytes=settings.retention_bytes,
        retention_ms=settings.retention_hours * 3_600_000,
    )
    client = _client(settings)
    existing = _existing(client, settings)
    missing = [spec for spec in specs if spec.name not in existing]
    if missing:
        new = [NewTopic(s.name, s.partitions, settings.replication, config=_wanted(s, settings)) for s in missing]
        for name, future in client.create_topics(new, request_timeout=TIMEOUT_SECONDS).items():
            if _created(future, name, settings):
                on_made(name)
    states = describe_topics(settings, [spec.name for spec in specs if spec.name in existing])
    return [line for spec in specs if spec.name in states for line in _drift(spec, states[spec.name], settings)]


def create_topic(settings: KafkaSettings, name: str, *, partitions: int) -> bool:
    """Create a topic of a derived stream, kept like `telemetry.readings`; True where it was made, False where it was there.

    Raises:
        ConfigError: Kafka can't create it so.
        FatalError: no permission to create.
        RetryableError: Kafka does not answer.
    """
    client = _client(settings)
    if name in _existing(client, settings):
        return False
    first, *_ = topic_specs(
        partitions=partitions,
        max_record_bytes=settings.max_record_bytes,
        retention_bytes=settings.retention_bytes,
        retention_ms=settings.retention_hours * 3_600_000,
    )
    new = NewTopic(name, partitions, settings.replication, config=_wanted(first, settings))
    return any(_created(made, name, settings) for made in client.create_topics([new]).values())


def delete_topic(settings: KafkaSettings, name: str) -> None:
    """Delete a topic; nothing happens where there is none.

    Raises:
        RetryableError: Kafka does not answer, or does not let this user.
    """
    client = _client(settings)  # held until it is done: a client that is freed answers nothing any more
    _await_deleted(settings, client.delete_topics([name], request_timeout=TIMEOUT_SECONDS), f"deleting topic {name}")


def delete_group(settings: KafkaSettings, name: str) -> None:
    """Delete a consumer group's offsets; nothing happens where there are none.

    Raises:
        RetryableError: Kafka does not answer, or does not let this user.
    """
    client = _client(settings)
    done = client.delete_consumer_groups([name], request_timeout=TIMEOUT_SECONDS)
    _await_deleted(settings, done, f"deleting group {name}")


def _await_deleted(settings: KafkaSettings, futures: "Mapping[str, Future[None]]", doing: str) -> None:
    for future in futures.values():
        try:
            future.result(TIMEOUT_SECONDS + 1)
        except (KafkaException, TimeoutError) as error:
            if not isinstance(error, KafkaException) or error.args[0].code() not in _ABSENT:
                raise _unanswered(settings, error, doing) from error


def describe_topics(settings: KafkaSettings, names: list[str]) -> dict[str, TopicState]:
    """The topics of these names that exist.

    Raises:
        RetryableError: Kafka does not answer.
    """
    client = _client(settings)
    existing = {name: count for name, count in _existing(client, settings).items() if name in names}
    if not existing:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in existing]
    configs: dict[str, Mapping[str, str]] = {}
    for resource, future in client.describe_configs(resources, request_timeout=TIMEOUT_SECONDS).items():
        try:
            configs[resource.name] = {key: entry.value for key, entry in future.result(TIMEOUT_SECONDS + 1).items()}
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, TimeoutError) or error.args[0].code() not in _DENIED:
                raise _unanswered(settings, error, f"describing topic {resource.name}") from error
            configs[resource.name] = {}
    return {name: TopicState(count, configs[name]) for name, count in existing.items()}


def topic_names(settings: KafkaSettings) -> list[str]:
    """Every topic that this user sees.

    Raises:
        RetryableError: Kafka does not answer.
    """
    return sorted(_existing(_client(settings), settings))


def topic_limits(settings: KafkaSettings) -> dict[str, int] | None:
    """Largest record (strictly: batch) that each topic takes now; None where Kafka does not let this user read it.

    Raises:
        RetryableError: Kafka does not answer.
    """
    names = [spec.name for spec in topic_specs(partitions=1, max_record_bytes=1, retention_bytes=1, retention_ms=1)]
    states = describe_topics(settings, names)
    if any(not state.config for state in states.values()):
        return None
    return {name: int(state.config["max.message.bytes"]) for name, state in states.items()}


def topic_ids(settings: KafkaSettings, names: Sequence[str]) -> dict[str, str]:
    """Kafka's own id of each topic that exists: a topic that is deleted and made anew gets another.

    Raises:
        RetryableError: Kafka does not answer.
    """
    found = {}
    client = _client(settings)  # held until it is done: a client that is freed answers nothing any more
    described = client.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT_SECONDS)
    for name, future in described.items():
        try:
            found[name] = str(future.result(TIMEOUT_SECONDS + 1).topic_id)
        except (KafkaException, TimeoutError) as error:
            # An old cluster has no ids, and a user may not be allowed to describe: offsets alone must tell then.
            if isinstance(error, TimeoutError) or error.args[0].code() == KafkaError._TIMED_OUT:
                raise _unanswered(settings, error, f"describing topic {name}") from error
    return found


def begin_offsets(settings: KafkaSettings, topic: str) -> dict[int, int]:
    """Oldest offset that is still there, per partition."""
    return _offsets(settings, topic, OffsetSpec.earliest())


def end_offsets(settings: KafkaSettings, topic: str) -> dict[int, int]:
    """Next offset to be written, per partition."""
    return _offsets(settings, topic, OffsetSpec.latest())


def offsets_at(settings: KafkaSettings, topic: str, time_ms: int) -> dict[int, int]:
    """Per partition the first offset whose Kafka time is at or after `time_ms`; the end offset where there is none."""
    found = _offsets(settings, topic, OffsetSpec.for_timestamp(time_ms))
    if all(offset >= 0 for offset in found.values()):
        return found
    ends = end_offsets(settings, topic)
    return {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}


def _client(settings: KafkaSettings, *, on_error: Callable[[str], None] | None = None) -> AdminClient:
    def report(error: KafkaError) -> None:
        # "All brokers are down" follows each reason and says less.
        if on_error is not None and error.code() != KafkaError._ALL_BROKERS_DOWN:
            on_error(error.str())

    # Errors are told by whoever asked: without a callback librdkafka writes them to stderr on its own.
    conf: dict[str, Any] = client_conf(settings, client_id="tidegate-admin") | {"error_cb": report, "log_level": 2}
    return make_client(AdminClient, conf, settings)


def _existing(client: AdminClient, settings: KafkaSettings) -> dict[str, int]:
    try:
        topics = client.list_topics(timeout=TIMEOUT_SECONDS).topics
    except KafkaException as error:
        raise _unanswered(settings, error, "listing topics") from error
    return {name: len(topic.partitions) for name, topic in topics.items()}


def _created(future: "Future[None]", name: str, settings: KafkaSettings) -> bool:
    """True where it was made, False where somebody else was faster."""
    try:
        future.result(TIMEOUT_SECONDS + 1)
    except TimeoutError as error:
        raise _unanswered(settings, error, f"creating topic {name}") from error
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if code == KafkaError.INVALID_REPLICATION_FACTOR:
            message = (
                f"Kafka can't create topic {name} with kafka.replication = {settings.replication}: "
                f"{error.args[0].str()} Set it to the number of brokers or less."
            )
            raise ConfigError(message) from error
        if code in {KafkaError.INVALID_CONFIG, KafkaError.INVALID_PARTITIONS, KafkaError.POLICY_VIOLATION}:
            message = f"Kafka refuses to create topic {name} as the settings ask: {error.args[0].str()}"
            raise ConfigError(message) from error
        if code in _DENIED:
            message = (
                f"The Kafka user {settings.sasl_username or 'ANONYMOUS'} may not create topic {name}: grant it CREATE "
                "on the cluster, or let an administrator create the topic."
            )
            raise FatalError(message) from error
        raise _unanswered(settings, error, f"creating topic {name}") from error
    return True


def _wanted(spec: TopicSpec, settings: KafkaSettings) -> dict[str, str]:
    if settings.replication < 3:
        return spec.config
    durable = {"min.insync.replicas": str(settings.replication - 1), "unclean.leader.election.enable": "false"}
    return spec.config | durable


def _drift(spec: TopicSpec, state: TopicState, settings: KafkaSettings) -> list[str]:
    lines = []
    if state.partitions != spec.partitions:
        lines.append(
            f"Topic {spec.name} has {state.partitions} partitions, the settings say {spec.partitions}. It is used as "
            "it is: another number would send known devices to other partitions and break their order."
        )
    for key, wanted in _wanted(spec, settings).items():
        has = state.config.get(key, wanted)
        if has != wanted:
            lines.append(
                f"Topic {spec.name} has {key}={has}, the settings say {wanted}. It is used as it is; to change it, run "
                f"kafka-configs.sh --alter --topic {spec.name} --add-config {key}={wanted}"
            )
    return lines


def _offsets(settings: KafkaSettings, topic: str, spec: OffsetSpec) -> dict[int, int]:
    client = _client(settings)
    existing = _existing(client, settings)
    if topic not in existing:
        message = f"Kafka at {settings.bootstrap_servers} has no topic {topic}: has the pipeline run on this cluster?"
        raise FatalError(message)
    asked = {TopicPartition(topic, partition): spec for partition in range(existing[topic])}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            answers = client.list_offsets(asked, request_timeout=TIMEOUT_SECONDS)
            return {where.partition: answer.result(TIMEOUT_SECONDS + 1).offset for where, answer in answers.items()}
        except (KafkaException, TimeoutError) as error:
            if not _leads_nobody(error) or time.monotonic() > deadline:
                raise _unanswered(settings, error, f"asking for offsets of topic {topic}") from error
            time.sleep(0.1)


def _leads_nobody(error: Exception) -> bool:
    """True in the moments after a topic was made, or a broker left, in which a partition has no known leader."""
    return isinstance(error, KafkaException) and error.args[0].code() in _NO_LEADER


def _unanswered(settings: KafkaSettings, error: Exception, doing: str) -> RetryableError:
    cause = error.args[0] if error.args else error
    text = cause.str() if isinstance(cause, KafkaError) else str(cause) or "no answer in time"
    message = f"Kafka at {settings.bootstrap_servers} failed while {doing}: {text}"
    return RetryableError(message, retry_after_seconds=2.0)
