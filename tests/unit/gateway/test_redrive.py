"""What becomes of a dead letter under other routes: identity, receive time and lineage; what cannot be judged is said."""

import json
from typing import Any

import pytest

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.redrive import DeadLetter, judge_dead_letters
from gateway.routes import compile_routes
from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter
from ingest.contract.reading import REDRIVE_GATEWAY, decode_record, hash_payload
from ingest.contract.topics import DEAD_LETTERS, READINGS

LIMITS = GatewaySettings()
AT_US = 1_795_830_000_000_000
NATIVE = b"tidegate/v1/attic/readings"


def gate(*routes: str) -> MessageProcessor:
    return MessageProcessor(compile_routes(tuple(RouteSettings(filter=text) for text in routes)), LIMITS)


def message(topic: bytes, payload: bytes, **more: Any) -> Message:
    return Message(7, 1_700_000_000_000, AT_US, topic, payload, **more)


def letter_of(record: DeadLetterRecord, payload: bytes, offset: int = 17, **more: Any) -> DeadLetter:
    """As Spark lands it and `dlq` finds it."""
    values: dict[str, Any] = {
        "id": f"0-{offset}", "source_topic": DEAD_LETTERS, "partition": 0, "offset": offset, "stage": "gateway",
        "reason": record.reason.value, "path": record.path, "partial": record.partial, "gateway": record.gateway,
        "epoch": record.epoch, "number": record.number, "received_us": record.received_us, "topic": record.topic,
        "payload": payload, "payload_bytes": record.payload_bytes, "device": record.device,
        "message_id": record.message_id, "retain": record.retain, "trace": record.trace,
        "waited_since_us": record.waited_since_us,
    }  # fmt: skip
    return DeadLetter(**values | more)


def refuse(given: Message, by: MessageProcessor | None = None) -> tuple[list[DeadLetter], list[Any]]:
    """The letters of a message that this gate refuses in whole or in part, and the records of what it stored."""
    records = (by or gate()).decide(given).records
    letters = [decode_dead_letter(record.value) for record in records if record.topic == DEAD_LETTERS]
    stored = [decode_record(record.value) for record in records if record.topic == READINGS]
    return [letter_of(one, given.payload, 17 + n) for n, one in enumerate(letters)], stored


def test_what_no_route_took_is_stored_under_its_receive_time_and_the_name_of_its_message() -> None:
    letters, _ = refuse(message(b"site/attic/temperature", b"21.5"))
    verdict = judge_dead_letters(letters, gate("site/#"))
    (record,) = verdict.records
    assert (verdict.ending, record.device, record.readings[0].metric) == ("accepted", "site/attic", "temperature")
    assert (record.gateway, record.received_us, record.topic) == (REDRIVE_GATEWAY, AT_US, "site/attic/temperature")
    assert record.message_id == "dl:gw-1:1700000000000:7"
    assert record.readings[0].time_us is None
    assert set(record.flags or ()) == {"redriven", "no_identity"}
    assert record.tags == {"dead_letter": "0-17"}
    assert judge_dead_letters(letters, gate("site/#")).records == [record]


@pytest.mark.parametrize(
    ("payload", "more", "identity"),
    [
        (b'{"boot": 3, "seq": 9, "temperature": 1.5}', {"message_id": "abc"}, "mp:abc"),
        (b"1.5", {"message_id": "x" * 300}, "mp:sha256:"),
        (b"1.5", {"retain": True}, "rt:"),
    ],
)
def test_a_message_keeps_the_identity_that_it_would_have_had(
    payload: bytes, more: dict[str, Any], identity: str
) -> None:
    given = message(b"site/attic/temperature", payload, **more)
    (direct,) = [decode_record(r.value) for r in gate("site/#").decide(given).records]
    letters, _ = refuse(given)
    (record,) = judge_dead_letters(letters, gate("site/#")).records
    assert record.message_id == direct.message_id
    assert record.payload_hash == direct.payload_hash == hash_payload(payload), "both say the same of their payload"
    assert str(record.message_id).startswith(identity)


@pytest.mark.parametrize("since_us", [AT_US - 3_600_000_000, 0, None])
@pytest.mark.parametrize("retain", [False, True])
def test_a_redriven_message_says_how_long_it_waited_as_the_first_delivery_would(
    since_us: int | None, *, retain: bool
) -> None:
    given = message(b"site/attic/temperature", b"1.5", retain=retain, waited_since_us=since_us)
    (direct,) = [decode_record(r.value) for r in gate("site/#").decide(given).records]
    (record,) = judge_dead_letters(refuse(given)[0], gate("site/#")).records
    assert (
        (record.waited_since_us, record.retain) == (direct.waited_since_us, direct.retain) == (since_us or None, retain)
    )
    assert record.readings[0].flags == direct.readings[0].flags == (None if since_us is None else ["may_have_waited"])
    assert set(record.flags or ()) - {"redriven"} == set(direct.flags or ())


def test_of_a_partial_letter_only_what_is_not_stored_is_stored() -> None:
    strict = GatewaySettings(max_future_seconds=600)
    payload = json.dumps([{"values": {"a": 1}}, {"ts": AT_US // 1000 + 3_600_000, "values": {"a": 2}}]).encode()
    letters, stored = refuse(message(NATIVE, payload), MessageProcessor(compile_routes(()), strict))
    assert [letter.partial for letter in letters] == [True]
    parts = {("attic", reading.metric, reading.index) for record in stored for reading in record.readings}
    assert parts == {("attic", "a", 0)}
    loose = MessageProcessor(compile_routes(()), GatewaySettings(max_future_seconds=7200))
    (record,) = judge_dead_letters(letters, loose, parts).records
    assert [(reading.metric, reading.value, reading.index) for reading in record.readings] == [("a", 2.0, 1)]
    assert judge_dead_letters(letters, loose, parts | {("attic", "a", 1)}).ending == "stored"
    # Nothing of it in the table: perhaps it is only not landed yet. Storing all would double what has no identity.
    waiting = judge_dead_letters(letters, loose)
    assert (waiting.ending, waiting.records) == ("skipped", ())
    assert "not landed yet" in (waiting.why or "")


def test_a_partial_letter_of_a_second_delivery_needs_no_rows_under_its_own_name() -> None:
    payload = json.dumps({"ts": AT_US // 1000, "boot": 1, "seq": 5, "values": {"a": 1, "b": {"unit": "V"}}}).encode()
    letters, _ = refuse(message(NATIVE, payload))
    mended = [letter._replace(payload=payload.replace(b'{"unit": "V"}', b"2"), payload_bytes=0) for letter in letters]
    mended = [letter._replace(payload_bytes=len(letter.payload)) for letter in mended]
    (record,) = judge_dead_letters(mended, gate()).records
    assert (record.message_id, [reading.metric for reading in record.readings]) == ("bs:1:5", ["a", "b"])


def test_a_refused_item_of_a_batch_comes_back_to_its_own_place() -> None:
    late, now = AT_US // 1000 + 3_600_000, AT_US // 1000
    items = [{"ts": ts, "boot": 1, "seq": 5, "values": {"a": value}} for ts, value in ((late, 1), (now, 2), (late, 3))]
    letters, (stored,) = refuse(message(NATIVE, json.dumps(items).encode()))
    parts = {("attic", reading.metric, reading.index) for reading in stored.readings}
    loose = MessageProcessor(compile_routes(()), GatewaySettings(max_future_seconds=7200))
    (record,) = judge_dead_letters(letters, loose, parts).records
    assert {reading.value for reading in (*stored.readings, *record.readings)} == {1.0, 2.0, 3.0}
    assert len(parts | {("attic", reading.metric, reading.index) for reading in record.readings}) == 3


def test_two_letters_of_one_message_are_judged_once_by_the_one_that_is_whole() -> None:
    payload = json.dumps({"values": {"a": 1, "b": {"unit": "V"}, "c": {"unit": "V"}}}).encode()
    letters, stored = refuse(message(NATIVE, payload))
    assert [letter.path for letter in letters] == ["$.values.b.value", "$.values.c.value"]
    assert len({letter.message for letter in letters}) == 1
    cut = [letters[0]._replace(payload=b""), letters[1]]
    parts = {("attic", "a", 0)} if stored else set()
    verdict = judge_dead_letters(cut, gate(), parts)
    assert (verdict.ending, verdict.readings) == ("refused", 0)
    assert [fault.path for fault in verdict.faults] == ["$.values.b.value", "$.values.c.value"]


def test_what_is_refused_again_says_why_and_makes_no_record() -> None:
    letters, _ = refuse(message(NATIVE, b'{"values": '))
    verdict = judge_dead_letters(letters, gate("site/#"))
    assert (verdict.ending, verdict.records, verdict.faults[0].reason) == ("refused", (), "bad_json")
    letters, _ = refuse(message(b"site/attic/temperature", b"1.5"))
    assert judge_dead_letters(letters, gate("elsewhere/#")).faults[0].reason == "no_route"


def test_what_is_now_ignored_by_rule_is_no_reading() -> None:
    letters, _ = refuse(message(b"site/attic/state", b"{}"))
    verdict = judge_dead_letters(letters, gate("site/#"))
    assert (verdict.ending, verdict.why) == ("ignored", "no_value")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"payload": b"2"}, "only 1 of its 4 bytes"),
        ({"stage": "stream"}, "was never an MQTT message"),
        ({"topic": None}, "names no MQTT topic"),
        ({"reason": "bad_encoding", "path": "topic"}, "topic is not UTF-8"),
    ],
)
def test_what_cannot_be_judged_is_skipped_with_the_reason(change: dict[str, Any], why: str) -> None:
    letters, _ = refuse(message(b"site/attic/temperature", b"21.5"))
    verdict = judge_dead_letters([letters[0]._replace(**change)], gate("site/#"))
    assert (verdict.ending, verdict.records) == ("skipped", ())
    assert why in (verdict.why or "")
