"""The largest record that each topic takes, and the largest batch: as Kafka says, or as its refusals show.

Kafka refuses a batch, not a record. So no batch may be larger than what its topic takes. A user without
DESCRIBE_CONFIGS cannot read that: then each refusal of a batch makes the next writer's batches smaller, until only a
record that is alone in its batch is refused. That record is too large; nothing else was refused with it.
"""

from collections.abc import Mapping
from typing import Final

from ingest.log import DeliveryError

__all__ = ["Learned", "RecordLimits"]

MAX_BATCH_BYTES: Final = 256 * 1024
_SHRINK: Final = 4
"""From 256 KiB to single records in nine refusals at most."""


class Learned:
    """What refusals showed, over the writers of one process.

    Attributes:
        batch_bytes: the next writer's largest batch.
        too_large: the smallest record, key and value, that a topic refused alone.
    """

    def __init__(self, *, batch_bytes: int = MAX_BATCH_BYTES) -> None:
        """`batch_bytes` of 1: each record alone, for a writer that has no successor."""
        self.batch_bytes = batch_bytes
        self.too_large: dict[str, int] = {}


class RecordLimits:
    """Of one writer. `known` says whether Kafka told the limits; `batch_bytes` is this writer's largest batch."""

    def __init__(self, told: Mapping[str, int] | None, default: int, learned: Learned) -> None:
        self._told, self._default, self._learned = dict(told or {}), default, learned
        self.known = told is not None
        known = [*self._told.values(), default]
        self.batch_bytes = min(*known, MAX_BATCH_BYTES if self.known else learned.batch_bytes)
        self.largest = max(*known, 2 * default)

    def of(self, topic: str) -> int:
        """The largest record, headers included, as far as is known."""
        limit = self._told.get(topic, self._default)
        return limit if self.known else min(limit, self._learned.too_large.get(topic, limit))

    def refused(self, topic: str, size_bytes: int, text: str) -> DeliveryError:
        """Kafka refused a record of this size (key and value), or the batch that it was in.

        Where Kafka told the limits it was lowered since: the next writer reads it again.
        """
        if self.known:
            return DeliveryError("retriable", f"{text}; look who lowered the topic's max.message.bytes")
        if size_bytes >= self.batch_bytes or self.batch_bytes == 1:
            # A batch that has such a record has no other.
            learned = self._learned.too_large
            learned[topic] = min(size_bytes, learned.get(topic, size_bytes))
            return DeliveryError("record", text)
        smaller = max(1, self.batch_bytes // _SHRINK)
        self._learned.batch_bytes = min(self._learned.batch_bytes, smaller)
        return DeliveryError(
            "retriable",
            f"{text}; this user may not read the limit, so batches have at most {smaller} bytes from now on: grant it "
            "DESCRIBE_CONFIGS on the topics",
        )
