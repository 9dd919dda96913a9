"""Consumer-group offsets. Spark commits none, so they are mirrored here and any Kafka tool shows the lag."""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ingest.clients import make_client
from ingest.contract.errors import RetryableError
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.login_renewal import LoginRenewal
from ingest.security import consumer_conf
from ingest.topics.admin import TIMEOUT_SECONDS, admin_client, await_deleted
from ingest.topics.offsets import end_offsets
from ingest.topics.rights import is_denied, missing_right

__all__ = ["OffsetMirror", "delete_group", "group_lag"]

logger = logging.getLogger("tidegate.ingest.groups")

Offsets = Mapping[str, Mapping[int, int]]
"""topic -> partition -> next offset to be read."""

_RETRY_SECONDS: Final = 5.0
_NO_COORDINATOR: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._WAIT_COORD,
    }
)


class OffsetMirror:
    """Thread that commits the newest offsets to a group without subscribers.

    The caller's batch neither waits for it nor fails because of it. Only the newest offsets are kept. A failed commit is
    retried until it succeeds or newer offsets come.
    """

    def __init__(self, settings: KafkaSettings, group: str) -> None:
        self._group, self._login = group, LoginRenewal(settings)
        conf = consumer_conf(settings, client_id=f"{group}-mirror", group=group) | {"error_cb": lambda _error: None}
        self._consumer = make_client(Consumer, conf | {"socket.timeout.ms": 10_000, "log_level": 2}, settings)
        self._changed = threading.Condition()
        self._wanted: Offsets | None = None
        self._busy = False
        self._closing = False
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"mirror {group}", daemon=True)
        self._thread.start()

    def mirror(self, offsets: Offsets) -> str | None:
        """Commit these soon. Never blocks. Returns why the last commit failed, or None if it succeeded."""
        with self._changed:
            self._wanted = offsets
            self._changed.notify_all()
            return self._error

    def drain(self, timeout_seconds: float) -> bool:
        """Wait until the newest offsets are committed; False if the time is over first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._wanted is None and not self._busy, timeout_seconds)

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Commit what is left within the time, then stop."""
        self.drain(timeout_seconds)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        # Its own thread frees the client: a hanging commit must not keep the process from ending.
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (offsets := self._next()) is not None:
            error = self._commit(offsets)
            with self._changed:
                if error and error != self._error:
                    logger.warning("%s", error)
                self._error, self._busy = error, False
                if error and self._wanted is None:
                    self._wanted = offsets
                self._changed.notify_all()
                if error:
                    self._changed.wait_for(lambda: self._closing, _RETRY_SECONDS)
        self._consumer.close()

    def _next(self) -> Offsets | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._wanted is not None)
            if self._closing:
                return None
            offsets, self._wanted, self._busy = self._wanted, None, True
            return offsets

    def _commit(self, offsets: Offsets) -> str | None:
        self._login.apply(self._consumer)
        wanted = [TopicPartition(topic, p, offset) for topic, parts in offsets.items() for p, offset in parts.items()]
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            return f"Cannot mirror the offsets of group {self._group}: {error.args[0].str()} (the landing continues)"
        for part in done or []:
            if part.error is not None:
                where = f"{part.topic}[{part.partition}]"
                return f"Cannot mirror the offsets of group {self._group} for {where}: {part.error.str()}"
        return None


def group_lag(
    settings: KafkaSettings,
    group: str,
    topics: Iterable[str] = (READINGS, DEAD_LETTERS),
    *,
    timeout_seconds: float = 10.0,
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return committed and end offset per topic and partition; empty if the group committed nothing.

    Raises:
        RetryableError: Kafka does not answer.
        FatalError: a topic does not exist.
    """
    ends = {topic: end_offsets(settings, topic) for topic in topics}
    asked = [TopicPartition(topic, partition) for topic, parts in ends.items() for partition in parts]
    # Not AdminClient.list_consumer_group_offsets: it crashes the process with a segmentation fault while the group's
    # coordinator is unknown, as on a new cluster (confluentinc/librdkafka#5040).
    conf = consumer_conf(settings, client_id="tidegate-admin", group=group)
    consumer = make_client(Consumer, conf | {"error_cb": lambda _error: None, "log_level": 2}, settings)
    try:
        found = _committed(consumer, asked, timeout_seconds)
    except KafkaException as error:
        why = error.args[0].str()
        message = f"Kafka at {settings.bootstrap_servers} did not return the offsets of group {group}: {why}"
        raise RetryableError(message) from error
    finally:
        consumer.close()
    lag: dict[str, dict[int, tuple[int, int]]] = {}
    for part in found:
        if part.offset >= 0:
            lag.setdefault(part.topic, {})[part.partition] = (part.offset, ends[part.topic][part.partition])
    return lag


def delete_group(settings: KafkaSettings, name: str) -> None:
    """Delete a consumer group's offsets. Does nothing if there are none.

    Raises:
        MissingRightError: this user may not delete it.
        RetryableError: Kafka does not answer.
    """
    client = admin_client(settings)
    done = client.delete_consumer_groups([name], request_timeout=TIMEOUT_SECONDS)
    try:
        await_deleted(settings, done, f"deleting group {name}")
    except RetryableError as error:
        if is_denied(error.__cause__):
            raise missing_right(settings, f"delete group {name}", "DELETE", "group") from error
        raise


def _committed(consumer: Consumer, asked: list[TopicPartition], timeout_seconds: float) -> list[TopicPartition]:
    """Return the group's offsets. A new cluster needs a moment to find a coordinator for its first group."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            return consumer.committed(asked, timeout=timeout_seconds)
        except KafkaException as error:
            if error.args[0].code() not in _NO_COORDINATOR or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
