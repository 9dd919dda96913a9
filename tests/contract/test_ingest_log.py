"""What every log writer does, on the memory log and on a real Kafka alike."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from confluent_kafka.admin import NewTopic

from ingest.contract.errors import FatalError
from ingest.kafka_settings import KafkaSettings
from ingest.log import DeliveryError, LogFull, LogRecord, LogWriter
from ingest.memory import MemoryLog
from ingest.producer import KafkaWriter
from ingest.read.offset_range import read_range
from ingest.topics.offsets import begin_offsets, end_offsets
from tests.support.servers import make_topics

LIMIT_BYTES = 8192
SMALL_QUEUE = 20


class Seam(Protocol):
    """One log under test: a topic of two partitions that takes records up to LIMIT_BYTES."""

    topic: str

    def writer(self, *, small_queue: bool = False) -> LogWriter: ...
    def hold(self) -> None: ...
    def release(self) -> None: ...
    def records(self) -> list[LogRecord]: ...


class MemorySeam:
    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.log = MemoryLog(partitions=2, max_record_bytes=LIMIT_BYTES)

    def writer(self, *, small_queue: bool = False) -> LogWriter:
        self.log.capacity = SMALL_QUEUE if small_queue else 100_000
        return self.log.writer()

    def hold(self) -> None:
        self.log.hold()

    def release(self) -> None:
        self.log.release()

    def records(self) -> list[LogRecord]:
        return self.log.records(self.topic)


class KafkaSeam:
    def __init__(self, topic: str, server: Any) -> None:
        self.topic = topic
        self.server = server
        self.settings = KafkaSettings(bootstrap_servers=server.bootstrap_servers)
        config = {"max.message.bytes": str(LIMIT_BYTES)}
        make_topics(server.bootstrap_servers, NewTopic(topic, 2, 1, config=config))

    def writer(self, *, small_queue: bool = False) -> LogWriter:
        extra = {"queue.buffering.max.messages": str(SMALL_QUEUE)} if small_queue else {}
        writer = KafkaWriter(self.settings.model_copy(update={"extra": extra}), {self.topic: LIMIT_BYTES})
        # So that a hold that follows stops a connected client, as in the field.
        writer.produce(self.topic, b"first", b"first", lambda error: None)
        assert writer.flush(120) == 0
        return writer

    def hold(self) -> None:
        self.server.hold()

    def release(self) -> None:
        self.server.resume_process()

    def records(self) -> list[LogRecord]:
        begin, end = begin_offsets(self.settings, self.topic), end_offsets(self.settings, self.topic)
        found = [record for batch in read_range(self.settings, self.topic, begin, end) for record in batch]
        return sorted((r for r in found if r.key != b"first"), key=lambda record: (record.partition, record.offset))


@pytest.fixture(params=["memory", "kafka"])
def seam(request: pytest.FixtureRequest, unique_name: str) -> Iterator[Seam]:
    if request.param == "memory":
        yield MemorySeam(unique_name)
        return
    kafka = KafkaSeam(unique_name, request.getfixturevalue("kafka_server"))
    try:
        yield kafka
    finally:
        kafka.release()


@pytest.fixture
def open_writer(seam: Seam) -> Iterator[Callable[..., LogWriter]]:
    opened: list[LogWriter] = []

    def make(**options: bool) -> LogWriter:
        opened.append(seam.writer(**options))
        return opened[-1]

    yield make
    for writer in opened:
        writer.close()


class Reports:
    """Collects what each record's `done` was told, with the thread that told it."""

    def __init__(self) -> None:
        self.seen: dict[int, list[DeliveryError | None]] = {}
        self.threads: set[int] = set()

    def of(self, number: int) -> Callable[[DeliveryError | None], None]:
        def done(error: DeliveryError | None) -> None:
            self.seen.setdefault(number, []).append(error)
            self.threads.add(threading.get_ident())

        return done


def test_records_of_one_key_stand_in_order_and_once(seam: Seam, open_writer: Callable[..., LogWriter]) -> None:
    writer, reports = open_writer(), Reports()
    for number in range(2000):
        writer.produce(seam.topic, b"device-%d" % (number % 20), b"%d" % number, reports.of(number))
    assert writer.flush(60) == 0
    assert reports.seen == {number: [None] for number in range(2000)}
    records = seam.records()
    assert len(records) == 2000
    assert {record.partition for record in records} == {0, 1}
    for key in range(20):
        mine = [int(record.value or b"") for record in records if record.key == b"device-%d" % key]
        assert mine == list(range(key, 2000, 20))
    assert len({(record.key, record.partition) for record in records}) == 20


def test_reports_come_only_inside_poll_and_in_its_thread(seam: Seam, open_writer: Callable[..., LogWriter]) -> None:
    writer, reports = open_writer(), Reports()
    thread = threading.Thread(
        target=lambda: [writer.produce(seam.topic, b"k", b"v", reports.of(n)) for n in range(100)]
    )
    thread.start()
    thread.join()
    assert reports.seen == {}
    assert writer.in_flight == 100
    ran = 0
    while writer.in_flight:
        ran += writer.poll(10)
    assert ran == 100
    assert reports.threads == {threading.get_ident()}


def test_a_record_too_large_fails_alone(seam: Seam, open_writer: Callable[..., LogWriter]) -> None:
    writer, reports = open_writer(), Reports()
    assert writer.max_record_bytes(seam.topic) == LIMIT_BYTES
    for number in range(50):
        value = b"x" * (LIMIT_BYTES + 1 if number == 25 else 400)
        writer.produce(seam.topic, b"k", value, reports.of(number))
    assert writer.flush(60) == 0
    (refused,) = reports.seen.pop(25)
    assert refused is not None
    assert refused.kind == "record"
    assert str(LIMIT_BYTES + 1) in refused.text
    assert list(reports.seen.values()) == [[None]] * 49
    assert len(seam.records()) == 49


def test_a_failing_callback_stops_no_other(
    seam: Seam, open_writer: Callable[..., LogWriter], caplog: pytest.LogCaptureFixture
) -> None:
    writer, reports = open_writer(), Reports()

    def fail(_error: DeliveryError | None) -> None:
        raise RuntimeError("scripted")

    for number in range(10):
        writer.produce(seam.topic, b"k", b"v", fail if number == 3 else reports.of(number))
    assert writer.flush(60) == 0
    assert len(reports.seen) == 9
    assert "callback failed" in caplog.text


def test_nothing_is_reported_while_the_log_does_not_answer(seam: Seam, open_writer: Callable[..., LogWriter]) -> None:
    writer, reports = open_writer(), Reports()
    seam.hold()
    for number in range(10):
        writer.produce(seam.topic, b"k", b"%d" % number, reports.of(number))
    assert writer.poll(0.2) == 0
    assert writer.flush(0.2) == 10
    assert writer.in_flight == 10
    seam.release()
    assert writer.flush(60) == 0
    assert reports.seen == {number: [None] for number in range(10)}
    assert [record.value for record in seam.records()] == [b"%d" % number for number in range(10)]


def test_after_abort_no_report_runs_and_a_new_writer_goes_on(seam: Seam, open_writer: Callable[..., LogWriter]) -> None:
    writer, reports = open_writer(), Reports()
    writer.produce(seam.topic, b"k", b"before", reports.of(-1))
    assert writer.flush(60) == 0
    seam.hold()
    for number in range(10):
        writer.produce(seam.topic, b"k", b"dropped", reports.of(number))
    writer.poll(0.1)
    writer.abort()
    assert writer.in_flight == 0
    seam.release()
    assert writer.poll(0.2) == 0
    assert reports.seen == {-1: [None]}
    with pytest.raises(FatalError, match="open a new one"):
        writer.produce(seam.topic, b"k", b"late", reports.of(99))
    second = open_writer()
    second.produce(seam.topic, b"k", b"after", reports.of(100))
    assert second.flush(60) == 0
    values = [record.value for record in seam.records()]
    assert values[0] == b"before"
    assert values[-1] == b"after"
    assert b"late" not in values


def test_a_full_queue_refuses_and_takes_the_record_after_a_poll(
    seam: Seam, open_writer: Callable[..., LogWriter]
) -> None:
    writer, reports = open_writer(small_queue=True), Reports()
    seam.hold()
    taken = 0
    with pytest.raises(LogFull) as refusal:
        for taken in range(SMALL_QUEUE + 1):
            writer.produce(seam.topic, b"k", b"%d" % taken, reports.of(taken))
    assert taken == SMALL_QUEUE
    assert refusal.value.retry_after_seconds > 0
    assert writer.in_flight == SMALL_QUEUE
    seam.release()
    while writer.poll(10) == 0:
        pass
    writer.produce(seam.topic, b"k", b"%d" % taken, reports.of(taken))
    assert writer.flush(60) == 0
    assert [record.value for record in seam.records()] == [b"%d" % number for number in range(SMALL_QUEUE + 1)]


def test_a_batch_is_one_report_and_what_fails_in_it_fails_alone(
    seam: Seam, open_writer: Callable[..., LogWriter]
) -> None:
    writer, told = open_writer(), []
    keys = [b"device-%d" % (number % 20) for number in range(500)]
    values = [b"%d" % number if number != 250 else b"x" * (LIMIT_BYTES + 1) for number in range(500)]
    assert writer.produce_batch(seam.topic, keys, values, told.append) == 500
    writer.produce(seam.topic, b"device-0", b"500", told.append)
    assert told == []
    assert writer.in_flight == 501
    assert writer.flush(60) == 0
    [(place, error)] = told.pop(0)
    assert (place, error.kind) == (250, "record")
    assert told == [None]
    records = seam.records()
    for key in range(20):
        mine = [int(record.value or b"") for record in records if record.key == b"device-%d" % key]
        assert mine == [number for number in range(501) if number % 20 == key and number != 250]


def test_of_a_batch_is_taken_what_there_is_room_for(seam: Seam, open_writer: Callable[..., LogWriter]) -> None:
    writer, told = open_writer(small_queue=True), []
    seam.hold()
    values = [b"%d" % number for number in range(SMALL_QUEUE + 5)]
    assert writer.produce_batch(seam.topic, [b"k"] * len(values), values, told.append) == SMALL_QUEUE
    with pytest.raises(LogFull):
        writer.produce_batch(seam.topic, [b"k"], [b"late"], told.append)
    assert writer.poll(0.1) == 0
    seam.release()
    while not told:
        writer.poll(10)
    assert told == [[]]
    assert writer.produce_batch(seam.topic, [b"k"] * 5, values[SMALL_QUEUE:], told.append) == 5
    assert writer.flush(60) == 0
    assert [record.value for record in seam.records()] == values


def test_closing_twice_is_harmless(open_writer: Callable[..., LogWriter]) -> None:
    writer = open_writer()
    writer.close()
    writer.close()
    assert writer.flush(1) == 0
