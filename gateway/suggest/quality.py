"""Certain signs that a value is not a measurement: a field that says how good it is, or the number itself.

Some numbers, such as -127, mean a broken or missing sensor for any quantity.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.suggest.field_roles import QUALITY_SAYS, FieldRoles
from gateway.suggest.fields import SampleField, Step, path_text
from gateway.suggest.item_layout import Quantities

__all__ = ["FoundErrors", "FoundQuality", "find_errors", "find_quality"]

_GOOD: Final = frozenset({"true", "192", "good", "ok", "valid"})
"""Qualities that are good in every system: of booleans, of OPC, in words."""
_NOT_GOOD: Final = frozenset(
    (
        "false", "0", "bad", "invalid", "error", "fault", "fail", "failed", "nok", "not ok", "uncertain", "64", "stale",
        "questionable",
    )
)  # fmt: skip
_SENTINELS: Final = frozenset(
    {-127.0, -32768.0, 32767.0, 65535.0, 6553.5, 655.35, -3276.8, 3276.7, -327.68, 327.67, 4294967295.0, 2147483647.0}
    | {-2147483648.0, -999.0, -9999.0, -999.9, 999.9, 9999.0, 99999.0}
)


@dataclass(slots=True)
class FoundQuality:
    """The `quality` of a mapping, and sentences for a person."""

    settings: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)

    def unsure(self, one: SampleField) -> None:
        """Note that a field is not used."""
        self.notes.append(
            f"quality: {one.name} is not used, because its good values are unknown; name them in `quality`"
        )


def find_quality(roles: FieldRoles, quantities: Quantities | None, *, listed: bool) -> FoundQuality:
    """Return the quality of the item, or of each of its quantities.

    `listed`: the item holds one value; else only a quality of the whole item, such as OPC's 192, is used.
    """
    fields = [one for one, why in roles.left_out if why == QUALITY_SAYS and one.can_be_named]
    if quantities is not None:
        return _of_each([one for one in fields if quantities.holds(one)], quantities)
    found = FoundQuality()
    for one in fields:
        good = _good(one.values.values())
        if not listed and (len(one.steps) > 1 or not good):
            continue
        if not good or not _known(one.values.values()):
            found.unsure(one)
        elif found.settings is None:
            found.settings = {"path": one.path, "good": good}
            found.notes.append(f"quality: {one.name} must be {' or '.join(good)}, else the value is rejected")
    return found


def _of_each(inside: list[SampleField], quantities: Quantities) -> FoundQuality:
    found = FoundQuality()
    values = [value for one in inside for value in one.values.values()]
    keys = {one.steps[-1] for one in inside if one.steps[:-1] in quantities.objects}
    good = _good(values)
    if len(keys) == 1 and good and _known(values):
        path = path_text(tuple(keys))
        found.settings = {"path": path, "good": good}
        found.notes.append(f"quality: {path} of each value must be {' or '.join(good)}, else it is rejected")
    elif inside:
        found.unsure(inside[0])
    return found


def _good(values: Iterable[Any]) -> list[str]:
    good = [value for value in values if str(value).lower() in _GOOD]
    return list(dict.fromkeys(str(value).lower() if isinstance(value, bool) else str(value) for value in good))


def _known(values: Iterable[Any]) -> bool:
    return {str(value).lower() for value in values} <= _GOOD | _NOT_GOOD


@dataclass(slots=True)
class FoundErrors:
    """The `errors` of a mapping, and sentences for a person."""

    settings: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def find_errors(roles: FieldRoles, names: dict[tuple[Step, ...], str]) -> FoundErrors:
    """Return the sentinels among the values. `names` are the metric names of the values by their steps."""
    found = FoundErrors()
    for one in roles.values:
        codes = sorted({code for value in one.values.values() if (code := _sentinel_of(value)) is not None})
        if codes:
            found.settings[names.get(one.steps, one.name)] = codes
            found.notes.append(f"sentinel: {one.name} = {codes[0]:g} means a broken sensor; it is rejected")
    return found


def _sentinel_of(value: Any) -> float | None:
    """Return the sentinel that this is, None if it is a usual value."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
    return number if number in _SENTINELS else None
