"""The presets of devices and radio gateways, beyond the example payloads: what their formats' pages say besides."""

import json
from typing import Any

import pytest

from gateway.devtools.decode_file import decode_lines
from gateway.gateway_settings import GatewaySettings

LIMITS = GatewaySettings(zone="Europe/Berlin")
RECEIVED_US = 1_764_331_200_000_000


def decode(
    topic: str, payload: object, limits: GatewaySettings = LIMITS, received_us: int = RECEIVED_US
) -> dict[str, Any]:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    [outcome] = decode_lines([json.dumps({"topic": topic, "payload": text})], (), limits, received_us=received_us)
    return outcome


def stored(topic: str, payload: object) -> dict[str, object]:
    outcome = decode(topic, payload)
    assert outcome["outcome"] == "reading", outcome
    return {r["metric"]: r["value"] if r["text"] is None else r["text"] for r in outcome["readings"]}


def unit_of(topic: str, payload: object, metric: str) -> str | None:
    [unit] = [r["unit"] for r in decode(topic, payload)["readings"] if r["metric"] == metric]
    return None if unit is None else str(unit)


@pytest.mark.parametrize(
    ("topic", "payload", "outcome", "reason"),
    [
        ("stat/plug/RESULT", {"POWER": "ON"}, "ignored", "command"),
        ("cmnd/plug/POWER", "ON", "ignored", "command"),
        ("tele/plug/INFO1", {"Info1": {"Module": "x"}}, "ignored", "status"),
        ("plug/tele/LWT", "Offline", "ignored", "status"),
        ("tasmota/discovery/AABBCC/config", {"ip": "x", "sn": 1}, "ignored", "metadata"),
        ("zigbee2mqtt/bridge/state", {"state": "online"}, "ignored", "status"),
        ("zigbee2mqtt/bridge/request/permit_join", {"time": 5}, "ignored", "command"),
        ("zigbee2mqtt/bridge/groups", [{"id": 1}], "ignored", "metadata"),
        ("zigbee2mqtt/hall/lamp/availability", {"state": "online"}, "ignored", "status"),
        ("zigbee2mqtt/hall/lamp/set", {"state": "ON"}, "ignored", "command"),
        ("zigbee2mqtt/lamp/set/brightness", "12", "ignored", "command"),
        ("zigbee2mqtt/button", {"action": ""}, "ignored", "no_value"),
        ("shellies/x/relay/0/command", "on", "ignored", "command"),
        ("shellies/x/info", {"uptime": 5}, "ignored", "echo"),
        ("shellies/announce", {"id": "x"}, "ignored", "metadata"),
        ("shellies/x/input_event/0", {"event": "S", "event_cnt": 2}, "ignored", "status"),
        ("x/online", "true", "ignored", "status"),
        ("x/online", "21", "dead_letter", "no_route"),
        ("x/status/sys", {"mac": "AA", "uptime": 5, "ram_free": 1}, "ignored", "status"),
        ("x/status/mqtt", {"connected": True}, "ignored", "status"),
        ("me/rpc", {"id": 1, "src": "x", "result": {}}, "ignored", "command"),
        ("shellies/plus/status/sys", {"mac": "AA", "uptime": 5}, "ignored", "status"),
        ("application/a/device/d/event/ack", {"deduplicationId": "x"}, "ignored", "command"),
        ("application/a/device/d/event/log", {"level": "ERROR"}, "ignored", "status"),
        ("application/a/device/d/command/down", {"data": "x"}, "ignored", "command"),
        ("v3/a@t/devices/d/down/sent", {"downlink_sent": {}}, "ignored", "command"),
        ("v3/a@t/devices/d/up/normalized", {"uplink_normalized": {}}, "ignored", "echo"),
        ("v3/a@t/devices/d/up", {"end_device_ids": {"device_id": "d"}, "uplink_message": {"f_port": 1}},
         "dead_letter", "undecoded"),
        ("rtl_433/pi/states", {"frequency": 1}, "ignored", "status"),
        ("rtl_433/pi/devices/Nexus-TH/2/42/temperature_C", "20.5", "ignored", "echo"),
        ("rtl_433/pi/events", {"time": "2025-01-01 10:00:00", "temperature_C": 1}, "dead_letter", "no_route"),
        ("home/OMG/SYStoMQTT", {"uptime": 5, "rssi": -50}, "ignored", "status"),
        ("home/OMG/LWT", "online", "ignored", "status"),
        ("home/OMG/IRtoMQTT", {"value": 1}, "ignored", "status"),
        ("home/OMG/commands/MQTTtoBT/config", {"x": 1}, "ignored", "command"),
    ],
)  # fmt: skip
def test_what_is_no_reading(topic: str, payload: object, outcome: str, reason: str) -> None:
    found = decode(topic, payload)
    assert (found["outcome"], found["reason"], found["readings"]) == (outcome, reason, [])


@pytest.mark.parametrize(
    ("topic", "payload", "wanted"),
    [
        ("plug/tele/STATE", {"Time": "2025-01-01T10:00:00", "POWER1": "ON", "Wifi": {"RSSI": 80, "SSId": "n"}},
         {"POWER1": "ON", "Wifi.RSSI": 80}),
        ("tele/m/SENSOR", {"Time": "2025-01-01T10:00:00", "ENERGY": {"Power": [1, 2], "TotalStartTime": "2021-01-01T00:00:00"}},
         {"ENERGY.Power[0]": 1, "ENERGY.Power[1]": 2}),
        ("tele/m/SENSOR", {"Time": "2025-01-01T10:00:00", "SI7021": {"Temperature": None, "Humidity": 40}},
         {"SI7021.Humidity": 40}),
        ("zigbee2mqtt/p", {"state": "ON", "update": {"state": "idle", "installed_version": 5}, "last_seen": 1764331100000},
         {"state": "ON"}),
        ("shellies/dimmer/light/0/status", {"ison": True, "source": "http", "brightness": 40},
         {"light/0/status/ison": "true", "light/0/status/brightness": 40}),
        ("shellies/x/relay/0", "on", {"relay/0": "on"}),
        ("shellies/plus/status/switch:0", {"id": 0, "output": True, "apower": 1.5},
         {"switch:0.output": "true", "switch:0.apower": 1.5}),
        ("x/status/temperature:100", {"id": 100, "tC": 20.5, "tF": 68.9},
         {"temperature:100.tC": 20.5, "temperature:100.tF": 68.9}),
        ("x/status/em:0", {"id": 0, "a_act_power": 5, "n_current": None, "total_act_power": 6},
         {"em:0.a_act_power": 5, "em:0.total_act_power": 6}),
        ("x/status/wifi", {"sta_ip": "10.0.0.2", "status": "got ip", "ssid": "n", "rssi": -50}, {"wifi.rssi": -50}),
        ("x/events/rpc", {"src": "shelly", "method": "NotifyFullStatus", "params": {
            "ts": 1764331100.5, "sys": {"uptime": 5}, "wifi": {"ssid": "n", "rssi": -50}, "devicepower:0":
            {"id": 0, "battery": {"V": 3.0, "percent": 80}, "external": {"present": False}}}},
         {"wifi.rssi": -50, "devicepower:0.battery.V": 3.0, "devicepower:0.battery.percent": 80,
          "devicepower:0.external.present": "false"}),
        ("home/OMG/DHTtoMQTT", {"hum": 40, "tempc": 20.5}, {"hum": 40, "tempc": 20.5}),
        ("home/OMG/RTL_433toMQTT/Nexus-TH/2/42", {"model": "Nexus-TH", "id": 42, "channel": 2, "humidity": 83, "rssi": -60},
         {"humidity": 83, "rssi": -60}),
    ],
)  # fmt: skip
def test_readings_of_other_shapes(topic: str, payload: object, wanted: dict[str, object]) -> None:
    assert stored(topic, payload) == wanted


def test_a_voltage_is_of_the_battery_or_of_the_mains() -> None:
    topic = "zigbee2mqtt/x"
    assert unit_of(topic, {"voltage": 3005, "battery": 97}, "voltage") == "mV"
    assert unit_of(topic, {"voltage": 231, "power": 0}, "voltage") == "V"
    assert unit_of(topic, {"voltage": 231, "energy": 1.5}, "voltage") == "V"
    assert unit_of(topic, {"voltage": 5}, "voltage") is None


@pytest.mark.parametrize(
    ("topic", "unit"),
    [
        ("shellies/x/relay/0/power", "W"),
        ("shellies/x/relay/0/energy", "W·min"),
        ("shellies/x/emeter/0/energy", "W·min"),
        ("shellies/x/emeter/0/total_returned", "Wh"),
        ("shellies/x/emeter/2/reactive_power", "var"),
        ("shellies/x/temperature", "°C"),
        ("shellies/x/temperature_f", "°F"),
        ("shellies/x/ext_temperature/0", "°C"),
        ("shellies/x/sensor/humidity", "%"),
        ("shellies/x/sensor/temperature", None),
        ("shellies/x/input/0", None),
    ],
)
def test_units_of_shelly_generation_1(topic: str, unit: str | None) -> None:
    [reading] = decode(topic, "12")["readings"]
    assert (reading["device"], reading["unit"]) == ("x", unit)


def test_units_of_rtl_433_are_the_suffix() -> None:
    fields = {"temperature_F": 1, "wind_avg_km_h": 2, "rain_rate_mm_h": 3, "rain_mm": 4, "pressure_psi": 5, "uv": 6}
    outcome = decode("rtl_433/pi/events", {"time": "2025-01-01 10:00:00", "model": "M", "id": 1, **fields})
    assert [r["unit"] for r in outcome["readings"]] == ["°F", "km/h", "mm/h", "mm", "psi", None]
    assert {r["time"] for r in outcome["readings"]} == {"2025-01-01T09:00:00Z"}


@pytest.mark.parametrize(
    "time", ["1735722000", "2025-01-01T09:00:00Z", "2025-01-01 09:00:00.000000Z", "2025-01-01T10:00:00+0100"]
)
def test_the_times_that_rtl_433_can_be_told_to_write(time: str) -> None:
    outcome = decode("rtl_433/pi/events", {"time": time, "model": "M", "uv": 6}, GatewaySettings())
    assert [r["time"] for r in outcome["readings"]] == ["2025-01-01T09:00:00Z"]


@pytest.mark.parametrize(
    ("fields", "device"),
    [
        ({"id": 42, "channel": 2}, "M/2/42"),
        ({"id": "0a1b", "channel": "A"}, "M/A/0a1b"),
        ({"id": 0}, "M/0"),
        ({"channel": 3}, "M/3"),
        ({}, "M"),
    ],
)
def test_the_identity_of_a_433_mhz_device(fields: dict[str, object], device: str) -> None:
    outcome = decode("rtl_433/pi/events", {"time": "2025-01-01T09:00:00Z", "model": "M", **fields, "uv": 6})
    assert {r["device"] for r in outcome["readings"]} == {device}


def test_repeats_of_one_telegram_have_one_identity() -> None:
    def flagged(topic: str, payload: dict[str, object], received_us: int = RECEIVED_US) -> list[str]:
        [reading] = decode(topic, payload, received_us=received_us)["readings"]
        return list(reading.get("flags", ()))

    telegram = {"time": "2025-01-01T09:00:00Z", "model": "M", "uv": 6}
    assert flagged("rtl_433/pi/events", telegram) == []
    assert flagged("rtl_433/pi/events", {"model": "M", "uv": 6}) == ["no_identity"]
    assert flagged("shelly-blu/events/a", {"pid": 5, "temperature": 17, "address": "a"}) == []
    assert flagged("shelly-blu/events/a", {"temperature": 17, "address": "a"}) == ["no_identity"]


def test_a_clock_that_was_not_set_yet_is_receive_time_also_without_a_zone() -> None:
    payload = {"Time": "1970-01-01T00:00:03", "ENERGY": {"Power": 7}}
    for limits in (LIMITS, GatewaySettings()):
        [reading] = decode("tele/x/SENSOR", payload, limits)["readings"]
        assert (reading["time"], reading["flags"]) == (None, ["no_identity", "clock_unset"])


def test_local_time_without_a_zone_says_where_to_name_it() -> None:
    outcome = decode("tele/x/SENSOR", {"Time": "2025-01-01T10:00:00", "A": {"Temperature": 1}}, GatewaySettings())
    assert (outcome["outcome"], outcome["reason"], outcome["path"]) == ("dead_letter", "ambiguous_time", "$.Time")
    assert "zone" in outcome["wanted"]


def test_a_status_of_a_lorawan_device_without_a_battery_level() -> None:
    body = {"deduplicationId": "x", "time": "2022-07-18T09:34:15Z", "deviceInfo": {"devEui": "a8"}, "margin": 10}
    topic = "application/a/device/a8/event/status"
    assert stored(topic, {**body, "batteryLevelUnavailable": True, "batteryLevel": 0}) == {"margin": 10}
    assert stored(topic, {**body, "externalPowerSource": True}) == {"margin": 10, "externalPowerSource": "true"}


def test_an_uplink_without_a_codec_says_what_to_do() -> None:
    body = {"time": "2022-07-18T09:34:15Z", "deviceInfo": {"devEui": "a8"}, "data": "qg=="}
    outcome = decode("application/a/device/a8/event/up", body)
    assert "codec" in outcome["wanted"]
    outcome = decode("v3/a/devices/d/up", {"end_device_ids": {"device_id": "d"}, "uplink_message": {"f_port": 1}})
    assert "payload formatter" in outcome["wanted"]


def test_a_test_uplink_from_the_console_is_flagged() -> None:
    uplink = {"decoded_payload": {"t": 1}, "received_at": "2025-10-12T15:15:45.812Z"}
    body = {"end_device_ids": {"device_id": "d"}, "uplink_message": uplink, "received_at": "2025-10-12T15:15:46Z"}
    [reading] = decode("v3/a/devices/d/up", {**body, "simulated": True})["readings"]
    assert reading["flags"] == ["simulated"]
    [reading] = decode("v3/a/devices/d/up", body)["readings"]
    assert "flags" not in reading


def test_a_broken_probe_is_refused_and_the_rest_is_kept() -> None:
    probes = {"DS18B20-1": {"Temperature": -127}, "DS18B20-2": {"Temperature": 21.5}, "BOILER": {"Temperature": 85}}
    outcome = decode("tele/x/SENSOR", {"Time": "2025-01-01T10:00:00", **probes, "TempUnit": "C"})
    assert {r["metric"] for r in outcome["readings"]} == {"DS18B20-2.Temperature", "BOILER.Temperature"}
    assert [part["path"] for part in outcome["rejected"]] == ["$.DS18B20-1.Temperature"]
