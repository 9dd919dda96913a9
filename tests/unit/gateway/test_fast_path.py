"""The fast path gives what the slow path gives, for any message."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.decoders.shape import RouteMatch
from gateway.delivery.block import Block
from gateway.delivery.intake import MAX_BLOCK, MessageIntake
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import MessageProcessor
from gateway.mqtt.session_events import Incoming, Received
from gateway.plausible.table import load_table
from gateway.policy import ReadingPolicy
from gateway.profiles.policy import ProfilePolicy
from gateway.profiles.profile_folder import ProfileFolder
from gateway.routes import compile_routes
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import decode_record
from ingest.contract.reasons import Reason

NOW_US = 1_764_331_200_000_000
NOW_MS = NOW_US // 1000
LIMITS = GatewaySettings(max_payload_bytes=2000)
ROUTES = compile_routes(
    (RouteSettings(filter="own/{id}", decoder="native", device="{id}"),
     RouteSettings(filter="tagged/{id}", decoder="native", device="{id}", tags={"site": "a"}),
     RouteSettings(filter="profiled/{id}", decoder="native", device="{id}", profile="limits"))
)  # fmt: skip
TOPIC = b"tidegate/v1/dev-1/readings"
FULL = {"ts": NOW_MS - 5, "boot": 3, "seq": 4}


class Bench:
    """Both ways side by side; `short` counts what went the short way."""

    def __init__(self, policy: ReadingPolicy | None = None, limits: GatewaySettings = LIMITS) -> None:
        self.gate = MessageProcessor(ROUTES, limits, policy=policy)
        self.express = FastPathEncoder(ROUTES, limits, policy or ReadingPolicy())
        self.limits = limits

    def fill(self, messages: list[Incoming]) -> Block:
        block = Block(1000, 7, NOW_US, 0.0)
        self.express.encode_into(block, messages, 0, 100_000)
        return block

    def compare(self, topic: bytes, payload: bytes) -> bool:
        """Whether it went the short way; fails where the ways differ."""
        block = self.fill([(topic, payload, b"\0\1")])
        if not len(block):
            return False
        long = Block(1000, 7, NOW_US, 0.0)
        message = block.message(0)
        outcome = self.gate.decide(message)
        assert outcome.accepted, outcome
        long.add((topic, payload, b"\0\1"), outcome)
        [value], [expected] = block.values, long.values
        assert decode_record(value) == decode_record(expected)
        assert repr(decode_record(value)) == repr(decode_record(expected)), "with the signs of zeros"
        assert json.loads(value) == json.loads(expected)
        assert block.keys == long.keys
        assert block.mids == long.mids == [b"\0\1"]
        assert block.sequences == long.sequences
        assert (block.accepted, block.readings) == ({outcome.device: 1}, outcome.readings)
        assert block.size_bytes == len(payload) + len(value)
        return True


BENCH = Bench()


def native(values: Any, **fields: Any) -> bytes:
    return json.dumps({**fields, "values": values}).encode()


@pytest.mark.parametrize(
    ("payload", "short"),
    [
        pytest.param(native({"temp": 21.5, "hum": 48.2}, **FULL), True, id="usual"),
        pytest.param(native({"temp": 21}, **FULL), True, id="integer"),
        pytest.param(native({"n": 2**53 - 1}, **FULL), True, id="the last exact integer"),
        pytest.param(native({"temp": 2**53}, **FULL), False, id="2^53"),
        pytest.param(native({"temp": 2**53 + 1}, **FULL), False, id="past 2^53"),
        pytest.param(native({"temp": 10**400}, **FULL), False, id="past every double"),
        pytest.param(native({"temp": -0.0, "x": 0}, **FULL), True, id="zeros"),
        pytest.param(native({"on": True, "off": False}, **FULL), True, id="booleans"),
        pytest.param(native({"state": 'läuft "x" \u2028'}, **FULL), True, id="text"),
        pytest.param(native({"state": "a:b"}, **FULL), False, id="a colon in a text"),
        pytest.param(native({"t": {"value": 1.5, "unit": "°C"}, "u": {"value": 2}}, **FULL), True, id="quantities"),
        pytest.param(native({"t": {"value": True, "unit": None}}, **FULL), False, id="unit null"),
        pytest.param(native({"temp": 1e-7}, **FULL), True, id="a small number"),
        pytest.param(b'{"ts":%d,"boot":1,"seq":2,"values":{"t":1e-400}}' % NOW_MS, False, id="underflow"),
        pytest.param(b'{"ts":%d,"boot":1,"seq":2,"values":{"t":1e400}}' % NOW_MS, False, id="overflow"),
        pytest.param(b'{"ts":%d,"boot":1,"seq":2,"values":{"t":1,"t":2}}' % NOW_MS, False, id="duplicate metric"),
        pytest.param(b'{"seq":1,"ts":%d,"boot":1,"seq":2,"values":{"t":1}}' % NOW_MS, False, id="duplicate seq"),
        pytest.param(native({"temp": 1}), True, id="nothing but values"),
        pytest.param(native({"temp": 1}, ts=NOW_MS), True, id="no counters"),
        pytest.param(native({"temp": 1}, boot=1, seq=2), True, id="no time"),
        pytest.param(native({"temp": 1}, seq=2, ts=NOW_MS), False, id="half a counter"),
        pytest.param(native({"temp": 1}, **{**FULL, "ts": "2025-11-28T11:00:00Z"}), False, id="time as text"),
        pytest.param(native({"temp": 1}, **{**FULL, "ts": NOW_MS + 599_000}), True, id="within the skew"),
        pytest.param(native({"temp": 1}, **{**FULL, "ts": NOW_MS + 601_000}), False, id="too far ahead"),
        pytest.param(native({"temp": 1}, **{**FULL, "ts": 5}), False, id="too old"),
        pytest.param(native({"temp": 1}, **{**FULL, "seq": 2**63 - 1}), False, id="no next number"),
        pytest.param(native({"temp": 1}, **{**FULL, "seq": -1}), False, id="negative"),
        pytest.param(native({"temp": 1}, device="dev-1", **FULL), False, id="names its device"),
        pytest.param(native({}, **FULL), False, id="no value"),
        pytest.param(native({"": 1}, **FULL), False, id="no name"),
        pytest.param(native({"a\nb": 1}, **FULL), False, id="control character"),
        pytest.param(native({"100 %r %d": 1.5}, **FULL), True, id="percent"),
        pytest.param(native({"x" * 600: 1}, **FULL), False, id="a long name"),
        pytest.param(native({"temp": 1}, **FULL) + b" " * 2000, False, id="too large"),
        pytest.param(b"[" + native({"temp": 1}, **FULL) + b"]", False, id="a batch"),
        pytest.param(b"\xff", False, id="no UTF-8"),
        pytest.param(b"[" * 1500, False, id="deep"),
    ],
)
def test_which_way_is_taken_and_that_both_agree(payload: bytes, short: bool) -> None:
    assert BENCH.compare(TOPIC, payload) is short
    assert BENCH.compare(TOPIC, payload) is short, "and so when pieces are remembered"


@pytest.mark.parametrize(
    ("topic", "short"),
    [
        (b"own/dev-9", True),
        ("tidegate/v1/gerät %s \u2028/readings".encode(), True),
        (b'tidegate/v1/"quoted"\\/readings', True),
        (b"tagged/dev-9", False),
        (b"tidegate/v1//readings", False),
        (b"tidegate/v1/a\x01/readings", False),
        (b"tidegate/v1/\xff/readings", False),
        (b"tidegate/receipts/x", False),
        (b"nowhere", False),
    ],
)
def test_which_topics_take_the_short_way(topic: bytes, short: bool) -> None:
    assert BENCH.compare(topic, native({"temp": 1}, **FULL)) is short


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**54), 2**54),
    st.integers(-(10**25), 10**25),
    st.sampled_from([0, -0.0, 0.0, 5e-324, 2**53, -(2**53), 1e16, 123456789012345680]),
)
scalars = st.one_of(numbers, numbers, st.booleans(), st.text(max_size=8), st.none())
quantities = st.fixed_dictionaries({"value": scalars}, optional={"unit": st.one_of(st.text(max_size=4), st.none())})
values = st.dictionaries(st.one_of(st.sampled_from("abc"), st.text(max_size=6)), st.one_of(scalars, quantities))
counters = st.one_of(st.integers(0, 2**63), st.integers(-3, 3), st.none(), st.floats(), st.text(max_size=2))
times = st.one_of(
    st.integers(NOW_MS - 10_000, NOW_MS + 900_000), st.integers(0, 10**14), st.none(), st.text(max_size=3),
    st.sampled_from(["2025-11-28T11:00:00Z", "2025-11-28T12:00:00+01:00", "2025-11-28T11:00:00.123456Z"]),
)  # fmt: skip
items = st.fixed_dictionaries({"values": values}, optional={"ts": times, "boot": counters, "seq": counters})


@settings(max_examples=400)
@given(st.one_of(items, st.lists(items, max_size=3)), st.booleans(), st.sampled_from(["", " ", "\t"]))
def test_both_ways_agree_on_random_messages(document: Any, ascii_only: bool, space: str) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only, separators=("," + space, space + ":"))
    BENCH.compare(TOPIC, text.encode("utf-8", "surrogatepass"))


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(-1e9, 1e9), min_size=1), st.integers(0, 2**40))
@example({"a": -0.0}, 0)
def test_usual_messages_do_go_the_short_way(found: dict[str, float], seq: int) -> None:
    payload = msgspec.json.encode({"ts": NOW_MS, "boot": 1, "seq": seq, "values": found})
    if b"e-" not in payload and load_table().usual.codes.isdisjoint(found.values()):
        assert BENCH.compare(TOPIC, payload)


@settings(max_examples=150)
@given(st.data())
def test_both_ways_agree_on_torn_and_doubled_bytes(data: st.DataObject) -> None:
    payload = json.dumps(data.draw(items)).encode()
    begin = data.draw(st.integers(0, len(payload)))
    end = data.draw(st.integers(begin, len(payload)))
    again = data.draw(st.sampled_from([b"", payload[begin:end], payload[begin:end] * 2, b'"seq":1,', b"\\u0061"]))
    BENCH.compare(TOPIC, payload[:begin] + again + payload[end:])


def test_what_has_flags_or_properties_goes_the_long_way() -> None:
    payload = native({"temp": 1}, **FULL)
    block = BENCH.fill([(TOPIC, payload, b"\0\1"), Received(TOPIC, payload, 2, 1, True), (TOPIC, payload, b"\0\3")])
    assert block.mids == [b"\0\1"]


class Watching(ReadingPolicy):
    """Has something to say on one device until it is told otherwise."""

    def __init__(self) -> None:
        self.watched = {"dev-1"}

    def plain(self, device: str) -> bool:
        return device not in self.watched

    def admit(self, device: str, match: RouteMatch, received_us: int, number: int) -> Reject | None:
        return Reject(Reason.RATE_LIMITED) if device in self.watched else None


def test_a_device_that_the_policy_watches_goes_the_long_way_until_a_tick() -> None:
    policy = Watching()
    bench = Bench(policy)
    message = (TOPIC, native({"temp": 1}, **FULL), b"\0\1")
    assert len(bench.fill([message])) == 0
    policy.watched.clear()
    assert len(bench.fill([message])) == 0, "asked once, and again after a tick"
    bench.express.tick()
    assert len(bench.fill([message])) == 1


LIMITED = """
name = "limits"
version = 1
devices = ["dev-*"]
unknown_metrics = "{others}"
[metrics.a]
unit = "%"
min = -10
max = 10
required = true
[metrics.b]
max = 5
[metrics.c]
unit = "\\"°C"
[metrics.s]
values = ["ON"]
"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bench]:
    """Both ways under a profile of ranges, which lets other metrics pass, or flags them."""
    benches = {}
    for others in ("keep", "flag"):
        folder = tmp_path_factory.mktemp(others)
        (folder / "limits.toml").write_text(LIMITED.replace("{others}", others))
        benches[others] = Bench(ProfilePolicy(ProfileFolder(folder)))
    return benches


@pytest.mark.parametrize(
    ("values", "short"),
    [
        ({"a": 1}, True),
        ({"a": -10, "b": 5, "c": 1e9}, True),
        ({"a": 10.000001}, False),
        ({"b": 1}, False),
        ({"a": 1, "b": 5.1}, False),
        ({"a": True}, False),
        ({"a": {"value": 1, "unit": "%"}}, False),
        ({"a": 1, "s": "ON"}, False),
        ({"a": 1, "s": 1}, False),
    ],
)
def test_a_profile_of_ranges_is_kept_on_the_short_way(limited: dict[str, Bench], values: Any, short: bool) -> None:
    for bench in limited.values():
        assert bench.compare(TOPIC, native(values, **FULL)) is short
        assert bench.compare(TOPIC, native(values)) is short, "without ts and counters"
        assert not bench.compare(b"profiled/x", native(values, **FULL)), "by its route"


def test_metrics_that_a_profile_does_not_name_pass_only_where_it_says_so(limited: dict[str, Bench]) -> None:
    for other in (1, "text", False, {"value": 1, "unit": "V"}):
        message = native({"a": 1, "other": other}, **FULL)
        assert [limited[others].compare(TOPIC, message) for others in ("keep", "flag")] == [True, False]


@given(
    st.dictionaries(st.sampled_from("abcsx"), st.one_of(st.floats(-20, 20), st.booleans(), st.just("ON"))),
    st.booleans(),
)
def test_both_ways_agree_under_a_profile(limited: dict[str, Bench], values: Any, counted: bool) -> None:
    for bench in limited.values():
        bench.compare(TOPIC, native(values, **(FULL if counted else {})))


def test_a_profile_that_asks_for_more_sends_its_devices_the_long_way(tmp_path: Path) -> None:
    for rule in ("max_step = 1", "stuck_count = 9", 'convert_to = "K"\nunit = "°C"', 'type = "integer"'):
        (tmp_path / "p.toml").write_text(f'name = "p"\nversion = 1\ndevices = ["*"]\n[metrics.a]\n{rule}\n')
        assert not Bench(ProfilePolicy(ProfileFolder(tmp_path))).compare(TOPIC, native({"a": 1}, **FULL)), rule


def test_a_new_profile_holds_on_the_short_way_after_a_tick(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    text = 'name = "p"\nversion = {v}\ndevices = ["*"]\n[metrics.a]\nmax = {v}\n'
    file.write_text(text.format(v=1))
    policy = ProfilePolicy(ProfileFolder(tmp_path))
    bench = Bench(policy)
    assert not bench.compare(TOPIC, native({"a": 15}, **FULL))
    file.write_text(text.format(v=20))
    for _ in range(2):
        policy.tick()
        bench.express.tick()
    assert bench.compare(TOPIC, native({"a": 15}, **FULL))


def intake_of(bench: Bench, *, full_at: int = 10**9) -> MessageIntake:
    return MessageIntake(bench.gate, bench.express, is_full=lambda block: len(block) >= full_at, wall_us=lambda: NOW_US)


def test_messages_keep_their_order_and_numbers_whichever_way_they_go() -> None:
    odd = Received(TOPIC, b"no json", 500, 1)
    messages: list[Incoming] = []
    for seq in range(1200):
        usual: Incoming = (TOPIC, native({"n": seq}, ts=NOW_MS, boot=1, seq=seq), seq.to_bytes(2, "big"))
        messages.append(odd if seq % 7 == 3 else usual)
    blocks = list(intake_of(BENCH).take(messages, 1000, 100_000))
    assert [len(block) for block in blocks] == [MAX_BLOCK, MAX_BLOCK, 200]
    assert [block.first for block in blocks] == [1, 501, 1001]
    assert [decode_record(value).number for block in blocks for value in block.values] == [
        number for number, message in enumerate(messages, start=1) if message is not odd
    ]
    assert sum(len(block.odd) for block in blocks) == messages.count(odd)
    assert [mid for block in blocks for mid in block.mids] == [
        (500).to_bytes(2, "big") if message is odd else message[2] for message in messages
    ]


def test_a_block_holds_as_many_devices_as_its_part_of_an_outcome() -> None:
    payload = native({"temp": 1}, **FULL)
    messages: list[Incoming] = [(b"tidegate/v1/device-%d/readings" % n, payload, b"\0\1") for n in range(50)]
    blocks = list(intake_of(BENCH).take(messages, 1000, 2000))
    assert [len(block) for block in blocks] == [10] * 5 or all(block.outcome_bytes <= 2300 for block in blocks)
    assert sum(map(len, blocks)) == 50
    assert [len(block) for block in intake_of(BENCH).take(messages, 1000, 0)] == [1] * 50


def test_a_message_at_qos_0_without_room_is_dropped_and_takes_no_number() -> None:
    payload = native({"temp": 1}, **FULL)
    intake = intake_of(BENCH, full_at=2)
    [block] = intake.take([Received(TOPIC, payload, 0, 0)] * 5 + [(TOPIC, payload, b"\0\1")], 1000, 100_000)
    assert (len(block), intake.number, intake.dropped, block.mids) == (3, 3, 3, [b"\0\1"])


def test_a_fault_of_the_short_way_costs_nothing_but_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    payload = native({"temp": 1}, **FULL)
    read, calls = bench.express._text.read, []

    def failing(topic: bytes, payload: bytes, first_ms: int, last_ms: int) -> Any:
        calls.append(topic)
        if len(calls) % 3 == 0:
            raise RuntimeError("scripted")
        return read(topic, payload, first_ms, last_ms)

    monkeypatch.setattr(bench.express._text, "read", failing)
    blocks = list(intake_of(bench).take([(TOPIC, payload, b"\0\1")] * 10, 1000, 100_000))
    assert [decode_record(value).number for block in blocks for value in block.values] == list(range(1, 11))
