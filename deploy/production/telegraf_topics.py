"""Routes from the topics of Telegraf's `inputs.mqtt_consumer`: by data format, and by what it parses from a topic."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from deploy.production.imported import Imported
from gateway.gateway_settings import RouteSettings
from gateway.presets.loader import load_presets

__all__ = ["routes_of"]

_READERS: Final[Mapping[str, Mapping[str, str]]] = {
    "influx": {"mapping": "influx"},
    "json": {"decoder": "json"},
    "json_v2": {"decoder": "json"},
    "xpath_json": {"decoder": "json"},
    "value": {"decoder": "plain"},
}
"""Telegraf's data formats that Tidegate decodes on any topic."""
_DEFAULT_FORMAT: Final = "influx"
_DEVICE_TAGS: Final = (
    "device",
    "device_id",
    "deviceid",
    "sensor",
    "sensor_id",
    "sensorid",
    "node",
    "host",
    "thing",
    "id",
)
_PATHS: Final = (
    "Tidegate takes all fields under their own names; `tidegate route suggest` drafts a mapping from real messages"
)
_OPTION_REASONS: Final = {
    "json_v2": _PATHS,
    "xpath": _PATHS,
    "json_query": _PATHS,
    "json_name_key": _PATHS,
    "json_string_fields": "Tidegate keeps texts as texts",
    "json_strict": "Tidegate rejects what is not JSON",
    "json_time_format": "Tidegate reads ISO 8601 and epoch times of any unit",
    "tag_keys": "fields stay readings; a mapping can make them tags (`tidegate route suggest`)",
    "data_type": "Tidegate stores a number as a number and other text as text",
}
"""Options of a data format."""
_GLOB: Final = ("+", "#")
_NOT_A_NAME: Final = re.compile(r"^(?=[0-9])|[^A-Za-z0-9_]")


def routes_of(found: Imported, place: str, given: dict[str, Any], tags: Mapping[str, str]) -> None:
    """Add subscriptions and routes of one input, and remove its keys about topics and formats from `given`."""
    topics = [str(topic) for topic in given.pop("topics", [])]
    reader = str(given.pop("data_format", _DEFAULT_FORMAT))
    parsings = given.pop("topic_parsing", [])
    common: dict[str, Any] = {}
    if own := {**tags, **{str(name): str(value) for name, value in given.pop("tags", {}).items()}}:
        common["tags"] = own
    if key := given.pop("json_time_key", None):
        common["time"] = [str(key)]
    if (zone := given.pop("json_timezone", None)) and zone != "UTC":
        common["zone"] = str(zone)
    for option in [name for name in given if name in _OPTION_REASONS]:
        given.pop(option)
        found.leave(f"{place}.{option}", _OPTION_REASONS[option])
    known = found.values.setdefault("mqtt.subscriptions", [])
    known += [topic for topic in topics if topic not in known]
    if reader not in _READERS:
        found.leave(
            f"{place}.data_format ({reader})",
            f"Tidegate does not decode it. Write a decoder (DEVICES.md) for {', '.join(topics)}",
        )
        if parsings:
            found.leave(f"{place}.topic_parsing", "it belongs to this data format")
        return
    made = [route for parsing in parsings if (route := _parsed(found, place, parsing, reader, common))]
    covered = {_plain(route["filter"]) for route in made}
    for topic in topics:
        if topic in covered:
            continue
        if preset := _preset_of(topic):
            found.notes.append(f"The preset {preset} decodes {topic}.")
        else:
            made.append({"filter": topic, **_READERS[reader], **common})
    found.routes += [{**route, **_READERS[reader]} for route in made]


def _plain(text: str) -> str:
    levels = ["+" if level.startswith("{") else level for level in text.split("/")]
    return "/".join(levels)


def _preset_of(topic: str) -> str | None:
    """Return the preset whose own topics begin with the same word; its units and times are better than the format alone."""
    first = topic.partition("/")[0]
    if first in _GLOB:
        return None
    return next((name for name, preset in load_presets().items() if _begins(preset.routes, first)), None)


def _begins(routes: Sequence[RouteSettings], first: str) -> bool:
    return any(route.filter.partition("/")[0] == first for route in routes)


def _parsed(
    found: Imported, place: str, parsing: Mapping[str, Any], reader: str, common: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the route of one `topic_parsing`: its tags become named segments of the filter."""
    levels = str(parsing.get("topic", "")).split("/")
    for key in ("fields", "types"):
        if parsing.get(key):
            found.leave(f"{place}.topic_parsing.{key}", "a part of the topic is a tag, not a reading")
    names, fixed = _names(levels, str(parsing.get("tags", "")))
    measured, constant = _names(levels, str(parsing.get("measurement", "")))
    # A level may be a tag and the measurement; it has one name in a filter.
    varying = {**measured, **names}
    if levels == [""] or len(set(varying.values())) < len(varying):
        found.leave(f"{place}.topic_parsing", "its tags do not fit its topic")
        return None
    segments = [f"{{{varying[at]}}}" if at in varying else level for at, level in enumerate(levels)]
    route: dict[str, Any] = {"filter": "/".join(segments), **common}
    tags = {**common.get("tags", {}), **fixed, **{name: f"{{{name}}}" for name in names.values()}}
    if device := next((name for name in _DEVICE_TAGS if name in names.values()), None):
        route["device"] = f"{{{device}}}"
        tags.pop(device)
    if tags:
        route["tags"] = tags
    if reader == "value" and (measured or constant):
        route["metric"] = next((f"{{{varying[at]}}}" for at in measured), next(iter(constant.values()), None))
    return route


def _names(levels: Sequence[str], pattern: str) -> tuple[dict[int, str], dict[str, str]]:
    """Return the names of levels that vary, by place, and those of levels that the filter fixes, with their text.

    Telegraf writes a name for each level of the topic and `_` for one that it ignores.
    """
    varying: dict[int, str] = {}
    fixed: dict[str, str] = {}
    for at, name in _given(pattern):
        if at < len(levels) and levels[at] == "+":
            varying[at] = _NOT_A_NAME.sub("_", name)
        elif at < len(levels) and levels[at] != "#":
            fixed[name] = levels[at]
    return varying, fixed


def _given(pattern: str) -> Iterator[tuple[int, str]]:
    return ((at, name) for at, name in enumerate(pattern.split("/")) if name not in ("", "_"))
