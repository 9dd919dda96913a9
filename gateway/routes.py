"""Which decoder reads which topic. Compiled once; wrong route settings are one sentence at start.

Order: own topics (never ingested), the native format, then the settings' routes in the order they stand; the first
that matches wins.
"""

import difflib
import re
from dataclasses import dataclass
from typing import Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from gateway.decoders.registry import decoder_names
from gateway.decoders.shape import RouteMatch
from gateway.settings import RouteSettings
from gateway.topics import BadFilter, TopicFilter, compile_filter, native_topic
from ingest.contract.errors import ConfigError

__all__ = ["OWN", "RouteTable", "compile_routes"]

OWN: Final = "own"
_OWN_PREFIXES: Final = ("tidegate/receipts/", "$SYS/")
_OWN_TOPICS: Final = frozenset({"tidegate/receipts", "$SYS"})
_CACHED_TOPICS: Final = 20_000
_CACHED_CHARACTERS: Final = 512
"""Of the topics that are remembered; MQTT allows 65,535 bytes, and those who send such send ever new ones."""
_NAME = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class _Route:
    """One compiled `[[routes]]` entry."""

    settings: RouteSettings
    filter: TopicFilter
    zone: ZoneInfo | None

    def match(self, topic: str) -> RouteMatch | None:
        names = self.filter.match(topic)
        if names is None:
            return None
        head, _, last = topic.rpartition("/")
        device = head if self.settings.device is None else _fill(self.settings.device, names)
        tags = {key: _fill(text, names) for key, text in self.settings.tags.items()}
        return RouteMatch(
            self.settings.decoder,
            device,
            last,
            self.settings.time,
            self.zone,
            self.settings.units,
            tags or None,
            topic,
            names,
            self.settings.profile,
        )


def _fill(text: str, names: dict[str, str]) -> str:
    return _NAME.sub(lambda found: names[found[1]], text)


class RouteTable:
    """Topics to routes. Remembers recent topics, since the same few come with every message."""

    def __init__(self, routes: tuple[_Route, ...]) -> None:
        self._routes = routes
        self._known: dict[str, RouteMatch | Literal["own"] | None] = {}

    def match(self, topic: str) -> RouteMatch | Literal["own"] | None:
        """The topic's route; `OWN` for what this product publishes itself; None where no route matches."""
        try:
            return self._known[topic]
        except KeyError:
            pass
        found = self._find(topic)
        if len(topic) <= _CACHED_CHARACTERS:
            if len(self._known) >= _CACHED_TOPICS:
                self._known.clear()
            self._known[topic] = found
        return found

    def _find(self, topic: str) -> RouteMatch | Literal["own"] | None:
        if topic in _OWN_TOPICS or topic.startswith(_OWN_PREFIXES):
            return "own"
        device = native_topic(topic)
        if device is not None:
            return RouteMatch("native", device, "readings", topic=topic)
        return next((found for route in self._routes if (found := route.match(topic)) is not None), None)


def compile_routes(settings: tuple[RouteSettings, ...]) -> RouteTable:
    """Compile the `[[routes]]` settings.

    Raises:
        ConfigError: names the route, the key and a suggestion.
    """
    known = decoder_names()
    return RouteTable(tuple(_compile(number, route, known) for number, route in enumerate(settings, start=1)))


def _compile(number: int, route: RouteSettings, known: list[str]) -> _Route:
    where = f"[[routes]] number {number} ({route.filter})"
    if route.decoder not in known:
        near = _suggest(route.decoder, known)
        message = f"{where}: decoder {route.decoder!r} is unknown{near} (known: {', '.join(known)})"
        raise ConfigError(message)
    try:
        compiled = compile_filter(route.filter)
    except BadFilter as error:
        message = (
            f"{where}: filter is no topic filter: {error}; write it as in site/+/state, site/# or site/{{device}}/state"
        )
        raise ConfigError(message) from error
    for key, text in (("device", route.device or ""), *((f"tags.{tag}", text) for tag, text in route.tags.items())):
        for name in _NAME.findall(text):
            if name not in compiled.names:
                named = ", ".join(f"{{{known}}}" for known in compiled.names) or "none"
                near = _suggest(name, compiled.names)
                message = f"{where}: {key} names {{{name}}}, which the filter does not{near} (it names: {named})"
                raise ConfigError(message)
    return _Route(route, compiled, None if route.zone is None else _zone(where, route.zone))


def _zone(where: str, name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        known = available_timezones()
        message = (
            f"{where}: zone {name!r} is no IANA time zone{_suggest(name, known)}; wanted a name such as Europe/Berlin"
        )
        raise ConfigError(message) from error


def _suggest(text: str, known: object) -> str:
    names = {str(name).lower(): str(name) for name in known}  # type: ignore[attr-defined]
    near = difflib.get_close_matches(text.lower(), names, n=1)
    return f"; did you mean {names[near[0]]!r}?" if near else ""
