"""The table of numbers that no sensor measured, as one profile changes it."""

from collections.abc import Callable
from typing import Final

from gateway.plausible.table import Table, Watch, load_table
from gateway.profiles.model import Profile
from gateway.profiles.rule import MetricRule

__all__ = ["AcceptedNumbers"]

_MOST_METRICS: Final = 10_000
_MOST_CHARACTERS: Final = 200
"""Of a metric or unit that is remembered."""


class AcceptedNumbers:
    """Knows the profile's units, the entries that it accepts, and its own ranges: what is outside of them is its own to judge."""

    def __init__(self, profile: Profile, rule_of: Callable[[str], MetricRule | None]) -> None:
        """`rule_of` finds the rules of a metric."""
        self._accept, self._rule_of = profile.accept, rule_of
        self._tables: dict[tuple[frozenset[str], bool], Table] = {}
        self.known: dict[str | None, dict[str, Watch]] = {}
        self._kept = 0

    def watch(self, metric: str, unit: str | None) -> Watch:
        """What is asked of the numbers of this metric and unit."""
        try:
            return self.known[unit][metric]
        except KeyError:
            pass
        rule = self._rule_of(metric)
        spelled = unit if rule is None else rule.unit_of(unit)
        found = self._table(rule).watch(metric, spelled)
        if rule is not None and rule.has_range and rule.rules.convert_to in (None, spelled):
            found = found.within(rule.low, rule.high)
        if len(metric) <= _MOST_CHARACTERS and len(unit or "") <= _MOST_CHARACTERS:
            if self._kept >= _MOST_METRICS:
                self.known.clear()
                self._kept = 0
            self.known.setdefault(unit, {})[metric] = found
            self._kept += 1
        return found

    def _table(self, rule: MetricRule | None) -> Table:
        accepted, ranges = frozenset(self._accept), True
        if rule is not None:
            accepted |= frozenset(rule.rules.accept)
            ranges = not rule.has_range
        if not accepted and ranges:
            return load_table()
        key = accepted, ranges
        if key not in self._tables:
            self._tables[key] = load_table().without(accepted, ranges=ranges)
        return self._tables[key]
