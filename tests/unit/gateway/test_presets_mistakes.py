"""What is easily mistaken for a reading, a unit, a device or an identity, format by format, under the shipped presets."""

import json
from typing import Any

import pytest

from gateway.devtools.decode_file import decode_lines
from gateway.gateway_settings import GatewaySettings

LIMITS = GatewaySettings(zone="Europe/Berlin")
RECEIVED_US = 1_764_331_200_000_000
TIME = "2025-01-01T09:00:00Z"


def decode(topic: str, payload: object) -> dict[str, Any]:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    line = json.dumps({"topic": topic, "payload": text})
    [outcome] = decode_lines([line], (), LIMITS, received_us=RECEIVED_US)
    return outcome


def shown(topic: str, payload: object) -> dict[str, object]:
    """`device|metric` to value or text, with its unit where it has one."""
    outcome = decode(topic, payload)
    assert outcome["outcome"] == "reading", outcome
    found: dict[str, object] = {}
    for reading in outcome["readings"]:
        value = reading["value"] if reading["text"] is None else reading["text"]
        unit = reading["unit"]
        found[f"{reading['device']}|{reading['metric']}"] = value if unit is None else f"{value} {unit}"
    return found


def uplink(eui: str = "a84041ff00000001", **fields: object) -> dict[str, object]:
    return {"deduplicationId": "u", "time": TIME, "deviceInfo": {"devEui": eui}, "object": fields}


def things(device: str = "d1", app: str = "app1") -> dict[str, object]:
    ids = {"device_id": device, "application_ids": {"application_id": app}}
    return {"end_device_ids": ids, "received_at": TIME, "uplink_message": {"decoded_payload": {"t": 1}}}


UP = "application/a/device/a84041ff00000001/event/up"


@pytest.mark.parametrize(
    ("topic", "payload", "wanted"),
    [
        # Of iOS -1 is no speed and no course; steps are a measurement.
        ("owntracks/j/p", {"_type": "location", "tst": 1735722000, "lat": 1.5, "lon": 2, "vel": -1, "cog": -1},
         {"j/p|lat": "1.5 °", "j/p|lon": "2.0 °"}),
        ("owntracks/j/p/step", {"_type": "steps", "tst": 1735722000, "steps": 123, "from": 1735720000, "to": 1735722000},
         {"j/p|steps": 123.0}),
        # Ids, addresses, serial numbers, settings.
        ("tele/t/STATE", {"Time": TIME, "Hostname": "t-1", "IPAddress": "10.0.0.2", "UptimeSec": 5}, {"t|UptimeSec": "5.0 s"}),
        ("tele/t/SENSOR", {"Time": TIME, "ATC1": {"mac": "a4c1388fac1d", "Battery": 97, "RSSI": -70}},
         {"t|ATC1.Battery": "97.0 %", "t|ATC1.RSSI": "-70.0 dBm"}),
        ("tele/t/SENSOR", {"Time": TIME, "IBEACON": {"MAC": "A4C1", "UID": "x", "MAJOR": "1", "MINOR": "2", "STATE": "ON"}},
         {"t|IBEACON.STATE": "ON"}),
        ("tele/t/SENSOR", {"Time": TIME, "RC522": {"UID": "BA83", "Type": "MIFARE"}}, {"t|RC522.Type": "MIFARE"}),
        ("tele/t/SENSOR", {"Time": TIME, "SML": {"Meter_id": "0a01", "Power_curr": 300}}, {"t|SML.Power_curr": 300.0}),
        ("tele/t/STATE", {"Time": TIME, "Wifi": {"RSSI": 70, "Signal": -65}},
         {"t|Wifi.RSSI": "70.0 %", "t|Wifi.Signal": "-65.0 dBm"}),
        ("rtl_433/h/events", {"time": TIME, "model": "M", "fixed": "1", "rolling": "2", "esn": "a", "flags": "0",
                              "status_hex": "1f", "button": "left"}, {"M|button": "left"}),
        ("shellies/m/status", {"timestamp": 1764309600, "lux": 20, "bat": 88},
         {"m|status/lux": "20.0 lx", "m|status/bat": "88.0 %"}),
        ("shellies/x/ext_temperatures", {"0": {"hwID": "28ff", "tC": 21.2, "tF": 70.2}},
         {"x|ext_temperatures/0.tC": "21.2 °C", "x|ext_temperatures/0.tF": "70.2 °F"}),
        ("s/status/bthomedevice:200", {"id": 200, "rssi": -60, "packet_id": 5}, {"s|bthomedevice:200.rssi": "-60.0 dBm"}),
        ("N/c0/system/0/Batteries", {"value": [{"soc": 50, "id": "com.x"}]}, {"c0/system/0|Batteries[0].soc": 50.0}),
        (UP, uplink(temperature=1, sn="678", ipso_version="v0.1", tsl_version="ff"), {"a84041ff00000001|temperature": 1.0}),
        ("shelly-blu/events/a", {"address": "a", "pid": 5, "temperature": 17}, {"a|temperature": "17.0 °C"}),
        # Units.
        ("tele/t/SENSOR", {"Time": TIME, "ANALOG": {"Temperature1": 22.0}, "TempUnit": "F"},
         {"t|ANALOG.Temperature1": "22.0 °F"}),
        ("N/c0/battery/5/Alarms/LowVoltage", {"value": 2}, {"c0/battery/5|Alarms/LowVoltage": 2.0}),
        ("N/c0/vebus/5/Ac/Alarms/HighTemperature", {"value": 0}, {"c0/vebus/5|Ac/Alarms/HighTemperature": 0.0}),
        ("s/status/voltmeter:100", {"id": 100, "voltage": 4.2, "xvoltage": 42},
         {"s|voltmeter:100.voltage": "4.2 V", "s|voltmeter:100.xvoltage": 42.0}),
        ("home/g/BTtoMQTT/4C33A6000001", {"id": "4C:33:A6:00:00:01", "uuid": "x", "major": 1, "power": -59},
         {"4C:33:A6:00:00:01|power": "-59.0 dBm"}),
        ("home/g/BTtoMQTT/4C33A6000001", {"power": 59}, {"4C33A6000001|power": "59.0 W"}),
        # JSON where a bare value usually stands.
        ("home/sensor/kitchen/state", {"temperature": 20}, {"home|kitchen.temperature": 20.0}),
        ("lr/sensor/s/state", [1, 2], {"lr|s[0]": 1.0, "lr|s[1]": 2.0}),
        ("lr/text_sensor/s/state", [{"a": 1}], {"lr|s[0].a": 1.0}),
        ("lr/text_sensor/s/state", "[OFFLINE]", {"lr|s": "[OFFLINE]"}),
        ("homeassistant/sensor/x/state", {"temperature": 20}, {"sensor.x|temperature": 20.0}),
        ("homeassistant/sensor/x/state", [3], {"sensor.x|state[0]": 3.0}),
        ("homeassistant/sensor/x/state", "['a', 'b']", {"sensor.x|state": "['a', 'b']"}),
        ("shellies/m/sensor/status", {"motion": True, "timestamp": 5, "tmp": {"value": 21.5, "units": "C", "is_valid": True}},
         {"m|sensor/status/motion": "true", "m|sensor/status/tmp.value": "21.5 °C", "m|sensor/status/tmp.is_valid": "true"}),
        ("shellies/m/sensor/status", {"lux": 5, "tmp": {"value": 999, "units": "C", "is_valid": False}},
         {"m|sensor/status/lux": "5.0 lx"}),
        # A codec's own history beside a battery voltage.
        (UP, uplink(BatV=3, history=[{"timestamp": 1735722000, "temperature": 1}]),
         {"a84041ff00000001|temperature": "1.0 °C", "a84041ff00000001|BatV": 3.0}),
        # Topics that are easily forgotten.
        ("home/g/LORAtoMQTT", {"rssi": -80, "pferror": 0, "packetSize": 5, "message": "hi"}, {"g|rssi": "-80.0 dBm"}),
        ("home/g/LORAtoMQTT", {"id": "AA", "rssi": -80}, {"AA|rssi": "-80.0 dBm"}),
        ("home/g/LORAtoMQTT/AA", {"id": "AA", "tempc": 20}, {"AA|tempc": "20.0 °C"}),
        ("home/g/DHTtoMQTT/dht1", {"hum": 50, "tempc": 20}, {"g/dht1|hum": "50.0 %", "g/dht1|tempc": "20.0 °C"}),
        ("home/g/OneWiretoMQTT/28ff", {"tempc": 20}, {"g/28ff|tempc": "20.0 °C"}),
        ("lr/climate/c/mode/state", "heat", {"lr|c.mode": "heat"}),
        ("lr/climate/c/current_temperature/state", "20.5", {"lr|c.current_temperature": 20.5}),
        ("lr/fan/f/speed_level/state", "3", {"lr|f.speed_level": 3.0}),
        ("lr/cover/c/position/state", "0", {"lr|c.position": 0.0}),
    ],
)  # fmt: skip
def test_only_measurements_are_readings(topic: str, payload: object, wanted: dict[str, object]) -> None:
    assert shown(topic, payload) == wanted


@pytest.mark.parametrize(
    ("topic", "payload", "outcome", "reason"),
    [
        ("zigbee2mqtt/x/temperature", "21.5", "ignored", "echo"),
        ("zigbee2mqtt/x/state", "ON", "ignored", "echo"),
        ("zigbee2mqtt/x", '{"temperature":', "dead_letter", "bad_json"),
        ("lr/sensor/t/state", "NA", "ignored", "no_value"),
        ("lr/climate/c/current_temperature/state", "nan", "ignored", "no_value"),
        ("lr/sensor/t/state", '{"t":', "dead_letter", "bad_json"),
        ("lr/fan/f/speed_level/command", "3", "ignored", "command"),
        ("N/c0/settings/0/Settings/System/TimeZone", {"value": "Europe/Berlin"}, "ignored", "metadata"),
        ("shellies/x/sensor/timestamp", "1764309600", "ignored", "metadata"),
        ("shellies/x/roller/0/pos", "-1", "ignored", "no_value"),
        ("shellies/x/sensor/tilt", "-1", "ignored", "no_value"),
        ("shellies/x/ext_temperature/0", "999", "dead_letter", "bad_number"),
        ("shellies/x/sensor/temperature", "999.0", "dead_letter", "bad_number"),
        ("shellies/x/ext_temperatures", {"0": {"tC": 999, "tF": 999}}, "dead_letter", "bad_number"),
        ("tele/t/SENSOR", {"Time": TIME, "DS1822": {"Temperature": -127}}, "dead_letter", "bad_number"),
        ("tele/t/SENSOR", {"Time": TIME, "DS18S20-2": {"Temperature": 85}}, "dead_letter", "bad_number"),
        ("x/status/ht_ui", {}, "ignored", "status"),
        ("x/status/eth", {"ip": None}, "ignored", "status"),
        ("x/status/ble", {}, "ignored", "status"),
        ("x/status/bthome", {"errors": []}, "ignored", "status"),
        ("x/status/eth", "up", "dead_letter", "no_route"),
        ("v1/devices/me/telemetry", {"t": 1}, "dead_letter", "no_route"),
        # Whom the payload names is not whom the topic names.
        (UP, uplink("a84041ff00000002", t=1), "dead_letter", "identity_mismatch"),
        (UP, uplink("a84041ff00000002", BatV=1), "dead_letter", "identity_mismatch"),
        (UP, uplink("a84041ff00000002", history=[{"t": 1}]), "dead_letter", "identity_mismatch"),
        (UP.replace("/up", "/status"), {"deviceInfo": {"devEui": "x"}, "margin": 1}, "dead_letter", "identity_mismatch"),
        ("v3/app1@t/devices/d1/up", things("other"), "dead_letter", "identity_mismatch"),
        ("shelly-blu/events/a", {"address": "b", "temperature": 1}, "dead_letter", "identity_mismatch"),
        ("devices/d/messages/events/", {"deviceId": "other", "t": 1}, "dead_letter", "identity_mismatch"),
        ("home/g/BTtoMQTT/4C33A6000001", {"id": "4C:33:A6:00:00:02", "tempc": 1}, "dead_letter", "identity_mismatch"),
    ],
)  # fmt: skip
def test_what_is_none_says_why(topic: str, payload: object, outcome: str, reason: str) -> None:
    found = decode(topic, payload)
    assert (found["outcome"], found["reason"], found["readings"]) == (outcome, reason, [])


def test_a_shelly_whose_clock_is_not_set_is_of_receive_time() -> None:
    params = {"ts": 12.5, "temperature:0": {"id": 0, "tC": 20}}
    [reading] = decode("s/events/rpc", {"src": "s", "method": "NotifyStatus", "params": params})["readings"]
    assert (reading["time"], reading["flags"]) == (None, ["no_identity", "clock_unset"])


@pytest.mark.parametrize(
    ("time", "flags"),
    [
        ("2025-10-26 01:30:00", []),
        ("2025-10-26 02:30:00", ["no_identity", "ambiguous_local_time"]),
        ("2025-10-26 02:30:00+0200", []),
        ("1970-01-01 00:00:09", ["no_identity", "clock_unset"]),
    ],
)
def test_a_telegram_of_the_repeated_hour_has_no_identity(time: str, flags: list[str]) -> None:
    [reading] = decode("rtl_433/pi/events", {"time": time, "model": "M", "uv": 6})["readings"]
    assert reading.get("flags", []) == flags


@pytest.mark.parametrize(("number", "flags"), [(7, []), (None, ["no_identity"])])
def test_a_second_of_a_ruuvi_tag_holds_several_measurements(number: int | None, flags: list[str]) -> None:
    tag = {"timestamp": 1_760_000_000, "temperature": 20, "measurementSequenceNumber": number}
    found = decode("ruuvi/g/all", {"data": {"tags": {"C0:FF:EE:00:00:02": tag}}})
    assert [reading.get("flags", []) for reading in found["readings"]] == [flags]
