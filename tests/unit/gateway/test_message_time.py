"""The time of a message that stands in its header, in parts, or under a name of another language."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.devtools.decode_file import decode_lines
from gateway.gateway_settings import GatewaySettings, RouteSettings

NOW_US = round(datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()) * 1_000_000
T = 1_795_900_000
AT = "2026-11-28T21:06:40Z"


def decode(document: object, **route: Any) -> dict[str, Any]:
    routes = (RouteSettings.model_validate({"filter": "site/#"} | route),)
    line = json.dumps({"id": 1, "topic": "site/logger/data", "payload": json.dumps(document)})
    [found] = decode_lines([line], routes, GatewaySettings(), received_us=NOW_US)
    return found


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ({"header": {"timestamp": T, "dev": "x"}, "payload": {"t": 21.5}}, {"header.dev": AT, "payload.t": AT}),
        ({"meta": {"time": AT}, "data": {"t": 21.5, "h": 4}}, {"data.t": AT, "data.h": AT}),
        ({"head": {"ts": T * 1000}, "body": [{"id": 1, "v": 2}]}, {"body[0].id": AT, "body[0].v": AT}),
        ({"Header": {"ts": T}, "log": [{"ts": T - 60, "v": 1}], "w": 2}, {"log.v": "2026-11-28T21:05:40Z", "w": AT}),
        ({"message": {"header": {"ts": T}, "body": {"t": 1}}}, {"message.body.t": AT}),
        ({"event": {"timestamp": AT}, "data": {"t": 1}}, {"data.t": AT}),
        ({"sys": {"unixtime": T, "uptime": 5}, "t": 1}, {"sys.uptime": AT, "t": AT}),
        ({"info": {"ts": T}, "time": T - 60, "v": 1}, {"v": "2026-11-28T21:05:40Z"}),
        ({"header": {"uptime": 12345}, "v": 1}, {"header.uptime": None, "v": None}),
        ({"gps": {"time": AT, "lat": 1.5}, "v": 1}, {"gps.lat": AT, "v": None}),
        ({"updated": T, "v": 1}, {"v": AT}),
        ({"last_update": AT, "v": 1}, {"v": AT}),
        ({"s": {"a": {"value": 1, "lastUpdated": AT}, "b": {"value": 2}}}, {"s.a.value": AT, "s.b.value": None}),
        ({"Zeitstempel": T, "v": 1}, {"v": AT}),
        ({"fecha": AT, "v": 1}, {"v": AT}),
        ({"g": {"dataPoints": [{"timeUnixNano": "1795900000000000000", "asDouble": 1.5}]}}, {"g.dataPoints.asDouble": AT}),
        ({"date": "2026-11-28", "sunset": "16:10", "v": 1}, {"date": None, "sunset": None, "v": None}),
        ({"date": "2026-11-28", "uptime": "12:34:56", "v": 1}, {"date": None, "uptime": None, "v": None}),
        ({"version": "1.2.30", "time_left": "00:12:01", "v": 1}, {"version": None, "time_left": None, "v": None}),
        ({"serials": [T, 1_712_345_678], "p": [1, 2]},
         {"serials[0]": None, "serials[1]": None, "p[0]": None, "p[1]": None}),
        ({"energy": [T, T + 100], "p": [1, 2]}, {"energy[0]": None, "energy[1]": None, "p[0]": None, "p[1]": None}),
        ({"pulse_count": [T, 5]}, {"pulse_count[0]": None, "pulse_count[1]": None}),
        ({"ts": T, "accel": [0.1, 0.2], "gyro": [0, 1]}, {"accel[0]": AT, "accel[1]": AT, "gyro[0]": AT, "gyro[1]": AT}),
        ({"temp": [T, 21.5]}, {"temp": AT}),
        ({"year": 2026, "v": 1}, {"year": None, "v": None}),
        ([{"bn": "x", "n": "t", "v": 1}, {"n": "h", "v": 2}], {"bn": None, "n": None, "v": None}),
    ],
)  # fmt: skip
def test_values_have_the_time_that_the_message_says(document: object, wanted: dict[str, str | None]) -> None:
    found = decode(document)
    assert (found["outcome"], found["rejected"]) == ("reading", [])
    assert {one["metric"]: one["time"] for one in found["readings"]} == wanted


@pytest.mark.parametrize(
    ("document", "reason", "path"),
    [
        ({"header": {"stamp": {"sec": T, "nanosec": 0}}, "temperature": 21.5}, "wrong_type", "$.header.stamp"),
        ({"header": {"time": "2026-11-28T20:00:00"}, "v": 1}, "ambiguous_time", "$.header.time"),
        ({"header": {"ts": T * 2}, "v": 1}, "ts_too_far_future", "$.header.ts"),
        ({"Datum": "28.11.2026", "Uhrzeit": "20:00:00", "v": 1}, "ambiguous_time", "$.Uhrzeit"),
        ({"measured_date": "2026-11-28", "measured_clock": "20:00:00", "v": 1}, "ambiguous_time", "$.measured_clock"),
        ({"Zeit": "28.11.2026 20:00:00", "v": 1}, "bad_timestamp", "$.Zeit"),
        ({"year": 2026, "month": 11, "day": 28, "hour": 20, "minute": 0, "v": 1}, "ambiguous_time", "$.year"),
        ({"Year": 2026, "doy": 332, "Hour": 20, "v": 1}, "ambiguous_time", "$.Year"),
        ({"ts": [2026, 11, 28, 21, 6, 40], "v": 1}, "ambiguous_time", "$.ts"),
        ({"message": {"header": {"ts": "2026-11-28T20:00:00"}, "body": {"v": 1}}}, "ambiguous_time", "$.message.header.ts"),
        ([{"bn": "x", "bt": T, "n": "t", "v": 1}, {"n": "h", "v": 2}], "ambiguous_time", "$[0]"),
        ([{"bn": "x", "n": "t", "v": 1}, {"n": "t", "t": -60, "v": 2}], "ambiguous_time", "$[0]"),
        ({"readings": [{"secs_ago": 60, "v": 1}, {"secs_ago": 0, "v": 2}]}, "missing_field", "$.readings"),
        ({"samples": [{"ago_s": 0, "v": 1}, {"ago_s": 60, "v": 2}]}, "missing_field", "$.samples"),
        ({"end_time": T, "interval_min": 15, "t": [1, 2, 3]}, "ambiguous_time", "$.t"),
        ({"last_ts": T, "step_s": 10, "v": [1, 2]}, "ambiguous_time", "$.v"),
    ],
)  # fmt: skip
def test_a_time_that_cannot_be_read_is_no_time_of_arrival(document: object, reason: str, path: str) -> None:
    found = decode(document)
    refused = [(found["reason"], found.get("path")), *((one["reason"], one["path"]) for one in found["rejected"])]
    assert (reason, path) in refused
    assert not [one for one in found["readings"] if one["metric"].rpartition(".")[2][:1] in "vt"]


def test_a_mapping_that_names_such_fields_is_followed() -> None:
    split = {"date": "2026-11-28", "clock": "20:00:00", "v": 1}
    time = {"path": "{.date}T{.clock}", "format": "local", "zone": "UTC"}
    [reading] = decode(split, mapping={"time": [time], "skip": ["date", "clock"]})["readings"]
    assert (reading["metric"], reading["time"]) == ("v", "2026-11-28T20:00:00Z")
    assert decode(split, mapping={"skip": ["clock"]})["outcome"] == "reading"
    assert decode({"header": {"ts": T}, "v": 1}, mapping={"skip": ["header"]})["readings"][0]["time"] is None
