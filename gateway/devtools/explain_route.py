"""`tidegate route test`: which route takes a message, why the others do not, and the result."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.decoders.mapping.extends import resolve_extends
from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.shape import RouteMatch
from gateway.devtools.decode_file import describe_outcome
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.policy import ReadingPolicy
from gateway.routes import Route, RouteTable, choose_candidate, compile_routes, shipped_base, shipped_mappings
from ingest.contract.dead_letter import Reject
from ingest.contract.errors import ConfigError

__all__ = ["explain_message", "find_mapping", "list_routes"]

NATIVE = "tidegate/v1/{device}/readings"


def explain_message(
    topic: str,
    payload: bytes,
    routes: tuple[RouteSettings, ...],
    limits: GatewaySettings,
    *,
    policy: ReadingPolicy | None = None,
    received_us: int,
) -> dict[str, Any]:
    """Explain what the gateway would do with one message that comes in now.

    Returns:
        `{topic, route: {name, filter, decoder, device, segments} | None, tried: [{name, filter, why, topic}],
        suggestion, device, outcome, reason, readings, rejected}`: the last four as in `decode_lines`. `tried` holds the
        settings' routes, and those of presets that match the topic, up to the one that took the message; its `topic`
        says whether at least the topic matches.

    Raises:
        ConfigError: a route is wrong.
    """
    table = compile_routes(routes, limits)
    outcome = MessageProcessor(table, limits, policy=policy).decide(
        Message(1, 0, received_us, topic.encode("utf-8", "surrogateescape"), payload)
    )
    match = table.match(topic)
    found: dict[str, Any] = {"topic": topic, "route": None, "tried": [], "suggestion": None}
    if isinstance(match, RouteMatch):
        taken = _taken(match, payload, limits)
        found["route"] = None if taken is None else _show_match(table, taken)
        found["tried"] = _tried(table, topic, match, taken)
    elif match is None:
        found["tried"] = _tried(table, topic, None, None)
        found["suggestion"] = _suggest(table, topic)
    return found | {"device": outcome.device} | describe_outcome(outcome)


def list_routes(routes: tuple[RouteSettings, ...], limits: GatewaySettings) -> list[dict[str, Any]]:
    """Return all routes in the order in which they are tried: `{name, filter, decoder, conditions}`.

    Raises:
        ConfigError: a route is wrong.
    """
    own = [{"name": "the native format", "filter": NATIVE, "decoder": "native", "conditions": []}]
    return own + [
        {
            "name": route.name,
            "filter": route.settings.filter,
            "decoder": route.reader,
            "conditions": _conditions(route),
        }
        for route in compile_routes(routes, limits).routes
    ]


def find_mapping(name: str, own: Mapping[str, MappingSettings], routes: Iterable[RouteSettings]) -> MappingSettings:
    """Return the mapping of a name or of a route's filter, with everything that it extends.

    Raises:
        ConfigError: nothing has that name, or it extends an unknown mapping.
    """
    shipped = shipped_mappings()
    of_routes = {route.filter: route.mapping for route in routes if route.mapping is not None}
    found = own.get(name) or shipped.get(name) or of_routes.get(name)
    if isinstance(found, str):
        found = shipped.get(found)
    if found is None:
        known = [*own, *shipped, *of_routes]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        message = f"no mapping is named {name!r}{hint} (known: {', '.join(sorted(known))})"
        raise ConfigError(message)
    try:
        return shipped_base(resolve_extends(name, found, own))
    except ValueError as error:
        message = f"mapping {name}: {error}"
        raise ConfigError(message) from error


def _conditions(route: Route) -> list[str]:
    given = [f"{{{name}}} = {' or '.join(globs)}" for name, globs in route.settings.only.items()]
    if route.settings.payload:
        given.append(f"payload = {' or '.join(route.settings.payload)}")
    if route.settings.mapping is not None and route.mapping is not None:
        given += route.mapping.when.texts
    return given


def _taken(match: RouteMatch, payload: bytes, limits: GatewaySettings) -> RouteMatch | None:
    if not match.candidates:
        return match
    chosen = choose_candidate(match, payload, limits)
    return None if isinstance(chosen, Reject) else chosen[0]


def _show_match(table: RouteTable, match: RouteMatch) -> dict[str, Any]:
    route = next((route for route in table.routes if route.label == match.route), None)
    return {
        "name": match.route if route is None else route.name,
        "filter": NATIVE if route is None else route.settings.filter,
        "decoder": match.decoder if route is None else route.reader,
        "device": match.device,
        "segments": match.names,
    }


def _tried(table: RouteTable, topic: str, match: RouteMatch | None, taken: RouteMatch | None) -> list[dict[str, Any]]:
    """Return why each route before the one that took the message did not; presets only if they match the topic."""
    if taken is not None and all(route.label != taken.route for route in table.routes):
        # The native format comes before all routes.
        return []
    candidates = {candidate.route for candidate in match.candidates} if match is not None else set()
    tried: list[dict[str, Any]] = []
    for route in table.routes:
        if taken is not None and route.label == taken.route:
            break
        if route.label in candidates:
            why = "the payload does not match: wanted " + ", ".join(_conditions(route)[len(route.settings.only) :])
        elif route.own:
            why = _mismatch(route, topic)
        else:
            continue
        tried.append(
            {"name": route.name, "filter": route.settings.filter, "why": why, "topic": route.label in candidates}
        )
    return tried


def _mismatch(route: Route, topic: str) -> str:
    """Return a sentence on where a topic and a filter differ."""
    wanted, given = route.settings.filter.split("/"), topic.split("/")
    for place, segment in enumerate(wanted):
        if segment == "#" or segment.endswith("#}"):
            break
        if place >= len(given):
            return f"the topic ends before segment {place + 1} ({segment})"
        if not segment.startswith("{") and segment not in ("+", given[place]):
            near = difflib.get_close_matches(given[place], [segment], n=1)
            return f"segment {place + 1} is {given[place]!r}, not {segment!r}" + (" (mistyped?)" if near else "")
    else:
        if len(given) > len(wanted):
            return f"the topic has more than the filter's {len(wanted)} segments"
    return "; ".join(_conditions(route)) or "a wildcard matches no topic that begins with $, and {name} no empty level"


def _suggest(table: RouteTable, topic: str) -> str:
    """Return the filter that is nearest to the topic, and the route to write."""
    given = topic.split("/")

    def likeness(route: Route) -> float:
        wanted = route.settings.filter.split("/")
        fixed = [(w, g) for w, g in zip(wanted, given, strict=False) if w[:1] not in ("{", "+", "#")]
        alike = sum(difflib.SequenceMatcher(None, w.lower(), g.lower()).ratio() for w, g in fixed)
        return alike - abs(len(wanted) - len(given)) * 0.5 if fixed else 0.0

    best = max(table.routes, key=likeness, default=None)
    own = f'write a route: [[routes]] filter = "{"/".join([*given[:-1], "+"]) if len(given) > 1 else topic}"'
    if best is None or likeness(best) < 0.8:
        return own
    return f"the nearest route is {best.name} ({best.settings.filter}): {_mismatch(best, topic)}. Otherwise {own}"
