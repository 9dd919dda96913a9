"""Conditions: the label sets in alarm now, evaluated by Prometheus or from the monitor's own memory."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from monitoring.alerts.operands import Age, Changes, Increase, Operand, Select, Sum, select
from monitoring.indicators import INSTALLATION
from monitoring.sample_history import History, Labels, Values

__all__ = [
    "Both",
    "Compare",
    "Either",
    "Growing",
    "IncreasedWithin",
    "PrometheusQuery",
    "Signal",
    "Unless",
    "started_within",
]

COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
STARTED: Final = "process_start_time_seconds"
OURS: Final = "~tidegate-.*"
"""Every exporter reports its start time, so only Tidegate's own jobs are queried."""
TARGET: Final = ("job", "instance")
RESOLUTION_SECONDS: Final = 15
RESTLESS: Final = 2
RESTLESS_SECONDS: Final = 1200

_BORN: Final = select(STARTED, job=OURS)


class Signal(Protocol):
    """A condition."""

    def promql(self) -> str:
        """Return the expression that has one series per label set in alarm."""

    def value(self, history: History, now: float) -> Values:
        """Return the label sets in alarm, each with its figure."""

    def metrics(self) -> frozenset[str]:
        """Return the metrics that memory must hold."""


@dataclass(frozen=True)
class Compare:
    """A figure past its bound."""

    operand: Operand
    comparison: Literal[">", ">=", "<", "<=", "==", "!="]
    bound: float

    def promql(self) -> str:
        """Return the PromQL expression."""
        return f"{self.operand.promql()} {self.comparison} {_number(self.bound)}"

    def value(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        holds = COMPARISONS[self.comparison]
        return {key: found for key, found in self.operand.values(history, now).items() if holds(found, self.bound)}

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return self.operand.metrics()


@dataclass(frozen=True)
class IncreasedWithin:
    """A counter rose by more than `more_than` in the last seconds.

    Counts before the first scrape of a process have no earlier sample to compare with. So if a process is younger than the
    window, everything that its counter shows happened within the window.
    """

    select: Select
    seconds: int
    more_than: float = 0.0

    def promql(self) -> str:
        """Return the PromQL expression."""
        bound = _number(self.more_than)
        newborn = f"{_matching(TARGET)} (time() - {_BORN.promql()} < {self.seconds})"
        gained = Increase(self.select, self.seconds).promql()
        return f"{gained} > {bound} or ({self.select.promql()} > {bound} and {newborn})"

    def value(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        gained = _above(Increase(self.select, self.seconds).values(history, now), self.more_than)
        newborn = {_only(key, TARGET) for key, at in _BORN.values(history, now).items() if now - at < self.seconds}
        shown = _above(self.select.values(history, now), self.more_than)
        return {key: count for key, count in shown.items() if _only(key, TARGET) in newborn} | gained

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return self.select.metrics() | {STARTED}


@dataclass(frozen=True)
class Growing:
    """A gauge above its floor whose smallest value of the last step is above the largest of the step before.

    Unlike a comparison of three instants, this does not flap with noise before the growth.
    """

    gauge: Select
    over: tuple[str, ...]
    step_seconds: int
    floor: float

    def promql(self) -> str:
        """Return the PromQL expression."""
        total, span = self._total().promql(), f"[{self.step_seconds - 1}s:{RESOLUTION_SECONDS}s]"
        least, most = f"min_over_time({total}{span})", f"max_over_time({total}{span} offset {self.step_seconds}s)"
        return f"({total} > {_number(self.floor)}) and ({least} > {most})"

    def value(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        newest, before = self._within(history, now), self._within(history, now - self.step_seconds)
        return {
            key: value
            for key, value in self._total().values(history, now).items()
            if value > self.floor and key in newest and key in before and min(newest[key]) > max(before[key])
        }

    def _total(self) -> Sum:
        return Sum(self.gauge, self.over)

    def _within(self, history: History, until: float) -> dict[Labels, list[float]]:
        """Return its values in the step that ends at `until`, at the instants that Prometheus uses for a subquery."""
        found: dict[Labels, list[float]] = {}
        at = until - until % RESOLUTION_SECONDS
        while at >= until - self.step_seconds + 1:
            for key, value in self._total().values(history, at).items():
                found.setdefault(key, []).append(value)
            at -= RESOLUTION_SECONDS
        return found

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return self.gauge.metrics()


@dataclass(frozen=True)
class Both:
    """The label sets of the first condition while the second holds for the same values of the labels in `on`."""

    one: Signal
    other: Signal
    on: tuple[str, ...]

    def promql(self) -> str:
        """Return the PromQL expression."""
        return f"({self.one.promql()}) and {_matching(self.on)} ({self.other.promql()})"

    def value(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        there = {_only(key, self.on) for key in self.other.value(history, now)}
        return {key: value for key, value in self.one.value(history, now).items() if _only(key, self.on) in there}

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return self.one.metrics() | self.other.metrics()


@dataclass(frozen=True)
class Unless:
    """The label sets of the first condition while the second does not hold for the same values of the labels in `on`."""

    one: Signal
    other: Signal
    on: tuple[str, ...]

    def promql(self) -> str:
        """Return the PromQL expression."""
        return f"({self.one.promql()}) unless {_matching(self.on)} ({self.other.promql()})"

    def value(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        there = {_only(key, self.on) for key in self.other.value(history, now)}
        return {key: value for key, value in self.one.value(history, now).items() if _only(key, self.on) not in there}

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return self.one.metrics() | self.other.metrics()


@dataclass(frozen=True)
class Either:
    """The label sets of both conditions."""

    one: Signal
    other: Signal

    def promql(self) -> str:
        """Return the PromQL expression."""
        return f"({self.one.promql()}) or ({self.other.promql()})"

    def value(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        return self.other.value(history, now) | self.one.value(history, now)

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return self.one.metrics() | self.other.metrics()


@dataclass(frozen=True)
class PrometheusQuery:
    """A condition that only Prometheus can evaluate: over hours, or about itself."""

    text: str

    def promql(self) -> str:
        """Return the PromQL expression."""
        return self.text

    def value(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        return {}

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return frozenset()


def started_within(job: str, seconds: int) -> "Unless":
    """Return a condition that holds while a part is younger than `seconds`, because what it needs may not be there yet.

    A part that restarts repeatedly would always be young and would hide its alerts, so it does not count as young.
    """
    started = select(STARTED, job=job)
    return Unless(
        Compare(Age(started), "<", seconds), Compare(Changes(started, RESTLESS_SECONDS), ">", RESTLESS), on=TARGET
    )


def _above(values: Values, bound: float) -> Values:
    return {key: value for key, value in values.items() if value > bound}


def _only(labels: Labels, names: tuple[str, ...]) -> Labels:
    return tuple(pair for pair in labels if pair[0] in names)


def _matching(labels: tuple[str, ...]) -> str:
    """Match also by installation: one Prometheus may watch several, while the monitor sees only its own."""
    return f"on({', '.join((INSTALLATION, *labels))})"


def _number(value: float) -> str:
    return f"{value:.15g}"
