"""What gateways remember in `telemetry.gateway-state`: the newest value of each key, read once at a gateway's start."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from ingest.consumer import read_range
from ingest.contract.outcome import OutcomeRecord, decode_outcome
from ingest.contract.topics import GATEWAY_STATE, OUTCOMES
from ingest.offsets import begin_offsets, end_offsets, offsets_at
from ingest.settings import KafkaSettings

__all__ = ["MAX_STATE_BYTES", "read_newer", "read_outcomes", "read_state"]

logger = logging.getLogger("tidegate.ingest.state")

MAX_STATE_BYTES: Final = 256 * 1024 * 1024
"""Keys and values together that are held; more than gateways of ours write (see gateway/decoders/state.py)."""

MAX_NEWER_RECORDS: Final = 2_000
"""Of a partition, in one look; the newest."""

_BATCH_RECORDS: Final = 200
"""A record may be half a megabyte."""


def read_state(
    settings: KafkaSettings,
    *,
    topic: str = GATEWAY_STATE,
    wanted: Callable[[str], bool] = lambda _key: True,
    max_bytes: int = MAX_STATE_BYTES,
    stall_seconds: float = 30.0,
) -> list[tuple[str, bytes]]:
    """The newest value of each key as of now; a key whose newest record has no value (a tombstone) is left out.

    What is written after the call is not waited for. Kafka compacts late, so the topic may hold many records of a key:
    memory is bounded by the keys that are left, and by `max_bytes`. Beyond that, keys that nobody wrote for the longest
    are left out, and a warning says how many: their devices are asked for what they told before.

    Args:
        settings: the cluster.
        topic: a compacted topic.
        wanted: which keys to hold.
        max_bytes: of keys and values together.
        stall_seconds: how long Kafka may send nothing before this gives up.

    Returns:
        (key, value), least recently written first within a partition.

    Raises:
        RetryableError: Kafka is away, or stopped answering.
        FatalError: the topic does not exist, or must not be read.
    """
    newest: dict[str, bytes] = {}
    held_bytes = left_out = foreign = 0
    begin, end = begin_offsets(settings, topic), end_offsets(settings, topic)
    batches = read_range(settings, topic, begin, end, stall_seconds=stall_seconds, batch_records=_BATCH_RECORDS)
    for batch in batches:
        for record in sorted(batch, key=lambda record: (record.partition, record.offset)):
            try:
                key = (record.key or b"").decode()
            except UnicodeDecodeError:
                foreign += 1
                continue
            if not wanted(key):
                continue
            # Taken out and put in again: a dict keeps the order of writing, so the first is the one to leave out.
            old = newest.pop(key, None)
            if old is not None:
                held_bytes -= len(key) + len(old)
            if record.value is None:
                continue
            newest[key] = record.value
            held_bytes += len(key) + len(record.value)
            while held_bytes > max_bytes:
                first = next(iter(newest))
                held_bytes -= len(first) + len(newest.pop(first))
                left_out += 1
    if left_out:
        logger.warning(
            "topic %s holds more than %d bytes of state: %d times the key that was not written for longest was left out, "
            "so its device has to tell it again; look for a device that makes ever new names",
            topic,
            max_bytes,
            left_out,
        )
    if foreign:
        logger.warning("topic %s holds %d records whose key is no text: they are none of ours", topic, foreign)
    return list(newest.items())


def read_newer(
    settings: KafkaSettings,
    key: str,
    since: Mapping[int, int] | None,
    *,
    topic: str = GATEWAY_STATE,
    max_records: int = MAX_NEWER_RECORDS,
    stall_seconds: float = 10.0,
) -> tuple[list[bytes], dict[int, int]]:
    """The values of a key that were written since these offsets, and the offsets as of now; no values without offsets.

    Raises:
        RetryableError: Kafka is away, or stopped answering.
        FatalError: the topic does not exist, or must not be read.
    """
    end = end_offsets(settings, topic)
    if since is None:
        return [], end
    begin = {partition: max(since.get(partition, 0), offset - max_records) for partition, offset in end.items()}
    wanted, values = key.encode(), list[bytes]()
    for batch in read_range(settings, topic, begin, end, stall_seconds=stall_seconds, batch_records=_BATCH_RECORDS):
        found = [record for record in batch if record.key == wanted and record.value]
        values += [
            record.value or b"" for record in sorted(found, key=lambda record: (record.partition, record.offset))
        ]
    return values, end


def read_outcomes(settings: KafkaSettings, since_ms: int, *, stall_seconds: float = 30.0) -> Iterator[OutcomeRecord]:
    """The outcomes of all gateways that Kafka took since then, in order; what is no outcome is left out.

    Raises:
        RetryableError: Kafka is away, or stopped answering.
        FatalError: the topic does not exist, or must not be read.
    """
    begin, end = offsets_at(settings, OUTCOMES, since_ms), end_offsets(settings, OUTCOMES)
    for batch in read_range(settings, OUTCOMES, begin, end, stall_seconds=stall_seconds, batch_records=_BATCH_RECORDS):
        for record in sorted(batch, key=lambda record: (record.partition, record.offset)):
            try:
                yield decode_outcome(record.value or b"")
            except msgspec.DecodeError:
                continue
