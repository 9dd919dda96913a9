"""State that gateways keep in `telemetry.gateway-state`: the newest value of each key, read once at a gateway's start."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from ingest.contract.outcome import OutcomeRecord, decode_outcome
from ingest.contract.topics import GATEWAY_STATE, OUTCOMES
from ingest.kafka_settings import KafkaSettings
from ingest.read.offset_range import read_range
from ingest.state_follower import MAX_STATE_BYTES, NewestValues
from ingest.topics.offsets import begin_offsets, end_offsets, offsets_at

__all__ = ["read_newer", "read_outcomes", "read_state"]

MAX_NEWER_RECORDS: Final = 2_000
"""Newest records of a partition that one look reads."""

_BATCH_RECORDS: Final = 200
"""Records per batch; a record may have half a megabyte."""


def read_state(
    settings: KafkaSettings,
    *,
    topic: str = GATEWAY_STATE,
    wanted: Callable[[str], bool] = lambda _key: True,
    max_bytes: int = MAX_STATE_BYTES,
    stall_seconds: float = 30.0,
) -> list[tuple[str, bytes]]:
    """Return the newest value of each key as of now. A key whose newest record is a tombstone is left out.

    It does not wait for later records. Kafka compacts late, so the topic may hold many records of a key: memory is bounded
    by the remaining keys, and by `max_bytes`. Beyond that, the least recently written keys are left out, and a warning says
    how many: the gateway asks their devices for that state again.

    Args:
        settings: the cluster.
        topic: a compacted topic.
        wanted: which keys to hold.
        max_bytes: limit of keys and values together.
        stall_seconds: how long Kafka may send nothing before this gives up.

    Returns:
        (key, value), least recently written first within a partition.

    Raises:
        RetryableError: Kafka does not answer, or stopped answering.
        FatalError: the topic does not exist, or this user may not read it.
    """
    newest = NewestValues(topic, wanted, max_bytes)
    begin, end = begin_offsets(settings, topic), end_offsets(settings, topic)
    batches = read_range(settings, topic, begin, end, stall_seconds=stall_seconds, batch_records=_BATCH_RECORDS)
    for batch in batches:
        for record in sorted(batch, key=lambda record: (record.partition, record.offset)):
            newest.take(record)
    newest.warn()
    return newest.items()


def read_newer(
    settings: KafkaSettings,
    key: str,
    since: Mapping[int, int] | None,
    *,
    topic: str = GATEWAY_STATE,
    max_records: int = MAX_NEWER_RECORDS,
    stall_seconds: float = 10.0,
) -> tuple[list[bytes], dict[int, int]]:
    """Return the values of a key written since these offsets, and the offsets as of now; no values without offsets.

    Raises:
        RetryableError: Kafka does not answer, or stopped answering.
        FatalError: the topic does not exist, or this user may not read it.
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
    """Return the outcomes of all gateways since then, in order; records that are not outcomes are left out.

    Raises:
        RetryableError: Kafka does not answer, or stopped answering.
        FatalError: the topic does not exist, or this user may not read it.
    """
    begin, end = offsets_at(settings, OUTCOMES, since_ms), end_offsets(settings, OUTCOMES)
    for batch in read_range(settings, OUTCOMES, begin, end, stall_seconds=stall_seconds, batch_records=_BATCH_RECORDS):
        for record in sorted(batch, key=lambda record: (record.partition, record.offset)):
            try:
                yield decode_outcome(record.value or b"")
            except msgspec.DecodeError:
                continue
