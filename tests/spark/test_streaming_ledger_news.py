"""What comes after the ledger, latest and devices were made: later news, recounts, corrections and erasures."""

import time
from typing import Any

import pytest

from ingest.contract.reading import Reading
from lakehouse.requests import Request
from streaming.derive.cursor import read_cursor
from streaming.derive.ledger_progress import KEPT_EPOCHS
from streaming.history import erase as erase_module
from streaming.history.correct import correct
from streaming.history.erase import erase
from tests.support.ledger import MINUTE, TABLES, Derived, booked, expected, utc


def test_later_news_change_only_what_they_touch(lander: Any, gateway: Any, now: int) -> None:
    one = gateway()
    for minute in range(4):
        one.store("d1", now - minute * MINUTE + 500_000, Reading("t", value=float(minute)), seq=minute)
        one.store("d2", now - minute * MINUTE, Reading("t", value=float(minute), time_us=now + 100 * MINUTE))
    lander.land(*one.take())
    derived = Derived(lander)
    derived.count(one.outcome())
    derived.settle()
    before = derived.ledger()
    assert derived.rows("latest", "device", "metric")["d2", "t"]["value"] == 0.0
    # The outcome of a record that has landed already comes a pass later.
    one.store("d1", now + 20_500_000, Reading("t", value=9.0), seq=10)
    lander.land(*one.take())
    derived.settle()
    row = derived.ledger()["d1", utc(now)]
    assert (row["received"], row["stored"], row["settled"], len(row["open"])) == (2, 2, False, 1)
    derived.count(one.outcome())
    derived.settle()
    rows = derived.ledger()
    assert booked(rows) == expected(one)
    assert all(row["settled"] and not row["open"] for row in rows.values())
    assert {key for key, row in rows.items() if row != before[key]} == {("d1", utc(now))}
    # 20 s after the messages of a minute each: one step of a fifth on the way to the quarter, on a logarithmic scale.
    assert derived.rows("devices", "device")["d1"]["interval_learned_s"] == pytest.approx(60 * (20 / 60) ** 0.2)
    # A clock that ran ahead does not hold the row: one that is right again replaces it.
    one.store("d2", now + 30 * MINUTE, Reading("t", value=1.5))
    lander.land(*one.take())
    derived.count(one.outcome())
    derived.settle()
    assert derived.rows("latest", "device", "metric")["d2", "t"]["value"] == 1.5
    # What a correction changes is looked up anew; the ledger is a book of arrivals and stays.
    books = booked(derived.ledger())
    arguments = {
        "device": "d1",
        "delete": True,
        "from": utc(now + 1_000_000).isoformat(),
        "to": utc(now + MINUTE).isoformat(),
    }
    correct(derived.writer, Request("correct", arguments, author="a", reason="r"))
    derived.settle()
    assert derived.rows("latest", "device", "metric")["d1", "t"]["value"] == 0.0
    assert booked(derived.ledger()) == books
    # Landed and counted before it was erased, not taken in yet: it stays away. What comes later is its own.
    one.store("d1", now + 40_000_000, Reading("t", value=99.0), seq=11)
    one.refuse("d1", now + 41_000_000)
    lander.land(*one.take())
    derived.count(one.outcome())
    erase(derived.writer, Request("erase", {"device": "d1"}, author="a", reason="r"))
    derived.settle()
    derived.restart()
    derived.settle()
    assert {name: [row for row in derived.state()[name].values() if row["device"] == "d1"] for name in TABLES} == {
        name: [] for name in TABLES
    }
    one.store("d1", now + 45_000_000, Reading("t", value=100.0), seq=12)
    lander.land(*one.take())
    derived.count(one.outcome())
    derived.settle()
    assert booked(derived.ledger())["d1", utc(now)] == {"received": 1, "stored": 1}
    assert derived.rows("latest", "device", "metric")["d1", "t"]["value"] == 100.0
    assert derived.rows("devices", "device")["d1"]["first_seen"] == utc(now + 45_000_000)


def test_a_message_that_only_the_ledger_counts_is_no_interval(lander: Any, gateway: Any, now: int) -> None:
    """Of an ignored message nothing is known but its minute: that is not when the device was heard first, nor a gap."""
    one, derived, heard = gateway(), Derived(lander), now + 28_000_000
    one.ignore("d1", heard)
    one.ignore("d2", heard)
    one.store("d1", heard + 10_000, Reading("t", value=1.0))
    one.store("d1", heard + 1_010_000, Reading("t", value=2.0))
    lander.land(*one.take())
    derived.count(one.outcome())
    derived.settle()
    devices = derived.rows("devices", "device")
    assert devices["d1"]["first_seen"] == utc(heard + 10_000)
    assert devices["d1"]["interval_learned_s"] == pytest.approx(1.0)
    assert (devices["d2"]["first_seen"], devices["d2"]["last_seen"]) == (utc(now), utc(now))
    one.store("d2", heard + 20_000, Reading("t", value=1.0))
    one.store("d2", heard + 2_020_000, Reading("t", value=1.0))
    lander.land(*one.take())
    derived.count(one.outcome())
    derived.settle()
    d2 = derived.rows("devices", "device")["d2"]
    assert d2["first_seen"] == utc(heard + 20_000)
    assert d2["interval_learned_s"] == pytest.approx(2.0)


def test_a_recount_knows_that_epochs_which_it_forgot_were_counted(lander: Any, gateway: Any, now: int) -> None:
    one = gateway()
    derived = Derived(lander)
    for epoch in range(100, 106 + KEPT_EPOCHS):
        one.epoch = epoch
        one.store("d1", (now - 20 * MINUTE) + epoch)
        derived.count(one.outcome())
    lander.land(*one.take())
    derived.settle()
    assert booked(derived.ledger()) == expected(one)
    cursor = read_cursor(derived.root, "ledger")
    assert cursor is not None
    assert list(cursor["upto"]["g"]) == [str(epoch) for epoch in range(106, 106 + KEPT_EPOCHS)]
    # As where the table was made anew: its versions do not reach so far.
    derivation: Any = derived.derivations[0]
    derivation._own.cursor["readings"] = 10**6
    derived.settle()
    assert booked(derived.ledger()) == expected(one)


def test_an_erasure_that_is_killed_between_two_tables_brings_no_device_back(
    lander: Any, gateway: Any, now: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, derived = gateway(), Derived(lander)
    one.ignore("d9", now)
    one.store("d1", now)
    lander.land(*one.take())
    derived.count(one.outcome())
    derived.settle()
    assert set(derived.rows("devices", "device")) == {"d1", "d9"}
    erase_from, request = erase_module._erase_from, Request("erase", {"device": "d9"}, author="a", reason="r")

    def killed(*arguments: Any) -> None:
        if arguments[-1] == "ledger":
            message = "killed here"
            raise RuntimeError(message)
        erase_from(*arguments)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(erase_module, "_erase_from", killed)
        erase(derived.writer, request)
    one.store("d1", now + 1)
    lander.land(*one.take())
    derived.count(one.outcome())
    derived.settle()
    assert ("d9", utc(now)) in derived.ledger(), "not erased from it yet"
    assert set(derived.rows("devices", "device")) == {"d1"}
    erase(derived.writer, request)
    derived.settle()
    assert {row["device"] for table in derived.state().values() for row in table.values()} == {"d1"}
    # What a gateway had not counted yet is no new life; what it receives from now on is.
    one.ignore("d9", now)
    derived.count(one.outcome())
    derived.settle()
    assert {row["device"] for table in derived.state().values() for row in table.values()} == {"d1"}
    again = (int(time.time() * 1e6) // MINUTE + 2) * MINUTE
    one.ignore("d9", again)
    derived.count(one.outcome())
    derived.settle()
    assert [minute for device, minute in derived.ledger() if device == "d9"] == [utc(again)]
    assert "d9" in derived.rows("devices", "device")
