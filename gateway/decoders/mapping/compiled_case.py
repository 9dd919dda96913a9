"""One case of a mapping, compiled: messages of one shape."""

import copy
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from gateway.decoders.mapping.conditions import MatchConditions
from gateway.decoders.mapping.names import NameRules, PatternSet
from gateway.decoders.mapping.paths import (
    EACH_ITEM,
    EACH_MEMBER,
    BadPath,
    JoinedValuePath,
    ValuePath,
    ValueTemplate,
    parse_path,
)
from gateway.decoders.mapping.settings import CaseSettings, TimeSource
from gateway.decoders.mapping.telegram import TelegramIdentity
from gateway.decoders.mapping.value_rules import QualityRule, QuantityKeys, ValueRules
from gateway.decoders.mapping.value_times import AUTO, compile_time_source, find_time_format
from gateway.decoders.values import NO_VALUE
from gateway.decoders.vendor_settings import VendorSettings
from gateway.decoders.vendors import CaseVendors, CompiledVendor, join_rules, named_vendors
from gateway.glob_patterns import compile_globs

__all__ = ["CompiledCase"]


class CompiledCase:
    """Settings of a case, parsed, for `read_case`; the attributes are the settings' fields."""

    def __init__(
        self,
        settings: CaseSettings,
        segments: frozenset[str],
        units: Mapping[str, str],
        vendors: Mapping[str, VendorSettings] | None = None,
    ) -> None:
        """Compile for a route that names `segments` and `units`; `vendors` are the existing ones.

        Raises:
            BadPath: a path or template cannot be read, or needs a segment that the filter does not name.
        """
        self.when = MatchConditions(settings.when)
        self.ignore, self.refuse, self.wanted = (
            settings.ignore,
            settings.refuse,
            settings.wanted or "; ".join(self.when.texts) or None,
        )
        self.unset_clock = settings.unset_clock
        self.items = [parse_path(text, wild=True) for text in settings.items]
        self.numbered = any(EACH_ITEM in path.steps for path in self.items)
        self.keep = settings.keep
        self.values = [parse_path(text) for text in settings.values]
        self.device = _usable(settings.device, segments, "device")
        self.same_device = _usable(settings.same_device, segments, "same_device")
        self.message_id = _identities(settings, segments)
        several = len(self.items) > 1 or bool(self.items[0].steps)
        self.id_per_item = several and any(template.per_item for template in self.message_id)
        self.tags = {tag: _usable((text,), segments, f"tags.{tag}")[0] for tag, text in settings.tags.items()}
        self.flags = {flag: MatchConditions(wanted) for flag, wanted in settings.flags.items()}
        self.time = None if settings.time is None else [compile_time_source(source) for source in settings.time]
        self.no_times = compile_globs(settings.no_times)
        offset = settings.time_offset
        self.time_offset = None if offset is None else parse_path(offset.path or offset.step or "", around=True)
        self.by_place = offset is not None and offset.step is not None
        self.offset_unit = "" if offset is None else offset.unit
        self.quality = None if settings.quality is None else QualityRule(settings.quality)
        whole = not several
        times = {_from(path, whole) for path, _how in self.time or ()}
        self.id_holds_time = any(
            "second" in template.of_telegram or any(_from(path, whole) in times for path in template.paths)
            for template in self.message_id
        )
        needs_telegram = any(template.of_telegram for template in self.message_id)
        self.telegram = (
            TelegramIdentity(PatternSet(settings.radio), [_flat(steps) for _, steps in times])
            if needs_telegram
            else None
        )
        self.is_usual = not (
            several
            or self.values
            or self.device
            or self.same_device
            or self.time_offset
            or self.id_holds_time
            or self.telegram
            or settings.quality
            or settings.vendors
        )
        """A message is one item of the topic's device, with its readings as members."""
        self.shape = _shape(settings)
        self.brand = _usable(settings.brand, segments, "brand")
        hidden = self._hidden(settings)
        self.names = NameRules(settings, units, hidden)
        found = named_vendors(settings.vendors, vendors or {})
        self.vendors = CaseVendors([_vendor(vendor, settings, units, hidden) for vendor in found])
        for names in (self.names, *(vendor.names for vendor in self.vendors)):
            for template in names.templates:
                _check(template, segments, "prefix or rename")

    def fresh(self) -> "CompiledCase":
        """Return the same case for another gateway: see `NameRules.fresh`."""
        other = copy.copy(self)
        other.names = self.names.fresh()
        other.vendors = CaseVendors([vendor.fresh() for vendor in self.vendors])
        return other

    def _hidden(self, settings: CaseSettings) -> list[str]:
        """Return flat names of fields with device, time or identity: they are not readings."""
        texts = [*settings.rename.values(), settings.prefix, *settings.units.values()]
        templates = [
            *self.device,
            *self.same_device,
            *self.message_id,
            *self.tags.values(),
            *self.brand,
            *map(ValueTemplate, texts),
        ]
        paths = [path for template in templates for path in template.paths]
        for path, _how in self.time or ():
            paths += path.template.paths if isinstance(path, JoinedValuePath) and path.template is not None else [path]
        paths += [] if self.time_offset is None else [self.time_offset]
        paths += [] if self.quality is None else [self.quality.path]
        whole = len(self.items) == 1 and not self.items[0].steps
        inside = [path for path in paths if (whole or not path.absolute) and not path.around]
        bases = [path.steps for path in self.values] or [()]
        hidden = [
            _flat(path.steps[len(base) :]) for base in bases for path in inside if path.steps[: len(base)] == base
        ]
        return hidden + [_flat(rest) for rest in self._inner_items()]

    def _inner_items(self) -> list[tuple[Any, ...]]:
        """Return where items are inside other items, so that nothing is read twice."""
        pairs = [(a.steps, b.steps) for a in self.items for b in self.items if a.steps == b.steps[: len(a.steps)]]
        rests = [takewhile(lambda step: step not in (EACH_ITEM, EACH_MEMBER), b[len(a) :]) for a, b in pairs]
        return [rest for rest in map(tuple, rests) if rest]


def _vendor(
    settings: VendorSettings, case: CaseSettings, units: Mapping[str, str], hidden: Iterable[str]
) -> CompiledVendor:
    merged = join_rules(settings, case)
    own = [_flat(compile_time_source(source)[0].steps) for source in settings.time]
    return CompiledVendor(settings, NameRules(merged, units, [*hidden, *own]), _shape(merged))


def _identities(settings: CaseSettings, segments: frozenset[str]) -> list[ValueTemplate]:
    """Return the templates of identities, those of the device first; one of them, or of a telegram, is over the air."""
    frames = _usable(settings.frame_id, segments, "frame_id")
    found = [*frames, *_usable(settings.message_id, segments, "message_id")]
    for template in found:
        template.over_air = bool(template.of_telegram) or template in frames
    return found


def _from(path: ValuePath, whole: bool) -> tuple[str, tuple[Any, ...]]:
    """Return where a path leads; the item may be the whole message."""
    return "around" if path.around else "message" if path.absolute or whole else "item", path.steps


def _flat(steps: Iterable[Any]) -> str:
    name = ""
    for step in steps:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else step
    return name


def _shape(settings: CaseSettings) -> ValueRules:
    quantity, times = QuantityKeys("value", "unit", exact=True), settings.value_times
    if settings.quantity is not None:
        given = settings.quantity
        time = given.time or TimeSource(path=given.value)
        quantity = QuantityKeys(
            given.value,
            given.unit,
            parse_path(time.path) if given.time else None,
            find_time_format(time.format, time.zone),
            status=tuple(parse_path(text) for text in given.status),
            bad_from=given.bad_from,
            uncertain_from=given.bad_from if given.uncertain_from is None else given.uncertain_from,
            quality=None if given.quality is None else QualityRule(given.quality),
        )
    return ValueRules(
        quantity,
        NO_VALUE | {text.strip().lower() for text in settings.no_values},
        settings.unit_names,
        None if times is None else parse_path(times.tree),
        "" if times is None else times.leaf,
        AUTO if times is None else find_time_format(times.format),
        None if settings.value_units is None else parse_path(settings.value_units.tree, around=True),
        None if settings.value_units is None else settings.value_units.leaf,
    )


def _usable(texts: Iterable[str], segments: frozenset[str], what: str) -> list[ValueTemplate]:
    """Return the templates whose segments the filter names."""
    templates = [ValueTemplate(text) for text in texts]
    usable = [template for template in templates if segments.issuperset(template.segments)]
    if templates and not usable:
        _check(templates[0], segments, what)
    return usable


def _check(template: ValueTemplate, segments: frozenset[str], what: str) -> None:
    missing = sorted(set(template.segments) - segments)
    if missing:
        message = (
            f"{what} {template.text!r} needs the segment {{{missing[0]}}}, but the route's filter does not name it"
        )
        raise BadPath(message)
