"""X07: presets of platforms, industrial gateways and trackers: samples of their public documentation."""

import json
import tomllib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.reading import decode_record
from ingest.contract.topics import READINGS

NOW_US = 1_800_000_000_000_000
# Documented samples are years old.
LIMITS = GatewaySettings(clock_behind_seconds=0)
OWN = """
[[routes]]
filter = "s/us"
device = "pump-7"
mapping = "cumulocity-smartrest"
[[routes]]
filter = "orion/notify"
mapping = "ngsi-notification"
[[routes]]
filter = "ditto/events"
mapping = "ditto"
[[routes]]
filter = "grid"
mapping = "azure-event-grid"
[[routes]]
filter = "opc"
mapping = "opcua-samples"
[[routes]]
filter = "factory_1/#"
mapping = "siemens-iih"
[[routes]]
filter = "sigfox"
mapping = "sigfox"
[[routes]]
filter = "particle/events"
mapping = "particle"
[[routes]]
filter = "ppmp"
mapping = "ppmp"
[[routes]]
filter = "ppmp2"
mapping = "ppmp-v2"
"""


@pytest.fixture(scope="module")
def gate() -> MessageProcessor:
    routes = tuple(RouteSettings.model_validate(route) for route in tomllib.loads(OWN)["routes"])
    return MessageProcessor(compile_routes(routes, LIMITS), LIMITS)


def decide(gate: MessageProcessor, topic: str, payload: object) -> Outcome:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return gate.decide(Message(1, 1, NOW_US, topic.encode(), text.encode()))


def shown(outcome: Outcome) -> list[str]:
    """`device|metric value unit @time ~flag` of each reading, `!reason path` of each refusal, `-reason` where ignored."""
    lines: list[str] = []
    for record in outcome.records:
        if record.topic == READINGS:
            one = decode_record(record.value)
            for r in one.readings:
                value = r.value if r.text is None else r.text
                at = "" if r.time_us is None else f" @{_iso(r.time_us)}"
                flags = "".join(f" ~{flag}" for flag in [*(one.flags or ()), *(r.flags or ())] if flag != "no_identity")
                lines.append(f"{one.device}|{r.metric} {value}{'' if r.unit is None else ' ' + r.unit}{at}{flags}")
        elif record.key is not None and b'"reason"' in record.value:
            letter = decode_dead_letter(record.value)
            lines.append(f"!{letter.reason.value} {letter.path}")
    return lines + ([f"-{outcome.ignored.value}"] if outcome.ignored is not None else [])


def _iso(time_us: int) -> str:
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_us)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip(".")


def opc(node: str, value: Any, second: str, **more: Any) -> dict[str, Any]:
    name = f"nsu=http://microsoft.com/Opc/OpcPlc/;s={node}"
    body = {"SourceTimestamp": f"2022-03-18T13:{second}Z"}
    body = {"Value": value, **body} if value is not None else body
    return {"NodeId": name, "EndpointUrl": "opc.tcp://opcplc:50000/", **more, "Value": body}


SERVER = "opc.tcp://opcplc:50000/|nsu=http://microsoft.com/Opc/OpcPlc/;s="
THING = {
    "topic": "org.eclipse.ditto/fancy-thing/things/twin/events/modified",
    "headers": {"correlation-id": "c"},
    "revision": 1,
}
FANCY = "org.eclipse.ditto:fancy-thing|accelerometer"
P1 = (
    "eyJUcyI6IjIwMjQtMDQtMDNUMTg6NDc6NDBaIiwiUmVnIjoxMCwiTnVtIjp7IlRBRSI6OTMzNy41MywiVEVJIjowLCJUUkQiOjMuNTksIlRSSSI6MjI5OC4zNzgsIkVE"
    "IjoxLjIzLCJFSSI6MCwiUkVEIjowLCJSRUkiOjAuNTMxLCIxRUQiOjAuMzQ0LCIxRUkiOjAsIjJFRCI6MC42ODUsIjJFSSI6MCwiM0VEIjowLjE4MywiM0VJIjow"
    "LCIxUkQiOjAsIjFSSSI6MC4yNzUsIjJSRCI6MCwiMlJJIjowLjE4OCwiM1JEIjowLCIzUkkiOjAuMDcxLCIxViI6MjMyLjksIjJWIjoyMzEuNywiM1YiOjIzMS45LC"
    "IxQyI6MiwiMkMiOjMsIjNDIjowLjh9fQ=="
)


def grid(body: object) -> dict[str, Any]:
    system = {"iothub-connection-device-id": "P1MeterCaSigned", "iothub-enqueuedtime": "2024-04-03T18:47:40.358Z"}
    data = {"properties": {}, "systemProperties": system, "body": body}
    return {"id": "12f7acd7", "type": "Microsoft.Devices.DeviceTelemetry", "data": data, "specversion": "1.0"}


@pytest.mark.parametrize(
    ("topic", "payload", "wanted"),
    [
        # https://cumulocity.com/docs/smartrest/mqtt-static-templates/
        ("s/us", "200,c8y_Temperature,T,25", ["pump-7|c8y_Temperature.T 25.0"]),
        ("t/us/child-1", "200,c8y_Temperature,T,25,C", ["child-1|c8y_Temperature.T 25.0 °C"]),
        ("s/us/child-1", "200,c8y_Temperature,T,25,C", ["child-1|c8y_Temperature.T 25.0 °C"]),
        ("c8y/s/us/child-1",
         "201,KamstrupA220Reading,2022-03-19T12:03:27.845Z,c8y_SinglePhaseEnergyMeasurement,A+:1,1234,kWh,"
         "c8y_ThreePhaseEnergyMeasurement,A+:1,123,kWh",
         ["child-1|c8y_SinglePhaseEnergyMeasurement.A+:1 1234.0 kWh @2022-03-19T12:03:27.845",
          "child-1|c8y_ThreePhaseEnergyMeasurement.A+:1 123.0 kWh @2022-03-19T12:03:27.845"]),
        ("s/us", "210,-90,23,2016-06-22T17:03:14.000+02:00\n211,25,2016-06-22T17:03:14.000+02:00\n212,95",
         ["pump-7|c8y_SignalStrength.rssi -90.0 dBm @2016-06-22T15:03:14",
          "pump-7|c8y_SignalStrength.ber 23.0 @2016-06-22T15:03:14",
          "pump-7|c8y_TemperatureMeasurement.T 25.0 °C @2016-06-22T15:03:14", "pump-7|c8y_Battery.level 95.0 %"]),
        ("s/us", '302,c8y_TemperatureAlarm,"This is an alarm"\n401,51.151977,6.95173,67',
         ["pump-7|c8y_Position.lat 51.151977 °", "pump-7|c8y_Position.lng 6.95173 °", "pump-7|c8y_Position.alt 67.0 m"]),
        # https://cumulocity.com/api/core/#operation/postMeasurementCollectionResource
        ("measurement/measurements/create",
         {"source": {"id": "251982"}, "type": "c8y_TemperatureMeasurement", "time": "2021-10-19T12:03:27.845Z",
          "c8y_Steam": {"Temperature": {"unit": "C", "value": "100"}}},
         ["251982|c8y_Steam.Temperature 100.0 °C @2021-10-19T12:03:27.845"]),
        ("c8y/measurement/measurements/create", {"type": "ThinEdgeMeasurement", "temp": {"temp": {"value": 10.1}}},
         ["!missing_field $"]),
        ("measurement/measurements/createBulk",
         {"measurements": [{"externalSource": {"externalId": "child-1", "type": "c8y_Serial"}, "type": "ThinEdgeMeasurement",
                            "temp": {"temp": {"value": 10.1}}, "time": "2021-10-12T08:18:06.145201746+01:00"}]},
         ["child-1|temp.temp 10.1 @2021-10-12T07:18:06.145201"]),
        # https://fiware-iotagent-json.readthedocs.io/ and https://fiware-iotagent-ul.readthedocs.io/
        ("/json/1234/dev-1/attrs", {"h": "45%", "t": "23", "l": "1570"}, ["dev-1|h 45.0 %", "dev-1|t 23.0", "dev-1|l 1570.0"]),
        ("/FF957A98/MyDeviceId/attrs", {"t": "23", "TimeInstant": "2016-06-13T00:35:30Z"},
         ["MyDeviceId|t 23.0 @2016-06-13T00:35:30"]),
        ("/ul/1234/dev-1/attrs", "t|15|k|abc", ["dev-1|t 15.0", "dev-1|k abc"]),
        ("ul/1234/dev-1/attrs", "2016-06-13T00:35:30Z|lle|100", ["dev-1|lle 100.0 @2016-06-13T00:35:30"]),
        ("/1234/dev-1/attrs", "gps|1.2/3.4#t|10", ["dev-1|gps 1.2/3.4", "dev-1|t 10.0"]),
        ("/ul/1234/dev-1/attrs/t", "15", ["dev-1|t 15.0"]),
        ("/1234/MQTT_2/cmdexe", {"PING": "1234567890"}, ["-command"]),
        # https://fiware-orion.readthedocs.io/, and ETSI GS CIM 009 (NGSI-LD)
        ("orion/notify", {"subscriptionId": "51c0ac9ed714fb3b37d7d5a8", "data": [
            {"id": "Room1", "type": "Room", "temperature": {"value": 23, "type": "Float", "metadata": {}}}]},
         ["Room1|temperature 23.0"]),
        ("orion/notify", {"metadata": {}, "body": {"type": "Notification", "notifiedAt": "2020-01-24T14:00:00Z", "data": [
            {"id": "urn:ngsi-ld:Room:1", "type": "Room", "temperature": {
                "type": "Property", "value": 23, "unitCode": "CEL", "observedAt": "2020-01-24T13:59:00Z"}}]}},
         ["urn:ngsi-ld:Room:1|temperature 23.0 °C @2020-01-24T13:59:00"]),
        ("orion/notify", {"notifiedAt": "2020-01-24T13:59:01Z", "data": [{"id": "urn:ngsi-ld:Room:1", "type": "Room",
            "temperature": {
            "type": "Property", "value": 23, "unitCode": "CEL", "observedAt": "2020-01-24T13:59:00Z"},
            "isPartOf": {"type": "Relationship", "object": "urn:ngsi-ld:House:1"}}]},
         ["urn:ngsi-ld:Room:1|temperature 23.0 °C @2020-01-24T13:59:00"]),
        # https://eclipse.dev/ditto/protocol-examples.html
        ("ditto/events", {**THING, "path": "/features/accelerometer/properties",
                          "value": {"x": 3.141, "y": 2.718, "z": 1, "unit": "g"}},
         [f"{FANCY}.x 3.141", f"{FANCY}.y 2.718", f"{FANCY}.z 1.0", f"{FANCY}.unit g"]),
        ("ditto/events", {**THING, "path": "/features/accelerometer/properties/x", "value": 42}, [f"{FANCY}.x 42.0"]),
        ("ditto/events", {**THING, "path": "/features/accelerometer/properties/x", "value": {"min": 1, "max": 2}},
         [f"{FANCY}.x.min 1.0", f"{FANCY}.x.max 2.0"]),
        ("ditto/events", {**THING, "path": "/features/accelerometer",
                          "value": {"properties": {"x": 3.141}, "desiredProperties": {"x": 4}}}, [f"{FANCY}.x 3.141"]),
        ("ditto/events", {**THING, "path": "/features", "timestamp": "2021-04-14T14:01:18Z",
                          "value": {"accelerometer": {"properties": {"x": 3.141}, "desiredProperties": {"x": 4}}}},
         [f"{FANCY}.x 3.141 @2021-04-14T14:01:18"]),
        ("ditto/events", {**THING, "path": "/", "value": {"features": {"accelerometer": {"properties": {"x": 1}}}}},
         [f"{FANCY}.x 1.0"]),
        ("ditto/events", {**THING, "path": "/attributes", "value": {"location": {"latitude": 44.673856}}}, ["-metadata"]),
        ("ditto/events", {**THING, "path": "/features/accelerometer/desiredProperties", "value": {"x": 4}}, ["-metadata"]),
        ("ditto/events", {**THING, "path": "/features/accelerometer/properties/x", "status": 204}, ["-command"]),
        # https://learn.microsoft.com/azure/event-grid/event-schema-iot-hub: base64 unless the device says JSON and UTF-8.
        ("grid", grid("eyJ0IjoyMS41fQ=="), ["P1MeterCaSigned|t 21.5 @2024-04-03T18:47:40.358"]),
        ("grid", grid({"t": 21.5}), ["P1MeterCaSigned|t 21.5 @2024-04-03T18:47:40.358"]),
        ("grid", [{**grid("eyJ0IjoyMS41fQ=="), "eventType": "Microsoft.Devices.DeviceTelemetry"}],
         ["P1MeterCaSigned|t 21.5 @2024-04-03T18:47:40.358"]),
        ("grid", grid("aGVsbG8="), ["!undecoded $"]),
        # https://azure.github.io/Industrial-IoT/opc-publisher/messageformats.html
        ("opc", opc("StepUp", 28679, "04:18.7244388"), [f"{SERVER}StepUp 28679.0 @2022-03-18T13:04:18.724438"]),
        ("opc", opc("StepUp", 28679, "04:18.7244388", DisplayName="StepUp", ApplicationUri="urn:OpcPlc:opcplc"),
         ["urn:OpcPlc:opcplc|StepUp 28679.0 @2022-03-18T13:04:18.724438"]),
        ("opc", {**opc("BadFastUInt1", 4, "04:14.8405063"), "Value": {
            "Value": 4, "StatusCode": {"Symbol": "UncertainLastUsableValue", "Code": 1083179008},
            "SourceTimestamp": "2022-03-18T13:04:14.8405063Z"}},
         [f"{SERVER}BadFastUInt1 4.0 @2022-03-18T13:04:14.840506 ~quality_uncertain"]),
        ("opc", {**opc("x", 4, "04:14"), "Value": {"Value": 4, "StatusCode": 2150694912}}, ["!bad_number $.Value"]),
        ("opc", [opc("AlternatingBoolean", True, "06:30.932775"), opc("StepUp", 30003, "06:31.1337676"),
                 {**opc("BadFastUInt1", None, "06:30.8423538"), "Value": {
                     "StatusCode": {"Symbol": "BadNoCommunication", "Code": 2150694912}}}],
         [f"{SERVER}AlternatingBoolean true @2022-03-18T13:06:30.932775", f"{SERVER}StepUp 30003.0 @2022-03-18T13:06:31.133767"]),
        ("opc", {"NodeId": "i=2253", "EndpointUrl": "opc.tcp://localhost:57965/UA/SampleServer", "DisplayName": "SimpleEvents",
                 "Value": {"EventId": "JdRhF43ktkKvJBrk+sePkg==", "Message": "The system cycle '1' has started."}}, ["-status"]),
        # https://github.com/industrial-edge: common databus payload
        ("ie/d/j/simatic/v1/s7c1/dp/r/Plc/default",
         {"seq": 12571, "vals": [{"id": "101", "qc": 3, "ts": "2022-06-30T13:52:52.0219440Z", "val": 3},
                                 {"id": "104", "qc": 3, "ts": "2022-06-30T13:52:52.0219440Z", "val": 0.02729782462120056}]},
         ["s7c1/Plc|101 3.0 @2022-06-30T13:52:52.021944", "s7c1/Plc|104 0.02729782462120056 @2022-06-30T13:52:52.021944"]),
        ("ie/d/j/simatic/v1/s7c1/dp/r/Plc/default",
         {"seq": 1, "vals": [{"id": "1", "qc": 0, "val": 3}, {"id": "2", "qc": 1, "val": 4}, {"id": "3", "val": [1, 2]}]},
         ["s7c1/Plc|2 4.0 ~quality_uncertain", "s7c1/Plc|3[0] 1.0", "s7c1/Plc|3[1] 2.0", "!bad_number $.vals[0]"]),
        ("ie/d/j/simatic/v1/pnc1/dp/r/IO/default",
         {"seq": 1, "records": [{"rseq": 1, "ts": "2022-06-30T13:52:52Z", "vals": [{"id": "7", "val": 1}]},
                                {"rseq": 2, "ts": "2022-06-30T13:52:53Z", "vals": [{"id": "7", "val": 2}]}]},
         ["pnc1/IO|7 1.0 @2022-06-30T13:52:52", "pnc1/IO|7 2.0 @2022-06-30T13:52:53"]),
        ("ie/m/j/simatic/v1/s7c1/dp", {"seq": 1, "connections": []}, ["-metadata"]),
        ("ie/d/j/simatic/v1/s7c1/dp/w/Plc", {"seq": 1, "vals": [{"id": "101", "val": 1}]}, ["-command"]),
        # https://industrial-edge.github.io/iih-essentials-development-kit/
        ("factory_1/motors/StressTest_1_3",
         {"Hierarchy": "StressTest_grpc/StressTest_1/StressTest_1_3", "IED_Model": "IED 427 Factory 1", "Name": "StressTest_1_3",
          "datapoints": [{"Measurement": "15151", "Quality_Code": "192", "Time": "2024-06-13T13:05:21.000Z"},
                         {"Measurement": "15152", "Quality_Code": "0", "Time": "2024-06-13T13:05:22.000Z"}]},
         ["IED 427 Factory 1|StressTest_grpc/StressTest_1/StressTest_1_3 15151.0 @2024-06-13T13:05:21",
          "!bad_number $.datapoints[1]"]),
        # https://support.ptc.com/help/kepware/ (IoT Gateway, standard template)
        ("iotgateway",
         {"timestamp": 1521698375065, "values": [{"id": "SE433.S01.IW1440", "v": 206, "q": True, "t": 1521698358299},
                                                 {"id": "SE433.S01.LCV1414_ACT", "v": 42, "q": False, "t": 1521698358222}]},
         ["iotgateway|SE433.S01.IW1440 206.0 @2018-03-22T05:59:18.299", "!bad_number $.values[1]"]),
        # https://support.sigfox.com/docs/custom-callback-creation
        ("sigfox", {"device": "1A2345", "data": "920e82002731b01db0512201", "time": "1476980426", "duplicate": "false",
                    "snr": "18.86", "station": "0000", "avgSnr": "15.54", "lat": "1", "lng": "104", "rssi": "-123.00",
                    "seqNumber": "1492", "ack": "false", "longPolling": "false", "temperature": 21.5},
         ["1A2345|snr 18.86 dB @2016-10-20T16:20:26", "1A2345|avgSnr 15.54 dB @2016-10-20T16:20:26",
          "1A2345|station_lat 1.0 ° @2016-10-20T16:20:26", "1A2345|station_lng 104.0 ° @2016-10-20T16:20:26",
          "1A2345|rssi -123.0 dBm @2016-10-20T16:20:26", "1A2345|temperature 21.5 @2016-10-20T16:20:26"]),
        ("sigfox", {"device": "1A2345", "time": 1476980426, "duplicate": "true", "rssi": "-130.00"}, ["-echo"]),
        # https://docs.particle.io/reference/cloud-apis/webhooks/
        ("particle/events", {"event": "env", "data": '{"t":21.5,"h":40}', "published_at": "2026-11-28T21:06:40.123Z",
                             "coreid": "e00fce68"},
         ["e00fce68|env.t 21.5 @2026-11-28T21:06:40.123", "e00fce68|env.h 40.0 @2026-11-28T21:06:40.123"]),
        ("particle/events", {"event": "temp", "data": "21.5", "published_at": "2026-11-28T21:06:40.123Z", "coreid": "e00fce68"},
         ["e00fce68|temp 21.5 @2026-11-28T21:06:40.123"]),
        ("particle/events", {"event": "spark/status", "data": "online", "published_at": "2026-11-28T21:06:40Z", "coreid": "e0"},
         ["-status"]),
        ("particle/events", {"event": "hook-response/env/0", "data": "ok", "published_at": "2026-11-28T21:06:40Z",
                             "coreid": "particle-internal"}, ["-status"]),
        # https://io.adafruit.com/api/docs/mqtt.html
        ("mario/feeds/photocell", "22.587", ["mario|photocell 22.587"]),
        ("mario/feeds/photocell", {"value": 22.587, "lat": 38.1123, "lon": -91.2325, "ele": 112},
         ["mario|photocell 22.587", "mario|photocell.lat 38.1123 °", "mario|photocell.lon -91.2325 °",
          "mario|photocell.ele 112.0 m"]),
        ("mario/feeds/photocell", "22.587,38.1123,-91.2325,112",
         ["mario|photocell 22.587", "mario|photocell.lat 38.1123 °", "mario|photocell.lon -91.2325 °",
          "mario|photocell.ele 112.0 m"]),
        ("mario/groups/weather", {"feeds": {"temperature": 21.5, "humidity": 40}, "location": {"lat": 1, "lon": 2}},
         ["mario/weather|temperature 21.5", "mario/weather|humidity 40.0"]),
        ("mario/groups/weather", "temperature,21.5\nhumidity,40",
         ["mario/weather|temperature 21.5", "mario/weather|humidity 40.0"]),
        ("mario/feeds/photocell/json", {"data": {"value": "22.587"}}, ["-echo"]),
        # https://github.com/matter-js/python-matter-server; Matter Application Cluster Specification
        ("matter/1/1/TemperatureMeasurement/measuredValue", "2150", ["matter/1|1.TemperatureMeasurement.measuredValue 21.5 °C"]),
        ("matter/node/4/1/1026/0", "2137", ["matter/4|1.1026.0 21.37 °C"]),
        ("matter/4/1/TemperatureMeasurement/MeasuredValue", "-32768",
         ["!bad_number $"]),
        ("matter/node/4/2/1029/0", "4033", ["matter/4|2.1029.0 40.33 %"]),
        ("matter/node/4/1/1024/0", "20001", ["matter/4|1.1024.0Log 20001.0"]),
        ("matter/node/4/1/47/12", "180", ["matter/4|1.47.12 90.0 %"]),
        ("matter/node/4/1/1026/65533", "4", ["-no_value"]),
        ("matter/node/4/0/29/0", [{"deviceType": 22, "revision": 1}], ["-metadata"]),
        ("matter/4/1/OnOff/onOff", "true", ["matter/4|1.OnOff.onOff true"]),
        # https://wiki.teltonika-gps.com/view/Getting_Started_with_AWS_IoT_Core
        ("352093081234567/data",
         {"state": {"reported": {"ts": 1662536455000, "pr": 0, "latlng": "54.666042,25.225031", "alt": 112, "ang": 207, "sat": 9,
                                 "sp": 36, "evt": 0, "66": 12011, "72": 215, "73": 3000, "239": 1, "11": "8937003"}}},
         [f"352093081234567|{text} @2022-09-07T07:40:55" for text in (
             "latitude 54.666042 °", "longitude 25.225031 °", "altitude 112.0 m", "angle 207.0 °", "satellites 9.0",
             "speed 36.0 km/h", "external_voltage 12011.0 mV", "dallas_temperature_1 21.5 °C", "ignition 1.0", "11 8937003")]
         + ['!bad_number $.state.reported["73"]']),
        ("352093081234567/data",
         {"state": {"reported": {"ts": 1662536455000, "latlng": "0.000000,0.000000", "alt": 0, "ang": 0, "sat": 0, "sp": 0,
                                 "21": 4}}},
         [f"352093081234567|{text} @2022-09-07T07:40:55" for text in ("satellites 0.0", "gsm_signal 4.0")]),
        # https://github.com/eclipse-archived/unide
        ("ppmp",
         {"content-spec": "urn:spec://eclipse.org/unide/measurement-message#v3", "device": {"id": "urn:uni-bremen:wind:1234"},
          "measurements": [{"context": {"temperature": {"unit": "Cel"}}, "ts": "2021-05-18T07:43:16.969Z",
                            "series": {"time": [0, 23], "temperature": [35.4231, 46.4222]}}]},
         ["urn:uni-bremen:wind:1234|temperature 35.4231 °C @2021-05-18T07:43:16.969",
          "urn:uni-bremen:wind:1234|temperature 46.4222 °C @2021-05-18T07:43:16.992"]),
        ("ppmp2",
         {"content-spec": "urn:spec://eclipse.org/unide/measurement-message#v2", "device": {"deviceID": "99232"},
          "measurements": [{"ts": "2002-05-30T09:30:10.123+02:00",
                            "series": {"$_time": [0, 23], "temperature": [45.4231, 46.4222]}}]},
         ["99232|temperature 45.4231 @2002-05-30T07:30:10.123", "99232|temperature 46.4222 @2002-05-30T07:30:10.146"]),
        ("ppmp", {"device": {"id": "d"}, "measurements": [{"ts": "2021-05-18T07:43:16Z", "series": {"time": [0, 1], "t": [1]}}]},
         ["!undecoded $.measurements[0].series"]),
        ("ppmp", {"device": {"id": "d"}, "messages": [{"ts": "2021-05-18T07:43:16Z", "code": "190"}]}, ["-status"]),
    ],
)  # fmt: skip
def test_documented_samples(gate: MessageProcessor, topic: str, payload: object, wanted: list[str]) -> None:
    assert shown(decide(gate, topic, payload)) == wanted


def test_a_real_meter_through_event_grid(gate: MessageProcessor) -> None:
    lines = shown(decide(gate, "grid", grid(P1)))
    assert "P1MeterCaSigned|Num.TAE 9337.53 @2024-04-03T18:47:40" in lines
    assert "P1MeterCaSigned|Num.1V 232.9 @2024-04-03T18:47:40" in lines


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("s/us", "200,c8y_Temperature,T,25"),
        ("site/feeds2/x", "21.5"),
        ("sensor-1/data", {"state": {"reported": {"ts": 1662536455000}}}),
        ("room/1234/attrs", "21.5"),
        ("matter/kitchen/temp", "21.5"),
        ("ditto/events", {**THING, "path": "/features/a/properties", "value": {"x": 1}}),
        ("some/s/us/pump", "200,c8y_Temperature,T,25"),
        ("iotgateway/line1", {"values": []}),
        ("ie/m/dublin", {"t": 1}),
        ("site/f/x", "21.5"),
    ],
)
def test_topics_of_others_are_left_alone(topic: str, payload: object) -> None:
    outcome = decide(MessageProcessor(compile_routes((), LIMITS), LIMITS), topic, payload)
    assert shown(outcome) == ["!no_route topic"]
