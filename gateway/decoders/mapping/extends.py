"""Variants: `extends = "rtl_433"` is that mapping with changes.

Settings of the variant win. Tables (`units`, `rename`, `errors`, `inside` …) are joined, the variant's entries first. A
list replaces the inherited one; `"..."` in a list stands for the inherited entries. `cases` of the variant come before the
inherited ones. Tables that are one rule (`quantity`, `quality`, `time_offset` …) replace the inherited table as a whole.
"""

from collections.abc import Mapping
from typing import Any, Final

from gateway.decoders.mapping.settings import CaseSettings, MappingSettings

__all__ = ["INHERITED", "extend_mapping", "inherit_settings", "resolve_extends"]

INHERITED: Final = "..."
_JOINED: Final = ("when", "inside", "numbers", "units", "unit_names", "errors", "rename", "tags", "flags")


def inherit_settings(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name: the given ones, over the inherited ones."""
    joined = dict(base)
    for name, value in given.items():
        below = base.get(name)
        if name in _JOINED and below:
            joined[name] = value | {key: entry for key, entry in below.items() if key not in value}
        elif isinstance(value, tuple) and INHERITED in value:
            at = value.index(INHERITED)
            joined[name] = (*value[:at], *(one for one in below or () if one not in value), *value[at + 1 :])
        else:
            joined[name] = value
    return joined


def extend_mapping(base: MappingSettings, variant: MappingSettings) -> MappingSettings:
    """Return one mapping with the changes of another; what `base` itself extends is still to be followed."""
    given, below = _set(variant), _set(base)
    given.pop("extends", None)
    if "cases" in given:
        given["cases"] += below.get("cases", ())
    return MappingSettings(**inherit_settings(below, given))


def resolve_extends(name: str, settings: MappingSettings, known: Mapping[str, MappingSettings]) -> MappingSettings:
    """Return the mapping with what it extends, as far as `known` has it. One that extends its own name means another's.

    Raises:
        ValueError: mappings extend each other.
    """
    way = [name]
    while (wanted := settings.extends) is not None and wanted in known and wanted != way[-1]:
        if wanted in way:
            message = f"mappings extend each other: {' -> '.join([*way, wanted])}; remove one `extends`"
            raise ValueError(message)
        way.append(wanted)
        settings = extend_mapping(known[wanted], settings)
    return settings


def _set(settings: CaseSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.model_fields_set}
