"""What a mapping makes of each metric name: skipped, renamed, its unit, its error codes. Decided once per name."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.decoders.mapping_paths import Scope, Template, glob, glob_pattern
from gateway.decoders.mapping_settings import CaseSettings
from gateway.decoders.values import metric_fault

__all__ = ["Names", "Patterns", "Rule", "Rules"]

_MAX_NAMES: Final = 10_000
_MAX_CONTEXTS: Final = 200


@dataclass(slots=True)
class Rule:
    """The verdict on one metric name. `plain`: numbers are kept as they are, under `name` and the unit."""

    name: str
    fault: str | None = None
    skip: bool = False
    plain: bool = True
    text: bool = True
    numeric_text: bool = False
    unit: str | None = None
    unit_template: Template | None = None
    errors: tuple[float, ...] = ()


class Patterns:
    """Patterns to what they stand for; the first that matches the final name or the last key counts."""

    __slots__ = ("_exact", "_globs")

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """In the order in which they are tried."""
        self._exact: dict[str, tuple[int, Any]] = {}
        self._globs: list[tuple[int, re.Pattern[str], bool, Any]] = []
        for place, (pattern, value) in enumerate(pairs):
            if _is_glob(pattern):
                self._globs.append((place, re.compile(glob_pattern(pattern), re.DOTALL), "." in pattern, value))
            else:
                self._exact.setdefault(pattern, (place, value))

    def find(self, name: str, last: str) -> Any:
        """What the first pattern that matches stands for, None where none does."""
        found = [hit for hit in (self._exact.get(name), self._exact.get(last)) if hit is not None]
        best = min(found, key=lambda hit: hit[0]) if found else None
        for place, pattern, whole, value in self._globs:
            if best is not None and best[0] < place:
                break
            if pattern.fullmatch(name if whole else last):
                return value
        return None if best is None else best[1]


class _AnyOf:
    """Whether any of the patterns matches; false where there are none."""

    __slots__ = ("_exact", "_last", "_whole")

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._exact = frozenset(text for text in patterns if not _is_glob(text))
        self._whole = glob(text for text in patterns if _is_glob(text) and "." in text)
        self._last = glob(text for text in patterns if _is_glob(text) and "." not in text)

    def __bool__(self) -> bool:
        return bool(self._exact or self._whole or self._last)

    def __call__(self, name: str, last: str) -> bool:
        if name in self._exact or last in self._exact:
            return True
        whole = self._whole is not None and self._whole(name)
        return bool(whole or (self._last is not None and self._last(last)))


def _is_glob(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern


class Names:
    """One case's rules for names, of all messages."""

    def __init__(self, settings: CaseSettings, route_units: Mapping[str, str], hidden: Iterable[str]) -> None:
        """Compile. `hidden` are flat names that hold the device, the time or an identity: no readings.

        Raises:
            BadPath: a template cannot be read.
        """
        self.prefix = Template(settings.prefix)
        self._renames = {name: Template(text) for name, text in settings.rename.items()}
        self._changing = [
            template for template in (self.prefix, *self._renames.values()) if template.fill_always() is None
        ]
        self.templates = (self.prefix, *self._renames.values())
        self._hidden = frozenset(hidden)
        self._skip, self._keep = _AnyOf(settings.skip), _AnyOf(settings.keep)
        self._text, self._numeric = _AnyOf(settings.text), _AnyOf(settings.numeric_text)
        self._errors = Patterns(settings.errors.items())
        units = [(pattern, Template(unit) if "{" in unit else unit) for pattern, unit in settings.units.items()]
        self._units = Patterns([*route_units.items(), *units])
        self._contexts: dict[tuple[str | None, ...], Rules] = {}

    def under(self, scope: Scope) -> "Rules":
        """The rules at one item: prefix and renames may depend on it."""
        key = tuple([template.fill(scope) for template in self._changing]) if self._changing else ()
        rules = self._contexts.get(key)
        if rules is None:
            if len(self._contexts) >= _MAX_CONTEXTS:
                self._contexts.clear()
            prefix = self.prefix.fill(scope) or ""
            renames = {name: filled for name, template in self._renames.items() if (filled := template.fill(scope))}
            rules = self._contexts[key] = Rules(self, prefix, renames)
        return rules

    def decide(self, flat: str, last: str, prefix: str, renames: dict[str, str]) -> Rule:
        """The verdict on one flat name whose last key is `last`."""
        name = prefix + renames.get(flat, flat)
        last = renames.get(flat, last)
        if flat in self._hidden or self._skip(name, last) or (self._keep and not self._keep(name, last)):
            return Rule(name, skip=True)
        fault = metric_fault(name)
        unit = self._units.find(name, last)
        template = unit if isinstance(unit, Template) else None
        errors = self._errors.find(name, last) or ()
        return Rule(
            name,
            fault,
            plain=fault is None and not errors,
            text=self._text(name, last),
            numeric_text=self._numeric(name, last),
            unit=None if template is not None else unit,
            unit_template=template,
            errors=errors,
        )

    def skips_all_under(self, flat: str, last: str, prefix: str) -> bool:
        """Whether an object or array is no reading, whatever it holds."""
        return flat in self._hidden or self._skip(prefix + flat, last)


class Rules:
    """Verdicts at one prefix. Names come again with every message, so each is decided once; bounded."""

    __slots__ = ("_names", "_prefix", "_renames", "_skipped", "known")

    def __init__(self, names: Names, prefix: str, renames: dict[str, str]) -> None:
        self._names, self._prefix, self._renames = names, prefix, renames
        self.known: dict[str, Rule] = {}
        self._skipped: dict[str, bool] = {}

    def of(self, flat: str, last: str) -> Rule:
        """The verdict on a flat name."""
        rule = self.known.get(flat)
        if rule is None:
            rule = self._names.decide(flat, last, self._prefix, self._renames)
            if rule.fault is None and len(self.known) < _MAX_NAMES:
                self.known[flat] = rule
        return rule

    def skips(self, flat: str, last: str) -> bool:
        """Whether the object or array of this name is left out."""
        found = self._skipped.get(flat)
        if found is None:
            found = self._names.skips_all_under(flat, last, self._prefix)
            if len(self._skipped) < _MAX_NAMES and len(flat) <= 512:
                self._skipped[flat] = found
        return found
