"""Times in a format that the settings name: read exactly, or refused; never guessed, never slow."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.devtools.decode_file import decode_lines
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.time_formats import BadFormat, CompiledTimeFormat, read_any_time
from gateway.time_rules import Instant
from ingest.contract.dead_letter import Reject

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def decode(mapping: dict[str, Any], document: object, **route: Any) -> dict[str, Any]:
    routes = (RouteSettings.model_validate({"filter": "a/#", "mapping": mapping} | route),)
    line = json.dumps({"id": 1, "topic": "a/b", "payload": json.dumps(document)})
    [found] = decode_lines([line], routes, GatewaySettings(), received_us=round(NOW.timestamp()) * 1_000_000)
    return found


def instant(text: str, how: str, zone: ZoneInfo | None = None) -> str:
    read = CompiledTimeFormat(how).read(text, "", zone)
    assert isinstance(read, Instant), read
    return (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=read.us)).isoformat()


@pytest.mark.parametrize(
    ("text", "how", "wanted"),
    [
        ("2020-Feb-05 08:06:56.976", "%Y-%b-%d %H:%M:%S.%f", "2020-02-05T08:06:56.976000"),
        ("28.11.2026 07:05", "%d.%m.%Y %H:%M", "2026-11-28T07:05:00"),
        ("8.1.2026 7:05:09", "%d.%m.%Y %H:%M:%S", "2026-01-08T07:05:09"),
        ("28/11/26 07:05", "%d/%m/%y %H:%M", "2026-11-28T07:05:00"),
        ("11/12/2026 07:05", "%d/%m/%Y %H:%M", "2026-12-11T07:05:00"),
        ("11/12/2026 07:05", "%m/%d/%Y %H:%M", "2026-11-12T07:05:00"),
        ("12/11/2026 12:05 am", "%m/%d/%Y %I:%M %p", "2026-12-11T00:05:00"),
        ("12/11/2026 12:05 PM", "%m/%d/%Y %I:%M %p", "2026-12-11T12:05:00"),
        ("20261128T070509", "%Y%m%dT%H%M%S", "2026-11-28T07:05:09"),
        ("20261128070509123", "%Y%m%d%H%M%S%f", "2026-11-28T07:05:09.123000"),
        ("Sat Nov 28 07:05:09 2026", "%a %b %d %H:%M:%S %Y", "2026-11-28T07:05:09"),
        ("Sat Nov  8 07:05:09 2025", "%a %b %d %H:%M:%S %Y", "2025-11-08T07:05:09"),
        ("28-NOVEMBER-2026 07:05", "%d-%B-%Y %H:%M", "2026-11-28T07:05:00"),
        ("2026-332 07:05", "%Y-%j %H:%M", "2026-11-28T07:05:00"),
        ("100% 2026-11-28 07:05", "100%% %F %R", "2026-11-28T07:05:00"),
        ("2026-11-28 07:05:09.1234567", "%F %T.%f", "2026-11-28T07:05:09.123456"),
    ],
)
def test_a_named_format_is_read(text: str, how: str, wanted: str) -> None:
    assert instant(text, how, ZoneInfo("UTC")) == f"{wanted}+00:00"
    without = CompiledTimeFormat(how).read(text, "$", None)
    assert isinstance(without, Reject)
    assert (without.reason.value, without.path) == ("ambiguous_time", "$")
    assert "zone" in str(without.wanted)


@pytest.mark.parametrize(
    ("text", "how", "wanted"),
    [
        ("Sat, 28 Nov 2026 07:05:09 GMT", "rfc1123", "2026-11-28T07:05:09+00:00"),
        ("Sat, 28 Nov 2026 07:05:09 +0130", "rfc1123", "2026-11-28T05:35:09+00:00"),
        ("28.11.2026 07:05 -02:00", "%d.%m.%Y %H:%M %z", "2026-11-28T09:05:00+00:00"),
        ("28.11.2026 07:05 UTC", "%d.%m.%Y %H:%M %Z", "2026-11-28T07:05:00+00:00"),
        ("at 1795900000.25", "at %s.%f", "2026-11-28T21:06:40.250000+00:00"),
    ],
)
def test_an_offset_in_the_text_needs_no_zone(text: str, how: str, wanted: str) -> None:
    assert instant(text, how) == wanted


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("28.11.2026", "%d.%m.%Y %H:%M"),
        ("31.02.2026 07:05", "%d.%m.%Y %H:%M"),
        ("13/13/2026 07:05", "%d/%m/%Y %H:%M"),
        ("28.11.2026 25:05", "%d.%m.%Y %H:%M"),
        ("28.11.2026 07:05 CET", "%d.%m.%Y %H:%M %Z"),
        ("28.Foo.2026 07:05", "%d.%b.%Y %H:%M"),
        ("Mon, 28 Nov 2026 07:05:09 GMT", "rfc1123"),
        ("28.11.2026 13:05 PM", "%d.%m.%Y %I:%M %p"),
        ("٢٨.11.2026 07:05", "%d.%m.%Y %H:%M"),
        ("28.11.2026 07:05" + " " * 100 + "x", "%d.%m.%Y %H:%M"),
        (1795900000.5, "%d.%m.%Y %H:%M"),
        (True, "%s"),
        (None, "%s"),
        (10**500, "%s"),
    ],
)
def test_what_does_not_fit_the_format_is_refused(text: Any, how: str) -> None:
    read = CompiledTimeFormat(how).read(text, "$.t", ZoneInfo("UTC"))
    assert isinstance(read, Reject)
    assert read.reason.value in ("bad_timestamp", "wrong_type")
    assert read.wanted


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("%H:%M", "a year"),
        ("%d.%m.%Y", "an hour"),
        ("%Y-%m %H:%M", "a month and a day"),
        ("%d.%m.%Y %I:%M", "an hour"),
        ("%d.%m.%Y %d %H:%M", "twice"),
        ("%d.%m.%Y %b %H:%M", "twice"),
        ("%q %d.%m.%Y %H:%M", "not a directive"),
        ("%d.%m.%Y %H:%M %", "a % without a letter"),
    ],
)
def test_a_format_that_says_no_instant_is_refused_at_start(how: str, told: str) -> None:
    with pytest.raises(BadFormat, match=re.escape(told)):
        CompiledTimeFormat(how)
    with pytest.raises(ValidationError, match=re.escape(told)):
        RouteSettings.model_validate({"filter": "a", "mapping": {"time": [{"path": "t", "format": how}]}})


@pytest.mark.parametrize("source", [{"format": "dd.mm.yyyy"}, {"format": "Local"}, {"zone": "Berlin"}])
def test_a_format_or_zone_that_is_unknown_is_refused_at_start(source: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=": use "):
        RouteSettings.model_validate({"filter": "a", "mapping": {"time": [{"path": "t"} | source]}})


def test_each_path_of_a_mapping_has_a_format_and_a_zone_of_its_own() -> None:
    mapping = {
        "time": [{"path": "t", "format": "%d.%m.%Y %H:%M", "zone": "Europe/Berlin"}, {"path": "u", "format": "rfc1123"}]
    }
    local, world = {"t": "28.11.2026 07:05", "v": 1}, {"u": "Sat, 28 Nov 2026 07:05:00 GMT", "v": 1}
    assert decode(mapping, local)["readings"][0]["time"] == "2026-11-28T06:05:00Z"
    assert decode(mapping, local, zone="Asia/Tokyo")["readings"][0]["time"] == "2026-11-28T06:05:00Z"
    assert decode(mapping, world)["readings"][0]["time"] == "2026-11-28T07:05:00Z"
    route_zone = {"time": [{"path": "t", "format": "%d.%m.%Y %H:%M"}]}
    assert decode(route_zone, local, zone="Asia/Tokyo")["readings"][0]["time"] == "2026-11-27T22:05:00Z"
    assert decode(route_zone, local)["reason"] == "ambiguous_time"


def test_values_with_a_time_of_their_own_have_the_format_of_their_path() -> None:
    mapping = {"quantity": {"value": "v", "time": {"path": "t", "format": "%d.%m.%Y %H:%M", "zone": "UTC"}}}
    found = decode(mapping, {"temp": {"v": 1, "t": "28.11.2026 07:05"}})
    assert found["readings"][0]["time"] == "2026-11-28T07:05:00Z"


def test_the_repeated_hour_of_a_named_format_is_flagged() -> None:
    mapping = {"time": [{"path": "t", "format": "%d.%m.%Y %H:%M", "zone": "Europe/Berlin"}]}
    assert "ambiguous_local_time" in decode(mapping, {"t": "25.10.2026 02:30", "v": 1})["readings"][0]["flags"]


@pytest.mark.parametrize("blank", [None, "", "  "])
@pytest.mark.parametrize(
    ("mapping", "document"),
    [
        ({}, {"ts": ..., "v": 1}),
        ({"time": ["t"]}, {"t": ..., "v": 1}),
        ({"time": [{"path": "t", "format": "%d.%m.%Y %H:%M"}]}, {"t": ..., "v": 1}),
        ({"quantity": {"value": "v", "time": {"path": "t"}}}, {"x": {"v": 1, "t": ...}}),
    ],
)
def test_an_empty_time_is_as_absent_as_null(mapping: Any, document: dict[str, Any], blank: object) -> None:
    found = decode(mapping, _fill(document, blank))
    assert [(one["value"], one["time"]) for one in found["readings"]] == [(1.0, None)], found


def test_an_empty_time_of_the_native_format_is_absent() -> None:
    line = {"id": 1, "topic": "tidegate/v1/dev/readings", "payload": '{"ts": "", "values": {"t": 1}}'}
    [found] = decode_lines([json.dumps(line)], (), GatewaySettings())
    assert [(one["metric"], one["time"]) for one in found["readings"]] == [("t", None)]


def _fill(value: Any, blank: object) -> Any:
    if isinstance(value, dict):
        return {key: _fill(inner, blank) for key, inner in value.items()}
    return blank if value is ... else value


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Sat, 28 Nov 2026 07:05:09 GMT", True),
        ("2020-Feb-05 08:06:56.976", True),
        ("28 Nov 2026 07:05", True),
        ("05.02.2020 08:06", False),
        ("05/02/2020 08:06", False),
        ("2020-13-45 08:06", False),
    ],
)
def test_what_can_mean_one_thing_only_needs_no_format(text: str, read: bool) -> None:
    assert isinstance(read_any_time(text, "", BERLIN), Instant) is read


_FIRST, _LAST = (datetime(year, 1, 1) for year in (2000, 2100))  # noqa: DTZ001 - hypothesis wants them so


_WRITTEN = [
    "%d.%m.%Y %H:%M:%S.%f",
    "%Y%m%d%H%M%S%f",
    "%a, %d %b %Y %I:%M:%S.%f %p",
    "%B %d %Y %H:%M:%S.%f",
    "%j/%Y %T.%f",
]


@given(st.datetimes(_FIRST, _LAST), st.sampled_from(_WRITTEN))
def test_what_is_written_in_a_format_is_read_back(at: datetime, how: str) -> None:
    assert instant(at.strftime(how), how, ZoneInfo("UTC")) == at.replace(tzinfo=UTC).isoformat()


@given(st.text(max_size=200), st.sampled_from(["%d.%m.%Y %H:%M", "rfc1123", "%s", "%Y-%b-%d %H:%M:%S.%f"]))
def test_no_text_breaks_a_format(text: str, how: str) -> None:
    assert isinstance(CompiledTimeFormat(how).read(text, "", None), Instant | Reject)
