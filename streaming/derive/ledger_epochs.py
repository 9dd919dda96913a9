"""The last number that was counted of each connection of each gateway: which ones the ledger keeps, and which it forgets."""

from collections.abc import Mapping
from typing import Final

from streaming.derive.outcomes import Counted

__all__ = ["KEPT_EPOCHS", "forgotten_before", "later_numbers", "newest_epochs"]

KEPT_EPOCHS: Final = 64
"""Connections of gateways whose last number is remembered, once all that they counted has landed."""


def later_numbers(upto: Mapping[str, Mapping[str, int]], counted: Counted | None) -> dict[str, dict[str, int]]:
    """Both maps, the newest epochs last."""
    merged = {gateway: dict(epochs) for gateway, epochs in upto.items()}
    for gateway, epochs in (counted.upto if counted else {}).items():
        known = merged.setdefault(gateway, {})
        for epoch, number in sorted(epochs.items(), key=lambda each: int(each[0])):
            known[epoch] = max(number, known.pop(epoch, number))
    return merged


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
