"""Telegrams: what a device sent over the air, without what its receiver added, so that one telegram with two receivers is one."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from gateway.decoders.mapping.names import PatternSet
from ingest.contract.reading import Reading

__all__ = ["RADIO", "TELEGRAM", "TelegramIdentity"]

TELEGRAM = "tg"
"""Kind of the identity of a telegram: the time is the receiver's, so times of copies are not compared."""
RADIO = "rx"
"""Kind of the identity of what a receiver added to a telegram: nothing of a copy is compared."""


class TelegramIdentity:
    """Telegrams of the messages of one case."""

    def __init__(self, radio: PatternSet, times: Iterable[str]) -> None:
        """Take the radio fields, and `times`, the flat names of the item's time."""
        self._radio, self._times = radio, frozenset(times)

    def hash(self, item: object) -> str:
        """Return 32 hex digits of the item without its time and what the receiver added; the order of members does not count."""
        said = sorted(self._members(item, ""))
        return hashlib.blake2b(json.dumps(said, default=repr).encode(), digest_size=16).hexdigest()

    def name(self, readings: Iterable[Reading], own: str) -> None:
        """Give the readings that the receiver added their own identity."""
        for reading in readings:
            if self._radio(reading.metric, reading.metric.rpartition(".")[2]):
                reading.message_id = f"{RADIO}:{own}"

    def _members(self, value: Any, flat: str) -> Iterator[tuple[str, str]]:
        if type(value) is not dict:
            yield flat, json.dumps(value, sort_keys=True, default=repr)
            return
        for key, inner in value.items():
            name = f"{flat}.{key}" if flat else key
            if name not in self._times and not self._radio(name, key):
                yield from self._members(inner, name)
