"""The same identity with other content: refused with its bytes, once, and told from an equal redelivery."""

from typing import Any

import pytest

from deploy.dlq.dead_letter_query import find_dead_letters
from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import MessageProcessor
from gateway.redrive import judge_dead_letters
from gateway.routes import compile_routes
from ingest.contract.reading import Reading, encode_record
from tests.support.killed_landing import killed_before


def other(record: Any, number: int, seq: int, value: float = 99.0, **more: Any) -> Any:
    """Message `number`, whose temperature is another one than that of the first message of this seq."""
    return record(number, seq=seq, readings=[Reading("temperature", value=value), Reading("state", text="on")], **more)


def told(lander: Any) -> list[tuple[Any, ...]]:
    names = ("reason", "stage", "device", "offset", "message_number", "partial")
    return [tuple(row[name] for name in names) for row in lander.rows("dead_letters")]


def test_other_content_is_a_dead_letter_and_equal_content_is_none(
    lander: Any, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, again = record(1, seq=1), other(record, 2, 1)
    # Within a batch: the first stays, an equal copy costs nothing, another one is refused.
    lander.land(first, again, other(record, 3, 1, 21.0), record(4, seq=4))
    assert [row["message_number"] for row in lander.rows()] == [1, 1, 4, 4]
    (letter,) = lander.rows("dead_letters")
    assert told(lander) == [("conflicting_duplicate", "stream", "d1", 1, 2, False)]
    assert letter["payload"] == encode_record(again)
    assert (letter["path"], letter["got"]) == ("$.readings[0]", "temperature = 99")
    assert letter["wanted"] == "the content stored for bs:1:1 from partition 0 offset 0: temperature = 21"
    assert (letter["source_topic"], letter["message_id"], letter["mqtt_topic"]) == (
        lander.topics.readings,
        "bs:1:1",
        "t",
    )

    # Across batches, one by one: an equal copy, one with a reading that is new, one that only its unit tells apart.
    fresh = [Reading("temperature", value=1.0), Reading("humidity", value=50.0)]
    unit = [Reading("temperature", value=21.0, unit="F"), Reading("state", text="on")]
    lander.land(
        other(record, 5, 4, 24.0), record(6, seq=4, readings=fresh), record(7, seq=1, readings=unit), record(8, seq=8)
    )
    assert [row["metric"] for row in lander.rows() if row["message_number"] == 6] == ["humidity"]
    assert told(lander)[1:] == [
        ("conflicting_duplicate", "stream", "d1", 5, 6, True),
        ("conflicting_duplicate", "stream", "d1", 6, 7, False),
    ]

    # Long after it landed, its content is looked up in the table.
    with monkeypatch.context() as patched:
        patched.setattr("streaming.driver_check.load_recent", lambda root, contents: None)
        lander.land(other(record, 9, 8, 28.0), other(record, 10, 8, 1.0), b"poison")
    assert [(row["reason"], row["offset"]) for row in lander.rows("dead_letters")[3:]] == [
        ("conflicting_duplicate", 9), ("spark_corrupt_record", 10),
    ]  # fmt: skip
    assert lander.metric("tidegate_stream_conflicting_duplicates_total", query="land") == 4
    assert lander.metric("tidegate_stream_duplicate_rows_unchecked_total", query="land") == 0


@pytest.mark.parametrize("lost", ["commit", "checkpoint"])
def test_a_crash_between_the_tables_refuses_a_conflict_once(lander: Any, record: Any, lost: str) -> None:
    lander.land(record(1, seq=1))
    with killed_before("readings"):
        lander.land(other(record, 2, 1), record(3, seq=3), b"poison")
    assert lander.versions() == {"readings": 1, "dead_letters": 1, "duplicates": 1}
    if lost == "checkpoint":
        lander.forget_checkpoint()
    lander.land(other(record, 4, 3))
    assert [row["message_number"] for row in lander.rows()] == [1, 1, 3, 3]
    assert [(row["reason"], row["offset"]) for row in lander.rows("dead_letters")] == [
        ("conflicting_duplicate", 1), ("spark_corrupt_record", 3), ("conflicting_duplicate", 4),
    ]  # fmt: skip


def test_a_copy_that_cannot_be_compared_is_a_dead_letter_that_is_judged_again(
    lander: Any, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lander.land(record(1, seq=1), record(2, seq=2), record(3, seq=3, payload_hash=-5))
    converted = other(record, 6, 3, 70.0, payload_hash=-5)
    with monkeypatch.context() as patched:
        patched.setattr("streaming.driver_check.load_recent", lambda root, contents: None)
        patched.setattr("streaming.lookups.LOOKUP_BURST_SECONDS", 0.0)
        with killed_before("readings"):
            lander.land(record(1, seq=1), other(record, 5, 2), converted, record(7, seq=7))
    refused = [
        ("unchecked_duplicate", "stream", "d1", offset, number, False) for offset, number in ((3, 1), (4, 5), (5, 6))
    ]
    assert told(lander) == refused
    # The batch again, and now it could compare: what it refused stays refused, and is dropped once.
    lander.land(record(8, seq=8))
    assert told(lander) == refused
    assert [row["message_number"] for row in lander.rows()] == [1, 1, 2, 2, 3, 3, 7, 7, 8, 8]

    gate = MessageProcessor(compile_routes(()), GatewaySettings())
    (letters,) = find_dead_letters(lander.root, "reason = 'unchecked_duplicate'", None)
    verdicts = [judge_dead_letters([letter], gate) for letter in letters]
    assert [verdict.ending for verdict in verdicts] == ["accepted"] * 3
    lander.land(*(again for verdict in verdicts for again in verdict.records))
    assert [(row["reason"], row["gateway"], row["message_number"]) for row in lander.rows("dead_letters")[3:]] == [
        ("conflicting_duplicate", "redrive", 5)
    ], "the first was equal, and the payload of the third was that of what is stored, under another profile"
    assert len(lander.rows()) == 10
