"""The numbers that were counted of each connection of each gateway: which ones the ledger keeps, and which it forgets.

The outcomes of a connection count ranges that follow one another. What lies between them is a hole: Kafka deleted outcomes
before they were read, or a late one is still to come.
"""

from collections.abc import Mapping
from typing import Final

from streaming.derive.outcomes import OutcomeSums

__all__ = ["KEPT_EPOCHS", "MOST_HOLES", "Holes", "forgotten_before", "holes_after", "later_numbers", "newest_epochs"]

KEPT_EPOCHS: Final = 64
"""Connections of gateways whose last number is remembered, once all that they counted has landed."""

MOST_HOLES: Final = 64
"""Ranges kept per connection; of more, the oldest are forgotten, as if they were counted."""

Holes = dict[str, dict[str, list[list[int]]]]
"""gateway -> epoch -> ranges (first, last) that no outcome counts."""


def later_numbers(upto: Mapping[str, Mapping[str, int]], counted: OutcomeSums | None) -> dict[str, dict[str, int]]:
    """Both maps, the newest epochs last."""
    merged = {gateway: dict(epochs) for gateway, epochs in upto.items()}
    for gateway, epochs in (counted.upto if counted else {}).items():
        known = merged.setdefault(gateway, {})
        for epoch, number in sorted(epochs.items(), key=lambda each: int(each[0])):
            known[epoch] = max(number, known.pop(epoch, number))
    return merged


def holes_after(holes: Holes, upto: Mapping[str, Mapping[str, int]], counted: OutcomeSums | None) -> Holes:
    """The holes once these outcomes are counted as well; `upto` are the last numbers before them."""
    found = {gateway: dict(epochs) for gateway, epochs in holes.items()}
    for gateway, epochs in (counted.upto if counted else {}).items():
        for epoch, last in epochs.items():
            first = counted.first.get(gateway, {}).get(epoch, 0) if counted else 0
            known = upto.get(gateway, {}).get(epoch, 0)
            left = [part for hole in found.get(gateway, {}).get(epoch, []) for part in _cut(hole, first, last)]
            left += [[known + 1, first - 1]] if first > known + 1 else []
            found.setdefault(gateway, {})[epoch] = left[-MOST_HOLES:]
    return _without_empty(found)


def _cut(hole: list[int], first: int, last: int) -> list[list[int]]:
    """Return the rest of a hole without this range."""
    parts = [[hole[0], min(hole[1], first - 1)], [max(hole[0], last + 1), hole[1]]]
    return [part for part in parts if part[0] <= part[1]] if first <= hole[1] and last >= hole[0] else [hole]


def _without_empty(holes: Holes) -> Holes:
    kept = {gateway: {epoch: ranges for epoch, ranges in epochs.items() if ranges} for gateway, epochs in holes.items()}
    return {gateway: epochs for gateway, epochs in kept.items() if epochs}


def newest_epochs(
    upto: Mapping[str, dict[str, int]], landed: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Without old epochs whose messages have all landed: those that the pass before knew, and no outcome counted in since."""
    kept = {}
    for gateway, epochs in upto.items():
        known, newest = landed.get(gateway, {}), list(epochs)[-KEPT_EPOCHS:]
        kept[gateway] = {
            epoch: number for epoch, number in epochs.items() if epoch in newest or known.get(epoch) != number
        }
    return kept


def forgotten_before(upto: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The oldest epoch of each gateway that may have forgotten some: epochs ascend, so those were before it."""
    return {gateway: min(map(int, epochs)) for gateway, epochs in upto.items() if len(epochs) >= KEPT_EPOCHS}
