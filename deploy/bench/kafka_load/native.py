"""Producer process that is a C client: librdkafka gets the records in arrays, and Python runs only between two arrays.

It has the same input and output as `produce.py`, and also knows both topics before its clock starts. It loads the librdkafka of
confluent-kafka. It times no records, and sends neither keys nor at a rate.
"""

import ctypes
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from deploy.bench.kafka_load.client_work import ClientWork, measure_client
from deploy.bench.kafka_load.produce import BLOCK, DRAIN_SECONDS, WAIT_SECONDS, block_size
from deploy.bench.kafka_load.worker import StarterLines, serve_sessions, take_plan
from deploy.bench.kafka_load.workload import Workload, producer_options, stamp_value
from ingest.contract.errors import ConfigError, UnavailableError

__all__ = ["NativeProducer", "main"]

_PRODUCER: Final = 0
_COPY: Final = 2
"""Flag of rd_kafka_produce_batch: the payload is copied, as Python's client does."""
_TEXT_BYTES: Final = 512
_FULL_SECONDS: Final = 0.002
_LOOK_UP_SECONDS: Final = 30.0


class _Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", ctypes.c_int), ("rkt", ctypes.c_void_p), ("partition", ctypes.c_int32), ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t), ("key", ctypes.c_void_p), ("key_len", ctypes.c_size_t), ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )  # fmt: skip


class NativeProducer:
    """A producer of librdkafka with these options, for values of one size.

    Raises:
        ConfigError: librdkafka rejects an option; the text has its name.
    """

    def __init__(self, conf: dict[str, Any], value_bytes: int) -> None:
        self._lib = _library()
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        options = self._lib.rd_kafka_conf_new()
        for name, value in conf.items():
            word = str(value).lower() if isinstance(value, bool) else str(value)
            if self._lib.rd_kafka_conf_set(options, name.encode(), word.encode(), text, _TEXT_BYTES):
                raise ConfigError(text.value.decode())
        self._handle = self._lib.rd_kafka_new(_PRODUCER, options, text, _TEXT_BYTES)
        if not self._handle:
            raise ConfigError(text.value.decode())
        self._topics: dict[str, int] = {}
        self._value = bytearray(value_bytes)
        where = ctypes.addressof((ctypes.c_char * value_bytes).from_buffer(self._value))
        # One array for all calls: its records are the same value, which each call copies.
        self._messages = (_Message * BLOCK)(*[_Message(payload=where, len=value_bytes)] * BLOCK)

    def look_up(self, topic: str) -> None:
        """Learn the partitions of a topic and their leaders; else its first records wait for that.

        Raises:
            UnavailableError: Kafka does not answer.
        """
        found, milliseconds = ctypes.c_void_p(), int(_LOOK_UP_SECONDS * 1000)
        error = self._lib.rd_kafka_metadata(self._handle, 0, self._topic(topic), ctypes.byref(found), milliseconds)
        if error:
            message = (
                f"Kafka did not return the metadata of topic {topic}: {self._lib.rd_kafka_err2str(error).decode()}"
            )
            raise UnavailableError(message)
        self._lib.rd_kafka_metadata_destroy(found)

    def send(self, topic: str, partition: int, value: bytes, count: int) -> None:
        """Send a number of records of one value, at most `BLOCK`; waits while the client's queue is full."""
        self._value[: len(value)] = value
        while count > 0:
            count -= self._lib.rd_kafka_produce_batch(self._topic(topic), partition, _COPY, self._messages, count)
            if count:
                self._lib.rd_kafka_poll(self._handle, 0)
                time.sleep(_FULL_SECONDS)

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            self._topics[name] = self._lib.rd_kafka_topic_new(self._handle, name.encode(), None)
        return self._topics[name]

    def drain(self) -> int:
        """Wait until all are acknowledged, or for too long; those that are not."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (left := int(self._lib.rd_kafka_outq_len(self._handle))) and time.monotonic() < deadline:
            self._lib.rd_kafka_poll(self._handle, 0)
            time.sleep(DRAIN_SECONDS)
        return left


def _library() -> Any:
    """The librdkafka in confluent-kafka's wheel, else the one of the operating system."""
    client = find_spec("confluent_kafka")
    folder = Path((client.origin if client else None) or "/").parent.with_name("confluent_kafka.libs")
    lib = ctypes.CDLL(str(next(iter(sorted(folder.glob("librdkafka-*.so*"))), "librdkafka.so.1")))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("conf_new", pointer, ()),
        ("conf_set", number, (pointer, text, text, text, ctypes.c_size_t)),
        ("new", pointer, (number, pointer, text, ctypes.c_size_t)),
        ("topic_new", pointer, (pointer, text, pointer)),
        ("produce_batch", number, (pointer, ctypes.c_int32, number, ctypes.POINTER(_Message), number)),
        ("poll", number, (pointer, number)),
        ("outq_len", number, (pointer,)),
        ("metadata", number, (pointer, number, pointer, ctypes.POINTER(pointer), number)),
        ("metadata_destroy", None, (pointer,)),
        ("err2str", text, (number,)),
    ):
        function = getattr(lib, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return lib


def _send(producer: NativeProducer, workload: Workload, topic: str, messages: int, number: int) -> int:
    """A producer's part in blocks, each to the next partition."""
    size, padding = block_size(workload, messages), bytes(workload.message_bytes - 8)
    while messages:
        count = min(size, messages)
        producer.send(topic, number % workload.partitions, stamp_value(time.time_ns() // 1000, padding), count)
        messages -= count
        number += 1
    return producer.drain()


def _warm(producer: NativeProducer, workload: Workload, topic: str, messages: int, number: int) -> None:
    """Warm up as `produce.py` does: look up both topics, and produce to the other one."""
    for name in (topic, workload.topic):
        producer.look_up(name)
    _send(producer, workload, topic, messages, number)


def main() -> None:
    """One C client from the command line."""
    plan = take_plan()
    workload, messages, number = Workload(**plan["workload"]), plan["messages"], plan["number"]
    producer = NativeProducer({**plan["conf"], **producer_options(workload), "log_level": 0}, workload.message_bytes)
    _warm(producer, workload, plan["warm_topic"], plan["warmup_messages"], number)

    def run(begin_at: str, _lines: StarterLines) -> ClientWork:
        with measure_client(float(begin_at)) as (work, _):
            work.errors = _send(producer, workload, workload.topic, messages, number)
            work.ended = time.time()
        work.messages = messages
        return work

    serve_sessions(run)


if __name__ == "__main__":
    main()
