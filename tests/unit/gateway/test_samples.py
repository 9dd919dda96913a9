"""Samples inside a message: each has its own time, or is refused; none gets the message's time or that of arrival."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.devtools.decode_file import decode_lines
from gateway.gateway_settings import GatewaySettings, RouteSettings

pytestmark = pytest.mark.promise("P6")

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
T = 1_795_900_000
ISO = "2026-11-28T10:00:0{}Z"
PLAIN: dict[str, Any] = {"filter": "site/#"}


def decode(document: object, **route: Any) -> dict[str, Any]:
    routes = (RouteSettings.model_validate(PLAIN | route),)
    line = json.dumps({"id": 1, "topic": "site/logger/data", "payload": json.dumps(document)})
    [found] = decode_lines([line], routes, GatewaySettings(), received_us=round(NOW.timestamp()) * 1_000_000)
    return found


def readings(document: object, **route: Any) -> list[tuple[str, Any, float | None]]:
    """(metric, value, epoch seconds or None where the receive time counts); nothing may be refused."""
    found = decode(document, **route)
    assert (found["outcome"], found["rejected"]) == ("reading", []), found
    return [
        (one["metric"], one["value"] if one["text"] is None else one["text"], second(one)) for one in found["readings"]
    ]


def second(reading: dict[str, Any]) -> float | None:
    return None if reading["time"] is None else datetime.fromisoformat(reading["time"]).timestamp()


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ({"ts": T, "samples": [{"t": 1, "ts": T}, {"t": 2, "ts": T + 1}]}, [("samples.t", 1, T), ("samples.t", 2, T + 1)]),
        ({"readings": [{"t": 1, "ts": T - 9}], "rssi": -70}, [("readings.t", 1, T - 9), ("rssi", -70, None)]),
        ({"a": {"b": {"c": [{"v": 1, "timestamp": T * 1000}]}}}, [("a.b.c.v", 1, T)]),
        ({"gps": {"lat": 1.5, "measuredAt": T}, "x": 1}, [("gps.lat", 1.5, T), ("x", 1, None)]),
        ({"temp": {"value": 21.5, "unit": "C", "ts": T}}, [("temp", 21.5, T)]),
        ([{"t": T, "v": 1}, {"t": T + 60, "v": 2}], [("v", 1, T), ("v", 2, T + 60)]),
        ({"datetime": T, "v": 2}, [("v", 2, T)]),
        ({"_timestamp": T, "actual": 65.3}, [("actual", 65.3, T)]),
        ({"updateTime": T, "v": 2}, [("v", 2, T)]),
        ({"readingDateTime": T, "v": 2}, [("v", 2, T)]),
        ({"s": [{"ts": T, "x": 0, "sub": [{"ts": T + 1, "v": 1}, {"ts": T + 2, "v": 2}]}]},
         [("s.x", 0, T), ("s.sub.v", 1, T + 1), ("s.sub.v", 2, T + 2)]),
        ({"l": [{"n": "a", "ts": T, "v": 1}, {"n": "b", "ts": T, "v": 2}]},
         [("l[0].n", "a", T), ("l[0].v", 1, T), ("l[1].n", "b", T), ("l[1].v", 2, T)]),
        ({"l": [{"ch": 1, "ts": T, "v": 1}]}, [("l[0].ch", 1, T), ("l[0].v", 1, T)]),
        ({"log": [[T, 1.5], [T + 60, 2.5]]}, [("log", 1.5, T), ("log", 2.5, T + 60)]),
        ({"datapoints": [[1.5, T], [2.5, T + 60]]}, [("datapoints", 1.5, T), ("datapoints", 2.5, T + 60)]),
        ({"log": [[T, 1.5, 7]]}, [("log[1]", 1.5, T), ("log[2]", 7, T)]),
        ({"log": [["time", "t", "h"], [T, 1.5, 3]]}, [("log.t", 1.5, T), ("log.h", 3, T)]),
        ([[T, 1.5], [T + 60, 2.5]], [("data", 1.5, T), ("data", 2.5, T + 60)]),
        ({"value": [T + 0.5, 21.5]}, [("value", 21.5, T + 0.5)]),
        ({"x": [T, ISO.format(1)], "v": [1, 2]}, [("v", 1, T), ("v", 2, 1_795_860_001)]),
        ({"log": {str(T): 1.5, str(T + 1): 2.5}, "x": 3}, [("log", 1.5, T), ("log", 2.5, T + 1), ("x", 3, None)]),
        ({str(T): {"t": 1}, str(T + 1): {"t": 2}}, [("t", 1, T), ("t", 2, T + 1)]),
        ({"ts": [T, T + 1], "t": [1, 2], "h": [3, None]}, [("t", 1, T), ("t", 2, T + 1), ("h", 3, T)]),
        ({"x": {"when": [T, T + 1], "d": {"t": [1, 2]}}}, [("x.d.t", 1, T), ("x.d.t", 2, T + 1)]),
        ({"ts": T, "offset_ms": [0, 500], "t": [1, 2]}, [("t", 1, T), ("t", 2, T + 0.5)]),
        ({"base": T, "dt_ms": [0, 500], "t": [1, 2]}, [("t", 1, T), ("t", 2, T + 0.5)]),
        ({"t0": T, "x": {"offset_s": [0, 5], "t": [1, 2]}}, [("x.t", 1, T), ("x.t", 2, T + 5)]),
        ({"ts": T - 7200, "log": [{"offset_h": 0, "t": 1}, {"offset_h": 1, "t": 2}]},
         [("log.t", 1, T - 7200), ("log.t", 2, T - 3600)]),
        ({"log": [{"start": T, "step_s": 5, "v": [1, 2]}]},
         [("log[0].v", 1, T), ("log[0].v", 2, T + 5), ("log[0].step_s", 5, None)]),
        ({"t0": T, "interval_s": 10, "values": [1, None, 3], "x": 7},
         [("values", 1, T), ("values", 3, T + 20), ("interval_s", 10, None), ("x", 7, None)]),
        ({"t0": T, "step_s": 5, "x": {"temp": [1, 2], "hum": [4, 5]}},
         [("step_s", 5, None), ("x.temp", 1, T), ("x.temp", 2, T + 5), ("x.hum", 4, T), ("x.hum", 5, T + 5)]),
        ({"start": T * 1000, "d": {"sample_rate_hz": 4, "a": [1, 2]}},
         [("d.a", 1, T), ("d.a", 2, T + 0.25), ("d.sample_rate_hz", 4, None)]),
        ({"base": T, "samples": [{"dt_s": 0, "v": 1}, {"dt_s": 10, "v": 2}]}, [("samples.v", 1, T), ("samples.v", 2, T + 10)]),
        ({"base": T, "samples": [{"dt_s": 10, "v": 1}]}, [("samples.v", 1, T + 10)]),
        ({"ts": T, "dt_ms": [500], "temp": [21]}, [("temp", 21, T + 0.5)]),
        ({"measurements": [{"ts": T, "series": {"$_time": [0, 1000], "temp": [45.2, 46]}}]},
         [("measurements.series.temp", 45.2, T), ("measurements.series.temp", 46, T + 1)]),
    ],
)  # fmt: skip
def test_a_sample_has_its_own_time(document: object, wanted: list[Any]) -> None:
    assert readings(document) == wanted


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ({"log": {ISO.format(1): 1.5, ISO.format(2): 2.5}}, [1.5, 2.5]),
        ({"time": [ISO.format(1), ISO.format(2)], "data": {"t": [1, 2]}}, [1, 2]),
        ({"x": [ISO.format(1), ISO.format(2)], "y": [1, 2]}, [1, 2]),
        ([[ISO.format(1), 5], [ISO.format(2), 6]], [5, 6]),
    ],
)
def test_written_times_are_found_as_numbers_are(document: object, wanted: list[float]) -> None:
    first = datetime.fromisoformat(ISO.format(1)).timestamp()
    assert [(value, at) for _metric, value, at in readings(document)] == list(
        zip(wanted, (first, first + 1), strict=True)
    )


@pytest.mark.parametrize(
    ("document", "reason", "path"),
    [
        ({"ts": T, "readings": [{"t": 1, "ts": T}, {"t": 2}]}, "missing_field", "$.readings[1]"),
        ([{"t": 1, "ts": T}, {"t": 2}], "missing_field", "$[1]"),
        ({"log": [{"t": 1, "ts": None}, {"t": 2, "ts": T}]}, "missing_field", "$.log[0]"),
        ({"log": [{"ts": T * 2, "v": 1}, {"ts": T, "v": 2}]}, "ts_too_far_future", "$.log[0].ts"),
        ({"ts": T, "t": [1, 2], "offsets": [0, 10]}, "ambiguous_time", "$.offsets"),
        ({"ts": T, "t": [1, 2], "time": [0, 10]}, "ambiguous_time", "$.time"),
        ({"t": [1, 2], "offset_ms": [0, 10]}, "missing_field", "$.offset_ms"),
        ({"ts": [T, T + 1], "t": [1, 2, 3]}, "ambiguous_time", "$.t"),
        ({"ts": [T, T + 1], "t": 5}, "missing_field", "$.ts"),
        ({"ts": T, "interval": 60, "values": [1, 2, 3]}, "ambiguous_time", "$.values"),
        (
            {"ts": T, "x": [{"from": T - 60, "to": T, "v": 1}, {"from": T, "to": T + 60, "v": 2}]},
            "ambiguous_time",
            "$.x[0].from",
        ),
        ({"x": [{"start": T * 1000, "v": 1}]}, "ambiguous_time", "$.x[0].start"),
        ({"date": "28/11/2026 10:00:00", "v": 1}, "bad_timestamp", "$.date"),
        ({"datetime": "28.11.2026 10:00", "log": [{"v": 1}]}, "bad_timestamp", "$.datetime"),
        ({"log": [{"created_at": ISO.format(1), "v": 1}]}, "ambiguous_time", "$.log[0].created_at"),
        ([{"last_seen": ISO.format(1), "v": 1}], "ambiguous_time", "$[0].last_seen"),
        ({"ts": T, "log": [{"time": 0, "v": 1}, {"time": 10, "v": 2}]}, "ambiguous_time", "$.log[0].time"),
        ({"ts": T, "log": [{"offset_s": 5, "v": 1}]}, "ambiguous_time", "$.log[0].offset_s"),
        ({"log": [{"ts": "2026-11-28 10:00:00", "v": 1}]}, "ambiguous_time", "$.log[0].ts"),
        ({"log": [{"ts": "28.11.2026 10:00", "v": 1}]}, "bad_timestamp", "$.log[0].ts"),
        ({"log": [["28.11.2026 10:00", 1]]}, "ambiguous_time", "$.log"),
        ({"history": {"2026-11-28": 1, "2026-11-27": 2}}, "ambiguous_time", "$.history"),
        ({"hours": {"06:00": 1, "07:00": 2}}, "ambiguous_time", "$.hours"),
        ({"days": {"2026-11-28": {"06:00": 1}}}, "ambiguous_time", '$.days["2026-11-28"]'),
        ({"log": [{"time": "06:30", "v": 1}]}, "bad_timestamp", "$.log[0].time"),
        ({"base": T, "dt": [0, 10, 20], "temp": [1, 2, 3]}, "ambiguous_time", "$.dt"),
        ({"base": T, "dt_s": [0, 10, 20], "temp": [1, 2, 3, 4]}, "ambiguous_time", "$.temp"),
        ({"base": T, "dt": [0, 10], "temp": [1, 2, 3]}, "ambiguous_time", "$.temp"),
        ({"ts": T, "dt_ms": [0, 10, 20], "temp": [1, 2, 3, 4]}, "ambiguous_time", "$.temp"),
        ({"base": T, "x": {"dt_s": [0, 10], "temp": [1, 2, 3]}}, "ambiguous_time", "$.x.temp"),
        ({"base": T, "samples": [{"dt": 10, "v": 1}]}, "ambiguous_time", "$.samples"),
        ({"base": T, "dt_s": [10, 10, 10], "temp": [1, 2, 3]}, "ambiguous_time", "$.dt_s"),
        ({"base": T, "dt": [0, 10, 10], "temp": [1, 2, 3]}, "ambiguous_time", "$.dt"),
        ({"ts": T, "dt_s": [10, 12, 9], "temp": [1, 2, 3]}, "ambiguous_time", "$.dt_s"),
        ({"base": T, "delta_s": [10, 10], "temp": [1, 2]}, "ambiguous_time", "$.delta_s"),
        ({"base": T, "samples": [{"dt_s": 10, "v": 1}, {"dt_s": 10, "v": 2}]}, "ambiguous_time", "$.samples"),
        ({"base": T, "samples": [{"delta_s": 5, "v": 1}, {"delta_s": 5, "v": 2}]}, "ambiguous_time", "$.samples"),
        ({"x": T, "dt": [5, 15], "temp": [1, 2]}, "missing_field", "$.dt"),
        ({"x": T, "o": [0, 10, 20], "temp": [1, 2, 3]}, "missing_field", "$.o"),
        ({"x": T, "o": [-20, -10, 0], "temp": [1, 2, 3]}, "missing_field", "$.o"),
        ({"ts": T, "o": [0, 10, 20], "temp": [1, 2, 3]}, "ambiguous_time", "$.o"),
        ({"ts": T, "d": {"dt": [0, 7], "temp": [1, 2]}}, "ambiguous_time", "$.d.dt"),
        ({"dt": [0, 10, 20], "temp": [1, 2, 3]}, "missing_field", "$.dt"),
        ({"t": [0, 10, 20], "temp": [1, 2, 3]}, "missing_field", "$.t"),
        ({"ts": T, "age": [20, 10, 0], "temp": [1, 2, 3]}, "ambiguous_time", "$.age"),
        ({"t0": T, "interval": 10, "values": [1, 2, 3]}, "ambiguous_time", "$.values"),
        ({"start": T, "step": 10, "temp": [1, 2, 3]}, "ambiguous_time", "$.temp"),
        ({"start": ISO.format(1), "end": ISO.format(9), "values": [1, 2]}, "ambiguous_time", "$.values"),
        ({"start": T, "every": 10, "samples": [{"a": 1}, {"a": 2}]}, "ambiguous_time", "$.samples"),
        ({"start": T, "every": 10, "rows": [[1, 5], [1, 2]]}, "ambiguous_time", "$.rows"),
        ({"m": [{"start": T, "step": 10, "d": {"t": [1, 2]}}]}, "ambiguous_time", "$.m[0].d.t"),
        ({"base": T, "samples": [{"dt": 0, "v": 1}, {"dt": 10, "v": 2}]}, "ambiguous_time", "$.samples"),
        ({"ts": T, "samples": [{"o": 0, "v": 1}, {"o": 10, "v": 2}]}, "ambiguous_time", "$.samples"),
        ({"ts": T, "log": [[0, 21.5], [10, 21.6]]}, "ambiguous_time", "$.log"),
        ({"base": T, "rows": [[0, 1, 2], [9, 1, 2]]}, "ambiguous_time", "$.rows"),
        ({"base": T, "values": {"0": 1, "10": 2}}, "ambiguous_time", "$.values"),
        ({"sample_rate": 100, "values": [1, 2, 3]}, "ambiguous_time", "$.values"),
        ({"ts": T, "period": 60, "temp": [1, 2, 3, 4]}, "ambiguous_time", "$.temp"),
        ({"gps": {"time": "12:30:05", "v": 3}}, "bad_timestamp", "$.gps.time"),
        ({"log": [[T, T + 5, 1], [T + 60, T + 65, 2]]}, "ambiguous_time", "$.log"),
    ],
)
def test_a_sample_whose_time_is_unsure_is_refused(document: object, reason: str, path: str) -> None:
    found = decode(document)
    faults = [found] if found["outcome"] == "dead_letter" else found["rejected"]
    assert (reason, path) in [(fault["reason"], fault["path"]) for fault in faults], found
    assert all(fault["wanted"] for fault in faults)
    refused = {1.0, 2.0} if found["outcome"] == "dead_letter" else set()
    assert not refused & {one["value"] for one in found["readings"]}


@pytest.mark.parametrize(
    "document",
    [
        {"ts": T, "channels": [1, 2, 3]},
        {"ts": T, "counters": [1_234_567_890, 5]},
        {"ts": T, "washer": {"time": 45, "temp": 60}},
        {"ts": T, "t": 21},
        {"ts": T, "wifi": {"bssid": "aa", "uptime": 5}, "list": [{"id": 1, "v": 2}]},
        {"ts": T, "device": {"boot_time": ISO.format(1), "v": 1}},
        {"ts": T, "meters": {"1161234567": {"v": 1}, "total": 2}},
        {"ts": T, "matrix": [[1, 2], [3, 4]]},
        {"ts": T, "matrix": [[0, 1, 2], [3, 4, 5]]},
        {"ts": T, "t": [20, 21, 22], "h": [40, 41, 42]},
        {"ts": T, "depth_cm": [0, 10, 20], "temp": [1, 2, 3]},
        {"ts": T, "channel": [0, 1, 2], "temp": [1, 2, 3]},
        {"ts": T, "pv": [0, 120, 340], "load": [1, 2, 3]},
        {"ts": T, "temperature": [21, 22, 23], "humidity": [0, 1, 2]},
        {"ts": T, "cells": [{"id": 0, "v": 3.1}, {"id": 1, "v": 3.2}]},
        {"ts": T, "interval": 60, "voltage": [230, 231, 229]},
        {"ts": T, "frequency": 50, "voltage": [230, 231, 229]},
        {"ts": T, "time": "06:30", "v": 1},
        {"ts": T, "dt": [5.1, 4.9, 5.3], "flow": [1, 2, 3]},
        {"ts": T, "circuits": [{"dt": 5, "flow": 1}]},
        {"ts": T, "limits": [{"offset_min": -5, "offset_max": 5}]},
        {"ts": T, "circuits": [{"dt": 5, "flow": 1}, {"dt": 5, "flow": 2}]},
        {"ts": T, "days": {"2026-11-28": 1, "2026-11-27": 2}},
        {"ts": T, "timers": [{"time": "06:30", "on": 1}, {"time": "22:00:00", "on": 0}]},
        {"ts": T, "plan": {"06:30": 19, "22:00": 17}},
        {"ts": T, "start": T - 60, "phases": [16, 16, 16]},
    ],
    ids=str,
)
def test_what_holds_no_samples_keeps_the_time_of_its_message(document: object) -> None:
    assert {at for _metric, _value, at in readings(document)} == {T}


@pytest.mark.parametrize(
    "samples", [[{"dt": 0, "v": 1}, {"dt": 9, "v": 2}, {"dt": 12, "v": 3}], [[0, 1], [9, 2], [12, 3]]]
)
def test_offsets_that_are_refused_are_one_letter(samples: object) -> None:
    found = decode({"firstSample": T, "x": samples, "rssi": -70})
    assert [(one["path"], one["reason"]) for one in found["rejected"]] == [("$.x", "ambiguous_time")]
    assert [one["metric"] for one in found["readings"]] == ["rssi"]


@pytest.mark.parametrize(
    "document",
    [
        {"on_time": "06:30", "t": 1},
        {"time": "06:30", "action": "on", "level": 5},
        {"schedule": {"time": "06:30", "sp": 19}, "t": 1},
        {"heater": {"time": "06:30", "sp": 19}, "t": 1},
        {"alarm": [{"at": "06:30", "enabled": True}], "t": 1},
        {"days": {"2026-11-28": 1.5}, "t": 1},
        {"2026-11-28": 1, "2026-11-27": 2},
        {"interval": 60, "values": [1, 2], "t": 4},
        {"x": [0, 10, 20], "y": [1, 2, 3]},
    ],
    ids=str,
)
def test_what_would_not_be_false_is_kept(document: object) -> None:
    assert all(at is None for _metric, _value, at in readings(document))


@pytest.mark.parametrize(
    ("mapping", "document", "wanted"),
    [
        ({"units": {"t": "°C"}}, {"log": [{"ts": T, "t": 1}]}, [("log.t", 1, T)]),
        ({"values": "data"}, {"data": {"ts": T, "t": 1}}, [("t", 1, T)]),
        ({"values": "data"}, {"ts": T, "data": {"t": 1}}, [("t", 1, T)]),
        ({"items": "log[]"}, {"log": [{"ts": T, "t": 1}, {"ts": T + 1, "t": 2}]}, [("t", 1, T), ("t", 2, T + 1)]),
        ({"items": "log[]"}, {"ts": T, "log": [{"t": 1}]}, [("t", 1, T)]),
        ({"time": ["at"]}, {"at": T, "log": [[T - 5, 1]]}, [("log", 1, T - 5)]),
        ({"rename": {"log[0].t": "first"}}, {"log": [{"ts": T, "t": 1}]}, [("first", 1, T)]),
        ({"time": ["now"], "skip": ["log[0].ts"]}, {"now": T, "log": [{"ts": T - 9, "t": 1}]}, [("log[0].t", 1, T)]),
        ({"time": ["gps.ts"]}, {"gps": {"ts": T, "lat": 1}, "v": 2}, [("gps.lat", 1, T), ("v", 2, T)]),
    ],
)
def test_a_mapping_that_says_nothing_of_such_times_reads_them(
    mapping: dict[str, Any], document: object, wanted: Any
) -> None:
    assert readings(document, mapping=mapping) == wanted


def test_samples_of_one_metric_are_told_apart() -> None:
    """Also within several items of a message: (metric, index) is what makes a repeated message recognisable."""
    batch = [{"ts": T, "log": [{"ts": T + n, "v": n} for n in range(3)]} for _ in range(2)]
    found = decode(batch)
    assert len(found["readings"]) == 6
    assert all("metric_twice" not in one["flags"] for one in found["readings"])


_SCALARS = st.floats(1, 1000).map(lambda value: round(value, 3))


@st.composite
def documents(draw: st.DrawFn) -> tuple[Any, dict[float, int]]:
    """A document of samples in some shape, somewhere in another one, and each value's time."""
    count = draw(st.integers(1, 4))
    values = draw(st.lists(_SCALARS, min_size=count, max_size=count, unique=True))
    times = [T + 60 * place + draw(st.integers(0, 59)) for place in range(count)]
    write = draw(st.sampled_from([int, lambda at: at * 1000, lambda at: (datetime.fromtimestamp(at, UTC)).isoformat()]))
    key = draw(st.sampled_from(["ts", "time", "timestamp", "t", "measured_at", "observedAt", "dt", "Timestamp"]))
    pairs = [(write(at), value) for at, value in zip(times, values, strict=True)]
    shape = draw(st.integers(0, 3))
    body: Any = [
        [{key: at, "v": value, "w": {"x": value + 2000}} for at, value in pairs],
        [[at, value] for at, value in pairs],
        {str(at): {"v": value} for at, value in pairs},
        {key: [at for at, _ in pairs], "v": [value for _, value in pairs]},
    ][shape]
    known = dict(zip(values, times, strict=True))
    if shape == 0:
        known |= {value + 2000: at for value, at in zip(values, times, strict=True)}
    for name in draw(st.lists(st.sampled_from(["data", "log", "payload", "x"]), max_size=3)):
        body = {name: body, **draw(st.sampled_from([{}, {"rssi": -70}, {"ts": T - 7200}]))}
    return body, known


@given(documents())
@settings(max_examples=300)
def test_a_value_is_stored_at_its_own_time_or_not_at_all(given_: tuple[Any, dict[float, int]]) -> None:
    document, known = given_
    found = decode(document)
    for one in found["readings"]:
        if one["value"] != -70:
            assert second(one) == known[one["value"]], (document, one)
    stored = {one["value"] for one in found["readings"]}
    assert stored >= known.keys() or found["outcome"] == "dead_letter" or found["rejected"]


@st.composite
def stepped(draw: st.DrawFn) -> tuple[Any, dict[float, float]]:
    """Samples that a first time and offsets or a step say, and each value's time; without a unit they have none."""
    count = draw(st.integers(3, 6))
    values = draw(st.lists(_SCALARS, min_size=count, max_size=count, unique=True))
    step = draw(st.integers(2, 90))
    base = draw(st.sampled_from(["base", "t0", "start", "start_time", "baseTime", "begin", "first_ts"]))
    unit, per_s = draw(st.sampled_from([("_s", 1), ("_ms", 1000), ("", 1)]))
    name = draw(st.sampled_from(["offset", "dt", "rel", "t"])) + unit
    offsets = [place * step for place in range(count)]
    body: Any = [
        {name: offsets, "v": values},
        [{name: offset, "v": value} for offset, value in zip(offsets, values, strict=True)],
        {f"interval{unit}": step, "v": values},
    ][draw(st.integers(0, 2))]
    known = {value: T + offset / per_s for value, offset in zip(values, offsets, strict=True)} if unit else {}
    if type(body) is list or draw(st.booleans()):
        body = {draw(st.sampled_from(["data", "x", "log"])): body}
    return {base: T, **body, "rssi": -70}, known


@given(stepped())
@settings(max_examples=200)
def test_a_value_behind_a_first_time_is_stored_at_its_own_time_or_not_at_all(
    given_: tuple[Any, dict[float, float]],
) -> None:
    document, known = given_
    found = decode(document)
    kept = [
        one
        for one in found["readings"]
        if one["value"] != -70 and not one["metric"].endswith(("interval", "interval_s", "interval_ms"))
    ]
    for one in kept:
        assert second(one) == pytest.approx(known[one["value"]], abs=1e-6), (document, one)
    assert {one["value"] for one in kept} == known.keys(), (document, found)
    assert any(one["value"] == -70 for one in found["readings"])


@pytest.mark.parametrize("large", [10**300, 10**400, -(10**400), 1e308], ids=["integer", "huge", "negative", "double"])
@pytest.mark.parametrize("base", ["ts", "base", "t0", "x"])
def test_numbers_that_no_double_holds_are_no_fault_of_ours(base: str, large: float) -> None:
    for series in (
        {"offset_ms": [0, large, 2 * large], "v": [1, 2, 3]},
        {"offset": [0, 1, large], "v": [1, 2, 3]},
        {"at": [1, large, 2 * large], "v": [1, 2, 3]},
        {"log": [[0, 1], [large, 2], [2 * large, 3]]},
        {"log": [[1.5, 1], [2.5, 2], [large, 3]]},
        {"log": [[], [1.5, 1], [2.5, 2], [large, 3]]},
        {"log": [{"offset": 1.5, "v": 1}, {"offset": 2.5, "v": 2}, {"offset": large, "v": 3}]},
        {"interval_ms": large, "v": [1, 2, 3]},
        {"sample_rate": large, "v": [1, 2, 3]},
    ):
        found = decode({base: T, **series})
        reasons = {found["reason"], *(one["reason"] for one in found["rejected"])}
        assert "internal_error" not in reasons, (series, found)


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([T, ISO.format(1), "12:30", "x"])
_KEYS = st.sampled_from(["ts", "time", "t", "offset_ms", "interval", "$_time", str(T), "v"])


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4)


_CELLS = st.sampled_from(
    [T, T + 60, T * 1000, str(T), f" {T}", ISO.format(1), "28.11.2026 10:00", 1, -1.5, 10**400, True, None]
)
_COLUMNS = st.integers(1, 3).flatmap(
    lambda size: st.dictionaries(_KEYS, st.lists(_CELLS, min_size=size, max_size=size))
)


@given(st.recursive(_LEAVES, _nested, max_leaves=20) | _COLUMNS | st.lists(_COLUMNS, max_size=3))
@settings(max_examples=500)
def test_no_document_breaks_the_search_for_times(document: object) -> None:
    found = decode(document)
    assert found["reason"] != "internal_error"
    now = NOW + timedelta(seconds=GatewaySettings().max_future_seconds)
    assert all(at is None or at <= now.timestamp() for at in map(second, found["readings"]))
