"""Drafts that would be wrong in silence: each kind is either right, or the draft says what is not sure."""

import json
from typing import Any

import pytest

from gateway.gateway_settings import GatewaySettings
from gateway.suggest.message_families import SampleMessage
from gateway.suggest.propose import Proposal, propose_routes

LIMITS = GatewaySettings(presets=())
AT_US = 1_795_900_000_000_000
AT_S = 1_795_890_000
AT = "2026-11-28T18:20:00Z"


def propose(*messages: tuple[str, Any], zone: str | None = None) -> Proposal:
    samples = [
        SampleMessage(topic, (payload if isinstance(payload, str) else json.dumps(payload)).encode(), AT_US)
        for topic, payload in messages
    ]
    [found] = propose_routes(samples, (), LIMITS, zone=zone)
    return found


def metrics(proposal: Proposal) -> list[tuple[str, Any]]:
    return [
        (one["metric"], one["value"] if one["text"] is None else one["text"])
        for message in proposal.decoded
        for one in message["readings"]
    ]


def times(proposal: Proposal) -> set[str | None]:
    return {one["time"] for message in proposal.decoded for one in message["readings"]}


@pytest.mark.parametrize("key", ["id", "uuid", "guid", "_id"])
def test_an_id_that_may_be_the_senders_is_no_identity_of_a_message(key: str) -> None:
    sender = "7ad4f1c2-90e1-4f0e-9d51-0f5c3a2b7e10"
    alone = propose(("hut/env", {key: sender, "t": 21.5}))
    timed = propose(("hut/env", {key: sender, "t": 21.5, "ts": AT_S}))
    assert "message_id" not in alone.draft.mapping
    assert timed.draft.mapping["message_id"] == [f"{{.{key}}}:{{.ts}}"]


def test_an_id_that_differs_among_messages_of_a_topic_is_their_identity() -> None:
    one, other = "7ad4f1c2-90e1-4f0e-9d51-0f5c3a2b7e10", "1d9b3c52-90e1-4f0e-9d51-0f5c3a2b7e11"
    found = propose(("hut/env", {"uuid": one, "t": 1}), ("hut/env", {"uuid": other, "t": 2}))
    assert found.draft.mapping["message_id"] == ["{.uuid}"]
    elsewhere = propose(("hut/a/env", {"uuid": one, "t": 1}), ("hut/b/env", {"uuid": other, "t": 2}))
    assert "message_id" not in elsewhere.draft.mapping


def test_a_text_in_an_array_does_not_take_its_neighbours_away() -> None:
    found = propose(("hut/dev-1", {"raw": [8, "H34A08J1234567", 1.5], "acc": [{"x": 1, "serialNo": "A1"}, {"x": 2}]}))
    assert metrics(found) == [("raw[0]", 8), ("raw[2]", 1.5), ("acc[0].x", 1), ("acc[1].x", 2)]
    assert {one.name for one in found.draft.left_out} == {"raw[1]", "acc[0].serialNo"}


def test_items_inside_of_items_have_the_name_of_what_is_around_them() -> None:
    body = {
        "Tags": [
            {"TagKey": "Temp", "Values": [{"V": 21.5, "Ts": AT}]},
            {"TagKey": "Level", "Values": [{"V": 3, "Ts": AT}]},
        ]
    }
    assert metrics(propose(("line/plc-1", body))) == [("Temp", 21.5), ("Level", 3)]


def test_a_text_that_differs_among_messages_of_a_topic_names_their_value() -> None:
    bodies = [
        {"leaf": f"L1/{name}", "tagPath": f"L1/{name}", "value": value} for name, value in (("T", 181.4), ("P", 2.1))
    ]
    assert [name for name, _value in metrics(propose(*[("edge/dev-1", body) for body in bodies]))] == ["L1/T", "L1/P"]


def test_values_that_share_a_name_are_a_doubt() -> None:
    groups = [{"values": [{"n": "in", "v": 1}]}, {"values": [{"n": "in", "v": 2}]}]
    found = propose(("hut/dev-1", {"ts": AT_S, "groups": groups}))
    assert not found.works
    assert found.draft.doubts == [
        "2 values of one message have the name in and the same time: give each its own name (`prefix` or `rename`)"
    ]


@pytest.mark.parametrize(
    "key", ["last_boot", "installedAt", "date_min_temp", "sunrise", "valid_until", "calibrationDate"]
)
@pytest.mark.parametrize("value", [AT, AT_S, AT_S * 1000])
def test_a_time_at_which_something_else_happened_is_neither_the_time_nor_a_value(key: str, value: Any) -> None:
    found = propose(("hut/dev-1", {key: value, "level": 21.5}))
    assert (metrics(found), times(found)) == ([("level", 21.5)], {None})
    assert [one.name for one in found.draft.left_out] == [key]


@pytest.mark.parametrize("value", [123_456, 46_354.76, 29_931_500])
def test_what_is_called_a_timestamp_and_is_none_is_no_value(value: float) -> None:
    found = propose(("hut/dev-1", {"timestamp": value, "level": 21.5}))
    assert metrics(found) == [("level", 21.5)]
    assert any("timestamp" in note for note in found.draft.notes)


def test_minutes_since_the_epoch() -> None:
    assert times(propose(("hut/dev-1", {"epoch_min": AT_S // 60, "level": 21.5}))) == {AT}


def test_digits_under_a_key_that_does_not_say_time_are_no_time() -> None:
    found = propose(("lora/raw", {"devEUI": "A84041000181D4A2", "data": "01670110026850", "level": 1.5}))
    assert (times(found), metrics(found)) == ({None}, [("level", 1.5)])


def test_a_time_with_an_offset_comes_before_one_whose_zone_nobody_named() -> None:
    body = {"uploadTime": "2026-11-28 19:20:00", "utcDateTime": AT, "level": 1.5}
    assert times(propose(("hut/dev-1", body))) == {AT}
    assert times(propose(("hut/dev-1", body), zone="Europe/Berlin")) == {AT}


def test_samples_without_a_step_are_refused_and_not_placed_at_the_receive_time() -> None:
    found = propose(("log/batch", {"dev": "d-1", "start": AT, "interval": 600, "values": [1.2, 1.3, 1.1]}))
    assert not found.works
    assert [one["reason"] for one in found.decoded] == ["ambiguous_time"]


@pytest.mark.parametrize(
    "payload",
    [
        "uptime 12452 heap 187632 rssi -61 temp 21.5",
        "/KFM5KAIFA\n\n1-0:1.8.1(000671.578*kWh)\n!1E1D",
        "<m><t>21.5</t></m>",
    ],
)
def test_a_telegram_is_not_taken_for_one_text_value(payload: str) -> None:
    found = propose(("meter/m-1/raw", payload))
    assert not found.works
    assert "write a decoder" in found.draft.doubts[0]


@pytest.mark.parametrize("payload", ["21.5", "on", "no error", "heating since 12:30"])
def test_a_state_is_a_value(payload: str) -> None:
    assert propose(("meter/m-1/state", payload)).works


def test_a_unit_is_only_of_the_value_that_it_is_of() -> None:
    listed = {
        "records": [
            {"no": 1, "storage": 0, "unit": "kWh", "value": 5},
            {"no": 2, "storage": 0, "unit": "m³", "value": 7},
        ]
    }
    found = propose(("meter/m-1", listed))
    units = {one["metric"]: one["unit"] for message in found.decoded for one in message["readings"]}
    assert units == {"1.storage": None, "1.value": "kWh", "2.storage": None, "2.value": "m³"}
    unclear = propose(
        ("site/s-1", {"flow": {"refresh": 3, "unit": "kW", "grid": {"power": 1.5}, "load": {"power": 2.5}}})
    )
    assert [one["unit"] for message in unclear.decoded for one in message["readings"]] == [None, None, None]
    assert ("flow.unit", "is the unit of an unknown value") in unclear.draft.left_out


@pytest.mark.parametrize("key", ["node", "id", "serial", "name"])
def test_an_array_of_devices_names_its_devices(key: str) -> None:
    nodes = [{key: "hall", "temp_c": 21.5}, {key: "roof", "temp_c": 7.5}]
    found = propose(("gw/7/bulk", {"deviceId": "gw-7", "ts": AT_S, "nodes": nodes}))
    assert [one["device"] for message in found.decoded for one in message["readings"]] == ["hall", "roof"]


def test_objects_under_ids_are_devices_and_objects_under_words_are_values() -> None:
    by_id = propose(("ble/scan", {"A4:C1:38:11:22:33": {"t": 21.5}, "A4:C1:38:11:22:44": {"t": 20.5}}))
    assert by_id.draft.mapping["device"] == ["{key}"]
    assert metrics(by_id) == [("t", 21.5), ("t", 20.5)]
    assert metrics(propose(("hut/dev-1", {"in": {"t": 21.5}, "out": {"t": 7.5}}))) == [("in.t", 21.5), ("out.t", 7.5)]


@pytest.mark.parametrize("value", ["2026-11-28T18:15:00Z", AT_S, str(AT_S)])
def test_a_time_is_never_a_device(value: Any) -> None:
    found = propose(("traffic/loop-7", {"from": value, "sender": value, "cars": 123}))
    assert {one["device"] for message in found.decoded for one in message["readings"]} == {"loop-7"}


def test_parts_of_a_device_behind_it_in_the_topic_do_not_share_a_name() -> None:
    found = propose(("bacnet/4711/input/2", {"deviceId": 4711, "level": 18.7, "mode": 1}))
    assert [name for name, _value in metrics(found)] == ["2.level", "2.mode"]


def test_receivers_of_a_radio_message_are_no_items_of_it() -> None:
    receivers = [{"mac": "24:e1:24:f0:a1:b2", "rssi": -60}, {"mac": "24:e1:24:f0:a1:b3", "rssi": -90}]
    for key in ("rxInfo", "rx_metadata", "gateways", "hotspots"):
        found = propose(("ug/uplink", {"devEUI": "24e124136b502217", key: receivers, "level": 21.5}))
        assert metrics(found) == [("level", 21.5)]


def test_an_id_of_some_thing_is_the_device_where_no_topic_says_one() -> None:
    found = propose(("park/lot", {"lotId": "L-4", "free": 3}), ("park/lot", {"lotId": "L-5", "free": 9}))
    assert [one["device"] for message in found.decoded for one in message["readings"]] == ["L-4", "L-5"]


@pytest.mark.parametrize(("text", "value"), [("21,5 °C", 21.5), ("0,340 kg", 0.34), ("12,34", 12.34)])
def test_a_comma_that_is_a_decimal_sign_is_read(text: str, value: float) -> None:
    assert metrics(propose(("x/dev-1", {"level": text, "other": 1}))) == [("level", value), ("other", 1)]


@pytest.mark.parametrize("text", ["12,340 kg", "1,2"])
def test_a_comma_that_may_divide_thousands_or_a_list_is_refused(text: str) -> None:
    found = propose(("x/dev-1", {"level": text, "other": 1}))
    assert not found.works
    assert [one["reason"] for message in found.decoded for one in message["rejected"]] == ["bad_number"]


@pytest.mark.parametrize("key", ["name", "did", "friendlyName"])
def test_what_names_a_part_in_a_list_is_no_device(key: str) -> None:
    parts = [{key: "1" if key == "did" else "EEC1", "rate": 5}, {key: "2" if key == "did" else "ET1", "rate": 7}]
    found = propose(("fleet/FL-07/can", {"ts": AT_S, "frames": parts}))
    assert {one["device"] for message in found.decoded for one in message["readings"]} == {"FL-07"}


def test_a_number_of_the_day_of_reception_is_the_time_whatever_it_is_called() -> None:
    found = propose(("grid/bus14", {"soc": AT_S, "level": 49.9}))
    assert (metrics(found), times(found)) == ([("level", 49.9)], {AT})
    older = propose(("grid/bus14", {"soc": AT_S - 200_000, "level": 49.9}))
    assert times(older) == {None}


def test_a_text_that_repeats_an_id_of_the_topic_is_no_value_unless_it_names_one() -> None:
    found = propose(("ebike/bms/7613", {"pack": "7613", "level": 3.9}))
    assert metrics(found) == [("level", 3.9)]
    named = propose(("plant/line2/T101", {"tag": "T101", "value": 3}))
    assert [(one["device"], one["metric"]) for message in named.decoded for one in message["readings"]] == [
        ("line2", "T101")
    ]


def test_a_number_behind_its_name_is_a_number() -> None:
    assert metrics(propose(("aqua/tank2/ph", "pH 7.42"))) == [("ph", 7.42)]
    assert metrics(propose(("aqua/tank2/mode", "error 5"))) == [("mode", "error 5")]


def test_an_id_of_the_topic_is_the_device_also_under_a_key_that_nobody_listed() -> None:
    found = propose(("ais/211331640", {"device": "catcher", "mmsi": 211331640, "level": 12.3}))
    assert found.draft.mapping["same_device"] == ["{.mmsi}"]
    assert metrics(found) == [("level", 12.3)]


def test_a_bad_quality_in_a_sample_is_refused_and_the_draft_is_right() -> None:
    tags = {"AI1": {"V": 4.123, "Q": "OK"}, "AI2": {"V": 0.0, "Q": "FAIL"}}
    found = propose(("io/dev-1", {"ts": AT_S, "Tags": tags}))
    assert found.works
    assert metrics(found) == [("Tags.AI1", 4.123)]
    broken = propose(("io/dev-1", {"ts": AT_S, "probe": -127.0, "level": 1.5}))
    assert broken.works
    assert metrics(broken) == [("level", 1.5)]
    unknown = propose(("io/dev-1", {"ts": AT_S, "Tags": {"AI1": {"V": 4.123, "Q": 17}, "AI2": {"V": 0.0, "Q": 3}}}))
    assert any("is not used" in note for note in unknown.draft.notes)


def test_json_that_is_written_as_json_once_more_is_read() -> None:
    assert metrics(propose(("esp/dev-1", json.dumps(json.dumps({"t": 21.5, "h": 44}))))) == [("t", 21.5), ("h", 44)]


def test_the_end_of_an_interval_is_its_time() -> None:
    found = propose(("noise/nl-52", {"Start": "2026-11-28T18:15:00Z", "End": AT, "level": 54.3}))
    assert (metrics(found), times(found)) == ([("level", 54.3)], {AT})


def test_parts_of_a_time_are_no_values() -> None:
    assert metrics(propose(("gh/dev-1", {"ts": {"sec": AT_S, "nsec": 250_000_000}, "level": 1.5}))) == [("level", 1.5)]
    assert metrics(propose(("gh/dev-1", {"gas_timestamp": 210606140010, "level": 1.5}))) == [("level", 1.5)]


def test_items_of_a_list_that_hold_their_values_in_an_object() -> None:
    items = [{"id": "0xA1B2", "data": {"level": 21.4}}, {"id": "0xA1B3", "data": {"level": 19.4}}]
    assert metrics(propose(("rfx/msg", items))) == [("0xA1B2.level", 21.4), ("0xA1B3.level", 19.4)]


def test_a_key_and_a_value_in_each_line() -> None:
    found = propose(("vedirect/mppt-1", "PID\t0xA053\nSER#\tHQ2033\nV\t26320\nPPV\t32\nLOAD\tON"))
    assert ("V", 26320) in metrics(found)
    table = propose(("vedirect/mppt-1", "name\tlevel\nhall\t26\nroof\t31"))
    assert table.draft.mapping["format"]["kind"] == "rows"


def test_numbers_with_zeros_in_front_are_numbers_beside_one_as_wide() -> None:
    found = propose(
        ("475/fan-1/current", {"ts": AT_S, "data": {"tact": "2950", "hact": "0044", "serialPart": "00777"}})
    )
    assert metrics(found)[:2] == [("tact", 2950), ("hact", 44)]
    alone = propose(("475/fan-1/current", {"ts": AT_S, "level": 3, "plate": "0044"}))
    assert dict(metrics(alone))["plate"] == "0044"


def test_what_is_left_out_around_the_items_is_named_once_and_no_item_is() -> None:
    series = [{"name": "env", "columns": ["time", "level"], "values": [[AT_S, 21.5], [AT_S + 60, 21.6]]}]
    found = propose(("influx/relay-1", {"results": [{"statement_id": 0, "series": series}]}))
    assert metrics(found) == [("level", 21.5), ("level", 21.6)]
    names = [one.name for one in found.draft.left_out]
    assert len(names) == len(set(names))
    assert not [name for name in names if "level" in name or "[0].time" in name]


def test_a_unit_around_the_value_is_that_of_the_value() -> None:
    series = [
        {"shortname": name, "unit": unit, "equidistance": 15, "current": {"timestamp": AT, "value": value}}
        for name, unit, value in (("W", "cm", 254.0), ("Q", "m³/s", 1510.0))
    ]
    found = propose(("pegel/bonn", {"timeseries": series}))
    units = {one["metric"]: one["unit"] for message in found.decoded for one in message["readings"]}
    assert units == {"W.equidistance": None, "W.current": "cm", "Q.equidistance": None, "Q.current": "m³/s"}
    assert found.works
