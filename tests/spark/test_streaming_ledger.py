"""Ledger, latest and devices from what a gateway sent, end to end: Kafka, the landing, outcomes, against plain Python."""

import shutil
from typing import Any

from ingest.contract.reading import Reading
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import DEVICES, LATEST, LEDGER
from lakehouse.tables import TABLES as TABLES_OF_THE_LANDING
from tests.support.ledger import BALANCE, MINUTE, Derived, Gateway, booked, expected, utc


def fill(alive: Gateway, dead: Gateway, now: int) -> None:
    """Every kind of thing that may become of a message."""
    old = now - 20 * MINUTE
    for second in range(3):
        at = now - MINUTE + second * 1_000_000
        alive.store("d1", at, Reading("t", value=20.0 + second, time_us=at - 50_000), seq=second, gap=second)
    alive.store("d1", now, Reading("t", value=30.0, time_us=now - 50_000), seq=9, reordered=1, restarts=1)
    alive.store("d1", now + 1, Reading("t", value=20.0, time_us=now - MINUTE - 50_000), seq=0, copy=True)
    alive.store(
        "d2", now + 2, Reading("t", value=1.0, time_us=now - 10 * MINUTE), Reading("t", value=2.0, index=1), late=1
    )
    alive.store("d2", now + 3, Reading("u", text="on"), Reading("v", value=5.0), more="d3")
    alive.store("tidegate-canary", now + 4)
    alive.refuse("d4", now + 5, profile="p@1")
    alive.refuse(None, now + 6)
    alive.ignore("d5", now + 7)
    alive.store("d6", now + 8, Reading("t", value=7.0, time_us=now + 500 * MINUTE))
    # Received and stored, but the gateway died before it counted them: the records are all there is.
    dead.store("d1", old + 1_000, Reading("old", value=1.0))
    dead.store("d1", old + 1_001, Reading("old", value=2.0), counted=False)
    dead.refuse("d4", old + 2, counted=False)


def test_the_books_are_right_whatever_crashes_and_say_what_the_audit_says(lander: Any, gateway: Any, now: int) -> None:
    alive, dead = gateway(), gateway(name="gone", epoch=4)
    fill(alive, dead, now)
    alive_counts, dead_sent = alive.outcome(), dead.take()
    dead.number -= 2  # its last outcome reached the first of its three messages
    counted = dead.outcome()
    # Counted, but not landed: nothing may be called a duplicate yet.
    lander.land(*dead_sent[:1])
    derived = Derived(lander)
    lander.send(*alive.take())
    derived.count(alive_counts, b"{", b'{"v":1}', counted)
    assert derived.deriver.run_pass()
    unsettled = derived.ledger()
    assert {row["duplicate"] for row in unsettled.values()} == {0}
    assert {row["unaccounted"] for row in unsettled.values()} == {None}
    assert not any(row["settled"] for row in unsettled.values())
    # A crash after each single commit.
    lander.land(*dead_sent[1:])
    for each in range(3):
        derived.restart()
        derived.derivations[each].run()
    derived.restart()
    derived.settle()
    rows = derived.ledger()
    assert booked(rows) == expected(alive, dead)
    assert all(row["settled"] for row in rows.values())
    assert {row["unaccounted"] for row in rows.values()} == {0}
    assert all(row["received"] == sum(row[name] for name in BALANCE[1:]) for row in rows.values())
    d1 = rows["d1", utc(now - MINUTE)]
    assert (d1["expected"], d1["gap"]) == (3 + 3, 3)
    assert rows["d2", utc(now)]["expected"] is None
    audit = derived.audit()
    shared = sum(row["shared"] for row in rows.values())
    totals = {name: sum(row[name] for row in rows.values()) for name in BALANCE}
    totals["received"], totals["stored"] = totals["received"] - shared, totals["stored"] - shared
    assert totals == {name: getattr(audit, name) for name in BALANCE}
    assert audit.unaccounted == 0
    assert lander.metric("tidegate_stream_poison_outcomes_total") == 2
    check_latest(derived)
    check_devices(derived, now)
    # Nothing new: nothing is written, by an old hand or a new one.
    before, state = derived.versions(), derived.state()
    assert not derived.deriver.run_pass()
    derived.restart()
    assert not derived.deriver.run_pass()
    assert derived.versions() == before
    # All three made anew, elsewhere, from what Kafka and the tables hold.
    elsewhere = f"{derived.root}, again"
    for name in TABLES_OF_THE_LANDING:
        shutil.copytree(f"{derived.root}/{name}", f"{elsewhere}/{name}")
    ensure_tables(elsewhere, (LEDGER, LATEST, DEVICES), log_retention_hours=24)
    derived = Derived(lander, elsewhere)
    derived.settle()
    again = derived.state()
    assert booked(again["ledger"]) == booked(state["ledger"])
    assert again["latest"] == state["latest"]
    learned = ("clock_skew_ms", "interval_learned_s")
    for table in (again, state):
        for row in table["devices"].values():
            assert [row.pop(name) for name in learned]
    assert again["devices"] == state["devices"]


def check_latest(derived: Derived) -> None:
    best: dict[tuple[str, str], tuple[Any, ...]] = {}
    for row in derived.lander.rows():
        ahead = row["received_at"].timestamp() + 600
        order = (min(row["event_time"].timestamp(), ahead), row["landed_at"], row["offset"], row["index"])
        kept = (order, row["value"], row["text"], row["event_time"])
        best[row["device"], row["metric"]] = max(
            best.get((row["device"], row["metric"]), kept), kept, key=lambda e: e[0]
        )
    latest = derived.rows("latest", "device", "metric")
    assert {key: (row["value"], row["text"], row["event_time"]) for key, row in latest.items()} == {
        key: kept[1:] for key, kept in best.items()
    }


def check_devices(derived: Derived, now: int) -> None:
    old = now - 20 * MINUTE
    devices = derived.rows("devices", "device")
    assert set(devices) == {"d1", "d2", "d3", "d4", "d5", "d6", "tidegate-canary"}
    assert (devices["d1"]["first_seen"], devices["d1"]["last_seen"]) == (utc(old + 1_000), utc(now))
    assert {name: row["sequence_restarted_at"] for name, row in devices.items() if row["sequence_restarted_at"]} == {
        "d1": utc(now)
    }
    d4 = devices["d4"]
    assert (d4["last_rejected_because"], d4["last_rejected_at"], d4["profile"]) == ("bad_json", utc(now + 5), "p@1")
    assert d4["first_seen"] == utc(old + 2)
    assert devices["d5"]["last_seen"] == utc(now)
    assert devices["d2"]["clock_skew_ms"] is None, "one message may be a stored one"
    assert devices["d1"]["clock_skew_ms"] == -50
    assert devices["tidegate-canary"]["clock_skew_ms"] is None
    d2 = devices["d2"]
    assert (d2["last_device_time"], d2["last_device_time_at"]) == (utc(now - 10 * MINUTE), utc(now + 2))
