"""Drafts of routes: what a field is taken for, and which level of the topic names the device."""

import json
from typing import Any

import pytest

from gateway.decoders.time_names import USUAL_NAMES
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.suggest.key_units import unit_of_key
from gateway.suggest.message_families import SampleMessage, read_samples
from gateway.suggest.propose import Proposal, propose_routes
from gateway.suggest.time_fields import time_format

LIMITS = GatewaySettings(presets=())
AT_US = 1_795_900_000_000_000


def propose(
    *messages: tuple[str, Any], routes: tuple[RouteSettings, ...] = (), zone: str | None = None
) -> list[Proposal]:
    samples = [
        SampleMessage(topic, (payload if isinstance(payload, str) else json.dumps(payload)).encode(), AT_US)
        for topic, payload in messages
    ]
    return propose_routes(samples, routes, LIMITS, zone=zone)


def readings(proposal: Proposal) -> list[tuple[str, str, Any, str | None]]:
    return [
        (one["device"], one["metric"], one["value"] if one["text"] is None else one["text"], one["unit"])
        for message in proposal.decoded
        for one in message["readings"]
    ]


def test_levels_that_differ_are_the_device_and_words_that_do_not_stay() -> None:
    [one] = propose(("farm/north/barn/climate", {"t": 1}), ("farm/south/barn/climate", {"t": 2}))
    assert (one.draft.route["filter"], one.draft.route["device"]) == ("farm/{device}/barn/climate", "{device}")
    [one] = propose(("farm/north/barn/climate", {"t": 1}), ("farm/south/shed/climate", {"t": 2}))
    assert [reading[0] for reading in readings(one)] == ["north/barn", "south/shed"]


def test_an_id_of_the_payload_that_stands_in_the_topic_is_that_level() -> None:
    [one] = propose(("lab/ab12cd34/readings", {"deviceId": "ab12cd34", "t": 1.5}))
    assert one.draft.route["filter"] == "lab/{device}/readings"
    assert one.draft.mapping["same_device"] == ["{.deviceId}"]
    assert readings(one) == [("ab12cd34", "t", 1.5, None)]


def test_a_counter_is_an_identity_with_a_time_only() -> None:
    [timed] = propose(("x/dev-1", {"seq": 4, "ts": 1_795_890_000, "t": 1.5}))
    [untimed] = propose(("x/dev-1", {"seq": 4, "t": 1.5}))
    assert timed.draft.mapping["message_id"] == ["{.seq}:{.ts}"]
    assert "message_id" not in untimed.draft.mapping


def test_a_local_time_needs_a_zone_and_is_never_guessed() -> None:
    message = ("x/dev-1", {"time": "2026-04-04T12:34:56", "t": 1.5})
    [without], [with_zone] = propose(message), propose(message, zone="Europe/Berlin")
    assert without.draft.mapping["time"] == []
    assert any("--zone" in note for note in without.draft.notes)
    assert readings(without) == [("dev-1", "t", 1.5, None)]
    [reading] = with_zone.decoded[0]["readings"]
    assert reading["time"] == "2026-04-04T10:34:56Z"


def test_a_list_of_named_values_with_times_of_their_own() -> None:
    [one] = propose(
        ("line/plc-1", {"sent": 1_795_890_009, "tags": [
            {"name": "speed", "v": 3, "q": 192, "ts": 1_795_890_000_000},
            {"name": "load", "v": "4.5", "q": 192, "ts": 1_795_890_001_000},
        ]}),
    )  # fmt: skip
    assert readings(one) == [("plc-1", "speed", 3.0, None), ("plc-1", "load", 4.5, None)]
    assert [reading["time"] for reading in one.decoded[0]["readings"]] == [
        "2026-11-28T18:20:00Z",
        "2026-11-28T18:20:01Z",
    ]


def test_a_sentinel_that_was_seen_is_refused_from_then_on() -> None:
    [one] = propose(("x/dev-1", {"probe_c": -127.0, "air_c": 20.5}))
    assert one.draft.mapping["errors"] == {"probe_c": [-127.0]}
    assert readings(one) == [("dev-1", "air_c", 20.5, None)] or readings(one) == [("dev-1", "air_c", 20.5, "°C")]


def test_messages_of_several_formats_get_a_draft_each() -> None:
    found = propose(("a/dev-1/state", {"t": 1}), ("b/dev-2/temp", "21.5"), ("a/dev-2/state", {"t": 2}), ("c/x", ""))
    assert [one.draft.route["filter"] for one in found] == ["a/{device}/state", "b/{device}/{metric}"]


def test_a_route_that_takes_the_topic_now_is_named() -> None:
    [one] = propose(("site/dev-1", {"t": 1}), routes=(RouteSettings(filter="site/#"),))
    assert one.now == "[[routes]] number 1 (site/#)"
    assert any("comes before it" in note for note in one.draft.notes)


@pytest.mark.parametrize(
    ("key", "unit"),
    [("temp_f", "°F"), ("outTemp_C", "°C"), ("powerW", "W"), ("batteryVoltageMV", "mV"), ("wind_km_h", "km/h"),
     ("pm25_ug_m3", "µg/m³"), ("wind_m_s", "m/s"), ("phase_a", None), ("zone_c", None), ("cpu_pct", "%"),
     ("temperature", None), ("rain_mm", "mm"), ("PV", None), ("KPA", None), ("delay_ms", "ms")],
)  # fmt: skip
def test_units_come_from_endings_that_are_sure(key: str, unit: str | None) -> None:
    assert unit_of_key(key) == unit


@pytest.mark.parametrize(
    ("value", "form"),
    [(1_795_890_000, "s"), (1_795_890_000_123, "ms"), ("1795890000.0", "s"), (1_795_890_000_000_000_000, "ns"), (True, None),
     ("2026-01-13T16:00:42+0100", "rfc3339"), ("2026-01-13 16:00:42", "local"), (21.5, None), ("on", None), (None, None)],
)  # fmt: skip
def test_formats_of_times(value: Any, form: str | None) -> None:
    assert time_format(value) == form


def test_lines_of_a_file() -> None:
    found = read_samples(["a/b 21.5 C\r\n", "\n", '{"topic": "x", "payload_base64": "AAE="}\n', 'a {"v": 1}'])
    assert found == [SampleMessage("a/b", b"21.5 C"), SampleMessage("x", b"\x00\x01"), SampleMessage("a", b'{"v": 1}')]


GOOD_AND_BAD = [{"n": "a", "v": 1.5, "u": "Cel", "q": "good"}, {"n": "b", "v": 2.5, "u": "V", "q": "bad"}]


def test_unit_and_quality_next_to_a_value_are_used() -> None:
    [one] = propose(("gw/box-17/values", {"tags": GOOD_AND_BAD}))
    assert readings(one) == [("box-17", "a", 1.5, "°C")]
    assert one.draft.mapping["quality"] == {"path": "q", "good": ["good"]}
    [refused] = one.decoded[0]["rejected"]
    assert refused["path"] == "$.tags[1]"


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ({"q": 192, "ai1": 4.5, "ai2": 5.5}, {"ai1", "ai2"}),
        ({"values": {"a": 1.5, "b": 2.5}, "errors": {"c": 2014}}, {"a", "b"}),
        ({"device.type.id": 508, "channelId": 77, "unit_sn": 12, "t": 1.5, "humid": 40}, {"t", "humid"}),
        ({"InvSerial": 213, "InvName": "north", "sensorType": "dht", "t": 1.5}, {"t"}),
        ({"P": 1.5, "Q": 0, "PO": 0}, {"P", "Q", "PO"}),
    ],
)
def test_ids_codes_and_kinds_are_no_readings(document: dict[str, Any], names: set[str]) -> None:
    [one] = propose(("site/dev-1/state", document))
    assert {reading[1] for reading in readings(one)} == names


def test_items_of_the_same_names_are_told_apart_by_a_text_of_theirs() -> None:
    items = [{"type": "a", "w": 1.5, "ts": 1_795_890_000}, {"type": "b", "w": 2.5, "ts": 1_795_890_005}]
    [one] = propose(("site/dev-1/state", {"production": items}))
    assert readings(one) == [("dev-1", "a.w", 1.5, None), ("dev-1", "b.w", 2.5, None)]


def test_a_level_that_is_a_part_of_the_values_name_is_no_device() -> None:
    [one] = propose(("site/line/boiler/temp", {"tagName": "boiler-temp", "value": 1.5, "timestamp": 1_795_890_000}))
    [(device, _metric, value, _unit)] = readings(one)
    assert (device, value) == ("boiler", 1.5)


def test_a_number_of_another_kind_is_no_time_of_the_year_2059() -> None:
    [one] = propose(("site/dev-1/state", {"tme": "2811261920", "amp": 10}))
    assert one.draft.mapping["time"] == []


def test_a_level_that_says_another_name_does_not_name_the_value() -> None:
    """Else all registers of one router would be one metric."""
    [one] = propose(("router/1110402234/modbus", {"name": "temp", "address": "3001", "data": "[21.5]"}))
    assert readings(one) == [("1110402234", "temp", 21.5, None)]


def test_a_name_with_utc_says_the_zone() -> None:
    [one] = propose(("ecowitt/AB12CD34EF56", "PASSKEY=AB12CD34EF56&dateutc=2026-11-28+18:20:00&tempinf=70.5"))
    assert readings(one) == [("AB12CD34EF56", "tempinf", 70.5, "°F")]
    assert one.decoded[0]["readings"][0]["time"] == "2026-11-28T18:20:00Z"


SHIPPED = GatewaySettings()
TASMOTA = (
    '{"Time":"2026-11-28T19:20:00","BME280":{"Temperature":21.7,"'
    'Humidity":66.6,"Pressure":988.6},"PressureUnit":"hPa","TempUnit":"C"}'
)
CHIRPSTACK = {
    "deduplicationId": "3ac7e3c4-4401-4b8d-9386-a5c902f9202d", "time": "2026-11-28T18:20:00Z", "fPort": 1, "fCnt": 7,
    "deviceInfo": {"deviceName": "soil", "devEui": "0101010101010101", "applicationName": "farm"}, "object": {"moisture": 31.5},
}  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "payload", "reader"),
    [
        ("plug/kitchen/telemetry", TASMOTA, ("mapping", "tasmota")),
        ("lora/farm/uplink", json.dumps(CHIRPSTACK), ("mapping", "chirpstack")),
        ("own/pump-1/state", '{"ts":1795890000000,"values":{"t":{"value":21.5,"unit":"°C"}}}', ("decoder", "native")),
        ("own/pump-1/pack", '[{"bn":"urn:dev:ow:10e2073a01080063","n":"t","u":"Cel","v":23.1}]', ("decoder", "senml")),
        ("own/metrics", "cpu,host=h1 usage_idle=90.5 1795890000000000000", ("mapping", "influx")),
    ],
)
def test_a_shipped_format_on_another_topic_is_named(topic: str, payload: str, reader: tuple[str, str]) -> None:
    [one] = propose_routes([SampleMessage(topic, payload.encode(), AT_US)], (), SHIPPED, zone="Europe/Berlin")
    assert one.draft.route.get(reader[0]) == reader[1]
    assert one.works
    assert any("shipped" in note for note in one.draft.notes)


def test_a_wrapper_called_like_the_topic_and_units_that_several_values_share() -> None:
    energy = {"import": {"day": 5.4, "week": 12.1, "units": "kWh"}, "export": {"day": 0, "units": "kWh"}}
    [one] = propose(
        (
            "glow/4417A3/meter",
            {"meter": {"timestamp": "2026-11-28T18:20:00Z", "energy": energy, "mpan": "1200023305967"}},
        )
    )
    assert readings(one) == [
        ("4417A3", "energy.import.day", 5.4, "kWh"),
        ("4417A3", "energy.import.week", 12.1, "kWh"),
        ("4417A3", "energy.export.day", 0.0, "kWh"),
    ]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("24/01/2026 07:28:50", "%d/%m/%Y %H:%M:%S"),
        ("01/24/2026 07:28 AM", "%m/%d/%Y %I:%M %p"),
        ("24.01.2026 07:28", "%d.%m.%Y %H:%M"),
        ("2026-Jan-24 07:28:50.125", "%Y-%b-%d %H:%M:%S.%f"),
        ("Sat, 24 Jan 2026 07:28:50 GMT", "rfc1123"),
    ],
)
def test_a_time_that_is_written_out_gets_its_format(text: str, form: str) -> None:
    [one] = propose(("fleet/position", {"imei": 350544500812584, "speed": 16.5, "GPSDate": text}), zone="UTC")
    assert one.draft.mapping["time"] == [{"path": "GPSDate", "format": form}]
    assert str(one.decoded[0]["readings"][0]["time"]).startswith("2026-01-24T07:28")


def test_every_name_that_decoders_read_as_a_time_is_one_in_a_draft() -> None:
    for name in USUAL_NAMES:
        [one] = propose(("x/dev-1/state", {name: 1_795_890_000, "temp": 21.5}))
        assert one.draft.mapping["time"] == [{"path": name, "format": "s"}], name
        assert [reading[1] for reading in readings(one)] == ["temp"], name


def test_a_time_that_may_be_two_days_is_left_to_a_person() -> None:
    message = ("fleet/position", {"imei": 350544500812584, "speed": 16.5, "GPSDate": "03/01/2026 07:28:50"})
    [one] = propose(message, zone="UTC")
    assert one.draft.mapping["time"] == []
    assert any("GPSDate (03/01/2026 07:28:50) looks like a time" in note for note in one.draft.notes)
    # A second message settles which of the two is the day.
    [both] = propose(
        message, ("fleet/position", {"imei": 350544500812584, "speed": 1, "GPSDate": "13/01/2026 07:28:50"}), zone="UTC"
    )
    assert both.draft.mapping["time"] == [{"path": "GPSDate", "format": "%d/%m/%Y %H:%M:%S"}]


def test_a_quality_that_says_good_is_asked_of_each_value_from_then_on() -> None:
    tags = [
        {"id": "press", "v": 1, "q": True, "t": 1_795_890_000_000},
        {"id": "oven", "v": 2, "q": True, "t": 1_795_890_000_000},
    ]
    [one] = propose(("gw", {"values": tags}))
    assert one.draft.mapping["quality"] == {"path": "q", "good": ["true"]}
    assert [reading[1] for reading in readings(one)] == ["press", "oven"]
    [odd] = propose(("gw", {"values": [{"id": "press", "v": 1, "q": 3, "t": 1_795_890_000_000}]}))
    assert "quality" not in odd.draft.mapping
    assert any("q is not used" in note for note in odd.draft.notes)


def test_objects_that_are_one_reading_each_with_units_and_times_of_their_own() -> None:
    body = {"PAC": {"Unit": "W", "Value": 1234}, "UAC": {"Unit": "V", "Value": 231.4}}
    [one] = propose(("sun/inv-1", {"Body": {"Data": body}, "Head": {"Code": 0, "Timestamp": "2026-11-28T18:20:00Z"}}))
    assert readings(one) == [("inv-1", "PAC", 1234.0, "W"), ("inv-1", "UAC", 231.4, "V")]
    assert {reading["time"] for reading in one.decoded[0]["readings"]} == {"2026-11-28T18:20:00Z"}
    values = {"t": {"value": 10.5, "timestamp": 1_795_890_000_000}, "p": {"value": 7, "timestamp": 1_795_890_001_000}}
    [own] = propose(("/v1.6/devices/truck-7", values))
    assert [reading["time"] for reading in own.decoded[0]["readings"]] == [
        "2026-11-28T18:20:00Z",
        "2026-11-28T18:20:01Z",
    ]
    assert own.draft.mapping["time"] == []


def test_a_message_that_resembles_a_shipped_format_in_one_key_is_none_of_it() -> None:
    payload = json.dumps(
        {"serialno": "84fce612f5b8", "rco2": 447, "atmp": 25.87, "firmware": "3.1.3", "model": "I-9PSL"}
    )
    [one] = propose_routes([SampleMessage("airgradient/readings/84fce612f5b8", payload.encode(), AT_US)], (), SHIPPED)
    assert readings(one) == [("84fce612f5b8", "rco2", 447.0, None), ("84fce612f5b8", "atmp", 25.87, None)]
