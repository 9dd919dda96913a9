"""Fast path against slow path where routes ask something of the payload, profiles of the values, limits of the depth."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.delivery.block import Block
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import MessageProcessor
from gateway.policy import ReadingPolicy
from gateway.profiles.policy import ProfilePolicy
from gateway.profiles.profile_folder import ProfileFolder
from gateway.routes import RouteTable, compile_routes
from ingest.contract.reading import decode_record

NOW_US = 1_764_331_200_000_000
NOW_MS = NOW_US // 1000
NATIVE = b"tidegate/v1/dev-1/readings"
FULL = {"ts": NOW_MS - 5, "boot": 3, "seq": 4}
PROFILE = """
name = "limits"
version = 1
devices = ["dev-*"]
[metrics.a]
unit = "%"
min = -10
max = 10
required = true
[metrics.b]
max = 5
"""


def ways_agree(
    routes: RouteTable, limits: GatewaySettings, topic: bytes, payload: bytes, policy: ReadingPolicy | None = None
) -> bool:
    """Whether the message goes the short way; fails where the gate then says anything else."""
    block = Block(1000, 7, NOW_US, 0.0)
    FastPathEncoder(routes, limits, policy or ReadingPolicy()).encode_into(
        block, [(topic, payload, b"\0\1")], 0, 100_000
    )
    if not len(block):
        return False
    outcome = MessageProcessor(routes, limits, policy=policy).decide(block.message(0))
    assert outcome.accepted, outcome
    [record], [value] = outcome.records, block.values
    assert repr(decode_record(value)) == repr(decode_record(record.value))
    assert json.loads(value) == json.loads(record.value)
    assert (block.keys, block.accepted) == ([record.key], {outcome.device: 1})
    assert [("dev" if device else "", *numbers) for device, *numbers in block.sequences] == [
        ("dev", *numbers) for numbers in outcome.sequence
    ]
    return True


def message(values: Any, **fields: Any) -> bytes:
    return json.dumps({**fields, "values": values}).encode()


def routed(*routes: RouteSettings) -> RouteTable:
    return compile_routes(routes)


CONDITION = RouteSettings(filter="own/{id}", decoder="native", device="{id}", payload=("*kind*",))
OTHER = RouteSettings(filter="own/{id}", decoder="json", device="j-{id}")
SAME = RouteSettings(filter="own/{id}", decoder="native", device="n-{id}")


@pytest.mark.parametrize("routes", [(CONDITION,), (CONDITION, OTHER), (CONDITION, SAME)], ids=["alone", "json", "same"])
@pytest.mark.parametrize("metric", ["kind", "t"])
def test_a_route_that_asks_something_of_the_payload_is_left_to_the_gate(
    routes: tuple[RouteSettings, ...], metric: str
) -> None:
    assert not ways_agree(routed(*routes), GatewaySettings(), b"own/dev-1", message({metric: 1.5}, **FULL))


def test_behind_a_route_that_asks_nothing_no_payload_is_looked_at() -> None:
    assert ways_agree(routed(SAME, CONDITION), GatewaySettings(), b"own/dev-1", message({"t": 1.5}, **FULL))


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("value", [1.5, "on", {"value": 1}, {"value": 1, "unit": "V"}], ids=str)
def test_what_nests_too_deeply_is_left_to_the_gate(depth: int, value: Any) -> None:
    for fields in ({}, FULL):
        took_it = ways_agree(
            compile_routes(()), GatewaySettings(max_json_depth=depth), NATIVE, message({"t": value}, **fields)
        )
        assert took_it is (depth >= 3)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], ReadingPolicy]:
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "limits.toml").write_text(PROFILE)
    return lambda: ProfilePolicy(ProfileFolder(folder))


scalars = st.one_of(st.floats(-20, 20), st.integers(-20, 20), st.booleans(), st.sampled_from(["kind", "ON", "{", ""]))
quantities = st.fixed_dictionaries({"value": scalars}, optional={"unit": st.sampled_from(["%", "V", "", None])})
values = st.dictionaries(st.sampled_from(["a", "b", "t", "kind"]), st.one_of(scalars, scalars, quantities), max_size=3)
routes = st.builds(
    RouteSettings,
    filter=st.sampled_from(["own/{id}", "own/#", "own/+"]),
    decoder=st.sampled_from(["native", "native", "json", "auto"]),
    device=st.sampled_from([None, "dev-7", "x"]),
    payload=st.sampled_from([(), (), ("*kind*",), ('{"ts"*', "*ON*"), ("*",)]),
    tags=st.sampled_from([{}, {}, {}, {"site": "a"}]),
    units=st.sampled_from([{}, {"t": "K"}]),
    profile=st.sampled_from([None, None, None, "limits"]),
)
limits = st.builds(
    GatewaySettings,
    max_json_depth=st.sampled_from([1, 2, 3, 32, 32]),
    max_readings_per_message=st.sampled_from([1, 2, 10_000]),
    max_payload_bytes=st.sampled_from([64, 100, 256 * 1024]),
    max_device_id_bytes=st.sampled_from([2, 5, 256]),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(routes, max_size=3),
    limits,
    st.sampled_from([b"own/dev-1", b"own/x", NATIVE]),
    values,
    st.sampled_from([{}, FULL, {"ts": NOW_MS}, {"boot": 1, "seq": 2}]),
    st.booleans(),
)
@example([CONDITION, OTHER], GatewaySettings(), b"own/dev-1", {"t": 1.5}, FULL, False)
@example([CONDITION], GatewaySettings(), b"own/dev-1", {"t": 1.5}, FULL, True)
@example([], GatewaySettings(max_json_depth=2), NATIVE, {"a": {"value": 1}}, FULL, True)
def test_both_ways_agree_whatever_routes_profiles_and_limits_are(
    profiles: Callable[[], ReadingPolicy],
    given_routes: list[RouteSettings],
    given_limits: GatewaySettings,
    topic: bytes,
    found: dict[str, Any],
    fields: dict[str, int],
    profiled: bool,
) -> None:
    policy = profiles() if profiled else None
    ways_agree(compile_routes(tuple(given_routes)), given_limits, topic, message(found, **fields), policy)


def remembered(express: FastPathEncoder) -> int:
    """Characters of all that it remembers of devices."""
    text = express._text
    shapes = sum(len(shape) + sum(map(len, names)) for names, shape in text._shapes.items())
    pieces = sum(len(name) + len(piece) for name, piece in text._pieces.items())
    topics = sum(len(topic) + len(str(found)) for topic, found in express._topics.items())
    return shapes + pieces + topics + sum(map(len, express._readers)) + sum(map(len, text._mixed))


def took(express: FastPathEncoder, topic: bytes, payload: bytes) -> bool:
    block = Block(1000, 1, NOW_US, 0.0)
    express.encode_into(block, [(topic, payload, b"\0\1")], 0, 100_000)
    return len(block) == 1


def test_devices_cannot_fill_the_memory_with_ever_new_metrics_or_topics() -> None:
    express = FastPathEncoder(compile_routes(()), GatewaySettings(max_device_id_bytes=4096), ReadingPolicy())
    for number in range(150):
        names = {f"{number}-{n}-{'x' * 480}": 1.5 for n in range(200)}
        assert took(express, NATIVE, message(names, **FULL)), "it is not refused for that"
    assert len(express._text._shapes) == 0
    for number in range(300):
        took(express, b"tidegate/v1/%d%s/readings" % (number, b"x" * 60_000), message({"t": 1.5}, **FULL))
        assert took(express, b"tidegate/v1/%d%s/readings" % (number, b"x" * 4000), message({"t": "on"}, **FULL))
    assert len(express._topics) == 1
    assert remembered(express) < 20_000_000


def test_the_usual_sets_of_metrics_and_topics_are_remembered() -> None:
    express = FastPathEncoder(compile_routes(()), GatewaySettings(), ReadingPolicy())
    for number in range(100):
        wide = {f"phase_{number}_current_{n}": 1.5 for n in range(200)}
        assert took(express, f"tidegate/v1/meter-{number}/readings".encode(), message(wide, **FULL))
    assert len(express._text._shapes) == len(express._readers) == 100
