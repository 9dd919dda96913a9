"""Versions of what a device announced about itself (a birth, a unit), so that old messages are read by their own version.

On a new connection, and after a restart, messages come again, and it is unknown how far back they go: to before the newest
announcement or not. So the version that an announcement replaced is kept next to it until older messages can no longer
come (`DecoderState.settled`); then the next message writes the state without it.

Version of a message:
- By order, if the announcement was seen on this connection, or is settled. No clock is used.
- Else by the device's clock: `after` is the newest time of a message from before the announcement, so a later time is from
  after it; a time before both `after` and the announcement itself is from before it.
- A time that fits both (the clock ran back, or there is none) is undecided: all versions that it may belong to count.

Guarantee: right while the device's clock does not run back right after an announcement; if it ran back at the announcement
itself, never wrong but possibly undecided. At most `MAX_VERSIONS` announcements that change something may be unacknowledged
at once; messages from before the oldest kept one are undecided too, or have no version.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from gateway.decoders.state import MAX_KEY_CHARACTERS, MAX_STATE_BYTES, DecoderState

__all__ = ["MAX_VALUE_BYTES", "VersionStore", "VersionedValue"]

MAX_VERSIONS: Final = 4
MAX_VALUE_BYTES: Final = 512 * 1024
"""Most bytes of a state record: half of Kafka's default limit."""
_MAX_UNSAVED: Final = 10_000
"""Most keys without an announcement whose newest time is kept."""
_ENTRY_BYTES: Final = 500


class _Version(msgspec.Struct, array_like=True, frozen=True):
    """`after`: the newest time of a message from before it, -1 for none; `since`: its own; both in epoch ms."""

    after: int
    since: int
    content: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Version]).decode


class VersionedValue:
    """Versions of one key, and the place of this connection's messages among them."""

    __slots__ = ("_generation", "_key", "_latest", "_place", "_state", "_value", "_versions")

    def __init__(self, state: DecoderState, key: str) -> None:
        self._state, self._key = state, key
        self._latest = -1
        self._generation = -1
        self._value: bytes | None = None
        self._versions: list[_Version] = []
        self._place = -1
        self.refresh()

    @property
    def size_bytes(self) -> int:
        """Approximate size of the held announcements; 0 without any."""
        return _ENTRY_BYTES + len(self._key) + 2 * len(self._value) if self._value else 0

    @property
    def has_times(self) -> bool:
        """Return whether a message had a time, with which a first announcement must be compared."""
        return self._latest >= 0

    def refresh(self) -> None:
        """Update before each message: a new connection, or a rolled back change, moves the place."""
        state = self._state
        value = state.get(self._key)
        if value is not self._value or state.generation != self._generation:
            self._value, self._generation = value, state.generation
            self._versions = _read(value)
            self._place = 0 if self._versions and self._versions[0].after < 0 else -1
        versions = self._versions
        if versions and (len(versions) > 1 or versions[0].after >= 0) and state.settled(self._key):
            self._write([msgspec.structs.replace(versions[-1], after=-1)])

    def contents(self, time_ms: int | None) -> list[bytes]:
        """Return the announcements for a message of this time: one, several if it is undecided, none if there was none."""
        self._advance(time_ms)
        if time_ms is not None and time_ms > self._latest:
            self._latest = time_ms
        versions, place = self._versions, self._place
        if place == len(versions) - 1:
            return [versions[place].content] if versions else []
        later = [one.content for one in versions[place + 1 :] if time_ms is None or one.since <= time_ms]
        if place < 0:
            # From before all kept versions: even one that fits may be wrong.
            return [*later, b""] if later else []
        return [versions[place].content, *later]

    def learn(self, content: bytes, time_ms: int | None) -> bool:
        """Take an announcement; False if there is no room to remember it (then it counts as never sent)."""
        since = 0 if time_ms is None else time_ms
        kept = self._same(content, since) or self._append(content, since)
        self._latest = max(self._latest, since)
        return kept

    def _advance(self, time_ms: int | None) -> None:
        if time_ms is not None:
            while self._place < len(self._versions) - 1 and time_ms > self._versions[self._place + 1].after:
                self._place += 1

    def _same(self, content: bytes, since: int) -> bool:
        """Return whether this announcement is a known version: it comes again, or changes nothing."""
        versions = self._versions
        for place in range(max(self._place, 0), len(versions)):
            if versions[place].since == since and versions[place].content == content:
                self._place = place
                return True
        self._advance(since)
        return self._place >= 0 and versions[self._place].content == content

    def _append(self, content: bytes, since: int) -> bool:
        # If it is settled, all later messages are younger than the newest version: nothing older is needed.
        kept = self._versions[-1 if self._state.settled(self._key) else 1 - MAX_VERSIONS :]
        after = max(self._latest, kept[-1].since) if kept else self._latest
        return self._write([*kept, _Version(after, since, content)])

    def _write(self, versions: list[_Version]) -> bool:
        value = _encode(versions)
        while len(value) > MAX_VALUE_BYTES and len(versions) > 1:
            versions = versions[1:]
            value = _encode(versions)
        if len(value) > MAX_VALUE_BYTES or not self._state.put(self._key, value):
            return False
        self._value = self._state.get(self._key)
        self._versions, self._place = versions, len(versions) - 1
        return True


def _read(value: bytes | None) -> list[_Version]:
    """Return the versions of a state record; none if it is not ours."""
    if value is None:
        return []
    try:
        return _decode(value)
    except msgspec.MsgspecError:
        return []


class VersionStore:
    """Keys of one decoder: those with an announcement, and some without.

    The keys unused for longest are evicted, and loaded again from the state. Nothing is kept of a key that is too long for
    the state, nor of one with neither an announcement nor a clock.
    """

    def __init__(self, state: DecoderState) -> None:
        self._state = state
        self._saved: OrderedDict[str, tuple[VersionedValue, int]] = OrderedDict()
        self._saved_bytes = 0
        self._unsaved: OrderedDict[str, VersionedValue] = OrderedDict()
        self._key, self._current = "", VersionedValue(state, "")

    def entry(self, key: str) -> VersionedValue:
        """Return what is known under this key, up to date; call again for each message."""
        if key != self._key:
            self._save_current()
            self._key, self._current = key, self._take(key)
        self._current.refresh()
        return self._current

    def _take(self, key: str) -> VersionedValue:
        found, size_bytes = self._saved.pop(key, (None, 0))
        self._saved_bytes -= size_bytes
        return found or self._unsaved.pop(key, None) or VersionedValue(self._state, key)

    def _save_current(self) -> None:
        """Store it after its message, which may have changed something."""
        key, value = self._key, self._current
        if value.size_bytes:
            self._saved[key] = value, value.size_bytes
            self._saved_bytes += value.size_bytes
            while self._saved_bytes > MAX_STATE_BYTES:
                _oldest, (_, size_bytes) = self._saved.popitem(last=False)
                self._saved_bytes -= size_bytes
        elif value.has_times and len(key) <= MAX_KEY_CHARACTERS:
            self._unsaved[key] = value
            if len(self._unsaved) > _MAX_UNSAVED:
                self._unsaved.popitem(last=False)
