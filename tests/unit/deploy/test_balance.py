"""The audit's arithmetic on a small world: whole, and with something lost."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deploy.balance import MINUTE_US, BalanceFigures, MessageBalance
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.log import LogRecord
from streaming.history.receipt import erased_devices
from tests.support.balance import START_US, World, assert_faults


def test_a_whole_world_balances(world: World) -> None:
    figures = world.balance()
    assert_faults(figures)
    assert (figures.received, figures.stored, figures.partial, figures.dead_lettered) == (6, 3, 1, 1)
    assert (figures.ignored, figures.duplicate, figures.pending, figures.foreign) == (2, 0, 0, 0)
    assert figures.examples == {}


def test_an_empty_world_balances() -> None:
    assert World().balance() == BalanceFigures()


def test_a_lost_message_is_named(world: World) -> None:
    world.rows = [row for row in world.rows if row["offset"] != 1]
    figures = world.balance()
    assert_faults(figures, unaccounted=1)
    assert figures.received == 6
    assert figures.stored == 2
    (example,) = figures.examples["unaccounted"]
    assert example["number"] == 2
    assert example["device"] == "a"
    assert example["origin"] == "telemetry.readings[0]@1"
    assert not example["pending"]
    assert not figures.only_counts_differ


def test_one_lost_reading_of_a_stored_message_is_unaccounted(world: World) -> None:
    world.rows.pop(1)
    assert_faults(world.balance(), unaccounted=1)


def test_a_lost_reading_without_identity_is_unaccounted(world: World) -> None:
    world.store("b", None, metrics=2)
    world.rows.pop()
    assert_faults(world.balance(), unaccounted=1)


@pytest.mark.parametrize(
    ("device", "until_us", "missing"),
    [("a", START_US + MINUTE_US, 0), ("b", START_US + MINUTE_US, 2), ("a", START_US - 1, 2)],
    ids=["it was", "another one was", "it spoke since"],
)
def test_what_was_erased_by_request_is_no_loss(
    world: World, tmp_path: Path, device: str, until_us: int, missing: int
) -> None:
    folder = tmp_path / "_erasures"
    folder.mkdir()
    at = datetime.fromtimestamp(until_us / 1e6, UTC).isoformat()
    receipt = {"device_sha256": hashlib.sha256(device.encode()).hexdigest(), "state": "done", "at": at}
    (folder / "1.json").write_text(json.dumps(receipt))
    (folder / "2.json").write_text(json.dumps({"state": "begun"}))
    (folder / "3.json").write_text("{")
    world.rows = [row for row in world.rows if row["device"] != "a"]
    whole = world.balance()
    assert_faults(whole, unaccounted=2)
    figures = world.balance(erased=erased_devices(str(tmp_path)))
    assert_faults(figures, unaccounted=missing)
    assert figures.received == whole.received


def test_without_receipts_nothing_was_erased(tmp_path: Path) -> None:
    assert list(erased_devices(str(tmp_path))) == list(erased_devices("s3://a/b")) == []


@pytest.mark.parametrize("partial", [True, False])
def test_a_dead_letter_in_kafka_but_not_in_the_table_is_unaccounted(world: World, partial: bool) -> None:
    world.letter_rows.pop(0 if partial else 1)
    assert_faults(world.balance(), unaccounted=1)


def test_a_row_of_a_former_topic_with_the_same_offset_proves_nothing(world: World) -> None:
    for row in world.rows:
        row["gateway_epoch"] -= 1_000_000
        row["message_id"] = None
    assert_faults(world.balance(), unaccounted=3)


def test_a_record_that_cannot_be_read_is_foreign(world: World) -> None:
    world.records.append(LogRecord(0, len(world.records), 0, b"k", b"not ours"))
    world.letters.append(LogRecord(0, len(world.letters), 0, b"k", None))
    figures = world.balance()
    assert_faults(figures)
    assert figures.foreign == 2


def test_what_lies_before_the_cutoff_does_not_count(world: World) -> None:
    assert world.balance(START_US + MINUTE_US) == BalanceFigures()


def test_a_message_past_the_landed_offset_is_pending(world: World) -> None:
    world.store("a", "bs:1:3", land=False)
    world.count(accepted=["a"])
    with MessageBalance(START_US) as books:
        world.load_tables(books)
        books.add_outcomes(world.outcomes)
        books.add_readings(world.records)
        books.add_dead_letters(world.letters)
        late = books.balance({READINGS: {0: 3}, DEAD_LETTERS: {0: 2}})
        assert_faults(late, unaccounted=1)
        assert late.pending == 1
        world.rows.append(world.rows[1] | world.origin(3, "a") | {"value": 0.0, "metric": "m0", "message_id": "bs:1:3"})
        world.rows[-1]["event_time"] = world.rows[-1]["received_at"]
        world.load_tables(books)
        assert_faults(books.balance({READINGS: {0: 4}, DEAD_LETTERS: {0: 2}}))


@pytest.mark.parametrize(
    ("lose", "what"),
    [
        (lambda world: world.rows.clear(), "rows"),
        (lambda world: world.letter_rows.clear(), "dead letters"),
        (lambda world: world.outcomes.clear(), "outcomes"),
    ],
)
def test_losing_a_whole_source_never_balances_by_chance(world: World, lose: Callable[[World], None], what: str) -> None:
    lose(world)
    figures = world.balance()
    if what == "outcomes":
        # Four messages in the topics, and nobody has counted any; only the ignored ones are unseen.
        assert (figures.received, figures.ignored) == (4, 0)
        assert_faults(figures, unaccounted=4)
    else:
        assert figures.unaccounted > 0
