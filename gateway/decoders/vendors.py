"""Rules of a device vendor for the output of its decoders, whichever network server wraps it.

A network server's mapping says where device, time, identity and the decoded object are. A vendor's table `[vendors.NAME]`
describes the object itself: numbers that are written as text, numbers that mean a broken sensor, units, fields that are
not readings, histories. A mapping names the vendors that it allows (`vendors`); the first that takes the object is used.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gateway.decoders.flatten import Trail
from gateway.decoders.mapping.conditions import MatchConditions
from gateway.decoders.mapping.names import NameRules
from gateway.decoders.mapping.paths import BadPath, parse_path
from gateway.decoders.mapping.settings import CaseSettings
from gateway.decoders.mapping.value_rules import ValueRules
from gateway.decoders.mapping.value_times import compile_time_source
from gateway.decoders.vendor_settings import VendorSettings
from gateway.glob_patterns import compile_globs

__all__ = ["CaseVendors", "CompiledVendor", "join_rules", "named_vendors"]

_MAX_STRANGERS: Final = 1000
_MAX_NAMES: Final = 100
_MAX_CHARACTERS: Final = 2000
"""Most characters of the names and the brand of a remembered object."""

_JOINED = ("rename", "numbers", "errors", "units", "unit_names")
_ADDED = ("skip", "numeric_text", "no_values")


class CompiledVendor:
    """Rules of a vendor, compiled for one case of a mapping."""

    __slots__ = ("_brands", "_items", "_members", "_shapes", "names", "shape", "times")

    def __init__(self, settings: VendorSettings, names: NameRules, shape: ValueRules) -> None:
        """Compile; `names` and `shape` are those of `join_rules` settings.

        Raises:
            BadPath: a path cannot be read.
        """
        self.names, self.shape = names, shape
        self._brands = compile_globs(settings.brands)
        self._shapes = [MatchConditions(shape) for shape in settings.shapes]
        # One member that each shape needs: most objects have none of them, and need no further check.
        needed = [
            next((name for name, value in shape.items() if value is not False), None) for shape in settings.shapes
        ]
        plain = all(name is not None and parse_path(name).steps == (name,) for name in needed)
        self._members = frozenset(name for name in needed if name is not None) if plain else None
        self._items = [parse_path(text, wild=True) for text in settings.items]
        self.times = [compile_time_source(source) for source in settings.time]

    def fresh(self) -> "CompiledVendor":
        """Return the same rules for another gateway: see `NameRules.fresh`."""
        other = copy.copy(self)
        other.names = self.names.fresh()
        return other

    def may_take(self, names: Iterable[str], brand: str | None) -> bool:
        """Return whether an object with these members may be this vendor's, whatever their values."""
        if brand is not None and self._brands is not None and self._brands(brand.lower()):
            return True
        return self._members is None or not self._members.isdisjoint(names)

    def takes(self, body: object, brand: str | None) -> bool:
        """Return whether a decoded object is this vendor's, by the network server's name for it or by its members."""
        if brand is not None and self._brands is not None and self._brands(brand.lower()):
            return True
        if self._members is not None and (type(body) is not dict or self._members.isdisjoint(body)):
            return False
        return any(shape.hold(body) for shape in self._shapes)

    @property
    def has_items(self) -> bool:
        """Return whether an object may hold several items."""
        return len(self._items) > 1 or bool(self._items[0].steps)

    def items(self, body: Any, trail: Trail) -> Iterator[tuple[Any, Trail]]:
        """Yield the items of a decoded object, with their places."""
        for path in self._items:
            if path.steps:
                yield from ((value, place) for value, place, _keys in path.spread(body, trail))
            else:
                yield body, trail


class CaseVendors(list[CompiledVendor]):
    """Vendors of a case, in the order in which they are tried.

    Remembers objects without a vendor by their names and brand alone: most recur with every message.
    """

    def __init__(self, vendors: Iterable[CompiledVendor]) -> None:
        super().__init__(vendors)
        self._strangers: set[tuple[str | None, tuple[str, ...]]] = set()

    def choose(self, body: object, brand: str | None) -> CompiledVendor | None:
        """Return the first vendor that takes a decoded object."""
        if type(body) is dict and len(body) <= _MAX_NAMES:
            key = brand, tuple(body)
            if key in self._strangers:
                return None
            if not any(vendor.may_take(body, brand) for vendor in self):
                if len(self._strangers) >= _MAX_STRANGERS:
                    self._strangers.clear()
                if len(brand or "") + sum(map(len, body)) <= _MAX_CHARACTERS:
                    self._strangers.add(key)
                return None
        return next((vendor for vendor in self if vendor.takes(body, brand)), None)


def join_rules(settings: VendorSettings, case: CaseSettings) -> CaseSettings:
    """Return the settings of a vendor over those of a mapping's case: tables and lists of patterns are joined."""
    given: dict[str, Any] = {name: getattr(settings, name) | _less(case, settings, name) for name in _JOINED}
    given |= {name: getattr(settings, name) + getattr(case, name) for name in _ADDED}
    given |= {"text": settings.text, "quantity": settings.quantity or case.quantity}
    return case.model_copy(update=given)


def _less(case: CaseSettings, settings: VendorSettings, name: str) -> dict[str, Any]:
    return {key: value for key, value in getattr(case, name).items() if key not in getattr(settings, name)}


def named_vendors(patterns: Iterable[str], known: Mapping[str, VendorSettings]) -> list[VendorSettings]:
    """Return the vendors that a mapping allows, in the order in which they are tried.

    Raises:
        BadPath: a pattern matches no vendor.
    """
    found: dict[str, VendorSettings] = {}
    for pattern in patterns:
        test = compile_globs((pattern,))
        matching = {name: settings for name, settings in known.items() if test is not None and test(name)}
        if not matching:
            message = f"vendors: no vendor matches {pattern!r} (known: {', '.join(sorted(known)) or 'none'})"
            raise BadPath(message)
        found |= matching
    return list(found.values())
