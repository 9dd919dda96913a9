"""Rollups equal a batch recomputation, whatever came late, was taken away, or broke between two tables."""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from prometheus_client import CollectorRegistry

from ingest.kafka_settings import KafkaSettings
from lakehouse.append import Append, Appender
from lakehouse.changes import table_files
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.frames import rows_of
from lakehouse.lake_settings import LakeSettings
from monitoring.metrics.stream import StreamMetrics
from streaming.derive.cursor import read_cursor
from streaming.derive.rollups import RollupDerivation
from streaming.kafka_source import LandedTopics
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

pytestmark = pytest.mark.promise("P7")

MINUTE = 60_000_000
HOUR = 60 * MINUTE
SHAPES = {
    "rollups_1m": (MINUTE, MINUTE),
    "rollups_5m": (5 * MINUTE, 5 * MINUTE),
    "rollups_1h": (HOUR, HOUR),
    "rolling_15m": (15 * MINUTE, MINUTE),
}
VALUES = ("count", "sum", "min", "max", "first", "last", "avg", "first_at", "last_at")
NOON = int(datetime(2026, 5, 1, 22, 50, tzinfo=UTC).timestamp() * 1e6)
"""Late enough that the hours of the tests reach over midnight."""


def at(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class Fleet:
    """Readings that a test makes up, tables of its own, and a clock that it sets."""

    def __init__(self, lake: Any, root: str) -> None:
        self.root, self.now, self.offset = root, NOON, 0
        ensure_tables(root, ALL_TABLES.values(), log_retention_hours=24)
        self.registry = CollectorRegistry()
        metrics = StreamMetrics(self.registry, query="land", tables=ALL_TABLES, topics=("r", "d"))
        self.writer = WriterContext(
            lake.spark, KafkaSettings(), StreamSettings(), LakeSettings(root=root), metrics, LandedTopics()
        )
        self.restart()

    def restart(self) -> None:
        self.rollups = RollupDerivation(self.writer, clock=lambda: self.now / 1e6)

    def put(self, *rows: tuple[str, str, float | str, int], received: int | None = None) -> None:
        """One commit of readings: (device, metric, value or text, event time)."""
        schema = pa.schema(DeltaTable(f"{self.root}/readings").schema().to_arrow())
        got = at(self.now if received is None else received)
        made = []
        for device, metric, value, event in rows:
            number = value if isinstance(value, float) else None
            made.append(
                {
                    "device": device, "metric": metric, "value": number, "text": None if number is not None else value,
                    "event_time": at(event), "time_source": "device", "received_at": got, "kafka_time": got,
                    "landed_at": at(self.now), "index": 0, "partition": 0, "offset": self.offset, "date": got.date(),
                }
            )  # fmt: skip
            self.offset += 1
        write_deltalake(f"{self.root}/readings", pa.Table.from_pylist(made, schema=schema), mode="append")

    def take_away(self, device: str, low: int, high: int, *, named: bool) -> None:
        """Delete a device's readings of [low, high), as a correction does: with what was asked for, or without a word."""
        arguments = {"device": device, "from": at(low).isoformat(), "to": at(high).isoformat()}
        told = {"userMetadata": json.dumps({"request": {"kind": "correct", "arguments": arguments}})} if named else {}
        DeltaTable(f"{self.root}/readings").delete(
            f"device = '{device}' AND event_time >= '{at(low):%Y-%m-%dT%H:%M:%S.%fZ}' "
            f"AND event_time < '{at(high):%Y-%m-%dT%H:%M:%S.%fZ}'",
            commit_properties=CommitProperties(custom_metadata=told),
        )

    def join(self, name: str) -> None:
        """A file per day, as maintenance leaves a table."""
        table, files = ALL_TABLES[name], table_files(self.root, name)
        with Appender(self.writer.spark, self.root, table).begin() as append:
            append.write(rows_of(self.writer.spark, self.root, table, files).coalesce(1))
            append.replace(files)
            append.commit("{}", data_change=False)

    def rows(self, table: str) -> dict[tuple[str, str, int], dict[str, Any]]:
        found: dict[tuple[str, str, int], dict[str, Any]] = {}
        for row in pa.table(DeltaTable(f"{self.root}/{table}").to_pyarrow_table()).to_pylist():
            key = (row["device"], row["metric"], us(row["window_start"]))
            assert key not in found, f"two rows of {table} for {key}"
            found[key] = row
        return found

    def versions(self) -> dict[str, int]:
        return {name: DeltaTable(f"{self.root}/{name}").version() for name in SHAPES}

    def watermark(self, table: str = "rollups_1m") -> int | None:
        cursor = read_cursor(self.root, table)
        return cursor and cursor["watermark"]

    def metric(self, name: str, **labels: str) -> float:
        found = self.registry.get_sample_value(name, labels)
        assert found is not None
        return found

    def recomputed(self, length: int, step: int) -> dict[tuple[str, str, int], dict[str, Any]]:
        """What the windows should hold, in plain Python from all readings."""
        windows: dict[tuple[str, str, int], list[tuple[Any, ...]]] = defaultdict(list)
        for row in pa.table(DeltaTable(f"{self.root}/readings").to_pyarrow_table()).to_pylist():
            if row["value"] is None or row["device"] == "tidegate-canary":
                continue
            event = us(row["event_time"])
            start = event - event % step
            while start > event - length:
                reading = (event, row["landed_at"], row["partition"], row["offset"], row["index"], row["value"])
                windows[row["device"], row["metric"], start].append(reading)
                start -= step
        found = {}
        for key, readings in windows.items():
            readings.sort()
            values = [reading[-1] for reading in readings]
            found[key] = {
                "count": len(values), "sum": sum(values), "min": min(values), "max": max(values),
                "avg": sum(values) / len(values), "first": values[0], "last": values[-1],
                "first_at": at(readings[0][0]), "last_at": at(readings[-1][0]), "window_end": at(key[2] + length),
                "date": at(key[2]).date(),
            }  # fmt: skip
        return found

    def check(self) -> None:
        """All four tables are what the readings say."""
        for name, (length, step) in SHAPES.items():
            rows, wanted = self.rows(name), self.recomputed(length, step)
            assert rows.keys() == wanted.keys(), name
            reached = self.watermark(name)
            for key, row in rows.items():
                assert {column: row[column] for column in wanted[key]} == wanted[key], (name, key)
                assert row["is_final"] == (reached is not None and key[2] + length <= reached), (name, key)


@pytest.fixture
def fleet(lake: Any, tmp_path: Path) -> Fleet:
    return Fleet(lake, str(tmp_path / "the tables"))


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, bool], None]]:
    """`crash(n, after)` lets the n-th commit from now fail, before it is made or after."""
    real, left = Append.commit, [10**9, False]

    def commit(self: Append, *args: Any, **more: Any) -> int:
        left[0] -= 1
        if left[0] or left[1]:
            version = real(self, *args, **more)
            if left[0]:
                return version
        raise RuntimeError("killed here")

    def arm(count: int, after: bool) -> None:
        left[:] = [count, after]

    monkeypatch.setattr(Append, "commit", commit)
    yield arm


def test_any_history_comes_to_what_a_batch_comes_to(fleet: Fleet, crash: Any) -> None:
    chance = random.Random(5)
    devices, metrics = ["a", "b", "c"], ["t", "u"]
    before: dict[str, dict[Any, dict[str, Any]]] = {name: {} for name in SHAPES}
    for step in range(10):
        for _ in range(chance.randint(1, 3)):
            fleet.now += chance.randint(5, 120) * 1_000_000
            rows = []
            for _ in range(chance.randint(1, 12)):
                late = chance.choice([0, 0, 0, 1, 3, 40, 300]) * MINUTE
                event = fleet.now - chance.randint(0, 40) * 1_000_000 - late
                rows.append((chance.choice(devices), chance.choice(metrics), chance.randint(-64, 64) / 8, event))
            # Equal times: the first to arrive and the last to arrive count.
            rows.append((rows[0][0], rows[0][1], 99.5, rows[0][3]))
            fleet.put(*rows, ("tidegate-canary", "t", 1.0, fleet.now), ("a", "state", "on", fleet.now))
        if step % 3 == 2:
            low = fleet.now - chance.randint(1, 200) * MINUTE
            fleet.take_away(chance.choice(devices), low, low + chance.randint(1, 90) * MINUTE, named=step % 2 == 0)
        if step == 7:
            fleet.join("rollups_1m")
        if step % 2:
            crash(chance.randint(1, 4), chance.random() < 0.5)
            with pytest.raises(RuntimeError, match="killed here"):
                fleet.rollups.run()
            fleet.restart()
        fleet.rollups.run()
        fleet.check()
        for name in SHAPES:
            after = fleet.rows(name)
            for key, row in after.items():
                old = before[name].get(key)
                changed = old is None or any(old[column] != row[column] for column in VALUES)
                was = old["revision"] + (1 if changed and old["is_final"] else 0) if old else 0
                assert row["revision"] == was, (name, key)
                if not changed and old["is_final"] == row["is_final"]:
                    assert row["updated_at"] == old["updated_at"], (name, key)
            before[name] = after
    assert fleet.metric("tidegate_rollup_corrections_total", table="rollups_1m") > 0


def test_a_window_is_updated_then_final_then_corrected(fleet: Fleet) -> None:
    """The axis, in minutes: readings at 0 and 1 · watermark 2 behind · late ones for 0."""
    zero = NOON
    key = ("a", "t", zero)
    fleet.put(("a", "t", 1.5, zero + 1), ("a", "t", 2.5, zero + 2))
    fleet.rollups.run()
    row = fleet.rows("rollups_1m")[key]
    assert (row["count"], row["is_final"], row["revision"]) == (2, False, 0)
    fleet.put(("a", "t", 4.0, zero), received=zero + MINUTE)
    fleet.rollups.run()
    row = fleet.rows("rollups_1m")[key]
    assert (row["count"], row["first"], row["last"], row["is_final"], row["revision"]) == (3, 4.0, 2.5, False, 0)

    # A clock years ahead moves the watermark to the gateway's clock and the allowed skew, no further.
    fleet.now = zero + 3 * MINUTE - 6_000_000
    fleet.put(("b", "t", 1.0, zero + 10**6 * MINUTE))
    fleet.rollups.run()
    assert fleet.watermark() == zero + MINUTE - 1_000_000
    assert not fleet.rows("rollups_1m")[key]["is_final"]

    # Something else comes that closes it: no reading of its own is needed.
    fleet.now = zero + 3 * MINUTE
    fleet.put(("a", "other", 1.0, fleet.now))
    fleet.rollups.run()
    row = fleet.rows("rollups_1m")[key]
    assert (row["count"], row["is_final"], row["revision"]) == (3, True, 0)
    assert fleet.metric("tidegate_rollup_watermark_timestamp_seconds") == (zero + MINUTE) / 1e6
    assert fleet.metric("tidegate_rollup_newest_reading_timestamp_seconds") == fleet.now / 1e6

    fleet.put(("a", "t", 8.0, zero + 3))
    fleet.put(("a", "t", 9.0, zero + 4))
    fleet.rollups.run()
    row = fleet.rows("rollups_1m")[key]
    assert (row["count"], row["last"], row["is_final"], row["revision"]) == (5, 9.0, True, 1)
    assert fleet.metric("tidegate_rollup_corrections_total", table="rollups_1m") == 1

    # A quiet fleet: nothing is written until the timeout closes a window, and nothing after the last one.
    fleet.now += 59_000_000
    versions = fleet.versions()
    assert not fleet.rollups.run()
    assert fleet.versions() == versions
    fleet.now = zero + 7 * MINUTE
    fleet.rollups.run()
    assert fleet.rows("rollups_1m")["a", "other", zero + 3 * MINUTE]["is_final"]
    assert not fleet.rows("rollups_1h")["a", "other", zero - zero % HOUR]["is_final"]
    fleet.now += 2 * HOUR
    fleet.rollups.run()
    rows = fleet.rows("rollups_1h")
    assert {row["is_final"] for key, row in rows.items() if key[0] == "a"} == {True}
    versions = fleet.versions()
    assert not fleet.rollups.run()
    fleet.restart()
    assert not fleet.rollups.run()
    assert fleet.versions() == versions

    # Text and the canary touch no window; the cursor waits for company.
    fleet.put(("tidegate-canary", "t", 1.0, fleet.now), ("a", "state", "on", fleet.now))
    assert not fleet.rollups.run()
    assert fleet.versions() == versions
    fleet.check()


def test_an_expired_log_or_a_lost_table_is_made_anew_and_keeps_what_is_equal(fleet: Fleet) -> None:
    fleet.put(("a", "t", 1.0, NOON), ("a", "t", 2.0, NOON - 26 * HOUR))
    fleet.now += 5 * MINUTE
    fleet.put(("b", "t", 1.0, fleet.now))
    fleet.rollups.run()
    fleet.put(("a", "t", 4.0, NOON + 1))
    fleet.rollups.run()
    corrected = fleet.rows("rollups_1m")["a", "t", NOON]
    assert (corrected["revision"], corrected["is_final"]) == (1, True)
    fleet.put(("b", "t", 2.0, fleet.now), ("a", "t", 3.0, NOON - 26 * HOUR + 1))
    table = DeltaTable(f"{fleet.root}/readings")
    table.create_checkpoint()
    for version in range(table.version()):
        (Path(fleet.root) / "readings" / "_delta_log" / f"{version:020d}.json").unlink()
    fleet.now += MINUTE
    fleet.rollups.run()
    fleet.check()
    assert fleet.rows("rollups_1m")["a", "t", NOON] == corrected
    assert fleet.rows("rollups_1m")["a", "t", NOON - 26 * HOUR]["revision"] == 1

    # Rows of `readings` that reached their age leave the rollups as they are, also when all is made anew.
    rows = fleet.rows("rollups_1m")
    told = CommitProperties(custom_metadata={"userMetadata": json.dumps({"retention": {"days": 1}})})
    DeltaTable(f"{fleet.root}/readings").delete(f"event_time < '{at(NOON):%Y-%m-%dT%H:%M:%SZ}'", commit_properties=told)
    fleet.rollups.run()
    assert fleet.rows("rollups_1m") == rows
