"""Description of one load on Kafka, and the form of its records."""

import random
import struct
from dataclasses import dataclass
from typing import Any, Final, Literal

from ingest.contract.errors import ConfigError

__all__ = [
    "AWAITED_MB",
    "STAMP_BYTES",
    "Workload",
    "due_us",
    "message_keys",
    "producer_options",
    "split_evenly",
    "stamp_value",
]

STAMP_BYTES: Final = 8
"""The first bytes of each value: when it was due, in microseconds since 1970, big-endian."""
_STAMP = struct.Struct(">q")
_KEYS: Final = 1000
MAX_MESSAGE_BYTES: Final = 900_000
AWAITED_MB: Final = 1000
"""Values of a topic from which on a run ends only when its files are deleted: Kafka does that later, in its own time."""
_KEEP_ALL: Final = {"retention.bytes": "-1"}
"""Properties of a topic whose records are counted: by its own limit (256 MB here) a broker would delete the oldest during a
run.
"""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Load that is produced to its own topic and consumed from it.

    Attributes:
        topic: made for the run and removed after it.
        messages: of all producers together, without warm-up; of each session.
        message_bytes: size of a value, 8 or more: the value begins with the time at which it was due.
        batch_records: at most so many records of a partition in one request; 1 is a request for each record.
        rate: messages per second of all producers together, at fixed times (open loop); 0 is as fast as it goes.
        mode: `split` consumes after everything was produced, `stream` at the same time.
        producers, consumers: processes. A partition has one consumer.
        acks: of the producers: "0", "1" or "all".
        compression: of the batches.
        keys: `none`; `even`: 1,000 keys that come equally often; `skewed`: key number i comes with a weight of 1 / i.
        warmup_messages: produced and consumed before the clock starts, through a second topic.
        consume: False leaves the consumers out.
        linger_ms: how long a batch that is not full waits; only with `rate`, since at full speed a batch is always full.
        fetch_min_bytes: a consumer's request waits for so many bytes, at most 20 ms. In mode `stream` at full speed a consumer
            that waits for one byte asks as often as the producers send, and takes the broker's time from them.
        sessions: at most so many loads of `messages` one after another, by the same processes on the same topic, each with a
            clock of its own. A rate is their median: one session of 30,000 records lasts a tenth of a second.
        stable_ratio: sessions end earlier, when the medians of the rates are known this well (see `median_error`); 0 runs all.
        properties: of the topic.
        retained_mb: values that the topic holds before the clock starts; consumers read them too, from the oldest on.
        cold: before the consumers begin, the topic's files are on the disk and out of the page cache; only in mode `split`.
        fetch_bytes: a consumer asks for at most so many bytes of a partition at a time.

    Raises:
        ConfigError: a value is out of its range.
    """

    topic: str
    messages: int
    message_bytes: int = 100
    batch_records: int = 1000
    rate: float = 0.0
    mode: Literal["split", "stream"] = "split"
    producers: int = 1
    consumers: int = 1
    partitions: int = 1
    replication: int = 1
    acks: str = "1"
    compression: str = "none"
    keys: Literal["none", "even", "skewed"] = "none"
    warmup_messages: int = 0
    consume: bool = True
    linger_ms: float = 0.0
    fetch_min_bytes: int = 1
    sessions: int = 1
    stable_ratio: float = 0.0
    properties: tuple[tuple[str, str], ...] = ()
    retained_mb: int = 0
    cold: bool = False
    fetch_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in (
            "messages",
            "batch_records",
            "producers",
            "partitions",
            "replication",
            "fetch_min_bytes",
            "sessions",
        ):
            self._check(name, getattr(self, name) >= 1, "1 or more")
        self._check(
            "message_bytes",
            STAMP_BYTES <= self.message_bytes <= MAX_MESSAGE_BYTES,
            f"{STAMP_BYTES} to {MAX_MESSAGE_BYTES}",
        )
        self._check("rate", self.rate >= 0, "0 or more")
        self._check("stable_ratio", 0 <= self.stable_ratio < 1, "0 to below 1")
        self._check("warmup_messages", self.warmup_messages >= 0, "0 or more")
        self._check("acks", self.acks in {"0", "1", "all"}, "0, 1 or all")
        self._check("retained_mb", self.retained_mb >= 0, "0 or more")
        self._check(
            "retained_mb",
            not self.retained_mb or self.mode == "split",
            "0 in mode stream, where consumers read immediately",
        )
        self._check("sessions", self.sessions == 1 or not (self.retained or self.cold), "1 with retained_mb or cold")
        self._check("fetch_bytes", self.fetch_bytes >= 1, "1 or more")
        self._check(
            "cold", not (self.cold and self.mode == "stream"), "False in mode stream, where consumers read immediately"
        )
        at_most = self.partitions
        self._check("consumers", 1 <= self.consumers <= at_most, f"1 to {at_most}, the number of partitions")

    @property
    def topic_config(self) -> dict[str, str]:
        """Settings of its topic."""
        return {**_KEEP_ALL, **dict(self.properties)}

    @property
    def retained(self) -> int:
        """Records that the topic holds before the clock starts."""
        return self.retained_mb * 1_000_000 // self.message_bytes

    @property
    def megabytes(self) -> float:
        """Values of all copies at the end."""
        records = self.retained + self.messages * self.sessions
        return records * self.message_bytes * self.replication / 1e6

    @property
    def stored(self) -> int:
        """Records that it holds at the end."""
        return self.retained + self.messages

    def _check(self, name: str, holds: bool, wanted: str) -> None:
        if not holds:
            message = f"workload {self.topic}: {name} is {getattr(self, name)}, wanted {wanted}"
            raise ConfigError(message)


def split_evenly(total: int, parts: int) -> list[int]:
    """`total` in `parts` whole numbers that differ by 1 at most."""
    whole, rest = divmod(total, parts)
    return [whole + (number < rest) for number in range(parts)]


def stamp_value(due: int, padding: bytes) -> bytes:
    """A value that was due at `due` (microseconds since 1970)."""
    return _STAMP.pack(due) + padding


def due_us(value: bytes) -> int:
    """Return the time at which this value was due, in microseconds since 1970."""
    return int(_STAMP.unpack_from(value)[0])


def message_keys(workload: Workload, count: int, *, seed: int) -> list[bytes | None]:
    """The keys of `count` messages in order; the same for the same seed."""
    if workload.keys == "none":
        return [None] * count
    names = [f"key-{number:04d}".encode() for number in range(_KEYS)]
    weights = None if workload.keys == "even" else [1 / (number + 1) for number in range(_KEYS)]
    return list(random.Random(seed).choices(names, weights, k=count))  # noqa: S311 - spreads load, guards nothing


def producer_options(workload: Workload) -> dict[str, Any]:
    """Options of librdkafka for this load, over those of the connection."""
    return {
        "acks": workload.acks,
        "batch.num.messages": workload.batch_records,
        "batch.size": max(1_000_000, workload.message_bytes + 1000),
        "compression.type": workload.compression,
        # A full batch leaves at once. At full speed this wait is only for the last one.
        "linger.ms": workload.linger_ms if workload.rate else 5,
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 256 * 1024,
        # Without keys and with a rate, records go round the partitions by batches, as they would with many producers.
        "sticky.partitioning.linger.ms": 2,
    }
