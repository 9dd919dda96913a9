"""SenML against the examples of RFC 8428, its rules one by one, and packs that are none."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoders.senml.decoder import RELATIVE_TIME, decode_senml, split_name
from gateway.decoders.shape import Decoded, RouteMatch
from gateway.gateway_settings import GatewaySettings
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import Reason

SENML = Path(__file__).parents[2] / "data" / "senml"
NOW_US = 1_800_000_000_000_000
MATCH = RouteMatch("senml", "topic-device", "senml")
LIMITS = GatewaySettings()


def decode(pack: object, limits: GatewaySettings = LIMITS) -> list[Decoded] | Reject:
    payload = pack if isinstance(pack, bytes) else json.dumps(pack).encode()
    decoded = decode_senml(payload, MATCH, limits, NOW_US)
    return [decoded] if isinstance(decoded, Decoded) else decoded


def one(pack: object) -> Decoded:
    decoded = decode(pack)
    assert not isinstance(decoded, Reject), decoded
    [device] = decoded
    return device


def whole(pack: object) -> Reject:
    """Why the pack was refused whole: as such, or for each device that it names."""
    decoded = decode(pack)
    if isinstance(decoded, Reject):
        return decoded
    assert not any(device.readings for device in decoded), decoded
    (reject,) = {id(reject): reject for device in decoded for reject in device.rejects}.values()
    return reject


def value_of(reading: Reading) -> object:
    return reading.value if reading.text is None else reading.text


def resolved(decoded: list[Decoded]) -> set[tuple[Any, ...]]:
    """Readings as the RFC's resolved records have them; those of "now" without their time."""
    found = set()
    for device in decoded:
        for reading in device.readings:
            name = device.device if reading.metric in ("value", "lat", "lon", "%EL") else reading.metric
            time = None if reading.time_us is None else reading.time_us / 1e6
            found.add((device.device, name, reading.unit, value_of(reading), time))
    return found


def wanted(records: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    found = set()
    for record in records:
        device, metric = split_name("", record["n"])
        value = record.get("v", record.get("vs", record.get("vb")))
        value = {True: "true", False: "false"}[value] if isinstance(value, bool) else value
        time = None if record["t"] in (1498780179, 1499109309) else record["t"]
        found.add((device, device if metric == "value" else metric, record.get("u"), value, time))
    return found


@pytest.mark.parametrize(
    "example", [f"ex{number}.gen.json" for number in range(1, 13)] + ["ex3.gen.cbor", "ex5.gen.cbor"]
)
def test_the_examples_of_the_standard(example: str) -> None:
    decoded = decode((SENML / example).read_bytes())
    assert not isinstance(decoded, Reject)
    assert [device.rejects for device in decoded] == [[]] * len(decoded)
    found = resolved(decoded)
    if example == "ex7.gen.json":
        # The resolved file leaves out the binary value.
        found.remove(("urn:dev:ow:10e2073a01080063", "nfv-reader", None, "aGkgCg", None))
    resolved_file = SENML / f"{example.partition('.')[0]}.gen.resolved.json"
    assert found == wanted(json.loads(resolved_file.read_text("utf-8")))


def test_the_rfcs_example_of_two_lamps_gives_two_devices_in_order() -> None:
    decoded = decode((SENML / "ex13.gen.json").read_bytes())
    assert not isinstance(decoded, Reject)
    assert [device.device for device in decoded] == ["2001:db8::3", "2001:db8::4"]
    assert [[(x.value, x.time_us, x.index, x.unit) for x in device.readings] for device in decoded] == [
        [(0.5, 1_320_078_429_000_000, 0, "/"), (0.0, 1_320_078_429_100_000, 2, "/")],
        [(0.5, 1_320_078_429_000_000, 1, "/"), (0.0, 1_320_078_429_100_000, 3, "/")],
    ]


@pytest.mark.parametrize(
    ("base", "name", "device", "metric"),
    [
        ("urn:dev:ow:10e2073a0000aaaa:", "voltage", "urn:dev:ow:10e2073a0000aaaa", "voltage"),
        ("", "urn:dev:ow:10e2073a0000aaaa", "urn:dev:ow:10e2073a0000aaaa", "value"),
        ("", "urn:dev:ow:10e2073a0000aaaa:temp", "urn:dev:ow:10e2073a0000aaaa", "temp"),
        ("", "urn:dev:mac:0024beff_temp", "urn:dev:mac:0024beff", "temp"),
        ("", "urn:uuid:f81d4fae-7dec:a:b", "urn:uuid:f81d4fae-7dec", "a:b"),
        ("fridge-sensor:", "Temperature", "fridge-sensor", "Temperature"),
        ("fridge-sensor", "Temperature", "fridge-sensor", "Temperature"),
        ("fridge-sensor:", "", "fridge-sensor", "value"),
        ("2001:db8::2/", "temperature", "2001:db8::2", "temperature"),
        ("", "2001:db8::2/temperature", "2001:db8::2", "temperature"),
        ("", "2001:db8::3", "2001:db8::3", "value"),
        ("", "AA:BB:CC:00:00:01", "AA:BB:CC:00:00:01", "value"),
        ("", "AA:BB:CC:00:00:01:temp", "AA:BB:CC:00:00:01", "temp"),
        ("", "plant/line-2/temp", "plant/line-2", "temp"),
        ("", "probe", "probe", "value"),
    ],
)
def test_a_name_becomes_device_and_metric(base: str, name: str, device: str, metric: str) -> None:
    assert split_name(base, name) == (device, metric)
    # However the sender cuts it, a name that holds its own boundary gives the same.
    if base.endswith((":", "/")) and name:
        assert split_name("", base + name) == (device, metric)


@given(
    st.from_regex(r"[A-Za-z0-9:./_-]{0,30}", fullmatch=True), st.from_regex(r"[A-Za-z0-9:./_-]{0,30}", fullmatch=True)
)
def test_every_name_has_a_device_and_a_metric(base: str, name: str) -> None:
    if not (base + name)[:1].isalnum():
        return
    device, metric = split_name(base, name)
    assert device
    assert metric
    assert device in base + name
    assert metric in (base + name, "value") or metric in base + name


def test_base_fields_hold_from_their_record_on_and_the_newest_wins() -> None:
    decoded = one(
        [
            {"n": "d:a", "v": 1},
            {"bn": "d:", "bt": 1_700_000_000, "bu": "A", "n": "b", "v": 2},
            {"n": "c", "u": "V", "t": 1.5, "v": 3},
            {"bt": 1_700_000_100, "bu": "W", "n": "e", "t": -100, "v": 4},
        ]
    )
    assert [(x.metric, x.unit, x.time_us, x.index) for x in decoded.readings] == [
        ("a", None, None, 0),
        ("b", "A", 1_700_000_000_000_000, 1),
        ("c", "V", 1_700_000_001_500_000, 2),
        ("e", "W", 1_700_000_000_000_000, 3),
    ]


@pytest.mark.parametrize(
    ("base", "time", "at_us", "flags"),
    [
        (None, None, None, None),
        (None, 0, None, None),
        (-5, 5, None, None),
        (None, -30, NOW_US - 30_000_000, [RELATIVE_TIME]),
        (-10, -0.5, NOW_US - 10_500_000, [RELATIVE_TIME]),
        (None, 60, NOW_US + 60_000_000, [RELATIVE_TIME]),
        (1_700_000_000, -2, 1_699_999_998_000_000, None),
        (None, 1_700_000_000.25, 1_700_000_000_250_000, None),
    ],
)
def test_times_below_two_to_the_28_are_relative_to_now(
    base: float | None, time: float | None, at_us: int | None, flags: list[str] | None
) -> None:
    record = {"bn": "d:", "n": "a", "v": 1, "bt": base, "t": time}
    [reading] = one([{key: value for key, value in record.items() if value is not None}]).readings
    assert (reading.time_us, reading.flags) == (at_us, flags)


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        (2**28, Reason.TS_TOO_OLD),
        (-(10**9), Reason.TS_TOO_OLD),
        (1000, Reason.TS_TOO_FAR_FUTURE),
        (1_700_000_000_000, Reason.BAD_TIMESTAMP),
        (1_700_000_000_00, Reason.TS_TOO_FAR_FUTURE),
        ("1700000000", Reason.WRONG_TYPE),
        (True, Reason.WRONG_TYPE),
    ],
)
def test_a_time_that_cannot_be_costs_its_record(time: object, reason: Reason) -> None:
    decoded = one([{"bn": "d:", "n": "a", "v": 1, "t": time}, {"n": "b", "v": 2}])
    assert [reading.metric for reading in decoded.readings] == ["b"]
    assert [(refused.reason, refused.path) for refused in decoded.rejects] == [(reason, "$[0].t")]


def test_zero_false_and_every_kind_of_value_are_readings() -> None:
    decoded = one(
        [{"bn": "d:", "n": "a", "v": 0}, {"n": "b", "vb": False}, {"n": "c", "vs": "x"}, {"n": "e", "vd": "aGk"}]
    )
    assert [(x.metric, x.value, x.text) for x in decoded.readings] == [
        ("a", 0.0, None), ("b", 0.0, "false"), ("c", None, "x"), ("e", None, "aGk"),
    ]  # fmt: skip
    assert decoded.rejects == []


def test_base_value_and_base_sum_are_added() -> None:
    decoded = one(
        [{"bn": "d:", "bv": 20, "bs": 100, "bu": "W", "n": "p", "v": 1.5, "s": 7}, {"n": "p"}, {"n": "on", "vb": True}]
    )
    assert [(x.metric, value_of(x), x.unit, x.index) for x in decoded.readings] == [
        ("p", 21.5, "W", 0), ("p.sum", 107.0, "W·s", 0), ("p", 20.0, "W", 1), ("p.sum", 100.0, "W·s", 1),
        ("on", "true", "W", 2), ("on.sum", 100.0, "W·s", 2),
    ]  # fmt: skip


def test_a_sum_alone_is_a_reading_and_nothing_at_all_is_not() -> None:
    decoded = one([{"bn": "d:", "n": "e", "s": 5}, {"n": "x"}, {"n": "y", "v": None}, {"n": "z", "vs": ""}])
    assert [(x.metric, x.value, x.unit) for x in decoded.readings] == [("e.sum", 5.0, None)]
    assert [(refused.reason, refused.path) for refused in decoded.rejects] == [(Reason.MISSING_FIELD, "$[1].v")]


@pytest.mark.parametrize(
    ("record", "path", "reason"),
    [
        ({"n": "a", "v": "23.1"}, "$[1].v", Reason.WRONG_TYPE),
        ({"n": "a", "v": True}, "$[1].v", Reason.WRONG_TYPE),
        ({"n": "a", "vb": 1}, "$[1].vb", Reason.WRONG_TYPE),
        ({"n": "a", "vs": 1}, "$[1].vs", Reason.WRONG_TYPE),
        ({"n": "a", "v": 1, "vs": "x"}, "$[1]", Reason.OUT_OF_RANGE),
        ({"n": 5, "v": 1}, "$[1].n", Reason.WRONG_TYPE),
        ({"n": "a", "u": 5, "v": 1}, "$[1].u", Reason.WRONG_TYPE),
        ({"n": "ä", "v": 1}, "$[1].n", Reason.OUT_OF_RANGE),
        ({"bn": "", "n": ":a", "v": 1}, "$[1].n", Reason.OUT_OF_RANGE),
        ({"bn": "", "v": 1}, "$[1].n", Reason.MISSING_FIELD),
        ("text", "$[1]", Reason.NOT_OBJECT),
        ({"n": "a", "s": "1"}, "$[1].s", Reason.WRONG_TYPE),
    ],
)
def test_a_bad_record_costs_itself(record: object, path: str, reason: Reason) -> None:
    decoded = one([{"bn": "d:", "n": "good", "v": 1}, record])
    assert [reading.metric for reading in decoded.readings] == ["good"]
    assert [(refused.path, refused.reason) for refused in decoded.rejects] == [(path, reason)]


@pytest.mark.parametrize(
    ("fields", "path", "reason"),
    [
        ({"foo_": 1}, "$[1].foo_", Reason.UNSUPPORTED_VERSION),
        ({"bver": 32}, "$[1].bver", Reason.UNSUPPORTED_VERSION),
        ({"bver": "10"}, "$[1].bver", Reason.UNSUPPORTED_VERSION),
        ({"bn": 5}, "$[1].bn", Reason.WRONG_TYPE),
        ({"bu": 5}, "$[1].bu", Reason.WRONG_TYPE),
        ({"bt": "now"}, "$[1].bt", Reason.WRONG_TYPE),
        ({"bv": "1"}, "$[1].bv", Reason.WRONG_TYPE),
        ({"bs": False}, "$[1].bs", Reason.WRONG_TYPE),
    ],
)
def test_what_spoils_the_records_behind_it_refuses_the_pack(fields: dict[str, Any], path: str, reason: Reason) -> None:
    refused = whole([{"bn": "d:", "n": "a", "v": 1}, {"n": "b", "v": 2, **fields}])
    assert (refused.path, refused.reason) == (path, reason)


def test_numbers_past_every_double_are_refused_and_never_rows() -> None:
    refused = whole(b'[{"bn":"d:","bt":1e999,"n":"a","v":1}]')
    assert (refused.path, refused.reason) == ("$[0].bt", Reason.BAD_NUMBER)
    decoded = one(
        b'[{"bn":"d:","bv":1.7e308,"n":"a","v":1.7e308},{"n":"b","v":NaN},{"n":"c","v":1' + b"0" * 308 + b"}]"
    )
    assert decoded.readings == []
    assert [refused.reason for refused in decoded.rejects] == [Reason.BAD_NUMBER] * 3


def test_a_pack_that_is_none_or_too_large_is_refused() -> None:
    assert whole({"n": "a", "v": 1}).reason is Reason.NOT_OBJECT
    assert whole(b"[{").reason is Reason.BAD_JSON
    assert whole(b"\x81\xa1").reason is Reason.UNDECODED
    small = GatewaySettings(max_readings_per_message=2, max_payload_bytes=64)
    for pack in ([{"n": "a", "v": 1}] * 3, [{"n": "a", "v": 1, "s": 2}] * 2, b"\x81" + b"\x00" * 64):
        refused = decode(pack, small)
        assert isinstance(refused, Reject)
        assert refused.reason is Reason.TOO_LARGE
    assert one([]).readings == []


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_LABELS = st.sampled_from(["bn", "bt", "bu", "bv", "bs", "bver", "n", "u", "v", "vs", "vb", "vd", "s", "t", "ut", "x"])


@given(st.lists(st.dictionaries(_LABELS, _SCALARS, max_size=8) | _SCALARS, max_size=6))
def test_random_packs_have_an_outcome_and_no_reading_without_a_value(pack: list[Any]) -> None:
    decoded = decode(json.dumps(pack).encode())
    if isinstance(decoded, Reject):
        return
    for device in decoded:
        assert device.device
        for reading in device.readings:
            assert reading.value is not None or reading.text is not None


@given(st.binary(max_size=120), st.sampled_from([b"", b"[", b"\x81\xa2", b"\x9f\xbf\x21"]))
def test_random_bytes_have_an_outcome(data: bytes, head: bytes) -> None:
    decode_senml(head + data, MATCH, LIMITS, NOW_US)
