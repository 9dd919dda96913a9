"""The ledger balances whatever comes late, twice or out of turn, and shows what is lost or stored twice."""

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ingest.contract.reading import Reading
from lakehouse.derived_tables import LEDGER
from lakehouse.requests import Request
from streaming.derive.ledger_facts import ledger_rows, merged_facts, own_facts
from streaming.derive.ledger_progress import Settling
from streaming.history.correct import correct
from streaming.repair_run import DROP_FLAG
from tests.support.killed_landing import killed_before
from tests.support.ledger import MINUTE, Derived, Gateway, booked, expected, utc

SAME = Reading("t", value=1.0)


def unaccounted(derived: Derived) -> dict[str, int]:
    """Device to what its rows do not account for, where that is not 0."""
    rows = derived.ledger()
    assert all(row["settled"] for row in rows.values())
    for row in rows.values():
        right = sum(row[name] for name in ("stored", "dead_lettered", "ignored", "duplicate", "unaccounted"))
        assert row["received"] == right
    return {device: row["unaccounted"] for (device, _), row in rows.items() if row["unaccounted"]}


def test_losses_and_doubled_messages_show_and_what_was_deleted_on_purpose_does_not(
    lander: Any, gateway: Any, now: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streaming.land import Landing

    one, derived = gateway(), Derived(lander)
    # Acknowledged and counted, and their records are nowhere.
    for seq in range(3):
        one.store("lost", now + seq, SAME, seq=seq)
    one.refuse("lost letter", now)
    one.refuse(None, now)
    one.take()
    # Kafka has the dead letters, and the landing loses them.
    one.refuse("unlanded", now)
    with monkeypatch.context() as patched:
        patched.setattr(Landing, "_land_dead_letters", lambda *_: None)
        lander.land(*one.take())
    one.refuse("well", now + 4)
    one.refuse("letter twice", now)
    one.store("well", now, SAME, seq=1)
    one.store("well", now + 1, SAME, seq=2)
    one.store("well", now + 2, SAME, seq=1, copy=True)
    one.store("well", now + 3, Reading("t", value=2.0), seq=1)  # another content under a stored identity
    one.store("twice", now, SAME)
    one.store("twice at once", now, SAME)
    sent = one.take()
    lander.land(*sent, sent[-1])
    derived.count(one.outcome())
    derived.settle()
    lost = {"lost": 3, "lost letter": 1, "": 1, "unlanded": 1}
    assert unaccounted(derived) == lost | {"twice at once": -1}
    row = derived.ledger()["well", utc(now)]
    assert [row[name] for name in ("received", "stored", "dead_lettered", "duplicate")] == [5, 2, 2, 1]
    lander.land(sent[-2], sent[1])
    derived.settle()
    lost |= {"letter twice": -1, "twice": -1, "twice at once": -1}
    assert unaccounted(derived) == lost
    assert lander.metric("tidegate_ledger_unaccounted_messages") == 9
    # A file that the ledger has counted is gone, and a repair takes its rows out of the table.
    one.store("gone", now, SAME, seq=1)
    one.store("gone", now + 1, SAME, seq=2)
    one.refuse("stays", now)
    before = set(DeltaTable(f"{lander.root}/readings").file_uris())
    lander.land(*one.take())
    derived.count(one.outcome())
    derived.settle()
    (gone,) = set(DeltaTable(f"{lander.root}/readings").file_uris()) - before
    arguments = {
        "device": "well",
        "delete": True,
        "from": utc(now - MINUTE).isoformat(),
        "to": utc(now + MINUTE).isoformat(),
    }
    correct(derived.writer, Request("correct", arguments, author="a", reason="r"))
    derived.settle()
    assert "gone" not in unaccounted(derived)
    Path(unquote(gone)).unlink()
    assert len(lander.repair(DROP_FLAG)) == 1
    derived.restart()
    derived.settle()
    assert unaccounted(derived) == lost | {"gone": 2}


def test_copies_of_a_batch_that_is_killed_are_counted_once(lander: Any, gateway: Any, now: int) -> None:
    one, derived = gateway(), Derived(lander)
    one.store("d1", now, SAME, seq=1)
    lander.land(*one.take())
    one.store("d1", now + 1, SAME, seq=1, copy=True)
    one.store("d1", now + 2, SAME, seq=2)
    derived.count(one.outcome())
    with killed_before("readings"):
        lander.land(*one.take())
    derived.settle()
    (row,) = derived.ledger().values()
    assert (row["settled"], row["unaccounted"]) == (False, None), "the batch is in one table and not in the other"
    lander.land()
    derived.settle()
    assert booked(derived.ledger()) == expected(one)
    # A batch of nothing but copies.
    one.store("d1", now + 3, SAME, seq=2, copy=True)
    lander.land(*one.take())
    derived.count(one.outcome())
    derived.settle()
    assert booked(derived.ledger()) == expected(one)
    assert unaccounted(derived) == {}


def test_each_message_is_counted_once_however_late_its_outcome_comes(lander: Any, gateway: Any, now: int) -> None:
    """Gateways send, die before they count, and send again; outcomes come any time later, hours after their records."""
    lander.land()
    chance, derived = Random(1), Derived(lander)
    waiting: dict[str, list[bytes]] = {"a": [], "b": []}
    gateways: list[Gateway] = [gateway(name=name, epoch=5) for name in waiting]
    for turn in range(3):
        for one in gateways:
            at = now - chance.choice([0, 20, 90]) * MINUTE
            for place in range(chance.randint(1, 3)):
                one.store(f"{one.name}{place}", at + place, SAME, seq=100 * turn + place)
            one.store(f"{one.name}1", at + 5, SAME, Reading("u", value=1.0), more="shared")
            one.refuse(f"{one.name}1", at + 6)
            waiting[one.name].append(one.outcome())
            if chance.random() < 0.6:
                # It dies: the broker sends again what was not counted, on the next connection.
                one.store(f"{one.name}9", at + 7, SAME, seq=100 * turn, counted=False)
                one.epoch, one.first = one.epoch + 1, one.number + 1
                one.store(f"{one.name}9", at + 8, SAME, seq=100 * turn, copy=True)
                one.refuse(f"{one.name}9", at + 9)
                waiting[one.name].append(one.outcome())
            lander.send(*one.take())
        steps = [lander.land, derived.restart, *([lambda: deliver(derived, waiting, chance)] * 2)]
        chance.shuffle(steps)
        for step in steps:
            step()
            derived.deriver.run_pass()
            assert {row["unaccounted"] for row in derived.ledger().values()} <= {0, None}
    lander.land()
    while any(waiting.values()):
        deliver(derived, waiting, chance)
        derived.deriver.run_pass()
        assert {row["unaccounted"] for row in derived.ledger().values()} <= {0, None}
    derived.settle()
    uncounted = {key for key, row in derived.ledger().items() if not row["settled"]}
    assert all(minute >= utc(now) for _, minute in uncounted), "they wait for outcomes that may still come"
    found, wanted = booked(derived.ledger()), expected(*gateways)
    assert {key: row for key, row in found.items() if key not in uncounted} == {
        key: row for key, row in wanted.items() if key not in uncounted
    }
    assert set(found) == set(wanted)


def test_rows_of_an_older_version_keep_their_meaning(lake: Any) -> None:
    """Nobody counted their copies or letters: what is missing is called duplicate, what is too much shared, with no alarm."""
    at = utc(1_780_000_020_000_000)
    names = [column.name for column in LEDGER.columns]
    shown = ("received", "stored", "dead_lettered", "duplicate", "shared", "accepted", "spark_refused")
    old = {
        "missing": (10, 6, 1, 3, 0, 10, 1), "too much": (3, 3, 0, 0, 2, 1, 0), "counted": (4, 3, 0, 1, 0, 4, 0),
        "unlettered": (5, 3, 1, 1, 0, 4, 0),
    }  # fmt: skip
    rows = [
        {
            **dict.fromkeys(names, 0), **dict(zip(shown, values, strict=True)), "device": device, "minute": at, "date": at.date(),
            "updated_at": at, "settled": True, "sequenced": False, "open": [], "expected": None, "unaccounted": None,
            "copies": 1 if device in ("counted", "unlettered") else None, "letters": 0 if device == "counted" else None,
            "counted_dead": 1 if device == "unlettered" else 0,
        }
        for device, values in old.items()
    ]  # fmt: skip
    typed = [f"CAST(`{column.name}` AS {column.type}) AS `{column.name}`" for column in LEDGER.columns]
    ledger = lake.spark.createDataFrame(pa.Table.from_pylist(rows)).selectExpr(*typed)
    settling = Settling({}, at, at, all_landed=True, older_landed=True, forgotten={})
    found = {row["device"]: row for row in ledger_rows(merged_facts([own_facts(ledger)]), settling).collect()}
    assert {device: tuple(row[name] for name in shown) for device, row in found.items()} == old
    assert {device: row["unaccounted"] for device, row in found.items()} == {
        "missing": None, "too much": None, "counted": 0, "unlettered": None,
    }  # fmt: skip
    # A new ledger counts what retention has taken from the tables before.
    settling = Settling(
        {},
        at,
        at,
        all_landed=True,
        older_landed=True,
        forgotten={},
        retained_since=(at + timedelta(1)).date().isoformat(),
    )
    rows_again = ledger_rows(merged_facts([own_facts(ledger)]), settling).collect()
    assert {row["unaccounted"] for row in rows_again} == {None}


def deliver(derived: Derived, waiting: dict[str, list[bytes]], chance: Random) -> None:
    """The next outcome of some gateway reaches Kafka: those of one gateway keep their order."""
    names = [name for name, outcomes in waiting.items() if outcomes]
    if names:
        derived.count(waiting[chance.choice(names)].pop(0))
