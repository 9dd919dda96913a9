"""Units of a draft: fields of the payload that name them, and suffixes of keys."""

from dataclasses import dataclass, field

from gateway.decoders.plain_value import read_scalar
from gateway.suggest.field_roles import FieldRoles, LeftOutField
from gateway.suggest.fields import SampleField, Step, flat_name, path_text
from gateway.suggest.item_layout import SingleValue
from gateway.suggest.key_units import UNIT_NAMES, unit_of_key
from gateway.suggest.value_names import beside_value, measured_fields
from gateway.suggest.vocabulary import SINGLE

__all__ = ["FoundUnits", "find_units", "unit_tree"]

_NOBODY = "is the unit of an unknown value"


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
