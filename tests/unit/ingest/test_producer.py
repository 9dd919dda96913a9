"""What an error of the Kafka client means, without a Kafka."""

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from ingest.kafka_settings import KafkaSettings
from ingest.producer import KafkaWriter, classify_kafka_error
from ingest.record_limits import MAX_BATCH_BYTES, LearnedLimits, RecordLimits

KNOWN = RecordLimits({"t": 1_000_000}, 1_000_000, LearnedLimits())


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
    error = classify_kafka_error(KafkaError(code), "t", 10, KNOWN)
    assert error.kind == kind
    assert error.text


def test_a_missing_grant_comes_with_the_next_step() -> None:
    assert (
        "grant the Kafka user WRITE"
        in classify_kafka_error(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "t", 10, KNOWN).text
    )


def test_a_fatal_error_of_any_code_is_fatal() -> None:
    error = KafkaError(KafkaError.INVALID_RECORD, "producer fenced", fatal=True)
    assert classify_kafka_error(error, "t", 10, KNOWN).kind == "fatal"


def test_a_size_refused_although_the_limit_is_known_is_tried_again_with_a_writer_that_reads_it_again() -> None:
    error = classify_kafka_error(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "t", 500_000, KNOWN)
    assert (error.kind, "find out who lowered" in error.text) == ("retriable", True)


@given(
    st.lists(st.integers(1, 20_000), min_size=1, max_size=60),
    st.integers(50, 300_000),
    st.sampled_from([MAX_BATCH_BYTES, 1]),
)
def test_without_known_limits_only_records_that_are_too_large_are_refused_for_good(
    sizes: list[int], limit: int, first_batch: int
) -> None:
    """A broker that refuses each batch past its limit, and a caller that begins again with a new writer."""
    learned = LearnedLimits(batch_bytes=first_batch)
    for _writer in range(10):
        limits = RecordLimits(None, 1_000_000, learned)
        kinds = [limits.refused("t", size, "no").kind if refused else "ok" for size, refused in
                 send(sizes, limits.batch_bytes, limit)]  # fmt: skip
        assert all(size > limit for size, kind in zip(sizes, kinds, strict=True) if kind == "record")
        if "retriable" not in kinds:
            break
    assert kinds == ["record" if size > limit else "ok" for size in sizes]
    large = [size for size in sizes if size > limit]
    assert RecordLimits(None, 1_000_000, learned).of("t") == (min(large) if large else 1_000_000)


def send(sizes: list[int], batch_bytes: int, limit: int) -> list[tuple[int, bool]]:
    """Each record's size, and whether the broker refuses its batch; batches are filled as the client fills them."""
    batches: list[list[int]] = []
    for size in sizes:
        if batches and sum(batches[-1]) + size <= batch_bytes:
            batches[-1].append(size)
        else:
            batches.append([size])
    return [(size, sum(batch) > limit) for batch in batches for size in batch]


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
