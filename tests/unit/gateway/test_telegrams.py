"""One telegram that several receivers heard is one reading; what another receiver adds to it is no other content."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.routes import compile_routes
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.contract.topics import READINGS
from streaming.duplicate_comparator import COMPARED_COLUMNS, DuplicateComparator
from tests.support.copies import COMPARED, COPIES

RECEIVED_US = 1_795_900_000_000_000
TIME = "2026-11-28T21:06:40Z"
RUUVI = "0201061BFF99040512FC5394C37C0004FFFC040CAC364200CDCBB8334C884F"
METER = {
    "media": "water", "meter": "multical21", "name": "MyTapWater", "id": "76348799", "total_m3": 6.408,
    "status": "DRY", "timestamp": TIME, "rssi_dbm": -62, "device": "rtlwmbus[00000001]",
}  # fmt: skip
WEATHER = {
    "time": TIME, "model": "Acurite-5n1", "id": 1234, "channel": "A", "temperature_C": 21.5, "rain_mm": 0.2,
    "rssi": -3.1, "snr": 12.5, "noise": -15.6, "mod": "ASK", "freq": 433.92,
}  # fmt: skip
TAG = {
    "rssi": -60, "timestamp": 1_795_899_000, "measurementSequenceNumber": 51, "temperature": 21.5, "humidity": 40.0,
}  # fmt: skip
BLE = {
    "id": "A4:C1:38:00:00:01", "name": "ATC_000001", "rssi": -60, "distance": 2.4, "model": "LYWSD03MMC", "tempc": 21.5,
    "hum": 40.1, "batt": 87,
}  # fmt: skip
BLU = {
    "encryption": False, "BTHome_version": 2, "pid": 118, "battery": 100, "temperature": 21.5, "rssi": -60,
    "address": "7c:c6:b6:00:00:01",
}  # fmt: skip
UPLINK = {
    "deduplicationId": "u-1", "time": "2026-11-28T21:06:40.1Z", "deviceInfo": {"devEui": "a84041ff00000001"},
    "devAddr": "00189440", "fCnt": 7, "data": "AQI=", "object": {"BatV": 3.0, "TempC_SHT": 21.5},
    "rxInfo": [{"gatewayId": "1", "rssi": -36}],
}  # fmt: skip
THINGS: dict[str, Any] = {
    "end_device_ids": {"device_id": "d", "application_ids": {"application_id": "a"}}, "received_at": "2026-11-28T21:06:40.4Z",
    "uplink_message": {"session_key_id": "AXA5", "f_cnt": 7, "frm_payload": "AQI=", "received_at": "2026-11-28T21:06:40.1Z",
                       "decoded_payload": {"t": 1}, "rx_metadata": [{"rssi": -35}]},
}  # fmt: skip
MESH = {
    "from": 1, "id": 5, "type": "telemetry", "timestamp": 1_795_890_000, "sender": "!1", "payload": {"voltage": 4.1}, "rssi": -45,
}  # fmt: skip


def blu_event(script: str, rssi: int, at: float) -> dict[str, Any]:
    """A packet as a script of one Shelly relays it."""
    event = {"component": script, "id": 1, "event": "shelly-blu", "data": {**BLU, "rssi": rssi}, "ts": at}
    return {"src": script, "dst": script, "method": "NotifyEvent", "params": {"ts": at, "events": [event]}}


PAIRS: list[tuple[str, str, dict[str, Any], str, dict[str, Any]]] = [
    ("wmbus", "wmbusmeters/MyTapWater", METER, "wmbusmeters/MyTapWater",
     {"rssi_dbm": -90, "device": "im871a[12345678]"}),
    ("rtl_433", "rtl_433/recv-a/events", WEATHER, "rtl_433/recv-b/events",
     {"rssi": -9.7, "snr": 3.0, "noise": -18.0, "freq": 433.95}),
    ("rtl_433 of another level", "rtl_433/recv-a/events", WEATHER, "RTL_433/JSON", {"protocol": 40, "freq1": 433.9}),
    ("rtl_433 to the microsecond", "rtl_433/a/events", WEATHER, "rtl_433/b/events", {"time": "2026-11-28T21:06:40.7Z"}),
    ("rtl_433 by OpenMQTTGateway", "home/OMG_1/RTL_433toMQTT/Acurite", WEATHER, "home/OMG_2/RTL_433toMQTT/Acurite",
     {"rssi": -80}),
    ("rtl_433 by OpenMQTTGateway, without a time", "home/OMG_1/RTL_433toMQTT/Nexus-TH/2/42",
     {"model": "Nexus-TH", "id": 42, "temperature_C": 21.5, "humidity": 83, "rssi": -60, "duration": 1150000},
     "home/OMG_2/RTL_433toMQTT/Nexus-TH/2/42", {"rssi": -80, "duration": 1151000}),
    ("BLE by OpenMQTTGateway", "home/OMG_1/BTtoMQTT/A4C138000001", BLE, "home/OMG_2/BTtoMQTT/A4C138000001",
     {"rssi": -80, "distance": 9.1}),
    ("BLE by Theengs as well", "home/OMG_1/BTtoMQTT/A4C138000001", BLE, "home/TheengsGateway/BTtoMQTT/A4C138000001",
     {"rssi": -80, "name": "x", "brand": "Xiaomi", "type": "THB"}),
    ("LoRa by OpenMQTTGateway", "home/OMG_1/LORAtoMQTT/n1", {"id": "n1", "rssi": -60, "snr": 9.5, "tempc": 21.5},
     "home/OMG_2/LORAtoMQTT/n1", {"rssi": -80, "snr": 1.5, "pferror": -22}),
    ("ChirpStack past its deduplication", "application/a/device/a84041ff00000001/event/up", UPLINK,
     "application/a/device/a84041ff00000001/event/up",
     {"deduplicationId": "u-2", "time": "2026-11-28T21:06:40.9Z", "rxInfo": [{"gatewayId": "2", "rssi": -90}]}),
    ("The Things Stack past its deduplication", "v3/a/devices/d/up", THINGS, "v3/a/devices/d/up",
     {"received_at": "2026-11-28T21:06:41.2Z", "uplink_message": {**THINGS["uplink_message"],
      "received_at": "2026-11-28T21:06:40.9Z", "rx_metadata": [{"rssi": -90}]}}),
    ("Meshtastic", "msh/2/json/LongFast/!1", MESH, "msh/2/json/LongFast/!2",
     {"sender": "!2", "rssi": -90, "timestamp": 1_795_890_002}),
    ("EnOcean", "enocean/office", {"TMP": 21.6, "_RSSI_": -60, "_DATE_": "2026-11-28T12:00:00.2Z"}, "enocean/office",
     {"_RSSI_": -80, "_DATE_": "2026-11-28T12:00:00.4Z"}),
    ("Shelly BLU", "shelly-blu/events/7c:c6:b6:00:00:01", BLU, "shelly-blu/events/7c:c6:b6:00:00:01", {"rssi": -85}),
    ("Shelly BLU on its address", "7c:c6:b6:00:00:01", {"addr": "7c:c6:b6:00:00:01", "rssi": -60, "service_data": BLU},
     "7c:c6:b6:00:00:01", {"rssi": -85}),
    ("Shelly BLU in an event", "a/events/rpc", blu_event("script:1", -60, 1_795_899_000.1), "b/events/rpc",
     blu_event("script:2", -85, 1_795_899_000.4)),
    ("ruuvi", "ruuvi/AA:BB:CC:DD:EE:FF/CB:B8:33:4C:88:4F", {"rssi": -60, "ts": "1795899000", "data": RUUVI},
     "ruuvi/AA:BB:CC:DD:EE:00/CB:B8:33:4C:88:4F", {"rssi": -80, "ts": "1795899001", "gwts": "1795899001"}),
]  # fmt: skip


def decide(topic: str, body: Any, number: int = 1, received_us: int = RECEIVED_US) -> ReadingRecord:
    gate = MessageProcessor(compile_routes((), GatewaySettings()), GatewaySettings())
    outcome = gate.decide(Message(number, 1, received_us, topic.encode(), json.dumps(body).encode()))
    [record] = [decode_record(record.value) for record in outcome.records if record.topic == READINGS]
    return record


def table(record: ReadingRecord, offset: int) -> list[dict[str, Any]]:
    """The record's rows as the landing compares them."""
    return [
        {
            "device": record.device, "metric": one.metric, "index": one.index, "offset": offset, "partition": 0,
            "message_id": one.message_id or record.message_id, "value": one.value, "text": one.text, "unit": one.unit,
            "device_time": None if one.time_us is None else datetime.fromtimestamp(one.time_us / 1e6, UTC),
            "flags": [*(record.flags or ()), *(one.flags or ())], "payload_hash": record.payload_hash, "gateway": "gw-1",
            "gateway_epoch": 1, "message_number": record.number,
            "received_at": datetime.fromtimestamp(record.received_us / 1e6, UTC),
        }
        for one in record.readings
    ]  # fmt: skip


def landed(first: ReadingRecord, second: ReadingRecord) -> tuple[list[dict[str, Any]], list[Any]]:
    """What the second adds to the table, and its dead letters."""
    import pyarrow as pa

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["device"], row["metric"], row["index"], row["message_id"]

    rows, more = table(first, 0), table(second, 1)
    known = {key(row) for row in rows if row["message_id"] is not None}
    copies = [row for row in more if key(row) in known]
    places = [
        {"row": place, "partition": 0, "offset": 1, "position": place, "replayed": False}
        for place, row in enumerate([*rows, *more], start=1)
        if place > len(rows) and row in copies
    ]
    whole = pa.Table.from_pylist([*rows, *more], schema=COMPARED).select(COMPARED_COLUMNS)
    conflicts, _ = DuplicateComparator().conflicts(whole, pa.Table.from_pylist(places, schema=COPIES))
    return [row for row in more if row not in copies], conflicts


@pytest.mark.parametrize(
    ("topic", "body", "other_topic", "change"), [pair[1:] for pair in PAIRS], ids=[p[0] for p in PAIRS]
)
def test_what_two_receivers_heard_is_one_reading(
    topic: str, body: dict[str, Any], other_topic: str, change: dict[str, Any]
) -> None:
    first, second = decide(topic, body), decide(other_topic, body | change, 2)
    assert first.device == second.device
    added, conflicts = landed(first, second)
    assert {row["metric"] for row in added} <= set(change) - set(body), "at most what only the second receiver measures"
    assert conflicts == []
    assert "no_identity" not in (first.flags or [])


@pytest.mark.parametrize(
    ("topic", "body", "change"),
    [
        ("wmbusmeters/MyTapWater", METER, {"total_m3": 6.409}),
        ("wmbusmeters/MyTapWater", METER, {"timestamp": "2026-11-28T21:06:48Z"}),
        ("rtl_433/recv-a/events", WEATHER, {"temperature_C": 21.6}),
        ("rtl_433/recv-a/events", WEATHER, {"time": "2026-11-28T21:06:41Z"}),
        ("rtl_433/recv-a/events", WEATHER, {"sequence_num": 1}),
        ("home/OMG_1/BTtoMQTT/A4C138000001", BLE, {"tempc": 21.6}),
        ("home/OMG_1/BTtoMQTT/A4C138000001", BLE | {"packet": 1}, {"packet": 2}),
        ("home/OMG_1/BTtoMQTT/A4C138000001", BLE | {"button": "press"}, {}),
        ("home/OMG_1/DHTtoMQTT", {"tempc": 21.5, "hum": 40}, {}),
        ("shelly-blu/events/7c:c6:b6:00:00:01", BLU, {"pid": 119}),
    ],
)
def test_another_telegram_is_another_reading(topic: str, body: dict[str, Any], change: dict[str, Any]) -> None:
    first, second = decide(topic, body), decide(topic, body | change, 2)
    added, _ = landed(first, second)
    assert len(added) == len(second.readings)


@pytest.mark.parametrize(
    ("topic", "body", "seconds"),
    [
        ("shelly-blu/events/7c:c6:b6:00:00:01", BLU, 601),
        ("home/OMG_1/BTtoMQTT/A4C138000001", BLE | {"packet": 1}, 601),
        ("home/OMG_1/BTtoMQTT/A4C138000001", BLE, 11),
    ],
)
def test_a_packet_number_that_comes_again_later_is_another_packet(
    topic: str, body: dict[str, Any], seconds: int
) -> None:
    later = decide(topic, body, 2, RECEIVED_US + seconds * 1_000_000)
    assert len(landed(decide(topic, body), later)[0]) == len(later.readings)


def test_the_json_of_a_ruuvi_gateway_names_its_measurements_as_well() -> None:
    def tags(gateway: str, **change: Any) -> ReadingRecord:
        body = {"data": {"tags": {"CB:B8:33:4C:88:4F": TAG | change}}}
        return decide(f"ruuvi/{gateway}/all", body)

    first = tags("a")
    assert landed(first, tags("b", rssi=-80, timestamp=1_795_899_002)) == ([], [])
    assert len(landed(first, tags("a", measurementSequenceNumber=52))[0]) == 3
    assert len(landed(first, tags("a", temperature=21.6))[0]) == 3
    assert len(landed(tags("a", measurementSequenceNumber=None), tags("b", measurementSequenceNumber=None))[0]) == 3


def test_a_mapping_of_ones_own_says_what_a_receiver_adds() -> None:
    route = RouteSettings.model_validate(
        {
            "filter": "radio/{hub}",
            "mapping": {
                "device": ["{.who}"], "time": ["at"], "message_id": "{second}:{telegram}", "radio": ["link.*", "hub"],
            },
        }
    )  # fmt: skip
    gate = MessageProcessor(compile_routes((route,)), GatewaySettings())

    def send(**change: Any) -> ReadingRecord:
        body = {"who": "w", "at": TIME, "hub": "a", "t": 1.5, "link": {"rssi": -3, "lqi": 9}} | change
        outcome = gate.decide(Message(1, 1, RECEIVED_US, b"radio/a", json.dumps(body).encode()))
        return decode_record(outcome.records[0].value)

    assert landed(send(), send(hub="b", link={"rssi": -9, "lqi": 2})) == ([], [])
    assert len(landed(send(), send(t=1.6))[0]) == 4
