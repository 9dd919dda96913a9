"""Influx lines: what the protocol's description shows, lines that are none, and text that must not cost time."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoders.influx import parse_influx
from gateway.devtools.decode_file import decode_lines
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.json_text import BadNumber, Document
from gateway.message_processor import Message, MessageProcessor
from gateway.routes import compile_routes
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import decode_record
from ingest.contract.reasons import Reason

LIMITS = GatewaySettings()
NOW_US = 1_800_000_000_000_000


def parse(text: str | bytes, max_readings: int = 10_000) -> list[Any]:
    payload = text if isinstance(text, bytes) else text.encode()
    document = parse_influx(payload, max_bytes=LIMITS.max_payload_bytes, max_readings=max_readings)
    assert isinstance(document, Document), document
    lines: list[Any] = document.value["metrics"]
    return lines


def refused(payload: bytes, max_readings: int = 10_000) -> Reject:
    document = parse_influx(payload, max_bytes=LIMITS.max_payload_bytes, max_readings=max_readings)
    assert isinstance(document, Reject), document
    return document


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("m f=1", {"name": "m", "tags": {}, "fields": {"f": 1.0}}),
        (
            "weather,location=us-midwest temperature=82,humidity=71i 1465839830100400200",
            {
                "name": "weather",
                "tags": {"location": "us-midwest"},
                "fields": {"temperature": 82.0, "humidity": 71},
                "timestamp": 1465839830100400200,
            },
        ),
        (
            r"wea\,ther\ x,loca\=tion=us\ mid\,west,b=c\d te\ mp=1 5",
            {
                "name": "wea,ther x",
                "tags": {"loca=tion": "us mid,west", "b": r"c\d"},
                "fields": {"te mp": 1.0},
                "timestamp": 5,
            },
        ),
        ('m f="a, b= \\"c\\" \\\\ \\n é"', {"name": "m", "tags": {}, "fields": {"f": 'a, b= "c" \\ \\n é'}}),
        ('m f="two\nlines",g=2', {"name": "m", "tags": {}, "fields": {"f": "two\nlines", "g": 2.0}}),
        ("m f=1  -5 \r\n", {"name": "m", "tags": {}, "fields": {"f": 1.0}, "timestamp": -5}),
        ("# a comment\n\n  \nm f=1", {"name": "m", "tags": {}, "fields": {"f": 1.0}}),
        ('m f=""', {"name": "m", "tags": {}, "fields": {"f": ""}}),
    ],
)
def test_a_line_is_read_with_its_escapes(text: str, line: dict[str, Any]) -> None:
    assert parse(text) == [line]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("82", 82.0), ("-1.5e-3", -0.0015), ("+.5", 0.5), ("5.", 5.0), ("0", 0.0), ("71i", 71),
        ("-9223372036854775808i", -(2**63)),
        ("18446744073709551615u", 2**64 - 1), ("t", True), ("TRUE", True), ("f", False), ("False", False),
    ],
)  # fmt: skip
def test_every_type_of_value_is_read(text: str, value: object) -> None:
    [line] = parse(f"m f={text}")
    assert line["fields"] == {"f": value}
    assert type(line["fields"]["f"]) is type(value)


@pytest.mark.parametrize(
    "text",
    ["nan", "NaN", "inf", "1e999", "1_000", "0x1F", "71n", "9223372036854775808i", "-1u", "tRUE", "٣", "1" * 500],
)
def test_a_value_of_no_type_spoils_only_its_field(text: str) -> None:
    [line] = parse(f"m a=1,f={text},b=2")
    assert (line["fields"]["a"], line["fields"]["b"]) == (1.0, 2.0)
    assert isinstance(line["fields"]["f"], BadNumber)


@pytest.mark.parametrize(
    ("bad", "got"),
    [
        ("m", "the line's end"),
        ("m f", "f"),
        ("m f=", "f="),
        ("m f=1,", "the line's end"),
        (",a=b f=1", ",a=b f=1"),
        ("m,a f=1", "a f=1"),
        ("m,a= f=1", "a= f=1"),
        ("m f=1 2 3", "3"),
        ("m f=1 2x", "x"),
        ('m f="x', 'f="x'),
        ('m f="x"y', "y"),
        ("m" + ",a=b" * 200 + " f=1", "f=1"),
        ('{"temperature": 1}', "1}"),
    ],
)
def test_a_line_that_is_none_costs_itself(bad: str, got: str) -> None:
    before, fault, behind = parse(f"a v=1\n{bad}\nb v=2\n")
    assert (before["name"], behind["name"]) == ("a", "b")
    assert isinstance(fault, Reject)
    assert (fault.reason, fault.got and fault.got.strip()) == (Reason.UNDECODED, got)


def test_a_field_that_stands_twice_is_told() -> None:
    document = parse_influx(b"m f=1,f=2", max_bytes=100, max_readings=10)
    assert isinstance(document, Document)
    assert (document.value["metrics"][0]["fields"], document.flags) == ({"f": 2.0}, ("duplicate_key",))


def test_more_than_allowed_is_refused() -> None:
    assert refused(b"m a=1,b=2,c=3", max_readings=2).reason is Reason.TOO_LARGE
    assert refused(b"m a=1\nm b=1\nm c=1", max_readings=2).reason is Reason.TOO_LARGE
    assert refused(b"x\n" * 3, max_readings=2).reason is Reason.TOO_LARGE
    assert refused(b"x" * (LIMITS.max_payload_bytes + 1)).reason is Reason.TOO_LARGE
    assert refused(b"m f=\xff").reason is Reason.BAD_ENCODING


@pytest.mark.parametrize(
    "bomb",
    [b"a" * 262_144, b"\\" * 262_144, b" " * 262_144, b"#\n" * 131_072, b'a v="' * 52_000, b"m " + b"a=1," * 65_000,
     b"m" + b",a=1" * 65_000, b'm f="\n' * 9_000, b"a\n" * 9_000],
    ids=lambda bomb: repr(bomb[:6]),
)  # fmt: skip
@pytest.mark.timeout(20)
def test_hostile_text_has_an_outcome_in_time_that_grows_with_its_bytes(bomb: bytes) -> None:
    # Time that grew with the square of the bytes would be minutes.
    document = parse_influx(bomb, max_bytes=LIMITS.max_payload_bytes, max_readings=10_000)
    assert isinstance(document, Document | Reject)


_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\t\\"), min_size=1, max_size=6)
_VALUES = (
    st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
)


def escape(text: str) -> str:
    return text.replace(",", r"\,").replace("=", r"\=").replace(" ", r"\ ")


def write(value: object) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return f"{value}i" if isinstance(value, int) else repr(value)


@given(
    st.lists(
        st.tuples(
            _NAMES,
            st.dictionaries(_NAMES, _NAMES, max_size=3),
            st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_was_written_is_read_back(points: list[tuple[str, dict[str, str], dict[str, Any]]]) -> None:
    points = [point for point in points if point[0][0] not in "# "]
    text = ""
    for name, tags, fields in points:
        text += escape(name) + "".join(f",{escape(key)}={escape(tag)}" for key, tag in tags.items())
        text += " " + ",".join(f"{escape(key)}={write(value)}" for key, value in fields.items()) + "\n"
    assert parse(text) == [{"name": name, "tags": tags, "fields": fields} for name, tags, fields in points]


@given(st.binary(max_size=200) | st.text(alphabet='m,= \\"\n\r#1it', max_size=80).map(str.encode))
def test_random_bytes_are_lines_or_one_refusal(data: bytes) -> None:
    document = parse_influx(data, max_bytes=1000, max_readings=100)
    assert isinstance(document, Document | Reject)


def decide(payload: bytes, route: RouteSettings) -> list[tuple[Any, ...]]:
    outcome = MessageProcessor(compile_routes((route,), LIMITS), LIMITS).decide(
        Message(1, 1, NOW_US, b"sensors/plant1", payload)
    )
    records = [decode_record(record.value) for record in outcome.records if record.topic.endswith("readings")]
    return [
        (r.device, x.metric, x.value if x.text is None else x.text, x.time_us, x.index)
        for r in records
        for x in r.readings
    ]


def test_the_shipped_mapping_keeps_series_apart() -> None:
    found = decide(
        b'cpu,host=a,cpu=cpu0 usage=1,idle=99 1700000000000000001\ncpu,host=a,cpu=cpu1 usage=2 1700000000\nup s="on"\n',
        RouteSettings(filter="sensors/#", mapping="influx"),
    )
    assert found == [
        ("cpu=cpu0,host=a", "cpu.usage", 1.0, 1_700_000_000_000_000, 0),
        ("cpu=cpu0,host=a", "cpu.idle", 99.0, 1_700_000_000_000_000, 0),
        ("cpu=cpu1,host=a", "cpu.usage", 2.0, 1_700_000_000_000_000, 0),
        ("sensors", "up.s", "on", None, 0),
    ]


def test_the_device_may_be_one_tag_by_configuration_and_lines_keep_their_order() -> None:
    route = RouteSettings.model_validate(
        {
            "filter": "sensors/#",
            "mapping": {
                "format": "influx",
                "items": "metrics[]",
                "values": "fields",
                "prefix": "{.name}.",
                "time": "timestamp",
                "device": "{.tags.host}",
            },
        }
    )
    found = decide(b"t,host=a,x=1 v=1\nt,host=a,x=2 v=2\nt,host=b v=3", route)
    assert found == [("a", "t.v", 1.0, None, 0), ("a", "t.v", 2.0, None, 1), ("b", "t.v", 3.0, None, 0)]


def test_bad_lines_are_told_by_their_place() -> None:
    line = '{"topic": "sensors/x", "payload": "a v=1\\nb\\nc v=2 99\\nd,t=u v=nan,w=3"}'
    [outcome] = decode_lines([line], (RouteSettings(filter="sensors/#", mapping="influx"),), LIMITS)
    assert [reading["metric"] for reading in outcome["readings"]] == ["a.v", "d.w"]
    assert {(part["path"], part["reason"]) for part in outcome["rejected"]} == {
        ("$.metrics[1]", "undecoded"),
        ("$.metrics[2].timestamp", "ts_too_old"),
        ("$.metrics[3].fields.v", "bad_number"),
    }
