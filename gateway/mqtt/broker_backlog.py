"""Backlog of the broker: since when it may have kept the messages that arrive now.

A message without a time gets the time of its arrival, so the gateway must know which messages may have waited. Messages
wait while the gateway is away, and while its window is full. So they may have waited after a connection to a kept session,
and after a full window, until the broker has sent its whole backlog. The answer to a ping shows that, because it comes
behind everything that the broker could send before. A broker with more messages always sends as many unacknowledged ones
as it ever does on this connection. So an answer behind fewer of them (`most`), or behind none, ends the backlog.

A broker that works in several threads (HiveMQ, Artemis) answers a ping at once, and takes some milliseconds until it sends
more. So the first ping goes out some time after the connection, and each only after the broker had time to send more.
"""

from typing import Final

__all__ = ["BrokerBacklog"]

LEAST_WAIT_US: Final = 1_000_000
"""Shorter waits are not noted: the window of a busy gateway is full for a moment now and then."""
QUIET_US: Final = 1_000_000
"""For a client that cannot ping: this long without a message ends the backlog."""
PING_US: Final = 250_000
"""Shortest time between two pings, and between the connection and the first."""
ROOM_US: Final = 100_000
"""How long a broker has had room for more messages, and has not filled it, before a ping asks whether it has more."""


class BrokerBacklog:
    """State of the backlog. Pure: it gets events with times in epoch µs. Not thread-safe.

    If the clock is set back, all remembered times go back with it: they are moments of the same past.

    Attributes:
        since_us: no arriving message was published before this time; 0: unknown; None: arriving messages did not wait.
        known_us: all messages published before this time arrived while the connection lasted; None: unknown.
    """

    def __init__(self) -> None:
        self.since_us: int | None = None
        self.known_us: int | None = None
        self._is_up = False
        self._came = self._most = 0
        self._came_us = self._answered_us = 0
        self._full_us: int | None = None
        self._room_us: int | None = None
        self._ping: tuple[int, int] | None = None
        self._now_us = 0

    def begin(self, now_us: int, *, present: bool) -> None:
        """Note a new connection; `present`: the broker kept the session."""
        self._follow_clock(now_us)
        self._is_up, self._came, self._most, self._ping, self._full_us = True, 0, 0, None, None
        self._came_us = self._answered_us = now_us
        self._room_us = None
        if not present:
            self.since_us = None
        elif self.since_us is None:
            # A time in the future was written by a process with another clock.
            self.since_us = self.known_us if self.known_us is not None and self.known_us <= now_us else 0
        self.known_us = now_us if self.since_us is None else self.since_us or None

    def heard(self, now_us: int) -> None:
        """Note that something came, so the connection works."""
        self._follow_clock(now_us)
        if self._is_up and self.since_us is None and self._full_us is None:
            self.known_us = now_us

    def received(self, count: int, held: int, now_us: int) -> None:
        """Note how many messages came, and how many are held unacknowledged."""
        self._follow_clock(now_us)
        self._came += count
        if held >= self._most:
            self._most, self._room_us = held, None
        self._came_us = now_us
        self.heard(now_us)

    def hold(self, now_us: int, *, full: bool) -> None:
        """Note whether the broker can send nothing at the moment, because the window is full."""
        self._follow_clock(now_us)
        if not full or not self._is_up or self.since_us is not None:
            self._full_us = None
        elif self._full_us is None:
            self._full_us = now_us
        elif now_us - self._full_us >= LEAST_WAIT_US:
            self.since_us, self._full_us, self._room_us = self._full_us, None, None

    def end(self, oldest_us: int | None) -> None:
        """Note that the connection is gone; the oldest unacknowledged message came at `oldest_us`, and will come again."""
        if self._is_up and oldest_us is not None and self.known_us is not None:
            self.known_us = min(self.known_us, oldest_us)
        self._is_up = False

    def waits_since_us(self, now_us: int) -> int | None:
        """Return the `waited_since_us` of a message that arrives now."""
        self._follow_clock(now_us)
        since = self.since_us
        return None if since is None or now_us - since < LEAST_WAIT_US else since

    def reached_us(self, oldest_us: int | None) -> int:
        """Return the time before which all published messages have arrived and are acknowledged; 0: unknown."""
        known = self.since_us if self.since_us is not None else self.known_us or 0
        return known if oldest_us is None else min(known, oldest_us)

    def wants_ping(self, now_us: int, held: int) -> bool:
        """Return whether a ping may give new information now, while `held` messages are unacknowledged."""
        self._follow_clock(now_us)
        if held and held >= self._most:
            self._room_us = None
        elif self._room_us is None:
            self._room_us = now_us
        if not self._is_up or self.since_us is None or self._ping is not None or self._room_us is None:
            return False
        return now_us - self._room_us >= ROOM_US and now_us - self._answered_us >= PING_US

    def pinged(self, number: int, held: int) -> None:
        """Note that ping `number` goes out, behind the acknowledgements of all but `held` messages."""
        self._ping = number, held - self._came

    def answered(self, number: int, now_us: int) -> None:
        """Note that the broker has answered pings up to this number."""
        self._follow_clock(now_us)
        if self._ping is None or number < self._ping[0]:
            return
        unacknowledged, self._ping, self._answered_us = self._ping[1] + self._came, None, now_us
        if unacknowledged and unacknowledged >= self._most:
            self._most = unacknowledged
            return
        self._finish(now_us)

    def end_quiet_backlog(self, held: int, now_us: int) -> None:
        """End the backlog after a while without messages, for a client that cannot ping."""
        self._follow_clock(now_us)
        if not held and now_us - self._came_us >= QUIET_US:
            self._finish(now_us)

    def _follow_clock(self, now_us: int) -> None:
        back_us, self._now_us = self._now_us - now_us, now_us
        if back_us > 0:
            self._came_us, self._answered_us = self._came_us - back_us, self._answered_us - back_us
            self._full_us = self._full_us and self._full_us - back_us
            self._room_us = self._room_us and self._room_us - back_us
            self.since_us, self.known_us = (at and at - back_us for at in (self.since_us, self.known_us))

    def _finish(self, now_us: int) -> None:
        self.since_us, self.known_us = None, now_us
