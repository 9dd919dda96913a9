"""Points on disk, and all identities against a model: a set, whatever restarts, damage, erasures and days come between."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from lakehouse.create import create_table
from lakehouse.tables import READINGS
from streaming import dedup_index as dedupe
from streaming import point_store as points
from streaming.dedup_index import KEY_COLUMNS, DedupIndex, points_folder
from streaming.point_store import PointStore

Key = tuple[str, str, str]
"""Device, metric, message id."""


def reading(key: Key, landed_at: datetime) -> dict[str, Any]:
    device, metric, message_id = key
    boot, seq = map(int, message_id.split(":")[1:]) if message_id.startswith("bs:") else (None, None)
    return {
        "device": device, "metric": metric, "message_id": message_id, "boot": boot, "seq": seq, "index": 0, "partition": 0,
        "offset": 0, "event_time": landed_at, "received_at": landed_at, "kafka_time": landed_at, "landed_at": landed_at,
        "time_source": "gateway", "date": landed_at.date(),
    }  # fmt: skip


class Lake:
    def __init__(self, root: Path) -> None:
        self.root, self.snapshot = str(root), root / "_seen.parquet"
        create_table(self.root, READINGS, log_retention_hours=24)

    def rows(self, keys: list[Key], landed_at: datetime) -> pa.Table:
        schema = pa.schema(DeltaTable(f"{self.root}/readings").schema().to_arrow())
        return pa.Table.from_pylist([reading(key, landed_at) for key in keys], schema=schema)

    def store(self, keys: list[Key], landed_at: datetime) -> None:
        write_deltalake(f"{self.root}/readings", self.rows(keys, landed_at), mode="append")

    def load(self) -> DedupIndex:
        seen = DedupIndex(self.snapshot)
        seen.load(self.root, horizon_days=8)
        return seen

    def known(self, seen: DedupIndex, keys: list[Key]) -> set[Key]:
        found = seen.duplicates(self.rows(keys, datetime.now(UTC)).select(KEY_COLUMNS))
        return {keys[row - 1] for row in found["row"].to_pylist()}


IDS = st.one_of(
    st.builds("bs:{}:{}".format, st.integers(1, 2), st.integers(0, 12)), st.sampled_from([f"mp:{n}" for n in range(12)])
)
KEYS = st.tuples(st.sampled_from("de"), st.sampled_from("th"), IDS)
EVERY = [
    (device, metric, name)
    for device in "de"
    for metric in "th"
    for name in [*(f"bs:{b}:{s}" for b in (1, 2) for s in range(13)), *(f"mp:{n}" for n in range(12))]
]


class Identities(RuleBasedStateMachine):
    """Every key that was stored and not erased is known, and no other one is."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for module, name, value in (
            (dedupe, "SAVE_SECONDS", 0.0), (dedupe, "SAVE_POINTS", 3), (dedupe, "FOLD_BATCHES", 2),
            (dedupe, "FOLD_ROWS", 4), (points, "FLUSH_POINTS", 5), (points, "JOINED_FILES", 2), (points, "SLICE_POINTS", 3),
        ):  # fmt: skip
            self.patch.setattr(module, name, value)
        self.folder = TemporaryDirectory()
        self.lake = Lake(Path(self.folder.name))
        self.seen, self.model = self.lake.load(), set[Key]()

    def teardown(self) -> None:
        self.seen.close()
        self.folder.cleanup()
        self.patch.undo()

    @initialize(keys=st.lists(KEYS, unique=True, min_size=1, max_size=8), days=st.integers(9, 400))
    def a_long_past(self, keys: list[Key], days: int) -> None:
        """Counters that landed before the horizon."""
        counted = [key for key in keys if key[2].startswith("bs:")]
        if counted:
            self.lake.store(counted, datetime.now(UTC) - timedelta(days=days))
            self.model.update(counted)
            self.seen = self.lake.load()

    @rule(keys=st.lists(KEYS, min_size=1, max_size=10), days=st.integers(0, 7))
    def land(self, keys: list[Key], days: int) -> None:
        known = self.lake.known(self.seen, keys)
        assert known - {key for key in keys if keys.count(key) > 1} == self.model & set(keys) - {
            key for key in keys if keys.count(key) > 1
        }
        fresh = list(dict.fromkeys(key for key in keys if key not in self.model))
        landed_at = datetime.now(UTC) - timedelta(days=days)
        if fresh:
            self.lake.store(fresh, landed_at)
            self.seen.add(self.lake.rows(fresh, landed_at).select(KEY_COLUMNS), landed_at)
        self.model.update(fresh)

    @rule()
    def end_and_start(self) -> None:
        self.seen.close(datetime.now(UTC) - timedelta(days=8))
        self.seen = self.lake.load()

    @rule()
    def lose_the_snapshot(self) -> None:
        self.seen.close()
        self.lake.snapshot.unlink(missing_ok=True)
        self.seen = self.lake.load()

    @rule(data=st.data(), how=st.sampled_from(["gone", "short", "other"]))
    def damage_a_file(self, data: st.DataObject, how: str) -> None:
        self.seen.close(datetime.now(UTC) - timedelta(days=8))
        files = sorted(points_folder(self.lake.snapshot).glob("*"))
        if files:
            path = data.draw(st.sampled_from(files))
            content = bytearray(path.read_bytes())
            place = data.draw(st.integers(0, len(content) - 1))
            path.unlink()
            if how == "short":
                path.write_bytes(content[:place])
            elif how == "other":
                content[place] ^= 1
                path.write_bytes(content)
        self.seen = self.lake.load()

    @rule(device=st.sampled_from("de"))
    def erase(self, device: str) -> None:
        DeltaTable(f"{self.lake.root}/readings").delete(f"device = '{device}'")
        self.seen.forget(device)
        self.model = {key for key in self.model if key[0] != device}

    @rule()
    def ask_for_every_key(self) -> None:
        assert self.lake.known(self.seen, EVERY) == self.model


TestIdentities = Identities.TestCase
TestIdentities.settings = settings(
    max_examples=8, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_points_never_push_a_counter_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet device's only number, and far more points than there may be ranges."""
    monkeypatch.setattr(dedupe, "RANGES_LIMIT", 10)
    lake, now = Lake(tmp_path), datetime.now(UTC)
    seen, quiet = DedupIndex(lake.snapshot), ("quiet", "t", "bs:1:50")
    seen.add(lake.rows([quiet], now).select(KEY_COLUMNS), now)
    many = [("busy", "t", f"mp:{n}") for n in range(33_000)]
    for start in range(0, len(many), 3000):
        seen.add(lake.rows(many[start : start + 3000], now).select(KEY_COLUMNS), now)
    assert lake.known(seen, [quiet, many[0], many[-1], ("busy", "t", "mp:x")]) == {quiet, many[0], many[-1]}
    assert (seen.figures["range"][0], seen.figures["point"][0]) == (1, 33_000)


def test_a_mixed_fleet_knows_a_copy_after_eight_days_and_forgets_it_after_the_horizon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedupe, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(dedupe, "SAVE_POINTS", 1)
    lake, first = Lake(tmp_path), datetime(2026, 5, 1, 12, tzinfo=UTC)
    seen = lake.load()

    def fleet(day: int) -> list[Key]:
        ids = [name for n in range(100) for name in (f"mp:{day}-{n}", f"bs:1:{100 * day + n}")]
        return [(f"d{n % 7}", metric, name) for n, name in enumerate(ids) for metric in "abcd"]

    def points_of(day: int) -> set[Key]:
        return {key for key in fleet(day) if key[2].startswith("mp:")}

    for day in range(12):
        at = first + timedelta(days=day)
        seen.add(lake.rows(fleet(day), at).select(KEY_COLUMNS), at)
        if day == 8:
            assert lake.known(seen, fleet(0)) == set(fleet(0))
    assert lake.known(seen, fleet(0)) == set(fleet(0)) - points_of(0), "counters never expire"
    assert lake.known(seen, fleet(3)) == set(fleet(3))
    seen.close(first + timedelta(days=12))
    assert sorted({int(path.name.split("-")[0]) for path in points_folder(lake.snapshot).glob("*")})[0] > (
        first.timestamp() // 86_400
    ), "and no file of the day is left"


def test_a_clock_that_jumps_ahead_forgets_a_day_at_most(tmp_path: Path) -> None:
    held = PointStore(tmp_path)
    for day in range(100, 109):
        held.add(day, [day], [1])
        held.flush()
    held.add(500, [500], [1])
    held.flush()
    held.expire(500, 8.0)
    assert held.find([*range(100, 109), 500]) == [*range(101, 109), 500]


def test_past_the_limit_the_oldest_day_goes_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "POINTS_LIMIT", 25)
    held = PointStore(tmp_path)
    for day in range(3):
        held.add(day, range(10 * day, 10 * day + 10), [1] * 10)
        held.flush()
    held.expire(3, 8.0)
    assert (held.find(range(30)), held.evicted, held.count) == (list(range(10, 30)), 10, 20)


def test_files_are_joined_in_slices_and_forget_a_device_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "SLICE_POINTS", 100)
    source, held = random.Random(5), PointStore(tmp_path)
    known = {source.getrandbits(64): source.randrange(3) for _ in range(5000)}
    for start in range(0, 5000, 250):
        part = list(known)[start : start + 250]
        held.add(7, part, [known[point] for point in part])
        held.flush()
    held.join(lambda: True)
    assert len(held.entries()) == 20, "asked to end, it leaves the files as they were"
    held.join()
    assert len(held.entries()) < 8
    assert held.find(known) == sorted(known)
    held.forget(1)
    assert held.find(known) == sorted(point for point, tag in known.items() if tag != 1)
    held.sweep()
    again = PointStore(tmp_path)
    assert again.open(held.entries()) == set()
    assert again.find([*known, 3]) == sorted(point for point, tag in known.items() if tag != 1)
    on_disk = sum(path.stat().st_size for path in tmp_path.glob("*"))
    assert on_disk < 13 * again.count, "the erased device's hashes are on no disk"
