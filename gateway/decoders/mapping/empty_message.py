"""Rejection of a message whose fields a mapping drops entirely: with its fields and the wanted ones."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from gateway.decoders.mapping.paths import EACH_ITEM, EACH_MEMBER, ValuePath
from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["path_exists", "reject_empty_message"]

_SHOWN: Final = 8
_MOST: Final = 2000
"""Most fields that are examined."""


def path_exists(path: ValuePath, value: Any) -> bool:
    """Return whether a path leads somewhere, also to null or an empty array: then the message says that it has nothing."""
    for step in path.steps:
        if value is None:
            return True
        if step is EACH_ITEM or step is EACH_MEMBER:
            return not value if type(value) is (list if step is EACH_ITEM else dict) else False
        if type(value) is dict and step in value:
            value = value[step]
        elif type(value) is list and type(step) is int:
            if step >= len(value):
                return not value
            value = value[step]
        else:
            return False
    return value is None or (type(value) in (list, dict) and not value)


def reject_empty_message(
    left_out: list[str], root: Any, missed: list[str], keep: tuple[str, ...], hides: Callable[[str], bool]
) -> Reject | None:
    """Return why a message without readings is a dead letter; None if it has nothing that could be kept.

    Args:
        left_out: fields that no pattern chose.
        root: the whole message.
        missed: paths of the mapping that lead nowhere.
        keep: patterns of the fields that are kept.
        hides: whether a field holds device, time or identity.
    """
    there = list(dict.fromkeys(left_out))
    wanted = f"a field that the mapping keeps: {', '.join(keep)}" if keep else "a field that the mapping keeps"
    if not there and missed:
        there = [name for name in islice(_leaves(root, ""), _MOST) if not hides(name)]
        wanted = f"values at {' or '.join(missed)}, as the mapping says"
    if not there:
        return None
    shown = ", ".join(there[:_SHOWN]) + (f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else "")
    got = f"{len(there)} {'field' if len(there) == 1 else 'fields'}, none kept: {shown}"
    return Reject(Reason.NOTHING_KEPT, "$", show_text(got), show_text(wanted))


def _leaves(value: Any, name: str) -> Iterator[str]:
    """Yield the names of the fields that hold a value. The parser bounds nesting."""
    if type(value) is dict:
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}"[:200] if name else key[:200])
    elif type(value) is list:
        for place, inner in enumerate(value):
            yield from _leaves(inner, f"{name}[{place}]"[:200])
    elif value is not None and value != "":
        yield name
