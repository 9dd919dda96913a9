"""Progress of a run on stderr: cell, repeat, time left."""

import time
from collections.abc import Callable

__all__ = ["SuiteProgress", "duration_text"]


class SuiteProgress:
    """Counts steps, each by the seconds that it is expected to take; the pace of the steps so far corrects the time left."""

    def __init__(
        self,
        say: Callable[[str], object],
        *,
        steps: int,
        seconds_per_step: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start before the first step.

        Args:
            say: gets a line for each step.
            steps: all that will come.
            seconds_per_step: the mean of what they are expected to take.
            clock: monotonic, in seconds.
        """
        self._say, self._steps, self._mean, self._clock = say, steps, seconds_per_step, clock
        self._expected_left = steps * seconds_per_step
        self._expected_done = self._spent = 0.0
        self._done, self._running = 0, 0.0
        self._began: float | None = None

    def step(self, text: str, seconds: float | None = None) -> None:
        """Begin a step with its expected duration; the one before has ended."""
        self.end_step()
        self._began, self._running = self._clock(), self._mean if seconds is None else seconds
        self._say(f"[{self._done + 1}/{self._steps}] {text}, {duration_text(self.left_seconds())} left")

    def end_step(self, *, failed: bool = False) -> None:
        """End the running step, if any; a failed one says nothing about the pace."""
        if self._began is not None:
            if not failed:
                self._spent += self._clock() - self._began
                self._expected_done += self._running
            self._expected_left -= self._running
            self._done += 1
            self._began = None

    @property
    def steps(self) -> int:
        """Number of all steps to come."""
        return self._steps

    @property
    def done(self) -> int:
        """Number of finished steps."""
        return self._done

    def skip(self, steps: int, seconds: float | None = None) -> None:
        """Remove steps that will not come, each of which was expected to take this long."""
        self._steps -= steps
        self._expected_left -= steps * (self._mean if seconds is None else seconds)

    def left_seconds(self) -> float:
        """Return the seconds until the last step ends."""
        pace = self._spent / self._expected_done if self._expected_done else 1.0
        return pace * max(0.0, self._expected_left)

    def tell(self, text: str) -> None:
        """Print a sentence next to the steps."""
        self._say(text)


def duration_text(seconds: float) -> str:
    """Such as 40 s, 3 min or 1 h 20 min."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
