"""What decoders remember between messages (aliases of a birth, units on other topics), safe over every restart.

A change is produced to `telemetry.gateway-state` (compacted) beside the readings of the message that made it, before
its PUBACK. On a new connection the broker sends again what was not acknowledged, in order: so everything that came
from unacknowledged messages is forgotten then, and learned again from their redelivery.
"""

from collections.abc import Iterable

__all__ = ["DecoderState"]


class DecoderState:
    """Keys to bytes; keys are text such as `sparkplug/<group>/<node>`. Owned by the gateway's one thread.

    Decoders may keep what they parsed from a value for as long as `get` returns the same bytes object.
    """

    def __init__(self, found: Iterable[tuple[str, bytes]] = ()) -> None:
        """`found` is what earlier gateways left in the log."""
        self._safe: dict[str, bytes] = dict(found)
        self._recent: dict[str, bytes] = {}
        self._changes: dict[str, bytes] = {}

    def load(self, found: Iterable[tuple[str, bytes]]) -> None:
        """Take what earlier gateways left in the log; before the first message."""
        self._safe.update(found)

    def get(self, key: str) -> bytes | None:
        """The newest value, acknowledged or not."""
        value = self._recent.get(key)
        return self._safe.get(key) if value is None else value

    def put(self, key: str, value: bytes) -> None:
        """Remember; a value equal to the known one is no change."""
        if self.get(key) != value:
            self._recent[key] = self._changes[key] = value

    def take_changes(self) -> list[tuple[str, bytes]]:
        """What changed since the last call: by the message that was just decoded."""
        changes, self._changes = list(self._changes.items()), {}
        return changes

    def acknowledged(self, changes: Iterable[tuple[str, bytes]]) -> None:
        """These changes' messages will not come again: they outlive the connection."""
        for key, value in changes:
            self._safe[key] = value
            if self._recent.get(key) is value:
                del self._recent[key]

    def roll_back(self) -> None:
        """A new connection begins: forget what came from messages that will come again."""
        self._recent.clear()
        self._changes.clear()
