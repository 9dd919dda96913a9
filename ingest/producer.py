"""The log writer on Kafka: idempotent, acknowledged by all in-sync replicas, retrying without end."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ingest.admin import topic_limits
from ingest.clients import make_client
from ingest.contract.errors import FatalError
from ingest.log import DeliveryError, Done, LogFull
from ingest.security import RECORD_OVERHEAD_BYTES, producer_conf
from ingest.settings import KafkaSettings

__all__ = ["KafkaWriter", "classify", "open_writer"]

logger = logging.getLogger("tidegate.ingest.producer")
client_logger = logging.getLogger("tidegate.ingest.librdkafka")

_RECORD_CODES: Final = frozenset(
    {KafkaError.INVALID_RECORD, KafkaError._INVALID_ARG, KafkaError._BAD_MSG, KafkaError._KEY_SERIALIZATION}
)
_SIZE_CODES: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_MAX_BATCH_BYTES: Final = 256 * 1024
_NEXT_STEPS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the Kafka user WRITE on the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the Kafka user IDEMPOTENT_WRITE on the cluster",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "find out who deleted the topic; it is made anew where it may be",
    KafkaError._UNKNOWN_TOPIC: "find out who deleted the topic; it is made anew where it may be",
    KafkaError.MSG_SIZE_TOO_LARGE: "look who lowered the topic's max.message.bytes",
    KafkaError.RECORD_LIST_TOO_LARGE: "look at the topic's segment.bytes",
}


def open_writer(settings: KafkaSettings, *, client_id: str = "tidegate-gateway") -> "KafkaWriter":
    """A writer that knows the limits the topics have now. Asks Kafka, at most 10 s.

    Raises:
        RetryableError: Kafka does not answer; wait and call again.
    """
    return KafkaWriter(settings, topic_limits(settings), client_id=client_id)


def classify(error: KafkaError, *, limits_known: bool) -> DeliveryError:
    """What a client's error means for the caller.

    Kafka refuses a batch, not a record. Where the limits are known, no record and no batch past them is ever sent, so
    a refusal by size means that the limit was lowered since: retriable, the next writer reads it anew. Where they
    could not be read, the record is refused for good, since trying again would never end.
    """
    step = _NEXT_STEPS.get(error.code())
    text = f"{error.name()}: {error.str()}" + (f"; {step}" if step else "")
    if error.fatal() or error.code() == KafkaError._FATAL:
        return DeliveryError("fatal", text)
    if error.code() in _SIZE_CODES:
        return DeliveryError("retriable" if limits_known else "record", text)
    return DeliveryError("record" if error.code() in _RECORD_CODES else "retriable", text)


class KafkaWriter:
    """See LogWriter. A record past its topic's limit is refused here, so that it never reaches a batch with others.

    Such a refusal may be reported before records that were produced earlier.

    Args:
        settings: the cluster.
        limits: largest record per topic, as read from Kafka; None where Kafka does not tell.
        client_id: name under which brokers log this client.
    """

    def __init__(
        self, settings: KafkaSettings, limits: Mapping[str, int] | None, *, client_id: str = "tidegate-gateway"
    ) -> None:
        self._limits = dict(limits or {})
        self._limits_known = limits is not None
        self._default_limit = settings.max_record_bytes
        self._taken = 0
        self._reported = 0
        self._closed = False
        self._refused: deque[tuple[Done, DeliveryError]] = deque()
        known = [*self._limits.values(), settings.max_record_bytes]
        conf = producer_conf(
            settings,
            client_id=client_id,
            largest_record_bytes=max(*known, 2 * settings.max_record_bytes),
            batch_bytes=min(*known, _MAX_BATCH_BYTES),
        )
        self._producer: Producer | None = make_client(
            Producer, conf | {"error_cb": _log_error}, settings, logger=client_logger
        )

    def produce(self, topic: str, key: bytes, value: bytes, done: Done) -> None:
        """See LogWriter."""
        producer = self._open_producer()
        size, limit = len(key) + len(value) + RECORD_OVERHEAD_BYTES, self.max_record_bytes(topic)
        if size > limit:
            text = f"record of {len(value)} bytes passes the limit of topic {topic} ({limit} bytes with headers)"
            self._taken += 1
            self._refused.append((done, DeliveryError("record", text)))
            return
        self._taken += 1
        try:
            producer.produce(topic, value, key, on_delivery=self._reporter(done))
        except BufferError as error:
            self._taken -= 1
            message = f"the Kafka producer's queue is full ({self.in_flight} records): poll, then produce again"
            raise LogFull(message, retry_after_seconds=0.05) from error
        except KafkaException as error:
            self._refused.append((done, classify(error.args[0], limits_known=self._limits_known)))

    def poll(self, timeout_seconds: float) -> int:
        """See LogWriter."""
        before = self._reported
        if self._producer is not None:
            self._report_refused()
            self._producer.poll(0 if self._reported > before else timeout_seconds)
            self._report_refused()
        return self._reported - before

    def max_record_bytes(self, topic: str) -> int:
        """See LogWriter."""
        return self._limits.get(topic, self._default_limit)

    @property
    def in_flight(self) -> int:
        """See LogWriter."""
        return 0 if self._closed else self._taken - self._reported

    def flush(self, timeout_seconds: float) -> int:
        """See LogWriter."""
        deadline = time.monotonic() + timeout_seconds
        while self.in_flight and (left := deadline - time.monotonic()) > 0:
            self.poll(left)
        return self.in_flight

    def abort(self) -> None:
        """See LogWriter."""
        producer, self._producer, self._closed = self._producer, None, True
        self._refused.clear()
        if producer is not None:
            producer.purge()
            # Serves the reports of what was purged, which `_reporter` drops: without it they would keep the client.
            producer.flush(1.0)

    def close(self) -> None:
        """See LogWriter."""
        self.abort()

    def _open_producer(self) -> Producer:
        if self._producer is None:
            message = "this Kafka writer was aborted or closed: make a new one"
            raise FatalError(message)
        return self._producer

    def _reporter(self, done: Done) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, _message: Message) -> None:
            self._run(done, None if error is None else classify(error, limits_known=self._limits_known))

        return report

    def _report_refused(self) -> None:
        while self._refused:
            self._run(*self._refused.popleft())

    def _run(self, done: Done, error: DeliveryError | None) -> None:
        if self._closed:
            return
        self._reported += 1
        try:
            done(error)
        except Exception:
            logger.exception("a delivery callback failed; the other reports go on")


def _log_error(error: KafkaError) -> None:
    level = logging.ERROR if error.fatal() else logging.WARNING
    logger.log(level, "Kafka: %s (%s)", error.str(), error.name())
