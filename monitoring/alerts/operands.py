"""Operands of conditions: a metric as it is, its age, its increase, and sums and quotients of these.

Each can be evaluated in two ways: `promql()` by Prometheus, `values()` from the monitor's own memory.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol

from monitoring.indicators import INSTALLATION, subtract_job
from monitoring.sample_history import History, Labels, Values

__all__ = [
    "Age",
    "Changes",
    "Difference",
    "Increase",
    "MinOverTime",
    "Operand",
    "Quotient",
    "Select",
    "SubtractIfPresent",
    "Sum",
    "TimeUntil",
    "select",
]

EVERYTHING: Final = ("*",)
"""As `over` of a sum: one figure for all series of an installation."""


class Operand(Protocol):
    """Something that has a value per label set."""

    def promql(self) -> str:
        """Return the expression for Prometheus."""

    def values(self, history: History, now: float) -> Values:
        """Return the same from memory."""

    def metrics(self) -> frozenset[str]:
        """Return the metrics that memory must hold."""


@dataclass(frozen=True)
class Select:
    """Series of a metric. A wanted value that starts with `~` is a pattern; one that starts with `!` is excluded."""

    metric: str
    where: tuple[tuple[str, str], ...] = ()

    def promql(self, window: str = "") -> str:
        """Return the selector, with a range if one is given."""
        matchers = ", ".join(f'{name}{_operator(value)}"{value.lstrip("~!")}"' for name, value in self.where)
        return self.metric + (f"{{{matchers}}}" if matchers else "") + window

    def values(self, history: History, now: float) -> Values:
        """Return the value of each series at that time."""
        return self.chosen(history.latest(self.metric, now))

    def chosen(self, values: Values) -> Values:
        """Keep the values of the wanted series."""
        return {labels: value for labels, value in values.items() if self._takes(dict(labels))}

    def _takes(self, labels: dict[str, str]) -> bool:
        return all(_fits(value, labels.get(name, "")) for name, value in self.where)

    def metrics(self) -> frozenset[str]:
        """Return its metric."""
        return frozenset((self.metric,))


def select(metric: str, **where: str) -> Select:
    """Return the series of a metric with these labels."""
    return Select(metric, tuple(where.items()))


def _operator(wanted: str) -> str:
    return "=~" if wanted.startswith("~") else "!=" if wanted.startswith("!") else "="


def _fits(wanted: str, found: str) -> bool:
    if wanted.startswith("~"):
        return re.fullmatch(wanted[1:], found) is not None
    return found != wanted[1:] if wanted.startswith("!") else found == wanted


@dataclass(frozen=True)
class Age:
    """Seconds since the instant that a gauge holds. An instant of 0 has not come yet and has no age."""

    select: Select

    def promql(self) -> str:
        """Return the PromQL expression."""
        return f"time() - ({self.select.promql()} > 0)"

    def values(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        return {labels: now - at for labels, at in self.select.values(history, now).items() if at > 0}

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return self.select.metrics()


@dataclass(frozen=True)
class TimeUntil:
    """Seconds until the instant that a gauge holds; negative once it has passed."""

    select: Select

    def promql(self) -> str:
        """Return the PromQL expression."""
        return f"({self.select.promql()} > 0) - time()"

    def values(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        return {labels: at - now for labels, at in self.select.values(history, now).items() if at > 0}

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return self.select.metrics()


@dataclass(frozen=True)
class _OverTime:
    """One figure of each series over the last seconds: a function of Prometheus, and the same from memory."""

    select: Select
    seconds: int
    function: ClassVar[str]
    answer: ClassVar[Callable[[History, str, int, float], Values]]

    def promql(self) -> str:
        """Return the PromQL expression."""
        return f"{self.function}({self.select.promql(f'[{self.seconds}s]')})"

    def values(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        return self.select.chosen(type(self).answer(history, self.select.metric, self.seconds, now))

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return self.select.metrics()


class Increase(_OverTime):
    """Increase of a counter in the last seconds; restarts of its process lose nothing."""

    function, answer = "increase", History.increase


class Changes(_OverTime):
    """Number of changes of a gauge within the last seconds."""

    function, answer = "changes", History.changes


class MinOverTime(_OverTime):
    """Smallest value of a gauge within the last seconds."""

    function, answer = "min_over_time", History.least


@dataclass(frozen=True)
class Difference:
    """One figure minus another with the same labels; none if either is missing."""

    of: Operand
    taken: Operand

    def promql(self) -> str:
        """Return the PromQL expression."""
        return f"({self.of.promql()}) - ({self.taken.promql()})"

    def values(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        taken = self.taken.values(history, now)
        return {key: value - taken[key] for key, value in self.of.values(history, now).items() if key in taken}

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return metrics_of((self.of, self.taken))


@dataclass(frozen=True)
class Sum:
    """Sum over the labels named in `over` and over all addresses of a part."""

    of: Select | Increase
    over: tuple[str, ...] = field(default=())

    def promql(self) -> str:
        """Return the PromQL expression."""
        if self.over == EVERYTHING:
            return f"sum by ({INSTALLATION}) ({self.of.promql()})"
        return f"sum without({', '.join((*self.over, 'instance'))}) ({self.of.promql()})"

    def values(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        found: Values = {}
        for labels, value in self.of.values(history, now).items():
            key = self._key(labels)
            found[key] = found.get(key, 0.0) + value
        return found

    def _key(self, labels: Labels) -> Labels:
        if self.over == EVERYTHING:
            return ()
        return tuple(pair for pair in labels if pair[0] not in self.over and pair[0] != "instance")

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return self.of.metrics()


@dataclass(frozen=True)
class SubtractIfPresent:
    """A sum minus the count of another part. Without that part, the sum as it is."""

    of: Sum
    taken: Select | Increase

    def promql(self) -> str:
        """Return the PromQL expression."""
        return subtract_job(self.of.promql(), self.taken.promql())

    def values(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        taken = sum(self.taken.values(history, now).values())
        return {labels: max(0.0, value - taken) for labels, value in self.of.values(history, now).items()}

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return metrics_of((self.of, self.taken))


@dataclass(frozen=True)
class Quotient:
    """One figure divided by another with the same labels; none if the divisor is below the minimum.

    Without the minimum, one bad message of three would count as a third.
    """

    dividend: Sum
    divisor: Sum | SubtractIfPresent
    minimum: float

    def promql(self) -> str:
        """Return the PromQL expression."""
        divisor = self.divisor.promql()
        return f"{self.dividend.promql()} / ({divisor} >= {self.minimum:g})"

    def values(self, history: History, now: float) -> Values:
        """Return the values from memory."""
        parts = self.dividend.values(history, now)
        whole = self.divisor.values(history, now)
        return {key: part / whole[key] for key, part in parts.items() if whole.get(key, -1.0) >= self.minimum}

    def metrics(self) -> frozenset[str]:
        """Return the metrics that it reads."""
        return metrics_of((self.dividend, self.divisor))


def metrics_of(parts: Iterable[Operand]) -> frozenset[str]:
    """Return the metrics that these operands need."""
    return frozenset[str]().union(*(part.metrics() for part in parts))
