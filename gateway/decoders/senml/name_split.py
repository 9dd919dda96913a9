"""Device and metric of a SenML name; SenML itself knows only whole names.

With a base name and a name the sender chose the boundary, so the base name, without separators at its end, is the device.
A name alone (or a base name alone) is split: a URN after its identifier (`urn:dev:ow:10e2:temp`, `urn:dev:mac:0024_temp`
of RFC 9039), else at its last `/`, else at its last `:`. An address (IPv6, MAC) is not split. If nothing is left for the
metric, it is `value`.
"""

import re
from typing import Final

__all__ = ["WHOLE_NAME", "read_name", "split_name"]

WHOLE_NAME: Final = "value"
"""Metric of a name that is a device as a whole."""
_ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9:./_-]*", re.ASCII)
_URN = re.compile(r"(urn:(?:dev:[^:]+:[^:/_]+|(?!dev:)[^:]+:[^:/]+))(?:[:/_](.*))?", re.IGNORECASE)
_ADDRESS = re.compile(r"[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,}")
_SEPARATORS: Final = ":/._-"


_MAX_KNOWN: Final = 10_000
_MAX_KNOWN_CHARACTERS: Final = 300
_known: dict[tuple[str, str], tuple[str, str]] = {}
"""Valid names: the same few recur with every pack. Bounded."""


def read_name(base: str, name: str) -> tuple[str, str] | str:
    """Return device and metric of base name and name; a text, what is wanted, if they are not a SenML name together."""
    found = _known.get((base, name))
    if found is not None:
        return found
    whole = base + name
    if not whole:
        return "a name: `n`, or `bn` in this record or one before it"
    if not _ALLOWED.fullmatch(whole):
        return "letters, digits and - : . / _ only, a letter or digit first"
    found = split_name(base, name)
    if len(_known) < _MAX_KNOWN and len(whole) <= _MAX_KNOWN_CHARACTERS:
        _known[base, name] = found
    return found


def split_name(base: str, name: str) -> tuple[str, str]:
    """Split into device and metric; both have at least one character if `base + name` is a SenML name (RFC 8428, 4.5.1)."""
    if base and name:
        return base.rstrip(_SEPARATORS), name
    whole = (base or name).rstrip(_SEPARATORS)
    urn = _URN.fullmatch(whole)
    if urn is not None:
        return urn[1], urn[2] or WHOLE_NAME
    head, _, tail = whole.rpartition("/")
    if not head and not _ADDRESS.fullmatch(whole):
        head, _, tail = whole.rpartition(":")
    return (head, tail) if head else (whole, WHOLE_NAME)
