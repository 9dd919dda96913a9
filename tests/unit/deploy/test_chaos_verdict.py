"""The judge of a chaos run: each way in which a message can go wrong is counted, and nothing else is."""

import base64
from typing import Any

import pytest

from deploy.chaos.verdict import MessageKey, RecordedMessages, judge
from ingest.contract.dead_letter import DeadLetterRecord, encode_dead_letter
from ingest.contract.outcome import Count, OutcomeRecord, encode_outcome
from ingest.contract.reading import ReadingRecord, encode_record
from ingest.contract.reasons import Reason
from ingest.log import LogRecord

GATEWAYS = frozenset({"gw"})
SENT = {MessageKey("dev", 1, seq): b"payload %d" % seq for seq in range(1, 6)}


def reading(seq: int, number: int, *, message_id: str | None = "", epoch: int = 1, gateway: str = "gw") -> bytes:
    identity = f"bs:1:{seq}" if message_id == "" else message_id
    return encode_record(
        ReadingRecord(1, gateway, epoch, number, 0, "t", "dev", [], 1, message_id=identity, boot=1, seq=seq)
    )


def outcome(upto: int, received: int, *, epoch: int = 1, **more: Any) -> bytes:
    return encode_outcome(OutcomeRecord(1, "gw", epoch, 1, upto, [Count(0, received, "dev", **more)]))


def letter(payload: bytes, number: int, *, partial: bool = False) -> bytes:
    encoded = base64.b64encode(payload).decode()
    topic = "tidegate/v1/dev/readings"
    return encode_dead_letter(
        DeadLetterRecord(1, "gw", 1, number, 0, topic, Reason.BAD_JSON, encoded, len(payload), partial=partial)
    )


def landed(readings: list[bytes], outcomes: list[bytes], letters: list[bytes] | None = None) -> RecordedMessages:
    found = RecordedMessages()
    found.add_readings([LogRecord(0, offset, 0, b"", value) for offset, value in enumerate(readings)], GATEWAYS)
    found.add_outcomes([LogRecord(0, offset, 0, b"", value) for offset, value in enumerate(outcomes)], GATEWAYS)
    found.add_dead_letters(
        [LogRecord(0, offset, 0, b"", value) for offset, value in enumerate(letters or [])], GATEWAYS
    )
    return found


WHOLE = [reading(seq, seq) for seq in range(1, 6)]


def test_what_is_whole_is_whole() -> None:
    verdict = judge(SENT, SENT, landed(WHOLE, [outcome(5, 5)]))
    assert verdict.whole
    assert (verdict.sent, verdict.acknowledged, verdict.stored, verdict.repeated) == (5, 5, 5, 0)


def test_a_dead_letter_is_an_end_too() -> None:
    verdict = judge(SENT, SENT, landed(WHOLE[:4], [outcome(5, 5)], [letter(SENT[MessageKey("dev", 1, 5)], 5)]))
    assert verdict.whole
    assert (verdict.stored, verdict.dead_lettered) == (4, 1)


def test_a_part_that_was_refused_makes_no_message_twofold() -> None:
    verdict = judge(
        SENT, SENT, landed(WHOLE, [outcome(5, 5)], [letter(SENT[MessageKey("dev", 1, 5)], 5, partial=True)])
    )
    assert verdict.whole


@pytest.mark.parametrize(
    ("readings", "outcomes", "letters", "wrong"),
    [
        (WHOLE[:4], [outcome(4, 4)], [], {"lost": 1}),
        ([*WHOLE, reading(5, 6)], [outcome(6, 6)], [], {"repeated": 1}),
        ([*WHOLE, reading(5, 6, message_id="fm:x")], [outcome(6, 6)], [], {"duplicate": 1, "repeated": 1}),
        (
            [*WHOLE[:4], reading(5, 5, message_id=None), reading(5, 6, message_id=None)],
            [outcome(6, 6)],
            [],
            {"duplicate": 1, "repeated": 1},
        ),
        (WHOLE, [outcome(6, 6)], [letter(SENT[MessageKey("dev", 1, 5)], 6)], {"duplicate": 1}),
        ([WHOLE[1], WHOLE[0], *WHOLE[2:]], [outcome(5, 5)], [], {"reordered": 1}),
        ([*WHOLE, reading(9, 6)], [outcome(6, 6)], [], {"unexplained": 1}),
        (WHOLE, [outcome(6, 6)], [letter(b"of nobody", 6)], {"unexplained": 1}),
        (WHOLE, [outcome(5, 7)], [], {"unexplained": 2}),
        (WHOLE, [outcome(5, 3)], [], {"unexplained": 2}),
    ],
    ids=[
        "lost", "repeated", "two identities", "no identity", "stored and refused", "swapped", "stranger",
        "letter of nobody", "counted too many", "counted too few",
    ],
)  # fmt: skip
def test_each_fault_is_counted(
    readings: list[bytes], outcomes: list[bytes], letters: list[bytes], wrong: dict[str, int]
) -> None:
    verdict = judge(SENT, SENT, landed(readings, outcomes, letters))
    names = ("lost", "duplicate", "repeated", "reordered", "unexplained")
    assert {name: getattr(verdict, name) for name in names} == dict.fromkeys(names, 0) | wrong
    assert verdict.whole == (wrong.keys() == {"repeated"})


def test_what_was_not_acknowledged_may_be_missing_or_there() -> None:
    assert judge(SENT, list(SENT)[:3], landed(WHOLE[:4], [outcome(4, 4)])).whole


def test_a_redelivery_is_in_order_where_the_first_copies_are() -> None:
    again = [reading(seq, 5 + seq, epoch=2) for seq in range(3, 6)]
    assert judge(SENT, SENT, landed([*WHOLE, *again], [outcome(5, 5), outcome(10, 3, epoch=2)])).whole


def test_the_order_of_receiving_is_another_question() -> None:
    swapped = [reading(2, 1), reading(1, 2), *WHOLE[2:]]
    books = landed(swapped, [outcome(5, 5)])
    assert judge(SENT, SENT, books).reordered == 1
    assert judge(SENT, SENT, books, by_device=False).reordered == 0
    books = landed([WHOLE[1], WHOLE[0], *WHOLE[2:]], [outcome(5, 5)])
    assert judge(SENT, SENT, books, by_device=False).reordered == 1


def test_messages_past_the_last_outcome_count_by_themselves() -> None:
    """The gateway died before it could count them."""
    assert judge(SENT, SENT, landed(WHOLE, [outcome(3, 3)])).whole


def test_ignored_messages_and_other_gateways_are_left_out() -> None:
    books = landed([*WHOLE, reading(1, 1, gateway="other")], [outcome(7, 7, ignored={"empty_payload": 2})])
    assert judge(SENT, SENT, books).whole
