"""Message rate of devices: one token bucket per device, in bounded memory, judged without waiting.

A message over the rate becomes a dead letter at once; holding it would hold everything behind it in the session. Messages
that a device queued while *we* took none (no connection, or Kafka too slow to acknowledge) are not a flood: after such a
stop each device may send what its rate allowed meanwhile.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

__all__ = ["FLOOD_KEEP_BYTES", "DeviceRate"]

FLOOD_KEEP_BYTES: Final = 1024
"""Payload that the dead letter of a message over the rate keeps: enough for a usual reading, so that it can be redriven."""
MAX_DEVICES: Final = 100_000
MAX_UNDO: Final = 200_000
STOP_US: Final = 1_000_000
"""A message that waited longer for its acknowledgement shows a stop."""
GRACE_US: Final = 60_000_000
"""Least time after a stop in which devices may catch up; longer after a longer stop."""


def _now_us() -> int:
    return time.time_ns() // 1000


class DeviceRate:
    """Token buckets. A message that is delivered again after a lost connection is not charged twice."""

    def __init__(
        self,
        per_second: float,
        burst: float,
        *,
        catch_up_seconds: float,
        max_devices: int = MAX_DEVICES,
        now_us: Callable[[], int] = _now_us,
    ) -> None:
        """Take the limits; `now_us` is the clock by which messages are received."""
        self.per_second, self.burst = per_second, burst
        self._catch_up_us, self._max_devices, self._now_us = int(catch_up_seconds * 1e6), max_devices, now_us
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._undo: deque[tuple[int, str, int]] = deque(maxlen=MAX_UNDO)
        self._received_us: int | None = None
        # Our own clock: it adds up the time between messages, so a wall clock that is set back does not stop it forever.
        self._clock_us = 0
        # The time without a gateway before this start is unknown.
        self._stop_us, self._stop_until_us, self._stop_wall_us = self._catch_up_us, 0, 0

    def __len__(self) -> int:
        return len(self._buckets)

    @property
    def fill(self) -> float:
        """Share of the memory in use. At 1 each new device replaces the one that was silent for longest."""
        self._drop_refilled()
        return len(self._buckets) / self._max_devices

    def take(self, device: str, received_us: int, number: int) -> bool:
        """Return whether message `number` is within the device's rate; it is charged only then."""
        self._advance(received_us)
        in_grace = self._in_grace()
        limit = self.burst + (self.per_second * self._stop_us / 1e6 if in_grace else 0)
        bucket = self._buckets.get(device)
        if bucket is None:
            tokens = limit
            while len(self._buckets) >= self._max_devices:
                self._buckets.popitem(last=False)
        else:
            tokens = min(limit, bucket[0] + (self._clock_us - bucket[1]) * self.per_second / 1e6)
        is_within = tokens >= 1 - 1e-9  # a sum of fractions may miss a whole number by rounding
        if is_within:
            tokens -= 1
            self._undo.append((number, device, received_us))
        self._buckets[device] = tokens, self._clock_us
        self._buckets.move_to_end(device)
        return is_within

    def acknowledged(self, upto: int) -> None:
        """Note that messages up to this number will not come again. One that waited long shows that we were stopped."""
        undo = self._undo
        if not undo or undo[0][0] > upto:
            return
        self._note_stop(undo[0][2])
        while undo and undo[0][0] <= upto:
            undo.popleft()

    def roll_back(self) -> None:
        """Make redelivered messages free, and let devices catch up queued ones, for a new connection."""
        if self._undo or self._received_us is not None:
            self._note_stop(self._undo[0][2] if self._undo else self._received_us or 0)
        while self._undo:
            _number, device, _received = self._undo.pop()
            bucket = self._buckets.get(device)
            if bucket is not None:
                self._buckets[device] = bucket[0] + 1, bucket[1]

    def _advance(self, received_us: int) -> None:
        if self._received_us is not None:
            self._clock_us += max(received_us - self._received_us, 0)
        self._received_us = received_us

    def _drop_refilled(self) -> None:
        """Drop devices that were silent until their bucket is full again: they count like unknown ones."""
        most = self.burst + self.per_second * max(self._stop_us, self._catch_up_us) / 1e6
        while self._buckets:
            device, (tokens, at_us) = next(iter(self._buckets.items()))
            if tokens + (self._clock_us - at_us) * self.per_second / 1e6 < most:
                return
            del self._buckets[device]

    def _in_grace(self) -> bool:
        return self._clock_us - self._stop_until_us < max(GRACE_US, self._stop_us)

    def _note_stop(self, since_us: int) -> None:
        """Note that we took or acknowledged nothing from then until now."""
        now_us = self._now_us()
        if now_us - since_us < STOP_US:
            return
        # Messages that waited at the same time show the same stop: only its new part counts.
        known_us = self._stop_us if self._in_grace() else 0
        since_us = max(since_us, self._stop_wall_us) if known_us else since_us
        self._stop_us = min(known_us + max(0, now_us - since_us), self._catch_up_us)
        self._stop_wall_us = now_us
        self._stop_until_us = self._clock_us + max(0, now_us - (self._received_us or now_us))
