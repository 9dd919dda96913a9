"""Shelly devices: units that the user or a role defines, codes of its integrations, and sensors that it relays."""

import pytest

from tests.support.presets import Shown


# home-assistant/core 00bd63c0, components/shelly/sensor.py: xfreq in the user's unit; energy of an object in kWh, not Wh.
def test_shelly_gives_no_unit_to_what_the_user_or_a_role_defines(shown: Shown) -> None:
    params = {
        "ts": 1757060280.21,
        "input:2": {"id": 2, "counts": {"total": 10, "xtotal": 2.5}, "freq": 0.5, "xfreq": 30.0, "xpercent": 5.0},
        "object:100": {
            "id": 100,
            "value": {"total_act_energy": 3.5, "total_power": 1.2, "phase_a": {"voltage": 230.1}},
        },
    }
    message = {"src": "shellyuni-aabb", "dst": "uni/events", "method": "NotifyStatus", "params": params}
    wanted = {
        "uni|input:2.counts.total 10.0", "uni|input:2.counts.xtotal 2.5", "uni|input:2.freq 0.5 Hz",
        "uni|input:2.xfreq 30.0", "uni|input:2.xpercent 5.0", "uni|object:100.value.total_act_energy 3.5",
        "uni|object:100.value.total_power 1.2", "uni|object:100.value.phase_a.voltage 230.1",
    }  # fmt: skip
    at = " @2025-09-05T08:18:00.21"
    assert set(shown("uni/events/rpc", message)) == {line + at for line in wanted}
    ours = {line for line in wanted if line.startswith("uni|input:2.")}
    assert set(shown("uni/status/input:2", params["input:2"])) == ours
    assert set(shown("uni/status/object:100", params["object:100"])) == wanted - ours


def test_shelly_thermostats_and_valves_have_their_units(shown: Shown) -> None:
    thermostat = {"id": 0, "target_C": 23.0, "current_C": 12.3}
    assert shown("t/status/thermostat:0", thermostat) == [
        "t|thermostat:0.target_C 23.0 °C",
        "t|thermostat:0.current_C 12.3 °C",
    ]
    valve = {"id": 200, "pos": 30, "battery": 88, "rssi": -60, "current_C": 20.1}
    assert shown("t/status/blutrv:200", valve) == [
        "t|blutrv:200.pos 30.0 %", "t|blutrv:200.battery 88.0 %", "t|blutrv:200.rssi -60.0 dBm",
        "t|blutrv:200.current_C 20.1 °C",
    ]  # fmt: skip


# Same source: the integration takes -1 of a light, battery or energy counter for none; adc is in V.
@pytest.mark.parametrize("topic", ["sensor/lux", "sensor/battery", "emeter/0/total", "emeter/2/total_returned"])
def test_shelly_minus_one_is_no_measurement(shown: Shown, topic: str) -> None:
    assert shown(f"shellies/shelly-x/{topic}", "-1") == ["-no_value"]
    assert len(shown(f"shellies/shelly-x/{topic}", "1")) == 1


def test_shelly_adc_is_in_volts(shown: Shown) -> None:
    assert shown("shellies/shellyuni-98CDAC/adc/0", "12.05") == ["shellyuni-98CDAC|adc/0 12.05 V"]


# ALLTERCO/shelly-script-examples 22e1a823, ble/ble-shelly-blu.shelly.js: an event of the relaying Shelly.
def test_shelly_blu_in_an_event_is_the_sensors_reading(shown: Shown) -> None:
    data = {
        "encryption": False, "BTHome_version": 2, "pid": 118, "battery": 100, "temperature": 21.4, "humidity": 41,
        "atm. pressure": 1001.2, "capacitor voltage": 2.5, "wind speed": [2.5, 3.5], "wind direction": -305.36,
        "dew point": 654.86, "precipitation": 1.5, "rssi": -76, "address": "bc:02:6e:c3:ce:cc", "model": "SBHT-003C",
    }  # fmt: skip
    event = {"component": "script:1", "id": 1, "event": "shelly-blu", "data": data, "ts": 1684315357.98}
    message = {"src": "shellyplus1-aa", "method": "NotifyEvent", "params": {"ts": 1684315357.98, "events": [event]}}
    wanted = [
        "battery 100.0 %", "temperature 21.4 °C", "humidity 41.0 %", "atm. pressure 1001.2 hPa", "capacitor voltage 2.5 V",
        "wind speed[0] 2.5 m/s", "wind speed[1] 3.5 m/s", "precipitation 1.5 mm", "rssi -76.0 dBm",
    ]  # fmt: skip
    at = " @2023-05-17T09:22:37.98"
    assert shown("hall/events/rpc", message) == [f"bc:02:6e:c3:ce:cc|{line}{at}" for line in wanted]
    assert shown("shellies/hall/events/rpc", message) == [f"bc:02:6e:c3:ce:cc|{line}{at}" for line in wanted]
    button = {"component": "input:0", "id": 0, "event": "single_push", "ts": 1684315357.98}
    assert shown("hall/events/rpc", {**message, "params": {"ts": 1684315357.98, "events": [button]}}) == ["-status"]


# Same repository, ble/universal-blu-to-mqtt.shelly.js: the topic is the sensor's address alone.
def test_shelly_blu_on_its_address_alone(shown: Shown) -> None:
    address = "0c:ef:f6:f1:45:b4"
    inner = {
        "encryption": False,
        "BTHome_version": 2,
        "pid": 12,
        "battery": 100,
        "distance_mm": 812,
        "temperature": 21.4,
    }
    message = {"addr": address, "rssi": -61, "local_name": "SBDI-003E", "service_data": inner}
    wanted = ["rssi -61.0 dBm", "battery 100.0 %", "distance_mm 812.0 mm", "temperature 21.4 °C"]
    assert shown(address, message) == [f"{address}|{line}" for line in wanted]
    [refused] = shown("aa:aa:aa:aa:aa:aa", message)
    assert refused.startswith("!")
