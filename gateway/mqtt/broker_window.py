"""Number of messages that the broker sends before it waits for PUBACK, learned from the connection itself.

A broker limits the unacknowledged messages in flight to one client: mosquitto to 20, EMQX to 32, unless configured
otherwise. MQTT does not report the limit to the client. A gateway that waits for more messages then waits in vain.
"""

from typing import Final

__all__ = ["BrokerWindow"]

LEVEL_HITS: Final = 4
LEVEL_MISSES: Final = 3
"""The broker's limit is found when the same number was held before an acknowledgement this often, with no more than this
many lower numbers in between. With messages at a steady pace the number varies."""
RATE_SECONDS: Final = 0.1
LIMIT_SECONDS: Final = 5.0
LIMIT_SHARE: Final = 0.5
LIMIT_REFILLS: Final = 10


class BrokerWindow:
    """Counter of the unacknowledged messages of one connection. Not thread-safe. All times are monotonic seconds.

    Attributes:
        held: messages at QoS 1 that came and were not acknowledged.
        level: number of held messages at which the broker stops; 0 while it is unknown.
        limit: the level, while it limits how much the gateway takes; 0 while it does not.
        rate: messages per second at QoS 1 that came recently; 0 at the begin of a connection.
    """

    def __init__(self, window: int) -> None:
        """Take the gateway's own window, which is not a limit of the broker."""
        self._window = window
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Start again for a new connection, or for none."""
        self.held = self.level = self.limit = 0
        self._top = self._hits = self._misses = 0
        self.rate, self._counted, self._counted_since = 0.0, 0, now
        self._full_since: float | None = None
        self._full_seconds, self._refills, self._judged_at = 0.0, 0, now

    def received(self, count: int, now: float) -> None:
        """Count messages that came."""
        self.held += count
        self._counted += count
        if now - self._counted_since >= RATE_SECONDS:
            self.rate = self._counted / (now - self._counted_since)
            self._counted, self._counted_since = 0, now
        if self.held > self.level:
            # The broker sends more: the number that looked like its limit was a habit of the devices.
            self.level = 0
            self._end_full(None)
        elif self.held == self.level and self._full_since is None:
            self._full_since = now
            self._refills += 1

    def acknowledged(self, count: int, now: float) -> None:
        """Count acknowledged messages."""
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
        """Return whether only few messages can come before an acknowledgement."""
        return 2 * self.held >= (self.level or self._window)

    @property
    def is_full(self) -> bool:
        """Return whether nothing comes before an acknowledgement, so that published messages wait."""
        return self.held >= (self.level or self._window)

    def gather_seconds(self, longest: float) -> float:
        """Return how long messages may gather: until half of what the broker sends is here, at the recent rate."""
        if not self.level or not self.rate:
            return longest
        return max(0.0, min(longest, (self.level / 2 - self.held) / self.rate))

    def judge(self, now: float) -> None:
        """Decide again, every few seconds, whether the broker's limit holds the gateway up: it is nearly always reached."""
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
        """Note that the level is no longer held; with a time of None the past interval does not count."""
        if self._full_since is not None and now is not None:
            self._full_seconds += now - self._full_since
        self._full_since = None
