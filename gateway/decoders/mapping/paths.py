"""Paths and templates of a mapping: parsed once, then only followed. For the syntax see `settings`."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gateway.decoders.shape import RouteMatch
from ingest.contract.dead_letter import Reject

__all__ = [
    "BadPath",
    "JoinedValuePath",
    "TemplateScope",
    "ValuePath",
    "ValueTemplate",
    "first_template_value",
    "join_template_path",
    "message_identity",
    "parse_path",
]

_STEP = re.compile(r'"(?P<quoted>[^"]+)"|(?P<each>\[\])|\[(?P<index>\d{1,6})\]|(?P<name>[^.\[\]"]+)')
_REFERENCE = re.compile(r"\{([^{}]*)\}")
_RECEIVED = re.compile(r"received/([1-9]\d{0,5})")
_QUOTED = re.compile(r'"[^"]*"')
_CUT = re.compile(r"(.+)\|([1-9]\d?)", re.DOTALL)
_MAX_ID: Final = 200
_MAX_FILLED: Final = 4096
"""Most characters of each part of a template; longer than any device id, so that it is rejected, not cut into another id."""
_SEPARATED = re.compile(r"\.|(?=\[)|$")


class BadPath(ValueError):
    """A path, template or condition cannot be read; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class ValuePath:
    """Parsed path. Steps: a member's name, an item's index, `EACH_MEMBER`, `EACH_ITEM`."""

    text: str
    absolute: bool
    steps: tuple[Any, ...]
    around: bool = False

    def of(self, scope: "TemplateScope") -> Any:
        """Return the value for an item; for `^.a` in the nearest object around it that has it."""
        if not self.around:
            return self.look(scope.item, scope.root)
        for outer in scope.around():
            found = self.look(outer, scope.root)
            if found is not None:
                return found
        return None

    def look(self, item: object, root: object) -> Any:
        """Return the value, None if there is nothing (or null)."""
        value = root if self.absolute else item
        for step in self.steps:
            if type(value) is dict:
                value = value.get(step)
            elif type(value) is list and type(step) is int and step < len(value):
                value = value[step]
            else:
                # A part that could not be parsed is in the document as a rejection.
                return value if type(value) is Reject else None
        return value

    def spread(self, root: object, trail: Any = "$") -> Iterator[tuple[Any, Any, tuple[str, ...]]]:
        """Yield everything that the path reaches: value, its trail (see `flatten`), the member names that `*` matched."""
        return _spread(root, self.steps, trail, ())


EACH_MEMBER: Final = object()
EACH_ITEM: Final = object()


def parse_path(text: str, *, wild: bool = False, around: bool = False) -> ValuePath:
    """Parse a path; `*` and `[]` only if `wild`, `^` only if `around`.

    Raises:
        BadPath: it cannot be read.
    """
    absolute = text == "$" or text.startswith(("$.", "$["))
    outer = text.startswith("^.")
    if outer and not around:
        message = f"{text!r}: ^ is only allowed in templates, times and units"
        raise BadPath(message)
    rest = text[2:] if outer else text[1:].removeprefix(".") if absolute else text
    steps: list[Any] = []
    position = 0
    while position < len(rest):
        found = _STEP.match(rest, position)
        if found is None:
            message = f'{text!r} is not a path; write it as a.b, a[0], a[], a.* or "name.with.dots"'
            raise BadPath(message)
        steps.append(_step(found))
        after = _SEPARATED.match(rest, found.end())
        if after is None:
            message = f"{text!r} is not a path: a dot or a bracket must follow {found[0]!r}"
            raise BadPath(message)
        position = after.end()
    if rest.endswith("."):
        message = f"{text!r} is not a path: nothing follows the last dot"
        raise BadPath(message)
    if not wild and (EACH_MEMBER in steps or EACH_ITEM in steps):
        message = f"{text!r}: * and [] are only allowed in `items` and `inside`"
        raise BadPath(message)
    return ValuePath(text, absolute, tuple(steps), outer)


def _step(found: re.Match[str]) -> object:
    if found["quoted"] is not None:
        return found["quoted"]
    if found["each"] is not None:
        return EACH_ITEM
    if found["index"] is not None:
        return int(found["index"])
    return EACH_MEMBER if found["name"] == "*" else found["name"]


def _spread(
    value: Any, steps: tuple[Any, ...], trail: Any, keys: tuple[str, ...]
) -> Iterator[tuple[Any, Any, tuple[str, ...]]]:
    for place, step in enumerate(steps):
        if type(value) is Reject:
            # A part that could not be parsed is in the document as a rejection.
            break
        if step is EACH_MEMBER:
            if type(value) is dict:
                for key, inner in value.items():
                    yield from _spread(inner, steps[place + 1 :], (trail, key), (*keys, key))
            return
        if step is EACH_ITEM:
            if type(value) is list:
                for index, inner in enumerate(value):
                    yield from _spread(inner, steps[place + 1 :], (trail, index), keys)
            return
        value = _member(value, step)
        if value is None:
            return
        trail = (trail, step)
    if value is not None:
        yield value, trail, keys


def _member(value: Any, step: Any) -> Any:
    if type(value) is dict:
        return value.get(step)
    return value[step] if type(value) is list and type(step) is int and step < len(value) else None


class TemplateScope(msgspec.Struct, frozen=True, gc=False):
    """Objects to which templates may refer, at one item of one message."""

    match: RouteMatch
    payload: bytes
    root: object
    item: object
    received_us: int
    keys: tuple[str, ...] = ()
    telegram: str | None = None
    second: int | None = None
    trail: Any = "$"

    def around(self) -> Iterator[Any]:
        """Yield the objects around the item, the nearest first."""
        keys: list[Any] = []
        trail = self.trail
        while not isinstance(trail, str):
            trail, key = trail
            keys.append(key)
        outer: list[Any] = []
        node: Any = self.root
        for key in reversed(keys):
            if type(node) is dict:
                outer.append(node)
            node = node[key]
        yield from reversed(outer)


_Part = Callable[[TemplateScope], Any]
_KNOWN: Final[dict[str, _Part]] = {
    "key": lambda scope: scope.keys[0] if scope.keys else None,
    "key2": lambda scope: scope.keys[1] if len(scope.keys) > 1 else None,
    "payload": lambda scope: hashlib.blake2b(scope.payload, digest_size=16).hexdigest(),
    "telegram": lambda scope: scope.telegram,
    "second": lambda scope: scope.second,
    "device": lambda scope: scope.match.device,
    "metric": lambda scope: scope.match.metric,
}


class ValueTemplate:
    """Text with references.

    Attributes:
        paths: the paths that it reads.
        per_item: whether items of one message may differ.
        of_telegram: what it needs of the item's telegram: `telegram`, `second`.
        over_air: whether, as an identity, it comes from what a device sent over the air, whichever receiver heard it.
    """

    __slots__ = ("_constant", "_parts", "of_telegram", "over_air", "paths", "per_item", "segments", "text")

    def __init__(self, text: str) -> None:
        """Compile.

        Raises:
            BadPath: a reference cannot be read.
        """
        self.text = text
        self.paths: list[ValuePath] = []
        self.segments: list[str] = []
        self.per_item = False
        self.of_telegram: set[str] = set()
        self.over_air = False
        self._parts: list[str | _Part] = []
        end = 0
        for found in _REFERENCE.finditer(text):
            if found.start() > end:
                self._parts.append(text[end : found.start()])
            self._parts.append(self._reference(found[1]))
            end = found.end()
        if end < len(text):
            self._parts.append(text[end:])
        if any(sign in part for part in self._parts if isinstance(part, str) for sign in "{}"):
            message = f"{text!r} has an unmatched brace; a reference is {{.path}}, {{key}} or {{segment}}"
            raise BadPath(message)
        self._constant = text if all(isinstance(part, str) for part in self._parts) else None

    def _reference(self, name: str) -> _Part:
        if name.startswith((".", "$", "^")):
            return self._member(name.removeprefix("."))
        if name in _KNOWN:
            if name in ("telegram", "second"):
                self.of_telegram.add(name)
            self.per_item |= name.startswith("key") or name in self.of_telegram
            return _KNOWN[name]
        received = _RECEIVED.fullmatch(name)
        if received is not None:
            span_us = int(received[1]) * 1_000_000
            return lambda scope: scope.received_us // span_us
        if not name.isidentifier():
            wanted = "{.path}, {$.path}, {^.path}, {key} or {segment}"
            message = f"{{{name}}} in {self.text!r} is not a reference; wanted {wanted}"
            raise BadPath(message)
        self.segments.append(name)
        return lambda scope: scope.match.names.get(name)

    def _member(self, text: str) -> _Part:
        cut = _CUT.fullmatch(text)
        if cut is not None:
            whole, most = self._member(cut[1]), int(cut[2])
            return lambda scope: _first(whole(scope), most)
        if "|" in _QUOTED.sub("", text):
            message = (
                f"{{{text}}}: wanted a number of characters, 1 to 99, after | (put a key that contains | in quotes)"
            )
            raise BadPath(message)
        path = parse_path(text.removesuffix(".*"), around=True)
        self.paths.append(path)
        self.per_item |= not path.absolute
        if text.endswith(".*"):
            return lambda scope: _join_members(path.of(scope))
        if path.around:
            return path.of
        return _below_root(path) if path.absolute else lambda scope: path.look(scope.item, scope.root)

    def fill_always(self) -> str | None:
        """Return the text, if it has no reference."""
        return self._constant

    def fill(self, scope: TemplateScope) -> str | None:
        """Return the text; None if a reference is absent or neither text nor integer."""
        if self._constant is not None:
            return self._constant
        filled = ""
        for part in self._parts:
            value = part if type(part) is str else part(scope)  # type: ignore[operator]
            if type(value) is int:
                value = str(value)
            if type(value) is not str or not value:
                return None
            filled += value[:_MAX_FILLED]
        return filled


def _below_root(path: ValuePath) -> _Part:
    steps = path.steps

    def look(scope: TemplateScope) -> Any:
        # The usual path, of only names, costs no other call.
        value: Any = scope.root
        for step in steps:
            if type(value) is not dict:
                return path.look(scope.item, scope.root)
            value = value.get(step)
        return value

    return look


def _first(value: object, most: int) -> str | None:
    return str(value)[:most] if type(value) in (str, int) else None


def _join_members(value: object) -> str | None:
    if type(value) is not dict or not all(type(part) in (str, int) for part in value.values()):
        return None
    return ",".join(f"{key}={value[key]}" for key in sorted(value))


@dataclass(frozen=True, slots=True)
class JoinedValuePath(ValuePath):
    """Several places as one text, such as a separate date and time."""

    template: ValueTemplate | None = None

    def of(self, scope: TemplateScope) -> Any:
        """Return the text, None if all parts are absent; if only some are, the template itself, which is not a time."""
        if self.template is None:
            return None
        found = self.template.fill(scope)
        some = found is None and any(path.of(scope) is not None for path in self.template.paths)
        return self.text if some else found


def join_template_path(text: str) -> JoinedValuePath:
    """Return the path of a template.

    Raises:
        BadPath: a reference cannot be read.
    """
    return JoinedValuePath(text, absolute=True, steps=(), template=ValueTemplate(text))


def first_template_value(templates: Iterable[ValueTemplate], scope: TemplateScope) -> str | None:
    """Return the text of the first template that gives one."""
    for template in templates:
        found = template.fill(scope)
        if found is not None:
            return found
    return None


def message_identity(templates: Iterable[ValueTemplate], scope: TemplateScope) -> tuple[str, bool] | None:
    """Return a message's own key, of bounded length, and whether it comes from what a device sent over the air."""
    for template in templates:
        found = template.fill(scope)
        if found is not None:
            if len(found) > _MAX_ID:
                digest = hashlib.blake2b(found.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
                found = f"blake2b:{digest}"
            return found, template.over_air
    return None
