"""Log writer on Kafka: idempotent, acknowledged by all in-sync replicas, retrying without end.

Batches taken from a caller go in flights; each batch collects the failures of its records.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ingest.clients import RepeatedMessageFilter, make_client
from ingest.contract.errors import FatalError
from ingest.kafka_settings import KafkaSettings
from ingest.log import BatchDone, DeliveryError, Done, Failure, LogFull
from ingest.login_renewal import LoginRenewal
from ingest.record_limits import LearnedLimits, RecordLimits
from ingest.security import RECORD_OVERHEAD_BYTES, producer_conf
from ingest.topics.describe import topic_limits

__all__ = ["KafkaWriter", "ProducerBatch", "classify_kafka_error", "open_writer"]

logger = logging.getLogger("tidegate.ingest.producer")
client_logger = logging.getLogger("tidegate.ingest.librdkafka")
client_logger.addFilter(RepeatedMessageFilter())

_RECORD_CODES: Final = frozenset(
    {KafkaError.INVALID_RECORD, KafkaError._INVALID_ARG, KafkaError._BAD_MSG, KafkaError._KEY_SERIALIZATION}
)
_SIZE_CODES: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_NEXT_STEPS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the Kafka user WRITE on the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the Kafka user IDEMPOTENT_WRITE on the cluster",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "find out who deleted the topic; it is recreated if this user may create topics",
    KafkaError._UNKNOWN_TOPIC: "find out who deleted the topic; it is recreated if this user may create topics",
}


class ProducerBatch:
    """One batch of records for one topic. The client reports failures to `failed`; no report means success.

    `due` is set when the writer has failed: the caller must then get this batch's result before those of its flight.
    """

    __slots__ = ("_classify", "_places", "done", "due", "failures", "keys", "size_bytes", "topic", "values")

    def __init__(
        self,
        topic: str,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        done: BatchDone,
        classify: Callable[[KafkaError, str, int], DeliveryError],
    ) -> None:
        self.topic, self.keys, self.values, self.done = topic, keys, values, done
        self._classify = classify
        self.size_bytes = sum(map(len, values)) + sum(map(len, keys))
        self.failures: list[Failure] = []
        self.due = False
        self._places: dict[tuple[object, object], list[int]] | None = None

    @property
    def settled(self) -> bool:
        """Return whether its result is known before that of its flight: the writer has failed, or all of it was rejected."""
        return self.due or len(self.failures) == len(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def failed(self, error: KafkaError | None, message: Message) -> None:
        """Take the client's report of a failed record; called from within its poll."""
        if error is None:
            return
        key, value = message.key(), message.value()
        fault: DeliveryError = self._classify(error, self.topic, len(key or b"") + len(value or b""))
        if self.due and fault.kind != "fatal":
            # The caller gets the first one, and must restart with the whole batch.
            return
        self.failures.append((self._place(key, value), fault))
        self.due = self.due or fault.kind != "record"

    def refuse(self, fault: DeliveryError) -> None:
        """Note that the client did not take the whole batch. The writer is unusable: later records may be in the log."""
        self.failures.append((0, fault if fault.kind != "record" else DeliveryError("retriable", fault.text)))
        self.due = True

    def _place(self, key: object, value: object) -> int:
        """Return which record a report is about: reports carry content, not places. Equal records are interchangeable."""
        if self._places is None:
            self._places = self._find_places()
        places = self._places.get((key or None, value or None))
        return places.pop() if places else 0

    def _find_places(self) -> dict[tuple[object, object], list[int]]:
        """Return places by content, the last first. Built once: if a whole batch fails, each record is looked up.

        The client reports an empty key or value as None.
        """
        found: dict[tuple[object, object], list[int]] = {}
        for place, content in enumerate(zip(self.keys, self.values, strict=True)):
            found.setdefault((content[0] or None, content[1] or None), []).append(place)
        for places in found.values():
            places.reverse()
        return found


def open_writer(
    settings: KafkaSettings, *, client_id: str = "tidegate-gateway", learned: LearnedLimits | None = None
) -> "KafkaWriter":
    """Open a writer that knows the topics' current limits. Asks Kafka, at most 10 s.

    `learned` is the caller's memory between calls, for a user who may not read the limits.

    Raises:
        RetryableError: Kafka does not answer; wait and call again.
    """
    return KafkaWriter(settings, topic_limits(settings), client_id=client_id, learned=learned)


def classify_kafka_error(error: KafkaError, topic: str, size_bytes: int, limits: RecordLimits) -> DeliveryError:
    """Translate a client's error for the caller; `size_bytes` are the record's key and value."""
    step = _NEXT_STEPS.get(error.code())
    text = f"{error.name()}: {error.str()}" + (f"; {step}" if step else "")
    if error.fatal() or error.code() == KafkaError._FATAL:
        return DeliveryError("fatal", text)
    if error.code() in _SIZE_CODES:
        return limits.refused(topic, size_bytes, text)
    return DeliveryError("record" if error.code() in _RECORD_CODES else "retriable", text)


class KafkaWriter:
    """See LogWriter. Records go in flights: the next one starts when Kafka has reported all of the last.

    So success is not reported per record, which would cost as much as producing: a flight without failures has arrived
    when nothing is left in the client. Meanwhile the next flight gathers, so batches form by themselves. A record past
    its topic's limit is rejected here and never reaches a batch with others.

    Args:
        settings: the cluster.
        limits: largest record per topic, as read from Kafka; None if Kafka does not return it.
        client_id: name under which brokers log this client.
        learned: limits that earlier writers learned from Kafka's errors.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        limits: Mapping[str, int] | None,
        *,
        client_id: str = "tidegate-gateway",
        learned: LearnedLimits | None = None,
    ) -> None:
        self._limits = RecordLimits(limits, settings.max_record_bytes, learned or LearnedLimits())
        self._taken = self._taken_bytes = 0
        self._reported = self._reported_bytes = 0
        self._closed = False
        self._waiting: deque[ProducerBatch] = deque()
        self._flying: list[ProducerBatch] = []
        self._login = LoginRenewal(settings)
        conf = producer_conf(
            settings,
            client_id=client_id,
            largest_record_bytes=self._limits.largest,
            batch_bytes=self._limits.batch_bytes,
        )
        # A flight must fit into the client's own queue, which would otherwise reject a part of it in the middle.
        self._room = int(conf["queue.buffering.max.messages"])
        self._room_bytes = int(conf["queue.buffering.max.kbytes"]) * 1024 // 2
        conf |= {"error_cb": _log_error, "delivery.report.only.error": True}
        self._producer: Producer | None = make_client(Producer, conf, settings, logger=client_logger)

    def produce(self, topic: str, key: bytes, value: bytes, done: Done) -> None:
        """See LogWriter."""
        self.produce_batch(topic, (key,), (value,), lambda failures: done(failures[0][1] if failures else None))

    def produce_batch(self, topic: str, keys: Sequence[bytes], values: Sequence[bytes], done: BatchDone) -> int:
        """See LogWriter."""
        if self._producer is None:
            message = "this Kafka writer was aborted or closed: open a new one"
            raise FatalError(message)
        room = self._room - self.in_flight
        if room <= 0 or self._taken_bytes - self._reported_bytes >= self._room_bytes:
            message = f"the Kafka producer's queue is full ({self.in_flight} records): poll, then produce again"
            raise LogFull(message, retry_after_seconds=0.05)
        if len(values) > room:
            keys, values = keys[:room], values[:room]
        batch = ProducerBatch(topic, keys, values, done, self._classify)
        if batch.size_bytes > self._room_bytes and len(batch) > 1:
            count = _count_within(self._room_bytes, keys, values)
            batch = ProducerBatch(topic, keys[:count], values[:count], done, self._classify)
        self._taken += len(batch)
        self._taken_bytes += batch.size_bytes
        self._waiting.append(batch)
        return len(batch)

    def poll(self, timeout_seconds: float) -> int:
        """See LogWriter."""
        before = self._reported
        began = time.monotonic()
        if self._producer is not None:
            self._login.apply(self._producer)
        self._send()
        left = 0.0
        while self._producer is not None:
            # The client wakes this for each of Kafka's answers, also where it has no failure to report.
            self._producer.poll(left)
            self._land()
            left = timeout_seconds - (time.monotonic() - began)
            if self._reported > before or left <= 0.0 or not self._flying:
                break
        return self._reported - before

    def max_record_bytes(self, topic: str) -> int:
        """See LogWriter."""
        return self._limits.of(topic)

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
        self._waiting.clear()
        self._flying.clear()
        if producer is not None:
            producer.purge()
            # Run the reports of purged records, which nobody reads. Otherwise they would keep the client alive.
            producer.flush(1.0)

    def close(self) -> None:
        """See LogWriter."""
        self.abort()

    def _classify(self, error: KafkaError, topic: str, size_bytes: int = 0) -> DeliveryError:
        return classify_kafka_error(error, topic, size_bytes, self._limits)

    def _send(self) -> None:
        """Start a flight of all waiting records, unless one is in progress."""
        if self._flying or not self._waiting or self._producer is None:
            return
        count = 0
        while self._waiting and (not count or count + self._waiting[0].size_bytes <= self._room_bytes):
            batch = self._waiting.popleft()
            count += batch.size_bytes
            self._flying.append(batch)
            self._give(self._producer, batch)
            if batch.due:
                # The caller restarts from here: waiting records, if sent now, would precede it in the log.
                break
        self._land()

    def _give(self, producer: Producer, batch: ProducerBatch) -> None:
        limit = self.max_record_bytes(batch.topic) - RECORD_OVERHEAD_BYTES
        if max(map(len, batch.values)) + max(map(len, batch.keys)) > limit:
            records = self._fitting(batch, limit)
        else:
            records = [
                {"key": key, "value": value or None} for key, value in zip(batch.keys, batch.values, strict=True)
            ]
        if not records:
            return
        try:
            taken = producer.produce_batch(batch.topic, records, on_delivery=batch.failed)
        except (KafkaException, BufferError) as error:
            batch.refuse(self._classify(_kafka_error(error), batch.topic))
            return
        if taken < len(records):
            faults = [record["_error"] for record in records if "_error" in record]
            batch.refuse(self._classify(_kafka_error(faults[0] if faults else None), batch.topic))

    def _fitting(self, batch: ProducerBatch, limit: int) -> list[dict[str, Any]]:
        """Return the records that their topic takes; each of the others fails alone."""
        records: list[dict[str, Any]] = []
        for place, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            if len(key) + len(value) > limit:
                text = (
                    f"record of {len(value)} bytes exceeds the limit of topic {batch.topic} "
                    f"({limit + RECORD_OVERHEAD_BYTES} bytes with headers)"
                )
                batch.failures.append((place, DeliveryError("record", text)))
            else:
                records.append({"key": key, "value": value or None})
        return records

    def _land(self) -> None:
        """Report a flight that has arrived. Of one in progress, report what ends the writer, and batches that failed whole."""
        flying = self._flying
        if not flying or self._producer is None:
            return
        arrived = not len(self._producer)
        if not arrived and not any(batch.settled for batch in flying):
            return
        self._flying = [] if arrived else [batch for batch in flying if not batch.settled]
        for batch in flying:
            if arrived or batch.settled:
                self._report(batch)

    def _report(self, batch: ProducerBatch) -> None:
        if self._closed:
            return
        self._reported += len(batch)
        self._reported_bytes += batch.size_bytes
        try:
            batch.done(batch.failures)
        except Exception:
            logger.exception("A delivery callback failed. The other callbacks still run.")


def _count_within(room_bytes: int, keys: Sequence[bytes], values: Sequence[bytes]) -> int:
    """Return how many of the first records fit into that many bytes; at least one."""
    sizes = accumulate(len(key) + len(value) for key, value in zip(keys, values, strict=True))
    return max(1, sum(1 for _ in takewhile(room_bytes.__ge__, sizes)))


def _kafka_error(found: object) -> KafkaError:
    """Return the client's own error of an exception or a record."""
    if isinstance(found, KafkaException):
        found = found.args[0]
    if isinstance(found, BufferError):
        return KafkaError(KafkaError._QUEUE_FULL)
    return found if isinstance(found, KafkaError) else KafkaError(KafkaError._FAIL, str(found))


def _log_error(error: KafkaError) -> None:
    level = logging.ERROR if error.fatal() else logging.WARNING
    client_logger.log(level, "Kafka: %s (%s)", error.str(), error.name())
