"""What the Kafka writer gives its client, and when, with a client whose queue is as small as a test wants."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

import ingest.producer
from ingest.kafka_settings import KafkaSettings
from ingest.log import DeliveryError, Failure
from ingest.producer import KafkaWriter

KBYTES = 2049
"""The smallest queue that the settings allow; a flight takes half of it."""
HALF = KBYTES * 1024 // 2


class Client:
    """librdkafka as far as the writer uses it: refuses what its queue does not hold, delivers the rest in `poll`."""

    def __init__(self, conf: dict[str, Any]) -> None:
        self.room = conf["queue.buffering.max.kbytes"] * 1024
        self.queue: list[bytes] = []
        self.delivered: list[bytes] = []
        self.raises: Exception | None = None
        self.refuses_from: int | None = None

    def __len__(self) -> int:
        return len(self.queue)

    def produce_batch(self, topic: str, records: list[dict[str, Any]], on_delivery: Callable[..., None]) -> int:
        if self.raises is not None:
            raise self.raises
        taken = 0
        for record in records:
            value = record["value"]
            full = sum(map(len, self.queue)) + len(value) > self.room
            if full or (self.refuses_from is not None and len(self.queue) >= self.refuses_from):
                record["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            else:
                self.queue.append(value)
                taken += 1
        return taken

    def poll(self, timeout_seconds: float) -> int:
        self.delivered += self.queue
        self.queue.clear()
        return 0

    def purge(self) -> None:
        self.queue.clear()

    def flush(self, timeout_seconds: float) -> int:
        return 0


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client({"queue.buffering.max.kbytes": KBYTES})
    monkeypatch.setattr(ingest.producer, "make_client", lambda kind, conf, settings, logger: made)
    return made


@pytest.fixture
def writer(client: Client) -> KafkaWriter:
    extra = {"queue.buffering.max.kbytes": str(KBYTES)}
    return KafkaWriter(KafkaSettings(bootstrap_servers="127.0.0.1:1", extra=extra), {})


@pytest.mark.parametrize("size", [1000, 100_000, HALF // 2 + 1, 1024 * 1024 - 300])
def test_a_batch_past_the_clients_queue_is_taken_in_parts(client: Client, writer: KafkaWriter, size: int) -> None:
    values = [b"%06d" % number + b"x" * (size - 7) for number in range(4 * KBYTES * 1024 // size + 5)]
    keys = [b"k"] * len(values)
    failures: list[Failure] = []
    given = turns = 0
    while given < len(values):
        turns += 1
        taken = writer.produce_batch("t", keys[given:], values[given:], failures.extend)
        assert 1 <= taken <= max(1, HALF // size)
        given += taken
        assert writer.flush(5) == 0
    assert turns > 1
    assert failures == []
    assert client.delivered == values


def test_a_batch_of_usual_size_is_taken_whole(client: Client, writer: KafkaWriter) -> None:
    values = [b"x" * 300] * 500
    assert writer.produce_batch("t", [b"k"] * 500, values, lambda failures: None) == 500
    assert writer.flush(5) == 0
    assert client.delivered == values


@pytest.mark.parametrize("how", ["in part", "whole", "fatal"])
def test_behind_a_batch_that_the_client_refuses_no_later_one_overtakes_it(
    client: Client, writer: KafkaWriter, how: str
) -> None:
    told: list[tuple[str, DeliveryError]] = []

    def tell(name: str, failures: list[Failure]) -> None:
        told.extend((name, error) for _, error in failures)

    if how == "in part":
        client.refuses_from = 2
    else:
        client.raises = KafkaException(KafkaError(KafkaError._FATAL if how == "fatal" else KafkaError._QUEUE_FULL))
    for name in ("first", "second", "third"):
        values = [b"%s %d" % (name.encode(), number) for number in range(4)]
        writer.produce_batch("t", [b"d"] * 4, values, partial(tell, name))

    def refuse_no_more(topic: str, records: list[dict[str, Any]], on_delivery: Callable[..., None]) -> int:
        pytest.fail("a later batch was given to the client")

    produce = client.produce_batch

    def once(topic: str, records: list[dict[str, Any]], on_delivery: Callable[..., None]) -> int:
        client.produce_batch = refuse_no_more  # type: ignore[method-assign]
        return produce(topic, records, on_delivery)

    client.produce_batch = once  # type: ignore[method-assign]
    writer.poll(0)
    assert [(name, error.kind) for name, error in told] == [("first", "fatal" if how == "fatal" else "retriable")]
    writer.abort()
    assert client.delivered in ([], [b"first 0", b"first 1"])
