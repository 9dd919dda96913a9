"""One process that produces numbered records with keys, then reads all of them: lines of JSON in and out.

It gets its plan, makes its records and writes `ready`; it produces at the next line and reads at the one after that.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from deploy.bench.kafka_load.addresses import (
    OWN_PARTITIONERS,
    client_addresses,
    late_records,
    network_of,
    placed,
    split_keys,
)
from deploy.bench.kafka_load.workload import due_us, stamped
from ingest.contract.errors import UnavailableError

__all__ = ["Batch", "batches_of", "feed_batches", "keyed_producer", "main"]

_WINDOW: Final = 16_000
"""Records out of which the calls for each partition are made: about as many as a client holds back for full batches."""
_STEPS_PER_SECOND: Final = 20
"""With a rate."""
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
            key, place, value = keys[at], places[at], stamped(first + at, padding)
            by_place[-1 if place is None else place].append(
                {"value": value} if key is None else {"value": value, "key": key}
            )
        found += by_place.items()
    return found


def keyed_producer(conf: dict[str, Any], **more: Any) -> Producer:
    """One that keeps the order of each partition, and that never refuses a record because it has too many."""
    return Producer(
        {
            **conf,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.num.messages": 1000,
            # A call that is refused in part would leave holes in the order.
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 2_000_000,
            "log_level": 0,
            **more,
        }
    )


def feed_batches(producer: Producer, topic: str, batches: Sequence[Batch], rate: float = 0.0) -> None:
    """Produce all, and wait until Kafka has them; a rate (records a second) is an upper limit.

    Raises:
        UnavailableError: the client refused a record, or Kafka did not take all of them in two minutes.
    """
    began, sent = time.monotonic(), 0
    for place, records in batches:
        if rate:
            time.sleep(max(0.0, began + sent / rate - time.monotonic()))
        if producer.produce_batch(topic, records, partition=place) != len(records):
            failure = next((one["_error"] for one in records if "_error" in one), "no reason given")
            message = f"the Kafka client refused a record of topic {topic}: {failure}"
            raise UnavailableError(message)
        sent += len(records)
        producer.poll(0)
    if left := producer.flush(_WAIT_SECONDS):
        message = f"Kafka did not take {left:,} records of topic {topic} within {_WAIT_SECONDS:g} s"
        raise UnavailableError(message)


class _Load:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan, self._topic, self._errors = plan, plan["topic"], 0
        addresses = client_addresses(plan["messages"], networks=plan["networks"])
        places = placed(addresses, plan["partitioner"], plan["partitions"])
        self._batches = batches_of(addresses, places, bytes(plan["message_bytes"] - 8), rate=plan["rate"])
        self._producer = keyed_producer(
            plan["conf"],
            error_cb=self._error,
            partitioner=OWN_PARTITIONERS.get(plan["partitioner"], "murmur2_random"),
        )
        self._producer.list_topics(self._topic, timeout=30)

    def produce(self) -> dict[str, float]:
        """All records, as fast as it goes; seconds until Kafka had the last one."""
        cpu, began = time.process_time(), time.monotonic()
        feed_batches(self._producer, self._topic, self._batches, self._plan["rate"])
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu
        return {"produce_seconds": seconds, "cpu_seconds": cpu, "errors": self._errors}

    def read(self) -> dict[str, float]:
        """All records from the oldest on; nothing is done with one before the last one is there."""
        count, partitions = self._plan["messages"], range(self._plan["partitions"])
        consumer = Consumer(
            {**self._plan["conf"], "group.id": self._topic, "enable.auto.commit": False, "log_level": 0}
        )
        began = time.monotonic()
        consumer.assign([TopicPartition(self._topic, number, 0) for number in partitions])
        found: list[Any] = []
        silent_since = began
        while len(found) < count and time.monotonic() - silent_since < _SILENT_SECONDS:
            if taken := consumer.consume(_TAKE, 0.01):
                found += taken
                silent_since = time.monotonic()
        seconds = time.monotonic() - began
        consumer.close()
        read = [(one.partition(), one.key(), due_us(one.value())) for one in found if one.error() is None]
        return {"consume_seconds": seconds, "consumed": len(read), **_read_figures(read, count)}

    def _error(self, error: KafkaError) -> None:
        self._errors += error.code() != KafkaError._ALL_BROKERS_DOWN


def _read_figures(read: Sequence[tuple[int, bytes, int]], count: int) -> dict[str, float]:
    numbers = {number for _, _, number in read}
    return {
        "lost": count - len(numbers),
        "again": len(read) - len(numbers),
        "out_of_order": late_records(read),
        "split_keys": split_keys(read),
        "split_networks": split_keys([(partition, network_of(key), number) for partition, key, number in read]),
        "clients": len({key for _, key, _ in read}),
    }


def main() -> None:
    """One process from the command line."""
    load = _Load(json.loads(sys.stdin.readline()))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for step in (load.produce, load.read):
        if not sys.stdin.readline():
            return
        sys.stdout.write(json.dumps(step()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
