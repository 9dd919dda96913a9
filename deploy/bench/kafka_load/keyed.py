"""Process that produces numbered records with keys, or reads all of them: a line of JSON in, `ready` out, then its work out.

It makes its records before it is ready. Then a line says what to do: `produce` or `read`.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from deploy.bench.kafka_load.addresses import (
    OWN_PARTITIONERS,
    assign_partitions,
    client_addresses,
    late_records,
    network_of,
    split_keys,
)
from deploy.bench.kafka_load.client_work import ClientWork, measure_client
from deploy.bench.kafka_load.worker import serve_sessions, take_plan
from deploy.bench.kafka_load.workload import Workload, due_us, stamp_value
from ingest.contract.errors import UnavailableError

__all__ = ["Batch", "batches_of", "feed_batches", "keyed_producer", "main"]

_WINDOW: Final = 16_000
"""Records out of which the calls for each partition are made: about as many as a client holds back for full batches."""
_STEPS_PER_SECOND: Final = 20
"""Steps per second of a load with a rate."""
_TAKE: Final = 5000
_SILENT_SECONDS: Final = 30.0
_WAIT_SECONDS: Final = 120.0

Batch = tuple[int, list[dict[str, Any]]]
"""Records of one call, and their partition; -1 leaves it to the client."""


def batches_of(
    keys: Sequence[bytes | None], places: Sequence[int | None], padding: bytes, *, first: int = 0, rate: float = 0.0
) -> list[Batch]:
    """Numbered records as calls for many take them, in order within each partition.

    A call is for one partition: the client ignores a partition that a record of a call names for itself.

    Args:
        keys: of the records.
        places: their partitions; None leaves it to the client.
        padding: what follows the number in each value.
        first: number of the first record.
        rate: records a second that will be the limit; 0 where there is none.
    """
    window = min(_WINDOW, max(1, int(rate / _STEPS_PER_SECOND))) if rate else _WINDOW
    found: list[Batch] = []
    for start in range(0, len(keys), window):
        by_place: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for at in range(start, min(start + window, len(keys))):
            key, place, value = keys[at], places[at], stamp_value(first + at, padding)
            by_place[-1 if place is None else place].append(
                {"value": value} if key is None else {"value": value, "key": key}
            )
        found += by_place.items()
    return found


def keyed_producer(conf: dict[str, Any], **more: Any) -> Producer:
    """Create a producer that keeps the order of each partition, and that never rejects a record because it has too many."""
    return Producer(
        {
            **conf,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.num.messages": 1000,
            # A call that is rejected in part would leave holes in the order.
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 2_000_000,
            "log_level": 0,
            **more,
        }
    )


def feed_batches(producer: Producer, topic: str, batches: Sequence[Batch], rate: float = 0.0) -> None:
    """Produce all, and wait until Kafka has them; a rate (records a second) is an upper limit.

    Raises:
        UnavailableError: the client rejected a record, or Kafka did not accept all of them in two minutes.
    """
    began, sent = time.monotonic(), 0
    for place, records in batches:
        if rate:
            time.sleep(max(0.0, began + sent / rate - time.monotonic()))
        if producer.produce_batch(topic, records, partition=place) != len(records):
            failure = next((one["_error"] for one in records if "_error" in one), "no reason given")
            message = f"the Kafka client rejected a record of topic {topic}: {failure}"
            raise UnavailableError(message)
        sent += len(records)
        producer.poll(0)
    if left := producer.flush(_WAIT_SECONDS):
        message = f"Kafka did not accept {left:,} records of topic {topic} within {_WAIT_SECONDS:g} s"
        raise UnavailableError(message)


class _Load:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._workload = workload = Workload(**plan["workload"])
        self._conf, self._errors = plan["conf"], 0
        addresses = client_addresses(workload.messages, networks=plan["networks"])
        places = assign_partitions(addresses, plan["partitioner"], workload.partitions)
        self._batches = batches_of(addresses, places, bytes(workload.message_bytes - 8), rate=workload.rate)
        self._producer = keyed_producer(
            self._conf,
            error_cb=self._error,
            partitioner=OWN_PARTITIONERS.get(plan["partitioner"], "murmur2_random"),
        )
        self._producer.list_topics(workload.topic, timeout=30)

    def produce(self) -> ClientWork:
        """All records, as fast as it goes, until Kafka had the last one."""
        with measure_client(time.time()) as (work, _):
            feed_batches(self._producer, self._workload.topic, self._batches, self._workload.rate)
            work.ended = time.time()
        work.errors = self._errors
        return work

    def read(self) -> ClientWork:
        """All records from the oldest on; nothing is done with one before the last one is there."""
        topic, count = self._workload.topic, self._workload.messages
        consumer = Consumer({**self._conf, "group.id": topic, "enable.auto.commit": False, "log_level": 0})
        found: list[Any] = []
        with measure_client(time.time()) as (work, _):
            consumer.assign([TopicPartition(topic, number, 0) for number in range(self._workload.partitions)])
            silent_since = time.monotonic()
            while len(found) < count and time.monotonic() - silent_since < _SILENT_SECONDS:
                if taken := consumer.consume(_TAKE, 0.01):
                    found += taken
                    silent_since = time.monotonic()
            work.ended = time.time()
        consumer.close()
        read = [(one.partition(), one.key(), due_us(one.value())) for one in found if one.error() is None]
        different = len({number for _, _, number in read})
        work.messages, work.again = len(read), len(read) - different
        work.figures = {
            "lost": count - different,
            "out_of_order": late_records(read),
            "split_keys": split_keys(read),
            "split_networks": split_keys([(partition, network_of(key), number) for partition, key, number in read]),
            "clients": len({key for _, key, _ in read}),
        }
        return work

    def _error(self, error: KafkaError) -> None:
        self._errors += error.code() != KafkaError._ALL_BROKERS_DOWN


def main() -> None:
    """One process from the command line."""
    load = _Load(take_plan())
    serve_sessions(lambda word, _lines: load.produce() if word.strip() == "produce" else load.read())


if __name__ == "__main__":
    main()
