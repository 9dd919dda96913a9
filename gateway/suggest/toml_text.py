"""Drafts, mappings and rules of vendors as TOML, laid out like a file written by a person.

A mapping includes everything that it extends.
"""

import json
import re
from typing import Any, Final

from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.vendor_settings import VendorSettings
from gateway.suggest.draft import Draft

__all__ = ["show_mapping", "show_vendor", "write_toml"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WIDEST: Final = 110
_FIRST: Final = ("filter", "device", "metric", "zone", "decoder", "ignore", "time", "units", "tags")
_SHORT: Final = 3
"""Most entries of a table that fit in one line."""


def write_toml(draft: Draft) -> str:
    """Return the route as a `[[routes]]` table with its notes as comments."""
    lines = [f"# {_comment(note)}" for note in draft.notes]
    left = ", ".join(dict.fromkeys(one.name for one in draft.left_out))
    if left:
        lines += _wrap(f"left out: {_comment(left)}")
    lines.append("[[routes]]")
    route = {name: draft.route[name] for name in _FIRST if name in draft.route} | draft.route
    lines += [f"{name} = {_value(value)}" for name, value in route.items() if not isinstance(value, dict)]
    lines += [
        f"{name} = {_value(value)}" for name, value in route.items() if isinstance(value, dict) and name != "mapping"
    ]
    if draft.mapping:
        lines += ["", "[routes.mapping]"]
        lines += [line for name, value in draft.mapping.items() for line in _lines(name, value)]
    return "\n".join(lines) + "\n"


def show_mapping(name: str, settings: MappingSettings) -> str:
    """Return the table `[mappings.NAME]` and those inside it."""
    given = settings.model_dump(mode="json", exclude_unset=True)
    cases = given.pop("cases", [])
    head = f"mappings.{_key(name)}"
    lines = _table(f"[{head}]", head, given)
    for case in cases:
        lines += ["", *_table(f"[[{head}.cases]]", f"{head}.cases", case)]
    return "\n".join(lines) + "\n"


def show_vendor(name: str, settings: VendorSettings) -> str:
    """Return the table `[vendors.NAME]`."""
    head = f"vendors.{_key(name)}"
    return "\n".join(_table(f"[{head}]", head, settings.model_dump(mode="json", exclude_unset=True))) + "\n"


def _table(title: str, head: str, given: dict[str, Any]) -> list[str]:
    long = {name for name, value in given.items() if isinstance(value, dict) and len(value) > _SHORT}
    lines = [title]
    for name, value in given.items():
        if name not in long and value is not None:
            lines += _lines(name, _without_none(value))
    for name, table in given.items():
        if name in long:
            lines += ["", f"[{head}.{_key(name)}]"]
            for key, value in table.items():
                lines += _lines(key, _without_none(value))
    return lines


def _without_none(value: Any) -> Any:
    """Remove None values, because TOML has no null."""
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list) else value


def _lines(name: str, value: Any) -> list[str]:
    """Return a member of a table; a long list has a line for each item."""
    name = _key(name)
    text = f"{name} = {_value(value)}"
    if len(text) <= _WIDEST or not isinstance(value, list | tuple):
        return [text]
    return [f"{name} = [", *(f"    {_value(item)}," for item in value), "]"]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(str(key))} = {_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _text(str(value))


def _key(text: str) -> str:
    """Return a key, in quotes if it needs them."""
    return text if _BARE.fullmatch(text) else _text(text)


def _text(text: str) -> str:
    # JSON's escapes are TOML's. Control characters for a terminal are escaped; half of a surrogate pair is not text.
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(sign if sign.isprintable() else _escape(sign) for sign in json.dumps(clean, ensure_ascii=False))


def _escape(sign: str) -> str:
    return f"\\U{ord(sign):08x}" if ord(sign) > 0xFFFF else f"\\u{ord(sign):04x}"


def _comment(text: str) -> str:
    """Return text that stays on its line."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _wrap(text: str) -> list[str]:
    lines, line = [], "#"
    for word in text.split(" "):
        if len(line) + len(word) > _WIDEST and line != "#":
            lines.append(line)
            line = "#  "
        line += f" {word}"
    return [*lines, line]
