"""Draft for documents: the fields for device, time and identity, the values, and what is left out."""

from typing import Any, Final

from gateway.gateway_settings import GatewaySettings
from gateway.suggest.device_source import NamedFilter, device_field, name_levels
from gateway.suggest.draft import Draft
from gateway.suggest.field_roles import FieldRoles, LeftOutField, find_roles, is_empty
from gateway.suggest.fields import SampleField, Step, collect_fields, flat_name, path_text
from gateway.suggest.identity import identity_template
from gateway.suggest.item_layout import (
    ItemLocation,
    Quantities,
    SingleValue,
    find_items,
    find_quantities,
    find_single,
    have_name_collision,
    have_value_collision,
    mark_distinguishing_fields,
    name_rank,
    names_alone,
    prefix_fields,
    values_base,
)
from gateway.suggest.message_families import MessageFamily
from gateway.suggest.nested_documents import find_nested_documents, open_nested_documents
from gateway.suggest.quality import find_errors, find_quality
from gateway.suggest.time_fields import FoundTime, choose_time, find_times, no_time_note, time_note
from gateway.suggest.topic import is_id
from gateway.suggest.value_fields import (
    beside_value,
    envelope_prefix,
    find_units,
    measured_fields,
    set_numbers,
    shorten_names,
    skip_patterns,
    unit_tree,
)
from gateway.suggest.vocabulary import OFFSETS, SINGLE, normalize_key

__all__ = ["draft_documents"]

_TIME_OBJECTS: Final = frozenset({"ts", "time", "timestamp", "datetime", "stamp", "epoch"})


def draft_documents(family: MessageFamily, limits: GatewaySettings, *, zone: str | None = None) -> Draft:
    """Return the draft for one family. `zone` is the IANA zone of times without an offset, None if unknown."""
    return _Drafter(family, limits, zone).draft()


class _Drafter:
    """Steps from documents to a draft: each step uses fields that the next ones no longer see."""

    def __init__(self, family: MessageFamily, limits: GatewaySettings, zone: str | None) -> None:
        self._zone = zone
        self._mapping: dict[str, Any] = {}
        self._notes: list[str] = []
        if family.format:
            self._mapping["format"] = family.format
            if any(str(name).startswith("column") for name in family.format.get("columns", ())):
                self._notes.append("columns: the payload does not name its cells; give them names in `columns`")
        documents = family.documents
        inside = find_nested_documents(documents, limits)
        if inside:
            self._mapping["inside"] = inside
            documents = [open_nested_documents(document, inside, limits) for document in documents]
        self._first = documents[0]
        self._topics = [sample.topic for sample in family.samples]
        received_us = family.samples[0].received_us
        self._received_s = None if received_us is None else received_us / 1_000_000
        self._items: ItemLocation = find_items(documents, self._topics)
        self._fields = collect_fields(self._items.found)
        of_document = self._items.of_document
        mark_distinguishing_fields(
            self._fields, of_document if self._items.listed else [self._topics[number] for number in of_document]
        )
        self._outer = self._items.outer
        self._time: FoundTime | None = None
        self._is_local = False
        self._used: set[tuple[str, tuple[Step, ...]]] = set()
        self._left: list[LeftOutField] = []
        self._base: tuple[Step, ...] = ()
        self._count = 0

    def draft(self) -> Draft:
        if self._items.path is not None:
            self._mapping["items"] = [self._items.path]
        claimed = self._find_device()
        times = self._find_time()
        self._find_identity()
        self._leave_out_echoes()
        roles = find_roles(self._free(self._fields), times)
        quantities = find_quantities(roles, times)
        single = None if quantities else find_single(roles, self._names_around(), listed=self._items.listed)
        named = self._name_topic(single, claimed)
        if single is not None and single.name is not None and single.name.root:
            self._use(single.name)
        if single is not None and named.metric is not None:
            single = single._replace(name=None)
        self._name_values(roles, single, quantities, named)
        quality = find_quality(roles, quantities, listed=single is not None)
        self._notes += quality.notes
        if quality.settings is not None:
            holder = self._mapping if quantities is None else self._mapping["quantity"]
            holder["quality"] = quality.settings
        self._prefix_twins(roles, single, quantities)
        if named.prefix:
            self._mapping["prefix"] = named.prefix + self._mapping.get("prefix", "")
        self._note_left_out(roles, single, quantities)
        return self._finish(named)

    def _name_topic(self, single: SingleValue | None, claimed: set[str]) -> NamedFilter:
        """Return the filter; if the topic says the same name, its levels name the value, because they distinguish more values."""
        names = set() if single is None or single.name is None else {str(text) for text in single.name.values.values()}
        said = {normalize_key(text) for text in names}
        last = self._topics[0].split("/")[-1]
        if (
            names
            and len(normalize_key(last)) > 2
            and not any(map(str.isdigit, last))
            and all(normalize_key(last) in text for text in said)
        ):
            # The level is part of the value's name, as in .../boiler/temp with boiler-temp.
            names.add(last)
        by_payload = "device" in self._mapping
        unnamed = single is not None and single.name is None
        named = name_levels(self._topics, metric=unnamed, claimed=claimed, names=names, by_payload=by_payload)
        agree = all(
            any(
                len(level) > 1 and normalize_key(level) in text
                for level in self._topics[0].split("/")
                if normalize_key(level)
            )
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

    def _names_around(self) -> list[SampleField]:
        """Return fields that may name the one value: of the item, else of the object whose items these are."""
        around = [one for one in self._usable(self._outer) if one.root == "^"]
        fields = self._usable(self._fields)
        return fields if any(names_alone(one) for one in fields) else fields + around

    def _free(self, fields: list[SampleField]) -> list[SampleField]:
        """Return the fields that nothing uses yet."""
        return [one for one in fields if (one.root, one.steps) not in self._used]

    def _usable(self, fields: list[SampleField]) -> list[SampleField]:
        """Return those of them that a path can name."""
        return [one for one in self._free(fields) if one.can_be_named]

    def _use(self, one: SampleField) -> None:
        self._used.add((one.root, one.steps))

    def _find_device(self) -> set[str]:
        topics, things = [self._topics[number] for number in self._items.of_document], self._items.is_device_list
        listed = self._items.listed and not things
        inner = device_field(self._usable(self._fields), topics, things=things, listed=listed)
        outer = device_field(self._usable(self._outer), self._topics)
        # In a list an id names the value, unless the list is one of things, or nothing around it names the sender.
        by_value = self._items.path is not None and not self._items.is_device_list
        chosen = outer if by_value and outer is not None else inner or outer
        if self._items.keyed:
            self._mapping["device"] = ["{key}"]
            self._notes.append("device: the key of each object")
            return set()
        if chosen is None:
            return set()
        self._use(chosen)
        self._mapping["device"] = [f"{{{chosen.reference}}}"]
        self._notes.append(f"device: {chosen.name} of the payload")
        return {str(value) for value in chosen.values.values()}

    def _leave_out_echoes(self) -> None:
        """Leave out texts that only repeat an id of the topic."""
        for one in [one for one in self._usable(self._fields) if name_rank(one) is None and one.key not in SINGLE]:
            told = [(self._topics[self._items.of_document[place]], value) for place, value in one.values.items()]
            if all(isinstance(text, str) and is_id(text) and text in topic.split("/") for topic, text in told):
                self._use(one)
                self._left.append(LeftOutField(one.name, "repeats the topic"))
                self._mapping["skip"] = [*self._mapping.get("skip", ()), one.name]

    def _find_time(self) -> list[FoundTime]:
        inner, outer = (find_times(self._usable(fields), self._received_s) for fields in (self._fields, self._outer))
        chosen = choose_time(inner, self._zone) or choose_time(outer, self._zone)
        self._mapping["time"] = []
        if chosen is None:
            self._notes.append(no_time_note(self._free(self._fields) + self._free(self._outer), inner + outer))
            return inner
        for one in chosen.fields:
            self._use(one)
        own = [one.name for one in chosen.fields if not one.root]
        self._notes.append(time_note(chosen, self._zone))
        if chosen.local and self._zone is None:
            self._left.append(LeftOutField(chosen.name, "is a time without a known zone"))
            self._mapping["skip"] = own
            return inner
        self._time, self._is_local = chosen, chosen.local
        zone = {} if chosen.zone is None else {"zone": chosen.zone}
        self._mapping["time"] = [{"path": chosen.path, "format": chosen.format} | zone]
        if chosen.clock is not None:
            self._mapping["skip"] = own
        self._leave_parts(chosen)
        if chosen.field.root:
            self._find_offset()
        return inner

    def _leave_parts(self, chosen: FoundTime) -> None:
        """Leave out other members of an object with a name of a time: nanoseconds, a zone."""
        around = chosen.field.steps[:-1]
        if around and isinstance(around[-1], str) and normalize_key(around[-1]) in _TIME_OBJECTS:
            parts = [one for one in self._free(self._fields) if one.root == chosen.field.root and one.under(around)]
            for one in parts:
                self._use(one)
                self._left.append(LeftOutField(one.name, "is a part of the time"))
            self._mapping["skip"] = [*self._mapping.get("skip", ()), *(one.name for one in parts)]

    def _find_offset(self) -> None:
        """Find a column of numbers next to the values, if the time is around them: distances from it."""
        for one in self._usable(self._fields):
            if one.key in OFFSETS and all(type(value) in (int, float) for value in one.values.values()):
                unit = "s" if one.key in ("elapsed", "dt") else "ms"
                self._mapping["time_offset"] = {"path": one.path, "unit": unit}
                self._use(one)
                self._notes.append(f"time: {one.name} is added to it, read as {unit}: check the unit")
                return

    def _find_identity(self) -> None:
        fields = self._usable([] if self._items.listed else self._fields) + self._usable(self._outer)
        time = None if self._time is None or self._time.clock is not None else self._time.field
        # A template takes texts and whole numbers.
        known = time is not None and all(type(value) in (int, str) for value in time.values.values())
        found = identity_template(fields, time.reference if time is not None and known else None, self._topics)
        if found is None:
            self._notes.append("identity: none in the payload; duplicates are recognised only by time and value")
            return
        self._mapping["message_id"] = [found.text]
        self._use(found.field)
        self._notes.append(f"identity: {found.why}")

    def _name_values(
        self, roles: FieldRoles, single: SingleValue | None, quantities: Quantities | None, named: NamedFilter
    ) -> None:
        mapping = self._mapping
        names: dict[tuple[Step, ...], str] = {}
        if quantities is not None:
            mapping["quantity"] = quantities.settings
            base = self._base = envelope_prefix(quantities.around)
            if base:
                mapping["values"] = path_text(base)
            if self._time is not None and quantities.holds(self._time.field):
                # Each value has its own.
                mapping["time"] = []
        elif single is not None:
            target = f"{{{single.name.reference}}}" if single.name else "{metric}"
            mapping["rename"] = {single.value.name: target}
        elif roles.values:
            base = self._base = envelope_prefix(values_base(measured_fields(roles)))
            if any(isinstance(one.steps[len(base)], int) for one in measured_fields(roles) if one.under(base)):
                # The array itself: it has the name of its values, and its neighbours may hold their times.
                base = self._base = base[:-1]
            if base and self._items.path is None and isinstance(self._first, list):
                mapping["items"] = ["[]"]
            if base:
                mapping["values"] = path_text(base)
            names = {one.steps: flat_name(one.steps[len(base) :]) for one in roles.values if one.under(base)}
            shorter = shorten_names(names, {unit.steps[:-1] for unit in roles.units})
            if shorter:
                mapping["rename"] = {names[steps]: name for steps, name in shorter.items()}
                names |= shorter
        self._name_units(roles, single, quantities, names)
        set_numbers(mapping, roles, names, alone=single is not None or quantities is not None)
        if single is None:
            errors = find_errors(roles, names)
            self._notes += errors.notes
            if errors.settings:
                mapping["errors"] = errors.settings

    def _name_units(
        self,
        roles: FieldRoles,
        single: SingleValue | None,
        quantities: Quantities | None,
        names: dict[tuple[Step, ...], str],
    ) -> None:
        tree = unit_tree(roles, self._usable(self._outer)) if single is None else None
        if tree is not None:
            self._mapping["value_units"] = {"tree": tree[0]}
            for one in tree[1]:
                self._use(one)
            return
        found = find_units(roles, single, names)
        self._left += found.left_out if quantities is None else []
        if found.units:
            self._mapping["units"] = found.units
        if found.called:
            self._mapping["unit_names"] = found.called

    def _prefix_twins(self, roles: FieldRoles, single: SingleValue | None, quantities: Quantities | None) -> None:
        """Use a text that differs as a prefix, if several items of a message give the same names."""
        per_item = any(not text.startswith("{$.") for text in self._mapping.get("device", ()))
        if quantities is not None or not self._items.listed or per_item:
            return
        around = [one for one in self._usable(self._outer) if one.root == "^"]
        if single is not None:
            twice = (
                single.name is not None
                and not single.name.root
                and have_name_collision(single.name, self._items.of_document, self._time)
            )
            self._put_in_front(next(iter(prefix_fields(around, unclear=True)), None) if twice else None)
            return
        unclear = have_value_collision(roles.values, self._items.of_document, self._time) or any(
            one.key in SINGLE for one in roles.values
        )
        self._put_in_front(next(iter(prefix_fields([*self._usable(self._fields), *around], unclear=unclear)), None))

    def _put_in_front(self, one: SampleField | None) -> None:
        if one is None:
            return
        self._mapping["prefix"] = f"{{{one.reference}}}."
        if not one.root:
            self._mapping["skip"] = [*self._mapping.get("skip", ()), one.name]
        self._use(one)
        self._notes.append(f"names: {one.name} distinguishes the items and is the prefix of their values")

    def _note_left_out(self, roles: FieldRoles, single: SingleValue | None, quantities: Quantities | None) -> None:
        """Skip fields that are not readings, with the reason."""
        base = self._base
        skip: list[str] = list(self._mapping.pop("skip", []))
        out = [pair for pair in roles.left_out if quantities is None or not quantities.holds(pair[0])]
        for one, why in out:
            if (single is None or one is not single.name) and (one.root, one.steps) not in self._used:
                self._left.append(LeftOutField(one.name, why))
        skip += skip_patterns([one for one, _why in out], [*roles.values, *roles.units], base)
        if single is not None:
            beside = [one for one in roles.values if one is not single.value]
            self._left += [
                LeftOutField(one.name, "is next to the only value") for one in beside if one is not single.name
            ]
            skip += [one.name for one in (*roles.units, *beside)]
        elif quantities is None:
            skip += [
                flat_name(one.steps[len(base) :])
                for one in roles.units
                if one.under(base) and not beside_value(one, roles)
            ]
        meant = [single.value] if single is not None else [one for one in roles.values if one.under(base)]
        self._count = sum(not is_empty(value) for one in self._free(meant) for value in one.values.values())
        outside = [one for one in roles.values if base and not one.under(base)]
        self._left += [LeftOutField(one.name, f"is outside of {flat_name(base)}") for one in outside]
        self._left += [LeftOutField(one.name, "is outside of the items") for one in self._free(self._outer)]
        if skip:
            self._mapping["skip"] = list(dict.fromkeys(skip))

    def _finish(self, named: NamedFilter) -> Draft:
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
            # Such a filter also matches other topics: their messages are left to the next route.
            path = self._time.field.path if self._time is not None else flat_name(self._base[:1])
            if path:
                self._mapping = {"when": {path: True}} | self._mapping
        if named.device is not None and "{" not in named.device and "same_device" not in self._mapping:
            self._notes.append(f"all messages of this topic count as one device, {named.device}")
        route["mapping"] = self._mapping
        return Draft(route, self._left, self._notes, self._count)
