"""Figures of one run from its sessions: rates as medians, counts as sums; and whether the medians are known well enough."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, Final

from deploy.bench.kafka_load.client_work import ClientWork, elapsed_seconds
from deploy.bench.kafka_load.latency import merge_latencies
from deploy.bench.kafka_load.segments import ReadCost
from deploy.bench.kafka_load.workload import Workload

__all__ = ["LoadSession", "are_stable", "figures_of", "median_error"]

_FEWEST: Final = 8
"""Sessions before any median counts as stable: with fewer the interval below would be that of the lowest and the highest."""


@dataclass(frozen=True, kw_only=True)
class LoadSession:
    """Results of one session's producers and consumers, and the records that Kafka has of it.

    `stored` includes what the topic held before the clock started. `costs` are those of Kafka's servers while producing and
    while consuming, in mode `stream` twice those of all; None where they do not run on this machine.
    """

    sent: Sequence[ClientWork]
    read: Sequence[ClientWork]
    stored: int
    costs: tuple[ReadCost, ReadCost] | None = None

    @property
    def seconds(self) -> dict[str, float]:
        """Return the seconds from the first start to the last end, of the producers and of the consumers."""
        parts = {"produce": self.sent, "consume": self.read}
        return {name: elapsed_seconds(group) for name, group in parts.items() if group}

    @property
    def consumed(self) -> int:
        """Records that were read."""
        return sum(one.messages for one in self.read)

    def rates(self, retained: int = 0) -> dict[str, float]:
        """Records a second; those that the topic held before were not produced meanwhile."""
        records = {"produce": self.stored - retained, "consume": self.consumed}
        return {name: records[name] / seconds for name, seconds in self.seconds.items()}


def median_error(values: Sequence[float]) -> float:
    """Return the error of the median: half of its 95 % interval, relative to it.

    The interval is that of order statistics, which holds for any distribution.
    """
    ordered, count = sorted(values), len(values)
    rank = max(0, ceil(count / 2 - 0.98 * sqrt(count)) - 1)
    median = statistics.median(ordered)
    return (ordered[count - 1 - rank] - ordered[rank]) / 2 / median if median else 0.0


def are_stable(sessions: Sequence[LoadSession], ratio: float) -> bool:
    """Return whether the median of each rate is known to within this ratio."""
    if ratio <= 0 or len(sessions) < _FEWEST:
        return False
    names = sessions[0].seconds
    return all(median_error([one.rates()[name] for one in sessions]) <= ratio for name in names)


def figures_of(workload: Workload, sessions: Sequence[LoadSession]) -> dict[str, Any]:
    """The figures that `run_workload` returns."""
    sent = [one for session in sessions for one in session.sent]
    read = [one for session in sessions for one in session.read]
    acks, reads = merge_latencies(one.latencies for one in sent), merge_latencies(one.latencies for one in read)
    messages = workload.messages * len(sessions)
    found: dict[str, Any] = {
        "produced": sum(one.stored for one in sessions),
        "consumed": sum(one.consumed for one in sessions),
        "lost": sum(_lost(one, workload.stored) for one in sessions),
        "duplicates": sum(max(0, one.stored - workload.stored) for one in sessions),
        "errors": sum(one.errors for one in (*sent, *read)),
        "python_cpu_us_per_message": _micros(sum(one.python_cpu_seconds for one in sent), messages),
        **acks.figures("ack"),
    }
    curves, over_time = {"ack": acks.curve()}, {"ack": acks.over_time()}
    for name in sessions[0].seconds:
        found |= _rate_figures(name, workload, sessions)
    if not workload.retained:
        found["client_cpu_us_per_message"] = _micros(sum(one.cpu_seconds for one in (*sent, *read)), messages)
    elif fill_seconds := max(one.fill_seconds for one in sent):
        found["fill_mb_per_second"] = round(workload.retained * workload.message_bytes / fill_seconds / 1e6, 3)
    if read and workload.mode == "stream":
        found |= reads.figures("end_to_end")
        curves["end_to_end"], over_time["end_to_end"] = reads.curve(), reads.over_time()
    if workload.rate:
        found["late_ms"] = round(max(one.late_ms for one in sent), 3)
    if workload.sessions > 1:
        found["sessions_run"] = len(sessions)
    return found | _core_figures(workload, sessions) | {"curves": curves, "over_time": over_time}


def _lost(one: LoadSession, wanted: int) -> int:
    return max(0, wanted - (min(one.stored, one.consumed) if one.read else one.stored))


def _rate_figures(name: str, workload: Workload, sessions: Sequence[LoadSession]) -> dict[str, float]:
    rates = [one.rates(workload.retained)[name] for one in sessions]
    rate = statistics.median(rates)
    found = {
        f"{name}_seconds": round(statistics.median(one.seconds[name] for one in sessions), 4),
        f"{name}_per_second": round(rate, 1),
        f"{name}_mb_per_second": round(rate * workload.message_bytes / 1e6, 3),
    }
    if len(sessions) > 1:
        found[f"{name}_median_error_ratio"] = round(median_error(rates), 4)
    return found


def _core_figures(workload: Workload, sessions: Sequence[LoadSession]) -> dict[str, float]:
    """Cores that were busy during the sessions alone: what lies between them would dilute a figure of the whole run."""
    found: dict[str, float] = {}
    for number, name in enumerate(sessions[0].seconds):
        seconds = sum(one.seconds[name] for one in sessions)
        both = workload.mode == "stream"
        parts = [
            part for one in sessions for part in ((*one.sent, *one.read) if both else (one.sent, one.read)[number])
        ]
        found[f"{name}_client_cores"] = _short(sum(part.cpu_seconds for part in parts) / seconds)
        costs = [one.costs[number].cpu_seconds for one in sessions if one.costs is not None]
        if costs:
            found[f"{name}_broker_cores"] = _short(sum(costs) / seconds)
            found[f"{name}_broker_cpu_us_per_message"] = _micros(sum(costs), workload.messages * len(sessions))
    python = sum(part.python_cpu_seconds for one in sessions for part in one.sent)
    return found | {"produce_python_cores": _short(python / sum(one.seconds["produce"] for one in sessions))}


def _short(value: float) -> float:
    return round(value, 3)


def _micros(seconds: float, messages: int) -> float:
    return round(seconds / messages * 1_000_000, 3)
