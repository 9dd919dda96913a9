"""Records for a member of a consumer group: Kafka assigns the partitions, and the group's offsets follow what was printed."""

from collections.abc import Callable
from typing import Any, Final, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ingest.clients import make_client
from ingest.contract.errors import FatalError, RetryableError
from ingest.contract.topics import LAND_GROUP, stream_group
from ingest.kafka_settings import KafkaSettings
from ingest.read.tail import SilenceDetector, TailRecord, judge_error, tail_record
from ingest.security import consumer_conf
from ingest.topics.admin import admin_client, partition_counts
from ingest.topics.rights import missing_right, topic_not_found

__all__ = ["Protocol", "read_as_member"]

Protocol = Literal["classic", "consumer"]

_WAIT_SECONDS: Final = 0.2
_BATCH: Final = 500
_COMMIT_MS: Final = 1000


def read_as_member(
    settings: KafkaSettings,
    topic: str,
    group: str,
    take: Callable[[TailRecord], bool],
    *,
    fresh: Literal["beginning", "end"] = "end",
    follow: bool = True,
    protocol: Protocol = "classic",
    assigned: Callable[[list[int]], object] = lambda _partitions: None,
    ended: Callable[[], bool] = lambda: False,
) -> None:
    """Join the group and hand each record of its own partitions to `take`, until that returns False.

    Args:
        settings: the cluster.
        topic: its name.
        group: its id; a new group is created.
        take: prints one record. Its offset is committed after that, within a second or on leaving, so after a kill the
            records of the last second are printed again.
        fresh: where a partition begins that the group has not read yet.
        follow: continue with later records; else it leaves when it is at the end of each of its partitions.
        protocol: of the group; `consumer` is that of Kafka 4.
        assigned: gets all partitions of this member after each change.
        ended: asked after each wait for records; True ends it.

    Raises:
        FatalError: the group is one of Tidegate's own, or the topic does not exist.
        MissingRightError: this user may not read the topic, or not as this group.
        RetryableError: Kafka has not answered for half a minute.
    """
    if group == LAND_GROUP or group.startswith(stream_group("")):
        message = f"{group} is Tidegate's own group: offsets committed here would show a wrong lag. Use another group"
        raise FatalError(message)
    if topic not in (known := partition_counts(admin_client(settings), settings)):
        raise topic_not_found(settings, topic, known)
    member = _Member(settings, topic, group, fresh, protocol, assigned)
    try:
        member.read(take, ended, follow=follow)
    finally:
        member.leave()
    member.check()


class _Member:
    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        group: str,
        fresh: str,
        protocol: Protocol,
        assigned: Callable[[list[int]], object],
    ) -> None:
        self._settings, self._topic, self._group, self._told = settings, topic, group, assigned
        self._has: set[int] = set()
        self._at_end: set[int] = set()
        self._is_member = False
        self._uncommitted = ""
        self._consumer = make_client(Consumer, _conf(settings, group, fresh, protocol), settings)
        self._consumer.subscribe([topic], on_assign=self._gained, on_revoke=self._gave, on_lost=self._gave)

    def read(self, take: Callable[[TailRecord], bool], ended: Callable[[], bool], *, follow: bool) -> None:
        silence = SilenceDetector(self._settings, self._consumer)
        while not ended() and (follow or not self._is_member or self._has - self._at_end):
            found = self._consumer.consume(1, _WAIT_SECONDS)
            for message in found + (self._consumer.consume(_BATCH, 0) if found else []):
                if (record := self._record(message)) is None:
                    continue
                if record.partition in self._has:
                    more = take(record)
                    self._consumer.store_offsets(message)
                    if not more:
                        return
            silence.judge(heard=bool(found))

    def leave(self) -> None:
        """Commit the offsets of printed records, and give the partitions back at once."""
        self._told = lambda _partitions: None
        try:
            # The commit of `close` reports no failure, and the group would then read printed records again.
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                self._uncommitted = error.args[0].str()
        self._consumer.close()

    def check(self) -> None:
        """Check the result after leaving.

        Raises:
            RetryableError: the last offsets were not committed.
        """
        if self._uncommitted:
            text = (
                f"Kafka at {self._settings.bootstrap_servers} did not accept the last offsets of group {self._group} "
                f"({self._uncommitted}): the group will read the records of the last second again"
            )
            raise RetryableError(text)

    def _record(self, message: Message) -> TailRecord | None:
        error, number = message.error(), message.partition()
        if error is None:
            self._at_end.discard(number if number is not None else -1)
            return tail_record(message)
        if error.code() == KafkaError._PARTITION_EOF and number is not None:
            self._at_end.add(number)
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise missing_right(self._settings, f"read as group {self._group}", "READ", "group")
        else:
            judge_error(error, self._topic, self._settings)
        return None

    # After these the client assigns and unassigns by itself, as the group's protocol requires.

    def _gained(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self._is_member = True
        self._change(self._has | {one.partition for one in places})

    def _gave(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self._change(self._has - {one.partition for one in places})

    def _change(self, has: set[int]) -> None:
        self._has = has
        self._at_end &= has
        self._told(sorted(has))


def _conf(settings: KafkaSettings, group: str, fresh: str, protocol: Protocol) -> dict[str, Any]:
    conf = consumer_conf(settings, client_id="tidegate-tail", group=group) | {
        "enable.auto.commit": True,
        "auto.commit.interval.ms": _COMMIT_MS,
        "auto.offset.reset": "earliest" if fresh == "beginning" else "latest",
        "enable.partition.eof": True,
        "group.protocol": protocol,
        "error_cb": lambda _error: None,
        "log_level": 0,
        "queued.max.messages.kbytes": 8 * 1024,
    }
    # In the new protocol the broker assigns the partitions. In the classic one the members do, and `roundrobin` spreads
    # those of one topic as evenly as Kafka's own consumers.
    return conf if protocol == "consumer" else conf | {"partition.assignment.strategy": "range,roundrobin"}
