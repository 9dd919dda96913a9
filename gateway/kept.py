"""A memory for what comes again and again, bounded in entries and in bytes, since devices choose what goes into it."""

from typing import Final, TypeVar

__all__ = ["Kept"]

MAX_ENTRIES: Final = 20_000
MAX_BYTES: Final = 16 * 1024 * 1024
K = TypeVar("K")
V = TypeVar("V")


class Kept(dict[K, V]):
    """Forgets everything once it is full: what is usual is soon here again. Add only by `keep`.

    Attributes:
        size_bytes: of all entries, as those who added them said.
    """

    def __init__(self, max_entry_bytes: int) -> None:
        """What is larger than `max_entry_bytes` is not kept: those who send such send ever new ones."""
        super().__init__()
        self._max_entry_bytes = max_entry_bytes
        self.size_bytes = 0

    def keep(self, key: K, value: V, size_bytes: int) -> None:
        """Remember a value that takes `size_bytes` together with its key, if it is no larger than an entry may be."""
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
