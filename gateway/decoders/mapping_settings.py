"""What a mapping may say: how a JSON format becomes readings, written as data (TOML), compiled by `mapping`.

The same tables stand in the shipped presets (gateway/presets/<format>.toml) and in a user's settings: `[mappings.NAME]`
with `mapping = "NAME"` in a route, or the table itself in the route. One page of rules:

Paths      `a.b` a member; `"PM2.5"` (in quotes) a name with a dot; `a[0]` an item; `a[]` each item; `a.*` each member.
           They begin at the item; `$.a` begins at the whole message; `^.a` (in templates and times) is that of the
           nearest object around the item that has it. JSON null counts as absent.
Templates  text with references: `{.path}` of the item, `{$.path}` of the message, `{^.path}` of what is around the item,
           `{key}` the member name that a `*` in `items` met (`{key2}` that of a second `*`), `{segment}` a named segment
           of the route's filter, `{device}` and `{metric}` what the route (else the topic) says, `{payload}` a hash of
           the bytes, `{telegram}` a hash of the item without its time and what `radio` names, `{second}` the item's
           time in whole seconds, `{received/600}` the receive time in whole ten minutes, `{.path|13}` the first 13
           characters of the value. Text and integers fill a reference; `{.path.*}` is all members of an object of such,
           as `a=x,b=y` in order of the keys. Where one is absent the whole template gives nothing. Lists of templates:
           the first that gives.
Patterns   without wildcards: the metric's final name, or its last key. With `*` and `?` (both meet dots too): where the
           pattern has a dot, the final name; where not, the last key alone (of a renamed metric, the new name). Case
           counts. Where several match: the first that stands in the table. All but `skip` meet a renamed or prefixed
           metric by its old name too.
Texts      `format` says how the message becomes a document, `inside` what stands inside it as text, base64 or columns; then
           paths lead into it. Cells of rows and pairs have no types: `numeric_text` is then every field unless it is given.
Numbers    a number that a pattern of `numbers` meets is compared with `errors` as it came, then scaled.
Names      nested members are joined by dots, array items take `[0]` (`a.b[0]`); then `rename` (of an object or array too:
           what is inside follows), then `prefix` in front.

A fault of one field costs that field, of one item that item; the rest of the message is kept.
"""

from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from gateway.decoders.text_settings import FormatSettings, InsideFormat, MessageFormat
from gateway.decoders.value_settings import NumberSettings, QualitySettings, TimeOffset
from gateway.time_formats import named_time
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
    """A format by name, or one that is written out."""
    if text not in _FORMATS:
        if "%" not in text and text != "rfc1123":
            known = ", ".join(sorted(_FORMATS))
            message = f"{text!r} is no format of a time: wanted {known}, rfc1123, or one such as %d.%m.%Y %H:%M"
            raise ValueError(message)
        named_time(text)
    return text


def _known_zone(text: str | None) -> str | None:
    if text is not None:
        try:
            ZoneInfo(text)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            message = f"{text!r} is no IANA time zone; wanted a name such as Europe/Berlin"
            raise ValueError(message) from error
    return text


TimeFormat = Annotated[str, Field(max_length=80), AfterValidator(_known_format)]
ZoneName = Annotated[str | None, AfterValidator(_known_zone)]


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str | TimeSource) or (isinstance(value, dict) and "path" in value) else value


class TimeSource(BaseModel):
    """A path that holds a time, and how it is written there; a template joins parts that are apart: `{.date} {.time}`.

    auto: epoch by magnitude, or text; s, ms, us, ns, min: epoch numbers (or text of one) in that unit; local: text, in the
    route's zone unless it has an offset; rfc3339: text with an offset; `%d.%m.%Y %H:%M` and the like: text written so, in
    `zone` (default: the route's) unless it has an offset. Directives: see `time_formats`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1)
    format: TimeFormat = "auto"
    zone: ZoneName = Field(None, description="IANA zone of times without an offset, in place of the route's.")


Texts = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Times = Annotated[tuple[str | TimeSource, ...], BeforeValidator(_listed)]
Condition = bool | Texts
"""true: the path holds something; false: it holds nothing; text: globs for the value as text."""


class QuantitySettings(BaseModel):
    """Inner objects that are one reading: they hold `value`; then unit and time stand beside it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: str = Field(min_length=1, description="Key of the value; an object without it is flattened as usual.")
    unit: str | None = Field(None, description="Key of the unit.")
    time: TimeSource | None = Field(None, description="Key (a path inside the object) of the value's own time.")
    status: Texts = Field((), description="Paths inside the object to a number that says how good the value is.")
    bad_from: int = Field(1, description="A status of at least this says that the value is none: it is refused.")
    uncertain_from: int | None = Field(
        None, description="A status of at least this, below `bad_from`, flags the value quality_uncertain."
    )
    quality: QualitySettings | None = Field(
        None, description="A field inside the object that says how good the value is."
    )


class ValueTimes(BaseModel):
    """A tree beside the readings, of the same shape, that holds each value's own time (AWS shadow metadata)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tree: str = Field(min_length=1, description="Path of the tree; `$.…` from the whole message.")
    leaf: str = Field("timestamp", description="Key of the time at the place of the value.")
    format: TimeFormat = "auto"


class ValueUnits(BaseModel):
    """A tree of the same shape as the readings that holds each value's unit (`hourly_units`, the context of PPMP)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tree: str = Field(
        min_length=1, description="Path of the tree; `$.…` from the whole message, `^.…` around the item."
    )
    leaf: str | None = Field(
        None, description="Key of the unit at the place of the value; default: the unit is there itself."
    )


class CaseSettings(BaseModel):
    """How messages of one shape are read. Everything is optional."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: dict[str, Condition] = Field(
        default_factory=dict, description="Paths of the message and what they must hold, all of them."
    )
    ignore: IgnoredReason | None = Field(None, description="Such a message is no reading: status, metadata, command …")
    refuse: Reason | None = Field(None, description="Such a message is a dead letter, such as undecoded.")
    wanted: str | None = Field(None, description="What to do about it, for who reads the dead letter.")

    items: Texts = Field(
        ("$",),
        description="Where items stand, each with device and time of its own; all paths that are there are read.",
    )
    values: Texts = Field(
        (),
        description="Paths inside an item to what holds the readings, the first that is there; '' is the item, as by default.",
    )
    device: Texts = Field((), description="Templates; default: the route's device. None gives: the item is refused.")
    same_device: Texts = Field(
        (),
        description="Templates of the sender's id in the payload. Where one is there and the route names the device, it must be "
        "that or a level of the topic, and the route's name counts, not `device`. Of a MAC or EUI colons and case do not count.",
    )
    prefix: str = Field("", description="Template in front of every metric name of an item.")
    rename: dict[str, str] = Field(
        default_factory=dict, description="Flat name to the name to use, which may be a template such as {metric}."
    )

    time: Times | None = Field(
        None, description="Paths, the first that is there counts; [] is receive time; default: the route's time keys."
    )
    unset_clock: bool = Field(
        False,
        description="A time before 2000 is a clock that was not set yet: receive time, flag clock_unset, claim kept.",
    )
    no_times: Texts = Field(
        (),
        description="Globs of texts that are no time though a time path holds them: the next path counts, else receive time.",
    )
    time_offset: TimeOffset | None = Field(None, description="A number that is added to the item's time.")
    value_times: ValueTimes | None = None
    value_units: ValueUnits | None = None
    quality: QualitySettings | None = Field(None, description="A field of the item that says how good its values are.")
    quantity: QuantitySettings | None = None
    message_id: Texts = Field(
        (),
        description="Templates of the format's own identity of a message. One that holds the time is none where the time "
        "is ambiguous (the repeated hour) or of a clock that was not set.",
    )

    frame_id: Texts = Field(
        (),
        description="Templates of the identity that a device gives its own message over the air: session, frame counter, "
        "payload. They are tried before message_id. A copy that another receiver heard may have another time.",
    )
    radio: Texts = Field(
        (),
        description="Patterns of the fields that a receiver adds to what a device said (rssi, snr, its own name). They are no "
        "part of `{telegram}`, and a copy that another receiver heard may differ in them.",
    )

    vendors: Texts = Field(
        (),
        description="Names (globs) of the vendors whose rules hold for what `values` names, the object that a decoder of the "
        "vendor gave: tables [vendors.NAME], own or shipped; see `vendor_settings`.",
    )
    brand: Texts = Field((), description="Templates of the name that the network server gives the device's vendor.")

    keep: Texts = Field((), description="Patterns of the only fields that are readings; default: all.")
    skip: Texts = Field((), description="Patterns of fields and whole objects that are no readings. Wins over keep.")
    text: Texts = Field(("*",), description="Patterns of the text fields that are readings.")
    numeric_text: Texts = Field((), description="Patterns of text fields that hold numbers.")
    guess_numbers: Texts = Field(
        ("*",),
        description="Patterns of text fields that become numbers, flagged numeric_text, where they look like one and like no "
        "name: no leading zeros, less than 15 digits, no phone number, no `serial` or `version`. Of the fields that are "
        "readings as text, or have a unit. [] for none.",
    )
    no_values: Texts = Field((), description="Texts beyond null, unavailable, unknown … that mean: no value.")
    numbers: dict[str, NumberSettings] = Field(
        default_factory=dict, description="Pattern to how its fields become numbers: taken out of text, scaled."
    )
    errors: dict[str, tuple[float, ...]] = Field(
        default_factory=dict, description="Pattern to the numbers that stand for a broken sensor: these are refused."
    )
    units: dict[str, str] = Field(
        default_factory=dict,
        description="Pattern to unit, or to a template such as {$.TempUnit}; '' says none. The route's win.",
    )
    unit_names: dict[str, str] = Field(
        default_factory=dict, description="What a unit in the payload is called in readings: C = °C; '' says none."
    )
    tags: dict[str, str] = Field(default_factory=dict, description="Tag to template.")
    flags: dict[str, dict[str, Condition]] = Field(
        default_factory=dict, description="Flag of the message to the conditions under which it is set, as in `when`."
    )


class MappingSettings(CaseSettings):
    """A whole format. Where its `when` does not hold, the message is left to the next route that matches the topic.

    Of `cases` the first whose `when` holds is used: what it names wins over what the mapping names (tables are joined, and
    `"..."` in a list takes the mapping's entries in, see `mapping_extends`);
    `when`, `ignore`, `refuse` and `wanted` it has only of its own. Where none holds, the mapping itself is the case.
    """

    extends: str | None = Field(
        None,
        min_length=1,
        description="Name of a mapping, own or shipped, that this one varies; see `mapping_extends`.",
    )
    format: MessageFormat = Field(
        FormatSettings(kind="json"),
        description="How bytes become the document: json, ndjson, influx, rows, pairs; see `text_settings`.",
    )
    inside: dict[str, InsideFormat] = Field(
        default_factory=dict,
        max_length=16,
        description="Paths (also with [] and *) to documents inside the message, and their format; read before `cases`, `items` "
        "and all else but `when` of the mapping itself.",
    )
    cases: tuple[CaseSettings, ...] = ()
