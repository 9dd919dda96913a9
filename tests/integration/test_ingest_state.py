"""Reading the compacted state topic back from a real Kafka: newest value per key, bounded, and with an end."""

import logging
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from ingest.contract.errors import FatalError, RetryableError
from ingest.contract.outcome import OutcomeRecord, encode_outcome
from ingest.contract.topics import OUTCOMES
from ingest.gateway_state import read_newer, read_outcomes, read_state
from ingest.kafka_settings import KafkaSettings
from ingest.producer import open_writer
from ingest.topics.setup import ensure_topics
from tests.support.servers import make_topics


@pytest.fixture
def settings(kafka_server: Any) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers)


@pytest.fixture
def topic(settings: KafkaSettings, unique_name: str) -> str:
    # Small segments and no patience: the log is compacted while the test looks.
    config = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    make_topics(settings.bootstrap_servers, NewTopic(unique_name, 1, 1, config=config))
    return unique_name


def write(settings: KafkaSettings, topic: str, records: list[tuple[bytes, bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    for key, value in records:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(60) == 0


def test_the_newest_value_wins_and_a_tombstone_drops_the_key(settings: KafkaSettings, topic: str) -> None:
    assert read_state(settings, topic=topic) == []
    write(
        settings, topic, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"b", None), ("ü/ß".encode(), b"")]
    )
    assert read_state(settings, topic=topic) == [("a", b"2"), ("c", b"1"), ("ü/ß", b"")]
    write(settings, topic, [(b"b", b"again"), (b"c", None)])
    assert dict(read_state(settings, topic=topic)) == {"a": b"2", "ü/ß": b"", "b": b"again"}
    assert read_state(settings, topic=topic, wanted=lambda key: key == "a") == [("a", b"2")]


def test_the_newer_values_of_a_key_from_the_last_look_on(settings: KafkaSettings, topic: str) -> None:
    write(settings, topic, [(b"a", b"old")])
    values, offsets = read_newer(settings, "a", None, topic=topic)
    assert values == []
    assert read_newer(settings, "a", offsets, topic=topic) == ([], offsets)
    write(settings, topic, [(b"a", b"1"), (b"b", b"2"), (b"a", None), (b"a", b"3"), (b"b", b"4")])
    values, newer = read_newer(settings, "a", offsets, topic=topic)
    assert values == [b"1", b"3"]
    assert read_newer(settings, "a", offsets, topic=topic, max_records=2) == ([b"3"], newer), "the newest"
    assert read_newer(settings, "a", newer, topic=topic) == ([], newer)


def test_a_gateway_ends_a_key_by_an_empty_value(settings: KafkaSettings, topic: str) -> None:
    writer, seen = open_writer(settings), []
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"")):
        writer.produce(topic, key, value, seen.append)
    assert writer.flush(120) == 0
    writer.close()
    assert seen == [None] * 3
    assert read_state(settings, topic=topic) == [("b", b"1")]


def test_outcomes_since_a_time_come_in_order(settings: KafkaSettings, unique_name: str) -> None:
    ensure_topics(settings)
    outcomes = [
        OutcomeRecord(1, unique_name, 1, number, number, [], None, [("d", 7, number)]) for number in range(1, 200)
    ]
    values = [encode_outcome(outcome) for outcome in outcomes]
    begun_ms = time.time_ns() // 1_000_000 - 120_000
    write(settings, OUTCOMES, [(unique_name.encode(), value) for value in [values[0], b"no outcome", *values[1:]]])
    assert [one for one in read_outcomes(settings, begun_ms) if one.gateway == unique_name] == outcomes
    assert list(read_outcomes(settings, begun_ms + 3_600_000)) == []


def test_a_long_history_of_few_keys_is_few_values(settings: KafkaSettings, topic: str) -> None:
    write(settings, topic, [(b"key-%d" % (n % 7), b"%d" % n + b"." * 1000) for n in range(5000)])
    found = read_state(settings, topic=topic, max_bytes=10_000)
    assert sorted(int(value.rstrip(b".")) for _key, value in found) == list(range(4993, 5000)), "none was left out"


def test_more_than_may_be_held_leaves_out_what_was_not_written_for_longest(
    settings: KafkaSettings, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = [b"key-%02d" % n for n in range(20)]
    write(settings, topic, [(name, b"." * 94) for name in names] + [(names[0], b"!" * 94), (b"\xff", b"foreign")])
    with caplog.at_level(logging.WARNING):
        found = read_state(settings, topic=topic, max_bytes=500)
    assert [key for key, _value in found] == ["key-16", "key-17", "key-18", "key-19", "key-00"]
    assert "16 times the least recently written key" in caplog.text
    assert "1 records whose key is not UTF-8" in caplog.text


def test_a_kafka_that_is_away_or_hangs_is_told_as_passing(
    settings: KafkaSettings, topic: str, kafka_server: Any, no_kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RetryableError, match=r"127\.0\.0\.1:1 "):
        read_state(no_kafka, topic=topic)
    write(settings, topic, [(b"a", b"1")])
    monkeypatch.setattr("ingest.gateway_state.begin_offsets", lambda *_: {0: 0})
    monkeypatch.setattr("ingest.gateway_state.end_offsets", lambda *_: {0: 1})
    kafka_server.hold()
    try:
        with pytest.raises(RetryableError, match="check that the broker is up"):
            read_state(settings, topic=topic, stall_seconds=1.0)
    finally:
        kafka_server.resume_process()


def test_a_topic_that_is_not_there_is_a_sentence(settings: KafkaSettings, unique_name: str) -> None:
    with pytest.raises(FatalError, match=unique_name):
        read_state(settings, topic=unique_name)
