"""Records sent and read by hand: what an interrupt or a bad record leaves, and where reading ends; without a Kafka."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message
from pydantic import SecretStr

from ingest import manual_producer as sending
from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.manual_producer import OutgoingRecord, send_outgoing
from ingest.read import tail as reading
from ingest.read.tail import TailRecord, TailStart, _take, tail


class _Producer:
    """Acknowledges what it has when it is flushed, after a few short waits."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[Any, Any], None]] = []
        self.flushes = 0

    def produce(self, *_args: object, on_delivery: Callable[[Any, Any], None], headers: object) -> None:
        self.waiting.append(on_delivery)

    def poll(self, _seconds: float) -> None:
        pass

    def flush(self, seconds: float) -> int:
        self.flushes += 1
        assert seconds <= 1, "a long wait hears no Ctrl-C"
        if self.flushes == 3:
            for report in self.waiting:
                report(None, None)
            self.waiting.clear()
        return len(self.waiting)


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> _Producer:
    fake = _Producer()
    monkeypatch.setattr(sending, "admin_client", lambda _settings: None)
    monkeypatch.setattr(sending, "partition_counts", lambda *_: {"rooms": 1})
    monkeypatch.setattr(sending, "missing_rights", lambda *_: [])
    monkeypatch.setattr(sending, "describe_topics", lambda *_: {})
    monkeypatch.setattr(sending, "make_client", lambda *_: fake)
    return fake


def records(error: BaseException) -> Iterator[OutgoingRecord]:
    yield from (OutgoingRecord(b"1"), OutgoingRecord(b"2"))
    raise error


def test_an_interrupt_counts_what_was_acknowledged(producer: _Producer) -> None:
    done = send_outgoing(KafkaSettings(), "rooms", records(KeyboardInterrupt()))
    assert (done.acknowledged, done.failed, done.interrupted) == (2, 0, True)


def test_records_before_a_bad_one_are_sent(producer: _Producer) -> None:
    with pytest.raises(ValueError, match="no delimiter"):
        send_outgoing(KafkaSettings(), "rooms", records(ValueError("no delimiter")))
    assert producer.flushes == 3 and producer.waiting == []


@pytest.fixture
def two_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One ends at 4, the other at 9; what comes later is read too."""
    monkeypatch.setattr(reading, "begin_offsets", lambda *_: {0: 2, 1: 0})
    monkeypatch.setattr(reading, "end_offsets", lambda *_: {0: 4, 1: 9})

    def read(_settings: object, topic: str, starts: dict[int, int], *_: object) -> Iterator[TailRecord]:
        for partition, offset in starts.items():
            for at in range(offset, 10):
                yield TailRecord(topic, partition, at, 1, "create", None, b"v")

    monkeypatch.setattr(reading, "_read", read)


def places(at: int) -> list[tuple[int, int]]:
    return [(one.partition, one.offset) for one in tail(KafkaSettings(), "rooms", TailStart("offset", at))]


@pytest.mark.usefixtures("two_partitions")
def test_an_offset_that_no_partition_has_yet_is_refused() -> None:
    with pytest.raises(UnavailableError, match=r"no offset 10 yet; it ends at \[0\] at 4, \[1\] at 9"):
        places(10)
    assert places(9) == [(0, 9), (1, 9)], "what comes in the shorter one until then was not asked for"
    assert places(1)[0] == (0, 2), "retention removed what was before"


class _End:
    """The event of a partition's end."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> Any:
        return KafkaError(KafkaError._PARTITION_EOF)

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset


@pytest.mark.parametrize("offset", [5, 10])
def test_reading_to_the_end_ends_at_an_open_transaction_too(offset: int) -> None:
    left = {3, 4}
    assert _take(cast("Message", _End(offset)), {3: 10, 4: 10}, left, "rooms", KafkaSettings()) is None
    assert left == {4}


def test_a_user_without_the_right_to_write_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "admin_client", lambda _settings: None)
    monkeypatch.setattr(sending, "partition_counts", lambda *_: {"rooms": 1})
    monkeypatch.setattr(sending, "missing_rights", lambda *_: ["WRITE", "DELETE"])
    with pytest.raises(UnavailableError, match="grant it WRITE on the topic"):
        send_outgoing(KafkaSettings(), "rooms", [OutgoingRecord(b"v")])


def test_a_right_that_is_taken_away_meanwhile_is_named_with_the_next_step(
    producer: _Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(report: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        return lambda _error, message: report(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), message)

    monkeypatch.setattr(
        producer, "produce", lambda *_, on_delivery, headers: producer.waiting.append(refuse(on_delivery))
    )
    settings = KafkaSettings(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", sasl_username="guest", sasl_password=SecretStr("x")
    )  # fmt: skip
    done = send_outgoing(settings, "rooms", [OutgoingRecord(b"1")])
    assert (done.failed, done.denied) == (1, True)
    assert done.why == "The Kafka user guest may not write to topic rooms: grant it WRITE on the topic"
