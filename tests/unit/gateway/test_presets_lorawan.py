"""Network servers and vendors of LoRaWAN devices: each vendor's rules hold behind each server."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter
from ingest.contract.errors import ConfigError
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.contract.topics import READINGS

NOW_US = 1_800_000_000_000_000
AT = "2026-11-28T21:06:40Z"
AT_US = 1_795_900_000_000_000
EUI = "a84041ff0000abcd"
Wrap = Callable[..., tuple[str, Any]]
Rows = dict[tuple[str, int], Any]


def chirpstack_v4(
    decoded: Any, *, count: int = 7, data: str = "AQI=", at: str = AT, gateway: str = "1"
) -> tuple[str, Any]:
    device = {"devEui": EUI, "deviceName": "freezer", "applicationName": "cold", "deviceProfileName": "node"}
    body = {
        "deduplicationId": f"dedup-{gateway}", "time": at, "deviceInfo": device, "devAddr": "00189440", "dr": 1,
        "fCnt": count, "fPort": 2, "data": data, "rxInfo": [{"gatewayId": gateway, "rssi": -36 - int(gateway)}],
    }  # fmt: skip
    return f"application/app/device/{EUI}/event/up", body | ({} if decoded is None else {"object": decoded})


def chirpstack_v3(
    decoded: Any, *, count: int = 7, data: str = "AQI=", at: str = AT, gateway: str = "1"
) -> tuple[str, Any]:
    topic, body = protobuf_v3(decoded, count=count, data=data, at=at, gateway=gateway)
    found = {"object": json.loads(body.pop("objectJSON"))} if decoded is not None else {}
    return topic, body | {"devEUI": EUI} | found


def protobuf_v3(
    decoded: Any, *, count: int = 7, data: str = "AQI=", at: str = AT, gateway: str = "1"
) -> tuple[str, Any]:
    body = {
        "applicationID": "123", "applicationName": "cold", "deviceName": "freezer", "devEUI": "qEBB/wAAq80=", "devAddr": "ABiU",
        "rxInfo": [{"gatewayID": gateway, "time": None, "rssi": -48 - int(gateway)}], "txInfo": {"frequency": 868100000},
        "adr": True, "dr": 1, "fCnt": count, "fPort": 5, "data": data, "tags": {"key": "value"}, "publishedAt": at,
    }  # fmt: skip
    return f"application/123/device/{EUI}/event/up", body | (
        {} if decoded is None else {"objectJSON": json.dumps(decoded)}
    )


def things_v3(decoded: Any, *, count: int = 7, data: str = "AQI=", at: str = AT, gateway: str = "1") -> tuple[str, Any]:
    ids = {
        "device_id": EUI,
        "application_ids": {"application_id": "app"},
        "dev_eui": EUI.upper(),
        "dev_addr": "00BCB929",
    }
    uplink = {
        "session_key_id": "AXA50tHUGUucuzS/bCGMNw==", "f_cnt": count, "f_port": 2, "frm_payload": data, "received_at": at,
        "rx_metadata": [{"gateway_ids": {"gateway_id": gateway}, "rssi": -35 - int(gateway), "timestamp": 2463457000}],
        "settings": {"frequency": "868300000"},
    }  # fmt: skip
    uplink |= {} if decoded is None else {"decoded_payload": decoded}
    body = {"end_device_ids": ids, "correlation_ids": [f"as:up:{gateway}"], "received_at": at, "uplink_message": uplink}
    return f"v3/app@ttn/devices/{EUI}/up", body


def things_v2(decoded: Any, *, count: int = 7, data: str = "AQI=", at: str = AT, gateway: str = "1") -> tuple[str, Any]:
    gateways = [{"gtw_id": gateway, "rssi": -90 - int(gateway), "timestamp": 1067417243, "time": ""}]
    body = {
        "app_id": "app", "dev_id": EUI, "hardware_serial": EUI.upper(), "port": 2, "counter": count, "is_retry": False,
        "payload_raw": data, "metadata": {"time": at, "frequency": 868.1, "gateways": gateways},
    }  # fmt: skip
    return f"app/devices/{EUI}/up", body | ({} if decoded is None else {"payload_fields": decoded})


def helium(decoded: Any, *, count: int = 7, data: str = "AQI=", at: str = AT, gateway: str = "1") -> tuple[str, Any]:
    body = {
        "app_eui": "6948A4B59F4666AD", "dev_eui": EUI, "devaddr": "B5A44869", "fcnt": count, "id": "7c52-e2d8", "name": "freezer",
        "hotspots": [{"name": gateway, "rssi": -54 - int(gateway)}], "payload": data, "port": 2, "type": "uplink",
        "reported_at": milliseconds(at), "uuid": f"u-{gateway}", "metadata": {"labels": [{"id": "x"}]},
    }  # fmt: skip
    return "helium/7c52-e2d8/rx", body | (
        {} if decoded is None else {"decoded": {"payload": decoded, "status": "success"}}
    )


def thingpark(decoded: Any, *, count: int = 7, data: str = "AQI=", at: str = AT, gateway: str = "1") -> tuple[str, Any]:
    body = {
        "Time": at, "DevEUI": EUI.upper(), "FPort": "2", "FCntUp": str(count), "payload_hex": data, "DevAddr": "040006CC",
        "Lrrs": {"Lrr": [{"Lrrid": gateway, "LrrRSSI": -84.0 - int(gateway)}]}, "CustomerData": {"name": "freezer"},
    }  # fmt: skip
    body |= {} if decoded is None else {"payload": decoded, "points": {"x": {"unitId": "Cel", "record": 24}}}
    return f"mqtt/things/{EUI.upper()}/uplink", {"DevEUI_uplink": body}


def loriot(decoded: Any, *, count: int = 7, data: str = "0102", at: str = AT, gateway: str = "1") -> tuple[str, Any]:
    body = {
        "cmd": "gw", "seqno": 26, "EUI": EUI, "ts": milliseconds(at), "fcnt": count, "port": 2, "freq": 867500000, "data": data,
        "gws": [{"gweui": gateway, "rssi": -106 - int(gateway)}], "bat": 255, "ack": False, "dr": "SF12 BW125 4/5",
    }  # fmt: skip
    return "loriot/app/up", body | ({} if decoded is None else {"decoded": {"success": True, "data": decoded}})


def netmore(decoded: Any, *, count: int = 7, data: str = "0102", at: str = AT, gateway: str = "1") -> tuple[str, Any]:
    body = {
        "devEui": EUI, "sensorType": "th", "messageType": "payload", "timestamp": at, "fCntUp": count, "rssi": "-115",
        "payload": data, "fPort": "2", "tags": {"customer": ["c"]}, "gateways": [{"gatewayIdentifier": gateway, "rssi": "-115"}],
    }  # fmt: skip
    return "netmore/app", [body | ({} if decoded is None else {"decoded": decoded})]


def milliseconds(at: str) -> int:
    return AT_US // 1000 + (int(at[17:19]) - 40) * 1000


SERVERS: list[Wrap] = [
    chirpstack_v4,
    chirpstack_v3,
    protobuf_v3,
    things_v3,
    things_v2,
    helium,
    thingpark,
    loriot,
    netmore,
]
VENDORS: dict[str, tuple[dict[str, Any], Rows, set[str]]] = {
    "dragino": (
        {"BatV": 3.073, "Hum_SHT": "37.8", "TempC_DS": "327.67", "TempC_SHT": "36.16", "Bat_status": 3, "Node_type": "LHT65N"},
        {("BatV", 0): (3.073, "V"), ("Hum_SHT", 0): (37.8, "%"), ("TempC_SHT", 0): (36.16, "°C"), ("Bat_status", 0): (3, None)},
        {"TempC_DS"},
    ),
    "dragino soil": (
        {"Bat": 3.4, "temp_SOIL": "21.50", "water_SOIL": "12.3", "conduct_SOIL": 80, "temp_DS18B20": "3276.70", "i_flag": 0},
        {("Bat", 0): (3.4, None), ("temp_SOIL", 0): (21.5, "°C"), ("water_SOIL", 0): (12.3, "%"),
         ("conduct_SOIL", 0): (80, "µS/cm"), ("i_flag", 0): (0, None)},
        {"temp_DS18B20"},
    ),
    "dragino three probes": (
        {"BatV": 3.6, "TempC1": -5.2, "TempC2": "NULL", "TempC3": -327.68, "Work_mode": "DS18B20"},
        {("BatV", 0): (3.6, "V"), ("TempC1", 0): (-5.2, "°C"), ("Work_mode", 0): ("DS18B20", None)},
        {"TempC3"},
    ),
    "milesight": (
        {"battery": 92, "temperature": 5, "sn": "1", "history": [{"temperature": 4, "humidity": 46, "timestamp": 1_795_800_000}]},
        {("temperature", 0): (4, "°C"), ("humidity", 0): (46, "%"), ("temperature", 1): (5, "°C"), ("battery", 1): (92, "%")},
        set(),
    ),
    "decentlab": (
        {"protocol_version": 2, "device_id": 3248, "battery_voltage": {"displayName": "Battery", "unit": "V", "value": 3.1}},
        {("battery_voltage", 0): (3.1, "V")},
        set(),
    ),
    "elsys": (
        {"temperature": 22.4, "humidity": 40, "light": 61, "vdd": 3600},
        {("temperature", 0): (22.4, "°C"), ("humidity", 0): (40, "%"), ("light", 0): (61, "lx"), ("vdd", 0): (3600, "mV")},
        set(),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def decide() -> Callable[[tuple[str, Any]], Outcome]:
    gate = MessageProcessor(compile_routes((), GatewaySettings()), GatewaySettings())
    return lambda sent: gate.decide(Message(1, 1, NOW_US, sent[0].encode(), json.dumps(sent[1]).encode()))


def records(outcome: Outcome) -> list[ReadingRecord]:
    return [decode_record(record.value) for record in outcome.records if record.topic == READINGS]


def letters(outcome: Outcome) -> list[DeadLetterRecord]:
    return [decode_dead_letter(record.value) for record in outcome.records if record.topic != READINGS]


def identity(record: ReadingRecord) -> str:
    return record.readings[0].message_id or record.message_id or ""


def rows(record: ReadingRecord) -> Rows:
    return {(one.metric, one.index): (one.value if one.text is None else one.text, one.unit) for one in record.readings}


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("server", SERVERS)
def test_a_vendors_rules_hold_behind_each_network_server(
    decide: Callable[[tuple[str, Any]], Outcome], server: Wrap, vendor: str
) -> None:
    decoded, wanted, refused = VENDORS[vendor]
    outcome = decide(server(decoded))
    [record] = records(outcome)
    assert rows(record) == wanted
    assert record.device.lower() == EUI
    last = max(index for _metric, index in wanted)
    assert {one.time_us for one in record.readings if one.index == last} == {AT_US}
    assert {(letter.path or "").rpartition(".")[2] for letter in letters(outcome)} == refused
    assert {letter.reason for letter in letters(outcome)} <= {"bad_number"}


@pytest.mark.parametrize("server", SERVERS)
def test_an_entry_of_a_history_has_its_own_time(decide: Callable[[tuple[str, Any]], Outcome], server: Wrap) -> None:
    history = [{"temperature": 4, "timestamp": 1_795_800_000}, {"temperature": 3, "timestamp": 1_795_700_000}]
    [record] = records(decide(server({"history": history})))
    assert [(one.value, one.time_us) for one in record.readings] == [
        (4, 1_795_800_000_000_000), (3, 1_795_700_000_000_000),
    ]  # fmt: skip


@pytest.mark.parametrize("server", SERVERS)
def test_an_uplink_that_nobody_decoded_says_what_to_do(
    decide: Callable[[tuple[str, Any]], Outcome], server: Wrap
) -> None:
    [letter] = letters(decide(server(None)))
    assert letter.reason == "undecoded"
    assert "decode" in (letter.wanted or "")


@pytest.mark.parametrize("server", SERVERS)
def test_a_device_of_no_known_vendor_is_read_as_it_is(
    decide: Callable[[tuple[str, Any]], Outcome], server: Wrap
) -> None:
    [record] = records(decide(server({"temperature": 21.5, "mode": "heat", "level": "3.5"})))
    found = {metric: value for (metric, _), (value, _unit) in rows(record).items()}
    assert (found["temperature"], found["mode"]) == (21.5, "heat")
    assert {one.unit for one in record.readings} == {None}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("count", [0, 7])
def test_a_copy_through_another_gateway_is_the_same_reading(
    decide: Callable[[tuple[str, Any]], Outcome], server: Wrap, count: int
) -> None:
    later = "2026-11-28T21:06:41Z"
    first, copy, other, changed = (
        identity(records(decide(sent))[0])
        for sent in (
            server({"t": 1}, count=count),
            server({"t": 1}, count=count, at=later, gateway="2"),
            server({"t": 1}, count=count + 1, at=later),
            server({"t": 1}, count=count, data="Aw==", at=later),
        )
    )
    assert first.startswith("tg:"), "the time of a copy is not compared"
    assert copy == first
    assert len({first, other, changed}) == 3


def test_a_counter_that_begins_again_is_another_reading_an_hour_later(
    decide: Callable[[tuple[str, Any]], Outcome],
) -> None:
    first, again = (
        records(decide(chirpstack_v4({"t": 1}, at=at)))[0].message_id for at in (AT, "2026-11-29T21:06:40Z")
    )
    assert first != again


def test_zero_counters_are_left_out_of_the_json_of_the_things_stack(
    decide: Callable[[tuple[str, Any]], Outcome],
) -> None:
    topic, body = things_v3({"t": 1}, count=0)
    del body["uplink_message"]["f_cnt"]
    assert records(decide((topic, body)))[0].message_id == records(decide(things_v3({"t": 1}, count=0)))[0].message_id


def test_the_name_that_the_network_server_gives_the_vendor_counts(
    decide: Callable[[tuple[str, Any]], Outcome],
) -> None:
    topic, body = things_v3({"temperature": 21.5, "battery": 90})
    body["uplink_message"]["version_ids"] = {"brand_id": "milesight-iot", "model_id": "em300-th"}
    assert rows(records(decide((topic, body)))[0]) == {("temperature", 0): (21.5, "°C"), ("battery", 0): (90, "%")}
    topic, body = chirpstack_v4({"temperature": 21.5})
    body["deviceInfo"]["deviceProfileName"] = "Milesight EM300-TH"
    assert rows(records(decide((topic, body)))[0]) == {("temperature", 0): (21.5, "°C")}
    topic, body = thingpark({"Distance": "1200", "Bat": 3.4})
    body["DevEUI_uplink"]["DriverCfg"] = {"app": {"pId": "dragino", "mId": "ldds75"}}
    assert rows(records(decide((topic, body)))[0])[("Distance", 0)] == (1200, None)


def test_normalized_payload_wins_over_decoded_payload(decide: Callable[[tuple[str, Any]], Outcome]) -> None:
    topic, body = things_v3({"temperature": 50, "BatV": 3.0, "windSpeed": 17.5})
    body["uplink_message"]["normalized_payload"] = [
        {"time": "2026-11-28T20:00:00Z", "air": {"temperature": 10, "relativeHumidity": 40.5}, "wind": {"speed": 9.002}},
        {"soil": {"temperature": 8, "moisture": 12, "ec": 0.3}, "battery": 3.026},
    ]  # fmt: skip
    [record] = records(decide((topic, body)))
    assert {(one.metric, one.value, one.unit, one.time_us) for one in record.readings} == {
        ("air.temperature", 10, "°C", AT_US - 4_000_000_000), ("air.relativeHumidity", 40.5, "%", AT_US - 4_000_000_000),
        ("wind.speed", 9.002, "m/s", AT_US - 4_000_000_000), ("soil.temperature", 8, "°C", AT_US),
        ("soil.moisture", 12, "%", AT_US), ("soil.ec", 0.3, "dS/m", AT_US), ("battery", 3.026, "V", AT_US),
    }  # fmt: skip


def test_an_empty_normalized_payload_leaves_the_decoded_one(decide: Callable[[tuple[str, Any]], Outcome]) -> None:
    topic, body = things_v3({"TempC_DS": "327.67", "BatV": 3.0})
    body["uplink_message"]["normalized_payload"] = []
    outcome = decide((topic, body))
    assert rows(records(outcome)[0]) == {("BatV", 0): (3.0, "V")}
    assert [letter.reason for letter in letters(outcome)] == ["bad_number"]


@pytest.mark.parametrize(
    ("text", "reason"), [("", "undecoded"), ("{}", None), ("[1,", "bad_json"), ('{"t":1}x', "bad_json")]
)
def test_text_of_chirpstack_3_that_holds_no_object(
    decide: Callable[[tuple[str, Any]], Outcome], text: str, reason: str | None
) -> None:
    topic, body = protobuf_v3({"t": 1})
    outcome = decide((topic, body | {"objectJSON": text}))
    assert records(outcome) == []
    assert [letter.reason for letter in letters(outcome)] == ([] if reason is None else [reason])


def test_other_events_of_chirpstack_3(decide: Callable[[tuple[str, Any]], Outcome]) -> None:
    topic, body = f"application/123/device/{EUI}/event/", {"applicationID": "123", "deviceName": "g", "devEUI": EUI}
    status = {"margin": 6, "externalPowerSource": False, "batteryLevelUnavailable": False, "batteryLevel": 75.5}
    found = records(decide((topic + "status", body | status)))[0]
    assert rows(found)[("batteryLevel", 0)] == (75.5, "%")
    where = {"location": {"latitude": 4.6, "longitude": 52.3, "altitude": 10.5, "source": "GEO_RESOLVER"}}
    assert rows(records(decide((topic + "location", body | where)))[0])[("location.latitude", 0)] == (4.6, "°")
    assert decide((topic + "join", body)).ignored == "status"
    assert decide((topic + "error", body | {"type": "UPLINK_CODEC"})).ignored == "status"


def test_the_topics_of_chirpstack_before_3_11(decide: Callable[[tuple[str, Any]], Outcome]) -> None:
    _topic, body = chirpstack_v3({"TempC_SHT": "21.5", "BatV": 3})
    found = rows(records(decide((f"application/123/device/{EUI}/rx", body)))[0])
    assert found == {("TempC_SHT", 0): (21.5, "°C"), ("BatV", 0): (3, "V")}


def test_loriots_two_messages_of_one_uplink_are_one(decide: Callable[[tuple[str, Any]], Outcome]) -> None:
    topic, body = loriot({"t": 1})
    short = {key: value for key, value in body.items() if key != "gws"} | {"cmd": "rx", "rssi": -108, "snr": 1.2}
    assert records(decide((topic, short)))[0].message_id == records(decide((topic, body)))[0].message_id


@pytest.mark.parametrize(
    ("topic", "body", "reason"),
    [
        ("loriot/app/up", {"cmd": "txd", "EUI": EUI, "seqdn": 0, "ts": 1}, "command"),
        (f"mqtt/things/{EUI}/downlink", {"DevEUI_downlink": {}}, "command"),
        (f"mqtt/things/{EUI}/location", {"DevEUI_location": {}}, "status"),
        ("helium/7c52-e2d8/tx", {"payload_raw": "AQ=="}, "command"),
    ],
)
def test_what_is_not_an_uplink_is_ignored(
    decide: Callable[[tuple[str, Any]], Outcome], topic: str, body: Any, reason: str
) -> None:
    outcome = decide((topic, body))
    assert (outcome.records, outcome.ignored) == ([], reason)


def test_a_mapping_of_ones_own_lets_vendors_in() -> None:
    mapping = {"device": "{.id}", "values": "decoded", "vendors": ["dragino", "mile*"]}
    route = RouteSettings.model_validate({"filter": "lns/#", "mapping": mapping})
    gate = MessageProcessor(compile_routes((route,)), GatewaySettings())
    body = {"id": "x", "decoded": {"BatV": "3.1", "TempC_SHT": 21}}
    [record] = records(gate.decide(Message(1, 1, NOW_US, b"lns/up", json.dumps(body).encode())))
    assert rows(record) == {("BatV", 0): (3.1, "V"), ("TempC_SHT", 0): (21, "°C")}


def test_a_vendor_that_nobody_ships_is_named_at_start() -> None:
    route = RouteSettings.model_validate({"filter": "lns/#", "mapping": {"vendors": ["acme"]}})
    with pytest.raises(
        ConfigError, match=r"vendors: no vendor matches 'acme' \(known: decentlab, dragino, elsys, milesight\)"
    ):
        compile_routes((route,))
