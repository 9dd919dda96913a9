"""The members of sample documents, each with the values that it had."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gateway.suggest.words import bare

__all__ = ["Field", "Step", "can_name", "collect_fields", "flat_name", "key_words", "path_text"]

Step = str | int
_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|\d+")
_MOST_FIELDS = 500
"""Of one family: a draft of more lines is of no use to a person."""


@dataclass(slots=True)
class Field:
    """One member that is no container. `values` holds what it was in each document, by the document's number.

    `root` is where its steps begin: "" at the item, `$` at the message, `^` at an object around the item. `apart`: all of
    several items of a message (or messages of a topic) have it, each with a value of its own.
    """

    steps: tuple[Step, ...]
    values: dict[int, Any] = field(default_factory=dict)
    root: str = ""
    apart: bool = False

    @property
    def first(self) -> Any:
        """The value of the first document that has one."""
        return next(iter(self.values.values()))

    @property
    def can_be_named(self) -> bool:
        """Whether a path or template can lead to it: some signs of keys cannot be written there."""
        return not any(
            step == "" or any(sign in step for sign in '"{}|') for step in self.steps if isinstance(step, str)
        )

    @property
    def key(self) -> str:
        """Its last key, without case and signs; of an array's item the array's."""
        return bare(next((step for step in reversed(self.steps) if isinstance(step, str)), ""))

    @property
    def words(self) -> tuple[str, str]:
        """Its last key, and the last two as one word: `source.id` is `sourceid`."""
        named = [step for step in self.steps if isinstance(step, str)]
        return self.key, bare("".join(named[-2:]))

    @property
    def path(self) -> str:
        """Its path in the mapping language."""
        return path_text(self.steps, root=self.root)

    @property
    def reference(self) -> str:
        """Itself in a template, without the braces."""
        return self.path if self.root else f".{self.path}"

    @property
    def name(self) -> str:
        """The metric name that it gives by itself."""
        return flat_name(self.steps)

    def under(self, base: tuple[Step, ...]) -> bool:
        """Whether it stands inside the container at `base`."""
        return self.steps[: len(base)] == base


def key_words(one: Field) -> list[str]:
    """The words of its last key in lower case: `rain_storm_start_at` and `rainStormStartAt` are four."""
    key = next((step for step in reversed(one.steps) if isinstance(step, str)), "")
    return [word.lower() for word in _WORD.findall(key)]


def can_name(key: str) -> bool:
    """Whether a path or template can hold this key."""
    return key != "" and not any(sign in key for sign in '"{}|')


def collect_fields(documents: Iterable[Any], root: str = "") -> list[Field]:
    """The fields of all documents in order of appearance; null is no value."""
    found: dict[tuple[Step, ...], Field] = {}
    for number, document in enumerate(documents):
        for steps, value in _leaves(document, ()):
            if value is None or (steps not in found and len(found) >= _MOST_FIELDS):
                continue
            found.setdefault(steps, Field(steps, root=root)).values[number] = value
    return list(found.values())


def _leaves(value: Any, steps: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*steps, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(inner, (*steps, place))
    else:
        yield steps, value


def flat_name(steps: Iterable[Step]) -> str:
    """Steps as the metric name that flattening gives: `a.b[0]`."""
    name = ""
    for step in steps:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else step
    return name


def path_text(steps: Iterable[Step], *, root: str = "") -> str:
    """Steps as a path of the mapping language; keys with signs of that language are quoted."""
    text = root
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        quoted = f'"{step}"' if any(sign in step for sign in '.[]*"{}') or step.startswith(("$", "^")) else step
        text += f".{quoted}" if text else quoted
    return text
