"""Rules of a mapping for each metric name: skipped, renamed, its unit, its error codes. Decided once per name."""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from weakref import WeakSet

import msgspec

from gateway.decoders.mapping.paths import TemplateScope, ValueTemplate
from gateway.decoders.mapping.settings import CaseSettings
from gateway.decoders.mapping.value_rules import NumberRule
from gateway.decoders.values import MAX_METRIC_BYTES, metric_fault
from gateway.glob_patterns import compile_globs, glob_pattern, is_glob

__all__ = ["MetricNameRule", "NameRules", "PatternSet", "PatternTable", "PrefixNameRules"]

_MAX_NAMES: Final = 10_000
_MAX_CONTEXTS: Final = 10_000
"""Most remembered prefixes of one case; further ones are decided each time."""
_MAX_DROPPED: Final = 1000
_MAX_HELD: Final = 100_000
"""Most verdicts of all mappings together, some 50 MB at worst; then all are forgotten, and made again as names come."""


class MetricNameRule(msgspec.Struct, gc=False):
    """Verdict on one metric name. `plain`: numbers are kept unchanged, under `name` and the unit.

    `plain_words`: the same for booleans and words, which have no unit.
    `chosen` is False if a selection (`keep`, `text`) leaves the field out and no `skip` names it. `dropped` counts left out
    fields, except those with device, time or identity.
    """

    name: str
    fault: str | None = None
    skip: bool = False
    plain: bool = True
    text: bool = True
    numeric_text: bool = False
    guess: bool = False
    unit: str | None = None
    unit_template: ValueTemplate | None = None
    errors: tuple[float, ...] = ()
    number: NumberRule | None = None
    chosen: bool = True
    hidden: bool = False
    dropped: int = 0
    plain_words: bool = False


class PatternTable:
    """Patterns and their values; the first that matches the final name or the last key counts."""

    __slots__ = ("_exact", "_last", "_whole")

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Take the pairs in the order in which they are tried."""
        placed = [(pattern, (place, value)) for place, (pattern, value) in enumerate(pairs)]
        self._exact: dict[str, tuple[int, Any]] = {}
        for pattern, hit in placed:
            if not is_glob(pattern):
                self._exact.setdefault(pattern, hit)
        self._whole = _Globs([pair for pair in placed if is_glob(pair[0]) and "." in pair[0]])
        self._last = _Globs([pair for pair in placed if is_glob(pair[0]) and "." not in pair[0]])

    def find(self, name: str, last: str) -> Any:
        """Return the value of the first pattern that matches, None if none does."""
        found = (self._exact.get(name), self._exact.get(last), self._whole.find(name), self._last.find(last))
        hits = [hit for hit in found if hit is not None]
        return min(hits, key=_place)[1] if hits else None


def _first(patterns: PatternTable, name: str, last: str, old: tuple[str, str]) -> Any:
    """Return the value for the new name of a field, else for its old one."""
    found = patterns.find(name, last)
    return found if found is not None or old == (name, last) else patterns.find(*old)


def _place(hit: tuple[int, Any]) -> int:
    return hit[0]


class _Globs:
    """Globs as one regular expression: the number of the group says which of them matched."""

    __slots__ = ("_any", "_hits")

    def __init__(self, pairs: list[tuple[str, tuple[int, Any]]]) -> None:
        self._any = re.compile("|".join(f"({glob_pattern(pattern)})" for pattern, _hit in pairs), re.DOTALL)
        self._hits = [hit for _pattern, hit in pairs]

    def find(self, text: str) -> tuple[int, Any] | None:
        found = self._any.fullmatch(text) if self._hits else None
        return None if found is None or found.lastindex is None else self._hits[found.lastindex - 1]


class PatternSet:
    """Test whether any of the patterns matches; false if there are none."""

    __slots__ = ("_all", "_exact", "_last", "_whole")

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._all = "*" in patterns
        self._exact = frozenset(text for text in patterns if not is_glob(text))
        self._whole = compile_globs(text for text in patterns if is_glob(text) and "." in text)
        self._last = compile_globs(text for text in patterns if is_glob(text) and "." not in text)

    def __bool__(self) -> bool:
        return bool(self._exact or self._whole or self._last)

    def __call__(self, name: str, last: str) -> bool:
        """Return whether one matches this name, or its last key."""
        if self._all or name in self._exact or last in self._exact:
            return True
        whole = self._whole is not None and self._whole(name)
        return bool(whole or (self._last is not None and self._last(last)))


class NameRules:
    """Rules of one case for names, over all messages."""

    def __init__(self, settings: CaseSettings, route_units: Mapping[str, str], hidden: Iterable[str]) -> None:
        """Compile. `hidden` are flat names of the device, the time or an identity: they are not readings.

        Raises:
            BadPath: a template cannot be read.
        """
        self.prefix = ValueTemplate(settings.prefix)
        self._renames = {name: ValueTemplate(text) for name, text in settings.rename.items()}
        self._changing = [
            template for template in (self.prefix, *self._renames.values()) if template.fill_always() is None
        ]
        self.templates = (self.prefix, *self._renames.values())
        self._hidden = frozenset(hidden)
        named = [*settings.rename, *settings.keep, *settings.skip, *settings.units, *settings.errors, *route_units]
        self._indexed = [name for name in (*named, *self._hidden) if "[" in name]
        self._skip, self._keep = PatternSet(settings.skip), PatternSet(settings.keep)
        self._text, self._numeric = PatternSet(settings.text), PatternSet(settings.numeric_text)
        self._guess = PatternSet(settings.guess_numbers)
        self._numbers = PatternTable((pattern, NumberRule(number)) for pattern, number in settings.numbers.items())
        self._errors = PatternTable(settings.errors.items())
        units = [(pattern, ValueTemplate(unit) if "{" in unit else unit) for pattern, unit in settings.units.items()]
        self._units = PatternTable([*route_units.items(), *units])
        self._contexts: dict[tuple[str | None, ...], PrefixNameRules] = {}
        self._dropped: dict[str, int] = {}
        _holders.add(self)

    def fresh(self) -> "NameRules":
        """Return the same rules for another gateway, with its own verdicts and counts."""
        other = copy.copy(self)
        other._contexts, other._dropped = {}, {}
        _holders.add(other)
        return other

    def dropped(self) -> dict[str, int]:
        """Return how often each field was left out, by its name in the payload; the number of names is limited."""
        found = dict(self._dropped)
        for rules in self._contexts.values():
            for flat, count in rules.dropped():
                if flat in found or len(found) < _MAX_DROPPED:
                    found[flat] = found.get(flat, 0) + count
        return found

    def forget(self) -> None:
        """Drop all verdicts."""
        self._dropped = self.dropped()
        _held.names -= sum(rules.held() for rules in self._contexts.values())
        self._contexts.clear()

    def under(self, scope: TemplateScope) -> "PrefixNameRules":
        """Return the rules at one item: prefix and renames may depend on it."""
        if _held.names >= _MAX_HELD:
            for holder in list(_holders):
                holder.forget()
            _held.names = 0  # including verdicts of mappings that no longer exist
        key = tuple([template.fill(scope) for template in self._changing]) if self._changing else ()
        rules = self._contexts.get(key)
        if rules is None:
            # Cut after the limit of a name: longer names stay too long, but a metric does not copy all of them.
            prefix = (self.prefix.fill(scope) or "")[: MAX_METRIC_BYTES + 1]
            renames = {name: filled for name, template in self._renames.items() if (filled := template.fill(scope))}
            if len(self._contexts) >= _MAX_CONTEXTS:
                return PrefixNameRules(self, prefix, renames, most=0)
            rules = self._contexts[key] = PrefixNameRules(self, prefix, renames, most=_MAX_NAMES)
            _held.names += 1
        return rules

    def decide(self, flat: str, last: str, prefix: str, renames: dict[str, str]) -> MetricNameRule:
        """Return the verdict on one flat name whose last key is `last`."""
        name, old = prefix + _renamed(flat, renames), (flat, last)
        last = renames.get(flat, last)
        if flat in self._hidden:
            return MetricNameRule(name, skip=True, hidden=True)
        if self._skip(name, last):
            return MetricNameRule(name, skip=True)
        if self._keep and not self._keep(name, last) and not self._keep(*old):
            return MetricNameRule(name, skip=True, chosen=False)
        fault = metric_fault(name)
        unit = _first(self._units, name, last, old)
        template = unit if isinstance(unit, ValueTemplate) else None
        errors = _first(self._errors, name, last, old) or ()
        number = _first(self._numbers, name, last, old)
        plain, fixed = fault is None and not errors and number is None, None if template is not None else unit or None
        text, numeric, guess = (test(name, last) or test(*old) for test in (self._text, self._numeric, self._guess))
        guess = guess and not numeric and (text or unit is not None)
        words = plain and text and not numeric and unit is None
        return MetricNameRule(
            name, fault, False, plain, text, numeric, guess, fixed, template, errors, number, plain_words=words
        )

    def says(self, flat: str, last: str, prefix: str) -> bool:
        """Return whether the mapping names a field itself: as hidden, left out or renamed."""
        return flat in self._hidden or flat in self._renames or self._skip(prefix + flat, last)

    def mentions(self, beginning: str) -> bool:
        """Return whether a name or pattern of the mapping begins like this, such as with the place of an array's item."""
        return any(name.startswith(beginning) for name in self._indexed)

    def hides(self, flat: str) -> bool:
        """Return whether a field holds device, time or identity."""
        return flat in self._hidden

    def skips_all_under(self, flat: str, last: str, prefix: str) -> bool:
        """Return whether an object or array is not a reading, whatever it contains."""
        return flat in self._hidden or self._skip(prefix + flat, last)


def _renamed(flat: str, renames: dict[str, str]) -> str:
    """Return the new name of a field, or of the object or array that contains it."""
    if flat in renames:
        return renames[flat]
    outer = [old for old in renames if flat.startswith(old) and flat[len(old) : len(old) + 1] in (".", "[")]
    longest = max(outer, key=len, default="")
    return renames[longest] + flat[len(longest) :] if longest else flat


class PrefixNameRules:
    """Verdicts at one prefix. Names recur with every message, so each is decided once; bounded."""

    __slots__ = ("_most", "_names", "_objects", "_prefix", "_renames", "_skipped", "known")

    def __init__(self, names: NameRules, prefix: str, renames: dict[str, str], *, most: int) -> None:
        """Start without verdicts; `most` is how many of each kind are remembered."""
        self._most = most
        self._names, self._prefix, self._renames = names, prefix, renames
        self.known: dict[str, MetricNameRule] = {}
        self._skipped: dict[str, bool] = {}
        self._objects: dict[str, int] = {}

    def dropped(self) -> Iterator[tuple[str, int]]:
        """Yield names of fields that were left out, and how often; objects and arrays by their own name."""
        yield from ((flat, rule.dropped) for flat, rule in self.known.items() if rule.dropped)
        yield from self._objects.items()

    def held(self) -> int:
        """Number of verdicts, plus one for itself."""
        return 1 + len(self.known) + len(self._skipped)

    def of(self, flat: str, last: str) -> MetricNameRule:
        """Return the verdict on a flat name."""
        rule = self.known.get(flat)
        if rule is None:
            rule = self._names.decide(flat, last, self._prefix, self._renames)
            if rule.fault is None and len(self.known) < self._most:
                self.known[flat] = rule
                _held.names += 1
        return rule

    def says(self, flat: str, last: str) -> bool:
        """Return whether the mapping names a field itself."""
        return self._names.says(flat, last, self._prefix)

    def mentions(self, beginning: str) -> bool:
        """Return whether a name or pattern of the mapping begins like this."""
        return self._names.mentions(beginning)

    def skips(self, flat: str, last: str) -> bool:
        """Return whether the object or array of this name is left out."""
        found = self._skipped.get(flat)
        if found is None:
            found = self._names.skips_all_under(flat, last, self._prefix)
            if len(self._skipped) < self._most and len(flat) <= MAX_METRIC_BYTES:
                self._skipped[flat] = found
                _held.names += 1
        if found and not self._names.hides(flat):
            self._count(flat)
        return found

    def _count(self, flat: str) -> None:
        if flat in self._objects or (len(self._objects) < _MAX_DROPPED and len(flat) <= MAX_METRIC_BYTES):
            self._objects[flat] = self._objects.get(flat, 0) + 1


class _Held:
    """Number of verdicts of all mappings."""

    names = 0


_held: Final = _Held()
_holders: Final[WeakSet[NameRules]] = WeakSet()
