"""Which record a report of the client is about, and what it costs to find out."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message

from ingest.log import DeliveryError, FailureKind
from ingest.producer import ProducerBatch

ERROR = KafkaError(KafkaError._FAIL)


class Report:
    """What the client tells of a record: an empty key or value as none."""

    def __init__(self, key: bytes, value: bytes) -> None:
        self._key, self._value = key or None, value or None

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value


class Counted(list[bytes]):
    """Counts how many items are looked at."""

    looked = 0

    def __iter__(self) -> Iterator[bytes]:
        for item in super().__iter__():
            self.looked += 1
            yield item

    def __getitem__(self, place: Any) -> Any:
        self.looked += 1
        return super().__getitem__(place)


def as_kind(kind: FailureKind) -> Callable[[KafkaError, str, int], DeliveryError]:
    return lambda error, _topic, _size: DeliveryError(kind, error.str())


def fail(flight: ProducerBatch, *places: int) -> list[int]:
    before = len(flight.failures)
    for place in places:
        flight.failed(ERROR, cast("Message", Report(flight.keys[place], flight.values[place])))
    return [place for place, _ in flight.failures[before:]]


def flight_of(keys: list[bytes], values: list[bytes], kind: FailureKind = "record") -> ProducerBatch:
    return ProducerBatch("t", keys, values, lambda failures: None, as_kind(kind))


def test_a_report_finds_its_record_in_whatever_order_they_come() -> None:
    flight = flight_of([b"a", b"b", b"a", b"c"], [b"1", b"1", b"2", b"3"])
    assert fail(flight, 2, 0, 3) == [2, 0, 3]
    assert not flight.settled
    assert fail(flight, 1) == [1]
    assert flight.settled


def test_equal_records_stand_for_one_another_each_once() -> None:
    flight = flight_of([b"a"] * 3, [b"1"] * 3)
    assert fail(flight, 2, 2, 2) == [0, 1, 2]


@pytest.mark.parametrize(("key", "value"), [(b"a", b""), (b"", b"1"), (b"", b"")])
def test_a_record_without_value_or_key_is_found(key: bytes, value: bytes) -> None:
    flight = flight_of([b"x", key, key], [b"y", value, value])
    assert fail(flight, 2, 1) == [1, 2]


@pytest.mark.parametrize("kind", ["record", "retriable", "fatal"])
def test_the_failure_of_a_whole_batch_costs_as_much_as_it_has_records(kind: FailureKind) -> None:
    looked: list[int] = []
    for count in (2_000, 20_000):
        keys, values = Counted([b"dev"] * count), Counted(b"%d" % number for number in range(count))
        flight = flight_of(keys, values, kind)
        fail(flight, *range(count))
        looked.append(keys.looked + values.looked)
    assert looked[1] == pytest.approx(10 * looked[0], rel=0.1)


def test_of_a_writer_that_failed_the_first_failure_is_told_and_a_fatal_one() -> None:
    kinds: list[FailureKind] = ["record", "retriable", "retriable", "record", "fatal", "retriable"]
    reported = iter(kinds)
    flight = ProducerBatch(
        "t", [b"k"] * 6, [b"%d" % n for n in range(6)], print, lambda *_: DeliveryError(next(reported), "")
    )
    fail(flight, *range(6))
    assert [(place, error.kind) for place, error in flight.failures] == [(0, "record"), (1, "retriable"), (4, "fatal")]
