"""How a document is built: one item or several, and whether an item holds one value or many."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from gateway.suggest.fields import Field, Step, collect_fields
from gateway.suggest.roles import Roles, is_numeric_text
from gateway.suggest.times import find_times
from gateway.suggest.words import DEVICE, NAME, SINGLE, bare

__all__ = ["Items", "Single", "find_items", "find_single", "values_base"]

_DEEPEST = 4


class Items(NamedTuple):
    """Where items stand. `steps` lead to the array, None where the document is the item (or an array of items)."""

    steps: tuple[Step, ...] | None
    found: list[Any]
    of_document: list[int]

    @property
    def listed(self) -> bool:
        """Whether one message may hold several."""
        return self.steps is not None or len(self.found) != len(set(self.of_document))


class Single(NamedTuple):
    """An item that holds one value: where, and the field that names it (None: the topic does)."""

    value: Field
    name: Field | None


def find_items(documents: Iterable[Any]) -> Items:
    """The array whose objects have a time, a name or a device of their own; else the documents themselves."""
    known = list(documents)
    for steps in dict.fromkeys(steps for document in known for steps in _arrays(document, ())):
        items = _spread(known, steps)
        if items.found and _has_own(items.found):
            return items if steps else items._replace(steps=None)
    return Items(None, known, list(range(len(known))))


def _arrays(value: Any, steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        yield steps
    elif isinstance(value, dict) and len(steps) < _DEEPEST:
        for key, inner in value.items():
            yield from _arrays(inner, (*steps, key))


def _spread(documents: list[Any], steps: tuple[Step, ...]) -> Items:
    found = Items(steps, [], [])
    for number, document in enumerate(documents):
        value = document
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict):
                found.found.append(item)
                found.of_document.append(number)
    return found


def _has_own(items: list[Any]) -> bool:
    fields = [one for one in collect_fields(items) if len(one.steps) <= 2]
    keys = {one.key for one in fields}
    has_value = any(one.key in SINGLE for one in fields)
    named = any(one.key in NAME and isinstance(one.first, str) for one in fields)
    return (
        bool(find_times(fields)) or (has_value and named) or bool(keys & set(DEVICE[: DEVICE.index("deviceid") + 30]))
    )


def find_single(roles: Roles, fields: Iterable[Field], *, listed: bool, taken: set[tuple[Step, ...]]) -> Single | None:
    """The one value of an item, and what names it. `taken` are fields that name device, time or identity."""
    values = [one for one in roles.values if one.steps not in taken]
    numbers = [one for one in values if isinstance(one.first, int | float) or one in roles.numeric]
    numbers = [one for one in numbers if not isinstance(one.first, bool) or one.key in SINGLE]
    numbers = numbers or [one for one in values if one.key in SINGLE]
    [value] = numbers if len(numbers) == 1 else [None]
    if value is None or not all(isinstance(step, str) and bare(step) in SINGLE for step in value.steps):
        return None
    names = [one for one in fields if _may_name(one, value, listed=listed) and one.steps not in taken]
    name = min(names, key=lambda one: (NAME.index(one.key), len(one.steps)), default=None)
    return Single(value, name)


def _may_name(one: Field, value: Field, *, listed: bool) -> bool:
    if one is value or one.key not in NAME or not isinstance(one.first, str | int) or isinstance(one.first, bool):
        return False
    if is_numeric_text(one.first) or isinstance(one.first, int):
        return listed and one.key in ("id", "key", "code", "channel")
    # Outside of a list the id is the message's or the sender's.
    return listed or one.key not in ("id", "path", "type", "sensor", "channel")


def values_base(values: Iterable[Field]) -> tuple[Step, ...]:
    """The innermost object that holds all values; empty where they stand in the item itself."""
    bases = [one.steps[:-1] for one in values]
    if not bases:
        return ()
    base = min(bases, key=len)
    while not all(steps[: len(base)] == base for steps in bases):
        base = base[:-1]
    # Within an array there is no object to name.
    return base[: next((place for place, step in enumerate(base) if isinstance(step, int)), len(base))]
