"""Partition of a key: the choice of Kafka's Java clients, which our producer makes too."""

from typing import Final

__all__ = ["partition_of_key"]

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic whose number of partitions never changed."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """Return Austin Appleby's MurmurHash2 with the seed of org.apache.kafka.common.utils.Utils."""
    whole = len(data) & ~3
    found = _SEED ^ len(data)
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MIX & _WORD
        found = (found * _MIX & _WORD) ^ ((word ^ word >> 24) * _MIX & _WORD)
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * _MIX & _WORD
    found = (found ^ found >> 13) * _MIX & _WORD
    return found ^ found >> 15
