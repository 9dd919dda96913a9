"""The monitor's look, every few seconds: ask all parts at once, keep their answers, judge, and publish one snapshot.

A part that answers late counts as one that does not answer. Its late answer is dropped, and the part is not asked again before it
has come.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from prometheus_client import CollectorRegistry

from monitoring.sample_history import History
from monitoring.scrape import Scrape, scrape

__all__ = ["ScrapeLoop", "ScrapeTarget", "scrape_self"]

TIMEOUT_SECONDS: Final = 1.0
STUCK_SECONDS: Final = 10.0
NEWS_SECONDS: Final = 0.25
MARGIN_SECONDS: Final = 0.2

logger = logging.getLogger("tidegate.monitoring.look")


class ScrapeTarget:
    """One `/metrics` address of one job, asked on its own thread at each turn."""

    def __init__(self, job: str, url: str, *, every_seconds: float, instance: str | None = None) -> None:
        self.job, self.url, self.instance = job, url, instance
        self.every_seconds = every_seconds
        self._asked_at = -float("inf")
        self._answer: Scrape | None = None
        self._done = threading.Event()
        self._done.set()

    def ask(self) -> bool:
        """Ask unless it is too early; return False if the target is not part of this turn."""
        now = time.monotonic()
        if now - self._asked_at < self.every_seconds - MARGIN_SECONDS:
            return False
        if self._done.is_set():
            self._asked_at, self._answer = now, None
            self._done.clear()
            threading.Thread(target=self._ask, name=f"scrape-{self.job}", daemon=True).start()
        return True

    def answer(self, deadline: float) -> Scrape | None:
        """Return the answer; None without one at the deadline."""
        return self._answer if self._done.wait(max(0.0, deadline - time.monotonic())) else None

    def _ask(self) -> None:
        try:
            self._answer = scrape(self.url, timeout_seconds=TIMEOUT_SECONDS)
        except Exception:
            logger.exception("the answer of %s cannot be read", self.url)
        finally:
            self._done.set()


class ScrapeLoop:
    """Loop of turns that runs until it is stopped.

    Args:
        targets: the addresses to ask.
        own: (job, callable that returns this process's own samples).
        history: where answers are kept.
        publish: (now) -> None, called after all answers are in: judges and publishes.
        every_seconds: from one turn to the next.
        news: called a few times a second; a new value starts the next turn at once.
    """

    def __init__(
        self,
        targets: Iterable[ScrapeTarget],
        history: History,
        *,
        own: tuple[str, Callable[[], Scrape]],
        publish: Callable[[float], None],
        every_seconds: float,
        news: Callable[[], object] = lambda: None,
    ) -> None:
        self._targets, self._history, self._own, self._news = list(targets), history, own, news
        self._publish, self._every_seconds = publish, every_seconds
        self._turned_at = time.monotonic()
        self._fault = ""

    def run(self, stop: threading.Event) -> None:
        """Turn until stopped; a turn that fails is logged, and the next one follows."""
        while not stop.is_set():
            due = time.monotonic() + self._every_seconds
            known = self._newest()
            try:
                self.run_once()
            except Exception as error:
                self._tell(f"{type(error).__name__}: {error}")
            else:
                self._turned_at, self._fault = time.monotonic(), ""
            self._pause(stop, due, known)

    def _pause(self, stop: threading.Event, due: float, known: object) -> None:
        """Wait until the next turn is due, or the news differs from `known`."""
        while not stop.wait(max(0.05, min(NEWS_SECONDS, due - time.monotonic()))):
            if time.monotonic() >= due or self._newest() != known:
                return

    def _newest(self) -> object:
        try:
            return self._news()
        except Exception as error:  # the next turn comes when it is due
            return type(error)

    def run_once(self) -> None:
        """Run one look."""
        asked = [target for target in self._targets if target.ask()]
        deadline = time.monotonic() + TIMEOUT_SECONDS + MARGIN_SECONDS
        answers = [(target, target.answer(deadline)) for target in asked]
        now = time.time()
        for target, answer in answers:
            self._history.add(now, target.job, answer, instance=target.instance, every_seconds=target.every_seconds)
        job, own = self._own
        self._history.add(now, job, own())
        self._publish(now)

    def healthy(self) -> tuple[bool, str]:
        """Return whether the look runs, with a description."""
        age = time.monotonic() - self._turned_at
        if age > STUCK_SECONDS:
            why = f" ({self._fault})" if self._fault else ""
            return False, f"the monitor's loop has not turned for {age:.0f} s{why}"
        return True, f"looked {age:.0f} s ago"

    def _tell(self, fault: str) -> None:
        if fault != self._fault:
            logger.exception("a look failed; the next one follows")
        self._fault = fault


def scrape_self(registry: CollectorRegistry, wanted: Collection[str]) -> Scrape:
    """Return this process's own samples, without a request over HTTP."""
    values: dict[Any, float] = {}
    for family in registry.collect():
        for sample in family.samples:
            if sample.name in wanted:
                values[sample.name, tuple(sorted(sample.labels.items()))] = float(sample.value)
    return Scrape(time.monotonic(), values)
