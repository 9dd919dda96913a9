"""A message of many devices: one outcome, a bounded one, and each device that is refused is told."""

import base64
import hashlib
import json
import tracemalloc
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.dead_letters import MAX_PARTS
from gateway.decoders import registry as decoders
from gateway.decoders.shape import Decoded, Ignored, Reply, RouteMatch
from gateway.gateway_settings import GatewaySettings, ReceiptSettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.policy import ReadingPolicy
from gateway.redrive import DeadLetter, judge_dead_letters
from gateway.replies.receipts import make_receipts
from gateway.routes import compile_routes
from ingest.contract.dead_letter import DeadLetterRecord, Reject, decode_dead_letter
from ingest.contract.reading import Reading, decode_record
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import DEAD_LETTERS, READINGS
from monitoring.metrics.gateway import GatewayMetrics
from tests.fuzz.checks import faults_of

TELEMETRY = b"v1/gateway/telemetry"
NATIVE = b"tidegate/v1/dev-1/readings"
NOW_US = 1_764_331_200_000_000
LIMITS = GatewaySettings()
DEVICES = 2000
BAD_TIME = [{"ts": 5, "values": {"t": 1}}]
PAD = [{"t": 1}, {"pad": "x" * 160_000}]
BAD_IDS = {f"\x01{n}": [{"t": 1}] for n in range(DEVICES)}


def message(document: object, topic: bytes = TELEMETRY, **envelope: Any) -> Message:
    return Message(7, 1000, NOW_US, topic, json.dumps(document).encode(), **envelope)


def decide(said: Message, routes: tuple[RouteSettings, ...] = (), policy: ReadingPolicy | None = None) -> Outcome:
    outcome = MessageProcessor(compile_routes(routes, LIMITS), LIMITS, policy=policy).decide(said)
    assert faults_of(said, outcome, LIMITS) == []
    return outcome


def letters_of(outcome: Outcome) -> list[DeadLetterRecord]:
    return [decode_dead_letter(record.value) for record in outcome.records if record.topic == DEAD_LETTERS]


def kept(letter: DeadLetterRecord) -> bytes:
    return base64.b64decode(letter.payload_base64)


def receipts_of(outcome: Outcome) -> dict[str, dict[str, Any]]:
    metrics = GatewayMetrics(CollectorRegistry(), reasons=list(Reason), ignored_reasons=list(IgnoredReason))
    replies = make_receipts(ReceiptSettings(), (), LIMITS, metrics).of(outcome.refusals, NOW_US)
    return {reply.topic: json.loads(reply.payload) for reply in replies}


def give(monkeypatch: pytest.MonkeyPatch, *decoded: Decoded | Reject | Ignored) -> None:
    """Have the native decoder find this in any message."""
    monkeypatch.setitem(decoders._PURE, "native", lambda *_: list(decoded))


# Bounded by the message.


@pytest.mark.parametrize(
    ("document", "is_accepted"),
    [
        pytest.param({"good": PAD, **BAD_IDS}, True, id="bad ids beside a good one"),
        pytest.param({**BAD_IDS, "\x02": PAD}, False, id="bad ids"),
        pytest.param({"good": PAD, **{f"d{n}": BAD_TIME for n in range(DEVICES)}}, True, id="bad times beside a good"),
        pytest.param({**{f"d{n}": BAD_TIME for n in range(DEVICES)}, "\x02": PAD}, False, id="bad times"),
    ],
)
def test_a_message_of_many_refused_devices_costs_what_it_is_large(document: object, *, is_accepted: bool) -> None:
    said, gate = message(document), MessageProcessor(compile_routes((), LIMITS), LIMITS)
    assert len(said.payload) > 200_000
    tracemalloc.start()
    outcome = gate.decide(said)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert outcome.accepted is is_accepted
    assert peak_bytes < 32 * len(said.payload), "one copy for each device would be 2000 times"
    assert sum(len(record.value) for record in outcome.records) < 3 * len(said.payload)
    assert len(outcome.refusals) == MAX_PARTS
    assert len(letters_of(outcome)) == (MAX_PARTS if is_accepted else 1)
    assert faults_of(said, outcome, LIMITS) == []


def test_the_payload_is_in_the_first_letter_and_the_rest_is_a_count_in_the_last() -> None:
    said = message({"good": PAD, **BAD_IDS})
    outcome = decide(said)
    first, *others = letters_of(outcome)
    assert kept(first) == said.payload
    assert {kept(letter) for letter in others} == {b""}
    assert {letter.payload_sha256 for letter in others} == {hashlib.sha256(said.payload).hexdigest()}
    assert all(letter.partial for letter in (first, *others))
    assert others[-1].got == f"{DEVICES - MAX_PARTS + 1} more parts rejected"
    assert outcome.parts == [Reason.BAD_DEVICE_ID] * DEVICES


def test_what_is_small_is_whole_in_each_letter() -> None:
    said = message({"good": [{"t": 1}], **{f"d{n}": BAD_TIME for n in range(5)}})
    letters = letters_of(decide(said))
    assert [letter.device for letter in letters] == [f"d{n}" for n in range(5)]
    assert {kept(letter) for letter in letters} == {said.payload}


def test_letters_of_parts_and_of_devices_have_one_bound() -> None:
    bad = [{"ts": 5, "values": {"t": 1}}] * 60
    outcome = decide(message({f"d{n}": [{"t": 1}, *bad] for n in range(4)}))
    records = [record.topic for record in outcome.records]
    assert (records.count(READINGS), records.count(DEAD_LETTERS)) == (4, MAX_PARTS)
    assert letters_of(outcome)[-1].got == "141 more parts rejected"
    assert len(outcome.parts) == 240


SENML = (RouteSettings(filter="s/#", decoder="senml", device="gw"),)
LONG_TOPIC = b"s/" + b"x" * 60_000


def pack(devices: int, refused: int = 0) -> list[dict[str, object]]:
    records: list[dict[str, object]] = [{"bn": f"d{n}/", "n": "t", "v": 1} for n in range(devices)]
    return records + [{"n": "late", "v": 1, "t": 5e11} for _ in range(refused)]


def test_a_long_topic_is_not_repeated_for_thousands_of_devices() -> None:
    outcome = decide(message(pack(3000), LONG_TOPIC), SENML)
    assert outcome.rejected == Reason.TOO_LARGE
    [letter] = letters_of(outcome)
    assert (letter.path, letter.got) == ("topic", "3000 devices under a topic of 60002 bytes")
    assert decide(message(pack(60), LONG_TOPIC), SENML).accepted
    assert decide(message(pack(3000), b"s/" + b"x" * 1000), SENML).accepted


def test_a_long_topic_is_not_repeated_for_a_hundred_parts() -> None:
    outcome = decide(message(pack(1, refused=300), LONG_TOPIC), SENML)
    letters = letters_of(outcome)
    assert len(letters) == 17
    assert letters[-1].got == "284 more parts rejected"
    assert len(outcome.parts) == 300


# Told, each of them.


def test_each_refused_device_beside_an_accepted_one_is_told() -> None:
    outcome = decide(message({"good": [{"t": 1}], "a": BAD_TIME, "b": [{"t": None}], "c": BAD_TIME}))
    receipts = receipts_of(outcome)
    assert set(receipts) >= {"tidegate/receipts/a", "tidegate/receipts/c"}
    assert "tidegate/receipts/good" not in receipts
    assert {receipt["partial"] for receipt in receipts.values()} == {True}


def test_each_device_is_told_where_all_are_refused() -> None:
    said = message({name: BAD_TIME for name in "abc"})
    outcome = decide(said)
    [letter] = letters_of(outcome)
    assert (letter.device, letter.partial, kept(letter)) == ("a", False, said.payload)
    assert (letter.got or "").startswith("3 devices rejected; the first: ")
    receipts = receipts_of(outcome)
    assert set(receipts) == {f"tidegate/receipts/{name}" for name in "abc"}
    assert all("devices" not in receipt["got"] for receipt in receipts.values()), "a device hears of itself"
    assert {receipt["partial"] for receipt in receipts.values()} == {False}


def test_one_refused_device_is_not_told_of_several() -> None:
    [letter] = letters_of(decide(message({"a": BAD_TIME})))
    assert "devices rejected" not in (letter.got or "")


@pytest.mark.parametrize("others", [[{"t": 1}], BAD_TIME], ids=["beside good ones", "of refused ones"])
def test_a_device_of_many_faults_hides_no_other(others: list[object]) -> None:
    many = [{"t": 1}, *BAD_TIME * 300]
    outcome = decide(message({"flood": many, "late": BAD_TIME, "other": others}))
    assert len(outcome.refusals) == MAX_PARTS
    assert {"flood", "late"} <= {refusal.device for refusal in outcome.refusals}
    assert "tidegate/receipts/late" in receipts_of(outcome)


def test_device_ids_that_are_none_hide_no_device() -> None:
    outcome = decide(message({"good": [{"t": 1}], **BAD_IDS, "late": BAD_TIME}))
    assert "tidegate/receipts/late" in receipts_of(outcome)


# What else a message of several devices has.


class Known(ReadingPolicy):
    """Knows all devices but one, of which nothing may be kept."""

    def admit(self, device: str, match: RouteMatch, received_us: int, number: int) -> Reject | None:
        unknown = Reject(Reason.UNKNOWN_DEVICE, "topic", device, "a registered device", keep_bytes=0)
        return unknown if device == "stranger" else None


def test_a_stranger_first_does_not_cost_the_others_their_payload() -> None:
    said = message({"stranger": [{"t": 1}], "a": BAD_TIME})
    outcome = decide(said, policy=Known())
    [letter] = letters_of(outcome)
    assert (letter.device, letter.reason, kept(letter)) == ("a", outcome.rejected, said.payload)
    assert {refusal.device for refusal in outcome.refusals} == {"stranger", "a"}


def test_strangers_alone_leave_nothing() -> None:
    outcome = decide(message({"stranger": [{"t": 1}]}), policy=Known())
    [letter] = letters_of(outcome)
    assert (letter.reason, kept(letter)) == (Reason.UNKNOWN_DEVICE, b"")
    beside = decide(message({"stranger": [{"t": 1}], "a": [{"t": 1}]}), policy=Known())
    assert [kept(letter) for letter in letters_of(beside)] == [b""]


def test_replies_go_out_whoever_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Reply("spBv1.0/g/NCMD/n", b"rebirth")
    fault = Reject(Reason.WRONG_TYPE, "$", "null", "a number")
    give(
        monkeypatch, Ignored(IgnoredReason.METADATA, "x", (ask,)), Decoded("a", [], [fault]), Decoded("b", [], [fault])
    )
    outcome = decide(message({}, NATIVE))
    assert (outcome.rejected, outcome.device, outcome.replies) == (Reason.WRONG_TYPE, "a", [ask])


def test_where_all_are_ignored_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, Ignored(IgnoredReason.METADATA, "x"), Decoded("a", []))
    outcome = decide(message({}, NATIVE))
    assert (outcome.ignored, outcome.records, outcome.refusals) == (IgnoredReason.METADATA, [], [])


def test_what_is_accepted_counts_for_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Reject(Reason.WRONG_TYPE, "$", "null", "a number")
    devices = [Decoded(name, [Reading(metric="t", value=1.0)], [fault]) for name in "ab"]
    give(monkeypatch, Decoded("first", [], [fault]), *devices)
    outcome = decide(message({}, NATIVE))
    assert (outcome.accepted, outcome.device, outcome.readings) == (True, "a", 2)
    assert outcome.parts == [Reason.WRONG_TYPE] * 3
    assert [letter.device for letter in letters_of(outcome)] == ["first", "a", "b"]


def test_the_letters_of_a_large_message_can_be_redriven_together() -> None:
    said = message({"good": PAD, **{f"d{n}": BAD_TIME for n in range(10)}})
    letters = [
        DeadLetter(
            f"dl:{place}", DEAD_LETTERS, 0, place, letter.stage, letter.reason, letter.path, letter.partial,
            letter.gateway, letter.epoch, letter.number, letter.received_us, letter.topic, kept(letter),
            letter.payload_bytes, letter.device, letter.message_id, letter.retain, letter.trace,
        )
        for place, letter in enumerate(letters_of(decide(said)))
    ]  # fmt: skip
    gate = MessageProcessor(
        compile_routes((RouteSettings(filter=TELEMETRY.decode(), decoder="json", device="all"),), LIMITS), LIMITS
    )
    good = [("all", "good[0].t", 0)]
    verdict = judge_dead_letters(letters[::-1], gate, good)
    assert verdict.ending == "accepted", verdict.why
    assert len(verdict.letters) == 10
    assert decode_record(gate.decide(said).records[0].value).device == "all"
