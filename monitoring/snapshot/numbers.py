"""Sums over series that know the difference between zero and unknown."""

import math
from collections.abc import Iterable, Mapping

from monitoring.history import History, Labels

__all__ = ["by_label", "finite", "is_silent", "less", "total"]


def is_silent(memory: History, job: str) -> bool:
    """Whether nobody of a job answered the last look: what it told before is no figure of now."""
    answers = memory.latest("up", job=job).values()
    return bool(answers) and not any(answers)


def total(series: Mapping[Labels, float]) -> float | None:
    """The sum of all series; None where there is none."""
    return finite(sum(series.values())) if series else None


def by_label(series: Mapping[Labels, float], label: str) -> dict[str, float]:
    """The sum per value of one label."""
    found: dict[str, float] = {}
    for labels, value in series.items():
        for name, text in labels:
            if name == label:
                found[text] = found.get(text, 0.0) + value
    return found


def finite(value: float | None, digits: int = 3) -> float | None:
    """The number as JSON can have it, not longer than it means anything."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


def less(value: float | None, taken: Iterable[float | None]) -> float | None:
    """Without what is not meant; never below zero, since two clocks of two processes count."""
    return None if value is None else finite(max(0.0, value - sum(each or 0.0 for each in taken)))
