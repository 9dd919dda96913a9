"""The watermark: up to where event time is taken as complete. It only ever moves forward; no clock of a device moves it."""

from dataclasses import dataclass

__all__ = ["Watermark"]


@dataclass(slots=True)
class Watermark:
    """Decides from what was seen, and from how long nothing was, up to where windows are final. Times are µs of the epoch.

    Args:
        delay: how far it stays behind the newest reading.
        idle: after so long without a reading it follows the wall clock, `delay + idle` behind it, so that a quiet fleet
            still gets its last windows final.
        heard_at: when readings last came; at first, when the process began.
    """

    delay: int
    idle: int
    heard_at: int

    def heard(self, now: int) -> None:
        """Note that readings came."""
        self.heard_at = max(self.heard_at, now)

    def after(self, current: int | None, newest: int | None, now: int) -> int | None:
        """The watermark that follows `current`; None while no reading was ever seen.

        Args:
            current: the one so far.
            newest: the largest of min(event time, receive time + allowed skew) of the new readings, where there are any.
            now: the wall clock.
        """
        reached = [] if current is None else [current]
        if newest is not None:
            # A gateway whose clock is ahead must not make windows final that have not begun.
            reached.append(min(newest - self.delay, now))
        if reached and now - self.heard_at >= self.idle:
            reached.append(now - self.delay - self.idle)
        return max(reached, default=None)
