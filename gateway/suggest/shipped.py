"""Shipped formats that fit messages on a different topic: their name is then the draft."""

from collections.abc import Iterator
from typing import Any, Final

from gateway.decoders.influx import parse_influx
from gateway.decoders.mapping.conditions import MatchConditions
from gateway.decoders.mapping.paths import BadPath, ValuePath, ValueTemplate, parse_path
from gateway.decoders.mapping.settings import MappingSettings, TimeSource
from gateway.gateway_settings import GatewaySettings
from gateway.glob_patterns import compile_globs
from gateway.json_text import Document
from gateway.presets.loader import load_presets
from gateway.suggest.device_source import NamedFilter, name_levels
from gateway.suggest.draft import Draft
from gateway.suggest.message_families import MessageFamily

__all__ = ["shipped_drafts"]

_NATIVE: Final = frozenset({"ts", "boot", "seq", "values"})
_SENML: Final = frozenset({"bn", "bt", "bu", "bv", "bs", "bver", "n", "u", "v", "vs", "vb", "vd", "s", "t", "ut"})
_SURE: Final = 3
"""Places of a mapping that a message has, from which on this is not a coincidence."""
_OTHERS: Final = 2


def shipped_drafts(family: MessageFamily, limits: GatewaySettings, *, zone: str | None = None) -> Iterator[Draft]:
    """Yield drafts that name a shipped decoder or mapping, the likeliest first; each must still be tried on the messages."""
    named = name_levels([sample.topic for sample in family.samples], metric=False, claimed=set(), by_payload=False)
    decoder = _decoder(family, limits)
    if decoder is not None:
        yield _draft(named, decoder, by_topic="mapping" not in decoder)
    if not family.documents or family.format:
        return
    test = compile_globs(limits.presets)
    found = []
    for preset_name, preset in load_presets().items():
        if test is None or not test(preset_name):
            continue
        for name, mapping in preset.mappings.items():
            likeness = min(_likeness(mapping, document) for document in family.documents)
            if likeness >= _SURE:
                found.append((likeness, name, mapping))
    for _, name, mapping in sorted(found, key=lambda entry: -entry[0]):
        draft = _draft(named, {"mapping": name}, by_topic=not mapping.device)
        if zone is not None and zone != limits.zone and any(_is_local(source) for source in mapping.time or ()):
            draft.route["zone"] = zone
        yield draft


def _is_local(source: str | TimeSource) -> bool:
    return isinstance(source, TimeSource) and source.format == "local"


def _draft(named: NamedFilter, reader: dict[str, str], *, by_topic: bool) -> Draft:
    [(kind, name)] = reader.items()
    device = {"device": named.device} if by_topic and named.device is not None else {}
    notes = [f"{kind}: the messages have the shipped format {name}, on a topic of their own"]
    return Draft({"filter": named.filter} | device | reader, notes=notes + ([f"device: {named.why}"] if device else []))


def _decoder(family: MessageFamily, limits: GatewaySettings) -> dict[str, str] | None:
    documents = family.documents
    if not documents:
        payloads = [sample.payload for sample in family.samples]
        return {"mapping": "influx"} if all(_is_influx(payload, limits) for payload in payloads) else None
    items = [item for document in documents for item in (document if isinstance(document, list) else [document])]
    if not items or not all(isinstance(item, dict) for item in items):
        return None
    if all(isinstance(item.get("values"), dict) and item.keys() <= _NATIVE for item in items):
        return {"decoder": "native"}
    packed = all(isinstance(document, list) for document in documents)
    named = any("n" in item or "bn" in item for item in items)
    return {"decoder": "senml"} if packed and named and all(item.keys() <= _SENML for item in items) else None


def _is_influx(payload: bytes, limits: GatewaySettings) -> bool:
    if b"=" not in payload or b" " not in payload.strip():
        return False
    most = limits.max_readings_per_message
    return isinstance(parse_influx(payload, max_bytes=limits.max_payload_bytes, max_readings=most), Document)


def _likeness(mapping: MappingSettings, document: Any) -> int:
    """Return how many places of a mapping hold something; 0 if its `when` does not hold or its time is missing."""
    try:
        if mapping.ignore is not None or mapping.refuse is not None or not MatchConditions(mapping.when).hold(document):
            return 0
        times = [
            parse_path(source.path if isinstance(source, TimeSource) else source, around=True)
            for source in mapping.time or ()
        ]
        if times and not any(_holds(path, document) for path in times):
            return 0
        asked = {parse_path(path).steps for path in mapping.when}
        named = {
            path.steps for path in [*times, *_paths(mapping)] if path.steps not in asked and _holds(path, document)
        }
        # One condition, or none, may hold by chance: then other places must confirm it.
        return len(mapping.when) + len(named) if len(named) >= _OTHERS else 0
    except BadPath:
        return 0


def _holds(path: ValuePath, document: Any) -> bool:
    return bool(path.steps) and path.look(document, document) is not None


def _paths(mapping: MappingSettings) -> Iterator[ValuePath]:
    """Yield the paths by which a mapping finds device, identity, values and units."""
    yield from (parse_path(text) for text in mapping.values if text)
    units = (unit for unit in mapping.units.values() if "{" in unit)
    for text in sorted({*mapping.device, *mapping.same_device, *mapping.message_id, *units}):
        yield from ValueTemplate(text).paths
