"""Largest record and largest batch of each topic: read from Kafka, or learned from its error answers.

Kafka rejects a batch, not a record. So no batch may exceed its topic's limit. A user without DESCRIBE_CONFIGS cannot
read that limit. Then each rejected batch makes the next writer's batches smaller, until only a record that is alone in
its batch is rejected. That record is too large; nothing else was rejected with it.
"""

from collections.abc import Mapping
from typing import Final

from ingest.log import DeliveryError

__all__ = ["LearnedLimits", "RecordLimits"]

MAX_BATCH_BYTES: Final = 256 * 1024
_SHRINK: Final = 4
"""From 256 KiB to single records, in nine rejections at most."""


class LearnedLimits:
    """Limits learned from Kafka's errors, across the writers of one process.

    Attributes:
        batch_bytes: the next writer's largest batch.
        too_large: per topic, the smallest record (key and value) that Kafka rejected alone.
    """

    def __init__(self, *, batch_bytes: int = MAX_BATCH_BYTES) -> None:
        """Start with `batch_bytes`; 1 means that each record goes alone, for a writer that has no successor."""
        self.batch_bytes = batch_bytes
        self.too_large: dict[str, int] = {}


class RecordLimits:
    """Limits of one writer. `known` says whether they were read from Kafka; `batch_bytes` is this writer's largest batch."""

    def __init__(self, told: Mapping[str, int] | None, default: int, learned: LearnedLimits) -> None:
        self._told, self._default, self._learned = dict(told or {}), default, learned
        self.known = told is not None
        known = [*self._told.values(), default]
        self.batch_bytes = min(*known, MAX_BATCH_BYTES if self.known else learned.batch_bytes)
        self.largest = max(*known, 2 * default)

    def of(self, topic: str) -> int:
        """Return the largest record, headers included, as far as it is known."""
        limit = self._told.get(topic, self._default)
        return limit if self.known else min(limit, self._learned.too_large.get(topic, limit))

    def refused(self, topic: str, size_bytes: int, text: str) -> DeliveryError:
        """Note that Kafka rejected a record of this size (key and value), or its batch, and return the failure.

        If the limits were read from Kafka, the limit was lowered since; the next writer reads it again.
        """
        if self.known:
            return DeliveryError("retriable", f"{text}; find out who lowered the topic's max.message.bytes")
        if size_bytes >= self.batch_bytes or self.batch_bytes == 1:
            # A batch with such a record has no other record.
            learned = self._learned.too_large
            learned[topic] = min(size_bytes, learned.get(topic, size_bytes))
            return DeliveryError("record", text)
        smaller = max(1, self.batch_bytes // _SHRINK)
        self._learned.batch_bytes = min(self._learned.batch_bytes, smaller)
        return DeliveryError(
            "retriable",
            f"{text}; this user may not read the limit, so batches are limited to {smaller} bytes from now on: grant it "
            "DESCRIBE_CONFIGS on the topics",
        )
