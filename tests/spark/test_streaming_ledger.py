"""Ledger, latest and devices from what a gateway sent, end to end: Kafka, the landing, outcomes, against plain Python."""

import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deploy.balance import Books, Figures
from ingest.consumer import read_range
from ingest.contract.dead_letter import DeadLetterRecord
from ingest.contract.outcome import Count, OutcomeRecord, encode_outcome
from ingest.contract.reading import Reading, ReadingRecord
from ingest.contract.topics import DEAD_LETTERS
from ingest.offsets import end_offsets
from lakehouse.create import ensure_tables
from lakehouse.derived import DEVICES, LATEST, LEDGER
from lakehouse.requests import Request
from lakehouse.settings import LakeSettings
from streaming.derive.cursor import read_cursor
from streaming.derive.deriver import Deriver, arrival_derivations
from streaming.derive.ledger_epochs import KEPT_EPOCHS
from streaming.history import erase as erase_module
from streaming.history.correct import correct
from streaming.history.erase import erase
from streaming.settings import StreamSettings
from streaming.writer import Writer

MINUTE = 60_000_000
TABLES = ("ledger", "latest", "devices")
# The newest whole minute that is over: everything here was received in it and in the four before it, or twenty earlier.
NOW = int(time.time() * 1_000_000) // MINUTE * MINUTE - MINUTE
OLD = NOW - 20 * MINUTE


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger goes by the clock, and this module may have been read long before its tests begin."""
    now = int(time.time() * 1_000_000) // MINUTE * MINUTE - MINUTE
    monkeypatch.setitem(globals(), "NOW", now)
    monkeypatch.setitem(globals(), "OLD", now - 20 * MINUTE)


def utc(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)


@dataclass
class Gateway:
    """Numbers what it receives, counts it, and keeps its own book of what must come out."""

    record: Callable[..., ReadingRecord]
    dead_letter: Callable[..., DeadLetterRecord]
    epoch: int = 5
    name: str = "g"
    number: int = 0
    first: int = 1
    sent: list[Any] = field(default_factory=list)
    counts: dict[tuple[str | None, int], Count] = field(default_factory=dict)
    book: dict[tuple[str, datetime], dict[str, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )

    def store(
        self, device: str, at: int, *readings: Reading, seq: int | None = None, copy: bool = False, counted: bool = True,
        more: str = "", **book: int,
    ) -> None:  # fmt: skip
        """One message of a device (and of another, `more`); a `copy` has the identity of a stored one."""
        self.number += 1
        for each in [device, more] if more else [device]:
            self.sent.append(
                self.record(
                    self.number, seq=seq, device=each, received_us=at, gateway=self.name, epoch=self.epoch,
                    readings=list(readings) or [Reading("t", value=float(self.number))],
                )
            )  # fmt: skip
        if counted:
            self._count(device, at, accepted=1, **book)
        self._note(device, at, received=1, **{"duplicate" if copy else "stored": 1}, **book)
        if more:
            self._note(more, at, received=1, stored=1, shared=1)

    def refuse(self, device: str | None, at: int, *, counted: bool = True, profile: str | None = None) -> None:
        self.number += 1
        letter = self.dead_letter(self.number)
        letter.device, letter.received_us, letter.profile = device, at, profile
        letter.gateway, letter.epoch = self.name, self.epoch
        self.sent.append(letter)
        if counted:
            self._count(device, at, dead_lettered={"bad_json": 1})
        self._note(device or "", at, received=1, dead_lettered=1)

    def ignore(self, device: str, at: int) -> None:
        self.number += 1
        self._count(device, at, ignored={"no_value": 1})
        self._note(device, at, received=1, ignored=1)

    def outcome(self) -> bytes:
        """What it has counted since the last one."""
        counts, self.counts = list(self.counts.values()), {}
        first, self.first = self.first, self.number + 1
        return encode_outcome(OutcomeRecord(1, self.name, self.epoch, first, self.number, counts))

    def take(self) -> list[Any]:
        taken, self.sent = self.sent, []
        return taken

    def _count(self, device: str | None, at: int, **more: Any) -> None:
        count = self.counts.setdefault((device, at // MINUTE), Count(at // MINUTE, 0, device))
        count.received += 1
        for name, value in more.items():
            if isinstance(value, dict):
                known = dict(getattr(count, name))
                setattr(count, name, known | {key: known.get(key, 0) + n for key, n in value.items()})
            elif hasattr(count, name):
                setattr(count, name, getattr(count, name) + value)

    def _note(self, device: str, at: int, **more: int) -> None:
        row = self.book[device, utc(at // MINUTE * MINUTE)]
        for name, value in more.items():
            row[name] += value


class Derived:
    """The three tables of a lander, and passes over them by objects that may be thrown away at any time."""

    def __init__(self, lander: Any, root: str | None = None) -> None:
        self.lander, self.root = lander, root or lander.root
        self.writer = Writer(
            lander.lake.spark, lander.kafka, StreamSettings(checkpoint=str(lander.checkpoint)),
            LakeSettings(root=self.root), lander.metrics, lander.topics,
        )  # fmt: skip
        self.restart()

    def restart(self) -> None:
        """As after a crash: all that was in memory is gone."""
        self.derivations = arrival_derivations(self.writer)
        self.deriver = Deriver(self.derivations)

    def count(self, *values: bytes) -> None:
        self.lander.send(*values, topic=self.lander.topics.outcomes)

    def settle(self) -> None:
        """Passes until there is nothing left to do."""
        for _ in range(5):
            if not self.deriver.run_pass():
                return
        raise AssertionError("there is always something left to do")

    def rows(self, table: str, *keys: str) -> dict[Any, dict[str, Any]]:
        found = pa.table(DeltaTable(f"{self.root}/{table}").to_pyarrow_table()).to_pylist()
        rows = {tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]: row for row in found}
        assert len(rows) == len(found), "a key stands there twice"
        return rows

    def ledger(self) -> dict[tuple[str, datetime], dict[str, Any]]:
        return self.rows("ledger", "device", "minute")

    def versions(self) -> dict[str, int]:
        return {name: DeltaTable(f"{self.root}/{name}").version() for name in TABLES}

    def state(self) -> dict[str, dict[Any, dict[str, Any]]]:
        keys = {"ledger": ("device", "minute"), "latest": ("device", "metric"), "devices": ("device",)}
        rows = {name: self.rows(name, *key) for name, key in keys.items()}
        return {
            name: {key: {k: v for k, v in row.items() if k != "updated_at"} for key, row in table.items()}
            for name, table in rows.items()
        }

    def audit(self) -> Figures:
        """The balance of deploy/balance.py over the same topics and tables."""
        topics = self.lander.topics
        letters = pa.table(DeltaTable(f"{self.root}/dead_letters").to_pyarrow_table())
        position = letters.schema.get_field_index("source_topic")
        renamed = letters.set_column(position, "source_topic", pa.array([DEAD_LETTERS] * letters.num_rows, pa.string()))
        with Books(0) as books:
            books.load_tables(DeltaTable(f"{self.root}/readings").to_pyarrow_table(), renamed)
            for topic, add in (
                (topics.outcomes, books.add_outcomes),
                (topics.readings, books.add_readings),
                (topics.dead_letters, books.add_dead_letters),
            ):
                ends = end_offsets(self.lander.kafka, topic)
                for batch in read_range(self.lander.kafka, topic, dict.fromkeys(ends, 0), ends):
                    add(batch)
            return books.balance({})


BALANCE = ("received", "stored", "dead_lettered", "ignored", "duplicate")
BOOKED = (*BALANCE, "shared", "gap", "reordered", "partial", "late")


def booked(rows: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, int]]:
    return {key: {name: row[name] for name in BOOKED if row[name]} for key, row in rows.items()}


def expected(*gateways: Gateway) -> dict[Any, dict[str, int]]:
    total: dict[Any, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for gateway in gateways:
        for key, row in gateway.book.items():
            for name, value in row.items():
                total[key][name] += value
    return {key: dict(row) for key, row in total.items()}


@pytest.fixture
def gateway(record: Any, dead_letter: Any) -> Callable[..., Gateway]:
    def make(**fields: Any) -> Gateway:
        return Gateway(record, dead_letter, **fields)

    return make


def fill(alive: Gateway, dead: Gateway) -> None:
    """Every kind of thing that may become of a message."""
    for second in range(3):
        at = NOW - MINUTE + second * 1_000_000
        alive.store("d1", at, Reading("t", value=20.0 + second, time_us=at - 50_000), seq=second, gap=second)
    alive.store("d1", NOW, Reading("t", value=30.0, time_us=NOW - 50_000), seq=9, reordered=1)
    alive.store("d1", NOW + 1, Reading("t", value=20.0, time_us=NOW - MINUTE - 50_000), seq=0, copy=True)
    alive.store(
        "d2", NOW + 2, Reading("t", value=1.0, time_us=NOW - 10 * MINUTE), Reading("t", value=2.0, index=1), late=1
    )
    alive.store("d2", NOW + 3, Reading("u", text="on"), Reading("v", value=5.0), more="d3")
    alive.store("tidegate-canary", NOW + 4)
    alive.refuse("d4", NOW + 5, profile="p@1")
    alive.refuse(None, NOW + 6)
    alive.ignore("d5", NOW + 7)
    alive.store("d6", NOW + 8, Reading("t", value=7.0, time_us=NOW + 500 * MINUTE))
    # Received and stored, but the gateway died before it counted them: the records are all there is.
    dead.store("d1", OLD + 1_000, Reading("old", value=1.0))
    dead.store("d1", OLD + 1_001, Reading("old", value=2.0), counted=False)
    dead.refuse("d4", OLD + 2, counted=False)


def test_the_books_are_right_whatever_crashes_and_say_what_the_audit_says(lander: Any, gateway: Any) -> None:
    alive, dead = gateway(), gateway(name="gone", epoch=4)
    fill(alive, dead)
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
    assert all(row["received"] == sum(row[name] for name in BALANCE[1:]) for row in rows.values())
    d1 = rows["d1", utc(NOW - MINUTE)]
    assert (d1["expected"], d1["gap"]) == (3 + 3, 3)
    assert rows["d2", utc(NOW)]["expected"] is None
    audit = derived.audit()
    shared = sum(row["shared"] for row in rows.values())
    totals = {name: sum(row[name] for row in rows.values()) for name in BALANCE}
    totals["received"], totals["stored"] = totals["received"] - shared, totals["stored"] - shared
    assert totals == {name: getattr(audit, name) for name in BALANCE}
    assert audit.unaccounted == 0
    assert lander.metric("tidegate_stream_poison_outcomes_total") == 2
    check_latest(derived)
    check_devices(derived)
    # Nothing new: nothing is written, by an old hand or a new one.
    before, state = derived.versions(), derived.state()
    assert not derived.deriver.run_pass()
    derived.restart()
    assert not derived.deriver.run_pass()
    assert derived.versions() == before
    # All three made anew, elsewhere, from what Kafka and the tables hold.
    elsewhere = f"{derived.root}, again"
    for name in ("readings", "dead_letters"):
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


def check_devices(derived: Derived) -> None:
    devices = derived.rows("devices", "device")
    assert set(devices) == {"d1", "d2", "d3", "d4", "d5", "d6", "tidegate-canary"}
    assert (devices["d1"]["first_seen"], devices["d1"]["last_seen"]) == (utc(OLD + 1_000), utc(NOW))
    d4 = devices["d4"]
    assert (d4["last_rejected_because"], d4["last_rejected_at"], d4["profile"]) == ("bad_json", utc(NOW + 5), "p@1")
    assert d4["first_seen"] == utc(OLD + 2)
    assert devices["d5"]["last_seen"] == utc(NOW)
    assert devices["d2"]["clock_skew_ms"] == -600_000
    assert devices["d1"]["clock_skew_ms"] == -50
    assert devices["tidegate-canary"]["clock_skew_ms"] is None


def test_later_news_change_only_what_they_touch(lander: Any, gateway: Any) -> None:
    one = gateway()
    for minute in range(4):
        one.store("d1", NOW - minute * MINUTE + 500_000, Reading("t", value=float(minute)), seq=minute)
        one.store("d2", NOW - minute * MINUTE, Reading("t", value=float(minute), time_us=NOW + 100 * MINUTE))
    lander.land(*one.take())
    derived = Derived(lander)
    derived.count(one.outcome())
    derived.settle()
    before = derived.ledger()
    assert derived.rows("latest", "device", "metric")["d2", "t"]["value"] == 0.0
    # The outcome of a record that has landed already comes a pass later.
    one.store("d1", NOW + 20_500_000, Reading("t", value=9.0), seq=10)
    lander.land(*one.take())
    derived.settle()
    row = derived.ledger()["d1", utc(NOW)]
    assert (row["received"], row["stored"], row["settled"], len(row["open"])) == (2, 2, False, 1)
    derived.count(one.outcome())
    derived.settle()
    rows = derived.ledger()
    assert booked(rows) == expected(one)
    assert all(row["settled"] and not row["open"] for row in rows.values())
    assert {key for key, row in rows.items() if row != before[key]} == {("d1", utc(NOW))}
    # 20 s after the messages of a minute each: one step of a fifth on the way to the quarter, on a logarithmic scale.
    assert derived.rows("devices", "device")["d1"]["interval_learned_s"] == pytest.approx(60 * (20 / 60) ** 0.2)
    # A clock that ran ahead does not hold the row: one that is right again replaces it.
    one.store("d2", NOW + 30 * MINUTE, Reading("t", value=1.5))
    lander.land(*one.take())
    derived.count(one.outcome())
    derived.settle()
    assert derived.rows("latest", "device", "metric")["d2", "t"]["value"] == 1.5
    # What a correction changes is looked up anew; the ledger is a book of arrivals and stays.
    books = booked(derived.ledger())
    arguments = {
        "device": "d1",
        "delete": True,
        "from": utc(NOW + 1_000_000).isoformat(),
        "to": utc(NOW + MINUTE).isoformat(),
    }
    correct(derived.writer, Request("correct", arguments, author="a", reason="r"))
    derived.settle()
    assert derived.rows("latest", "device", "metric")["d1", "t"]["value"] == 0.0
    assert booked(derived.ledger()) == books
    # Landed and counted before it was erased, not taken in yet: it stays away. What comes later is its own.
    one.store("d1", NOW + 40_000_000, Reading("t", value=99.0), seq=11)
    one.refuse("d1", NOW + 41_000_000)
    lander.land(*one.take())
    derived.count(one.outcome())
    erase(derived.writer, Request("erase", {"device": "d1"}, author="a", reason="r"))
    derived.settle()
    derived.restart()
    derived.settle()
    assert {name: [row for row in derived.state()[name].values() if row["device"] == "d1"] for name in TABLES} == {
        name: [] for name in TABLES
    }
    one.store("d1", NOW + 45_000_000, Reading("t", value=100.0), seq=12)
    lander.land(*one.take())
    derived.count(one.outcome())
    derived.settle()
    assert booked(derived.ledger())["d1", utc(NOW)] == {"received": 1, "stored": 1}
    assert derived.rows("latest", "device", "metric")["d1", "t"]["value"] == 100.0
    assert derived.rows("devices", "device")["d1"]["first_seen"] == utc(NOW + 45_000_000)


def test_a_message_that_only_the_ledger_counts_is_no_interval(lander: Any, gateway: Any) -> None:
    """Of an ignored message nothing is known but its minute: that is not when the device was heard first, nor a gap."""
    one, derived, heard = gateway(), Derived(lander), NOW + 28_000_000
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
    assert (devices["d2"]["first_seen"], devices["d2"]["last_seen"]) == (utc(NOW), utc(NOW))
    one.store("d2", heard + 20_000, Reading("t", value=1.0))
    one.store("d2", heard + 2_020_000, Reading("t", value=1.0))
    lander.land(*one.take())
    derived.count(one.outcome())
    derived.settle()
    d2 = derived.rows("devices", "device")["d2"]
    assert d2["first_seen"] == utc(heard + 20_000)
    assert d2["interval_learned_s"] == pytest.approx(2.0)


def test_a_recount_knows_that_epochs_which_it_forgot_were_counted(lander: Any, gateway: Any) -> None:
    one = gateway()
    derived = Derived(lander)
    for epoch in range(100, 106 + KEPT_EPOCHS):
        one.epoch = epoch
        one.store("d1", OLD + epoch)
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
    lander: Any, gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, derived = gateway(), Derived(lander)
    one.ignore("d9", NOW)
    one.store("d1", NOW)
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
    one.store("d1", NOW + 1)
    lander.land(*one.take())
    derived.count(one.outcome())
    derived.settle()
    assert ("d9", utc(NOW)) in derived.ledger(), "not erased from it yet"
    assert set(derived.rows("devices", "device")) == {"d1"}
    erase(derived.writer, request)
    derived.settle()
    assert {row["device"] for table in derived.state().values() for row in table.values()} == {"d1"}
