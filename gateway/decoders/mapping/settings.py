"""Settings of a mapping: how a JSON format becomes readings, described in TOML and compiled by `mapping`.

The shipped presets (gateway/presets/<format>.toml) and a user's settings use the same tables. In the settings, write
`[mappings.NAME]` and `mapping = "NAME"` in a route, or put the table itself into the route. One page of rules:

Paths      `a.b` a member; `"PM2.5"` (in quotes) a name with a dot; `a[0]` an item; `a[]` each item; `a.*` each member.
           A path begins at the item; `$.a` begins at the whole message; `^.a` (in templates and times) takes `a` from the
           nearest object around the item that has it. JSON null counts as absent.
Templates  text with references: `{.path}` of the item, `{$.path}` of the message, `{^.path}` of an object around the item,
           `{key}` the member name that a `*` in `items` matched (`{key2}` for a second `*`), `{segment}` a named segment
           of the route's filter, `{device}` and `{metric}` the names by the route (else by the topic), `{payload}` a hash
           of the bytes, `{telegram}` a hash of the item without its time and the fields of `radio`, `{second}` the item's
           time in whole seconds, `{received/600}` the receive time in whole ten minutes, `{.path|13}` the first 13
           characters of the value. Text and integers fill a reference; `{.path.*}` is all members of an object with such
           values, as `a=x,b=y` in order of the keys. If a reference is absent, the whole template has no result. In a list
           of templates, the first one with a result is used.
Patterns   without wildcards: the metric's final name, or its last key. With `*` and `?` (both match dots too): the final
           name if the pattern has a dot, else the last key alone (for a renamed metric, the new name). Patterns are
           case-sensitive. If several match, the first in the table is used. All but `skip` also match a renamed or
           prefixed metric by its old name.
Texts      `format` says how the message becomes a document. `inside` says which text, base64 or columns inside the document
           become documents; paths then lead into them. Cells of rows and pairs have no types: `numeric_text` is then every
           field unless it is given.
Numbers    a number that a pattern of `numbers` matches is compared with `errors` as it came, then scaled.
Names      nested members are joined by dots, array items take `[0]` (`a.b[0]`); then `rename` (for an object or array it
           also renames the inner names), then `prefix` in front.

An error in one field costs that field, and an error in one item costs that item; the rest of the message is kept.
"""

from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from gateway.decoders.mapping.text_settings import FormatSettings, InsideFormat, MessageFormat
from gateway.decoders.mapping.value_settings import NumberSettings, QualitySettings, TimeOffset
from gateway.time_formats import compile_time_format
from ingest.contract.reasons import IgnoredReason, Reason

__all__ = [
    "CaseSettings",
    "MappingSettings",
    "QuantitySettings",
    "TimeFormat",
    "TimeSource",
    "ValueTimes",
    "ValueUnits",
]

_FORMATS: Final = frozenset({"auto", "s", "ms", "us", "ns", "min", "local", "rfc3339"})


def _known_format(text: str) -> str:
    """Check a time format: a known name, or directives such as %d."""
    if text not in _FORMATS:
        if "%" not in text and text != "rfc1123":
            known = ", ".join(sorted(_FORMATS))
            message = f"{text!r} is not a time format: use {known}, rfc1123, or one such as %d.%m.%Y %H:%M"
            raise ValueError(message)
        compile_time_format(text)
    return text


def _known_zone(text: str | None) -> str | None:
    if text is not None:
        try:
            ZoneInfo(text)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            message = f"{text!r} is not an IANA time zone: use a name such as Europe/Berlin"
            raise ValueError(message) from error
    return text


TimeFormat = Annotated[str, Field(max_length=80), AfterValidator(_known_format)]
ZoneName = Annotated[str | None, AfterValidator(_known_zone)]


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str | TimeSource) or (isinstance(value, dict) and "path" in value) else value


class TimeSource(BaseModel):
    """A path that holds a time, and the format of that time. A template joins separate parts: `{.date} {.time}`.

    auto: epoch by magnitude, or text; s, ms, us, ns, min: epoch numbers (or text of one) in that unit; local: text, in the
    route's zone unless it has an offset; rfc3339: text with an offset; directives such as `%d.%m.%Y %H:%M`: text in this
    form, in `zone` (default: the route's) unless it has an offset. See `time_formats` for the directives.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1, description="Path of the time, or a template that joins its parts.")
    format: TimeFormat = Field(
        "auto",
        description="Format of the time: auto, s, ms, us, ns, min, local, rfc3339, rfc1123, or directives such as %d.%m.%Y.",
    )
    zone: ZoneName = Field(None, description="IANA zone of times without an offset. Default: the route's zone.")


Texts = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Times = Annotated[tuple[str | TimeSource, ...], BeforeValidator(_listed)]
Condition = bool | Texts
"""true: the path has a value; false: it has none; text: globs for the value as text."""


class QuantitySettings(BaseModel):
    """Inner objects that are one reading: they hold `value`, and next to it the unit and the time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: str = Field(
        min_length=1, description="Key of the value. An object without this key is flattened into several metrics."
    )
    unit: str | None = Field(None, description="Key of the unit.")
    time: TimeSource | None = Field(None, description="Path inside the object to the value's own time.")
    status: Texts = Field((), description="Paths inside the object to a number that grades the value.")
    bad_from: int = Field(1, description="A value with a status of at least this is not a measurement: it is rejected.")
    uncertain_from: int | None = Field(
        None,
        description="A value with a status of at least this and below `bad_from` gets the flag quality_uncertain.",
    )
    quality: QualitySettings | None = Field(None, description="A field inside the object that grades the value.")


class ValueTimes(BaseModel):
    """A tree next to the readings, of the same shape, that holds each value's own time (AWS shadow metadata)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tree: str = Field(min_length=1, description="Path of the tree; `$.…` begins at the whole message.")
    leaf: str = Field("timestamp", description="Key of the time, at the place in the tree that the value has.")
    format: TimeFormat = Field("auto", description="Format of the times, as in `time`.")


class ValueUnits(BaseModel):
    """A tree of the same shape as the readings that holds each value's unit (`hourly_units`, the context of PPMP)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tree: str = Field(
        min_length=1,
        description="Path of the tree; `$.…` begins at the whole message, `^.…` at an object around the item.",
    )
    leaf: str | None = Field(
        None,
        description="Key of the unit, at the place in the tree that the value has. Default: the unit itself is there.",
    )


class CaseSettings(BaseModel):
    """Rules for messages of one shape. Everything is optional."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: dict[str, Condition] = Field(
        default_factory=dict, description="Paths of the message and their conditions. All of them must hold."
    )
    ignore: IgnoredReason | None = Field(
        None, description="Reason to ignore such a message: status, metadata, command and the like."
    )
    refuse: Reason | None = Field(
        None, description="Reason to reject such a message, such as undecoded. It becomes a dead letter."
    )
    wanted: str | None = Field(None, description="Text for the dead letter of `refuse`: what to do about the message.")

    items: Texts = Field(
        ("$",),
        description="Paths of the items, each of which has its own device and time. All paths that exist are read.",
    )
    values: Texts = Field(
        (),
        description="Paths inside an item to the object that holds the readings. The first one that exists is used. '', the "
        "default, is the item itself.",
    )
    device: Texts = Field(
        (),
        description="Templates of the device id. An item for which none has a result is rejected. Default: the route's device.",
    )
    same_device: Texts = Field(
        (),
        description="Templates of the sender's id in the payload. If one has a result and the route names the device, the id "
        "must be that device or a level of the topic; the route's name is then used, not `device`. For a MAC or EUI, colons "
        "and case do not matter.",
    )
    prefix: str = Field("", description="Template of the text in front of every metric name of an item.")
    rename: dict[str, str] = Field(
        default_factory=dict, description="Flat name to new name, which may be a template such as {metric}."
    )

    time: Times | None = Field(
        None,
        description="Paths of the time. The first one that exists is used; [] uses the receive time. Default: the route's time "
        "keys.",
    )
    unset_clock: bool = Field(
        False,
        description="Treat a time before 2000 as a clock that is not set: use the receive time, set the flag clock_unset and "
        "keep the device's time.",
    )
    no_times: Texts = Field(
        (),
        description="Globs of texts at a time path that are not times. For them the next path is used, else the receive time.",
    )
    time_offset: TimeOffset | None = Field(None, description="A number to add to the item's time.")
    value_times: ValueTimes | None = Field(None, description="A tree that holds each value's own time.")
    value_units: ValueUnits | None = Field(None, description="A tree that holds each value's unit.")
    quality: QualitySettings | None = Field(None, description="A field of the item that grades its values.")
    quantity: QuantitySettings | None = Field(
        None, description="Keys of inner objects that are one reading. Default: `value` and `unit`, and no other key."
    )
    message_id: Texts = Field(
        (),
        description="Templates of the format's own identity of a message. A template with the time has no result if the time "
        "is ambiguous (the repeated hour) or the device's clock is not set.",
    )

    frame_id: Texts = Field(
        (),
        description="Templates of the identity that a device gives its own message over the air: session, frame counter, "
        "payload. They are tried before message_id. A copy through another receiver may have another time.",
    )
    radio: Texts = Field(
        (),
        description="Patterns of the fields that a receiver adds to a device's message (rssi, snr, its own name). They are not "
        "part of `{telegram}`, and a copy through another receiver may differ in them.",
    )

    vendors: Texts = Field(
        (),
        description="Globs of the vendors whose rules apply to the object that `values` names, which a decoder of the vendor "
        "returned. The rules are tables [vendors.NAME], own or shipped; see `vendor_settings`.",
    )
    brand: Texts = Field((), description="Templates of the vendor's name as the network server gives it.")

    keep: Texts = Field((), description="Patterns of the only fields that become readings. Default: all.")
    skip: Texts = Field(
        (), description="Patterns of fields and whole objects that do not become readings. `skip` wins over `keep`."
    )
    text: Texts = Field(("*",), description="Patterns of the text fields that become readings.")
    numeric_text: Texts = Field((), description="Patterns of text fields that hold numbers.")
    guess_numbers: Texts = Field(
        ("*",),
        description="Patterns of text fields that become numbers, with the flag numeric_text, if they look like a number and "
        "not like a name: no leading zeros, fewer than 15 digits, not a phone number, not `serial` or `version`. It applies to "
        "fields that become readings as text or have a unit. [] for none.",
    )
    no_values: Texts = Field(
        (), description="Texts that mean no value, in addition to null, unavailable, unknown and the like."
    )
    numbers: dict[str, NumberSettings] = Field(
        default_factory=dict,
        description="Pattern to the rules that turn its fields into numbers: extract from text, scale.",
    )
    errors: dict[str, tuple[float, ...]] = Field(
        default_factory=dict, description="Pattern to the numbers that mean a broken sensor. These values are rejected."
    )
    units: dict[str, str] = Field(
        default_factory=dict,
        description="Pattern to unit, or to a template such as {$.TempUnit}. '' means no unit. The route's `units` win.",
    )
    unit_names: dict[str, str] = Field(
        default_factory=dict, description="Unit in the payload to the unit of the readings: C = °C. '' means no unit."
    )
    tags: dict[str, str] = Field(default_factory=dict, description="Tag to template.")
    flags: dict[str, dict[str, Condition]] = Field(
        default_factory=dict, description="Flag of the message to the conditions that set it, as in `when`."
    )


class MappingSettings(CaseSettings):
    """A whole format. If its `when` does not hold, the next route that matches the topic is tried.

    The first of `cases` whose `when` holds is used. Its settings win over those of the mapping (tables are joined, and
    `"..."` in a list inserts the mapping's entries, see `extends`). It does not inherit `when`, `ignore`, `refuse`
    and `wanted`. If no case holds, the mapping itself is the case.
    """

    extends: str | None = Field(
        None,
        min_length=1,
        description="Name of a mapping, own or shipped, that this one changes.",
    )
    format: MessageFormat = Field(
        FormatSettings(kind="json"),
        description="Format of the payload: json, ndjson, influx, rows, pairs or text; see `text_settings`.",
    )
    inside: dict[str, InsideFormat] = Field(
        default_factory=dict,
        max_length=16,
        description="Path (also with [] and *) of a document inside the message to its format. Only `when` of the mapping "
        "itself is evaluated before; `cases`, `items` and the rest see the documents.",
    )
    cases: tuple[CaseSettings, ...] = Field(
        (), description="Variants of the format. The first one whose `when` holds is used."
    )
