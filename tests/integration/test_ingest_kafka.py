"""Kafka's side of the pipeline on a real broker: topics, offsets, groups, reading back, and the broker's faults."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ingest.contract.errors import ConfigError, FatalError, RetryableError
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, LAND_GROUP, OUTCOMES, READINGS
from ingest.groups.offset_mirror import OffsetMirror, group_lag
from ingest.kafka_settings import KafkaSettings
from ingest.log import DeliveryError
from ingest.producer import KafkaWriter, open_writer
from ingest.read.offset_range import read_range
from ingest.record_limits import LearnedLimits
from ingest.topics.admin import wait_for_kafka
from ingest.topics.describe import describe_topics, topic_limits
from ingest.topics.offsets import begin_offsets, end_offsets, offsets_at
from ingest.topics.setup import create_topic, delete_topic, ensure_topics
from tests.support.servers import fill, make_topics, refuses

MakeKafka = Callable[[], Any]


@pytest.fixture
def settings(kafka_server: Any) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers, partitions=2)


@pytest.fixture
def topic(settings: KafkaSettings, unique_name: str) -> str:
    make_topic(settings, unique_name)
    return unique_name


def make_topic(settings: KafkaSettings, name: str, **config: str) -> None:
    make_topics(settings.bootstrap_servers, NewTopic(name, 2, 1, config=config))


def set_topic_limit(settings: KafkaSettings, name: str, limit_bytes: int) -> None:
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    change = ConfigEntry("max.message.bytes", str(limit_bytes), incremental_operation=AlterConfigOpType.SET)
    (future,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])]
    ).values()
    future.result(60)


def values_of(settings: KafkaSettings, topic: str) -> list[bytes | None]:
    begin, end = begin_offsets(settings, topic), end_offsets(settings, topic)
    records = [record for batch in read_range(settings, topic, begin, end) for record in batch]
    return [r.value for r in sorted(records, key=lambda record: (record.partition, record.offset))]


class TestTopics:
    def test_missing_topics_are_made_and_existing_ones_compared(self, empty_kafka: Any) -> None:
        settings = KafkaSettings(bootstrap_servers=empty_kafka.bootstrap_servers, partitions=2)
        made: list[str] = []
        assert ensure_topics(settings, on_made=made.append) == []
        assert ensure_topics(settings, on_made=made.append) == []
        assert sorted(made) == sorted({DEAD_LETTERS, GATEWAY_STATE, OUTCOMES, READINGS}), "each is told once"
        state = describe_topics(settings, [READINGS])[READINGS]
        assert state.partitions == 2
        # Read back as they live in Kafka: a promise stands on each of them.
        assert state.config["message.timestamp.type"] == "LogAppendTime"
        assert state.config["cleanup.policy"] == "delete"
        limits = topic_limits(settings)
        assert limits is not None
        assert limits["telemetry.dead-letters"] >= 2 * limits[READINGS]
        differences = ensure_topics(settings.model_copy(update={"partitions": 6, "max_record_bytes": 65_536}))
        assert any("has 2 partitions, the settings say 6" in line for line in differences)
        assert any("max.message.bytes=1048576, the settings say 65536" in line for line in differences)
        assert describe_topics(settings, [READINGS])[READINGS].partitions == 2
        delete_topic(settings, READINGS)
        assert describe_topics(settings, [READINGS]) == {}
        with pytest.raises(ConfigError, match="with 3 copies"):
            ensure_topics(settings.model_copy(update={"replication": 3}))

    def test_a_topic_is_there_once_it_is_made_and_gone_once_it_is_deleted(
        self, settings: KafkaSettings, unique_name: str
    ) -> None:
        """The controller answers before the brokers know: of 300 looks at once on a busy machine 71 found no topic yet."""
        looking = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
        for number in range(30):
            name = f"{unique_name}-{number}"
            assert create_topic(settings, name, partitions=2, config={})
            assert name in looking.list_topics(timeout=60).topics
            delete_topic(settings, name)
            assert name not in looking.list_topics(timeout=60).topics

    def test_waiting_says_why_and_ends_when_told_to(self) -> None:
        stop, told = threading.Event(), []

        def on_wait(text: str) -> None:
            told.append(text)
            stop.set()

        assert not wait_for_kafka(KafkaSettings(bootstrap_servers="127.0.0.1:1"), stop, on_wait)
        assert "127.0.0.1:1 does not answer yet" in told[0]
        assert "refused" in told[0]

    def test_waiting_ends_when_kafka_answers(self, settings: KafkaSettings) -> None:
        assert wait_for_kafka(settings, threading.Event(), pytest.fail)

    def test_a_topic_that_is_not_there_is_a_sentence(self, settings: KafkaSettings, unique_name: str) -> None:
        with pytest.raises(FatalError, match=unique_name):
            end_offsets(settings, unique_name)

    def test_a_kafka_that_is_not_there_is_a_sentence(self, no_kafka: KafkaSettings) -> None:
        with pytest.raises(RetryableError, match=r"127\.0\.0\.1:1 failed while listing topics"):
            end_offsets(no_kafka, READINGS)


class TestReading:
    def test_a_stretch_is_read_whole_and_not_further(self, settings: KafkaSettings, topic: str) -> None:
        fill(settings, topic, 500)
        until = end_offsets(settings, topic)
        fill(settings, topic, 50)
        start = {partition: 3 for partition in until}
        records = [r for batch in read_range(settings, topic, start, until) for r in batch]
        for partition, end in until.items():
            mine = [record for record in records if record.partition == partition]
            assert [record.offset for record in mine] == list(range(3, end))
            assert all(record.key == record.value and record.timestamp_ms > 0 for record in mine)

    def test_nothing_to_read_ends_at_once(self, settings: KafkaSettings, topic: str) -> None:
        assert list(read_range(settings, topic, begin_offsets(settings, topic), end_offsets(settings, topic))) == []

    def test_an_end_past_the_last_record_is_reached(
        self, settings: KafkaSettings, topic: str, wait_until: Callable[..., Any]
    ) -> None:
        """An end at which no record stands, as a transaction's marker leaves it, is reached all the same."""
        producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "transactional.id": topic})
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, b"v", partition=number % 2)
        producer.commit_transaction(30)
        ends = {0: 6, 1: 6}
        # The coordinator writes the markers after it has answered.
        wait_until(lambda: end_offsets(settings, topic) == ends, what="the transaction's markers")
        assert sum(len(batch) for batch in read_range(settings, topic, {0: 0, 1: 0}, ends)) == 10

    def test_offsets_by_time(self, settings: KafkaSettings, topic: str) -> None:
        fill(settings, topic, 20)
        assert offsets_at(settings, topic, 0) == begin_offsets(settings, topic)
        assert offsets_at(settings, topic, 32_503_680_000_000) == end_offsets(settings, topic)

    def test_a_kafka_that_stops_answering_ends_the_read(
        self, settings: KafkaSettings, topic: str, kafka_server: Any
    ) -> None:
        fill(settings, topic, 10)
        ends = end_offsets(settings, topic)
        kafka_server.hold()
        try:
            with pytest.raises(RetryableError, match="check that the broker is up"):
                list(read_range(settings, topic, {0: 0, 1: 0}, ends, stall_seconds=1.0))
        finally:
            kafka_server.resume_process()


class TestGroups:
    def test_kafkas_own_tool_shows_the_lag(self, settings: KafkaSettings, topic: str, kafka_server: Any) -> None:
        fill(settings, topic, 100)
        ends = end_offsets(settings, topic)
        mirror = OffsetMirror(settings, LAND_GROUP)
        try:
            assert mirror.mirror({topic: {0: 1}}) is None
            mirror.mirror({topic: {0: ends[0] - 7, 1: ends[1]}})
            assert mirror.drain(30)
        finally:
            mirror.close()
        assert group_lag(settings, LAND_GROUP, [topic])[topic] == {0: (ends[0] - 7, ends[0]), 1: (ends[1], ends[1])}
        tool = kafka_server.part.tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", settings.bootstrap_servers, "--describe", "--group", LAND_GROUP),
        )
        shown = subprocess.run(tool, capture_output=True, text=True, timeout=120, check=False)
        lines = {tuple(line.split()[1:6]) for line in shown.stdout.splitlines() if topic in line}
        assert (topic, "0", str(ends[0] - 7), str(ends[0]), "7") in lines, shown.stdout + shown.stderr
        assert (topic, "1", str(ends[1]), str(ends[1]), "0") in lines

    def test_a_group_that_committed_nothing_is_empty(self, new_kafka: MakeKafka) -> None:
        """On a cluster that never saw a group, where the admin client's own call ends the process."""
        settings = KafkaSettings(bootstrap_servers=new_kafka().bootstrap_servers)
        ensure_topics(settings)
        assert group_lag(settings, LAND_GROUP) == {}

    def test_a_failed_mirror_is_told_and_tried_again(
        self, settings: KafkaSettings, unique_name: str, wait_until: Callable[..., Any]
    ) -> None:
        mirror = OffsetMirror(settings, f"group-{unique_name}")
        try:
            mirror.mirror({unique_name: {0: 5}})
            error = wait_until(lambda: mirror.mirror({unique_name: {0: 5}}), what="an error for a missing topic")
            assert "Cannot mirror the offsets" in error
            make_topic(settings, unique_name)
            fill(settings, unique_name, 20)
            assert mirror.drain(60)
            assert mirror.mirror({unique_name: {0: 5}}) is None
        finally:
            mirror.close()


class Stream:
    """Produces numbered records of a few keys and keeps what was reported."""

    def __init__(self, writer: KafkaWriter, topic: str) -> None:
        self.writer, self.topic = writer, topic
        self.sent = 0
        self.reported: list[int] = []
        self.errors: list[DeliveryError] = []

    def send(self, count: int) -> None:
        for _ in range(count):
            number, self.sent = self.sent, self.sent + 1
            self.writer.produce(
                self.topic, b"key-%d" % (number % 3), b"%d" % number, lambda error, n=number: self._done(n, error)
            )
            self.writer.poll(0)

    def _done(self, number: int, error: DeliveryError | None) -> None:
        self.reported.append(number)
        if error is not None:
            self.errors.append(error)


@pytest.fixture
def open_stream() -> Iterator[Callable[[KafkaSettings, str], Stream]]:
    made: list[Stream] = []

    def make(settings: KafkaSettings, topic: str) -> Stream:
        made.append(Stream(KafkaWriter(settings, None), topic))
        return made[-1]

    yield make
    for stream in made:
        stream.writer.close()


def assert_whole(stream: Stream, settings: KafkaSettings) -> None:
    assert stream.writer.flush(120) == 0
    assert stream.errors == []
    assert sorted(stream.reported) == list(range(stream.sent))
    begin, end = begin_offsets(settings, stream.topic), end_offsets(settings, stream.topic)
    records = [r for batch in read_range(settings, stream.topic, begin, end) for r in batch]
    assert len(records) == stream.sent
    for key in range(3):
        mine = sorted((r.offset, int(r.value or b"")) for r in records if r.key == b"key-%d" % key)
        assert [number for _, number in mine] == list(range(key, stream.sent, 3))


class TestFaults:
    def test_a_broker_that_hangs_loses_and_reorders_nothing(
        self, kafka_server: Any, unique_name: str, open_stream: Callable[..., Stream]
    ) -> None:
        # Shorter than the hang, so that requests do time out inside and are sent again.
        patience = {"socket.timeout.ms": "1000", "request.timeout.ms": "1000"}
        settings = KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers, extra=patience)
        make_topic(settings, unique_name)
        stream = open_stream(settings, unique_name)
        stream.send(300)
        kafka_server.hold()
        resume = threading.Timer(4.0, kafka_server.resume_process)
        resume.start()
        try:
            while not resume.finished.is_set():
                stream.send(1)
                stream.writer.poll(0.02)
        finally:
            resume.join()
        stream.send(300)
        assert_whole(stream, KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers))

    def test_a_broker_killed_and_started_again_loses_and_reorders_nothing(
        self, new_kafka: MakeKafka, unique_name: str, open_stream: Callable[..., Stream]
    ) -> None:
        server = new_kafka()
        settings = KafkaSettings(bootstrap_servers=server.bootstrap_servers)
        make_topic(settings, unique_name)
        stream = open_stream(settings, unique_name)
        stream.send(300)
        server.kill()
        stream.send(300)
        server.restart()
        stream.send(300)
        assert_whole(stream, settings)

    def test_a_limit_lowered_below_ours_costs_only_the_large_record(
        self, settings: KafkaSettings, unique_name: str, wait_until: Callable[..., Any]
    ) -> None:
        make_topic(settings, unique_name, **{"max.message.bytes": "4000"})
        seen: list[str] = []

        def run(limits: dict[str, int]) -> list[str]:
            seen.clear()
            writer = KafkaWriter(settings.model_copy(update={"linger_ms": 50}), limits)
            for number in range(30):
                writer.produce(
                    unique_name,
                    b"k",
                    # Not compressible: the broker weighs the compressed batch.
                    os.urandom(2500 if number == 9 else 100),
                    lambda e: seen.append(e.kind if e else "ok"),
                )
            assert writer.flush(60) == 0
            writer.close()
            return seen

        set_topic_limit(settings, unique_name, 2000)
        # A writer from before the change: the broker refuses whole batches, so nothing of it may become a dead letter.
        # The broker goes by the new limit soon after the controller has answered.
        wait_until(lambda: set(run({unique_name: 4000})) != {"ok"}, what="a refusal")
        assert "record" not in seen
        assert "retriable" in seen
        # The next one has read the limit: it refuses the large record itself, and the neighbours are stored.
        limit = int(describe_topics(settings, [unique_name])[unique_name].config["max.message.bytes"])
        run({unique_name: limit})
        assert sorted(seen) == ["ok"] * 29 + ["record"]

    def test_without_the_right_to_read_limits_a_large_record_costs_no_other(
        self, empty_kafka: Any, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]
    ) -> None:
        settings = KafkaSettings(bootstrap_servers=empty_kafka.bootstrap_servers, partitions=1, linger_ms=50)
        ensure_topics(settings)
        set_topic_limit(settings, READINGS, 4000)
        wait_until(
            lambda: refuses(settings.bootstrap_servers, READINGS, os.urandom(6000)),
            what="the broker going by the limit",
        )

        def denied(_future: object) -> object:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

        monkeypatch.setattr("ingest.topics.describe.result_of", denied)
        # Not compressible: the broker weighs the compressed batch.
        values = [b"%02d" % number + os.urandom(6000 if number == 9 else 500) for number in range(60)]
        keys, learned, tries = [b"k%d" % (number % 3) for number in range(60)], LearnedLimits(), 0
        kinds = ["retriable"]
        while "retriable" in kinds:
            tries += 1
            assert tries < 10
            begin = end_offsets(settings, READINGS)
            failures: list[list[tuple[int, DeliveryError]]] = []
            writer = open_writer(settings, learned=learned)
            writer.produce_batch(READINGS, keys, values, failures.append)
            assert writer.flush(60) == 0
            writer.close()
            kinds = [error.kind for _place, error in failures[0]]
            assert all(place == 9 for place, error in failures[0] if error.kind == "record")
        assert 1 < tries < 6
        assert [(place, error.kind) for place, error in failures[0]] == [(9, "record")]
        end = end_offsets(settings, READINGS)
        stored = [record.value for batch in read_range(settings, READINGS, begin, end) for record in batch]
        assert stored == [value for place, value in enumerate(values) if place != 9], "each once, in order"
        assert writer.max_record_bytes(READINGS) < 6100, "known from now on, so an outcome is cut to it"

    def test_a_topic_that_is_missing_is_never_made_and_may_pass(
        self, settings: KafkaSettings, unique_name: str
    ) -> None:
        impatient = settings.model_copy(update={"extra": {"topic.metadata.propagation.max.ms": "500"}})
        seen: list[DeliveryError | None] = []
        writer = KafkaWriter(impatient, None)
        writer.produce(unique_name, b"k", b"v", seen.append)
        assert writer.flush(120) == 0
        writer.close()
        assert [error.kind for error in seen if error] == ["retriable"]
        assert describe_topics(settings, [unique_name]) == {}

    def test_a_writer_opened_on_kafka_knows_its_limits(self, empty_kafka: Any) -> None:
        settings = KafkaSettings(bootstrap_servers=empty_kafka.bootstrap_servers, partitions=2)
        ensure_topics(settings)
        seen: list[DeliveryError | None] = []
        writer = open_writer(settings)
        # Of high entropy: compression must not be what lets it through.
        largest = os.urandom(settings.max_record_bytes - 300)
        writer.produce(READINGS, b"k", largest, seen.append)
        writer.produce(READINGS, b"k", largest + b"x" * 300, seen.append)
        writer.produce("telemetry.dead-letters", b"k", os.urandom(2 * settings.max_record_bytes - 300), seen.append)
        assert writer.flush(60) == 0
        writer.close()
        assert sorted(error.kind if error else "ok" for error in seen) == ["ok", "ok", "record"]
        assert len(values_of(settings, READINGS)) == 1
