"""Numbers that no sensor measured: the table, and what becomes of them in every format and by every way."""

import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.delivery.block import Block
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.plausible.quantity import find_quantity
from gateway.plausible.table import CALM_HIGH, CALM_LOW, load_table
from gateway.policy import ReadingPolicy
from gateway.profiles.explain import describe_profile
from gateway.profiles.policy import ProfilePolicy, make_policy
from gateway.profiles.profile_folder import BadProfile, parse_profile
from gateway.routes import compile_routes
from tests.support.outcome import LIMITS, NOW_US, decide, letters_of, native, record_of, stored

TABLE = load_table()
PRESETS = compile_routes((RouteSettings(filter="gen/#"),), LIMITS)
REFUSED, SENTINEL, IMPLAUSIBLE = "refused", "sentinel", "implausible"


def verdict(outcome: Outcome, metric: str) -> str | None:
    """What became of one metric: refused, its flag, or None where it is stored as sent."""
    letters = letters_of(outcome)
    if any(metric in (letter.path or "") for letter in letters) or not outcome.accepted:
        assert all(letter.reason in ("bad_number", "out_of_range") for letter in letters)
        return REFUSED
    [reading] = [r for r in record_of(outcome).readings if r.metric.endswith(metric)]
    return (reading.flags or [None])[0]


def decide_by_preset(topic: str, payload: object) -> Outcome:
    text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return MessageProcessor(PRESETS, LIMITS).decide(Message(7, 1000, NOW_US, topic.encode(), text))


def by_name(metric: str, unit: str | None, value: float) -> str | None:
    found = TABLE.watch(metric, unit).judge(value)
    if found is None or found[1] == "refuse":
        return None if found is None else REFUSED
    return IMPLAUSIBLE if found[0].is_range else SENTINEL


@pytest.mark.parametrize(
    ("metric", "unit", "value", "found"),
    [
        ("temperature", "°C", -327.68, REFUSED),
        ("temperature", "°C", 327.67, REFUSED),
        ("temperature", "Cel", 3276.7, REFUSED),
        ("temperature", None, -327.68, REFUSED),
        ("local_temperature", None, 655.35, REFUSED),
        ("x", "°C", -273.16, REFUSED),
        ("x", "°F", -459.7, REFUSED),
        ("x", "K", -0.1, REFUSED),
        ("temp", "F", -460.0, REFUSED),
        ("x", "°C", 6550.0, REFUSED),
        ("x", "°C", -26240.0, REFUSED),
        ("temp", None, -26240.0, REFUSED),
        ("t", None, -26240.0, REFUSED),
        ("T1", None, -127.0, REFUSED),
        ("t_out", None, 85.0, SENTINEL),
        ("sensors/3.t.value", None, -300.0, REFUSED),
        ("temperature.value", None, -300.0, REFUSED),
        ("temp_f", None, -459.0, IMPLAUSIBLE),
        ("temp_f", None, -460.0, REFUSED),
        ("temp", None, 6550.0, REFUSED),
        ("temp", None, 65535.0, REFUSED),
        ("temp", None, 4294967295.0, REFUSED),
        ("temp", None, 42949672.95, REFUSED),
        ("x", "°C", -127.0, REFUSED),
        ("x", "°F", -196.6, REFUSED),
        ("x", "°C", 85.0, SENTINEL),
        ("x", "°F", 185.0, SENTINEL),
        ("tempf", None, 185.0, SENTINEL),
        ("x", "°C", -100.0, SENTINEL),
        ("x", "°C", 653.21, IMPLAUSIBLE),
        ("x", "°C", 2568.0, IMPLAUSIBLE),
        ("x", "°C", -142.9, IMPLAUSIBLE),
        ("x", "°F", -300.0, IMPLAUSIBLE),
        ("x", "°C", -163.84, SENTINEL),
        ("x", "°C", 163.835, SENTINEL),
        ("x", "°C", -254.0, SENTINEL),
        ("temp", None, -253.0, SENTINEL),
        ("x", "°F", -421.6, SENTINEL),
        ("x", "K", 20.15, None),
        ("x", "°C", -16384.0, REFUSED),
        ("x", "°C", -326.76, REFUSED),
        ("x", "°C", 988.79, SENTINEL),
        ("temp", None, 409.5, SENTINEL),
        ("Hum_SHT", None, 6553.5, REFUSED),
        ("humidity", "%", 655.35, REFUSED),
        ("humidity", "%RH", 130.0, REFUSED),
        ("humidity", "%", 100.5, IMPLAUSIBLE),
        ("humidity", None, 5234.0, REFUSED),
        ("rh", None, 250.0, REFUSED),
        ("humidity", None, 104.0, IMPLAUSIBLE),
        ("moisture", "%", 6553.5, REFUSED),
        ("barometer", "hPa", 6553.5, REFUSED),
        ("barometer", "hPa", 1150.0, IMPLAUSIBLE),
        ("barometer", None, -26240.0, REFUSED),
        ("pressure", "hPa", -3276.8, REFUSED),
        ("x", "bar", -2.0, REFUSED),
        ("pressure", None, -3276.8, SENTINEL),
        ("pressure", None, -214748.36, REFUSED),
        ("pressure", None, 65535.0, SENTINEL),
        ("soc", None, 255.0, REFUSED),
        ("battery_level", None, 655.35, REFUSED),
        ("soc", None, 110.0, IMPLAUSIBLE),
        ("battery", "%", 255.0, REFUSED),
        ("battery", "%", 65535.0, REFUSED),
        ("x", "%RH", -0.5, IMPLAUSIBLE),
        ("power", "W", 6553.5, SENTINEL),
        ("co2", "ppm", 65535.0, SENTINEL),
        ("n", None, 32767.0, SENTINEL),
        ("n", None, -32768.0, SENTINEL),
        ("n", None, 2147483647.0, SENTINEL),
        ("n", None, 4294967295.0, SENTINEL),
        ("energy", "kWh", 42949672.95, SENTINEL),
        ("n", None, 655.35, SENTINEL),
        ("n", None, -3276.8, SENTINEL),
        ("battery", None, 255.0, SENTINEL),
        ("battery", "%", 101.0, IMPLAUSIBLE),
        ("lat", "°", 91.0, REFUSED),
        ("longitude", None, 181.0, IMPLAUSIBLE),
        ("rssi", "dBm", 127.0, SENTINEL),
        ("ds18b20", None, -127.0, REFUSED),
        ("DS18X20", None, 85.0, SENTINEL),
        ("dallas", None, -127.0, REFUSED),
        ("wassertemp", None, 655.35, REFUSED),
        ("T_aussen", None, -3276.8, REFUSED),
        ("x", "°C", 327.7, SENTINEL),
        ("n", None, 3.4028235e38, SENTINEL),
        # Measurements.
        ("temp_date", None, 1795896400.0, None),
        ("attempts", None, 5000.0, None),
        ("vorlauf", None, 4000.0, None),
        ("temperature", "°C", 21.5, None),
        ("temperature", "°C", -89.2, None),
        ("temperature", "°C", 1200.0, None),
        ("temperature", "K", 294.65, None),
        ("temperature", "°F", 451.0, None),
        ("color_temp", "K", 6500.0, None),
        ("color_temp", None, 6500.0, None),
        ("temperature_raw", None, 5234.0, None),
        ("absolute_humidity", "g/m³", 130.0, None),
        ("humidity", "%", 100.0, None),
        ("humidity", "%", 85.0, None),
        ("cpu", "%", 250.0, None),
        ("battery", "mV", 3012.0, None),
        ("battery", None, 3012.0, None),
        ("pressure", "hPa", 1013.25, None),
        ("template", None, -300.0, None),
        ("tmp.used", None, 524288.0, None),
        ("soil_moisture", None, 2450.0, None),
        ("soil_humidity", None, 2450.0, None),
        ("wood_moisture", "%", 110.0, None),
        ("pressure", None, -26240.0, None),
        ("pressure", "Pa", -26240.0, None),
        ("barometer", "inHg", 29.92, None),
        ("barometer", "Pa", 101325.0, None),
        ("barometer", None, 101325.0, None),
        ("battery_voltage_level", None, 3012.0, None),
        ("soc", None, 100.0, None),
        ("t_count", None, -300.0, None),
        ("temp_offset", None, -300.0, None),
        ("temperature_trend", None, -300.0, None),
        ("setpointShift", "K", -2.0, None),
        ("superheat", "K", -1.5, None),
        ("heating.spread", "K", -4.0, None),
        ("dt_floor", "K", -4.0, None),
        ("temp_mv", None, -300.0, None),
        ("temp_coefficient", None, -3900.0, None),
        ("outside", "K", -1.5, "refused"),
        ("humidity_offset", None, -5.0, None),
        ("humidity_ratio_ppm", None, 9000.0, None),
        ("soc.freq", None, 1800.0, None),
        ("soc_Wh", None, 5000.0, None),
        ("i.torque.t", None, 4000.0, None),
    ],
)
def test_the_table(metric: str, unit: str | None, value: float, found: str | None) -> None:
    assert by_name(metric, unit, value) == found


def test_each_entry_names_its_source_and_finds_its_own_numbers() -> None:
    entries = TABLE.entries
    assert len({entry.name for entry in entries}) == len(entries)
    for entry in entries:
        assert len(entry.source) > 15, entry.name
        assert len(entry.means) < 110, entry.name
        assert (entry.unit is None) is (entry.of is None), entry.name
        ends = [n for n in (entry.below, entry.above, *(entry.between or ())) if n is not None]
        assert entry.numbers() or ends, entry.name


@given(st.floats(CALM_LOW, CALM_HIGH, exclude_min=True, exclude_max=True))
def test_calm_numbers_pass_whatever_they_are_of(value: float) -> None:
    for metric in ("temperature", "humidity", "battery", "lat", "lon", "rssi", "n"):
        for unit in (None, "°C", "°F", "K", "%", "dBm", "°"):
            assert TABLE.watch(metric, unit).passes(value)


@pytest.mark.parametrize("code", [327.67, -327.68, 655.35, 6553.5])
def test_a_code_that_came_as_a_32_bit_float_is_the_same(code: float) -> None:
    single = struct.unpack("f", struct.pack("f", code))[0]
    assert by_name("temperature", "°C", single) == REFUSED
    assert by_name("n", None, single) == SENTINEL


@given(st.text(max_size=40), st.none() | st.text(max_size=12))
def test_any_name_and_unit_has_a_watch(metric: str, unit: str | None) -> None:
    watch = TABLE.watch(metric, unit)
    assert watch is TABLE.watch(metric, unit)
    assert watch.passes(21.5)


@pytest.mark.parametrize(
    ("metric", "unit", "quantity"),
    [
        ("room/TempC1", None, "temperature"), ("outTemp_F", None, "temperature"), ("Raumtemperatur", None, "temperature"),
        ("temperature.value", None, "temperature"), ("temperature.time", None, None), ("time.temperature", None, "temperature"),
        ("relativeHumidity", None, "humidity"), ("Luftfeuchte", "%", "humidity"), ("soilmoisture1", None, "moisture"),
        ("T_in", None, "temperature"), ("t_loss", None, None),
        ("battery_voltage", None, None), ("template", None, None), ("longitude", None, "longitude"), ("x", "degC", "temperature"),
    ],
)  # fmt: skip
def test_the_quantity_comes_from_the_unit_or_the_name(metric: str, unit: str | None, quantity: str | None) -> None:
    found = find_quantity(metric, unit, TABLE.quantities)
    assert (None if found is None else found.name) == quantity


# In every format.


CHIRPSTACK = {"deviceInfo": {"devEui": "0102030405060708"}, "deduplicationId": "a", "fCnt": 1, "fPort": 2}
TTS = {"end_device_ids": {"device_id": "dev1"}, "uplink_message": {"f_cnt": 7}}
EUI_UP = "application/a/device/0102030405060708/event/up"
OLD = {"timestamp": 1764331100, "temperature": -3276.8, "humidity": 40}
TOO_WARM = {"temperature": 3276.7, "x": 1}
RTL = {"time": "2025-11-28T11:00:00Z", "model": "m", "id": 1}
SHIPPED: list[tuple[str, str, Any, str]] = [
    ("zigbee2mqtt short", "zigbee2mqtt/trv-1", {"local_temperature": -327.68, "battery": 10}, "local_temperature"),
    ("zigbee2mqtt largest", "zigbee2mqtt/probe-1", {"temperature": 327.67, "humidity": 40}, "temperature"),
    ("zigbee2mqtt 6550", "zigbee2mqtt/probe-1", {"temperature": 6550, "humidity": 40}, "temperature"),
    ("zigbee2mqtt -100", "zigbee2mqtt/probe-1", {"temperature": -100, "humidity": 40}, "temperature"),
    ("zigbee2mqtt humidity", "zigbee2mqtt/probe-1", {"humidity": 655.35, "temperature": 20}, "humidity"),
    ("zigbee2mqtt power", "zigbee2mqtt/plug", {"power": 6553.5, "state": "ON"}, "power"),
    ("tasmota", "tele/t/SENSOR", {"BME280": {"Temperature": -327.68, "Humidity": 40}}, "Temperature"),
    ("chirpstack", EUI_UP, {**CHIRPSTACK, "object": {"temperature": 6553.5, "x": 1}}, "temperature"),
    ("dragino", EUI_UP, {**CHIRPSTACK, "object": {"BatV": 3.0, "TempC_SHT": -300, "Hum_SHT": 40}}, "TempC_SHT"),
    ("milesight", EUI_UP, {**CHIRPSTACK, "object": {"history": [OLD], "battery": 90}}, "temperature"),
    ("tts", "v3/app/devices/dev1/up", {**TTS, "uplink_message": {"decoded_payload": TOO_WARM}}, "temperature"),
    ("rtl_433", "rtl_433/recv-a/events", {**RTL, "temperature_C": -300.0, "humidity": 40}, "temperature_C"),
    ("openmqttgateway", "home/OMG/BTtoMQTT/A4C138000000", {"id": "A4:C1:38:00:00:00", "tempc": 655.35, "hum": 40}, "tempc"),
    ("esphome", "node/sensor/room_temperature/state", b"-327.68", "room_temperature"),
    ("shelly", "shellies/ht-1/sensor/temperature", b"655.35", "temperature"),
    ("generic", "gen/dev/state", {"temperature": -327.68, "humidity": 40}, "temperature"),
    ("generic wrapped", "gen/dev/state", {"t": {"value": -26240, "unit": "°C"}, "humidity": 40}, "t"),
    ("generic by name", "gen/dev/state", {"temperature": -26240, "humidity": 40}, "temperature"),
    ("native", "tidegate/v1/dev/readings", {"values": {"temp": {"value": -300, "unit": "°C"}, "rh": 40}}, "temp"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "payload", "metric"), [line[1:] for line in SHIPPED], ids=[line[0] for line in SHIPPED]
)
def test_every_shipped_format_refuses_or_flags(topic: str, payload: Any, metric: str) -> None:
    outcome = decide_by_preset(topic, payload)
    assert verdict(outcome, metric) is not None, outcome
    if isinstance(payload, dict):
        assert outcome.accepted, letters_of(outcome)


def test_a_refused_number_costs_itself_and_says_why() -> None:
    outcome = decide(b"j/dev/state", b'{"a":{"temperature":-327.68,"humidity":40}}')
    assert stored(outcome) == {"a.humidity": 40.0}
    [letter] = letters_of(outcome)
    assert (letter.reason, letter.path, letter.partial) == ("bad_number", "$.a.temperature", True)
    assert letter.got == "-327.68 (int16-temperature)"
    assert letter.wanted == "a measurement, not the 16-bit code for an invalid temperature; or a profile with `accept`"


def test_a_message_of_nothing_else_is_a_dead_letter() -> None:
    outcome = decide(b"site/room/temperature", b"-26240")
    assert outcome.rejected == "out_of_range"
    [letter] = letters_of(outcome)
    assert (letter.got, letter.partial) == ("-26240 °C (absolute-zero)", False)


def test_booleans_and_texts_are_no_codes() -> None:
    payload = b'{"temperature":true,"humidity":"655.35 on hold"}'
    assert stored(decide(b"j/dev/state", payload)) == {"temperature": "true", "humidity": "655.35 on hold"}


def test_a_flagged_number_is_stored_as_sent() -> None:
    [reading] = record_of(decide(b"site/room/temperature", b"85")).readings
    assert (reading.value, reading.unit, reading.flags) == (85.0, "°C", ["sentinel"])


# The short way.


def short(payload: bytes, policy: ReadingPolicy | None = None) -> bool:
    block = Block(1000, 7, NOW_US, 0.0)
    express = FastPathEncoder(compile_routes(()), LIMITS, policy or ReadingPolicy())
    return express.encode_into(block, [(b"tidegate/v1/dev/readings", payload, b"\0\1")], 0, 100_000) == 1


FULL = {"ts": NOW_US // 1000 - 5, "boot": 1, "seq": 2}


@pytest.mark.parametrize(
    ("values", "is_short"),
    [
        ({"temperature": 21.5, "humidity": 45.5, "pressure": 1013.2}, True),
        ({"temperature": 85.5, "humidity": 85, "rpm": 85}, True),
        ({"temperature": 85.0}, False),
        ({"temperature": -327.68}, False),
        ({"n": 1.0, "m": 65535}, False),
        ({"t": {"value": 85.0, "unit": "°C"}}, False),
        ({"t": {"value": 85.5, "unit": "°C"}, "on": True}, True),
        ({"humidity": 101, "s": "x"}, False),
    ],
)
def test_the_short_way_takes_what_passes(values: dict[str, Any], is_short: bool) -> None:
    assert short(native(values, **FULL)) is is_short


NUMBERS = st.sampled_from(
    [85.0, -127.0, 327.67, -327.68, 655.35, 65535.0, 101.0, -1.0, 0.0, 21.5, 650.0, 3501.0]
) | st.floats(-1e5, 1e5, allow_nan=False)
UNITS = st.sampled_from(["°C", "°F", "%", "K", "V"])
NAMES = st.sampled_from(["temperature", "humidity", "n", "battery", "lat"])


@given(st.dictionaries(NAMES, NUMBERS | st.tuples(NUMBERS, UNITS), min_size=1))
def test_what_went_the_short_way_passes_the_long_one_untouched(values: dict[str, Any]) -> None:
    sent = {n: v if isinstance(v, float) else {"value": v[0], "unit": v[1]} for n, v in values.items()}
    payload = native(sent, **FULL)
    outcome = decide(b"tidegate/v1/dev/readings", payload)
    untouched = not letters_of(outcome) and not any(r.flags for r in record_of(outcome).readings)
    assert untouched or not short(payload)


# Profiles.


def profile(tmp_path: Path, text: str) -> ReadingPolicy:
    (tmp_path / "p.toml").write_text(f'name = "p"\nversion = 1\ndevices = ["dev*"]\n{text}', encoding="utf-8")
    return make_policy(GatewaySettings(profiles=str(tmp_path)))


def judged(policy: ReadingPolicy, values: dict[str, Any]) -> dict[str, str | None]:
    message = Message(7, 1000, NOW_US, b"tidegate/v1/dev/readings", native(values))
    outcome = MessageProcessor(compile_routes(()), LIMITS, policy=policy).decide(message)
    return {metric: verdict(outcome, metric) for metric in values}


def test_a_profile_switches_entries_off(tmp_path: Path) -> None:
    policy = profile(tmp_path, '[metrics."oven*"]\nunit = "°C"\naccept = ["ds18b20-power-on"]\n')
    assert judged(policy, {"oven": 85.0, "temperature": 85.0}) == {"oven": None, "temperature": "sentinel"}
    assert judged(policy, {"oven": -127.0, "x": 1.0}) == {"oven": REFUSED, "x": None}
    assert isinstance(policy, ProfilePolicy)
    narrow = profile(tmp_path, 'accept = ["ds18b20-power-on"]\n[metrics.oven]\nunit = "°C"\n')
    assert short(native({"oven": 85.0}, **FULL), narrow)
    assert not short(native({"oven": -127.0}, **FULL), narrow)


def test_a_profile_may_accept_everything(tmp_path: Path) -> None:
    policy = profile(tmp_path, 'accept = ["*"]\n[metrics.x]\n')
    assert judged(policy, {"temperature": -327.68, "n": 65535.0}) == {"temperature": None, "n": None}


def test_a_profile_accepts_what_only_the_name_refuses(tmp_path: Path) -> None:
    policy = profile(tmp_path, '[metrics."t*"]\naccept = ["absolute-zero", "above-sensors"]\n')
    assert judged(policy, {"temp": -2624.0, "t": -2624.0, "temp2": 3660.0}) == {
        "temp": IMPLAUSIBLE,
        "t": None,
        "temp2": IMPLAUSIBLE,
    }
    assert judged(policy, {"humidity": 523.0, "x": 1.0}) == {"humidity": REFUSED, "x": None}


def test_a_profiles_unit_makes_sure(tmp_path: Path) -> None:
    policy = profile(tmp_path, '[metrics.temp]\nunit = "C"\nspellings = { C = "°C" }\n')
    assert judged(policy, {"temp": -300.0, "x": 1.0}) == {"temp": REFUSED, "x": None}


def test_a_profiles_range_replaces_the_tables(tmp_path: Path) -> None:
    policy = profile(tmp_path, "[metrics.temp]\nmin = -4000\nmax = 8500\n")
    assert judged(policy, {"temp": -500.0}) == {"temp": None}
    assert judged(policy, {"temp": 655.35, "x": 1.0}) == {"temp": REFUSED, "x": None}


def test_a_refused_code_is_no_step(tmp_path: Path) -> None:
    policy = profile(tmp_path, '[metrics.temp]\nunit = "°C"\nmax_step = 5\n')
    gate = MessageProcessor(compile_routes(()), LIMITS, policy=policy)
    for number, value in enumerate((21.5, 327.67, 21.6)):
        outcome = gate.decide(
            Message(number, 1000, NOW_US + number, b"tidegate/v1/dev/readings", native({"temp": value}))
        )
        assert outcome.accepted is (value < 100)


def test_profile_show_names_what_is_accepted() -> None:
    shown = describe_profile(
        parse_profile(b'name = "p"\nversion = 1\naccept = ["uint16"]\n[metrics.x]\naccept = ["int16"]\n')
    )
    assert "accepts uint16, int16" in shown["metrics"][0]["asks"]


def test_an_unknown_entry_is_refused_with_a_suggestion() -> None:
    with pytest.raises(BadProfile, match=r"accept.*did you mean 'ds18b20-power-on'"):
        parse_profile(b'name = "p"\nversion = 1\naccept = ["ds18b20-poweron"]\n[metrics.x]\n')


def test_new_names_of_one_quantity_share_its_rules() -> None:
    """A message may hold ten thousand names, and the rules of one take a millisecond."""
    table = load_table().without(())
    watches = {id(table.watch(f"log[{number}].temperature", "°C")) for number in range(1000)}
    assert len(watches) == 1
    assert table.watch("temperature", "°F") is not table.watch("temperature", "°C")


def test_infinite_numbers_do_not_pass() -> None:
    assert not TABLE.watch("temperature", "°C").passes(math.inf)
