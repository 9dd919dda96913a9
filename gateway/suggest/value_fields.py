"""Values of a draft: their names without meaningless endings, numbers in texts, units, and patterns for fields left out.

A unit comes from a field of the payload that names it, or from the suffix of a key.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.decoders.plain_value import read_scalar
from gateway.suggest.field_roles import FieldRoles, LeftOutField, comma_number_suffix
from gateway.suggest.fields import SampleField, Step, flat_name, path_text
from gateway.suggest.item_layout import SingleValue
from gateway.suggest.key_units import UNIT_NAMES, split_unit, unit_of_key
from gateway.suggest.vocabulary import ENVELOPES, SINGLE, normalize_key

__all__ = [
    "FoundUnits",
    "beside_value",
    "envelope_prefix",
    "find_units",
    "measured_fields",
    "set_numbers",
    "shorten_names",
    "skip_patterns",
    "unit_tree",
]

_MOST_NUMERIC: Final = 4
"""Most names of numbers in texts; for more, all texts may be numbers."""
_NOBODY = "is the unit of an unknown value"


def measured_fields(roles: FieldRoles) -> list[SampleField]:
    """Return the values that are not texts, if there are any: texts around them describe the message."""
    return [one for one in roles.values if not isinstance(one.first, str) or one in roles.numeric] or roles.values


def envelope_prefix(base: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the part of a base that is only an envelope."""
    kept = 0
    for place, step in enumerate(base):
        if not isinstance(step, str) or normalize_key(step) not in ENVELOPES:
            break
        kept = place + 1
    return base[:kept]


def shorten_names(names: dict[tuple[Step, ...], str], paired: set[tuple[Step, ...]]) -> dict[tuple[Step, ...], str]:
    """Return names without a meaningless ending: `temperature.properties.value` is `temperature`, `Wind [m/s]` is `Wind`.

    Objects in `paired` also hold a unit: they are one reading by themselves.
    """
    found: dict[tuple[Step, ...], str] = {}
    for steps, name in names.items():
        parts = name.split(".")
        while len(parts) > 1 and parts[-1] in ("properties", "value", "val"):
            parts.pop()
        in_brackets = split_unit(name) if len(steps) == 1 else None
        if in_brackets is not None:
            found[steps] = in_brackets[0]
        elif len(parts) < len(name.split(".")) and steps[:-1] not in paired:
            found[steps] = ".".join(parts)
    taken = [found.get(steps, name) for steps, name in names.items()]
    return found if len(set(taken)) == len(taken) else {}


def skip_patterns(left_out: Iterable[SampleField], kept: Iterable[SampleField], base: tuple[Step, ...]) -> list[str]:
    """Return patterns that leave these fields out and keep all others.

    An array of which nothing is kept is left out as a whole; a member of each of its objects by one pattern for all.
    """
    kept_steps = [one.steps[len(base) :] for one in kept if one.under(base)]
    kept_forms = {_form(steps) for steps in kept_steps}
    kept_arrays = {steps[:place] for steps in kept_steps for place, step in enumerate(steps) if isinstance(step, int)}
    found: list[str] = []
    for one in left_out:
        if not one.under(base):
            continue
        steps = one.steps[len(base) :]
        first = next((place for place, step in enumerate(steps) if isinstance(step, int)), None)
        if first is None:
            found.append(flat_name(steps))
        elif first and steps[:first] not in kept_arrays:
            found.append(flat_name(steps[:first]))
        else:
            form = _form(steps)
            found.append(form if "." in form and form not in kept_forms else flat_name(steps))
    return [name for name in dict.fromkeys(found) if name]


def _form(steps: tuple[Step, ...]) -> str:
    """Return the name with any place in arrays."""
    return flat_name(tuple(step if isinstance(step, str) else 0 for step in steps)).replace("[0]", "[*]")


def beside_value(unit: SampleField, roles: FieldRoles) -> bool:
    """Return whether value and unit are the only two members of their object: then they are one reading by themselves."""
    beside = [one for one in roles.values if one.steps[:-1] == unit.steps[:-1]]
    return len(beside) == 1 and beside[0].steps[-1] == "value" and unit.steps[-1] == "unit"


def set_numbers(mapping: dict[str, Any], roles: FieldRoles, names: dict[tuple[Step, ...], str], *, alone: bool) -> None:
    """Set in a mapping which texts are numbers. `alone`: an item holds one value, or each object does."""
    numeric = [names.get(one.steps, one.name) for one in roles.numeric]
    if alone:
        numeric = ["*"] if roles.numeric else []
    if numeric and mapping.get("format", {}).get("kind") not in ("rows", "pairs"):
        mapping["numeric_text"] = ["*"] if len(numeric) > _MOST_NUMERIC else numeric
    for one in roles.values:
        behind = comma_number_suffix(one.values.values())
        if behind is None:
            continue
        name = "*" if alone else names.get(one.steps, one.name)
        mapping.setdefault("numbers", {})[name] = {"text": f"{{number}}{behind}", "decimal": ","}
        if behind.strip():
            mapping.setdefault("units", {}).setdefault(name, UNIT_NAMES.get(behind.strip(), behind.strip()))


@dataclass(slots=True)
class FoundUnits:
    """`units` and `unit_names` of a mapping, and the unit fields without a value."""

    units: dict[str, str] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    left_out: list[LeftOutField] = field(default_factory=list)


def find_units(roles: FieldRoles, single: SingleValue | None, names: dict[tuple[Step, ...], str]) -> FoundUnits:
    """Return the units of the values. `names` are the metric names of the values by their steps."""
    found = FoundUnits()
    texts = (str(text).strip() for one in roles.numeric for text in one.values.values())
    in_payload = {named for text in texts if (named := read_scalar(text)[1])}
    for unit in roles.units:
        in_payload.update(str(value) for value in unit.values.values())
        if not unit.can_be_named:
            continue
        if single is not None and unit.steps[:-1] == single.value.steps[: len(unit.steps) - 1]:
            found.units["*"] = f"{{{unit.reference}}}"
        if single is None and not beside_value(unit, roles):
            of = [one for one in _values_of(unit, roles) if one.steps in names]
            found.units |= {names[one.steps]: f"{{{unit.reference}}}" for one in of}
            if not of:
                found.left_out.append(LeftOutField(unit.name, _NOBODY))
    if single is None:
        for one in roles.values:
            name = names.get(one.steps, one.name)
            key = next((step for step in reversed(one.steps) if isinstance(step, str)), "")
            unit_text = unit_of_key(key)
            if unit_text is not None and not isinstance(one.first, bool):
                found.units.setdefault(name, unit_text)
    found.called = {text: UNIT_NAMES[text] for text in sorted(in_payload) if text in UNIT_NAMES}
    return found


def _values_of(unit: SampleField, roles: FieldRoles) -> list[SampleField]:
    """Return the values to which a unit next to them, or around them, belongs; none if that is uncertain."""
    around = unit.steps[:-1]
    numbers = [one for one in roles.values if not isinstance(one.first, str | bool) or one in roles.numeric]
    inside = [one for one in numbers if one.under(around)]
    beside = [one for one in numbers if one.steps[:-1] == around]
    valued = [one for one in beside if one.key in SINGLE]
    if valued:
        # The others count, number or describe the value.
        return valued
    named = [one for one in inside if one.key in SINGLE]
    if len(named) == 1:
        return named
    if beside and len(inside) > len(beside):
        return []
    return beside or (inside if len({one.steps[: len(around) + 1] for one in inside}) == 1 else [])


def unit_tree(roles: FieldRoles, outer: list[SampleField]) -> tuple[str, list[SampleField]] | None:
    """Return an object around the items that holds a text for each value under the same key, their units; and its fields."""
    keys = {one.steps[-1] for one in measured_fields(roles) if len(one.steps) == 1}
    objects: dict[tuple[str, tuple[Step, ...]], list[SampleField]] = {}
    for one in outer:
        if isinstance(one.first, str) and len(one.steps) > 1:
            objects.setdefault((one.root, one.steps[:-1]), []).append(one)
    for (root, steps), fields in objects.items():
        if keys and keys <= {one.steps[-1] for one in fields} and "unit" in flat_name(steps).lower():
            return path_text(steps, root=root), fields
    return None
