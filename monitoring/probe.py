"""Probes: what other systems tell of themselves, asked every few seconds, each on a thread of its own.

A look that hangs keeps its own probe from looking again and nothing else: neither the other probes, nor the monitor's look, nor
its end. What a probe said is forgotten after three missed periods, and whether its system can be reached is then no.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from monitoring.metrics.families import Samples
from monitoring.metrics.monitor import PROBES, MonitorMetrics

__all__ = ["IncompleteError", "Probe", "Probes"]

MISSED_PERIODS: Final = 3
LEAST_PATIENCE_SECONDS: Final = 6.0

logger = logging.getLogger("tidegate.monitoring.probe")


class IncompleteError(Exception):
    """Raised by a look that saw some of what it looks at: this is served, and the look counts as failed all the same."""

    def __init__(self, fault: str, samples: Samples) -> None:
        super().__init__(fault)
        self.samples = samples


@dataclass(frozen=True, slots=True)
class Probe:
    """One of `PROBES`: what to ask and how often. `close` frees what it holds, once no look runs any more."""

    name: str
    every_seconds: float
    look: Callable[[], Samples]
    close: Callable[[], None] = lambda: None


class _Running:
    """One probe on its thread."""

    def __init__(self, probe: Probe, metrics: MonitorMetrics, stop: threading.Event) -> None:
        self._probe, self._metrics, self._stop = probe, metrics, stop
        self._answered_at = time.monotonic()
        self._forgotten = False
        self.fault = ""
        self._thread = threading.Thread(target=self._run, name=f"probe-{probe.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        """Forget what it said when it has been silent for too long."""
        silent = time.monotonic() - self._answered_at
        patience = max(LEAST_PATIENCE_SECONDS, MISSED_PERIODS * self._probe.every_seconds)
        if silent > patience and not self._forgotten:
            self._forgotten = True
            self.fault = self.fault or f"no answer for {silent:.0f} s"
            self._metrics.families.replace(self._probe.name, _unreachable(self._probe.name))

    def join(self, seconds: float) -> None:
        self._thread.join(max(0.0, seconds))

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                self._look()
                self._stop.wait(max(0.1, self._probe.every_seconds - (time.monotonic() - began)))
        finally:
            self._probe.close()

    def _look(self) -> None:
        name = self._probe.name
        try:
            with self._metrics.probe_duration.labels(name).time():
                samples = self._probe.look()
            self._take(samples)
        except IncompleteError as error:
            self._take(error.samples)
            self._fail("saw not all", error)
        except Exception as error:
            self._fail("has no answer", error)
        else:
            self.fault = ""

    def _take(self, samples: Samples) -> None:
        self._metrics.families.replace(self._probe.name, samples)
        self._answered_at, self._forgotten = time.monotonic(), False

    def _fail(self, what: str, error: Exception) -> None:
        self._metrics.probe_failures.labels(self._probe.name).inc()
        fault = str(error) or type(error).__name__
        if fault != self.fault:
            logger.warning("probe %s %s: %s", self._probe.name, what, fault)
        self.fault = fault


class Probes:
    """All probes of one monitor."""

    def __init__(self, probes: Iterable[Probe], metrics: MonitorMetrics) -> None:
        self._stop = threading.Event()
        self._running = {probe.name: _Running(probe, metrics, self._stop) for probe in probes}

    def start(self) -> None:
        """Begin to look."""
        for running in self._running.values():
            running.start()

    def check(self) -> None:
        """To be called now and then: forget what is old."""
        for running in self._running.values():
            running.check()

    def faults(self) -> dict[str, str]:
        """Per probe what keeps it from answering; empty while it answers."""
        return {name: running.fault for name, running in self._running.items()}

    def close(self, *, seconds: float = 1.0) -> None:
        """End those that can be ended in this time; the others hang, and end with the process."""
        self._stop.set()
        deadline = time.monotonic() + seconds
        for running in self._running.values():
            running.join(deadline - time.monotonic())


def _unreachable(probe: str) -> Samples:
    """What is known of a system that does not answer: that it does not."""
    reachable = [family.name for family in PROBES[probe] if family.name.endswith("_reachable") and not family.labels]
    return {name: [((), 0.0)] for name in reachable}
