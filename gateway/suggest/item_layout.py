"""Structure of a document: one item or several, and whether an item holds one value or many.

Quantities are objects that are one reading each: `{"temperature": {"value": 21.5, "type": "Number"}}`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.suggest.field_roles import FieldRoles, is_numeric_text
from gateway.suggest.fields import SampleField, Step, can_name, collect_fields, key_words, path_text
from gateway.suggest.time_fields import FoundTime, find_times
from gateway.suggest.topic import is_address, looks_like_id
from gateway.suggest.vocabulary import (
    DEVICE,
    NAME,
    NAME_WORDS,
    NUMBER_WORDS,
    OFFSETS,
    SIDE,
    SINGLE,
    SURE_NAME_WORDS,
    THINGS,
    normalize_key,
)

__all__ = [
    "ItemLocation",
    "Quantities",
    "SingleValue",
    "find_items",
    "find_quantities",
    "find_single",
    "have_name_collision",
    "have_value_collision",
    "mark_distinguishing_fields",
    "name_rank",
    "names_alone",
    "prefix_fields",
    "values_base",
]

_DEEPEST = 8
_SEVERAL = 2
_OWN_ID = re.compile(r"(?:[0-9a-f]{12}|[0-9a-f]{16}|0x[0-9a-f]{16}|[0-9a-f]{2}-[0-9a-f]{12})", re.IGNORECASE)
"""MACs and EUIs without separators, and ids of 1-Wire sensors: as keys they name devices."""
_SURE_DEVICE = frozenset(DEVICE[: DEVICE.index("device")])
_VALUE_KEYS = ("value", "val", "v")
_Pattern = tuple[str | None, ...]


class ItemLocation(NamedTuple):
    """Place of items. `path` leads to them, None if the document is the item (or an array of items).

    `of_document` is the number of each item's document, `outer` the fields of the message and of objects around the items.
    """

    path: str | None
    found: list[Any]
    of_document: list[int]
    outer: list[SampleField]

    @property
    def listed(self) -> bool:
        """Return whether one message may hold several."""
        return (self.path or "").endswith(("[]", "*")) or len(self.found) != len(set(self.of_document))

    @property
    def keyed(self) -> bool:
        """Return whether the items are members of an object, each under the id of its device."""
        return (self.path or "").endswith("*")

    @property
    def is_device_list(self) -> bool:
        """Return whether the array has the name of a list of devices, such as `nodes`."""
        return normalize_key((self.path or "").removesuffix("[]").rpartition(".")[2]) in THINGS


class SingleValue(NamedTuple):
    """Item that holds one value: its place, and the field that names it (None: the topic does)."""

    value: SampleField
    name: SampleField | None


def find_items(documents: Iterable[Any], topics: Iterable[str] = ()) -> ItemLocation:
    """Return the innermost array whose objects have their own time, name or device; else the documents themselves.

    A document that is one member in a wrapper is that member: the wrapper has the name of a level of the topic.
    """
    known = list(documents)
    words = {normalize_key(level) for topic in topics for level in topic.split("/")}
    wrapper = _wrapper(known, words)
    if wrapper is not None:
        inner = find_items([document[wrapper] for document in known])
        if inner.path is None and len(inner.found) == len(known):
            return inner._replace(path=path_text((wrapper,)))
    keyed = _keyed(known)
    if keyed is not None:
        return keyed
    arrays = dict.fromkeys(steps for document in known for steps in _arrays(document, ()))
    for steps in sorted(arrays, key=len, reverse=True):
        items = _spread(known, steps)
        if items.found and _has_own(items):
            return items if steps else items._replace(path=None)
    # Objects of an array that is the message are items by themselves.
    return (
        _spread(known, ())._replace(path=None)
        if () in arrays
        else ItemLocation(None, known, list(range(len(known))), [])
    )


def _wrapper(documents: list[Any], words: set[str]) -> str | None:
    keys = {tuple(document) if isinstance(document, dict) else () for document in documents}
    [only] = keys if len(keys) == 1 else [()]
    held = all(
        isinstance(document, dict) and isinstance(next(iter(document.values()), None), dict) for document in documents
    )
    return only[0] if len(only) == 1 and held and can_name(only[0]) and normalize_key(only[0]) in words else None


def _keyed(documents: list[Any]) -> ItemLocation | None:
    """Return the members of an object, if all of its keys are ids of devices; else None."""
    whole = [document for document in documents if isinstance(document, dict)]
    if not whole or len(whole) < len(documents):
        return None
    for key in (None, *whole[0]):
        held = [document if key is None else document.get(key) for document in whole]
        objects = [one for one in held if isinstance(one, dict) and one]
        if len(objects) < len(whole) or (key is not None and not can_name(key)):
            continue
        thing = key is not None and normalize_key(key) in THINGS
        names = [name for one in objects for name in one]
        if not all(isinstance(inner, dict) for one in objects for inner in one.values()) or len(names) < _SEVERAL:
            continue
        if all(_OWN_ID.fullmatch(name) or is_address(name) or (thing and looks_like_id(name)) for name in names):
            outer = [] if key is None else _outside(list(enumerate(whole)), (key,), "$")
            of_document = [number for number, one in enumerate(objects) for _ in one]
            found = [inner for one in objects for inner in one.values()]
            return ItemLocation("*" if key is None else f"{path_text((key,))}.*", found, of_document, outer)
    return None


def _arrays(value: Any, steps: _Pattern) -> Iterator[_Pattern]:
    """Yield the places of arrays of objects; None among the steps is each item of an array."""
    if len(steps) > _DEEPEST:
        return
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        yield steps
        for item in value:
            yield from _arrays(item, (*steps, None))
    elif isinstance(value, dict):
        for key, inner in value.items():
            if can_name(key) and normalize_key(key) not in SIDE:
                yield from _arrays(inner, (*steps, key))


def _spread(documents: list[Any], steps: _Pattern) -> ItemLocation:
    """Return the items of the array at `steps`, and the fields around them."""
    found, of_document = [], []
    around: dict[int, list[tuple[int, Any]]] = {}
    for number, document in enumerate(documents):
        places = [document]
        for depth, step in enumerate(steps, start=1):
            if step is None:
                places = [item for place in places if isinstance(place, list) for item in place]
                around.setdefault(depth, []).extend((number, place) for place in places)
            else:
                places = [place[step] for place in places if isinstance(place, dict) and step in place]
        for place in places:
            items = [item for item in place if isinstance(item, dict)] if isinstance(place, list) else []
            found += items
            of_document += [number] * len(items)
    outer = _outside(list(enumerate(documents)), steps, "$") if steps else []
    nearest: dict[tuple[Step, ...], SampleField] = {}
    for depth in sorted(around, reverse=True):
        for one in _outside(around[depth], steps[depth:], "^"):
            nearest.setdefault(one.steps, one)
    outer = [*nearest.values(), *outer]
    text = ""
    for step in steps:
        text += "[]" if step is None else f".{path_text((step,))}" if text else path_text((step,))
    return ItemLocation(f"{text}[]", found, of_document, outer)


def _outside(objects: list[tuple[int, Any]], steps: _Pattern, root: str) -> list[SampleField]:
    """Return fields of the objects outside the path to the items, by the document's number."""
    until = steps.index(None) if None in steps else len(steps)
    way = tuple(step for step in steps[:until] if step is not None)
    found = [one for one in collect_fields([held for _number, held in objects], root) if not one.under(way)]
    mark_distinguishing_fields(found, [number for number, _held in objects])
    for one in found:
        one.values = {objects[place][0]: value for place, value in reversed(one.values.items())}
    return found


def mark_distinguishing_fields(fields: Iterable[SampleField], group_of: Sequence[Any]) -> None:
    """Mark the fields that distinguish the documents of a group; `group_of` is each document's group."""
    several = len(set(group_of)) < len(group_of)
    for one in fields:
        told = [(group, one.values.get(place)) for place, group in enumerate(group_of)]
        plain = all(type(value) in (str, int) for _group, value in told)
        one.apart = several and plain and len(set(told)) == len(told)


def _has_own(items: ItemLocation) -> bool:
    fields = [one for one in collect_fields(items.found) if len(one.steps) <= 2]
    mark_distinguishing_fields(fields, items.of_document)
    keys = {one.key for one in fields if len(one.values) == len(items.found)}
    has_value = any(one.key in SINGLE for one in fields)
    named = any(one.key in NAME and isinstance(one.first, str) for one in fields)
    told = any(
        one.apart
        and (name_rank(one) is not None or (items.is_device_list and one.key in DEVICE))
        and len(one.steps) == 1
        for one in fields
    )
    timed = any(not time.of_event for time in find_times(fields))
    return timed or (has_value and named) or told or bool(keys & (_SURE_DEVICE | OFFSETS))


def name_rank(one: SampleField) -> int | None:
    """Return how certain it is that a field names its neighbour, None if it does not."""
    if isinstance(one.first, bool | float):
        return None
    if one.key in NAME and isinstance(one.first, str):
        return NAME.index(one.key)
    said = NAME_WORDS if isinstance(one.first, str) else NUMBER_WORDS
    ranks = [said.index(word) for word in (*key_words(one), one.key) if word in said]
    if not isinstance(one.first, str) and one.key.endswith("id"):
        ranks.append(0)
    return len(NAME) + min(ranks) if ranks else None


def names_alone(one: SampleField) -> bool:
    """Return whether a field of an item names its value, so that nothing around the item has to."""
    return one.key in NAME and (one.apart or one.key not in ("type", "code", "flag", "path", "id", "n"))


def prefix_fields(fields: Iterable[SampleField], *, unclear: bool) -> list[SampleField]:
    """Return fields that distinguish the items of a message, the best first.

    A text under a usual name is part of the values' names; one of another key, or a number, only if the names are `unclear`
    without it.
    """
    ranked = [
        (rank, one) for one in fields if one.apart and len(one.steps) == 1 and (rank := name_rank(one)) is not None
    ]
    return [
        one
        for rank, one in sorted(ranked, key=lambda entry: entry[0])
        if unclear or (rank < len(NAME) and not one.root)
    ]


def have_name_collision(name: SampleField, of_document: Sequence[int], time: FoundTime | None) -> bool:
    """Return whether two items of a message have one name at the same time."""
    at = {} if time is None or time.field.root else time.field.values
    told = [(of_document[place], value, at.get(place)) for place, value in name.values.items()]
    return len(set(told)) < len(told)


def have_value_collision(values: Iterable[SampleField], of_document: Sequence[int], time: FoundTime | None) -> bool:
    """Return whether two items of a message give a value of the same name at the same time."""
    at = {} if time is None or time.field.root else time.field.values
    for one in values:
        told = [(of_document[place], at.get(place)) for place in one.values]
        if len(set(told)) < len(told):
            return True
    return False


def find_single(roles: FieldRoles, fields: Iterable[SampleField], *, listed: bool) -> SingleValue | None:
    """Return the one value of an item, and what names it, among the free fields."""
    values = roles.values
    numbers = [one for one in values if isinstance(one.first, int | float) or one in roles.numeric]
    numbers = [one for one in numbers if not isinstance(one.first, bool) or one.key in SINGLE]
    numbers = numbers or [one for one in values if one.key in SINGLE]
    real = [one for one in numbers if one.key in SINGLE and not isinstance(one.first, str)]
    if len(real) == 1 and all(isinstance(one.first, str) for one in numbers if one is not real[0]):
        # Numbers in text next to the one value repeat it, or describe it.
        numbers = real
    if len(numbers) > 1:
        # A fault's number next to the one value says how good it is.
        numbers = [one for one in numbers if one.key not in ("error", "errorcode", "err")]
    [value] = numbers if len(numbers) == 1 else [None]
    # An array of one number is that number.
    steps = () if value is None else value.steps[:-1] if value.steps[-1] == 0 else value.steps
    if value is None or not all(isinstance(step, str) and normalize_key(step) in SINGLE for step in steps) or not steps:
        return None
    names = [one for one in fields if _may_name(one, value, listed=listed)]
    name = min(names, key=lambda one: (name_rank(one), len(one.steps)), default=None)
    return SingleValue(value, name)


def _may_name(one: SampleField, value: SampleField, *, listed: bool) -> bool:
    rank = name_rank(one)
    if one is value or rank is None:
        return False
    if is_numeric_text(one.first) or isinstance(one.first, int):
        return listed and (one.apart or one.key in ("id", "key", "code", "channel"))
    if rank >= len(NAME):
        return one.apart or any(word in SURE_NAME_WORDS for word in key_words(one))
    # Outside a list the id is the message's or the sender's.
    return listed or one.apart or one.key not in ("id", "path", "type", "sensor", "channel")


def values_base(values: Iterable[SampleField]) -> tuple[Step, ...]:
    """Return the innermost object that holds all values; empty if they are in the item itself."""
    bases = [one.steps[:-1] for one in values]
    if not bases:
        return ()
    base = min(bases, key=len)
    while not all(steps[: len(base)] == base for steps in bases):
        base = base[:-1]
    # Inside an array there is no object to name.
    return base[: next((place for place, step in enumerate(base) if isinstance(step, int)), len(base))]


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
