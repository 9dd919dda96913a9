"""Progress of a run on stderr: which cell, which repeat, time left."""

import time
from collections.abc import Callable

__all__ = ["Progress", "duration_text"]


class Progress:
    """Counts steps; the time left follows from the steps so far, and before the first from the estimate."""

    def __init__(
        self,
        say: Callable[[str], object],
        *,
        steps: int,
        seconds_per_step: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._steps, self._estimate, self._clock = say, steps, seconds_per_step, clock
        self._done, self._spent = 0, 0.0
        self._began: float | None = None

    def step(self, text: str) -> None:
        """A step begins, and the one before has ended."""
        self.end_step()
        self._began = self._clock()
        self._say(f"[{self._done + 1}/{self._steps}] {text}, {duration_text(self.left_seconds())} left")

    def end_step(self) -> None:
        """The step that runs has ended, if any does."""
        if self._began is not None:
            self._spent += self._clock() - self._began
            self._done += 1
            self._began = None

    @property
    def steps(self) -> int:
        """All that will come."""
        return self._steps

    @property
    def done(self) -> int:
        """Those that have ended."""
        return self._done

    def skip(self, steps: int) -> None:
        """So many steps will not come."""
        self._steps -= steps

    def left_seconds(self) -> float:
        """Until the last step ends."""
        each = self._spent / self._done if self._done else self._estimate
        return each * max(0, self._steps - self._done)

    def tell(self, text: str) -> None:
        """A sentence next to the steps."""
        self._say(text)


def duration_text(seconds: float) -> str:
    """Such as 40 s, 3 min or 1 h 20 min."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
