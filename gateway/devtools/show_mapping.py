"""A mapping as TOML, with everything that it extends, and the rules of a vendor."""

from typing import Any, Final

from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.vendor_settings import VendorSettings
from gateway.suggest.toml_text import toml_key, toml_lines

__all__ = ["show_mapping", "show_vendor"]

_SHORT: Final = 3
"""Most entries of a table that fit in one line."""


def show_mapping(name: str, settings: MappingSettings) -> str:
    """Return the table `[mappings.NAME]` and those inside it."""
    given = settings.model_dump(mode="json", exclude_unset=True)
    cases = given.pop("cases", [])
    head = f"mappings.{toml_key(name)}"
    lines = _table(f"[{head}]", head, given)
    for case in cases:
        lines += ["", *_table(f"[[{head}.cases]]", f"{head}.cases", case)]
    return "\n".join(lines) + "\n"


def show_vendor(name: str, settings: VendorSettings) -> str:
    """Return the table `[vendors.NAME]`."""
    head = f"vendors.{toml_key(name)}"
    return "\n".join(_table(f"[{head}]", head, settings.model_dump(mode="json", exclude_unset=True))) + "\n"


def _table(title: str, head: str, given: dict[str, Any]) -> list[str]:
    long = {name for name, value in given.items() if isinstance(value, dict) and len(value) > _SHORT}
    lines = [title]
    for name, value in given.items():
        if name not in long and value is not None:
            lines += toml_lines(name, _without_none(value))
    for name, table in given.items():
        if name in long:
            lines += ["", f"[{head}.{toml_key(name)}]"]
            for key, value in table.items():
                lines += toml_lines(key, _without_none(value))
    return lines


def _without_none(value: Any) -> Any:
    """Remove None values, because TOML has no null."""
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list) else value
