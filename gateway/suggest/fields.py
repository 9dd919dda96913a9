"""Members of sample documents, each with its values."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gateway.suggest.vocabulary import normalize_key

__all__ = ["SampleField", "Step", "can_name", "collect_fields", "flat_name", "key_words", "path_text"]

Step = str | int
_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|\d+")
_MOST_FIELDS = 500
"""Most fields of one family: a longer draft is of no use to a person."""


@dataclass(slots=True)
class SampleField:
    """One member that is not a container. `values` holds its value in each document, by the document's number.

    `root` is where its steps begin: "" at the item, `$` at the message, `^` at an object around the item. `apart`: all of
    several items of a message (or messages of a topic) have it, each with its own value.
    """

    steps: tuple[Step, ...]
    values: dict[int, Any] = field(default_factory=dict)
    root: str = ""
    apart: bool = False

    @property
    def first(self) -> Any:
        """Value of the first document that has one."""
        return next(iter(self.values.values()))

    @property
    def can_be_named(self) -> bool:
        """Return whether a path or template can lead to it: some characters of keys cannot be written there."""
        return not any(
            step == "" or any(sign in step for sign in '"{}|') for step in self.steps if isinstance(step, str)
        )

    @property
    def key(self) -> str:
        """Last key, without case and separators; for an array's item the array's."""
        return normalize_key(next((step for step in reversed(self.steps) if isinstance(step, str)), ""))

    @property
    def words(self) -> tuple[str, str]:
        """Last key, and the last two as one word: `source.id` is `sourceid`."""
        named = [step for step in self.steps if isinstance(step, str)]
        return self.key, normalize_key("".join(named[-2:]))

    @property
    def path(self) -> str:
        """Path in the mapping language."""
        return path_text(self.steps, root=self.root)

    @property
    def reference(self) -> str:
        """Reference in a template, without the braces."""
        return self.path if self.root else f".{self.path}"

    @property
    def name(self) -> str:
        """Metric name that it gives by itself."""
        return flat_name(self.steps)

    def under(self, base: tuple[Step, ...]) -> bool:
        """Return whether it is inside the container at `base`."""
        return self.steps[: len(base)] == base


def key_words(one: SampleField) -> list[str]:
    """Return the words of its last key in lower case: `rain_storm_start_at` and `rainStormStartAt` are four."""
    key = next((step for step in reversed(one.steps) if isinstance(step, str)), "")
    return [word.lower() for word in _WORD.findall(key)]


def can_name(key: str) -> bool:
    """Return whether a path or template can contain this key."""
    return key != "" and not any(sign in key for sign in '"{}|')


def collect_fields(documents: Iterable[Any], root: str = "") -> list[SampleField]:
    """Return the fields of all documents in order of appearance; null is not a value."""
    found: dict[tuple[Step, ...], SampleField] = {}
    for number, document in enumerate(documents):
        for steps, value in _leaves(document, ()):
            if value is None or (steps not in found and len(found) >= _MOST_FIELDS):
                continue
            found.setdefault(steps, SampleField(steps, root=root)).values[number] = value
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
    """Return steps as the metric name that flattening gives: `a.b[0]`."""
    name = ""
    for step in steps:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else step
    return name


def path_text(steps: Iterable[Step], *, root: str = "") -> str:
    """Return steps as a path of the mapping language; keys with special characters are quoted."""
    text = root
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        quoted = f'"{step}"' if any(sign in step for sign in '.[]*"{}') or step.startswith(("$", "^")) else step
        text += f".{quoted}" if text else quoted
    return text
