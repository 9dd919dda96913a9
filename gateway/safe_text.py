"""Values and JSON paths as short, safe text, for the parts of a device's bytes in a dead letter."""

import re
from itertools import islice
from typing import Final

__all__ = ["json_path", "show_text", "show_value"]

MAX_CHARACTERS: Final = 120
SHOWN_KEYS: Final = 5
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,80}")


def show_text(text: str) -> str:
    """Return at most 120 characters, without control characters or broken ones: safe in logs, labels and terminals."""
    cut = text[: MAX_CHARACTERS + 1]
    safe = _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", cut)
    return safe if len(safe) <= MAX_CHARACTERS else safe[: MAX_CHARACTERS - 1] + "…"


def show_value(value: object) -> str:
    """Return a JSON value in a few words; containers by kind, size and first keys, because their content may be large."""
    if isinstance(value, dict):
        return _object(value)
    if isinstance(value, list):
        return f"an array of {len(value)} items"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return show_text(f'"{value[:MAX_CHARACTERS]}"')
    if isinstance(value, int) and value.bit_length() > 1100:
        return "an integer of more than 330 digits"
    return show_text(repr(value))


def _object(value: dict[str, object]) -> str:
    """Show the keys of an object, which people compare with the wanted ones: `val` is not `value`."""
    if not value:
        return "an empty object"
    names = ", ".join(show_text(str(key)) for key in islice(value, SHOWN_KEYS))
    more = f" and {len(value) - SHOWN_KEYS} more" if len(value) > SHOWN_KEYS else ""
    return show_text(f"an object with {'the key' if len(value) == 1 else 'keys'} {names}{more}")


def json_path(parent: str, key: str | int) -> str:
    """Return the path of a member: `$.values.temp`, `$[3]`, `$["odd key"]`."""
    if isinstance(key, int):
        return f"{parent}[{key}]"
    return f"{parent}.{key}" if _PLAIN_KEY.fullmatch(key) else f'{parent}["{show_text(key)}"]'
