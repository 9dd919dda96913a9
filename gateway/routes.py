"""Routes from topics to decoders. Compiled once; a wrong route is one sentence at start.

Order: own topics (never ingested), the native format, the settings' routes in their order, then those of the shipped
presets. The first match wins. If a route also has a condition on the payload and it does not hold, the next route that
matches the topic is tried: see `choose_candidate`.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from gateway.decoders.mapping.compiled_case import CompiledCase
from gateway.decoders.mapping.engine import BadPath, CompiledMapping, generic_mapping
from gateway.decoders.mapping.extends import resolve_extends
from gateway.decoders.mapping.names import PatternTable
from gateway.decoders.mapping.settings import CaseSettings, MappingSettings
from gateway.decoders.registry import IGNORE, MAPPING, decoder_names
from gateway.decoders.shape import RouteMatch
from gateway.decoders.vendor_settings import OwnVendors, VendorSettings
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.glob_patterns import compile_globs, glob_pattern
from gateway.json_text import Document, strip_byte_order_mark
from gateway.presets.loader import known_vendors, load_presets
from gateway.safe_text import show_text
from gateway.topic_filters import BadFilter, TopicFilter, compile_filter, native_topic
from ingest.contract.dead_letter import Reject
from ingest.contract.errors import ConfigError
from ingest.contract.reasons import Reason

__all__ = [
    "OWN",
    "Route",
    "RouteTable",
    "choose_candidate",
    "compile_routes",
    "compile_vendors",
    "shipped_base",
    "shipped_mappings",
]

OWN: Final = "own"
_OWN_PREFIXES: Final = ("tidegate/receipts/", "$SYS/")
_OWN_TOPICS: Final = frozenset({"tidegate/receipts", "$SYS"})
_CACHED_TOPICS: Final = 20_000
_CACHED_CHARACTERS: Final = 512
"""Longest remembered topic; MQTT allows 65,535 bytes, and devices rarely repeat long topics."""
_NAME = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Route:
    """One compiled `[[routes]]` entry. `name` describes it, `own` says that it is in the settings."""

    name: str
    own: bool
    settings: RouteSettings
    filter: TopicFilter
    zone: ZoneInfo | None
    units: PatternTable
    mapping: CompiledMapping | None
    payload: re.Pattern[bytes] | None

    def match(self, topic: str) -> RouteMatch | None:
        """Return the match for this topic; None if filter or segments do not match."""
        names = self.filter.match(topic)
        if names is None:
            return None
        given = self.settings
        for segment, globs in given.only.items():
            test = compile_globs(globs)
            if test is None or not test(names[segment]):
                return None
        head, _, last = topic.rpartition("/")
        metric = last if given.metric is None else _fill(given.metric, names)
        bare_unit = None if metric in given.units else self.units.find(metric, metric)
        return RouteMatch(
            IGNORE if given.ignore is not None else MAPPING if given.mapping is not None else given.decoder,
            # A mapping may find the device in the payload, even if the topic has no segment for it.
            (head or topic if given.mapping is not None else head)
            if given.device is None
            else _fill(given.device, names),
            metric,
            given.time,
            self.zone,
            given.units if bare_unit is None else {**given.units, metric: bare_unit},
            {key: _fill(text, names) for key, text in given.tags.items()} or None,
            topic,
            names,
            given.profile,
            self.mapping,
            given.ignore,
            self.payload,
            (),
            self.label,
            given.device is not None,
        )

    def fresh(self) -> "Route":
        """Return the same route for another table: mappings count left out fields."""
        return self if self.mapping is None else replace(self, mapping=self.mapping.fresh())

    @property
    def label(self) -> str:
        """Name and filter: no two routes share them, unless they are alike."""
        return f"{self.name} ({self.settings.filter})"

    @property
    def reader(self) -> str:
        """Description of what reads its messages."""
        given = self.settings
        if given.ignore is not None:
            return f"ignore {given.ignore.value}"
        if given.mapping is not None:
            return f"mapping {given.mapping}" if isinstance(given.mapping, str) else "its own mapping"
        return given.decoder

    @property
    def conditional(self) -> bool:
        """Return whether the payload decides if this route takes a message."""
        named = self.settings.mapping is not None and self.mapping is not None and bool(self.mapping.when.texts)
        return self.payload is not None or named


def _fill(text: str, names: dict[str, str]) -> str:
    return _NAME.sub(lambda found: names[found[1]], text)


class RouteTable:
    """Topics to routes. It remembers recent topics, because the same few come with every message."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        """Take the routes in the order in which they are tried."""
        self.routes = routes
        self._known: dict[str, RouteMatch | Literal["own"] | None] = {}

    def take(self, other: "RouteTable") -> None:
        """Follow the routes of another table from now on; counts begin again."""
        self.routes = other.routes
        self._known.clear()

    def match(self, topic: str) -> RouteMatch | Literal["own"] | None:
        """Return the topic's route; `OWN` for topics that this product publishes itself; None if no route matches."""
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

    def left_out(self) -> dict[str, dict[str, int]]:
        """Return how often each route's mapping left out each field since the start, as `Route.label` to names."""
        found = ((route.label, route.mapping.left_out()) for route in self.routes if route.mapping is not None)
        return {label: fields for label, fields in found if fields}

    def _find(self, topic: str) -> RouteMatch | Literal["own"] | None:
        if topic in _OWN_TOPICS or topic.startswith(_OWN_PREFIXES):
            return "own"
        device = native_topic(topic)
        if device is not None:
            return RouteMatch("native", device, "readings", topic=topic, route="the native format")
        candidates: list[RouteMatch] = []
        for route in self.routes:
            found = route.match(topic)
            if found is not None:
                candidates.append(found)
                if not route.conditional:
                    break
        if not candidates:
            return None
        first = candidates[0]
        if len(candidates) == 1 and first.payload is None:
            return first
        return replace(first, candidates=tuple(candidates))


def choose_candidate(
    match: RouteMatch, payload: bytes, limits: GatewaySettings
) -> tuple[RouteMatch, Document | None] | Reject:
    """Return the candidate that takes this payload, and the payload's document if its mapping needs it.

    A payload is parsed once for all mappings of one format. A payload that no candidate takes is rejected: as broken if
    it cannot be parsed, else as `no_route`.
    """
    documents: dict[str, Document | Reject] = {}
    broken: Reject | None = None
    text = (
        strip_byte_order_mark(payload).strip()
        if any(candidate.payload is not None for candidate in match.candidates)
        else payload
    )
    for candidate in match.candidates:
        if candidate.payload is not None and not candidate.payload.fullmatch(text):
            continue
        mapping = candidate.mapping
        if mapping is None or not mapping.when.texts:
            return candidate, None
        document = documents.get(mapping.format)
        if document is None:
            document = documents[mapping.format] = mapping.parse(payload, limits)
        if isinstance(document, Reject):
            broken = document
        elif mapping.when.hold(document.value):
            return candidate, document
    wanted = "a payload that one of these takes: " + ", ".join(candidate.route for candidate in match.candidates)
    return broken or Reject(Reason.NO_ROUTE, "$", f"{len(payload)} bytes", show_text(wanted))


def compile_routes(settings: tuple[RouteSettings, ...], limits: GatewaySettings | None = None) -> RouteTable:
    """Compile the `[[routes]]` settings, and behind them those of the presets that `limits` names (without it: none).

    Raises:
        ConfigError: a route is wrong; the text names the route, the key and a suggestion.
    """
    zone = None if limits is None else limits.zone
    if zone is not None:
        _zone("[gateway]", zone)
    own_vendors = OwnVendors() if limits is None else limits.vendors
    vendors = compile_vendors(own_vendors)
    own = tuple(
        _compile(f"[[routes]] number {number}", route, zone, vendors, limits, own=True)
        for number, route in enumerate(settings, start=1)
    )
    shipped = _preset_routes(() if limits is None else limits.presets, zone, own_vendors)
    return RouteTable((*own, *(route.fresh() for route in shipped)))


@lru_cache(maxsize=16)
def compile_vendors(own: OwnVendors) -> dict[str, VendorSettings]:
    """Return all vendors that mappings may name, in the order in which they are tried: those of the settings come first.

    Raises:
        ConfigError: a vendor of the settings is wrong; the text names it.
    """
    vendors = known_vendors(own.settings)
    for name in own.settings:
        try:
            CompiledCase(CaseSettings(vendors=(name,)), frozenset(), {}, {name: vendors[name]})
        except BadPath as error:
            message = f"[vendors.{name}]: {error}"
            raise ConfigError(message) from error
    return vendors


@lru_cache(maxsize=16)
def _preset_routes(wanted: tuple[str, ...], zone: str | None, own: OwnVendors) -> tuple[Route, ...]:
    vendors = compile_vendors(own)
    presets = load_presets()
    for pattern in wanted:
        test = compile_globs((pattern,))
        if test is not None and not any(map(test, presets)):
            message = (
                f"[gateway] presets: no shipped format matches {pattern!r}{_suggest(pattern, presets)} "
                f"(shipped: {', '.join(sorted(presets))})"
            )
            raise ConfigError(message)
    test = compile_globs(wanted)
    return tuple(
        _compile(f"preset {name} number {number}", route, zone, vendors, None, own=False)
        for name, preset in presets.items()
        if test is not None and test(name)
        for number, route in enumerate(preset.routes, start=1)
    )


def _compile(
    name: str,
    route: RouteSettings,
    zone: str | None,
    vendors: Mapping[str, VendorSettings],
    limits: GatewaySettings | None,
    *,
    own: bool,
) -> Route:
    where = f"{name} ({route.filter})"
    known = decoder_names(limits)
    if route.decoder not in known:
        near = _suggest(route.decoder, known)
        message = f"{where}: decoder {route.decoder!r} is unknown{near} (known: {', '.join(known)})"
        raise ConfigError(message)
    try:
        compiled = compile_filter(route.filter)
    except BadFilter as error:
        message = (
            f"{where}: invalid topic filter: {error}; write it as in site/+/state, site/# or site/{{device}}/state"
        )
        raise ConfigError(message) from error
    templates = {"device": route.device or "", "metric": route.metric or ""}
    for key, text in (*templates.items(), *((f"tags.{tag}", text) for tag, text in route.tags.items())):
        for segment in _NAME.findall(text):
            _check_segment(where, f"{key} names {{{segment}}}", segment, compiled)
    for segment in route.only:
        _check_segment(where, f"only names {segment}", segment, compiled)
    zone = route.zone if route.zone is not None else zone
    patterns = "|".join(map(glob_pattern, route.payload))
    return Route(
        name,
        own,
        route,
        compiled,
        None if zone is None else _zone(where, zone),
        PatternTable(route.units.items()),
        _mapping(where, route, compiled, vendors),
        re.compile(patterns.encode(), re.DOTALL) if patterns else None,
    )


def _check_segment(where: str, what: str, name: str, compiled: TopicFilter) -> None:
    if name not in compiled.names:
        named = ", ".join(f"{{{known}}}" for known in compiled.names) or "none"
        near = _suggest(name, compiled.names)
        message = f"{where}: {what}, but the filter does not{near} (it names: {named})"
        raise ConfigError(message)


def _mapping(
    where: str, route: RouteSettings, compiled: TopicFilter, vendors: Mapping[str, VendorSettings]
) -> CompiledMapping | None:
    """Return the route's mapping; for generic JSON one that knows only the route's units."""
    if route.mapping is None:
        if route.decoder not in ("json", "auto") or route.ignore is not None:
            return None
        return generic_mapping(route.units, route.numeric_text)
    settings = route.mapping
    if isinstance(settings, str):
        known = shipped_mappings()
        if settings not in known:
            near = _suggest(settings, known)
            message = (
                f"{where}: mapping {settings!r} is unknown{near}; write [mappings.{settings}], or name a shipped one: "
                f"{', '.join(sorted(known))}"
            )
            raise ConfigError(message)
        settings = known[settings]
    try:
        return CompiledMapping(shipped_base(settings), compiled.names, route.units, vendors)
    except BadPath as error:
        message = f"{where}: mapping: {error}"
        raise ConfigError(message) from error


@cache
def shipped_mappings() -> dict[str, MappingSettings]:
    """Return all mappings of the presets by their name, with everything that they extend."""
    shipped = {name: mapping for preset in load_presets().values() for name, mapping in preset.mappings.items()}
    return {name: resolve_extends(name, mapping, shipped) for name, mapping in shipped.items()}


def shipped_base(settings: MappingSettings) -> MappingSettings:
    """Return a mapping with the shipped one that it extends.

    Raises:
        BadPath: no shipped mapping has that name.
    """
    known = shipped_mappings()
    settings = resolve_extends("", settings, known)
    if settings.extends is not None:
        near = _suggest(settings.extends, known) or f"; shipped are {', '.join(sorted(known))}"
        message = f"extends {settings.extends!r}, but no mapping has that name{near}"
        raise BadPath(message)
    return settings


def _zone(where: str, name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        known = available_timezones()
        message = f"{where}: zone {name!r} is not an IANA time zone{_suggest(name, known)}; wanted a name such as Europe/Berlin"
        raise ConfigError(message) from error


def _suggest(text: str, known: Iterable[str]) -> str:
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(text.lower(), names, n=1)
    return f"; did you mean {names[near[0]]!r}?" if near else ""
