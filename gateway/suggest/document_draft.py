"""The draft for documents: which fields name device, time and identity, which are values, and what is left out."""

from typing import Any, Final

from gateway.settings import GatewaySettings
from gateway.suggest.device import Named, device_field, name_levels
from gateway.suggest.draft import Draft
from gateway.suggest.fields import Field, Step, collect_fields, flat_name, path_text
from gateway.suggest.identity import identity_template
from gateway.suggest.inside import find_inside, open_inside
from gateway.suggest.layout import Items, Single, find_items, find_single, values_base
from gateway.suggest.quantities import Quantities, find_quantities
from gateway.suggest.roles import QUALITY_SAYS, LeftOut, Roles, find_roles
from gateway.suggest.sample import Family
from gateway.suggest.sentinels import sentinel_of
from gateway.suggest.times import FoundTime, find_times, looks_like_time
from gateway.suggest.units import UNIT_NAMES, unit_of_key
from gateway.suggest.words import ENVELOPES, NAME, OFFSETS, bare

__all__ = ["draft_documents"]


def draft_documents(family: Family, limits: GatewaySettings, *, zone: str | None = None) -> Draft:
    """The draft for one family. `zone` is the IANA zone of times without an offset, None where nobody named it."""
    return _Drafter(family, limits, zone).draft()


class _Drafter:
    """The way from documents to a draft: each step uses fields that the next ones no longer see."""

    def __init__(self, family: Family, limits: GatewaySettings, zone: str | None) -> None:
        self._zone = zone
        self._mapping: dict[str, Any] = {}
        self._notes: list[str] = []
        if family.format:
            self._mapping["format"] = family.format
            if any(str(name).startswith("column") for name in family.format.get("columns", ())):
                self._notes.append("columns: the payload does not name its cells; give them names in `columns`")
        documents = family.documents
        inside = find_inside(documents, limits)
        if inside:
            self._mapping["inside"] = inside
            documents = [open_inside(document, inside, limits) for document in documents]
        self._first = documents[0]
        self._topics = [sample.topic for sample in family.samples]
        self._items: Items = find_items(documents, self._topics)
        self._fields = collect_fields(self._items.found)
        self._outer = self._items.outer
        self._time: Field | None = None
        self._is_local = False
        self._used: set[tuple[str, tuple[Step, ...]]] = set()
        self._left: list[LeftOut] = []
        self._base: tuple[Step, ...] = ()

    def draft(self) -> Draft:
        if self._items.path is not None:
            self._mapping["items"] = [self._items.path]
        claimed = self._find_device()
        times = self._find_time()
        self._find_identity()
        roles = find_roles(self._free(self._fields), times)
        quantities = find_quantities(roles, times)
        single = None if quantities else find_single(roles, self._names_around(), listed=self._items.listed)
        named = self._name_topic(single, claimed)
        if single is not None and single.name is not None and single.name.root:
            self._use(single.name)
        if single is not None and named.metric is not None:
            single = single._replace(name=None)
        self._name_values(roles, single, quantities, named)
        self._judge_quality(roles, listed=single is not None)
        self._prefix_twins(roles, single, quantities)
        self._say_rest(roles, single, quantities)
        return self._finish(named)

    def _name_topic(self, single: Single | None, claimed: set[str]) -> Named:
        """The filter; where the topic says the same name, its levels name it, since they tell more values apart."""
        names = set() if single is None or single.name is None else {str(text) for text in single.name.values.values()}
        said = {bare(text) for text in names}
        last = self._topics[0].split("/")[-1]
        if (
            names
            and len(bare(last)) > 2
            and not any(map(str.isdigit, last))
            and all(bare(last) in text for text in said)
        ):
            # The level is a part of the value's name, as in .../boiler/temp with boiler-temp.
            names.add(last)
        by_payload = "device" in self._mapping
        unnamed = single is not None and single.name is None
        named = name_levels(self._topics, metric=unnamed, claimed=claimed, names=names, by_payload=by_payload)
        agree = all(
            any(len(level) > 1 and bare(level) in text for level in self._topics[0].split("/") if bare(level))
            for text in said
        )
        if (
            single is not None
            and not unnamed
            and not self._items.listed
            and named.device is not None
            and named.behind
            and agree
        ):
            named = name_levels(self._topics, metric=True, claimed=claimed, by_payload=by_payload)
        if named.device is not None and by_payload:
            claims = self._mapping.pop("device")
            if named.agrees:
                self._mapping["same_device"] = claims
            else:
                self._mapping["skip"] = [
                    *self._mapping.get("skip", ()),
                    *[one.name for one in self._fields if f"{{{one.reference}}}" in claims],
                ]
        return named

    def _names_around(self) -> list[Field]:
        """Fields that may name the one value: of the item, else of the object whose items these are."""
        around = [one for one in self._usable(self._outer) if one.root == "^"]
        fields = self._usable(self._fields)
        return fields if any(one.key in NAME for one in fields) else fields + around

    def _free(self, fields: list[Field]) -> list[Field]:
        """Those that nothing uses yet."""
        return [one for one in fields if (one.root, one.steps) not in self._used]

    def _usable(self, fields: list[Field]) -> list[Field]:
        """Those of them that a path can name."""
        return [one for one in self._free(fields) if one.can_be_named]

    def _use(self, one: Field) -> None:
        self._used.add((one.root, one.steps))

    def _find_device(self) -> set[str]:
        inner = device_field(self._usable(self._fields), [self._topics[number] for number in self._items.of_document])
        outer = device_field(self._usable(self._outer), self._topics)
        # In a list an id names the value, unless nothing around the list names the sender.
        chosen = outer if self._items.path is not None and outer is not None else inner or outer
        if chosen is None:
            return set()
        self._use(chosen)
        self._mapping["device"] = [f"{{{chosen.reference}}}"]
        self._notes.append(f"device: {chosen.name} of the payload")
        return {str(value) for value in chosen.values.values()}

    def _find_time(self) -> list[FoundTime]:
        inner, outer = find_times(self._usable(self._fields)), find_times(self._usable(self._outer))
        chosen = next(iter(inner or outer), None)
        self._mapping["time"] = []
        if chosen is None:
            unknown = next(
                (one for one in self._free(self._fields) + self._free(self._outer) if looks_like_time(one)), None
            )
            if unknown is not None:
                self._notes.append(
                    f"time: {unknown.name} ({unknown.first}) looks like a time in a spelling of its own; "
                    "the receive time counts until `time` names it"
                )
            else:
                self._notes.append(
                    "time: the receive time for values without one of their own, since no field of the message says it"
                )
            return []
        self._use(chosen.field)
        name = chosen.field.name
        if chosen.local and self._zone is None:
            self._notes.append(
                f"time: {name} has no offset ({chosen.field.first}); name its zone with --zone, else the receive time counts"
            )
            self._left.append(LeftOut(name, "a time whose zone nobody named"))
            self._mapping["skip"] = [] if chosen.field.root else [name]
            return inner
        self._time, self._is_local = chosen.field, chosen.local
        self._mapping["time"] = [{"path": chosen.field.path, "format": chosen.format}]
        if chosen.zone is not None:
            self._mapping["time"][0]["zone"] = chosen.zone
        zone = f", in zone {self._zone if chosen.local else chosen.zone}" if chosen.local or chosen.zone else ""
        words = _FORMAT_WORDS.get(chosen.format, f"written {chosen.format}")
        self._notes.append(f"time: {name} ({words}{zone})")
        if chosen.field.root:
            self._find_offset()
        return inner

    def _find_offset(self) -> None:
        """A column of numbers next to the values, where the time stands around them: distances from it."""
        for one in self._usable(self._fields):
            if one.key in OFFSETS and all(type(value) in (int, float) for value in one.values.values()):
                unit = "s" if one.key in ("elapsed", "dt") else "ms"
                self._mapping["time_offset"] = {"path": one.path, "unit": unit}
                self._use(one)
                self._notes.append(f"time: {one.name} is added to it, taken as {unit}: check the unit")
                return

    def _find_identity(self) -> None:
        fields = self._usable([] if self._items.listed else self._fields) + self._usable(self._outer)
        found = identity_template(fields, self._time)
        if found is None:
            self._notes.append("identity: none in the payload; a copy is recognised by its time and value only")
            return
        self._mapping["message_id"] = [found.text]
        self._use(found.field)
        self._notes.append(f"identity: {found.why}")

    def _name_values(self, roles: Roles, single: Single | None, quantities: Quantities | None, named: Named) -> None:
        mapping = self._mapping
        names: dict[tuple[Step, ...], str] = {}
        if quantities is not None:
            mapping["quantity"] = quantities.settings
            base = self._base = _envelope(quantities.around)
            if base:
                mapping["values"] = path_text(base)
            if self._time is not None and quantities.holds(self._time):
                # Each value has its own.
                mapping["time"] = []
        elif single is not None:
            target = f"{{{single.name.reference}}}" if single.name else "{metric}"
            mapping["rename"] = {single.value.name: target}
        elif roles.values:
            base = self._base = _envelope(values_base(_measured(roles)))
            if base:
                mapping["values"] = path_text(base)
            names = {one.steps: flat_name(one.steps[len(base) :]) for one in roles.values if one.under(base)}
            shorter = _shorter(names, {unit.steps[:-1] for unit in roles.units})
            if shorter:
                mapping["rename"] = {names[steps]: name for steps, name in shorter.items()}
                names |= shorter
        self._name_units(roles, single, quantities, names)
        numeric = [names.get(one.steps, one.name) for one in roles.numeric]
        if single is not None or quantities is not None:
            numeric = ["*"] if roles.numeric else []
        if numeric and mapping.get("format", {}).get("kind") not in ("rows", "pairs"):
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
            if not unit.can_be_named:
                continue
            if single is not None and unit.steps[:-1] == single.value.steps[: len(unit.steps) - 1]:
                units["*"] = f"{{{unit.reference}}}"
            if single is None and not _beside_value(unit, roles):
                units |= {
                    names[one.steps]: f"{{{unit.reference}}}"
                    for one in roles.values
                    if one.steps in names and one.steps[:-1] == unit.steps[:-1]
                }
        if single is None:
            for one in roles.values:
                name = names.get(one.steps, one.name)
                key = next((step for step in reversed(one.steps) if isinstance(step, str)), "")
                found = unit_of_key(key)
                if found is not None and not isinstance(one.first, bool):
                    units.setdefault(name, found)
        if units:
            self._mapping["units"] = units
        called = {text: UNIT_NAMES[text] for text in sorted(in_payload) if text in UNIT_NAMES}
        if called:
            self._mapping["unit_names"] = called

    def _judge_quality(self, roles: Roles, *, listed: bool) -> None:
        """Ask the quality of the values where it is sure which one is good: samples say so in a known way.

        `listed`: the item holds one value; else only a quality of the whole item, such as OPC's 192, is asked.
        """
        for one in (one for one, why in roles.left_out if why == QUALITY_SAYS and one.can_be_named):
            shown = {str(value).lower() for value in one.values.values()}
            good = [str(value) for value in dict.fromkeys(one.values.values()) if str(value).lower() in _GOOD]
            good = [text.lower() if isinstance(one.first, bool) else text for text in good]
            if not listed and (len(one.steps) > 1 or not good):
                continue
            if not good or not shown <= _GOOD | _NOT_GOOD:
                self._notes.append(
                    f"quality: {one.name} is not judged, since nobody says which is good; `quality` can name it"
                )
            elif "quality" not in self._mapping:
                self._mapping["quality"] = {"path": one.path, "good": good}
                self._notes.append(f"quality: {one.name} must be {' or '.join(good)}, else the value is refused")

    def _prefix_twins(self, roles: Roles, single: Single | None, quantities: Quantities | None) -> None:
        """Where several items of a message give the same names, a text that differs tells them apart, in front of the names."""
        if single is not None or quantities is not None or not self._items.listed or "device" in self._mapping:
            return
        texts = [one for one in self._fields if one.key in NAME and len(one.steps) == 1 and one.can_be_named]
        texts = [one for one in texts if all(type(value) in (str, int) for value in one.values.values())]
        for one in sorted(texts, key=lambda one: (not isinstance(one.first, str), NAME.index(one.key))):
            told = [(document, one.values.get(place)) for place, document in enumerate(self._items.of_document)]
            if None not in (value for _, value in told) and len(set(told)) == len(told) and len(told) > 1:
                self._mapping["prefix"] = f"{{{one.reference}}}."
                self._mapping["skip"] = [*self._mapping.get("skip", ()), one.name]
                self._notes.append(f"names: {one.name} tells the items apart and stands in front of their values")
                return

    def _say_rest(self, roles: Roles, single: Single | None, quantities: Quantities | None) -> None:
        """Skip what is no reading, and say why."""
        base = self._base
        skip: list[str] = list(self._mapping.pop("skip", []))
        for one, why in roles.left_out:
            if quantities is not None and quantities.holds(one):
                continue
            if single is None or one is not single.name:
                self._left.append(LeftOut(one.name, why))
            if one.under(base):
                skip.append(flat_name(_without_index(one.steps[len(base) :])))
        if single is not None:
            beside = [one for one in roles.values if one is not single.value]
            self._left += [
                LeftOut(one.name, "stands next to the one value") for one in beside if one is not single.name
            ]
            skip += [one.name for one in (*roles.units, *beside)]
        elif quantities is None:
            skip += [
                flat_name(one.steps[len(base) :])
                for one in roles.units
                if one.under(base) and not _beside_value(one, roles)
            ]
        outside = [one for one in roles.values if base and not one.under(base)]
        self._left += [LeftOut(one.name, f"stands outside of {flat_name(base)}") for one in outside]
        self._left += [LeftOut(one.name, "stands outside of the items") for one in self._free(self._outer)]
        if skip:
            self._mapping["skip"] = list(dict.fromkeys(skip))

    def _finish(self, named: Named) -> Draft:
        route: dict[str, Any] = {"filter": named.filter}
        if named.device is not None:
            route["device"] = named.device
            if "same_device" not in self._mapping:
                self._notes.insert(0, f"device: {named.why}")
        if named.route_metric is not None:
            route["metric"] = named.route_metric
        if self._is_local and self._zone is not None:
            route["zone"] = self._zone
        if route["filter"].startswith(("{", "+")) and self._items.path is None and not isinstance(self._first, list):
            # Such a filter meets topics of others too: what they send is left to the next route.
            path = self._time.path if self._time is not None else flat_name(self._base[:1])
            if path:
                self._mapping = {"when": {path: True}} | self._mapping
        if named.device is not None and "{" not in named.device and "same_device" not in self._mapping:
            self._notes.append(f"all messages of this topic count as one device, {named.device}")
        route["mapping"] = self._mapping
        return Draft(route, self._left, self._notes)


_GOOD: Final = frozenset({"true", "192", "good", "ok", "valid"})
"""Qualities that are good in every system: of booleans, of OPC, in words."""
_NOT_GOOD: Final = frozenset(
    {"false", "0", "bad", "invalid", "error", "fault", "uncertain", "64", "stale", "questionable"}
)
_FORMAT_WORDS: Final = {
    "s": "epoch seconds",
    "ms": "epoch milliseconds",
    "us": "epoch microseconds",
    "ns": "epoch nanoseconds",
    "rfc3339": "ISO 8601 with an offset",
    "local": "ISO 8601 without an offset",
}


def _measured(roles: Roles) -> list[Field]:
    """The values that are no texts, where there are any: texts around them say how the message came to be."""
    return [one for one in roles.values if not isinstance(one.first, str) or one in roles.numeric] or roles.values


def _envelope(base: tuple[Step, ...]) -> tuple[Step, ...]:
    """The part of a base that only envelops."""
    kept = 0
    for place, step in enumerate(base):
        if not isinstance(step, str) or bare(step) not in ENVELOPES:
            break
        kept = place + 1
    return base[:kept]


def _shorter(names: dict[tuple[Step, ...], str], paired: set[tuple[Step, ...]]) -> dict[tuple[Step, ...], str]:
    """Names without an ending that adds nothing: `temperature.properties.value` is `temperature`.

    Objects in `paired` hold a unit as well: they are one reading by themselves.
    """
    found: dict[tuple[Step, ...], str] = {}
    for steps, name in names.items():
        parts = name.split(".")
        while len(parts) > 1 and parts[-1] in ("properties", "value", "val"):
            parts.pop()
        if len(parts) < len(name.split(".")) and steps[:-1] not in paired:
            found[steps] = ".".join(parts)
    taken = [found.get(steps, name) for steps, name in names.items()]
    return found if len(set(taken)) == len(taken) else {}


def _without_index(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Up to the first array: an array is skipped as a whole."""
    return steps[: next((place for place, step in enumerate(steps) if isinstance(step, int)), len(steps))]


def _beside_value(unit: Field, roles: Roles) -> bool:
    """Whether value and unit are the only two members of their object: then they are one reading by themselves."""
    beside = [one for one in roles.values if one.steps[:-1] == unit.steps[:-1]]
    return len(beside) == 1 and beside[0].steps[-1] == "value" and unit.steps[-1] == "unit"
