"""Samples read from the documentation or the source of each system, with the place; units and scales count most."""

import json
from typing import Any

import pytest

from tests.support.presets import Shown

# docs.enocean.cloud, "Sensor telemetry"; iotconnector-docs.readthedocs.io, "MQTT API".
MULTISENSOR = {
    "sensor": {"friendlyId": "Multisensor 1", "id": "04138bb4", "location": "Cloud center"},
    "telemetry": {
        "data": [
            {"key": "temperature", "value": 23.9, "unit": "°C"},
            {"key": "humidity", "value": 29.0, "unit": "%"},
            {"key": "illumination", "value": 67.0, "unit": "lx"},
            {"key": "accelerationStatus", "value": "heartbeat", "meaning": "Heartbeat"},
            {"key": "accelerationX", "value": -0.13, "unit": "g"},
            {"key": "contact", "value": "open", "meaning": "Window opened"},
        ],
        "signal": [],
        "meta": {"stats": [{"egressTime": "1611927479.169171", "notProcessed": 0, "totalTelegramCount": 6}]},
    },
    "raw": {
        "data": "d29fce800863b502a620", "sender": "04138bb4", "status": "80", "subTelNum": 0, "destination": "ffffffff",
        "rssi": 77, "securityLevel": 0, "timestamp": "1611927479.166352",
    },
}  # fmt: skip
PTM215 = {
    "sensor": {"friendlyId": "switch1", "id": "feee14ab", "location": "Entrance"},
    "telemetry": {
        "data": [[{"key": "energybow", "value": "released", "meaning": "Energy Bow released"}]],
        "signal": [],
        "meta": {"security": [], "sensorHealth": [], "stats": [{"egressTime": "1611927462.4711452"}]},
    },
    "raw": {"data": "f600", "sender": "feee14ab", "status": "20", "rssi": 71, "timestamp": "1611927462.469978"},
}
ENOCEAN_AT = "@2021-01-29T13:37:59.166352"


def test_the_enocean_iot_connector_gives_its_values_with_units_and_the_telegrams_time(shown: Shown) -> None:
    assert shown("sensor/04138bb4/telemetry", MULTISENSOR) == [
        f"04138bb4|{text} {ENOCEAN_AT}"
        for text in (
            "temperature 23.9 °C", "humidity 29.0 %", "illumination 67.0 lx", "accelerationStatus heartbeat",
            "accelerationX -0.13 g", "contact open", "rssi -77.0 dBm",
        )
    ]  # fmt: skip
    assert shown("sensor/feee14ab/telemetry", PTM215) == [
        "feee14ab|energybow released @2021-01-29T13:37:42.469978", "feee14ab|rssi -71.0 dBm @2021-01-29T13:37:42.469978",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "payload", "wanted"),
    [
        ("sensor/04138bb4/meta/stats/", {"lastSeen": "1619210854", "totalTelegramCount": 1057}, ["-status"]),
        ("gateway/24f27f551bf4/meta/event/", {"event": "x"}, ["-status"]),
        ("device/04138bb4/rpc/command", {"x": 1}, ["!no_route"]),
        ("sensor/kitchen/telemetry", {"t": 21}, ["!no_route"]),
    ],
)
def test_what_else_is_on_topics_like_those_of_the_iot_connector(
    shown: Shown, topic: str, payload: object, wanted: list[str]
) -> None:
    assert shown(topic, payload) == wanted


# home-assistant/core, tests/components/mqtt_eventstream/test_init.py (0a6bd86) and mqtt_statestream/__init__.py (1089b41):
# the two ways by which ZHA's entities reach MQTT. zha_event: xaviml/controllerx#14.
CHANGED = {
    "event_type": "state_changed",
    "event_data": {
        "entity_id": "sensor.office_temperature",
        "old_state": None,
        "new_state": {
            "entity_id": "sensor.office_temperature", "state": "21.53", "last_changed": "2020-01-22T01:14:32.409810+00:00",
            "last_updated": "2020-01-22T01:14:32.409810+00:00", "context": {"id": "c", "parent_id": None, "user_id": None},
            "attributes": {"state_class": "measurement", "unit_of_measurement": "°C", "device_class": "temperature"},
        },
    },
}  # fmt: skip
BUTTON = {
    "event_type": "zha_event",
    "event_data": {
        "unique_id": "00:0b:57:ff:fe:2c:37:f0:1:0x0008", "device_ieee": "00:0b:57:ff:fe:2c:37:f0", "endpoint_id": 1,
        "cluster_id": 8, "command": "move_with_on_off", "args": [0, 195],
    },
}  # fmt: skip


def _state(state: str) -> dict[str, Any]:
    changed = json.loads(json.dumps(CHANGED))
    changed["event_data"]["new_state"]["state"] = state
    changed["event_data"]["new_state"]["attributes"].pop("unit_of_measurement")
    return dict(changed)


@pytest.mark.parametrize(
    ("topic", "payload", "wanted"),
    [
        ("ha/events", CHANGED, ["sensor.office_temperature|state 21.53 °C @2020-01-22T01:14:32.40981"]),
        ("ha/events", _state("on"), ["sensor.office_temperature|state on @2020-01-22T01:14:32.40981"]),
        ("ha/events", _state("unavailable"), ["-no_value"]),
        ("ha/events", BUTTON, ["00:0b:57:ff:fe:2c:37:f0|command move_with_on_off"]),
        (
            "ha/events",
            {"event_type": "state_changed", "event_data": {"entity_id": "sensor.x", "new_state": None}},
            ["-status"],
        ),
        ("ha/events", {"event_type": "call_service", "event_data": {"domain": "light"}}, ["-status"]),
        ("homeassistant/sensor/office_temperature/state", "21.53", ["sensor.office_temperature|state 21.53"]),
        ("homeassistant/sensor/office_temperature/last_updated", "2020-01-22T01:14:32.409810+00:00", ["-metadata"]),
        ("homeassistant/sensor/office_temperature/unit_of_measurement", '"°C"', ["-metadata"]),
    ],
)
def test_what_zha_measures_through_home_assistant(shown: Shown, topic: str, payload: object, wanted: list[str]) -> None:
    assert shown(topic, payload) == wanted


@pytest.mark.parametrize(
    ("topic", "payload", "wanted"),
    [
        # openremote/fleet-management, test/src/test/resources/teltonika (813b91f): two firmwares, numbers and text.
        ("352093081234567/data",
         {"state": {"reported": {"ts": 1698922776030, "latlng": "54.666042,25.225031", "alt": "112", "ang": "207", "sat": "9",
                                 "sp": "36", "pr": 1, "evt": 250, "113": 100, "199": 12, "18": -11, "24": 36}}},
         [f"352093081234567|{text} @2023-11-02T10:59:36.03" for text in (
             "latitude 54.666042 °", "longitude 25.225031 °", "altitude 112.0 m", "angle 207.0 °", "satellites 9.0",
             "speed 36.0 km/h", "battery_level 100.0 %", "trip_odometer 12.0 m", "axis_y -11.0 mg", "24 36.0")]),
        # deployment/manager/fleet/FMC003.json there: the wiki's table of AVL ids.
        ("352093081234567/data",
         {"state": {"reported": {"ts": 1698922776030, "latlng": "0,0", "alt": "0", "ang": "0", "sat": "0", "sp": "0", "25": 2000,
                                 "26": 32767, "86": 455, "104": 32735, "72": 850, "73": -55, "181": 12}}},
         [f"352093081234567|{text} @2023-11-02T10:59:36.03" for text in (
             "satellites 0.0", "ble_temperature_1 20.0 °C", "ble_humidity_1 45.5 %", "dallas_temperature_2 -5.5 °C", "pdop 1.2")]
         + [f'!bad_number $.state.reported["{name}"]' for name in ("26", "104", "72")]),
        # telefonicaid/iotagent-json, docs/usermanual.md (73d1e0f).
        ("/json/ABCDEF/id_sen1/attrs/h",
         [{"timestamp": "2025-01-26T12:00:00Z", "value": 44}, {"timestamp": "2025-01-27T09:00:00Z", "value": 33}],
         ["id_sen1|h 44.0 @2025-01-26T12:00:00", "id_sen1|h 33.0 @2025-01-27T09:00:00"]),
        ("/json/ABCDEF/id_sen1/attrs/h", "70", ["id_sen1|h 70.0"]),
        ("/json/ABCDEF/id_sen1/attrs",
         {"id": "MyEntityId1", "type": "MyEntityType1", "attr1": {"type": "Number", "value": 21.5, "metadata": {
             "TimeInstant": {"type": "DateTime", "value": "2023-11-17T11:59:22.661Z"}}}},
         ["id_sen1|attr1 21.5 @2023-11-17T11:59:22.661"]),
        ("/json/ABCDEF/id_sen1/attrs",
         {"actionType": "append", "entities": [{"id": "E", "type": "T", "attr1": {"type": "Number", "value": 21.5}}]},
         ["id_sen1|attr1 21.5"]),
        ("/json/ABCDEF/id_sen1/cmdexe", {"ping": "1234567890"}, ["-command"]),
        # telefonicaid/iotagent-ul, docs/usermanual.md (ccafe90).
        ("/ul/ABCDEF/id_sen1/attrs", "h|70|t|15", ["id_sen1|h 70.0", "id_sen1|t 15.0"]),
        ("/ul/ABCDEF/id_sen1/attrs/h", "70", ["id_sen1|h 70.0"]),
        ("/ul/ABCDEF/id_sen1/cmdexe", "weatherStation167@ping|Ping ok", ["-command"]),
        ("/ABCDEF/device_1/configuration/values", "device_1@configuration|pollingInterval=200|dt=20190626T154200Z", ["-command"]),
        # adafruit/Adafruit_IO_Documentation, source/includes/mqtt (cda4c3e).
        ("mosfet/feeds/photocell-one",
         {"value": {"sensor-1": 22.587, "sensor-2": 13.182}, "lat": 38.1123, "lon": -91.2325, "ele": 112},
         ["mosfet|photocell-one.sensor-1 22.587", "mosfet|photocell-one.sensor-2 13.182", "mosfet|photocell-one.lat 38.1123 °",
          "mosfet|photocell-one.lon -91.2325 °", "mosfet|photocell-one.ele 112.0 m"]),
        ("mosfet/groups/w", "key-1,1\nkey-2,2\nlocation,0.5,1.5,2.5", ["mosfet/w|key-1 1.0", "mosfet/w|key-2 2.0"]),
        ("mosfet/groups/w", {"feeds": {"key-1": "1", "key-2": 2}, "location": {"lat": 0.5, "lon": 1.5, "ele": 2.5}},
         ["mosfet/w|key-1 1.0", "mosfet/w|key-2 2.0"]),
        # support.sigfox.com, "Data advanced" and "Uplink".
        ("sigfox", {"device": "1A2345", "time": 1476980426, "data": "9202", "seqNumber": 1492, "lqi": "GOOD", "linkQuality": 2,
                    "fixedLat": 43.5, "fixedLng": 1.4, "operatorName": "SIGFOX_France", "countryCode": 250,
                    "duplicates": [{"bsId": "1B9A", "rssi": -116.0, "nbRep": 3, "snr": 15.2}],
                    "computedLocation": {"lat": 43.54, "lng": 1.5, "radius": 7892, "source": 2, "status": 1}},
         [f"1A2345|{text} @2016-10-20T16:20:26" for text in (
             "lqi GOOD", "linkQuality 2.0", "computedLocation.lat 43.54 °", "computedLocation.lng 1.5 °",
             "computedLocation.radius 7892.0 m")]),
        # dresden-elektronik/deconz-rest-doc, docs/endpoints/websocket and sensors (12daa45).
        ("deconz/event", {"e": "changed", "id": "1", "r": "lights", "state": {"bri": 1, "on": True, "x": 65279}, "t": "event",
                          "uniqueid": "00:0b:57:ff:fe:9a:46:ab-01"},
         ["00:0b:57:ff:fe:9a:46:ab-01|bri 1.0", "00:0b:57:ff:fe:9a:46:ab-01|on true", "00:0b:57:ff:fe:9a:46:ab-01|x 65279.0"]),
        ("deconz/event", {"e": "changed", "id": "5", "r": "sensors", "t": "event", "uniqueid": "00:0d:6f:00:10:65:8a:6e-01-1000",
                          "state": {"buttonevent": 2002, "lastupdated": "2019-03-15T20:16:30"}},
         ["00:0d:6f:00:10:65:8a:6e-01-1000|buttonevent 2002.0 @2019-03-15T20:16:30"]),
        ("deconz/event", {"e": "changed", "id": "7", "r": "sensors", "t": "event",
                          "state": {"floortemperature": 2305, "temperature": 2150, "lastupdated": "2019-03-15T20:16:30"}},
         ["sensors/7|floortemperature 23.05 °C @2019-03-15T20:16:30", "sensors/7|temperature 21.5 °C @2019-03-15T20:16:30"]),
        ("deconz/event", {"e": "scene-called", "gid": "0", "r": "scenes", "scid": "2", "t": "event"}, ["-metadata"]),
        # Zigbee2MQTT before 2.0, pages of devices: "Illuminance (numeric): raw measured illuminance", beside illuminance_lux.
        ("zigbee2mqtt/hall", {"battery": 98, "voltage": 2985, "illuminance": 20001, "illuminance_lux": 100},
         ["hall|battery 98.0 %", "hall|voltage 2985.0 mV", "hall|illuminance 20001.0", "hall|illuminance_lux 100.0 lx"]),
        ("zigbee2mqtt/hall", {"occupancy": True, "illuminance": 100}, ["hall|occupancy true", "hall|illuminance 100.0 lx"]),
        # arendst/Tasmota, xdrv_23_zigbee: Illuminance is the cluster's MeasuredValue, a logarithm for most devices.
        ("tele/bridge/SENSOR", {"ZbReceived": {"0x1A2B": {"Name": "hall", "Illuminance": 20001, "Temperature": 21.5}}},
         ["hall|Illuminance 20001.0", "hall|Temperature 21.5 °C"]),
        # merbanan/rtl_433, src/devices/ikea_sparsnas.c and hanwell_ml4000.c (91b2ebd).
        ("rtl_433/h/events",
         {"time": "2026-01-01T12:00:00Z", "model": "Ikea-Sparsnas", "id": 1, "power_W": 500, "pulses_per_kWh": 1000},
         ["Ikea-Sparsnas/1|power_W 500.0 W @2026-01-01T12:00:00", "Ikea-Sparsnas/1|pulses_per_kWh 1000.0 @2026-01-01T12:00:00"]),
        ("rtl_433/h/events", {"time": "2026-01-01T12:00:00Z", "model": "Hanwell", "id": 1, "humidity_raw": 500},
         ["Hanwell/1|humidity_raw 500.0 @2026-01-01T12:00:00"]),
        # lumapu/ahoy, src/publisher/pubMqttIvData.h and hm/hmDefines.h (c4fe30f).
        ("inverter/HM-800/ch0", {"U_AC": 233.3, "MaxTemp": 61.5, "YieldTotal": 149.36, "ts": 1732795200},
         ["HM-800|ch0.U_AC 233.3 V @2024-11-28T12:00:00", "HM-800|ch0.MaxTemp 61.5 °C @2024-11-28T12:00:00",
          "HM-800|ch0.YieldTotal 149.36 kWh @2024-11-28T12:00:00"]),
        ("inverter/HM-800/active_PowerLimit", "80", ["HM-800|active_PowerLimit 80.0 %"]),
        ("inverter/HM-800/ch0/active_PowerLimit", "80", ["HM-800|ch0.active_PowerLimit 80.0 %"]),
        ("inverter/HM-800/rssi", "-62", ["HM-800|rssi -62.0 dBm"]),
        ("inverter/HM-800/radio_stat", {"tx": 5, "success": 4}, ["-status"]),
        ("inverter/HM-800/hardware", {"part": 269557, "version": "256"}, ["-metadata"]),
        ("inverter/HM-800/alarm/cnt", "2", ["-status"]),
        ("inverter/cpu_temp", "41.5", ["ahoy|cpu_temp 41.5 °C"]),
        # tbnobody/OpenDTU, src/MqttHandleDtu.cpp, MqttHandleInverter.cpp and StatisticsParser.h (b6f0353).
        ("solar/dtu/heap/free", "112000", ["dtu|heap.free 112000.0 B"]),
        ("solar/116100000001/radio/rssi", "-70", ["116100000001|radio.rssi -70.0 dBm"]),
        ("solar/116100000001/radio/tx_request", "17", ["116100000001|radio.tx_request 17.0"]),
        ("solar/116100000001/0/voltage ph1-n", "231.2", ["116100000001|0.voltage ph1-n 231.2 V"]),
        ("solar/116100000001/0/current ph1", "1.2", ["116100000001|0.current ph1 1.2 A"]),
        ("solar/dtu/status", "online", ["-status"]),
    ],
)  # fmt: skip
def test_documented_messages(shown: Shown, topic: str, payload: object, wanted: list[str]) -> None:
    assert shown(topic, payload) == wanted


def test_a_position_of_meshtastic_has_no_unit_that_its_senders_disagree_on(shown: Shown) -> None:
    """Firmware sends km/h (src/gps/GPS.cpp, 7754068), phones and the protocol's comment m/s; track and HDOP are scaled."""
    position = {
        "latitude_i": 341049344, "longitude_i": -1176240128, "altitude": 417, "ground_speed": 12, "ground_track": 18_000_000,
        "HDOP": 120, "VDOP": 150, "PDOP": 190, "time": 1732795100, "timestamp": 1732795100, "precision_bits": 32,
    }  # fmt: skip
    body = {"from": 1, "id": 5, "type": "position", "timestamp": 1732795200, "sender": "!7efeee00", "payload": position}
    assert shown("msh/2/json/LongFast/!7efeee00", body) == [
        f"1|{text} @2024-11-28T12:00:00" for text in (
            "latitude 34.1049344 °", "longitude -117.6240128 °", "altitude 417.0 m", "ground_speed 12.0", "HDOP 1.2", "VDOP 1.5",
        )
    ]  # fmt: skip


def test_the_newer_sensors_of_meshtastic_have_their_units(shown: Shown) -> None:
    """src/mesh/generated/meshtastic/telemetry.pb.h (7754068)."""
    values = {
        "radiation": 0.13,
        "soil_temperature": 18.54,
        "soil_moisture": 85,
        "rainfall_1h": 2.57,
        "co2_humidity": 40.5,
    }
    body = {"from": 1, "id": 5, "type": "telemetry", "timestamp": 1732795200, "sender": "!7efeee00", "payload": values}
    assert shown("msh/2/json/LongFast/!7efeee00", body) == [
        f"1|{text} @2024-11-28T12:00:00" for text in (
            "radiation 0.13 µR/h", "soil_temperature 18.54 °C", "soil_moisture 85.0 %", "rainfall_1h 2.57 mm",
            "co2_humidity 40.5 %",
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "payload", "wanted"),
    [
        # theengs/decoder, src/devices/TPMS_json.h, JQJCY01YM_json.h and another with hPa (d6fdd20).
        ("home/OMG/BTtoMQTT/80EACA10E7CE", {"id": "80:EA:CA:10:E7:CE", "model_id": "TPMS", "pres": 2.34, "tempc": 20.1},
         ["80:EA:CA:10:E7:CE|pres 2.34 bar", "80:EA:CA:10:E7:CE|tempc 20.1 °C"]),
        ("home/OMG/BTtoMQTT/80EACA10E7CE", {"id": "80:EA:CA:10:E7:CE", "model_id": "RuuviTag_RAWv1", "pres": 1027.66},
         ["80:EA:CA:10:E7:CE|pres 1027.66 hPa"]),
        ("home/OMG/BTtoMQTT/80EACA10E7CE", {"id": "80:EA:CA:10:E7:CE", "model_id": "JQJCY01YM", "for": 0.02, "tempc": 21.0},
         ["80:EA:CA:10:E7:CE|for 0.02 mg/m³", "80:EA:CA:10:E7:CE|tempc 21.0 °C"]),
        # Matter 1.4 Application Cluster Specification 4.3: Thermostat holds temperatures in hundredths of a degree.
        ("matter/node/4/1/513/0", "2150", ["matter/4|1.513.0 21.5 °C"]),
        ("matter/4/1/Thermostat/localTemperature", "2150", ["matter/4|1.Thermostat.localTemperature 21.5 °C"]),
        ("matter/4/1/thermostat/occupiedHeatingSetpoint", "2000", ["matter/4|1.thermostat.occupiedHeatingSetpoint 20.0 °C"]),
        ("matter/node/4/1/513/0", "-32768", ["!bad_number"]),
        ("matter/node/4/1/513/28", "4", ["matter/4|1.513.28 4.0"]),
    ],
)  # fmt: skip
def test_units_that_depend_on_the_model(shown: Shown, topic: str, payload: object, wanted: list[str]) -> None:
    assert shown(topic, payload) == wanted


# decentlab/decentlab-decoders ae766f03, DL-ATM41G2/DL-ATM41G2.js: its count has the unit "None".
def test_decentlab_unit_none_is_none(shown: Shown) -> None:
    fields = {
        "protocol_version": 2, "device_id": 4586,
        "solar_radiation": {"displayName": "Solar radiation", "value": 0, "unit": "W⋅m⁻²"},
        "lightning_strike_count": {"displayName": "Lightning strike count", "value": 3, "unit": "None"},
    }  # fmt: skip
    uplink = {
        "end_device_ids": {"device_id": "atm41", "dev_eui": "70B3D57BA0001192"},
        "received_at": "2024-05-06T08:00:00Z",
        "uplink_message": {"f_port": 1, "f_cnt": 7, "decoded_payload": fields, "received_at": "2024-05-06T08:00:00Z"},
    }
    lines = shown("v3/app@ttn/devices/atm41/up", uplink)
    at = " @2024-05-06T08:00:00"
    assert f"atm41|solar_radiation 0.0 W⋅m⁻²{at}" in lines
    assert f"atm41|lightning_strike_count 3.0{at}" in lines


# Koenkk/zigbee-herdsman-converters df720053: fromZigbee.ts gives hPa, modernExtend.ts pressure() kPa, avatto.ts mA, tuya.ts %.
@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        ({"pressure": 1006.1, "battery": 97, "voltage": 3005}, ["pressure 1006.1 hPa", "battery 97.0 %", "voltage 3005.0 mV"]),
        ({"pressure": 650}, ["pressure 650.0 hPa"]),
        ({"pressure": 101.3, "temperature": 20.5}, ["pressure 101.3 kPa", "temperature 20.5 °C"]),
        ({"pressure": 98, "battery": 97, "voltage": 3000}, ["pressure 98.0 kPa", "battery 97.0 %", "voltage 3000.0 mV"]),
        (
            {"pressure": 98.55, "illuminance": 9000, "illuminance_lux": 8},
            ["pressure 98.55 kPa", "illuminance 9000.0", "illuminance_lux 8.0 lx"],
        ),
        (
            {"current": 420, "voltage": 230.1, "power": 96.5, "energy": 1.5, "total_switch_on_time": 30},
            ["current 420.0 mA", "voltage 230.1 V", "power 96.5 W", "energy 1.5 kWh", "total_switch_on_time 30.0"],
        ),
        (
            {"position": 40, "work_state": "standby", "illuminance": 70},
            ["position 40.0 %", "work_state standby", "illuminance 70.0 %"],
        ),
        (
            {"action_color_temperature": 370, "color_temperature": 250},
            ["action_color_temperature 370.0 mired", "color_temperature 250.0 mired"],
        ),
        (
            {"regulator_setpoint": 40, "temperature_f_setpoint": 70},
            ["regulator_setpoint 40.0 %", "temperature_f_setpoint 70.0 °F"],
        ),
        ({"raw_temperature": 1234, "floor_temperature": 24.5}, ["raw_temperature 1234.0", "floor_temperature 24.5 °C"]),
    ],
)  # fmt: skip
def test_zigbee2mqtt_units_are_those_of_its_converters(shown: Shown, payload: object, wanted: list[str]) -> None:
    assert shown("zigbee2mqtt/room", payload) == [f"room|{line}" for line in wanted]


# emontnemery/hatasmota 0316c85e, sensor.py: reactive energy is in kvarh; TX23's speeds in SpeedUnit.
def test_tasmota_reactive_energy_and_wind(shown: Shown) -> None:
    energy = {
        "Total": 0.017,
        "ExportActive": 0.5,
        "ExportReactive": 39.131,
        "ImportActive": 12.58,
        "ImportReactive": 0.002,
        "PhaseAngle": 290.45,
    }
    wind = {"Speed": {"Act": 14.8}, "Dir": {"Deg": 247.5}}
    lines = shown("tele/meter/SENSOR", {"ENERGY": energy, "TX23": wind, "SpeedUnit": "km/h"})
    assert lines == [
        "meter|ENERGY.Total 0.017 kWh", "meter|ENERGY.ExportActive 0.5 kWh", "meter|ENERGY.ExportReactive 39.131 kvarh",
        "meter|ENERGY.ImportActive 12.58 kWh", "meter|ENERGY.ImportReactive 0.002 kvarh", "meter|ENERGY.PhaseAngle 290.45 °",
        "meter|TX23.Speed.Act 14.8 km/h", "meter|TX23.Dir.Deg 247.5 °",
    ]  # fmt: skip


# eclipse-ditto/ditto 4e35768, protocol-specification-things-create-or-modify.md: paths of properties are JSON pointers.
@pytest.mark.parametrize(("path", "metric"), [("a", "a"), ("a/b", "a.b"), ("a/b/c", "a.b.c"), ("a/b/c/d", "a.b.c.d")])
def test_ditto_takes_deep_paths_of_properties(shown: Shown, path: str, metric: str) -> None:
    event = {
        "topic": "org.eclipse.ditto/fancy-thing/things/twin/events/modified",
        "path": f"/features/accelerometer/properties/{path}",
        "value": 42,
        "revision": 1,
        "timestamp": "2017-11-03T08:25:03.451Z",
    }
    found = f"org.eclipse.ditto:fancy-thing|accelerometer.{metric} 42.0 @2017-11-03T08:25:03.451"
    assert shown("ditto", event) == [found]
