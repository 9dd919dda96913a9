"""Table of numbers that no sensor measured, changed by one profile."""

from collections.abc import Callable

from gateway.plausible.table import PlausibilityCheck, PlausibilityChecks, PlausibilityTable, load_table
from gateway.profiles.model import Profile
from gateway.profiles.rule import MetricRule

__all__ = ["AcceptedNumbers"]


class AcceptedNumbers(PlausibilityChecks):
    """Checks with the profile's units, accepted entries and ranges; the profile judges numbers outside its own ranges."""

    def __init__(self, profile: Profile, rule_of: Callable[[str], MetricRule | None]) -> None:
        """Take the profile, and `rule_of`, which finds the rules of a metric."""
        super().__init__()
        self._accept, self._rule_of = profile.accept, rule_of
        self._tables: dict[tuple[frozenset[str], bool], PlausibilityTable] = {}

    def _find(self, metric: str, unit: str | None) -> PlausibilityCheck:
        rule = self._rule_of(metric)
        spelled = unit if rule is None else rule.unit_of(unit)
        found = self._table(rule).watch(metric, spelled)
        if rule is not None and rule.has_range and rule.rules.convert_to in (None, spelled):
            found = found.within(rule.low, rule.high)
        return found

    def _table(self, rule: MetricRule | None) -> PlausibilityTable:
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
