"""Consumer groups as Kafka's own tools show them: members, their partitions, and the committed offsets."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from ingest.contract.errors import FatalError
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_reader import ClusterReader
from ingest.lag.group_reader import GroupReader
from ingest.topics.admin import TIMEOUT_SECONDS, admin_client, no_answer_error, partition_counts, result_of
from ingest.topics.rights import is_denied, missing_right

__all__ = ["ConsumerGroup", "GroupMember", "GroupOffset", "describe_group", "list_groups"]

_EMPTY: Final = frozenset({"EMPTY", "DEAD"})
_RETRIED: Final = frozenset(
    {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}
)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer of a group, and the partitions assigned to it."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Progress of a group in a partition: the next offset it reads, and the next to be written (None: unknown)."""

    topic: str
    partition: int
    committed: int
    end: int | None

    @property
    def lag(self) -> int | None:
        """Unread records."""
        return None if self.end is None else max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A consumer group.

    Attributes:
        name: its id.
        state: Kafka's name, such as STABLE or EMPTY.
        protocol: `classic` or `consumer`, that of its members.
        coordinator: host and port of the broker that manages it.
        assignor: how partitions are assigned.
        members: by client id.
        places: committed offsets, by topic and partition.
    """

    name: str
    state: str
    protocol: str
    coordinator: str = ""
    assignor: str = ""
    members: tuple[GroupMember, ...] = ()
    places: tuple[GroupOffset, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no member that would overwrite an offset."""
        return self.state in _EMPTY


def list_groups(settings: KafkaSettings) -> list[ConsumerGroup]:
    """Return all groups that this user may see, by name, without members and places.

    Raises:
        RetryableError: Kafka does not answer.
    """
    client, deadline = admin_client(settings), time.monotonic() + TIMEOUT_SECONDS
    partition_counts(client, settings)  # names the reason where no broker answers, such as a wrong password
    while True:
        try:
            found = result_of(client.list_consumer_groups(request_timeout=TIMEOUT_SECONDS))
        except (KafkaException, TimeoutError) as error:
            raise no_answer_error(settings, error, "listing consumer groups") from error
        if not found.errors:
            break
        # Each broker lists its own groups. Without one broker's answer its groups would be missing unnoticed.
        if time.monotonic() > deadline:
            raise no_answer_error(settings, KafkaException(found.errors[0]), "listing consumer groups")
        time.sleep(0.5)
    return sorted(
        (
            ConsumerGroup(one.group_id, one.state.name, "" if one.type is None else one.type.name.lower())
            for one in found.valid
        ),
        key=lambda group: group.name,
    )


def describe_group(settings: KafkaSettings, name: str) -> ConsumerGroup:
    """Return one group with its members and places.

    Raises:
        FatalError: the group does not exist.
        MissingRightError: this user may not see it.
        RetryableError: Kafka does not answer.
    """
    found = _described(settings, name)
    members = tuple(
        sorted(
            (
                GroupMember(
                    one.member_id,
                    one.client_id,
                    one.host,
                    tuple(sorted((place.topic, place.partition) for place in one.assignment.topic_partitions)),
                )
                for one in found.members
            ),
            key=lambda member: (member.client_id, member.member_id),
        )
    )
    places = _places(settings, name)
    if found.state.name == "DEAD" and not places:
        message = f"Kafka at {settings.bootstrap_servers} has no consumer group {name}: see `tidegate groups ls`"
        raise FatalError(message)
    protocol = "" if getattr(found, "type", None) is None else found.type.name.lower()
    where = found.coordinator
    return ConsumerGroup(
        name, found.state.name, protocol, "" if where is None else f"{where.host}:{where.port}",
        found.partition_assignor or "", members, places,
    )  # fmt: skip


def _described(settings: KafkaSettings, name: str) -> Any:
    """Return Kafka's own description. A new cluster needs a moment to find a coordinator for its first group."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    client = admin_client(settings)
    partition_counts(client, settings)
    while True:
        try:
            return result_of(client.describe_consumer_groups([name], request_timeout=TIMEOUT_SECONDS)[name])
        except TimeoutError as error:
            raise no_answer_error(settings, error, f"describing group {name}") from error
        except KafkaException as error:
            code = error.args[0].code()
            if is_denied(error):
                raise missing_right(settings, f"see group {name}", "DESCRIBE", "group") from error
            if code == KafkaError.INVALID_GROUP_ID:
                message = f"{name!r} is not a valid name of a consumer group: see `tidegate groups ls`"
                raise FatalError(message) from error
            if code not in _RETRIED or time.monotonic() > deadline:
                raise no_answer_error(settings, error, f"describing group {name}") from error
            time.sleep(0.1)


def _places(settings: KafkaSettings, name: str) -> tuple[GroupOffset, ...]:
    """Return the committed offsets of all existing partitions: the group's members may be gone."""
    cluster = ClusterReader(settings)
    group = GroupReader(settings, name, lambda _error: None)
    try:
        _brokers, partitions = cluster.topics(lambda topic: True, TIMEOUT_SECONDS)
        committed: Mapping[tuple[str, int], int] = group.committed(
            [(one.topic, one.partition) for one in partitions], TIMEOUT_SECONDS
        )
        read = [one for one in partitions if (one.topic, one.partition) in committed]
        ended = cluster.with_offsets(read, TIMEOUT_SECONDS) if read else []
    finally:
        group.close()
        cluster.close()
    return tuple(GroupOffset(one.topic, one.partition, committed[one.topic, one.partition], one.end) for one in ended)
