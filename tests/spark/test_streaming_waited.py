"""What waited is no news: retained replays in every table, and a queue that a device flushes, end to end."""

from datetime import UTC, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ingest.contract.reading import Reading
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ROLLUPS
from lakehouse.session import LakeSession
from streaming.derive.devices_derivation import device_rows, heard_messages
from streaming.derive.latest_derivation import latest_rows
from streaming.derive.rollups import RollupDerivation
from tests.support.ledger import MINUTE, Derived, booked, expected, utc


def readings_of(lander: Any, device: str) -> list[dict[str, Any]]:
    return sorted((row for row in lander.rows() if row["device"] == device), key=lambda row: row["received_at"])


@pytest.mark.parametrize("first", ["live", "replayed"])
def test_a_replay_is_one_row_and_moves_nothing(lander: Any, gateway: Any, now: int, first: str) -> None:
    """However often the session is lost, with and without a time of its own, and though the landing is started again."""
    one = gateway()
    timed = Reading("t", value=18.5, time_us=now - 60 * MINUTE)
    untimed = Reading("t", value=19.5)
    said = {"timed": (timed, 11), "untimed": (untimed, 12)}
    for name, (reading, payload) in said.items():
        one.store(
            name,
            now - 5 * MINUTE,
            reading,
            retained=first == "replayed",
            payload=payload,
            **{"late": 1} if name == "timed" else {},
        )
    one.store("live", now - 5 * MINUTE, Reading("t", value=1.0))
    for again in (1, 2, 3):
        lander.land(*one.take())
        for name, (reading, payload) in said.items():
            one.store(name, now + again, reading, retained=True, payload=payload, copy=True)
    # Refused and ignored replays are no life either; nor is one of another payload, which is a row.
    one.refuse("silent", now, retained=True)
    one.ignore("mute", now, retained=True)
    one.store("untimed", now + 9, Reading("t", value=99.0), retained=True, payload=13)
    lander.land(*one.take())
    assert [(row["value"], row["retained"]) for row in readings_of(lander, "untimed")] == [
        (19.5, first == "replayed"), (99.0, True)
    ]  # fmt: skip
    assert [(row["value"], row["retained"]) for row in readings_of(lander, "timed")] == [(18.5, first == "replayed")]
    assert [row["retained"] for row in readings_of(lander, "live")] == [False]
    assert pa.table(DeltaTable(f"{lander.root}/dead_letters").to_pyarrow_table()).num_rows == 1, "no copy is unchecked"

    derived = Derived(lander)
    derived.count(one.outcome())
    derived.settle()
    rows = derived.ledger()
    assert booked(rows) == expected(one)
    assert {row["unaccounted"] for row in rows.values()} == {0}
    heard = {"live", "timed", "untimed"} if first == "live" else {"live"}
    assert set(derived.rows("devices", "device")) == heard
    assert {row["last_seen"] for row in derived.rows("devices", "device").values()} == {utc(now - 5 * MINUTE)}
    assert {key: row["value"] for key, row in derived.rows("latest", "device", "metric").items()} == {
        key: value for key, value in {("live", "t"): 1.0, ("timed", "t"): 18.5, ("untimed", "t"): 19.5}.items()
        if key[0] in heard
    }  # fmt: skip
    ensure_tables(derived.root, ROLLUPS.values(), log_retention_hours=24)
    RollupDerivation(derived.writer).run()
    assert {row["device"] for row in derived.rows("rollups_1h", "device", "window_start").values()} == heard
    audit = derived.audit()
    assert (audit.unaccounted, audit.duplicate_rows, audit.duplicate) == (
        0,
        0,
        sum(r["duplicate"] for r in rows.values()),
    )


Sent = tuple[float, float]
"""When a message was received and what time it claims, in seconds from the beginning."""
_READINGS = (
    "device string, gateway string, gateway_epoch long, message_number long, received_at timestamp, device_time timestamp, "
    "waited_since timestamp"
)
HOUR = 3600.0
LIVE = [(10.0 * n, 10.0 * n - 3.0) for n in range(6)]
FLUSHED = [(5 * HOUR + 0.02 * n, 60.0 * n + 50.0) for n in range(200)]
CASES: dict[str, tuple[list[list[Sent]], int | None]] = {
    "slow clock": ([LIVE], -3000),
    "a message a pass": ([[one] for one in LIVE], -3000),
    "a message alone": ([LIVE[:1]], None),
    "flushed queue": ([LIVE, FLUSHED], -3000),
    "flushed over passes": ([LIVE, FLUSHED[:50], FLUSHED[50:51], FLUSHED[51:]], -3000),
    "flushed by the second": ([LIVE, [(5 * HOUR + 0.02 * n, 50.0 + n) for n in range(200)]], -3000),
    "flushed, several metrics": ([LIVE, [(5 * HOUR + 0.02 * n, 60.0 * (n // 3)) for n in range(200)]], -3000),
    "nothing but flushes": ([FLUSHED, [(at + HOUR, claimed + 4 * HOUR) for at, claimed in FLUSHED]], None),
    "live again": ([LIVE, FLUSHED, [(at + 6 * HOUR, claimed + 6 * HOUR) for at, claimed in LIVE]], -3000),
    "waited in the broker": ([[(at + HOUR, claimed) for at, claimed in LIVE]], None),
}


def test_a_flushed_queue_is_no_clock_skew(lake: LakeSession, now: int) -> None:
    """Of all cases at once, a device each: what each pass brings is given in turn, as the derivation does."""
    known = None
    for step in range(max(len(passes) for passes, _ in CASES.values())):
        rows = [
            (name, "g", 5, number, utc(now + int(at * 1e6)), utc(now + int(claimed * 1e6)),
             utc(now) if name == "waited in the broker" else None)
            for name, (passes, _) in CASES.items() if step < len(passes)
            for number, (at, claimed) in enumerate(passes[step])
        ]  # fmt: skip
        messages = heard_messages(lake.spark.createDataFrame(rows, _READINGS), None, count=len(rows))
        devices = device_rows(messages, None, known, utc(now))
        assert devices is not None
        known = lake.spark.createDataFrame(devices.collect(), devices.schema)
    assert known is not None
    found = {row.device: row for row in known.collect()}
    assert {name: row.clock_skew_ms for name, row in found.items()} == {name: skew for name, (_, skew) in CASES.items()}
    assert found["a message a pass"].interval_learned_s == pytest.approx(10.0), "the last claim is no message"


_LATEST = (
    "device string, metric string, value double, text string, unit string, event_time timestamp, received_at timestamp, "
    "flags array<string>, updated_at timestamp"
)


def test_a_value_is_stale_after_five_usual_intervals_of_its_device(lake: LakeSession, now: int) -> None:
    """Or after an hour where none is known; what its device sends of another metric keeps it."""
    ages = {
        "fresh": [59.0], "old": [61.0], "slow": [499.0], "slow and old": [501.0], "never learned": [3599.0],
        "never learned, old": [3601.0], "one metric is fresh": [9000.0, 5.0],
    }  # fmt: skip
    intervals = {
        "fresh": 1.0,
        "old": 10.0,
        "slow": 100.0,
        "slow and old": 100.0,
        "one metric is fresh": 10.0,
        "unknown": 5.0,
    }
    at = {(d, f"m{i}"): utc(now - int(age * 1e6)) for d, each in ages.items() for i, age in enumerate(each)}
    known = lake.spark.createDataFrame(
        [(*key, 1.0, None, None, when, when, [], when) for key, when in at.items()], _LATEST
    )
    devices = lake.spark.createDataFrame(list(intervals.items()), "device string, interval_learned_s double")
    found = {(row.device, row.metric): row for row in latest_rows(None, known, utc(now), devices).collect()}
    assert set(found) == set(at)
    waits = {"old": 60, "slow and old": 500, "never learned, old": 3600}
    assert {key[0]: row.stale_since.replace(tzinfo=UTC) for key, row in found.items() if row.stale_since} == {
        name: at[name, "m0"] + timedelta(seconds=seconds) for name, seconds in waits.items()
    }


def test_time_alone_makes_a_value_stale_and_a_reading_makes_it_fresh(lander: Any, gateway: Any, now: int) -> None:
    one, derived = gateway(), Derived(lander)
    derived.now = utc(now)

    def stale() -> dict[str, Any]:
        derived.settle()
        return {row["device"]: row["stale_since"] for row in derived.rows("latest", "device", "metric").values()}

    one.store("dead", now - MINUTE, Reading("t", value=1.0))
    one.store("alive", now - MINUTE, Reading("t", value=2.0))
    lander.land(*one.take())
    assert stale() == {"dead": None, "alive": None}
    before = derived.versions()["latest"]
    derived.now = utc(now + 50 * MINUTE)
    assert not derived.deriver.run_pass()
    derived.restart()
    assert not derived.deriver.run_pass()
    assert derived.versions()["latest"] == before, "nothing is written before a value goes stale"
    one.store("alive", now + 55 * MINUTE, Reading("t", value=2.0))
    lander.land(*one.take())
    assert stale() == {"dead": None, "alive": None}
    derived.now = utc(now + 60 * MINUTE)
    assert stale() == {"dead": utc(now + 59 * MINUTE), "alive": None}
    one.store("dead", now + 60 * MINUTE, Reading("t", value=3.0))
    lander.land(*one.take())
    assert stale() == {"dead": None, "alive": None}
