"""Producer process of `bench land`: it writes records in the gateway's form straight to Kafka.

It reads a plan as one line of JSON. Without a rate it produces all records as fast as Kafka takes them. With a rate, record i
is due at `begin_at + i / rate`, has that as its event time, and is never sent before.
"""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ingest.contract.errors import RetryableError
from ingest.contract.reading import RECORD_VERSION, Reading, ReadingRecord, encode_record, hash_payload
from ingest.contract.topics import READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.log import Failure, LogFull
from ingest.producer import KafkaWriter, open_writer

__all__ = ["FeedPlan", "record_of"]

BATCH_RECORDS: Final = 2000
TICK_SECONDS: Final = 0.005
FLUSH_SECONDS: Final = 60.0
_METRICS: Final = ("temperature", "humidity", "pressure", "battery")


@dataclass(frozen=True, kw_only=True)
class FeedPlan:
    """`records` records of `readings` readings each, of `devices` devices in turn; `rate` a second, 0 for no limit."""

    bootstrap_servers: str
    records: int
    devices: int = 100
    readings: int = 1
    rate: float = 0.0
    boot: int = 1
    begin_at: float = 0.0

    def due_at(self, number: int) -> float:
        """Return the time at which record `number` is due, in epoch seconds."""
        return self.begin_at + number / self.rate if self.rate else self.begin_at

    def names(self, number: int) -> tuple[str, int]:
        """Device and sequence number of record `number`."""
        return f"bench-{number % self.devices:04d}", 1 + number // self.devices


def record_of(plan: FeedPlan, number: int) -> tuple[bytes, bytes]:
    """Key and value of record `number`."""
    device, seq = plan.names(number)
    due_us = int(plan.due_at(number) * 1_000_000)
    readings = [
        Reading(metric, value=20 + (number + place) % 800 / 100, time_us=due_us)
        for place, metric in enumerate(_METRICS[: plan.readings])
    ]
    record = ReadingRecord(
        v=RECORD_VERSION, gateway="bench", epoch=plan.boot, number=number, received_us=due_us,
        topic=f"tidegate/v1/{device}/readings", device=device, readings=readings,
        message_id=f"bs:{plan.boot}:{seq}", boot=plan.boot, seq=seq,
        payload_hash=hash_payload(number.to_bytes(8, "big")),
    )  # fmt: skip
    return device.encode(), encode_record(record)


def _spans(plan: FeedPlan) -> Iterator[range]:
    """Record numbers to send now, span after span."""
    sent = 0
    while sent < plan.records:
        due = int((time.time() - plan.begin_at) * plan.rate) + 1 if plan.rate else plan.records
        upto = min(due, plan.records, sent + BATCH_RECORDS)
        if upto > sent:
            yield range(sent, upto)
            sent = upto
        elif plan.rate:
            time.sleep(TICK_SECONDS)


def _send(writer: KafkaWriter, keys: list[bytes], values: list[bytes]) -> None:
    while keys:
        try:
            taken = writer.produce_batch(READINGS, keys, values, _check)
        except LogFull:
            writer.poll(0.05)
            continue
        keys, values = keys[taken:], values[taken:]
    writer.poll(0.0)


def _check(failures: list[Failure]) -> None:
    if failures:
        message = f"Kafka did not accept a record: {failures[0][1].text}"
        raise RetryableError(message)


def main() -> None:
    """One plan from standard input."""
    plan = FeedPlan(**json.loads(sys.stdin.readline()))
    writer = open_writer(KafkaSettings(bootstrap_servers=plan.bootstrap_servers), client_id="tidegate-bench")
    time.sleep(max(0.0, plan.begin_at - time.time()))
    for span in _spans(plan):
        pairs = [record_of(plan, number) for number in span]
        _send(writer, [key for key, _ in pairs], [value for _, value in pairs])
    left = writer.flush(FLUSH_SECONDS)
    writer.close()
    sys.exit(1 if left else 0)


if __name__ == "__main__":
    main()
