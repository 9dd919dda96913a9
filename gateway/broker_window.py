"""What the broker sends before it waits for PUBACK, learned from the connection itself.

A broker keeps at most so many unacknowledged messages on the way to one client: mosquitto 20, EMQX 32, unless it is set
otherwise. MQTT does not tell the client. A gateway that waits for more messages then waits for nothing.
"""

from typing import Final

__all__ = ["BrokerWindow"]

LEVEL_HITS: Final = 4
LEVEL_MISSES: Final = 3
"""So often the same number was held before an acknowledgement, with no more than so many lower ones between: there the
broker stops. Of messages at a pace the number is another one each time."""
RATE_SECONDS: Final = 0.1
LIMIT_SECONDS: Final = 5.0
LIMIT_SHARE: Final = 0.5
LIMIT_REFILLS: Final = 10


class BrokerWindow:
    """Counts what one connection holds unacknowledged. Not thread-safe. All times are monotonic seconds.

    Attributes:
        held: messages at QoS 1 that came and were not acknowledged.
        level: as many are held when the broker stops; 0 while that is not known.
        limit: the level, while it limits how much the gateway takes; 0 while it does not.
    """

    def __init__(self, window: int) -> None:
        """Take the gateway's own window, which is no limit of the broker's."""
        self._window = window
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """A new connection, or none."""
        self.held = self.level = self.limit = 0
        self._top = self._hits = self._misses = 0
        self._rate, self._counted, self._counted_since = 0.0, 0, now
        self._full_since: float | None = None
        self._full_seconds, self._refills, self._judged_at = 0.0, 0, now

    def received(self, count: int, now: float) -> None:
        """So many messages came."""
        self.held += count
        self._counted += count
        if now - self._counted_since >= RATE_SECONDS:
            self._rate = self._counted / (now - self._counted_since)
            self._counted, self._counted_since = 0, now
        if self.held > self.level:
            # It goes on: what looked like its limit was a habit of the devices.
            self.level = 0
            self._end_full(None)
        elif self.held == self.level and self._full_since is None:
            self._full_since = now
            self._refills += 1

    def acknowledged(self, count: int, now: float) -> None:
        """So many were acknowledged."""
        if not count:
            return
        self._learn(self.held)
        self._end_full(now)
        self.held -= count

    def _learn(self, held: int) -> None:
        if held > self._top:
            self._top, self._hits, self._misses = held, 1, 0
        elif held == self._top:
            self._hits, self._misses = self._hits + 1, 0
        else:
            self._misses += 1
            if self._misses > LEVEL_MISSES:
                self._top, self._hits, self._misses = held, 1, 0
        if not self.level and self._hits >= LEVEL_HITS:
            self.level = self._top

    @property
    def is_half_full(self) -> bool:
        """Whether little more comes before an acknowledgement."""
        return 2 * self.held >= (self.level or self._window)

    @property
    def is_full(self) -> bool:
        """Whether nothing comes before an acknowledgement, so that what is published waits."""
        return self.held >= (self.level or self._window)

    def gather_seconds(self, longest: float) -> float:
        """How long messages may gather: until half of what the broker sends is here, at the rate of late."""
        if not self.level or not self._rate:
            return longest
        return max(0.0, min(longest, (self.level / 2 - self.held) / self._rate))

    def judge(self, now: float) -> None:
        """Say anew, every some seconds, whether the broker's limit holds the gateway up: it is nearly always reached."""
        seconds = now - self._judged_at
        if seconds < LIMIT_SECONDS:
            return
        if self._full_since is not None:
            self._full_seconds += now - self._full_since
            self._full_since = now
        is_limit = self._full_seconds >= LIMIT_SHARE * seconds and self._refills >= LIMIT_REFILLS
        self.limit = self.level if is_limit and self.level < self._window else 0
        self._full_seconds, self._refills, self._judged_at = 0.0, 0, now

    def _end_full(self, now: float | None) -> None:
        """The level is no longer held; a time of None does not count what was."""
        if self._full_since is not None and now is not None:
            self._full_seconds += now - self._full_since
        self._full_since = None
