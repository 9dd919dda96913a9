"""What decoders remember between messages (aliases of a birth, units on other topics), safe over every restart.

A change is produced to `telemetry.gateway-state` (compacted) beside the readings of the message that made it, before
its PUBACK. On a new connection the broker sends again what was not acknowledged, in order: so everything that came
from unacknowledged messages is forgotten then, and learned again from their redelivery.

A PUBACK that was sent may not have reached the broker, and what a gateway finds in the log at its start may be of
messages that were never acknowledged: both come again, and nothing tells so. `settled` says when that is over.
"""

from collections.abc import Iterable
from typing import Final

__all__ = ["MAX_STATE_BYTES", "DecoderState"]

MAX_STATE_BYTES: Final = 64 * 1024 * 1024
"""What devices can make a gateway remember, all together; a name that is invented costs as much as one that is real."""
DEFAULT_WINDOW: Final = 1000
_ENTRY_BYTES: Final = 200


class DecoderState:
    """Keys to bytes; keys are text such as `sparkplug/<group>/<node>`. Owned by the gateway's one thread.

    Decoders may keep what they parsed from a value for as long as `get` returns the same bytes object.

    Attributes:
        generation: counts connections; raised where messages begin to come again.
        window_messages: how many a broker may have sent without having their PUBACK.
    """

    def __init__(self, found: Iterable[tuple[str, bytes]] = (), *, max_bytes: int = MAX_STATE_BYTES) -> None:
        """`found` is what earlier gateways left in the log."""
        self._safe: dict[str, bytes] = dict(found)
        self._recent: dict[str, bytes] = {}
        self._changes: dict[str, bytes] = {}
        self._acknowledged_at: dict[str, int] = {}
        self._received = 0
        self.window_messages = DEFAULT_WINDOW
        self._max_bytes = max_bytes
        self._held_bytes = self._measure()
        self.generation = 0

    def load(self, found: Iterable[tuple[str, bytes]]) -> None:
        """Take what earlier gateways left in the log; before the first message."""
        self._safe.update(found)
        self._held_bytes = self._measure()

    def get(self, key: str) -> bytes | None:
        """The newest value, acknowledged or not."""
        value = self._recent.get(key)
        return self._safe.get(key) if value is None else value

    def put(self, key: str, value: bytes) -> bool:
        """Remember; a value equal to the known one is no change. False, and nothing remembered, where there is no room.

        What is known already stays: who invents names crowds out other new ones, never those that are at work.
        """
        old = self.get(key)
        if old == value:
            return True
        more_bytes = _size_bytes(key, value) - _size_bytes(key, old)
        if more_bytes > 0 and self._held_bytes + more_bytes > self._max_bytes:
            return False
        self._held_bytes += more_bytes
        self._recent[key] = self._changes[key] = value
        return True

    def settled(self, key: str) -> bool:
        """Whether no message from before the one that told the newest value will come again.

        The broker sends again, first and in order, what it has no PUBACK for: at most a window. So after a window of
        messages on this connection, since the PUBACK or since its beginning, that is over.
        """
        past = self._received - self._acknowledged_at.get(key, 0)
        return past > self.window_messages and key not in self._recent

    def take_changes(self, *, repeatable: bool = True) -> list[tuple[str, bytes]]:
        """What changed since the last call: by the message that was just decoded; `repeatable`: at QoS 1 or 2."""
        self._received += repeatable
        if not self._changes:
            return []
        changes, self._changes = list(self._changes.items()), {}
        return changes

    def acknowledged(self, changes: Iterable[tuple[str, bytes]]) -> None:
        """These changes' messages are acknowledged: they outlive the connection."""
        for key, value in changes:
            before = self.get(key)
            self._safe[key] = value
            self._acknowledged_at[key] = self._received
            if self._recent.get(key) is value:
                del self._recent[key]
            after = self.get(key)
            if after is not before:
                self._held_bytes += _size_bytes(key, after) - _size_bytes(key, before)

    def roll_back(self) -> None:
        """A new connection begins: forget what came from messages that will come again."""
        self._recent.clear()
        self._changes.clear()
        self._acknowledged_at.clear()
        self._received = 0
        self._held_bytes = self._measure()
        self.generation += 1

    def _measure(self) -> int:
        return sum(_size_bytes(key, value) for key, value in self._safe.items())


def _size_bytes(key: str, value: bytes | None) -> int:
    return 0 if value is None else len(key) + len(value) + _ENTRY_BYTES
