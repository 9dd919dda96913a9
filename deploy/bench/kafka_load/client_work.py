"""Measurements of one client process of a load, sent as a line to the process that started it."""

import json
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from deploy.bench.kafka_load.latency import Latencies

__all__ = ["ClientWork", "elapsed_seconds", "measure_client"]


@dataclass(kw_only=True)
class ClientWork:
    """The work of one client from the word to begin to its last message; times in seconds since 1970.

    A client fills in what it knows; the others are 0.

    Attributes:
        messages: produced, published with a PUBACK, or read.
        again: read another time.
        bytes: of the values that were read.
        began: the client was at its first message.
        ended: the client was done with its last message.
        cpu_seconds: processor time of the process.
        python_cpu_seconds: the part of the one thread that runs Python, with the client's calls that it makes.
        errors: faults of connections, records that Kafka rejected, and records without an answer at the end.
        late_ms: the longest time by which a message left after it was due.
        fill_seconds: for the records that the topic holds before the clock starts.
        latencies: of the messages that were timed, see `Latencies.encode`.
        figures: what else this client counted, by the names of the figures.
    """

    messages: int = 0
    again: int = 0
    bytes: int = 0
    began: float = 0.0
    ended: float = 0.0
    cpu_seconds: float = 0.0
    python_cpu_seconds: float = 0.0
    errors: int = 0
    late_ms: float = 0.0
    fill_seconds: float = 0.0
    latencies: str = ""
    figures: dict[str, float] = field(default_factory=dict)

    def encode(self) -> str:
        """Encode as a line for another process; `decode` reads it."""
        return json.dumps(vars(self))

    @classmethod
    def decode(cls, line: str) -> "ClientWork":
        """The work of another process."""
        return cls(**json.loads(line))


@contextmanager
def measure_client(begin_at: float) -> Iterator[tuple[ClientWork, Latencies]]:
    """Wait until it is time to begin, and measure the block; the block itself sets when its last message was."""
    time.sleep(max(0.0, begin_at - time.time()))
    latencies = Latencies(int(begin_at * 1_000_000))
    cpu, python = time.process_time(), time.thread_time()
    work = ClientWork(began=time.time())
    yield work, latencies
    work.cpu_seconds, work.python_cpu_seconds = time.process_time() - cpu, time.thread_time() - python
    work.latencies = latencies.encode()


def elapsed_seconds(clients: Collection[ClientWork]) -> float:
    """Return the seconds from the first client's start to the last one's end; never 0."""
    return max(1e-6, max(one.ended for one in clients) - min(one.began for one in clients))
