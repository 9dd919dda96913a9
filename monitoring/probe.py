"""Probes: what other systems tell of themselves, each a poll whose answers are served as metrics.

What a probe said is forgotten after three missed periods, and whether its system can be reached is then no.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from monitoring.metrics.families import Samples
from monitoring.metrics.monitor import PROBES, MonitorMetrics
from monitoring.poll import Poll

__all__ = ["Probe", "Probes"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One of `PROBES`: what to ask and how often. `close` frees what it holds, once no look runs any more.

    A look that saw a part raises IncompleteError: the part is served, and the look counts as failed all the same.
    """

    name: str
    every_seconds: float
    look: Callable[[], Samples]
    close: Callable[[], None] = lambda: None


class Probes:
    """All probes of one monitor. One that hangs holds neither the others, nor the monitor's look, nor its end."""

    def __init__(self, probes: Iterable[Probe], metrics: MonitorMetrics) -> None:
        self._polls = {probe.name: _served(probe, metrics) for probe in probes}

    def start(self) -> None:
        """Begin to look."""
        for poll in self._polls.values():
            poll.start()

    def check(self) -> None:
        """To be called now and then: forget what is old."""
        for poll in self._polls.values():
            poll.forget_old()

    def faults(self) -> dict[str, str]:
        """Per probe what keeps it from answering; empty while it answers."""
        return {name: poll.fault for name, poll in self._polls.items()}

    def close(self, *, seconds: float = 1.0) -> None:
        """End those that can be ended in this time; the others hang, and end with the process."""
        deadline = time.monotonic() + seconds
        for poll in self._polls.values():
            poll.stop()
        for poll in self._polls.values():
            poll.join(deadline - time.monotonic())


def _served(probe: Probe, metrics: MonitorMetrics) -> Poll[Samples]:
    """The poll of a probe: timed, its failures counted, its answers served, the end of each complete look told."""
    name, failures = probe.name, metrics.probe_failures.labels(probe.name)
    complete = metrics.probe_complete.labels(name)
    # Whoever has seen nothing yet is as blind as one that sees nothing any more, from the start on.
    complete.set_to_current_time()

    def ask() -> Samples:
        with failures.count_exceptions(), metrics.probe_duration.labels(name).time():
            return probe.look()

    def take(samples: Samples) -> None:
        with failures.count_exceptions():
            metrics.families.replace(name, samples)

    return Poll(
        f"probe {name}",
        probe.every_seconds,
        ask,
        default=_unreachable(name),
        take=take,
        done=complete.set_to_current_time,
        at_end=probe.close,
    )


def _unreachable(probe: str) -> Samples:
    """What is known of a system that does not answer: that it does not."""
    reachable = [family.name for family in PROBES[probe] if family.name.endswith("_reachable") and not family.labels]
    return {name: [((), 0.0)] for name in reachable}
