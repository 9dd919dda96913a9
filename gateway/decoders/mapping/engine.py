"""Mapping engine: a JSON format described as data becomes a decoder. For the language see `settings`.

A mapping is compiled once per route and only followed afterwards: what to do with a metric's name is decided when the
name first comes.

Generic JSON is the empty mapping: any document, flattened by the rule of `flatten`. The topic's last segment names a
top-level scalar, and the scalars of a top-level array: `samples[0]`. An object inside a top-level array is an item of a
batch: it has its own time, and its position is the readings' index. The first of the route's `time` keys that an object
has is its time, and not a metric; without them a usual name with a time counts. Parts of the document with their own
times are read at those times, or rejected: see `sampled`.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from gateway.decoders.mapping.compiled_case import CompiledCase
from gateway.decoders.mapping.conditions import MatchConditions
from gateway.decoders.mapping.extends import INHERITED, inherit_settings
from gateway.decoders.mapping.paths import BadPath
from gateway.decoders.mapping.reader import read_case
from gateway.decoders.mapping.settings import CaseSettings, MappingSettings
from gateway.decoders.mapping.text_documents import NestedDocuments, TextReader
from gateway.decoders.shape import Decoding, RouteMatch
from gateway.decoders.vendor_settings import VendorSettings
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import Document
from gateway.safe_text import show_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["BadPath", "CompiledMapping", "case_settings", "decode_json", "generic_mapping"]

_OWN: Final = frozenset({"when", "ignore", "refuse", "wanted"})
"""Settings that a case does not inherit: a mapping that ignores other messages may have cases that do not."""


class CompiledMapping:
    """Decoder of a mapping (see `Decoder`); also in two steps, for documents that are parsed already."""

    def __init__(
        self,
        settings: MappingSettings,
        segments: Iterable[str] = (),
        units: Mapping[str, str] | None = None,
        vendors: Mapping[str, VendorSettings] | None = None,
    ) -> None:
        """Compile for one route: `segments` are the named ones of its filter, `units` its own, which win.

        `vendors` are those that a mapping may name.

        Raises:
            BadPath: a path or template cannot be read, or needs a segment that the filter does not name.
        """
        _check_lists(settings)
        named = frozenset(segments)
        self._reader, self._inside = TextReader(settings.format), NestedDocuments(settings.inside)
        if (self._reader.delimited or self._inside.delimited) and "numeric_text" not in settings.model_fields_set:
            # The cells of a text have no types.
            settings = settings.model_copy(update={"numeric_text": ("*",)})
        self.format = self._reader.key
        self.when = MatchConditions(settings.when)
        self._own, *self._cases = [CompiledCase(case, named, units or {}, vendors) for case in case_settings(settings)]

    def fresh(self) -> "CompiledMapping":
        """Return the same mapping for another gateway, which counts from zero; compiling takes twenty times as long."""
        other = copy.copy(self)
        other._own, other._cases = self._own.fresh(), [case.fresh() for case in self._cases]
        return other

    def left_out(self) -> dict[str, int]:
        """Return how often each field was left out, over all cases."""
        found: Counter[str] = Counter()
        for case in (self._own, *self._cases):
            for names in (case.names, *(vendor.names for vendor in case.vendors)):
                found.update(names.dropped())
        return dict(found)

    def __call__(self, payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoding:
        """Decode one message; if the mapping's `when` does not hold, it is a dead letter `no_route`."""
        document = self.parse(payload, limits)
        if isinstance(document, Reject):
            return document
        if not self.when.hold(document.value):
            return Reject(Reason.NO_ROUTE, "$", show_value(document.value), "; ".join(self.when.texts))
        return self.read(document, payload, match, limits, received_us)

    def parse(self, payload: bytes, limits: GatewaySettings) -> Document | Reject:
        """Return the message as a document; the same for all mappings of one `format`."""
        return self._reader.parse(payload, limits)

    def read(
        self, document: Document, payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int
    ) -> Decoding:
        """Decode a parsed message for which `when` holds."""
        if self._inside:
            opened = self._inside.open(document, limits)
            if isinstance(opened, Reject):
                return opened
            document = opened
        root = document.value
        chosen = self._own
        for case in self._cases:
            if case.when.hold(root):
                chosen = case
                break
        return read_case(chosen, document, payload, match, limits, received_us)


def generic_mapping(units: dict[str, str], numeric_text: tuple[str, ...] = ("*",)) -> CompiledMapping:
    """Return the mapping that knows only a route's units, and in which text fields may hold numbers."""
    return CompiledMapping(MappingSettings(guess_numbers=numeric_text), units=units)


def decode_json(payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoding:
    """Decode one generic JSON message; see `Decoder`."""
    mapping = match.mapping or generic_mapping(match.units)
    return mapping(payload, match, limits, received_us)


def case_settings(settings: MappingSettings) -> list[CaseSettings]:
    """Return the settings that apply if no case does, and each case with what it inherits from its mapping."""
    own = CaseSettings(**{name: getattr(settings, name) for name in CaseSettings.model_fields if name != "when"})
    return [own, *(_inherit(settings, case) for case in settings.cases)]


def _inherit(mapping: MappingSettings, case: CaseSettings) -> CaseSettings:
    """Return the settings of a case over those of its mapping."""
    given = {name: getattr(case, name) for name in case.model_fields_set}
    base = {name: getattr(mapping, name) for name in CaseSettings.model_fields if name not in _OWN}
    return CaseSettings(**inherit_settings(base, given))


def _check_lists(settings: MappingSettings) -> None:
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if isinstance(value, tuple) and INHERITED in value:
            message = (
                f'"{INHERITED}" in {name} stands for inherited entries: name the mapping in `extends`, '
                f'and write "{INHERITED}" only once'
            )
            raise BadPath(message)
