"""State of decoders between messages (aliases of a birth, units on other topics), safe across every restart.

A change is produced to `telemetry.gateway-state` (compacted) next to the readings of its message, before the PUBACK. On a
new connection the broker sends unacknowledged messages again, in order. So everything from unacknowledged messages is
forgotten then, and learned again from their redelivery.

A PUBACK that was sent may not have reached the broker, and state in the log at a gateway's start may come from messages
that were never acknowledged. Both kinds of messages come again, without notice. `settled` says when that is over.

When full, the keys that were unused for longest are evicted, as if they had never been set. Keys of messages that may come
again are kept, so that no active device loses its aliases. An eviction is a change like any other, with an empty value: it
is acknowledged or rolled back, and removes the key from the log. A key that this process only found in the log is evicted
only from its memory, because another gateway may use it.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

__all__ = ["MAX_KEY_CHARACTERS", "MAX_STATE_BYTES", "DecoderState"]

logger = logging.getLogger("tidegate.gateway")

MAX_STATE_BYTES: Final = 64 * 1024 * 1024
"""Most bytes that all devices together can make a gateway remember; an invented name costs as much as a real one."""
MAX_KEY_CHARACTERS: Final = 1024
"""A longer key is not remembered: MQTT allows topics of 65,535 bytes, but no useful device has one."""
DEFAULT_WINDOW: Final = 1000
_ENTRY_BYTES: Final = 200
_FOUND_SHARE: Final = 7 / 8
"""Share of the memory for state from the log: in its first window of messages a process evicts nothing."""
_GONE: Final = b""
_NEVER: Final = -(2**62)
_LONG_AGO: Final = _NEVER + 1


class DecoderState:
    """Keys to bytes; keys are text such as `sparkplug/<group>/<node>`. Owned by the gateway's one thread.

    Decoders may keep what they parsed from a value for as long as `get` returns the same bytes object.

    Attributes:
        generation: counts connections; raised when messages begin to come again.
        window_messages: how many messages a broker may have sent without their PUBACK.
    """

    def __init__(self, found: Iterable[tuple[str, bytes]] = (), *, max_bytes: int = MAX_STATE_BYTES) -> None:
        """Take the state that earlier gateways left in the log, least recently written first."""
        self._safe: dict[str, bytes] = {}
        self._recent: dict[str, bytes] = {}
        self._changes: dict[str, bytes] = {}
        self._acknowledged_at: dict[str, int] = {}
        # Number of the last message about each key; in ascending order.
        self._heard_at: OrderedDict[str, int] = OrderedDict()
        self._received = self._received_ever = 0
        self.window_messages = DEFAULT_WINDOW
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self.generation = 0
        self._is_full_told = False
        self.load(found)

    def load(self, found: Iterable[tuple[str, bytes]]) -> None:
        """Take the state that earlier gateways left in the log; before the first message.

        Least recently written first: of too many keys the first are left out, and some room stays for new ones.
        """
        for key, value in found:
            if value:
                self._safe[key] = value
                self._heard_at[key] = _NEVER
                self._heard_at.move_to_end(key)
        self._held_bytes = self._measure()
        while self._held_bytes > self._max_bytes * _FOUND_SHARE:
            oldest, _ = self._heard_at.popitem(last=False)
            self._held_bytes -= _size_bytes(oldest, self._safe.pop(oldest))
            self._report_full()

    def get(self, key: str) -> bytes | None:
        """Return the newest value, acknowledged or not. Asking means that a message is about this key."""
        value = self._newest(key)
        if value is not None:
            self._hear(key)
        return value

    def put(self, key: str, value: bytes) -> bool:
        """Remember a value; one equal to the known value is not a change. False, and nothing remembered, without room.

        A value must not be empty: an empty one deletes its key in the log.
        To make room, keys unused for longest are evicted, never keys of the last window of messages. So invented names
        displace silent devices, or other new names.
        """
        old = self._newest(key)
        if old == value:
            self._hear(key)
            return True
        more_bytes = _size_bytes(key, value) - _size_bytes(key, old)
        if len(key) > MAX_KEY_CHARACTERS or (more_bytes > 0 and not self._make_room(more_bytes, key)):
            return False
        self._held_bytes += more_bytes
        self._recent[key] = self._changes[key] = value
        self._hear(key)
        return True

    def settled(self, key: str) -> bool:
        """Return whether no message from before the one that set the newest value will come again.

        The broker first sends the messages without PUBACK again, in order: at most a window. So that is over after a window
        of messages on this connection, since the PUBACK or since its beginning.
        """
        past = self._received - self._acknowledged_at.get(key, 0)
        return past > self.window_messages and key not in self._recent

    def take_changes(self, *, repeatable: bool = True) -> list[tuple[str, bytes]]:
        """Return the changes since the last call, by the message that was just decoded; `repeatable`: at QoS 1 or 2.

        An empty value deletes its key.
        """
        self._received += repeatable
        self._received_ever += repeatable
        if not self._changes:
            return []
        changes, self._changes = list(self._changes.items()), {}
        return changes

    def acknowledged(self, changes: Iterable[tuple[str, bytes]]) -> None:
        """Note that the messages of these changes are acknowledged: the changes outlive the connection."""
        for key, value in changes:
            before = self._newest(key)
            if value:
                self._safe[key] = value
                self._acknowledged_at[key] = self._received
            else:
                self._safe.pop(key, None)
                self._acknowledged_at.pop(key, None)
            if self._recent.get(key) is value:
                del self._recent[key]
            after = self._newest(key)
            if after is not before:
                self._held_bytes += _size_bytes(key, after) - _size_bytes(key, before)
                self._order(key, after)

    def roll_back(self) -> None:
        """Forget what came from messages that will come again, for a new connection."""
        forgotten = list(self._recent)
        self._recent.clear()
        self._changes.clear()
        for key in forgotten:
            self._order(key, self._safe.get(key))
        self._acknowledged_at.clear()
        self._received = 0
        self._held_bytes = self._measure()
        self.generation += 1

    def _newest(self, key: str) -> bytes | None:
        value = self._recent.get(key)
        return (self._safe.get(key) if value is None else value) or None

    def _hear(self, key: str) -> None:
        self._heard_at[key] = self._received_ever
        self._heard_at.move_to_end(key)

    def _order(self, key: str, value: bytes | None) -> None:
        """Place a key while it has a value; a key that returns is the first to be evicted again."""
        if value is None:
            self._heard_at.pop(key, None)
        elif key not in self._heard_at:
            self._heard_at[key] = _LONG_AGO
            self._heard_at.move_to_end(key, last=False)

    def _make_room(self, more_bytes: int, wanted_by: str) -> bool:
        """Make room; returns whether there is room now. Nothing is evicted if that would not be enough."""
        missing = self._held_bytes + more_bytes - self._max_bytes
        leaving: list[str] = []
        for key, heard_at in self._heard_at.items():
            if missing <= 0 or self._received_ever - max(heard_at, 0) <= self.window_messages:
                break
            if key != wanted_by and key not in self._recent:
                leaving.append(key)
                missing -= _size_bytes(key, self._safe[key])
        if missing > 0:
            return False
        if leaving:
            self._report_full()
        for key in leaving:
            self._held_bytes -= _size_bytes(key, self._safe[key])
            if self._heard_at.pop(key) == _NEVER:
                del self._safe[key]
            else:
                self._recent[key] = self._changes[key] = _GONE
        return True

    def _report_full(self) -> None:
        """Log once per process that the memory is full."""
        if not self._is_full_told:
            self._is_full_told = True
            logger.warning(
                "The remembered state of devices exceeds %d bytes. The devices that were silent for longest must send theirs "
                "again. Look for a device that keeps making up new names.",
                self._max_bytes,
            )

    def _measure(self) -> int:
        return sum(_size_bytes(key, value) for key, value in self._safe.items())


def _size_bytes(key: str, value: bytes | None) -> int:
    return 0 if value is None else len(key) + len(value) + _ENTRY_BYTES
