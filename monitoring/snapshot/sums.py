"""Sums over series that distinguish zero from unknown."""

import math
from collections.abc import Iterable, Mapping

from monitoring.sample_history import History, Labels

__all__ = ["by_label", "finite", "is_silent", "subtract_other", "total"]


def is_silent(memory: History, job: str) -> bool:
    """Return whether no target of a job answered the last look, so that its earlier figures do not hold any more."""
    answers = memory.latest("up", job=job).values()
    return bool(answers) and not any(answers)


def total(series: Mapping[Labels, float]) -> float | None:
    """Return the sum of all series; None without any."""
    return finite(sum(series.values())) if series else None


def by_label(series: Mapping[Labels, float], label: str) -> dict[str, float]:
    """Return the sum per value of one label."""
    found: dict[str, float] = {}
    for labels, value in series.items():
        for name, text in labels:
            if name == label:
                found[text] = found.get(text, 0.0) + value
    return found


def finite(value: float | None, digits: int = 3) -> float | None:
    """Return the rounded number, or None if JSON cannot express it."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


def subtract_other(value: float | None, taken: Iterable[float | None]) -> float | None:
    """Return `value` minus the values in `taken`; never below zero, since two processes count at different moments."""
    return None if value is None else finite(max(0.0, value - sum(each or 0.0 for each in taken)))
