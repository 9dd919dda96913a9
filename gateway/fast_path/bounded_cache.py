"""Cache for values that recur, bounded in entries and in bytes, because devices choose what goes into it."""

from typing import Final, TypeVar

__all__ = ["BoundedCache"]

MAX_ENTRIES: Final = 20_000
MAX_BYTES: Final = 16 * 1024 * 1024
K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """Cache that forgets everything once it is full: usual values soon return. Add only by `keep`.

    Attributes:
        size_bytes: size of all entries, as stated when they were added.
    """

    def __init__(self, max_entry_bytes: int) -> None:
        """Limit entries to `max_entry_bytes`: larger ones are not cached, because devices rarely repeat them."""
        super().__init__()
        self._max_entry_bytes = max_entry_bytes
        self.size_bytes = 0

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """Remember a value that takes `size_bytes` together with its key, if it is not larger than an entry may be."""
        if size_bytes > self._max_entry_bytes:
            return
        if len(self) >= MAX_ENTRIES or self.size_bytes + size_bytes > MAX_BYTES:
            self.clear()
        self[key] = value
        self.size_bytes += size_bytes

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self.size_bytes = 0
