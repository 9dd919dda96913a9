"""How a document is built: one item or several, and whether an item holds one value or many."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from gateway.suggest.fields import Field, Step, can_name, collect_fields, path_text
from gateway.suggest.roles import Roles, is_numeric_text
from gateway.suggest.times import find_times
from gateway.suggest.words import DEVICE, NAME, OFFSETS, SINGLE, bare

__all__ = ["Items", "Single", "find_items", "find_single", "values_base"]

_DEEPEST = 8
_SURE_DEVICE = frozenset(DEVICE[: DEVICE.index("device")])
_Pattern = tuple[str | None, ...]


class Items(NamedTuple):
    """Where items stand. `path` leads to them, None where the document is the item (or an array of items).

    `of_document` is the number of each item's document, `outer` the fields of the message and of objects around the items.
    """

    path: str | None
    found: list[Any]
    of_document: list[int]
    outer: list[Field]

    @property
    def listed(self) -> bool:
        """Whether one message may hold several."""
        return (self.path or "").endswith("[]") or len(self.found) != len(set(self.of_document))


class Single(NamedTuple):
    """An item that holds one value: where, and the field that names it (None: the topic does)."""

    value: Field
    name: Field | None


def find_items(documents: Iterable[Any], topics: Iterable[str] = ()) -> Items:
    """The innermost array whose objects have a time, a name or a device of their own; else the documents themselves.

    A document that is one member in a wrapper is that member: the wrapper is called like a level of the topic.
    """
    known = list(documents)
    words = {bare(level) for topic in topics for level in topic.split("/")}
    wrapper = _wrapper(known, words)
    if wrapper is not None:
        inner = find_items([document[wrapper] for document in known])
        if inner.path is None and len(inner.found) == len(known):
            return inner._replace(path=path_text((wrapper,)))
    arrays = dict.fromkeys(steps for document in known for steps in _arrays(document, ()))
    for steps in sorted(arrays, key=len, reverse=True):
        items = _spread(known, steps)
        if items.found and _has_own(items.found):
            return items if steps else items._replace(path=None)
    # Objects of an array that is the message are items by themselves.
    return _spread(known, ())._replace(path=None) if () in arrays else Items(None, known, list(range(len(known))), [])


def _wrapper(documents: list[Any], words: set[str]) -> str | None:
    keys = {tuple(document) if isinstance(document, dict) else () for document in documents}
    [only] = keys if len(keys) == 1 else [()]
    held = all(
        isinstance(document, dict) and isinstance(next(iter(document.values()), None), dict) for document in documents
    )
    return only[0] if len(only) == 1 and held and can_name(only[0]) and bare(only[0]) in words else None


def _arrays(value: Any, steps: _Pattern) -> Iterator[_Pattern]:
    """Where arrays of objects stand; None among the steps is each item of an array."""
    if len(steps) > _DEEPEST:
        return
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        yield steps
        for item in value:
            yield from _arrays(item, (*steps, None))
    elif isinstance(value, dict):
        for key, inner in value.items():
            if can_name(key):
                yield from _arrays(inner, (*steps, key))


def _spread(documents: list[Any], steps: _Pattern) -> Items:
    """The items of the array at `steps`, and the fields around them."""
    found, of_document = [], []
    around: list[tuple[int, Any]] = []
    for number, document in enumerate(documents):
        places = [document]
        for step in steps:
            if step is None:
                places = [item for place in places if isinstance(place, list) for item in place]
                around += [(number, place) for place in places]
            else:
                places = [place[step] for place in places if isinstance(place, dict) and step in place]
        for place in places:
            items = [item for item in place if isinstance(item, dict)] if isinstance(place, list) else []
            found += items
            of_document += [number] * len(items)
    outer = _outside(list(enumerate(documents)), steps, "$") if steps else []
    if around:
        last = len(steps) - steps[::-1].index(None)
        outer = _outside(around, steps[last:], "^") + outer
    text = ""
    for step in steps:
        text += "[]" if step is None else f".{path_text((step,))}" if text else path_text((step,))
    return Items(f"{text}[]", found, of_document, outer)


def _outside(objects: list[tuple[int, Any]], steps: _Pattern, root: str) -> list[Field]:
    """Fields of the objects that do not stand in the way to the items, by the document's number."""
    until = steps.index(None) if None in steps else len(steps)
    way = tuple(step for step in steps[:until] if step is not None)
    found = [one for one in collect_fields([held for _number, held in objects], root) if not one.under(way)]
    for one in found:
        one.values = {objects[place][0]: value for place, value in reversed(one.values.items())}
    return found


def _has_own(items: list[Any]) -> bool:
    fields = [one for one in collect_fields(items) if len(one.steps) <= 2]
    keys = {one.key for one in fields}
    has_value = any(one.key in SINGLE for one in fields)
    named = any(one.key in NAME and isinstance(one.first, str) for one in fields)
    return bool(find_times(fields)) or (has_value and named) or bool(keys & (_SURE_DEVICE | OFFSETS))


def find_single(roles: Roles, fields: Iterable[Field], *, listed: bool) -> Single | None:
    """The one value of an item, and what names it, among the fields that are free."""
    values = roles.values
    numbers = [one for one in values if isinstance(one.first, int | float) or one in roles.numeric]
    numbers = [one for one in numbers if not isinstance(one.first, bool) or one.key in SINGLE]
    numbers = numbers or [one for one in values if one.key in SINGLE]
    real = [one for one in numbers if one.key in SINGLE and not isinstance(one.first, str)]
    if len(real) == 1 and all(isinstance(one.first, str) for one in numbers if one is not real[0]):
        # Numbers in text next to the one value say it again, or describe it.
        numbers = real
    if len(numbers) > 1:
        # A fault's number next to the one value says how good it is.
        numbers = [one for one in numbers if one.key not in ("error", "errorcode", "err")]
    [value] = numbers if len(numbers) == 1 else [None]
    # An array of one number is that number.
    steps = () if value is None else value.steps[:-1] if value.steps[-1] == 0 else value.steps
    if value is None or not all(isinstance(step, str) and bare(step) in SINGLE for step in steps) or not steps:
        return None
    names = [one for one in fields if _may_name(one, value, listed=listed)]
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
