"""Draft for bare values: `21.5`, `on`. Topic levels give the device and the metric."""

import re
from typing import Any, Final

from gateway.decoders.plain_value import read_scalar
from gateway.suggest.device_source import NamedFilter, name_levels
from gateway.suggest.draft import Draft
from gateway.suggest.key_units import unit_of_key
from gateway.suggest.message_families import MessageFamily
from gateway.suggest.vocabulary import normalize_key

__all__ = ["draft_bare"]

_NUMBER: Final = re.compile(r"(?<![\w.])[+-]?\d+(?:[.,]\d+)?")
_NAMED: Final = re.compile(
    r"([A-Za-z][A-Za-z ]{0,20}?)(\s?[:=]?\s?)([+-]?\d{1,12}(?:\.\d{1,12})?)((?:\s?[^\s\d{}*]{1,8})?)"
)
_LONG: Final = 24
"""Length of a text from which on several numbers inside it are values that nothing extracts."""


def draft_bare(family: MessageFamily) -> Draft:
    """Return the draft for messages that are one value as text."""
    named = name_levels([sample.topic for sample in family.samples], metric=True, claimed=set(), by_payload=False)
    route: dict[str, Any] = {"filter": named.filter}
    if named.device is not None:
        route["device"] = named.device
    if named.route_metric is not None:
        route["metric"] = named.route_metric
    said = _named_number(family)
    if said is not None:
        route["mapping"] = {"format": "text", "time": [], "numbers": {"*": {"text": said}}}
        return Draft(route, notes=[f"device: {named.why}", "number: taken from the text after its name"])
    route["decoder"] = "plain"
    units = {}
    for sample in family.samples:
        name = sample.topic.rstrip("/").rpartition("/")[2]
        _value, unit = read_scalar(sample.payload.decode("utf-8", "replace").strip())
        found = unit_of_key(name)
        if unit is None and found is not None:
            units[_metric_of(named, sample.topic)] = found
    if units:
        route["units"] = units
    notes = [f"device: {named.why}", "time: the receive time, because the payload has none"]
    texts = [sample.payload.decode("utf-8", "replace").strip() for sample in family.samples]
    return Draft(route, notes=notes, doubts=list(dict.fromkeys(filter(None, map(_doubt, texts)))))


def _named_number(family: MessageFamily) -> str | None:
    """Return the form of texts such as `pH 7.42`, if the topic gives the value that name; else None."""
    found = set()
    for sample in family.samples:
        text = sample.payload.decode("utf-8", "replace").strip()
        match = _NAMED.fullmatch(text)
        if match is None or normalize_key(match[1]) not in map(normalize_key, sample.topic.split("/")):
            return None
        found.add(f"{match[1]}{match[2]}{{number}}{match[4]}")
    return found.pop() if len(found) == 1 else None


def _doubt(text: str) -> str | None:
    """Return why a text is not a value: it holds lines, markup, or several numbers."""
    several = len(text) > _LONG and len(_NUMBER.findall(text)) > 1
    lines = len(text.splitlines()) > 1
    marked = text.startswith("<") and text.endswith(">")
    if not (several or lines or marked):
        return None
    return (
        'the whole payload would be one text: extract a number with `format = "text"` and `numbers`, or write a decoder '
        "(`tidegate route new NAME`)"
    )


def _metric_of(named: NamedFilter, topic: str) -> str:
    """Return the metric that the route gives for a topic."""
    levels = dict(zip(named.filter.split("/"), topic.split("/"), strict=True))
    return ".".join(levels[part] for part in (named.metric or "{metric}").split(".") if part in levels)
