"""A draft as TOML, laid out like a file written by a person."""

import json
import re
from typing import Any

from gateway.suggest.draft import Draft

__all__ = ["toml_key", "toml_lines", "write_toml"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WIDEST = 110
_FIRST = ("filter", "device", "metric", "zone", "decoder", "ignore", "time", "units", "tags")


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
        lines += [line for name, value in draft.mapping.items() for line in toml_lines(name, value)]
    return "\n".join(lines) + "\n"


def toml_lines(name: str, value: Any) -> list[str]:
    """Return a member of a table; a long list has a line for each item."""
    name = toml_key(name)
    text = f"{name} = {_value(value)}"
    if len(text) <= _WIDEST or not isinstance(value, list | tuple):
        return [text]
    return [f"{name} = [", *(f"    {_value(item)}," for item in value), "]"]


def _is_wide(name: str, table: dict[str, Any]) -> bool:
    return len(f"{name} = {_value(table)}") > _WIDEST


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        inner = ", ".join(f"{toml_key(str(key))} = {_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _text(str(value))


def toml_key(text: str) -> str:
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
