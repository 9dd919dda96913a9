"""Messages of LoRaWAN network servers as their documentation shows them, also with what a vendor's decoder gives inside."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.devtools.decode_file import decode_lines
from gateway.gateway_settings import GatewaySettings

LIMITS = GatewaySettings(clock_behind_seconds=0)
DRAGINO = {"BatV": 3.073, "TempC_SHT": "21.50", "TempC_DS": "327.67", "Node_type": "LHT65N"}
DRAGINO_READ = {("BatV", 3.073, "V"), ("TempC_SHT", 21.5, "°C")}
EUI = "0101010101010101"
Decoded = dict[str, Any]


def decode(topic: str, payload: object) -> Decoded:
    line = json.dumps({"topic": topic, "payload": json.dumps(payload)})
    [found] = decode_lines([line], (), LIMITS, received_us=1_800_000_000_000_000)
    return found


def values(found: Decoded) -> set[tuple[str, Any, str | None]]:
    return {
        (one["metric"], one["value"] if one["text"] is None else one["text"], one["unit"]) for one in found["readings"]
    }


# chirpstack/chirpstack-docs, src/chirpstack/integrations/events.md (9d9b5bb).
INFO = {
    "tenantId": "52f14cd4-c6f1-4fbd-8f87-4025e1d49242",
    "tenantName": "ChirpStack",
    "applicationId": "17c82e96-be03-4f38-aef3-f83d48582d97",
    "applicationName": "Test application",
    "deviceProfileName": "Test device-profile",
    "deviceName": "Test device",
    "devEui": EUI,
    "tags": {"key": "value"},
}
V4_UP = {
    "deduplicationId": "3ac7e3c4-4401-4b8d-9386-a5c902f9202d",
    "time": "2022-07-18T09:34:15.775023242+00:00",
    "deviceInfo": INFO,
    "devAddr": "00189440",
    "dr": 1,
    "fPort": 1,
    "data": "qg==",
    "rxInfo": [
        {"gatewayId": "0016c001f153a14c", "uplinkId": 4217106255, "rssi": -36, "snr": 10.5, "context": "E3OWOQ=="}
    ],
    "txInfo": {"frequency": 867100000, "modulation": {"lora": {"bandwidth": 125000, "spreadingFactor": 11}}},
}
V4_STATUS = {"time": "2022-07-18T09:35:06.927172638+00:00", "deviceInfo": INFO, "margin": 10}
V4 = f"application/17c82e96-be03-4f38-aef3-f83d48582d97/device/{EUI}/event/"
# diwise/iot-agent, internal/pkg/application/decoders/elsys/decoders.elsys_test.go (6ed3932).
V3_UP = {
    "applicationID": "8",
    "applicationName": "Water-Temperature",
    "deviceName": "sk-elt-temp-16",
    "deviceProfileName": "Elsys_Codec",
    "deviceProfileID": "x",
    "devEUI": EUI,
    "rxInfo": [
        {
            "gatewayID": "x",
            "uplinkID": "x",
            "name": "SN-LGW-047",
            "time": "2022-03-28T12:40:40.653515637Z",
            "rssi": -105,
            "loRaSNR": 8.5,
            "location": {"latitude": 62.36956091265246, "longitude": 17.319844410529534, "altitude": 0},
        }
    ],
    "txInfo": {"frequency": 867700000, "dr": 5},
    "adr": True,
    "fCnt": 10301,
    "fPort": 5,
    "data": "Bw2KDADB",
    "object": {"externalTemperature": 19.3, "vdd": 3466},
    "tags": {"Location": "Vangen"},
}
# TheThingsIndustries/lorawan-stack-docs, doc/content/integrations/data-formats/_index.md (a189a52).
TTS_UP = {
    "end_device_ids": {
        "device_id": "dev1",
        "application_ids": {"application_id": "app1"},
        "dev_eui": "0004A30B001C0530",
        "join_eui": "800000000000000C",
        "dev_addr": "00BCB929",
    },
    "correlation_ids": ["as:up:01E0WZGT6Y7657CPFPE5WEYDSQ"],
    "received_at": "2020-02-12T15:15:46.014773143Z",
    "uplink_message": {
        "session_key_id": "AXA50tHUGUucuzS/bCGMNw==",
        "f_cnt": 1,
        "frm_payload": "gkHe",
        "decoded_payload": {"temperature": 1.0, "luminosity": 0.64},
        "rx_metadata": [
            {
                "gateway_ids": {"gateway_id": "gtw1"},
                "time": "2020-02-12T15:15:45.787Z",
                "timestamp": 2463457000,
                "rssi": -35,
                "channel_rssi": -35,
                "snr": 5,
            }
        ],
        "settings": {"frequency": "868300000", "timestamp": 2463457000, "time": "2020-02-12T15:15:45.787Z"},
        "consumed_airtime": "0.056576s",
        "locations": {"user": {"latitude": 37.97155556731436, "longitude": 23.72678801175413, "altitude": 10}},
        "version_ids": {"brand_id": "the-things-products", "model_id": "the-things-uno", "band_id": "US_902_928"},
        "network_ids": {"net_id": "000013", "tenant_id": "tenant1"},
        "attributes": {"key1": "value1"},
        "received_at": "2020-02-12T15:15:45.789585559Z",
    },
}
# thethingsnetwork.org, "MQTT API Reference" of v2.
TTN_UP = {
    "app_id": "my-app-id",
    "dev_id": "my-dev-id",
    "hardware_serial": "0102030405060708",
    "port": 1,
    "counter": 2,
    "is_retry": False,
    "confirmed": False,
    "payload_raw": "AQIDBA==",
    "payload_fields": {},
    "metadata": {"airtime": 46336000, "time": "1970-01-01T00:00:00Z", "frequency": 868.1, "data_rate": "SF7BW125"},
}
# docs.thingpark.com, "Uplink message": original (numbers are text), decoded, legacy, join, failed.
PARK_RADIO = {
    "LrrRSSI": "-80.000000",
    "LrrSNR": "7.000000",
    "SpFact": "7",
    "SubBand": "G2",
    "LrrLAT": "45.851032",
    "LrrLON": "1.266230",
    "CustomerData": {"alr": {"pro": "ADRF/DEMO", "ver": "2"}, "tags": ["site=Paris"], "name": "My Demo Device"},
}
PARK_OBJECT = {
    "messageType": "HEARTBEAT",
    "mode": "MOTION_TRACKING",
    "batteryVoltage": 3.85,
    "ackToken": 0,
    "firmwareVersion": "1.8.201",
    "resetCause": 40,
    "periodicPosition": False,
    "temperature": 24.8,
    "payload": "0520be8800400108c9000000",
    "InstantPER": 0.0,
    "MeanPER": 0.0,
    "DevAddr": "055E1C4E",
    "TxPower": 2.0,
    "NbTrans": 1,
    "Frequency": 867.9,
    "DynamicClass": "A",
}
PARK_UP = {
    "Time": "2020-01-06T12:46:54.285+01:00",
    "DevEUI": "20635F0108000E09",
    "FPort": 17,
    "FCntUp": 265,
    "payload_hex": "0520be88",
    "DriverCfg": {"app": {"mId": "asset-tracker", "pId": "abeeway", "ver": "1"}, "id": "abeeway:asset-tracker:1"},
    **PARK_RADIO,
}
PARK_READ = {
    ("messageType", "HEARTBEAT", None),
    ("mode", "MOTION_TRACKING", None),
    ("batteryVoltage", 3.85, None),
    ("resetCause", 40, None),
    ("periodicPosition", "false", None),
    ("temperature", 24.8, None),
}
PARK = "mqtt/things/20635F0108000E09/uplink"
# LORIOT's envelope as its users store it: rx and gw of one device.
LORIOT_RX = {
    "cmd": "rx",
    "seqno": 31,
    "EUI": "2CF7F12052602BFA",
    "ts": 1713521712759,
    "fcnt": 0,
    "port": 1,
    "freq": 867900000,
    "rssi": -108,
    "snr": 1.2,
    "toa": 1155,
    "dr": "SF12 BW125 4/5",
    "ack": False,
    "bat": 255,
    "offline": False,
    "data": "4545",
}
# diwise/iot-agent, internal/pkg/application/facades/netmore/netmore_test.go (6ed3932).
NETMORE_UP = {
    "devEui": "363536305d398e11",
    "sensorType": "other",
    "timestamp": "2025-04-10T15:22:58.961Z",
    "payload": "809836",
    "freq": 867300000,
    "spreadingFactor": "12",
    "dr": 0,
    "rssi": "-115",
    "snr": "-8.2",
    "gatewayIdentifier": "1789",
    "gateways": [{"rssi": "-125", "snr": "-17.2", "gatewayIdentifier": "19198"}],
    "messageType": "payload",
    "fCntUp": 4427,
    "batteryLevel": "0",
    "ack": False,
    "fPort": "2",
}


def uplink_of_things(decoded: object) -> object:
    return TTS_UP | {"uplink_message": {**dict(TTS_UP["uplink_message"]), "decoded_payload": decoded}}  # type: ignore[call-overload]


WRAPS: dict[str, tuple[str, Callable[[object], object], str, str]] = {
    "ChirpStack v4": (V4 + "up", lambda found: V4_UP | {"object": found}, EUI, "2022-07-18T09:34:15.775023Z"),
    "ChirpStack v3": (
        f"application/8/device/{EUI}/event/up",
        lambda found: V3_UP | {"object": found, "deviceProfileName": "x"},
        EUI,
        "2022-03-28T12:40:40.653515Z",
    ),
    "The Things Stack": ("v3/app1@tenant1/devices/dev1/up", uplink_of_things, "dev1", "2020-02-12T15:15:45.789585Z"),
    "The Things Network v2": (
        "my-app-id/devices/my-dev-id/up",
        lambda found: TTN_UP | {"payload_fields": found, "metadata": {"time": "2019-06-14T13:14:40.226618748Z"}},
        "my-dev-id",
        "2019-06-14T13:14:40.226618Z",
    ),
    "ThingPark": (
        PARK,
        lambda found: {"DevEUI_uplink": PARK_UP | {"payload": found}},
        "20635F0108000E09",
        "2020-01-06T11:46:54.285000Z",
    ),
    "ThingPark legacy": (
        PARK,
        lambda found: PARK_UP | {"payload": found},
        "20635F0108000E09",
        "2020-01-06T11:46:54.285000Z",
    ),
    "LORIOT": (
        "loriot/app",
        lambda found: LORIOT_RX | {"decoded": {"data": found}},
        "2CF7F12052602BFA",
        "2024-04-19T10:15:12.759000Z",
    ),
    "Netmore": (
        "netmore/app",
        lambda found: [NETMORE_UP | {"decoded": found}],
        "363536305d398e11",
        "2025-04-10T15:22:58.961000Z",
    ),
}


@pytest.mark.parametrize("server", WRAPS)
def test_a_documented_uplink_with_what_dragino_decodes(server: str) -> None:
    topic, wrap, device, time = WRAPS[server]
    found = decode(topic, wrap(DRAGINO))
    assert values(found) == DRAGINO_READ
    assert {(one["device"], one["time"]) for one in found["readings"]} == {(device, time)}
    assert [one["reason"] for one in found["rejected"]] == ["bad_number"]


@pytest.mark.parametrize(
    ("topic", "payload", "wanted"),
    [
        (f"application/8/device/{EUI}/event/up", V3_UP, {("externalTemperature", 19.3, "°C"), ("vdd", 3466, "mV")}),
        ("v3/app1@tenant1/devices/dev1/up", TTS_UP, {("temperature", 1.0, None), ("luminosity", 0.64, None)}),
        (PARK, {"DevEUI_uplink": PARK_UP | {"payload": PARK_OBJECT}}, PARK_READ),
        (PARK, PARK_UP | {"payload": PARK_OBJECT}, PARK_READ),
        (V4 + "status", V4_STATUS | {"batteryLevel": 88.3}, {("margin", 10, "dB"), ("batteryLevel", 88.3, "%")}),
        (
            V4 + "status",
            V4_STATUS | {"batteryLevel": 0, "externalPowerSource": True},
            {("margin", 10, "dB"), ("externalPowerSource", "true", None)},
        ),
        (
            f"application/8/device/{EUI}/event/status",
            {
                "applicationID": "8",
                "devEUI": EUI,
                "margin": 6,
                "externalPowerSource": True,
                "batteryLevelUnavailable": False,
                "batteryLevel": 0,
            },
            {("margin", 6, "dB"), ("externalPowerSource", "true", None)},
        ),
    ],
)
def test_documented_messages_with_readings(
    topic: str, payload: object, wanted: set[tuple[str, Any, str | None]]
) -> None:
    found = decode(topic, payload)
    assert values(found) == wanted
    assert not found.get("rejected")


@pytest.mark.parametrize(
    ("topic", "payload", "outcome"),
    [
        (V4 + "up", V4_UP, ("dead_letter", "undecoded")),
        (
            V4 + "join",
            {"time": "2022-07-18T09:33:28.823500726+00:00", "deviceInfo": INFO, "devAddr": "00189440"},
            ("ignored", "status"),
        ),
        (V4 + "ack", {"deviceInfo": INFO, "acknowledged": True, "fCntDown": 3}, ("ignored", "command")),
        (V4 + "txack", {"deviceInfo": INFO, "gatewayId": "0016c001f153a14c", "fCntDown": 2}, ("ignored", "command")),
        (
            "v3/app1@tenant1/devices/dev1/join",
            {"join_accept": {"session_key_id": "AXBSH1Pk6Z0G166RlH16CQ=="}},
            ("ignored", "status"),
        ),
        ("v3/app1@tenant1/devices/dev1/down/queued", {"downlink_queued": {}}, ("ignored", "command")),
        (
            PARK,
            {
                "DevEUI_uplink": {
                    "Time": "2020-06-05T14:22:56.396+02:00",
                    "DevEUI": "20635F0108000E09",
                    "rawJoinRequest": "003246524144b2",
                    "MType": 0,
                }
            },
            ("ignored", "status"),
        ),
        (
            PARK,
            {
                "DevEUI_uplink": PARK_UP
                | {"payloadDecodedError": {"code": "com-5002", "message": "driver internal error"}}
            },
            ("dead_letter", "undecoded"),
        ),
        ("loriot/app", LORIOT_RX, ("dead_letter", "undecoded")),
        (
            "loriot/app",
            {"cmd": "txd", "EUI": "2CF7F12052602BF1", "seqdn": 0, "seqq": 1, "ts": 1713521048021},
            ("ignored", "command"),
        ),
        ("netmore/app", [NETMORE_UP], ("dead_letter", "undecoded")),
    ],
)
def test_documented_messages_without_readings(topic: str, payload: object, outcome: tuple[str, str]) -> None:
    found = decode(topic, payload)
    assert (found["outcome"], found["reason"]) == outcome


def test_milesights_models_disagree_on_some_units() -> None:
    """Milesight-IoT/SensorDecoders, *-codec.json (e79c9d8): pressure in hPa (AM307) and kPa (EM500-PP, UC511)."""
    decoded = {
        "battery": 92,
        "temperature": 21.5,
        "humidity": 40,
        "pressure": 1013.2,
        "tvoc": 3.1,
        "distance": 1200,
        "depth": 12,
    }
    found = decode(
        V4 + "up", V4_UP | {"object": decoded, "deviceInfo": INFO | {"deviceProfileName": "Milesight AM307"}}
    )
    assert {metric: unit for metric, _value, unit in values(found)} == {
        "battery": "%",
        "temperature": "°C",
        "humidity": "%",
        "pressure": None,
        "tvoc": None,
        "distance": "mm",
        "depth": None,
    }


# docs.helium.com, "JSON Schema" and "MQTT" of the console's integrations; the page's reported_at has a digit too many.
HELIUM = {
    "app_eui": "6948A4B59F4666AD",
    "dev_eui": "1C29FBD1D2084E21",
    "devaddr": "B5A44869",
    "fcnt": 19,
    "hotspots": [
        {"frequency": 912.2999877929688, "name": "icy-fiery-hippo", "rssi": -54, "snr": 9.800000190734863},
        {"frequency": 912.2999877929688, "name": "cool-chiffon-hornet", "rssi": -51, "snr": 9},
    ],
    "id": "7c523974-4ce7-4a92-948b-55171a6e4d77",
    "metadata": {"labels": [{"id": "7d11aef4-4daf-4caf-b72a-f789b191ebe4", "name": "DontLabelMe"}]},
    "name": "Test Me",
    "payload": "SGVsbG8sIHdvcmxkIQ==",
    "port": 1,
    "reported_at": 1586868546123,
}


@pytest.mark.parametrize("prefix", ["", "mqtt/"])
def test_helium_console(prefix: str) -> None:
    topic = f"{prefix}helium/3c822699-37fd-4df6-a84d-93037a450843/"
    read = decode(topic + "rx", HELIUM | {"decoded": {"status": "success", "payload": DRAGINO}})
    assert values(read) >= DRAGINO_READ
    assert {(one["device"], one["time"]) for one in read["readings"]} == {
        ("1C29FBD1D2084E21", "2020-04-14T12:49:06.123000Z")
    }
    assert decode(topic + "rx", HELIUM)["reason"] == "undecoded"
    down = decode(topic + "tx", {"payload_raw": "SGVsbG8sIHdvcmxkIQ==", "port": 1, "confirmed": False})
    assert (down["outcome"], down["reason"]) == ("ignored", "command")
