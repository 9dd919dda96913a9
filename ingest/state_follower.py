"""Follower of `telemetry.gateway-state`: the newest value of each key, and each newer record of some keys in Kafka's order."""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from ingest.contract.topics import GATEWAY_STATE
from ingest.kafka_settings import KafkaSettings
from ingest.log import LogRecord
from ingest.read.offset_range import read_range
from ingest.topics.offsets import begin_offsets, end_offsets

__all__ = ["MAX_STATE_BYTES", "NewestValues", "StateFollower", "StateReader"]

logger = logging.getLogger("tidegate.ingest.state")

MAX_STATE_BYTES: Final = 256 * 1024 * 1024
"""Size of keys and values held together; more than our gateways write (see gateway/decoders/state.py)."""

_BATCH_RECORDS: Final = 200
"""Records per batch; a record may have half a megabyte."""


class StateReader(Protocol):
    """Reader of the state topic that continues where it was. `ingest/memory.py` has the same behaviour in memory."""

    def catch_up(self) -> list[tuple[str, bytes]]:
        """Return the watched records written since the last call, in Kafka's order; the first call reads from the start.

        It reads everything that Kafka has when the call begins, and does not wait for more. A record that compaction has
        removed is left out; the newest one of its key is there.

        Raises:
            RetryableError: Kafka does not answer, or stopped answering. The next call returns the same records.
            FatalError: the topic does not exist, or this user may not read it.
        """

    def state(self) -> list[tuple[str, bytes]]:
        """Return the newest value of each held key as of the last `catch_up`; a key that ends with a tombstone is left out."""

    def forget(self) -> None:
        """Free the values; `state` then holds what later calls of `catch_up` read."""


class NewestValues:
    """Newest value of each key, bounded in bytes: beyond that, the least recently written keys are left out.

    A warning says how many: the gateway asks their devices for that state again.
    """

    def __init__(self, topic: str, wanted: Callable[[str], bool], max_bytes: int) -> None:
        self._topic, self._wanted, self._max_bytes = topic, wanted, max_bytes
        # A dict keeps the order of writing, so its first key is the one to leave out.
        self._newest: dict[str, bytes] = {}
        self._held_bytes = self._left_out = self._foreign = 0

    def take(self, record: LogRecord) -> tuple[str, bytes | None] | None:
        """Take the next record; returns key and value if the key is wanted."""
        try:
            key = (record.key or b"").decode()
        except UnicodeDecodeError:
            self._foreign += 1
            return None
        if not self._wanted(key):
            return None
        old = self._newest.pop(key, None)
        if old is not None:
            self._held_bytes -= len(key) + len(old)
        if record.value is not None:
            self._newest[key] = record.value
            self._held_bytes += len(key) + len(record.value)
            while self._held_bytes > self._max_bytes:
                first = next(iter(self._newest))
                self._held_bytes -= len(first) + len(self._newest.pop(first))
                self._left_out += 1
        return key, record.value

    def items(self) -> list[tuple[str, bytes]]:
        """Return (key, value), least recently written first within a partition."""
        return list(self._newest.items())

    def warn(self) -> None:
        """Log what was left out since the last call."""
        if self._left_out:
            logger.warning(
                "Topic %s holds more than %d bytes of state: %d times the least recently written key was left out. Its "
                "device must send that state again. Look for a device that keeps making up new names.",
                self._topic,
                self._max_bytes,
                self._left_out,
            )
        if self._foreign:
            logger.warning(
                "Topic %s holds %d records whose key is not UTF-8: Tidegate did not write them.",
                self._topic,
                self._foreign,
            )
        self._left_out = self._foreign = 0


class StateFollower:
    """See StateReader. Not thread-safe."""

    def __init__(
        self,
        settings: KafkaSettings,
        watched: Callable[[str], bool],
        *,
        topic: str = GATEWAY_STATE,
        held: Callable[[str], bool] = lambda _key: True,
        max_bytes: int = MAX_STATE_BYTES,
        stall_seconds: float = 30.0,
    ) -> None:
        """Follow the keys that are `watched`. `state` has those that are `held`; `max_bytes` bounds keys and values of these.

        `stall_seconds`: how long Kafka may send nothing before a call gives up.
        """
        self._settings, self._watched, self._topic = settings, watched, topic
        self._stall_seconds = stall_seconds
        self._new_values: Callable[[], NewestValues] = lambda: NewestValues(topic, held, max_bytes)
        self._values = self._new_values()
        self._next: dict[int, int] | None = None

    def catch_up(self) -> list[tuple[str, bytes]]:
        """See StateReader."""
        end = end_offsets(self._settings, self._topic)
        begin = self._next
        if begin is None or any(offset < begin.get(partition, 0) for partition, offset in end.items()):
            # The first call, or the topic was deleted and recreated.
            begin, self._values = begin_offsets(self._settings, self._topic), self._new_values()
        found: list[tuple[str, bytes]] = []
        if all(begin.get(partition, 0) >= offset for partition, offset in end.items()):
            self._next = end
            return found
        batches = read_range(
            self._settings, self._topic, begin, end, stall_seconds=self._stall_seconds, batch_records=_BATCH_RECORDS
        )
        for batch in batches:
            for record in sorted(batch, key=lambda record: (record.partition, record.offset)):
                taken = self._values.take(record)
                if taken is not None and taken[1] is not None and self._watched(taken[0]):
                    found.append((taken[0], taken[1]))
        self._values.warn()
        self._next = end
        return found

    def state(self) -> list[tuple[str, bytes]]:
        """See StateReader."""
        return self._values.items()

    def forget(self) -> None:
        """Free the values; `state` then holds what later calls of `catch_up` read."""
        self._values = self._new_values()
