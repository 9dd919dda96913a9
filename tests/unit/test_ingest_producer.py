"""What an error of the Kafka client means, without a Kafka."""

import pytest
from confluent_kafka import KafkaError

from ingest.producer import KafkaWriter, classify
from ingest.settings import KafkaSettings


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.INVALID_RECORD, "record"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "retriable"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "retriable"),
        (KafkaError._UNKNOWN_TOPIC, "retriable"),
        (KafkaError.NOT_ENOUGH_REPLICAS, "retriable"),
        (KafkaError._MSG_TIMED_OUT, "retriable"),
        (KafkaError._PURGE_QUEUE, "retriable"),
        (KafkaError._FATAL, "fatal"),
    ],
)
def test_an_error_says_what_the_caller_should_do(code: int, kind: str) -> None:
    error = classify(KafkaError(code), limits_known=True)
    assert error.kind == kind
    assert error.text


def test_a_missing_grant_comes_with_the_next_step() -> None:
    assert (
        "grant the Kafka user WRITE"
        in classify(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), limits_known=True).text
    )


def test_a_fatal_error_of_any_code_is_fatal() -> None:
    error = KafkaError(KafkaError.INVALID_RECORD, "producer fenced", fatal=True)
    assert classify(error, limits_known=True).kind == "fatal"


@pytest.mark.parametrize(("limits_known", "kind"), [(True, "retriable"), (False, "record")])
def test_a_size_refused_by_the_broker_is_tried_anew_only_where_the_next_writer_can_learn(
    limits_known: bool, kind: str
) -> None:
    assert classify(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), limits_known=limits_known).kind == kind


def test_each_topic_has_its_own_limit_and_nothing_is_sent_past_it() -> None:
    writer = KafkaWriter(KafkaSettings(bootstrap_servers="127.0.0.1:1"), {"small": 1000, "large": 100_000})
    reports: list[tuple[str, str]] = []

    def produce(topic: str, size: int) -> None:
        writer.produce(topic, b"k", b"x" * size, lambda error: reports.append((topic, error.kind if error else "ok")))

    produce("small", 2000)
    produce("large", 2000)
    produce("unknown", 2 * 1024 * 1024)
    assert writer.poll(0) == 2
    assert reports == [("small", "record"), ("unknown", "record")]
    assert writer.in_flight == 1
    writer.close()
