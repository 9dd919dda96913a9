"""Names of values: the object that holds them, names without meaningless endings, patterns for what is left out."""

from collections.abc import Iterable

from gateway.suggest.field_roles import FieldRoles
from gateway.suggest.fields import SampleField, Step, flat_name
from gateway.suggest.key_units import split_unit
from gateway.suggest.vocabulary import ENVELOPES, normalize_key

__all__ = ["beside_value", "envelope_prefix", "measured_fields", "shorten_names", "skip_patterns"]


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
