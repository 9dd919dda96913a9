"""The draft of a route for messages of one family: what a person would write into the settings, and why."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.decoders.plain import read_scalar
from gateway.suggest.device import Named, device_field, name_levels
from gateway.suggest.fields import Field, Step, collect_fields, flat_name, path_text
from gateway.suggest.identity import identity_template
from gateway.suggest.layout import Items, Single, find_items, find_single, values_base
from gateway.suggest.quantities import Quantities, find_quantities
from gateway.suggest.roles import LeftOut, Roles, find_roles
from gateway.suggest.sample import Family
from gateway.suggest.sentinels import sentinel_of
from gateway.suggest.times import FoundTime, find_times
from gateway.suggest.units import UNIT_NAMES, unit_of_key
from gateway.suggest.words import ENVELOPES, bare

__all__ = ["Draft", "draft_route"]


@dataclass(slots=True)
class Draft:
    """A route as plain values (see `RouteSettings`), what it leaves out, and sentences for a person."""

    route: dict[str, Any]
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def mapping(self) -> dict[str, Any]:
        """The route's mapping, empty where it has none."""
        found = self.route.get("mapping", {})
        return found if isinstance(found, dict) else {}


def draft_route(family: Family, *, zone: str | None = None) -> Draft:
    """The draft for one family. `zone` is the IANA zone of times without an offset, None where nobody named it."""
    return _Drafter(family, zone).draft() if family.structured else _draft_bare(family)


def _draft_bare(family: Family) -> Draft:
    """Messages that are one value as text."""
    named = name_levels([sample.topic for sample in family.samples], metric=True, claimed=set(), by_payload=False)
    route: dict[str, Any] = {"filter": named.filter}
    if named.device is not None:
        route["device"] = named.device
    if named.metric not in (None, "{metric}"):
        route["metric"] = named.metric
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
    return Draft(route, notes=[f"device: {named.why}", "time: the receive time, since the payload has none"])


def _metric_of(named: Named, topic: str) -> str:
    """The metric that the route gives for a topic."""
    levels = dict(zip(named.filter.split("/"), topic.split("/"), strict=True))
    return ".".join(levels[part] for part in (named.metric or "{metric}").split(".") if part in levels)


class _Drafter:
    """JSON messages of one family."""

    def __init__(self, family: Family, zone: str | None) -> None:
        self._family, self._zone = family, zone
        self._items: Items = find_items(family.documents)
        self._topics = [sample.topic for sample in family.samples]
        self._fields = collect_fields(self._items.found)
        inside = self._items.steps
        self._outer = (
            [] if inside is None else [one for one in collect_fields(family.documents) if not one.under(inside)]
        )
        self._mapping: dict[str, Any] = {}
        self._notes: list[str] = []
        self._used: set[tuple[Step, ...]] = set()
        self._used_outer: set[tuple[Step, ...]] = set()
        self._left: list[LeftOut] = []

    def draft(self) -> Draft:
        if self._items.steps is not None:
            self._mapping["items"] = [path_text(self._items.steps) + "[]"]
        claimed = self._find_device()
        times = self._find_time()
        self._find_identity()
        roles = find_roles(self._fields, self._used, times)
        quantities = find_quantities(roles, times)
        single = None if quantities else find_single(roles, self._fields, listed=self._items.listed, taken=self._used)
        by_topic = single is not None and single.name is None
        named = name_levels(self._topics, metric=by_topic, claimed=claimed, by_payload="device" in self._mapping)
        if named.device is not None and "device" in self._mapping:
            self._mapping["same_device"] = self._mapping.pop("device")
        self._name_values(roles, single, quantities, named)
        self._say_rest(roles, single, quantities, times)
        return self._finish(named)

    def _find_device(self) -> set[str]:
        item_topics = [self._topics[number] for number in self._items.of_document]
        inner = device_field(self._fields, item_topics)
        outer = device_field(self._outer, self._topics)
        if self._items.steps is not None and outer is not None:
            # In a list an id names the value, unless nothing around the list names the sender.
            inner = None
        chosen = inner or outer
        if chosen is None:
            return set()
        absolute = inner is None
        (self._used_outer if absolute else self._used).add(chosen.steps)
        self._mapping["device"] = ["{" + _reference(chosen, absolute=absolute) + "}"]
        self._notes.append(f"device: {chosen.name} of the payload")
        return {str(value) for value in chosen.values.values()}

    def _find_time(self) -> list[FoundTime]:
        fields = [one for one in self._fields if one.steps not in self._used]
        times, outer = find_times(fields), find_times(self._outer)
        sources = [(time, False) for time in times[:1]] + ([(time, True) for time in outer[:1]] if not times else [])
        if not sources:
            self._mapping["time"] = []
            self._notes.append("time: the receive time, since the payload has none")
            return []
        [(time, absolute)] = sources
        name = time.field.name
        if time.local and self._zone is None:
            self._mapping["time"] = []
            self._notes.append(
                f"time: {name} has no offset ({time.field.first}); name its zone with --zone, until then the receive time counts"
            )
            self._left.append(LeftOut(name, "a time whose zone nobody named"))
            (self._used_outer if absolute else self._used).add(time.field.steps)
            if not absolute:
                self._mapping["skip"] = [name]
            return times
        path = path_text(time.field.steps, absolute=absolute)
        self._mapping["time"] = [{"path": path, "format": time.format}]
        (self._used_outer if absolute else self._used).add(time.field.steps)
        zone = f", in zone {self._zone}" if time.local else ""
        self._notes.append(f"time: {name} ({_FORMAT_WORDS[time.format]}{zone})")
        return times

    def _find_identity(self) -> None:
        fields = [one for one in self._fields if one.steps not in self._used] if not self._items.listed else []
        outer = [one for one in self._outer if one.steps not in self._used_outer]
        timed = [source["path"] for source in self._mapping["time"]]
        for found, absolute in ((fields, False), (outer, True)):
            template = identity_template(found, timed[0] if timed else None, absolute=absolute)
            if template is not None:
                self._mapping["message_id"] = [template.text]
                (self._used_outer if absolute else self._used).add(template.steps)
                self._notes.append(f"identity: {template.why}")
                return
        self._notes.append(
            "identity: none in the payload; a copy of a message is recognised by its time and value only"
        )

    def _name_values(self, roles: Roles, single: Single | None, quantities: Quantities | None, named: Named) -> None:
        mapping = self._mapping
        names: dict[tuple[Step, ...], str] = {}
        if quantities is not None:
            mapping["quantity"] = quantities.settings
        elif single is not None:
            target = "{" + _reference(single.name, absolute=False) + "}" if single.name else named.metric or "{metric}"
            mapping["rename"] = {single.value.name: target}
            if single.name is not None:
                self._used.add(single.name.steps)
        elif self._items.steps is None or roles.values:
            base = _envelope(values_base(roles.values))
            if base:
                mapping["values"] = path_text(base)
            names = {one.steps: flat_name(one.steps[len(base) :]) for one in roles.values}
        self._name_units(roles, single, quantities, names)
        numeric = [names.get(one.steps, one.name) for one in roles.numeric]
        if single is not None:
            numeric = ["*"] if roles.numeric else []
        if numeric:
            mapping["numeric_text"] = ["*"] if len(numeric) > 4 else numeric
        errors: dict[str, list[float]] = {}
        for one in roles.values:
            found = sorted({code for value in one.values.values() if (code := sentinel_of(value)) is not None})
            if found and single is None:
                errors[names.get(one.steps, one.name)] = found
                self._notes.append(f"sentinel: {one.name} = {found[0]:g} says that the sensor is broken; it is refused")
        if errors:
            mapping["errors"] = errors

    def _name_units(
        self, roles: Roles, single: Single | None, quantities: Quantities | None, names: dict[tuple[Step, ...], str]
    ) -> None:
        units: dict[str, str] = {}
        in_payload: set[str] = set()
        for unit in roles.units:
            in_payload.update(str(value) for value in unit.values.values())
            if single is not None and unit.steps[:-1] == single.value.steps[: len(unit.steps) - 1]:
                units["*"] = "{" + _reference(unit, absolute=False) + "}"
        if single is None:
            for one in roles.values:
                name = names.get(one.steps, one.name)
                key = next((step for step in reversed(one.steps) if isinstance(step, str)), "")
                found = unit_of_key(key)
                if found is not None and not isinstance(one.first, bool):
                    units[name] = found
        if units:
            self._mapping["units"] = units
        called = {text: UNIT_NAMES[text] for text in sorted(in_payload) if text in UNIT_NAMES}
        if called:
            self._mapping["unit_names"] = called

    def _say_rest(
        self, roles: Roles, single: Single | None, quantities: Quantities | None, times: list[FoundTime]
    ) -> None:
        """Skip what is no reading, and say why."""
        base = tuple(_steps_of(self._mapping.get("values")))
        skip: list[str] = list(self._mapping.pop("skip", []))
        for one, why in roles.left_out:
            if one.steps in self._used or (quantities is not None and quantities.holds(one)):
                continue
            self._left.append(LeftOut(one.name, why))
            if one.under(base):
                skip.append(flat_name(_without_index(one.steps[len(base) :])))
        if single is None and quantities is None:
            skip += [one.name for one in roles.units if one.under(base) and not _beside_value(one, roles)]
        elif single is not None:
            skip += [one.name for one in roles.units]
            skip += [one.name for one in roles.values if one is not single.value and one.steps not in self._used]
            beside = [one for one in roles.values if one is not single.value and one.steps not in self._used]
            self._left += [LeftOut(one.name, "stands next to the one value") for one in beside]
            skip += [one.name for one in beside]
            if single.name is not None and single.name not in [one for one, _why in roles.left_out]:
                skip.append(single.name.name)
            skip += [single.name.name] if single.name is not None and single.name.name not in skip else []
        for one in self._outer:
            if one.steps not in self._used_outer:
                self._left.append(LeftOut(one.name, "stands outside of the items"))
        if skip:
            self._mapping["skip"] = list(dict.fromkeys(skip))

    def _finish(self, named: Named) -> Draft:
        route: dict[str, Any] = {"filter": named.filter}
        if named.device is not None:
            route["device"] = named.device
            if "same_device" not in self._mapping:
                self._notes.insert(0, f"device: {named.why}")
        local = any(source["format"] == "local" for source in self._mapping["time"])
        if local and self._zone is not None:
            route["zone"] = self._zone
        route["mapping"] = self._mapping
        return Draft(route, self._left, self._notes)


_FORMAT_WORDS: Final = {
    "s": "epoch seconds",
    "ms": "epoch milliseconds",
    "us": "epoch microseconds",
    "ns": "epoch nanoseconds",
    "rfc3339": "ISO 8601 with an offset",
    "local": "ISO 8601 without an offset",
}


def _reference(one: Field, *, absolute: bool) -> str:
    """A field as a reference of a template."""
    return path_text(one.steps, absolute=True) if absolute else f".{path_text(one.steps)}"


def _envelope(base: tuple[Step, ...]) -> tuple[Step, ...]:
    """The part of a base that only envelops."""
    kept = 0
    for place, step in enumerate(base):
        if not isinstance(step, str) or bare(step) not in ENVELOPES:
            break
        kept = place + 1
    return base[:kept]


def _steps_of(path: str | None) -> Iterable[Step]:
    from gateway.decoders.mapping_paths import parse_path

    return parse_path(path).steps if path else ()


def _without_index(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Up to the first array: an array is skipped as a whole."""
    return steps[: next((place for place, step in enumerate(steps) if isinstance(step, int)), len(steps))]


def _beside_value(unit: Field, roles: Roles) -> bool:
    """Whether value and unit are the only two members of their object: then they are one reading by themselves."""
    beside = [one for one in roles.values if one.steps[:-1] == unit.steps[:-1]]
    return len(beside) == 1 and beside[0].steps[-1] == "value" and unit.steps[-1] == "unit"
