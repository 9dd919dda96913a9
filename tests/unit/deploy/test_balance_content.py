"""The audit's arithmetic: what the rows say against what Kafka's records say."""

import hashlib
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deploy.corrections import Correction, read_corrections
from ingest.contract.topics import READINGS
from tests.support.balance import START_US, World, assert_faults, utc

LATER_US = START_US + 3600 * 1_000_000


@pytest.mark.parametrize(
    "change",
    [
        {"value": 7.5}, {"value": None}, {"text": "another"}, {"unit": "K"}, {"event_time": utc(START_US + 1)},
        {"device_time": utc(START_US)},
    ],
    ids=str,
)  # fmt: skip
def test_a_row_that_says_something_else_than_its_record_is_altered(world: World, change: dict[str, Any]) -> None:
    world.rows[1] |= change
    figures = world.balance()
    assert_faults(figures, unaccounted=1)
    assert (figures.altered, figures.stored, figures.received) == (1, 2, 6)
    assert figures.examples["altered"][0]["number"] == 1


def test_a_corrected_row_may_say_something_else(world: World) -> None:
    world.rows[1] |= {"value": 7.5, "flags": ["corrected"]}
    assert_faults(world.balance())


def test_rows_with_each_others_values_are_altered(world: World) -> None:
    one, other = world.rows[0], world.rows[1]
    one["value"], other["value"] = other["value"], one["value"]
    assert world.balance().altered == 1


@pytest.mark.parametrize(
    ("value", "relative", "corrected", "unaccounted"),
    [(0.0, False, False, 0), (5.0, False, False, 1), (5.0, False, True, 0), (5.0, True, False, 1)],
    ids=["the same", "another value", "the row was corrected", "only times may differ"],
)
def test_a_dropped_copy_is_a_duplicate_only_where_a_row_says_the_same(
    world: World, value: float, relative: bool, corrected: bool, unaccounted: int
) -> None:
    world.rows[3]["flags"] = ["relative_time"] * relative + ["corrected"] * corrected
    world.store("a", "bs:1:2", land=False, value=value)
    figures = world.balance()
    assert_faults(figures, unaccounted=unaccounted)
    assert figures.duplicate == 1 - unaccounted


@pytest.mark.parametrize("shift_us", [0, 5])
@pytest.mark.parametrize("relative", [False, True])
def test_the_time_that_a_copy_claims_must_agree_unless_it_was_relative(
    world: World, shift_us: int, relative: bool
) -> None:
    world.store("c", "bs:2:1", time_us=START_US - 10)
    world.rows[-1]["flags"] = ["relative_time"] * relative
    world.store("c", "bs:2:1", time_us=START_US - 10 + shift_us, land=False)
    assert_faults(world.balance(), unaccounted=bool(shift_us) and not relative)


@pytest.mark.parametrize(("stored", "unaccounted"), [(77, 0), (78, 1), (None, 1)])
def test_copies_of_the_same_payload_say_the_same_whatever_profile_read_them(
    world: World, stored: int | None, unaccounted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.balance_rows._payload", lambda message: "77")
    world.rows[3]["payload_hash"] = stored
    world.store("a", "bs:1:2", land=False, value=5.0)
    assert_faults(world.balance(), unaccounted=unaccounted)


@pytest.mark.parametrize("age_days", [0, 30])
@pytest.mark.parametrize(
    ("change", "unaccounted"),
    [({}, 0), ({"payload": 8}, 1), ({"topic": "t/other"}, 1), ({"retained": False}, 1)],
    ids=str,
)
def test_a_dropped_replay_is_a_duplicate_of_any_row_with_its_topic_and_payload(
    world: World, change: dict[str, Any], unaccounted: int, age_days: int
) -> None:
    world.store("r", payload=7, topic="t/r")
    at = world.rows[-1]["received_at"] - timedelta(age_days)
    world.rows[-1] |= {"received_at": at, "event_time": at, "date": at.date()}
    if age_days:  # Kafka has forgotten its record, and its gateway's connection
        world.rows[-1] |= {"gateway_epoch": 1, "offset": 10_000}
        world.records.pop()
        world.number -= 1
    world.store("r", "rt:1", land=False, **{"payload": 7, "topic": "t/r", "retained": True} | change)
    figures = world.balance()
    assert_faults(figures, unaccounted=unaccounted)
    assert figures.duplicate == 1 - unaccounted


@pytest.mark.parametrize(
    ("reason", "is_stored", "unaccounted"),
    [
        ("conflicting_duplicate", True, 0), ("conflicting_duplicate", False, 1), ("unchecked_duplicate", True, 0),
        ("unchecked_duplicate", False, 0),
    ],
)  # fmt: skip
def test_a_refused_copy_excuses_what_its_reason_says(
    world: World, reason: str, is_stored: bool, unaccounted: int
) -> None:
    world.store("a", "bs:1:2" if is_stored else "bs:1:9", land=False, value=5.0)
    letter = {"source_topic": READINGS, "stage": "stream", "reason": reason}
    world.letter_rows.append(world.origin(len(world.records) - 1, "a") | letter)
    assert_faults(world.balance(), unaccounted=unaccounted)


def correction(device: str = "a", metric: str | None = None, **more: Any) -> Correction:
    named = {"from_us": None, "to_us": None, "at_us": LATER_US, "is_deletion": True} | more
    return Correction(hashlib.sha256(device.encode()).hexdigest(), metric, **named)


@pytest.mark.parametrize(
    ("entry", "unaccounted"),
    [
        (correction(), 0),
        (correction(metric="m0"), 1),
        (correction("b"), 2),
        (correction(at_us=START_US), 2),
        (correction(from_us=START_US + 2000), 1),
        (correction(to_us=START_US + 2000), 1),
        (correction(is_deletion=False), 2),
    ],
    ids=["all", "of one metric", "of another device", "came later", "before", "after", "changed no row away"],
)
def test_what_a_correction_took_away_is_no_loss(world: World, entry: Correction, unaccounted: int) -> None:
    world.rows = [row for row in world.rows if row["device"] != "a"]
    figures = world.balance(corrected=[entry])
    assert_faults(figures, unaccounted=unaccounted)
    assert figures.received == 6


def test_a_copy_of_what_a_correction_took_away_is_no_loss(world: World) -> None:
    world.rows = [row for row in world.rows if row["device"] != "a"]
    world.number += 5000
    world.store("a", "bs:1:2", land=False)
    at_us = START_US + 4_000_000
    assert_faults(world.balance(corrected=[correction(at_us=at_us)], window_messages=9999))


def test_corrections_are_read_from_the_journal(tmp_path: Path) -> None:
    at = {"at": utc(LATER_US).isoformat(), "author": "me"}
    entries = [
        {"id": "1", "state": "begun"},
        {"id": "1", "state": "done", "device": "a", "metric": "m0", "delete": True, "from": utc(START_US).isoformat()}
        | at,
        {"id": "2", "state": "done", "device_sha256": "0f", "factor": 2.0} | at,
        {"id": "3", "state": "done", "device": "a"},
    ]
    (tmp_path / "_corrections.jsonl").write_text("\n".join(map(json.dumps, entries)) + "\n{")
    assert list(read_corrections(str(tmp_path))) == [
        correction(metric="m0", from_us=START_US),
        Correction("0f", None, None, None, LATER_US, False),
    ]
    assert list(read_corrections("s3://a/b")) == []


def test_the_original_of_a_copy_is_found_however_old_it_is(world: World) -> None:
    for days in (2, 40):
        row = dict(world.rows[3]) | {"message_id": f"bs:0:{days}", "offset": -days}
        row |= {name: row[name] - timedelta(days=days) for name in ("received_at", "date", "event_time")}
        world.rows.append(row)
        world.store("a", f"bs:0:{days}", land=False)
    figures = world.balance()
    assert_faults(figures)
    assert figures.duplicate == 2
