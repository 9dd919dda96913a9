"""Rows that are stored already are found by identity, all at once, and nothing else is."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse.create import create_table
from lakehouse.tables import READINGS
from streaming.dedup_index import DedupIndex
from streaming.stream_settings import StreamSettings
from tests.support.identities import NOW, IdentityCases, dropped, row, rows


class TestDriver(IdentityCases):
    @pytest.fixture
    def seen(self, monkeypatch: pytest.MonkeyPatch) -> DedupIndex:
        monkeypatch.setattr("streaming.dedup_index.FOLD_BATCHES", 1)
        return DedupIndex()


def test_rows_without_identity_take_no_range() -> None:
    seen = DedupIndex()
    seen.add(rows(row(1), row(2), row(2)), NOW)
    assert seen.range_count == 0


def test_a_numbered_device_needs_one_range_however_long_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.dedup_index.FOLD_BATCHES", 4)
    seen = DedupIndex()
    for batch in range(8):
        seen.add(rows(*(row(100 * batch + i, seq=10 * batch + i) for i in range(10))), NOW)
    assert seen.range_count <= 11, "one, and the rows since the last fold"
    assert dropped(seen, rows(row(900, seq=0), row(901, seq=79), row(902, seq=80))) == [(900, 0), (901, 0)]


def test_gaps_stay_open_until_they_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.dedup_index.FOLD_BATCHES", 1)
    seen = DedupIndex()
    seen.add(rows(row(1, seq=1), row(2, seq=3)), NOW)
    assert seen.range_count == 2
    seen.add(rows(row(3, seq=2)), NOW)
    assert seen.range_count == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.dedup_index.FOLD_BATCHES", 1)
    monkeypatch.setattr("streaming.dedup_index.FOLD_ROWS", 0)
    monkeypatch.setattr("streaming.dedup_index.RANGES_LIMIT", 5)
    seen = DedupIndex()
    for i in range(20):
        seen.add(rows(row(i, seq=2 * i)), datetime.fromtimestamp(1_800_000_000 + i, UTC))
    # Up to a quarter more: what is new is folded in when it is worth the work.
    assert seen.range_count <= 6
    assert dropped(seen, rows(row(30, seq=0), row(31, seq=38))) == [(31, 0)]
    assert (seen.figures["range"][1] >= 1, seen.figures["range"][2]) == (True, 20 - seen.range_count)


def test_a_damaged_snapshot_is_built_anew(tmp_path: Path) -> None:
    from streaming.identity_snapshot import read_snapshot, write_snapshot

    path = tmp_path / "seen.parquet"
    assert read_snapshot(path, "table") is None
    write_snapshot(path, rows(row(1, seq=1)), "table", NOW)
    held = read_snapshot(path, "table")
    assert held is not None
    assert held[1] == NOW
    assert read_snapshot(path, "another table") is None
    path.write_bytes(path.read_bytes()[:50])
    assert read_snapshot(path, "table") is None


def test_a_snapshot_of_an_older_version_is_read(tmp_path: Path) -> None:
    """It held the words of each line instead of their hash; what it knew is known on."""
    import pyarrow.parquet as pq

    stored(tmp_path, range(0))
    old = {"device": ["d", "d"], "metric": ["t", "t"], "stem": ["bs:7", "mp:a"], "low": [5, 0], "high": [90, 0]}
    table = pa.table(old | {"index": pa.array([0, 0], pa.int32()), "last": [1_800_000_000] * 2})
    table_id = str(DeltaTable(str(tmp_path / "readings")).metadata().id)
    notes = {"version": "1", "table": table_id, "since_us": str(int(datetime.now(UTC).timestamp() * 1e6))}
    pq.write_table(table.replace_schema_metadata(notes), tmp_path / "seen.parquet")
    seen = DedupIndex(tmp_path / "seen.parquet")
    seen.load(str(tmp_path), horizon_days=8)
    batch = rows(row(1, seq=4), row(2, seq=50), row(3, message_id="mp:a"), row(4, seq=91), row(5, seq=50, device="e"))
    assert dropped(seen, batch) == [(2, 0), (3, 0)]
    seen.forget("d")
    assert dropped(seen, batch) == []


def stored(root: Path, numbers: range) -> None:
    create_table(str(root), READINGS, log_retention_hours=24)
    now = datetime.now(UTC)
    known = {
        "device": "d", "metric": "t", "event_time": now, "time_source": "device", "received_at": now, "kafka_time": now,
        "landed_at": now, "index": 0, "partition": 0, "date": now.date(),
    }  # fmt: skip
    made = [known | {"message_id": f"mp:{i}", "offset": i} for i in numbers]
    table = DeltaTable(str(root / "readings"))
    write_deltalake(table, pa.Table.from_pylist(made, schema=pa.schema(table.schema().to_arrow())), mode="append")


def test_after_a_restart_the_newest_identities_are_the_last_to_be_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.dedup_index.RANGES_LIMIT", 10)
    snapshot = tmp_path / "seen.parquet"
    stored(tmp_path, range(0))
    first = DedupIndex(snapshot)
    first.load(str(tmp_path), horizon_days=8)
    first.add(rows(*(row(i, message_id=f"mp:old{i}") for i in range(10))), NOW)
    first.save(datetime.now(UTC))
    stored(tmp_path, range(5))
    second = DedupIndex(snapshot)
    second.load(str(tmp_path), horizon_days=8)
    assert len(dropped(second, rows(*(row(90 + i, message_id=f"mp:{i}") for i in range(5))))) == 5


def test_a_redelivery_a_month_late_is_dropped_for_numbered_messages_across_restarts(tmp_path: Path) -> None:
    """What landed a month ago is in no file that a start reads: the ranges alone remember it."""
    snapshot = tmp_path / "seen.parquet"
    stored(tmp_path, range(0))
    month_ago = datetime.now(UTC) - timedelta(days=31)
    first = DedupIndex(snapshot)
    first.load(str(tmp_path), horizon_days=8)
    for start in range(0, 1000, 100):
        first.add(
            rows(*(row(i, seq=i, metric=metric) for i in range(start, start + 100) for metric in "th")), month_ago
        )
    first.save(month_ago)
    for day in range(31, 0, -10):
        again = DedupIndex(snapshot)
        again.load(str(tmp_path), horizon_days=8)
        landed_at = datetime.now(UTC) - timedelta(days=day)
        again.add(rows(*(row(9000 + day, seq=2000 + day, metric=metric) for metric in "th")), landed_at)
        again.save(landed_at)
    late = DedupIndex(snapshot)
    late.load(str(tmp_path), horizon_days=8)
    assert late.range_count == 10, "a range of 1000 numbers and 4 single ones, of two metrics"
    batch = rows(row(1, seq=0), row(2, seq=999, metric="h"), row(3, seq=1000), row(4, seq=2021))
    assert dropped(late, batch) == [(1, 0), (2, 0), (4, 0)]


@pytest.mark.parametrize(
    ("master", "chosen", "on_executors"),
    [
        ("local[2]", "auto", False),
        ("local-cluster[2,1,1024]", "auto", False),
        ("spark://m:7077", "auto", True),
        ("yarn", "auto", True),
        ("k8s://https://k:443", "driver", False),
        ("local[2]", "executors", True),
    ],
)
def test_executors_look_for_copies_where_the_master_is_not_local(master: str, chosen: str, on_executors: bool) -> None:
    settings = StreamSettings.model_validate({"master": master, "identity_lookup": chosen})
    assert settings.checks_on_executors == on_executors
