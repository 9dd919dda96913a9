"""Set a group's offsets back or forward in one topic: planned first, written only while the group has no members."""

from dataclasses import dataclass
from typing import Final, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ingest.clients import make_client
from ingest.contract.errors import FatalError, RetryableError, UnavailableError
from ingest.contract.topics import LAND_GROUP, stream_group
from ingest.groups.describe import ConsumerGroup, describe_group
from ingest.kafka_settings import KafkaSettings
from ingest.security import consumer_conf
from ingest.topics.offsets import begin_offsets, end_offsets, offsets_at
from ingest.topics.rights import is_denied, missing_right

__all__ = ["OffsetMove", "RewindTarget", "plan_rewind", "rewind"]

_TRY_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class RewindTarget:
    """Place where a group should continue: an end of the topic, an offset, or the first record at or after a time (epoch ms)."""

    kind: Literal["earliest", "latest", "offset", "time"]
    at: int = 0


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """Offsets of one partition: the next offset the group reads before and after; `before` is None if it never committed."""

    partition: int
    before: int | None
    after: int
    end: int

    @property
    def again(self) -> int | None:
        """Records that the group reads again; less than 0: records that it skips.

        None if it never committed: only its consumers know where it would begin (`auto.offset.reset`).
        """
        return None if self.before is None else self.before - self.after


def plan_rewind(
    settings: KafkaSettings, group: str, topic: str, target: RewindTarget, *, partition: int | None = None
) -> list[OffsetMove]:
    """Return what `rewind` would do; nothing is written.

    Raises:
        FatalError: the group is one of Tidegate's own, has members, or the group or topic does not exist.
        UnavailableError: the partition does not exist, or no partition has that offset yet.
        RetryableError: Kafka does not answer.
    """
    _refuse_own(group)
    found = describe_group(settings, group)
    _refuse_members(found)
    oldest, ends = begin_offsets(settings, topic), end_offsets(settings, topic)
    if partition is not None and partition not in ends:
        message = f"Topic {topic} has no partition {partition}: it has {len(ends)}, counted from 0"
        raise UnavailableError(message)
    chosen = [one for one in sorted(ends) if partition in (None, one)]
    if target.kind == "offset" and all(target.at > ends[one] for one in chosen):
        where = ", ".join(f"[{one}] at {ends[one]}" for one in chosen[:20])
        message = f"Topic {topic} has no offset {target.at} yet; it ends at {where}: name an earlier offset, or latest"
        raise UnavailableError(message)
    before = {place.partition: place.committed for place in found.places if place.topic == topic}
    wanted = {
        "earliest": lambda: oldest,
        "latest": lambda: ends,
        "offset": lambda: {one: min(max(target.at, oldest[one]), ends[one]) for one in ends},
        "time": lambda: offsets_at(settings, topic, target.at),
    }[target.kind]()
    return [OffsetMove(one, before.get(one), wanted[one], ends[one]) for one in chosen]


def rewind(settings: KafkaSettings, group: str, topic: str, moves: list[OffsetMove]) -> None:
    """Write a plan to the group.

    Raises:
        FatalError: a member has joined meanwhile.
        MissingRightError: this user may not write the offsets.
        RetryableError: Kafka does not answer.
    """
    _refuse_own(group)
    conf = consumer_conf(settings, client_id="tidegate-rewind", group=group) | {
        "error_cb": lambda _error: None,
        "log_level": 0,
        "socket.timeout.ms": int(_TRY_SECONDS * 1000),
    }
    consumer = make_client(Consumer, conf, settings)
    try:
        done = consumer.commit(
            offsets=[TopicPartition(topic, move.partition, move.after) for move in moves], asynchronous=False
        )
    except KafkaException as error:
        _refuse_denied(settings, group, topic, error)
        # A group with members accepts no offsets from outside: a member joined between plan and commit.
        _refuse_members(describe_group(settings, group))
        message = (
            f"Kafka at {settings.bootstrap_servers} did not accept the offsets of group {group}: {error.args[0].str()}"
        )
        raise RetryableError(message) from error
    finally:
        consumer.close()
    for one in done or []:
        if one.error is not None:
            _refuse_denied(settings, group, topic, KafkaException(one.error))
            message = f"Kafka rejects the offset of {topic}[{one.partition}] for group {group}: {one.error.str()}"
            raise FatalError(message)


def _refuse_denied(settings: KafkaSettings, group: str, topic: str, error: KafkaException) -> None:
    if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise missing_right(settings, f"set offsets of topic {topic}", "READ") from error
    if is_denied(error):
        raise missing_right(settings, f"set the offsets of group {group}", "READ", "group") from error


def _refuse_own(group: str) -> None:
    if group == LAND_GROUP:
        message = (
            f"{group} only shows how far the landing has read. The landing itself continues where the tables end. To read "
            "records again into corrected tables, see `tidegate correct --help` and `tidegate repair --help`"
        )
        raise FatalError(message)
    if group.startswith(stream_group("")):
        name = group.removeprefix(stream_group(""))
        message = f"{group} only shows how far an SQL stream has read: use `tidegate streams rewind {name}`"
        raise FatalError(message)


def _refuse_members(group: ConsumerGroup) -> None:
    if group.is_empty:
        return
    who = ", ".join(sorted({f"{member.client_id} on {member.host}" for member in group.members})[:5]) or "unknown"
    message = (
        f"Group {group.name} is in use ({group.state}; {len(group.members)} members: {who}): a member would overwrite "
        "the new offsets. Stop its consumers, wait until `tidegate groups describe` shows EMPTY, and try again"
    )
    raise FatalError(message)
