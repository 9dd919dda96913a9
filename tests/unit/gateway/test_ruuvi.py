"""Ruuvi data format 5 against the test vectors of its specification, and as gateways relay it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoders.ruuvi import decode_ruuvi, read_format_5
from gateway.decoders.shape import Decoded, RouteMatch
from gateway.gateway_settings import GatewaySettings
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

NOW_US = 1_800_000_000_000_000
MAC = "CB:B8:33:4C:88:4F"
MATCH = RouteMatch("ruuvi", MAC, MAC)
LIMITS = GatewaySettings()
VALID = "0512FC5394C37C0004FFFC040CAC364200CDCBB8334C884F"
"""From the specification: valid data."""
HEAD = "0201061BFF9904"


def decode(body: object, match: RouteMatch = MATCH) -> Decoded:
    decoded = decode_ruuvi(body if isinstance(body, bytes) else json.dumps(body).encode(), match, LIMITS, NOW_US)
    assert isinstance(decoded, Decoded), decoded
    return decoded


def refused(body: object) -> Reject:
    decoded = decode_ruuvi(body if isinstance(body, bytes) else json.dumps(body).encode(), MATCH, LIMITS, NOW_US)
    assert isinstance(decoded, Reject), decoded
    return decoded


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (VALID, [24.3, 53.49, 100044.0, 0.004, -0.004, 1.036, 2.977, 4.0, 66.0]),
        (
            "057FFFFFFEFFFE7FFF7FFF7FFFFFDEFEFFFECBB8334C884F",
            [163.835, 163.8350, 115534.0, 32.767, 32.767, 32.767, 3.646, 20.0, 254.0],
        ),
        (
            "058001000000008001800180010000000000CBB8334C884F",
            [-163.835, 0.0, 50000.0, -32.767, -32.767, -32.767, 1.6, -40.0, 0.0],
        ),
    ],
)
def test_the_specifications_vectors_are_read(data: str, values: list[float]) -> None:
    fields, mac, _ = read_format_5(bytes.fromhex(data)[1:])
    assert [value for _, value, _ in fields] == pytest.approx(values, abs=1e-9)
    assert mac == MAC


def test_what_is_not_available_is_no_reading() -> None:
    fields, mac, number = read_format_5(bytes.fromhex("8000FFFFFFFF800080008000FFFFFFFFFFFFFFFFFFFFFF"))
    assert (fields, mac, number) == ([], None, None)


def test_a_relayed_advertisement_gives_readings_with_units_and_its_time() -> None:
    decoded = decode({"gw_mac": "AA", "rssi": -26, "aoa": [], "gwts": 1, "ts": 1_653_668_027, "data": HEAD + VALID})
    assert [(x.metric, x.value, x.unit) for x in decoded.readings] == [
        ("temperature", 24.3, "°C"), ("humidity", 53.49, "%"), ("pressure", 100044.0, "Pa"),
        ("acceleration_x", 0.004, "g"), ("acceleration_y", -0.004, "g"), ("acceleration_z", 1.036, "g"),
        ("voltage", 2.977, "V"), ("tx_power", 4.0, "dBm"), ("movement_counter", 66.0, None), ("rssi", -26.0, "dBm"),
    ]  # fmt: skip
    assert {reading.time_us for reading in decoded.readings} == {1_653_668_027_000_000}
    assert (decoded.device, decoded.rejects) == (MAC, [])


def test_the_same_measurement_has_one_identity_however_it_came_and_another_measurement_another() -> None:
    here = decode({"rssi": -26, "ts": 1_653_668_027, "data": HEAD + VALID})
    there = decode({"rssi": -80, "ts": 1_653_668_029, "data": "1BFF9904" + VALID})
    assert here.message_id == there.message_id
    assert here.message_id
    # The counter comes again after 65,535 measurements: then something else differs.
    assert decode({"data": HEAD + VALID.replace("12FC", "12FD")}).message_id != here.message_id
    assert decode({"data": HEAD + VALID.replace("00CD", "00CE")}).message_id != here.message_id
    assert decode({"data": HEAD + VALID.replace("00CD", "FFFF")}).message_id is None


def test_the_tags_own_mac_is_the_device_and_the_topics_must_agree() -> None:
    body = {"data": HEAD + VALID}
    assert decode(body, RouteMatch("ruuvi", "cb-b8-33-4c-88-4f", "x")).device == MAC
    assert decode(body, RouteMatch("ruuvi", "sauna", "x")).device == MAC
    without = {"data": HEAD + VALID.replace("CBB8334C884F", "FFFFFFFFFFFF")}
    assert decode(without, RouteMatch("ruuvi", "sauna", "x")).device == "sauna"
    other = decode_ruuvi(json.dumps(body).encode(), RouteMatch("ruuvi", "C0:FF:EE:00:00:01", "x"), LIMITS, NOW_US)
    assert isinstance(other, Reject)
    assert other.reason is Reason.IDENTITY_MISMATCH


@pytest.mark.parametrize(
    "data",
    [HEAD + VALID[:-2], "0201061BFF990406" + VALID[2:], "0201061BFF4C0005" + VALID[2:], "xyz", 5, "00", "FF", "02"],
)
def test_data_of_another_format_is_kept_as_refused_and_leaves_rssi(data: object) -> None:
    decoded = decode({"rssi": -70, "data": data})
    assert [(reading.metric, reading.value) for reading in decoded.readings] == [("rssi", -70.0)]
    assert [(fault.path, fault.reason) for fault in decoded.rejects] == [("$.data", Reason.UNDECODED)]


@pytest.mark.parametrize(("rssi", "reason"), [("-70", Reason.WRONG_TYPE), (True, Reason.WRONG_TYPE)])
def test_an_rssi_that_is_no_number_costs_itself(rssi: object, reason: Reason) -> None:
    decoded = decode({"rssi": rssi, "data": HEAD + VALID})
    assert len(decoded.readings) == 9
    assert [(fault.path, fault.reason) for fault in decoded.rejects] == [("$.rssi", reason)]


def test_nothing_measured_is_no_reading() -> None:
    assert decode({"gw_mac": "AA", "data": "", "rssi": None}).readings == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[1]", Reason.NOT_OBJECT),
        (b"{", Reason.BAD_JSON),
        ({"ts": 5, "rssi": -1}, Reason.TS_TOO_OLD),
        ({"ts": "now", "rssi": -1}, Reason.BAD_TIMESTAMP),
        ({"ts": 3_000_000_000, "rssi": -1}, Reason.TS_TOO_FAR_FUTURE),
    ],
)
def test_a_message_that_is_none_is_refused(body: object, reason: Reason) -> None:
    assert refused(body).reason is reason


@given(st.binary(max_size=60))
def test_random_advertisements_have_an_outcome(data: bytes) -> None:
    for raw in (data, bytes.fromhex(HEAD) + data, bytes.fromhex(HEAD + "05") + data):
        decoded = decode_ruuvi(
            json.dumps({"data": raw.hex()}).encode(), RouteMatch("ruuvi", "tag", "x"), LIMITS, NOW_US
        )
        assert isinstance(decoded, Decoded)
        assert all(reading.value is not None for reading in decoded.readings)


@given(
    st.dictionaries(st.sampled_from(["data", "rssi", "ts", "gwts"]), st.none() | st.integers() | st.text(max_size=9))
)
def test_random_members_have_an_outcome(body: dict[str, Any]) -> None:
    decode_ruuvi(json.dumps(body).encode(), MATCH, LIMITS, NOW_US)
