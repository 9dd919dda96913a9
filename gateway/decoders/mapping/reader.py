"""One message through one case of a mapping: items, their devices and times, their readings."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from gateway.decoders.enclosing_times import (
    header_time,
    refuse_parts,
    refuse_senml,
    refuse_unknown_time,
    refuse_untimed,
)
from gateway.decoders.flatten import TooManyReadings, Trail, add_flag, number_duplicate_names, trail_path
from gateway.decoders.mapping.compiled_case import CompiledCase
from gateway.decoders.mapping.empty_message import path_exists, reject_empty_message
from gateway.decoders.mapping.paths import TemplateScope, ValuePath, first_template_value, message_identity
from gateway.decoders.mapping.telegram import TELEGRAM
from gateway.decoders.mapping.value_times import AUTO, CLOCK_UNSET, RECEIVED, At, TimeContext, is_time_absent
from gateway.decoders.sampled import SampledFlattener
from gateway.decoders.shape import Decoded, Decoding, Ignored, RouteMatch
from gateway.decoders.time_names import is_time, time_key
from gateway.decoders.values import MAX_METRIC_BYTES, refuse_topic_name
from gateway.decoders.vendors import CompiledVendor
from gateway.device_registry import identity_fault, names_device
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import Document
from gateway.safe_text import show_value
from gateway.time_rules import AMBIGUOUS_LOCAL
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import Reason

__all__ = ["read_case"]

_NAMED: Final = (dict, list)
"""Types that name their readings themselves; other values get the topic's name."""
_UNSURE: Final = frozenset({AMBIGUOUS_LOCAL, CLOCK_UNSET})
"""Flags of times that may occur twice."""


def read_case(
    case: CompiledCase, document: Document, payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int
) -> Decoding:
    """Decode one parsed message; see `Decoder`."""
    root = document.value
    if case.ignore is not None or case.refuse is not None:
        device = _route_device(case, match) or first_template_value(
            case.device, TemplateScope(match, payload, root, root, received_us)
        )
        if case.ignore is not None:
            return Ignored(case.ignore, "" if device is None and case.device else device)
        refused = Reject(case.refuse or Reason.UNDECODED, "$", show_value(root), case.wanted)
        return Decoded(match.device if device is None else device, [], [refused])
    clock = TimeContext(match.zone, received_us, limits.max_future_seconds, case.unset_clock)
    try:
        reader = _Reader(case, document, payload, match, clock, limits.max_readings_per_message)
        return reader.read_usual(root) if case.is_usual and type(root) is dict else reader.read()
    except TooManyReadings as error:
        return error.reject


class _Reader:
    """Reader of one message, from document to readings."""

    __slots__ = (
        "_case",
        "_clock",
        "_document",
        "_found",
        "_items",
        "_left",
        "_left_out",
        "_lost",
        "_match",
        "_missed",
        "_parts",
        "_payload",
        "_stride",
        "_timed",
    )

    def __init__(
        self, case: CompiledCase, document: Document, payload: bytes, match: RouteMatch, clock: TimeContext, limit: int
    ) -> None:
        self._case, self._document, self._payload, self._match = case, document, payload, match
        self._clock, self._left = clock, limit
        self._found: dict[str, Decoded] = {}
        self._items: dict[tuple[str, str | None], int] = {}
        self._lost: list[Reject] = []
        self._parts: set[str] = set()
        self._stride, self._timed = 1, False
        self._left_out: list[str] = []
        self._missed: list[str] = []

    def read(self) -> Decoding:
        for path in self._case.items:
            if not path.steps and self._document.value is not None:
                self._read_item(self._document.value, "$", ())
                continue
            items = list(path.spread(self._document.value))
            if not items and not path_exists(path, self._document.value):
                self._missed.append(path.text)
            self._timed, self._stride = self._any_timed(value for value, _trail, _keys in items), max(1, len(items))
            for value, trail, keys in items:
                self._read_item(value, trail, keys)
        found = list(self._found.values())
        if not found:
            # Nothing to read, or no device to read it for.
            refused = self._lost[0] if self._lost else self._nothing_kept()
            return refused or Decoded(self._match.device, [], [])
        found[0].rejects += self._lost
        if not (found[0].readings or any(decoded.readings or decoded.rejects for decoded in found)):
            refused = self._nothing_kept()
            found[0].rejects = [refused] if refused is not None else []
        for decoded in found:
            number_duplicate_names(decoded.readings)
        return found[0] if len(found) == 1 else found

    def read_usual(self, root: dict[str, Any]) -> Decoding:
        """Read an object that is the one item of a usual case: like `read`, with fewer checks."""
        match = self._match
        scope = TemplateScope(match, self._payload, root, root, self._clock.received_us)
        time_key = self._time_key(root)
        at = self._time_of(scope, "$", time_key)
        decoded = self._begin(match.device, scope)
        if isinstance(at, Reject):
            decoded.rejects = [at]
            return decoded
        self._flatten(self._case, scope, root, "$", at, decoded, 0, None, time_key)
        if decoded.readings:
            number_duplicate_names(decoded.readings)
        elif not decoded.rejects and (refused := self._nothing_kept()) is not None:
            decoded.rejects = [refused]
        return decoded

    def _nothing_kept(self) -> Reject | None:
        case = self._case
        return reject_empty_message(self._left_out, self._document.value, self._missed, case.keep, case.names.hides)

    def _read_item(self, value: Any, trail: Trail, keys: tuple[str, ...]) -> None:
        """Read one item; if it is an array, each object in it is one."""
        root = self._document.value
        if type(value) is not list or self._case.values or not any(isinstance(inner, dict | Reject) for inner in value):
            scope = TemplateScope(self._match, self._payload, root, value, self._clock.received_us, keys, trail=trail)
            self._add(scope, trail, None, None)
            return
        if len(value) > self._left:
            raise TooManyReadings(self._left)
        if self._case.time is None and (pack := refuse_senml(value)) is not None:
            self._lost.append(pack)
            return
        # Cut after the limit: a name that is too long stays so, but an item does not copy the whole topic.
        name = self._match.metric[: MAX_METRIC_BYTES + 1]
        self._timed, self._stride = self._any_timed(value), len(value)
        for place, inner in enumerate(value):
            inner_trail = (trail, place)
            scope = TemplateScope(
                self._match, self._payload, root, inner, self._clock.received_us, keys, trail=inner_trail
            )
            if type(inner) is dict:
                self._add(scope, inner_trail, None, place)
            else:
                self._add(scope, inner_trail, f"{name}[{place}]", None)

    def _add(self, scope: TemplateScope, trail: Trail, name: str | None, place: int | None) -> None:
        case = self._case
        if isinstance(scope.item, Reject):
            # A part that could not be parsed is in the document as a rejection.
            path = trail_path(trail)
            if path not in self._parts:
                # Several paths of `items` may lead into it.
                self._parts.add(path)
                self._lost.append(replace(scope.item, path=path))
            return
        device = self._device(scope, trail)
        if isinstance(device, Reject):
            self._lost.append(device)
            return
        time_key = self._time_key(scope.item)
        at = self._time_of(scope, trail, time_key)
        if case.time is None and (at is RECEIVED or self._timed) and time_key is None and scope.item:
            at = self._doubt(scope.item, trail, place) or at
        judged = None if case.quality is None else case.quality.judge(scope.item, scope.root)
        scope = self._with_telegram(scope, at)
        decoded = self._found.get(device)
        if decoded is None:
            decoded = self._found[device] = self._begin(device, scope)
        own = _identify(case, scope) if case.id_per_item else None
        if own is not None or (place is None and case.numbered):
            # An item with its own identity is the same at any place; two with one identity get different places.
            place = self._items.get((device, own), 0)
            self._items[device, own] = place + 1
        if isinstance(judged, Reject):
            at, judged = replace(judged, path=trail_path(trail)), None
        if isinstance(at, Reject):
            decoded.rejects.append(at)
            return
        if at[2] in _UNSURE and case.id_holds_time:
            # Another hour, or another start, may have the same time, so it cannot distinguish messages.
            own = decoded.message_id = None
        body, trail = self._body(scope, trail)
        before = len(decoded.readings)
        vendor = self._vendor(body, scope) if case.vendors else None
        if vendor is not None and vendor.has_items:
            self._vendor_items(vendor, scope, body, trail, at, decoded)
        else:
            self._flatten(vendor or case, scope, body, trail, at, decoded, place or 0, name, time_key)
        if judged is not None or own is not None or case.telegram is not None:
            self._mark(decoded.readings[before:], judged, own, decoded)

    def _vendor(self, body: object, scope: TemplateScope) -> CompiledVendor | None:
        """Return the vendor whose decoder gave this object."""
        return self._case.vendors.choose(body, first_template_value(self._case.brand, scope))

    def _vendor_items(
        self, vendor: CompiledVendor, scope: TemplateScope, body: Any, trail: Trail, at: At, decoded: Decoded
    ) -> None:
        """Read the items inside a vendor's object, each at its own time if it has one."""
        for item, place in vendor.items(body, trail):
            found = ((path, how, path.look(item, item)) for path, how in vendor.times)
            own = next((claim for claim in found if not is_time_absent(claim[2])), None)
            when = at if own is None else self._clock.read(own[2], own[1], partial(_place, own[0], place))
            if isinstance(when, Reject):
                decoded.rejects.append(when)
                continue
            number = self._items.get((decoded.device, None), 0)
            self._items[decoded.device, None] = number + 1
            inner = msgspec.structs.replace(scope, item=item)
            self._flatten(vendor, inner, item, place, when, decoded, number)

    def _flatten(
        self,
        rules: CompiledCase | CompiledVendor,
        scope: TemplateScope,
        body: Any,
        trail: Trail,
        at: At,
        decoded: Decoded,
        place: int,
        name: str | None = None,
        time_key: str | None = None,
    ) -> None:
        """Add the readings of one item to those of its device."""
        if not (name or self._match.metric or rules.names.prefix.text or type(body) in _NAMED or body is None):
            decoded.rejects.append(refuse_topic_name(self._match.topic))
            return
        flattener = SampledFlattener(
            rules.names.under(scope), rules.shape, scope, self._clock, at, trail, index=place, limit=self._left
        ).follow(self._match.time, self._stride)
        metric, inner = self._match.metric, body is not scope.item
        flattener.item(body, name or metric, metric, trail, None if inner else time_key, inner=inner)
        self._left -= len(flattener.readings) + len(flattener.rejects)
        if flattener.left_out and not decoded.readings:
            self._left_out += flattener.left_out
        decoded.readings += flattener.readings
        decoded.rejects += flattener.rejects

    def _body(self, scope: TemplateScope, trail: Trail) -> tuple[Any, Trail]:
        """Return what holds the item's readings, and where it is."""
        if not self._case.values:
            return scope.item, trail
        path, body = self._case.values[0], None
        for path in self._case.values:
            body = path.look(scope.item, scope.root)
            if body is not None:
                break
        else:
            path = self._case.values[0]
        if body is None and not any(
            path_exists(path, scope.root if path.absolute else scope.item) for path in self._case.values
        ):
            self._missed += [path.text for path in self._case.values]
        for step in path.steps:
            trail = (trail, step)
        return body, trail

    def _with_telegram(self, scope: TemplateScope, at: At | Reject) -> TemplateScope:
        telegram = self._case.telegram
        if telegram is None:
            return scope
        us = None if isinstance(at, Reject) else at[0]
        second = None if us is None else us // 1_000_000
        return msgspec.structs.replace(scope, telegram=telegram.hash(scope.item), second=second)

    def _mark(self, readings: list[Reading], flag: str | None, own: str | None, decoded: Decoded) -> None:
        """Set the flag, and give their own identity to items that have one and to fields that a receiver added."""
        if flag is not None:
            add_flag(readings, flag)
        if own is not None:
            for reading in readings:
                reading.message_id = own
        named = decoded.message_id if own is None else own.partition(":")[2]
        if self._case.telegram is not None and named is not None:
            self._case.telegram.name(readings, named)

    def _device(self, scope: TemplateScope, trail: Trail) -> str | Reject:
        case, match = self._case, self._match
        device = _route_device(case, match)
        if device is None:
            device = first_template_value(case.device, scope) if case.device else match.device
        if device is None:
            wanted = "a device id: " + ", else ".join(template.text for template in case.device)
            return Reject(Reason.MISSING_FIELD, trail_path(trail), show_value(scope.item), wanted)
        claim = first_template_value(case.same_device, scope) if case.same_device else None
        if claim is None:
            return device
        if names_device(claim, device):
            return claim
        # A route may give a device another name, such as {application}/{device}: then the topic has the payload's name.
        if match.device_named and names_device(claim, *match.topic.split("/")):
            return device
        return identity_fault(device, claim, trail_path(trail)) or device

    def _begin(self, device: str, scope: TemplateScope) -> Decoded:
        case, root = self._case, self._document.value
        flags = list(self._document.flags)
        if case.flags:
            flags += [flag for flag, wanted in case.flags.items() if wanted.hold(root)]
        tags = self._match.tags
        if case.tags:
            filled = {tag: text for tag, template in case.tags.items() if (text := template.fill(scope)) is not None}
            tags = {**filled, **(tags or {})} or None
        own = None if case.id_per_item else message_identity(case.message_id, scope)
        text, over_air = own or (None, False)
        kind = TELEGRAM if over_air else "fm"
        return Decoded(device, [], [], flags or None, tags, message_id=text, id_kind=kind)

    def _time_key(self, item: Any) -> str | None:
        """Return the key that holds the time, if the mapping does not say it."""
        return time_key(item, self._match.time) if self._case.time is None and type(item) is dict else None

    def _any_timed(self, items: Iterable[Any]) -> bool:
        """Return whether any of several items has its own time, so that no item may get another one's."""
        if self._case.time is not None:
            return False
        return any((key := self._time_key(item)) is not None and is_time(item[key]) for item in items)

    def _doubt(self, item: Any, trail: Trail, place: int | None) -> Reject | None:
        """Return why an item without a time may not get the message's or the receive time; None if it may."""
        if self._timed:
            return refuse_untimed(item, trail)
        names = self._case.names
        return None if place is None else refuse_unknown_time(item, lambda key: names.says(key, key, ""), trail)

    def _time_of(self, scope: TemplateScope, trail: Trail, time_key: str | None) -> At | Reject:
        if time_key is not None and isinstance(scope.item, dict):
            return self._clock.read(scope.item[time_key], AUTO, lambda: trail_path((trail, time_key)))
        at: At | Reject = self._message_time(scope) if self._case.time is None else RECEIVED
        for path, how in self._case.time or ():
            claimed = path.of(scope)
            if not is_time_absent(claimed) and not self._is_no_time(claimed):
                at = self._clock.read(claimed, how, partial(_place, path, trail))
                break
        if self._case.time_offset is None or isinstance(at, Reject):
            return at
        path, times = self._case.time_offset, _index(trail) if self._case.by_place else 1
        return self._clock.add(at, path.of(scope), self._case.offset_unit, partial(_place, path, trail), times)

    def _message_time(self, scope: TemplateScope) -> At | Reject:
        """Return the time of an item that names none itself: the message's, or that of the message's header."""
        root, own, names = scope.root, self._match.time, self._case.names
        if type(root) is not dict:
            return RECEIVED
        outer = None if scope.item is root else self._time_key(root)
        if outer is not None:
            return self._clock.read(root[outer], AUTO, lambda: trail_path(("$", outer)))
        found = header_time(root, own, lambda name: names.says(name, name, ""))
        if found is not None:
            claimed: Any = root
            place: Trail = "$"
            for key in found:
                claimed, place = claimed[key], (place, key)
            return self._clock.read(claimed, AUTO, partial(trail_path, place))
        return refuse_parts(root, "$", lambda name: names.says(name, name, "")) or RECEIVED

    def _is_no_time(self, claimed: object) -> bool:
        test = self._case.no_times
        return test is not None and isinstance(claimed, str) and test(claimed.strip())


def _identify(case: CompiledCase, scope: TemplateScope) -> str | None:
    """Return the identity of an item, with its kind."""
    own = message_identity(case.message_id, scope)
    return None if own is None else f"{TELEGRAM if own[1] else 'fm'}:{own[0]}"


def _route_device(case: CompiledCase, match: RouteMatch) -> str | None:
    """Return the device of the topic, if the route names it and the payload only has to agree."""
    return match.device if case.same_device and match.device_named else None


def _index(trail: Trail) -> int:
    """Return the place of an item in its array."""
    key = 0 if isinstance(trail, str) else trail[1]
    return key if isinstance(key, int) else 0


def _place(path: ValuePath, trail: Trail) -> str:
    return path.text if path.absolute or path.around else f"{trail_path(trail)}.{path.text}"
