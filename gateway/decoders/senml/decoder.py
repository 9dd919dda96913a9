"""SenML in JSON and in CBOR: packs of records of one device or several.

`resolved_pack` applies the format's own rules. A sum is a separate metric, `<metric>.sum`, in its unit times seconds.

SenML knows only whole names, so a name is split into device and metric. With a base name and a name, the sender has chosen
the boundary: the base name, without separators at its end, is the device. A name alone (or a base name alone) is split
after the identifier of a URN (`urn:dev:ow:10e2:temp`, `urn:dev:mac:0024_temp` of RFC 9039), else at its last `/`, else at
its last `:`. An address (IPv6, MAC) is not split. If nothing is left for the metric, it is `value`.

Source: RFC 8428.
"""

import re
from dataclasses import replace
from typing import Any, Final

from gateway.decoders.cbor import BadCbor, read_cbor
from gateway.decoders.senml.resolved_pack import BadPack, PackState, ResolvedRecord
from gateway.decoders.shape import Decoded, RouteMatch
from gateway.decoders.values import read_value
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import DUPLICATE_KEY, parse_json
from gateway.safe_text import show_text, show_value
from gateway.time_rules import check_plausible_time
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["RELATIVE_TIME", "decode_senml", "split_name"]

RELATIVE_TIME: Final = "relative_time"
"""Flag of a time that the device gave only as a distance from the receive time."""
_RELATIVE_BELOW_US: Final = 2**28 * 1_000_000
_CBOR_LABELS: Final[dict[object, str]] = {
    -6: "bs", -5: "bv", -4: "bu", -3: "bt", -2: "bn", -1: "bver",
    0: "n", 1: "u", 2: "v", 3: "vs", 4: "vb", 5: "s", 6: "t", 7: "ut", 8: "vd",
}  # fmt: skip
_CBOR_ARRAYS: Final = range(0x80, 0xA0)
_CBOR_MARK: Final = 0xD9
"""First byte of the tag that marks CBOR."""
_QUANTITIES: Final = frozenset({"lat", "lon", "EL", "%EL"})
"""Units that say what is measured: they are the metric if the name holds none. Otherwise latitudes and longitudes of one
device would be values of one metric."""

WHOLE_NAME: Final = "value"
"""Metric of a name that is a device as a whole."""
_ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9:./_-]*", re.ASCII)
_URN = re.compile(r"(urn:(?:dev:[^:]+:[^:/_]+|(?!dev:)[^:]+:[^:/]+))(?:[:/_](.*))?", re.IGNORECASE)
_ADDRESS = re.compile(r"[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,}")
_SEPARATORS: Final = ":/._-"
_MAX_KNOWN: Final = 10_000
_MAX_KNOWN_CHARACTERS: Final = 300
_known: dict[tuple[str, str], tuple[str, str]] = {}
"""Valid names: the same few recur with every pack. Bounded."""


def decode_senml(
    payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int
) -> Decoded | list[Decoded] | Reject:
    """Decode one pack, as CBOR where its first byte begins a CBOR array, else as JSON; see `Decoder`.

    The format has no identity: a sender gives one as MQTT user property `message-id`.
    """
    in_cbor = payload and (payload[0] in _CBOR_ARRAYS or payload[0] == _CBOR_MARK)
    found = (_read_cbor if in_cbor else _read_json)(payload, limits)
    if isinstance(found, Reject):
        return found
    records, flags = found
    if not isinstance(records, list):
        return Reject(Reason.NOT_OBJECT, "$", show_value(records), "a SenML pack: an array of records")
    if len(records) > limits.max_readings_per_message:
        return _too_many(limits)
    try:
        devices = _Readings(match, limits, received_us, flags).read(records)
    except BadPack as refused:
        return refused.reject
    # A record may hold two readings: a value and a sum.
    if sum(len(decoded.readings) for decoded in devices) > limits.max_readings_per_message:
        return _too_many(limits)
    return devices[0] if len(devices) == 1 else devices


def _too_many(limits: GatewaySettings) -> Reject:
    wanted = f"at most {limits.max_readings_per_message} readings in a message"
    return Reject(Reason.TOO_LARGE, "$", "more readings", wanted)


def _read_json(payload: bytes, limits: GatewaySettings) -> tuple[Any, list[str]] | Reject:
    document = parse_json(payload, max_bytes=limits.max_payload_bytes, max_depth=limits.max_json_depth)
    return document if isinstance(document, Reject) else (document.value, list(document.flags))


def _read_cbor(payload: bytes, limits: GatewaySettings) -> tuple[Any, list[str]] | Reject:
    if len(payload) > limits.max_payload_bytes:
        return Reject(Reason.TOO_LARGE, got=f"{len(payload)} bytes", wanted=f"at most {limits.max_payload_bytes} bytes")
    try:
        records, key_twice = read_cbor(payload, max_depth=limits.max_json_depth)
    except BadCbor as error:
        return Reject(Reason.UNDECODED, got=show_text(str(error)), wanted="a SenML pack in CBOR")
    if isinstance(records, list):
        records = [_name_labels(record) for record in records]
    return records, [DUPLICATE_KEY] if key_twice else []


def _name_labels(record: Any) -> Any:
    if not isinstance(record, dict):
        return record
    return {_CBOR_LABELS.get(label, label): value for label, value in record.items()}


class _Readings:
    """Readings of one pack, by device."""

    def __init__(self, match: RouteMatch, limits: GatewaySettings, received_us: int, flags: list[str]) -> None:
        self._match, self._limits, self._received_us = match, limits, received_us
        self._flags = flags or None
        self._devices: dict[str, Decoded] = {}
        self._nobodys: list[Reject] = []

    def read(self, records: list[Any]) -> list[Decoded]:
        """Return one entry per device. A rejected record counts for the device that it names, else for the first.

        A record that spoils the pack rejects it for each device that was named so far.
        """
        pack = PackState()
        for index, record in enumerate(records):
            path = f"$[{index}]"
            try:
                resolved = pack.resolve(record, path)
            except BadPack as spoiled:
                return self._spoiled(spoiled, *pack.names(record))
            if isinstance(resolved, ResolvedRecord):
                resolved = self._add_record(resolved, path, index)
            if resolved is not None:
                self._refuse(resolved, *pack.names(record))
        devices = list(self._devices.values()) or [self._device(self._match.device)]
        devices[0].rejects += self._nobodys
        return devices

    def _refuse(self, reject: Reject, base: str, name: str) -> None:
        named = read_name(base, name) if base or name else ""
        rejects = self._nobodys if isinstance(named, str) else self._device(named[0]).rejects
        rejects.append(reject)

    def _spoiled(self, spoiled: BadPack, base: str, name: str) -> list[Decoded]:
        named = read_name(base, name) if base or name else ""
        devices = [*self._devices, *(() if isinstance(named, str) else named[:1])]
        if not devices:
            raise spoiled
        self._devices.clear()
        for device in devices:
            self._device(device).rejects[:] = [spoiled.reject]
        return list(self._devices.values())

    def _device(self, device: str) -> Decoded:
        found = self._devices.get(device)
        if found is None:
            found = Decoded(device, [], [], self._flags, self._match.tags, None, None, [])
            self._devices[device] = found
        return found

    def _add_record(self, record: ResolvedRecord, path: str, index: int) -> Reject | None:
        """Add the record's readings, its place in the pack as their index."""
        base, name, unit, time_us, values = record
        named = read_name(base, name)
        if isinstance(named, str):
            reason = Reason.OUT_OF_RANGE if base or name else Reason.MISSING_FIELD
            return Reject(reason, f"{path}.n", show_value(base + name), named)
        device, metric = named
        at_us, flags = self._place_in_time(time_us)
        if at_us is not None:
            refused = check_plausible_time(at_us, self._received_us, self._limits.max_future_seconds, f"{path}.t")
            if refused is not None:
                return refused
        if metric == WHOLE_NAME and unit in _QUANTITIES:
            metric = unit
        decoded = self._device(device)
        readings = decoded.readings
        for label, value in values:
            part, its_unit = (metric, unit) if label != "s" else (f"{metric}.sum", _times_seconds(unit))
            reading = read_value(part, value, its_unit or self._match.units.get(part), "")
            if isinstance(reading, Reject):
                decoded.rejects.append(replace(reading, path=f"{path}.{label}"))
                continue
            reading.time_us, reading.index = at_us, index
            if flags:
                reading.flags = [*(reading.flags or ()), *flags]
            readings.append(reading)
        return None

    def _place_in_time(self, time_us: int) -> tuple[int | None, tuple[str, ...]]:
        if time_us == 0:
            return None, ()
        if time_us < _RELATIVE_BELOW_US:
            return self._received_us + time_us, (RELATIVE_TIME,)
        return time_us, ()


def _times_seconds(unit: str | None) -> str | None:
    return None if unit is None else f"{unit}·s"


def read_name(base: str, name: str) -> tuple[str, str] | str:
    """Return device and metric of base name and name. If they are not a SenML name together, return a text that says what is."""
    found = _known.get((base, name))
    if found is not None:
        return found
    whole = base + name
    if not whole:
        return "a name: `n`, or `bn` in this record or one before it"
    if not _ALLOWED.fullmatch(whole):
        return "letters, digits and - : . / _ only, a letter or digit first"
    found = split_name(base, name)
    if len(_known) < _MAX_KNOWN and len(whole) <= _MAX_KNOWN_CHARACTERS:
        _known[base, name] = found
    return found


def split_name(base: str, name: str) -> tuple[str, str]:
    """Split into device and metric; both have at least one character if `base + name` is a SenML name (RFC 8428, 4.5.1)."""
    if base and name:
        return base.rstrip(_SEPARATORS), name
    whole = (base or name).rstrip(_SEPARATORS)
    urn = _URN.fullmatch(whole)
    if urn is not None:
        return urn[1], urn[2] or WHOLE_NAME
    head, _, tail = whole.rpartition("/")
    if not head and not _ADDRESS.fullmatch(whole):
        head, _, tail = whole.rpartition(":")
    return (head, tail) if head else (whole, WHOLE_NAME)
