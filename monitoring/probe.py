"""Probes: polls of other systems whose answers are served as metrics.

An answer is dropped after three missed periods; the system then counts as unreachable.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from monitoring.metrics.families import Samples
from monitoring.metrics.monitor import PROBES, MonitorMetrics
from monitoring.periodic_query import PeriodicQuery

__all__ = ["Probe", "ProbeSet"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One of `PROBES`: its look and how often it runs. `close` frees its resources after the last look.

    A look with a partial result raises IncompleteError: the partial result is served, but the look counts as failed.
    """

    name: str
    every_seconds: float
    look: Callable[[], Samples]
    close: Callable[[], None] = lambda: None


class ProbeSet:
    """All probes of one monitor. A probe that hangs blocks neither the others, nor the monitor's look, nor its shutdown."""

    def __init__(self, probes: Iterable[Probe], metrics: MonitorMetrics) -> None:
        self._polls = {probe.name: _served(probe, metrics) for probe in probes}

    def start(self) -> None:
        """Start all probes."""
        for poll in self._polls.values():
            poll.start()

    def check(self) -> None:
        """Drop old answers; call this regularly."""
        for poll in self._polls.values():
            poll.forget_old()

    def faults(self) -> dict[str, str]:
        """Return the fault of each probe; empty text while it answers."""
        return {name: poll.fault for name, poll in self._polls.items()}

    def close(self, *, seconds: float = 1.0) -> None:
        """Stop the probes within this time; one that hangs ends with the process."""
        deadline = time.monotonic() + seconds
        for poll in self._polls.values():
            poll.stop()
        for poll in self._polls.values():
            poll.join(deadline - time.monotonic())


def _served(probe: Probe, metrics: MonitorMetrics) -> PeriodicQuery[Samples]:
    """Return the poll of a probe with its metrics: duration, failures, samples, and the end of each complete look."""
    name, failures = probe.name, metrics.probe_failures.labels(probe.name)
    complete = metrics.probe_complete.labels(name)
    # A probe without any answer yet must count as overdue in the same way as one that stopped answering, so time runs from here.
    complete.set_to_current_time()

    def ask() -> Samples:
        with failures.count_exceptions(), metrics.probe_duration.labels(name).time():
            return probe.look()

    def take(samples: Samples) -> None:
        with failures.count_exceptions():
            metrics.families.replace(name, samples)

    return PeriodicQuery(
        f"probe {name}",
        probe.every_seconds,
        ask,
        default=_unreachable(name),
        take=take,
        done=complete.set_to_current_time,
        at_end=probe.close,
    )


def _unreachable(probe: str) -> Samples:
    """Return the samples of a system that does not answer: not reachable."""
    reachable = [family.name for family in PROBES[probe] if family.name.endswith("_reachable") and not family.labels]
    return {name: [((), 0.0)] for name in reachable}
