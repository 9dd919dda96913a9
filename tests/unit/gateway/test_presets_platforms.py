"""Shipped presets of platforms, gateways and meters beyond the example payloads: what is not a reading, identity, faults."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.contract.topics import READINGS

NOW_US = 1_800_000_000_000_000
LIMITS = GatewaySettings()
DEVICE = "devices/d/messages/events/x"


@pytest.fixture(scope="module")
def decide() -> Callable[..., Outcome]:
    """Decide on a message under the shipped presets; the routes that formats without own topics need stand before."""
    own = [
        {"filter": "grid/#", "mapping": "azure-event-grid"},
        {"filter": "plc/#", "mapping": "opcua"},
    ]
    gate = MessageProcessor(compile_routes(tuple(RouteSettings.model_validate(route) for route in own), LIMITS), LIMITS)

    def decide(topic: str, payload: object) -> Outcome:
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return gate.decide(Message(1, 1, NOW_US, topic.encode(), raw))

    return decide


def records(outcome: Outcome) -> list[ReadingRecord]:
    return [decode_record(record.value) for record in outcome.records if record.topic == READINGS]


def letters(outcome: Outcome) -> list[DeadLetterRecord]:
    return [decode_dead_letter(record.value) for record in outcome.records if record.topic != READINGS]


def shown(outcome: Outcome) -> dict[str, Any]:
    """`device|metric` to value (or text) with its unit."""
    found: dict[str, Any] = {}
    for record in records(outcome):
        for reading in record.readings:
            value = reading.value if reading.text is None else reading.text
            found[f"{record.device}|{reading.metric}"] = value if reading.unit is None else f"{value} {reading.unit}"
    return found


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        ("owntracks/j/p", {"_type": "lwt", "tst": 1}, "status"),
        ("owntracks/j/p/waypoints", {"_type": "waypoints", "waypoints": []}, "metadata"),
        ("owntracks/j/p/cmd", {"_type": "cmd", "action": "dump"}, "command"),
        ("N/c0/heartbeat", {"value": 1_700_000_000}, "status"),
        ("N/c0/grid/30/ProductName", {"value": "Meter"}, "metadata"),
        ("N/c0/grid/30/Ac/L1/Power", {"value": None}, "no_value"),
        ("R/c0/grid/30/Ac/Power", b" ", "command"),
        ("W/c0/settings/0/Settings/X", {"value": 1}, "command"),
        ("v1/devices/me/attributes", {"firmware": 7}, "metadata"),
        ("v1/devices/me/rpc/request/1", {"method": "x"}, "command"),
        ("v1/gateway/connect", {"device": "A"}, "status"),
        ("v1/gateway/attributes", {"A": {"x": 1}}, "metadata"),
        ("v1/gateway/rpc", {"device": "A", "id": 1}, "command"),
        ("$aws/things/t/shadow/update", {"state": {"desired": {"valve": "open"}}}, "command"),
        ("$aws/things/t/shadow/update/accepted", {"state": {"reported": {"a": 1}}}, "echo"),
        ("$aws/things/t/shadow/name/n/update/documents", {"current": {}}, "echo"),
        ("$aws/things/t/shadow/update/delta", {"state": {"a": 1}}, "command"),
        ("$aws/things/t/shadow/name/n/get/accepted", {"state": {"reported": {"a": 1}}}, "command"),
        ("$aws/things/t/jobs/notify", {"jobs": {}}, "command"),
        ("$aws/events/presence/connected/t", {"clientId": "t"}, "status"),
        ("devices/d/messages/devicebound/x", {"a": 1}, "command"),
        ("$iothub/twin/res/200/?$rid=1", {"a": 1}, "command"),
        ("grid/x", [{"eventType": "Microsoft.Devices.DeviceConnected", "data": {"deviceId": "d"}}], "status"),
        ("opcua/json/metadata/p/w", {"MessageType": "ua-metadata"}, "metadata"),
        ("opcua/json/status/p", {"MessageType": "ua-status"}, "status"),
        ("plc/x", {"MessageType": "ua-metadata", "MetaData": {"Fields": [{"Name": "a"}]}}, "metadata"),
        ("plc/x", {"MessageType": "ua-data", "Messages": []}, "no_value"),
        ("ruuvi/AA:BB:CC:00:00:01/gw_status", {"state": "online"}, "status"),
        ("livingroom/status", b"offline", "status"),
        ("livingroom/debug", b"[W][wifi:123]: lost 3.5", "status"),
        ("livingroom/switch/pump/command", b"ON", "command"),
        ("homeassistant/status", b"online", "status"),
        ("homeassistant/sensor/x/friendly_name", b'"Kitchen"', "metadata"),
        ("homeassistant/sensor/node/x/config", {"name": "x", "unit_of_measurement": "W"}, "metadata"),
        ("$EDC/acme/gw-1/MQTT/BIRTH", b"\x08\x01", "status"),
    ],
)
def test_what_is_no_reading_is_ignored_by_rule(
    decide: Callable[..., Outcome], topic: str, payload: object, reason: str
) -> None:
    outcome = decide(topic, payload)
    assert (outcome.ignored, outcome.records) == (reason, [])


@pytest.mark.parametrize(
    ("topic", "payload", "wanted"),
    [
        (
            "owntracks/j/p",
            {"_type": "location", "lat": 0.0, "lon": -1.5, "vel": 3, "cog": 90, "tst": 1_700_000_000, "m": 1, "t": "u"},
            {"j/p|lat": "0.0 °", "j/p|lon": "-1.5 °", "j/p|vel": "3.0 km/h", "j/p|cog": "90.0 °"},
        ),
        ("N/c0/battery/5/Dc/0/Voltage", {"value": 52.1, "max": 60}, {"c0/battery/5|Dc/0/Voltage": "52.1 V"}),
        ("N/c0/system/0/Dc/Battery/Soc", {"value": 0}, {"c0/system/0|Dc/Battery/Soc": "0.0 %"}),
        ("N/c0/grid/30/Ac/Energy/Forward", {"value": 1.5}, {"c0/grid/30|Ac/Energy/Forward": "1.5 kWh"}),
        (
            "v1/gateway/telemetry",
            {"A": [{"ts": 1_700_000_000_000, "values": {"t": 1}}], "B": [{"t": 2}, {"ts": 1_700_000_000_000, "u": 3}]},
            {"A|t": 1.0, "B|t": 2.0, "B|u": 3.0},
        ),
        ("$aws/things/t/shadow/update", {"state": {"reported": {"a": {"b": 1}}, "desired": {"c": 2}}}, {"t|a.b": 1.0}),
        ("$aws/things/t/shadow/name/n/update", {"state": {"reported": {"a": False}}}, {"t|n.a": "false"}),
        (DEVICE, {"messageId": 4, "deviceId": "d", "a": {"b": 2.5}}, {"d|a.b": 2.5}),
        ("devices/d/messages/events", {"a": 1}, {"d|a": 1.0}),
        (
            "wmbusmeters/heat",
            {"media": "heat", "id": "00112233", "name": "heat", "total_kwh": 0, "set_date": "2024-01-01",
             "power_kw": 1.5, "status": "OK", "timestamp": "2024-02-08T09:07:22Z"},
            {"heat|total_kwh": "0.0 kWh", "heat|power_kw": "1.5 kW", "heat|status": "OK"},
        ),
        (
            "ruuvi/GW/history",
            {"data": {"tags": {"C0:FF:EE:00:00:02": {"timestamp": 1_700_000_000, "humidity": 0, "data": "0201", "id": "1",
                                                     "measurementSequenceNumber": 5, "dataFormat": 5, "accelX": 0.1}}}},
            {"C0:FF:EE:00:00:02|humidity": "0.0 %", "C0:FF:EE:00:00:02|accelX": "0.1 g"},
        ),
        ("livingroom/sensor/temp/state", b"-3.5", {"livingroom|temp": -3.5}),
        ("livingroom/binary_sensor/door/state", b"OFF", {"livingroom|door": "OFF"}),
        ("livingroom/light/lamp/state", {"state": "ON", "brightness": 128, "color_mode": "rgb", "color": {"r": 1}},
         {"livingroom|lamp.state": "ON", "livingroom|lamp.brightness": 128.0, "livingroom|lamp.color.r": 1.0}),
        ("homeassistant/binary_sensor/door/state", b"off", {"binary_sensor.door|state": "off"}),
        ("telegraf/h/cpu", {"name": "cpu", "tags": {}, "fields": {"idle": 99}, "timestamp": 1_700_000_000},
         {"h|cpu.idle": 99.0}),
        ("channels/1/messages", [{"n": "urn:dev:ow:1:temp", "v": 0}], {"urn:dev:ow:1|temp": 0.0}),
    ],
)  # fmt: skip
def test_readings_have_their_device_metric_and_unit(
    decide: Callable[..., Outcome], topic: str, payload: object, wanted: dict[str, Any]
) -> None:
    assert shown(decide(topic, payload)) == wanted


@pytest.mark.parametrize(
    ("topic", "payload", "reason", "wanted"),
    [
        ("v1/devices/me/telemetry", {"a": 1}, "no_route",
         "a route for this topic with device = …: `me` is an MQTT login, which no subscriber sees"),
        ("owntracks/j/p", {"_type": "encrypted", "data": "x"}, "undecoded", "a payload without OwnTracks encryption"),
        ("telegraf/h/x", {"a": 1}, "undecoded",
         "an object with name, tags, fields and timestamp, or `metrics`: an array of such objects"),
        ("plc/x", {"MessageType": "ua-data", "Messages": 5}, "undecoded", "Messages: an array of data set messages"),
        ("plc/x", {"a": 1}, "undecoded", "a network message with MessageType and Messages"),
        ("plc/x", {"MessageType": "ua-data", "Messages": [{"DataSetWriterId": 1, "Payload": {"a": 1}}]}, "missing_field",
         "a device id: {$.PublisherId}/{.DataSetWriterId}"),
        ("N/c0/grid/30/Ac/Power", b"936", "no_route", None),
    ],
)  # fmt: skip
def test_a_refusal_says_the_way_out(
    decide: Callable[..., Outcome], topic: str, payload: object, reason: str, wanted: str | None
) -> None:
    outcome = decide(topic, payload)
    [letter] = letters(outcome)
    assert (outcome.rejected, letter.reason) == (reason, reason)
    assert wanted is None or letter.wanted == wanted


EVENT = {"id": "e-1", "eventType": "Microsoft.Devices.DeviceTelemetry", "eventTime": "2023-11-14T22:13:21Z"}
SYSTEM = {"iothub-connection-device-id": "d1", "iothub-enqueuedtime": "2023-11-14T22:13:20Z"}


def test_event_grid_gives_each_event_its_device_time_and_identity(decide: Callable[..., Outcome]) -> None:
    one = {**EVENT, "data": {"body": {"t": 1}, "systemProperties": SYSTEM}}
    two = {**EVENT, "id": "e-2", "data": {"body": {"t": 2}, "systemProperties": SYSTEM}}
    [record] = records(decide("grid/x", [one, two]))
    assert record.device == "d1"
    found = [(x.value, x.message_id, x.index, x.time_us) for x in record.readings]
    assert found == [(1.0, "fm:e-1", 0, 1_700_000_000_000_000), (2.0, "fm:e-2", 0, 1_700_000_000_000_000)]
    # Sent again in another batch, an event is the same reading.
    [again] = records(decide("grid/x", [two]))
    assert [(x.value, x.message_id, x.index) for x in again.readings] == [(2.0, "fm:e-2", 0)]
    cloud = {"specversion": "1.0", "type": EVENT["eventType"], "id": "e-3", "data": one["data"]}
    assert shown(decide("grid/x", cloud)) == {"d1|t": 1.0}
    assert shown(decide("grid/x", [{**EVENT, "data": {"body": "eyJ0IjoxfQ==", "systemProperties": SYSTEM}}])) == {
        "d1|t": 1.0
    }
    [letter] = letters(decide("grid/x", [{**EVENT, "data": {"body": "aGVsbG8=", "systemProperties": SYSTEM}}]))
    assert letter.reason == "undecoded"


def test_opc_ua_values_of_bad_status_are_refused_and_uncertain_ones_kept(decide: Callable[..., Outcome]) -> None:
    fields = {
        "good": {"Value": 0, "StatusCode": {"Code": 0}},
        "uncertain": {"Value": 1, "StatusCode": {"Code": 0x40000000, "Symbol": "Uncertain"}},
        "bad": {"Value": 2, "StatusCode": {"Code": 0x80000000, "Symbol": "Bad"}},
        "bad_number": {"Value": [3], "StatusCode": 0x80310000},
        "no_value": {"StatusCode": {"Code": 0x80310000}, "ServerTimestamp": "2022-03-18T12:55:20Z"},
        "row": {"Value": [1, 2]},
        "raw": True,
    }
    message = {
        "DataSetWriterId": 7,
        "SequenceNumber": 3,
        "Timestamp": "2023-11-14T22:13:20.1234567Z",
        "Payload": fields,
    }
    outcome = decide("plc/x", {"MessageId": "m", "MessageType": "ua-data", "PublisherId": "p", "Messages": [message]})
    [record] = records(outcome)
    values = {x.metric: x.value for x in record.readings}
    assert values == {"good": 0.0, "uncertain": 1.0, "row.Value[0]": 1.0, "row.Value[1]": 2.0, "raw": 1.0}
    assert [letter.path for letter in letters(outcome)] == [
        f"$.Messages[0].Payload.{name}" for name in ("bad", "bad_number")
    ]
    assert {x.time_us for x in record.readings} == {1_700_000_000_123_456}
    assert {x.message_id for x in record.readings} == {"fm:m:3:2023-11-14T22:13:20.1234567Z"}


def test_a_batch_of_opc_ua_network_messages_is_read(decide: Callable[..., Outcome]) -> None:
    one = {"DataSetWriterId": "w", "SequenceNumber": 1, "Timestamp": "2023-11-14T22:13:20Z", "Payload": {"t": 1}}
    two = {**one, "SequenceNumber": 2, "Payload": {"t": 2}}
    batch = [
        {"MessageId": str(i), "MessageType": "ua-data", "PublisherId": "p", "Messages": [m]}
        for i, m in enumerate([one, two])
    ]
    [record] = records(decide("plc/x", batch))
    assert record.device == "p/w"
    assert [(x.value, x.message_id) for x in record.readings] == [
        (1.0, "fm:0:1:2023-11-14T22:13:20Z"), (2.0, "fm:0:2:2023-11-14T22:13:20Z"),
    ]  # fmt: skip


def test_a_location_that_the_broker_kept_is_the_same_message(decide: Callable[..., Outcome]) -> None:
    body = {"_type": "location", "lat": 1, "lon": 2, "tst": 1_700_000_000}
    first, kept = (records(decide("owntracks/j/p", body))[0] for _ in range(2))
    assert first.message_id == kept.message_id
    moved = records(decide("owntracks/j/p", body | {"tst": 1_700_000_001}))[0]
    assert moved.message_id != first.message_id


def test_a_history_gives_each_entry_its_time_and_the_uplink_its_own(decide: Callable[..., Outcome]) -> None:
    body = {
        "deduplicationId": "u-1",
        "time": "2023-11-14T22:13:30Z",
        "deviceInfo": {"devEui": "a840", "deviceName": "cold"},
        "object": {"temperature": 5, "sn": "0001", "history": [{"temperature": 4, "timestamp": 1_700_000_000}]},
    }
    [record] = records(decide("application/x/device/a840/event/up", body))
    assert [(x.value, x.unit, x.time_us, x.index) for x in record.readings] == [
        (4.0, "°C", 1_700_000_000_000_000, 0), (5.0, "°C", 1_700_000_010_000_000, 1),
    ]  # fmt: skip
    assert (record.device, record.message_id) == ("a840", "fm:up:u-1")
