"""Objects that are one reading each: `{"temperature": {"value": 21.5, "type": "Number"}}`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gateway.suggest.field_roles import FieldRoles
from gateway.suggest.fields import SampleField, Step, path_text
from gateway.suggest.time_fields import FoundTime

__all__ = ["Quantities", "find_quantities"]

_VALUE_KEYS = ("value", "val", "v")


@dataclass(frozen=True, slots=True)
class Quantities:
    """Settings of a mapping's `quantity`, and the objects that are one."""

    settings: dict[str, Any]
    objects: frozenset[tuple[Step, ...]]

    @property
    def around(self) -> tuple[Step, ...]:
        """Innermost object that holds all of them."""
        parents = [steps[:-1] for steps in self.objects]
        base = min(parents, key=len)
        while not all(steps[: len(base)] == base for steps in parents):
            base = base[:-1]
        return base

    def holds(self, one: SampleField) -> bool:
        """Return whether a field is inside one of the objects."""
        return any(one.under(steps) for steps in self.objects)


def find_quantities(roles: FieldRoles, times: Iterable[FoundTime]) -> Quantities | None:
    """Return the quantities of a document, None if there are none, or if the default rule reads them."""
    valued = [
        one for one in roles.values if one.key in _VALUE_KEYS and len(one.steps) > 1 and isinstance(one.steps[-1], str)
    ]
    keys = {one.steps[-1] for one in valued}
    if len(valued) != len(roles.values) or len(keys) != 1 or len({one.steps for one in valued}) < 1:
        return None
    objects = frozenset(one.steps[:-1] for one in valued)
    # A single object under an envelope's name is not a quantity: its name says nothing.
    beside = [one for one, _why in roles.left_out if one.steps[:-1] in objects]
    units = {one.steps[-1] for one in roles.units if one.steps[:-1] in objects}
    own_times = [time for time in times if time.field.steps[:-1] in objects]
    [key] = keys
    if (not beside and not own_times and key == "value" and units <= {"unit"}) or any(
        isinstance(steps[-1], int) for steps in objects
    ):
        return None
    settings: dict[str, Any] = {"value": key}
    if len(units) == 1:
        settings["unit"] = units.pop()
    if own_times:
        settings["time"] = {"path": path_text(own_times[0].field.steps[-1:]), "format": own_times[0].format}
    return Quantities(settings, objects)
