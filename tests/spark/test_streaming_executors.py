"""Copies that executors look for: the same ones as in the driver, with the same letters, and after a restart."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F

from ingest.contract.errors import RetryableError
from ingest.contract.reading import Reading
from lakehouse.create import ensure_tables
from lakehouse.frames import data_rows
from lakehouse.session import LakeSession
from lakehouse.tables import READINGS, TABLES
from streaming.duplicate_comparator import COMPARED_COLUMNS, DuplicateComparator
from streaming.executors import parts_folder
from streaming.executors.content_judge import judge_copies, refused_records
from streaming.executors.identity_parts import IdentityParts
from streaming.executors.parts_folder import PartsFolder
from tests.support.copies import COMPARED, COPIES
from tests.support.identities import NOW, IdentityCases, row, rows
from tests.support.killed_landing import killed_before

EXECUTORS = {"identity_lookup": "executors"}


class Index:
    """`IdentityParts` as the index of the driver: what is added lies in files of a table, as after a commit."""

    def __init__(self, lake: LakeSession, root: Path) -> None:
        ensure_tables(str(root), TABLES.values(), log_retention_hours=24)
        self._lake, self._uri, self._count = lake, str(root / READINGS.name), 0
        self.parts = IdentityParts(lake.spark, str(root))
        self.parts.load(horizon_days=8)

    def add(self, table: pa.Table, landed_at: datetime) -> None:
        self.parts.add(None, [self._write(table)], self._count, table.num_rows, landed_at)

    def duplicates(self, table: pa.Table) -> pa.Table:
        written = data_rows(self._lake.spark, self._uri, READINGS, [self._write(table)])
        placed = self.parts.place(written.select("*", F.col("_metadata.row_index")))
        found = {(each["partition"], each["offset"], each["row_index"]) for each in self.parts.copies(placed).collect()}
        placed.unpersist()
        places = dict[tuple[int, int], int]()
        copies = list[dict[str, int]]()
        for number, each in enumerate(table.select(["partition", "offset"]).to_pylist()):
            record = (each["partition"], each["offset"])
            places[record] = position = places.get(record, -1) + 1
            if (*record, number) in found:
                copies.append({"offset": each["offset"], "position": position})
        return pa.Table.from_pylist(copies, pa.schema([("offset", pa.int64()), ("position", pa.int64())]))

    def forget(self, device: str) -> None:
        self.parts.forget(device)

    def _write(self, table: pa.Table) -> str:
        self._count += 1
        pq.write_table(table, f"{self._uri}/{self._count}.parquet")
        return f"{self._count}.parquet"


class TestExecutors(IdentityCases):
    @pytest.fixture
    def seen(self, lake: LakeSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
        monkeypatch.setattr("streaming.executors.identity_parts.FRESH_COMMITS", 2)
        index = Index(lake, tmp_path / "the tables")
        yield index
        index.parts.close()


def test_commits_become_parts_and_small_parts_are_joined(lake: LakeSession, tmp_path: Path) -> None:
    index = Index(lake, tmp_path)
    for batch in range(3):
        index.add(
            rows(*(row(100 * batch + i, seq=10 * batch + i) for i in range(10)), row(batch, message_id=f"mp:{batch}")),
            NOW,
        )
        index.parts._join()
    assert {kind: held for kind, (held, _, _) in index.parts.figures.items()} == {"range": 1, "point": 3}
    assert len(index.parts._folder.names()) <= 3, "the one in use, and those that a running batch may read"
    batch = rows(row(900, seq=0), row(901, seq=29), row(902, seq=30), row(903, message_id="mp:1"))
    assert index.duplicates(batch)["offset"].to_pylist() == [900, 901, 903]
    index.parts.close()


def test_points_past_the_horizon_are_forgotten_and_ranges_are_not(lake: LakeSession, tmp_path: Path) -> None:
    index, now = Index(lake, tmp_path), datetime.now(UTC)
    for days in range(12, -1, -1):
        index.add(rows(row(days, message_id=f"mp:{days}"), row(days, seq=2 * days)), now - timedelta(days=days))
    index.parts._merge(0)
    index.parts._merge(0)
    batch = rows(row(90, message_id="mp:12"), row(91, message_id="mp:2"), row(92, seq=24))
    assert index.duplicates(batch)["offset"].to_pylist() == [91, 92]
    index.parts.close()


def test_executors_find_after_a_restart_what_landed_before_it(lander: Any, record: Any) -> None:
    """With their parts, without them, and with parts of commits that are gone."""
    lander.settings = EXECUTORS
    lander.land(record(1, seq=1), record(2, message_id="mp:a"))
    lander.land(record(3, seq=1), record(4, seq=4), record(5, message_id="mp:a"))
    assert [each["message_number"] for each in lander.rows()] == [1, 1, 2, 2, 4, 4]
    (folder,) = (Path(lander.root) / "_identities").iterdir()
    for part in folder.iterdir():
        for file in part.glob("*.parquet"):
            file.write_bytes(b"torn")
    lander.land(record(6, seq=4), record(7, message_id="mp:a"))
    assert len(lander.rows()) == 6
    parts = IdentityParts(lander.lake.spark, lander.root)
    parts.load(horizon_days=8)
    assert {kind: held for kind, (held, _, _) in parts.figures.items()} == {"range": 4, "point": 2}
    assert parts._found(version=0) == [], "rows that were lost with their commits land again"
    parts.close()


def test_a_part_that_loses_rows_while_it_is_written_is_not_used(
    lake: LakeSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another stream deletes files that this one has just written."""
    index = Index(lake, tmp_path)
    index.add(rows(row(1, seq=1), row(2, message_id="mp:a")), NOW)
    counted = parts_folder._counted

    def torn(written: Any) -> tuple[int, int]:
        for file in tmp_path.glob("_identities/*/*/*.parquet"):
            file.unlink()
        return counted(written)

    with monkeypatch.context() as patch:
        patch.setattr(parts_folder, "_counted", torn)
        with pytest.raises(RetryableError, match="lost rows right after they were written: 0 of 2 are there"):
            index.parts._merge(0)
    assert list(tmp_path.glob("_identities/*/*/_whole-*")) == []
    index.parts._merge(0)
    (whole,) = tmp_path.glob("_identities/*/*/_whole-*")
    assert whole.name == "_whole-1-1"
    index.parts.close()


def test_an_error_that_does_not_come_from_damage_leaves_the_parts(
    lake: LakeSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index(lake, tmp_path)
    index.parts.add(None, [index._write(rows(row(1, seq=1)))], 0, 1, NOW)
    index.parts._merge(0)
    index.parts.close()
    (part,) = wanted = index.parts._folder.names()
    assert part.last == DeltaTable(str(tmp_path / "readings")).version()

    def busy(*_given: object) -> None:
        message = "AWSServiceIOException: Please reduce your request rate (503)"
        raise RuntimeError(message)

    parts = IdentityParts(lake.spark, str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(PartsFolder, "_count", busy)
        with pytest.raises(RuntimeError, match="reduce your request rate"):
            parts.load(horizon_days=8)
    assert parts._folder.names() == wanted
    (stray := Path(parts._folder.uri) / "notes").mkdir()
    assert parts._folder.names() == wanted, "what is not a part stays"
    assert stray.exists()


def told(lander: Any) -> list[tuple[Any, ...]]:
    names = ("reason", "offset", "message_number", "path", "got", "partial")
    return [tuple(each[name] for name in names) for each in lander.rows("dead_letters")]


def test_executors_judge_copies_and_count_them_once_though_the_batch_is_killed(
    lander: Any, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(number: int, seq: int, value: float, **more: Any) -> Any:
        return record(
            number, seq=seq, readings=[Reading("temperature", value=value), Reading("state", text="on")], **more
        )

    lander.settings = EXECUTORS
    lander.land(sent(1, 1, 21.0, payload_hash=7), sent(2, 2, 22.0))
    with killed_before("readings"):
        lander.land(
            sent(3, 1, 99.0), sent(4, 3, 23.0), sent(5, 2, 22.0), sent(6, 3, 23.0), b"poison",
            record(7, payload_hash=7, message_id="id:7", retain=True, readings=[Reading("temperature", value=21.0)]),
        )  # fmt: skip
    monkeypatch.setattr("streaming.executors.stored_rows.StoredRows.find", lambda *_args, **_more: [])
    lander.forget_checkpoint()
    lander.land(sent(8, 8, 28.0))
    assert [each["message_number"] for each in lander.rows()] == [1, 1, 2, 2, 4, 4, 8, 8]
    assert told(lander) == [
        ("conflicting_duplicate", 2, 3, "$.readings[0]", "temperature = 99", False),
        ("spark_corrupt_record", 6, None, None, None, False),
    ]
    noted = [
        (each["offset"], each["message_number"], each["readings_dropped"], each["whole"])
        for each in lander.rows("duplicates")
    ]
    assert noted == [(2, 3, 2, True), (4, 5, 2, True), (5, 6, 2, True), (7, 7, 1, True)]
    lander.land(sent(9, 8, 1.0))
    assert [each[:3] for each in told(lander)[2:]] == [("unchecked_duplicate", 9, 9)]


@pytest.mark.chaos
def test_a_note_of_a_former_topic_of_this_name_drops_nothing(lander: Any, record: Any) -> None:
    lander.settings = EXECUTORS
    lander.land(record(1, seq=1))
    with killed_before("readings"):
        lander.land(record(2, seq=1), record(3, seq=3))
    (note,) = lander.rows("duplicates")
    former = note | {"offset": 2, "received_at": note["received_at"] - timedelta(days=1)}
    duplicates = f"{lander.root}/duplicates"
    write_deltalake(
        duplicates, pa.Table.from_pylist([former], DeltaTable(duplicates).to_pyarrow_table().schema), mode="append"
    )
    lander.forget_checkpoint()
    lander.land(record(4, seq=4))
    assert [each["message_number"] for each in lander.rows()] == [1, 1, 3, 3, 4, 4]


@pytest.mark.chaos
def test_a_part_that_lost_a_file_is_not_used(lander: Any, record: Any) -> None:
    lander.settings = EXECUTORS
    lander.land(record(1, seq=1), record(2, message_id="mp:a"))
    lander.land(record(3, seq=3))
    (folder,) = (Path(lander.root) / "_identities").iterdir()
    lost = [file for part in folder.iterdir() for file in part.glob("*.parquet")]
    for file in lost:
        file.unlink()
    lander.land(record(4, seq=1), record(5, message_id="mp:a"))
    assert lost
    assert [each["message_number"] for each in lander.rows()] == [1, 1, 2, 2, 3, 3]


@pytest.mark.chaos
def test_copies_of_the_newest_rows_are_compared_without_time_for_look_ups(
    lander: Any, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lander.settings = EXECUTORS
    monkeypatch.setattr("streaming.lookups.LOOKUP_BURST_SECONDS", 0.0)
    lander.land(record(1, seq=1), record(2, seq=2))
    lander.land(record(1, seq=1), record(3, seq=2, readings=[Reading("temperature", value=99.0)]))
    assert [each["reason"] for each in lander.rows("dead_letters")] == ["conflicting_duplicate"]


def cases(count: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Stored rows, and copies of them (and of some that are not there), which differ in each way that there is."""
    chance = random.Random(7)

    def made(number: int, offset: int) -> dict[str, Any]:
        kind = ("bs:1:{}", "fm:{}", "tg:{}", "rx:{}")[number % 4].format(number)
        known = {"device": f"d{number % 5}", "metric": "t", "index": 0, "partition": 0, "message_id": kind}
        return known | {
            "value": chance.choice([20.0, 20.0, 21.5, None]), "text": chance.choice([None, None, "on"]),
            "unit": chance.choice(["C", "C", None]), "device_time": chance.choice([NOW, None, None]), "event_time": NOW,
            "flags": chance.choice([[], [], ["corrected"], ["relative_time"], ["may_have_waited"], ["retained"]]),
            "payload_hash": chance.choice([None, 1, 1, 2]), "gateway": chance.choice(["g", "g", "h"]), "gateway_epoch": 1,
            "message_number": offset, "received_at": NOW + timedelta(minutes=chance.choice([0, 9, 11, 60 * 50])),
            "offset": offset,
        }  # fmt: skip

    stored = [made(number, number) for number in range(count)]
    return stored, [made(number, 1000 + number // 2) for number in range(count + 10)]


def test_executors_judge_as_the_driver_does(lake: LakeSession) -> None:
    stored, copies = cases(400)
    contents = DuplicateComparator()
    contents.remember(pa.Table.from_pylist(stored, schema=COMPARED).select(COMPARED_COLUMNS))
    batch = pa.Table.from_pylist(copies, schema=COMPARED).select(COMPARED_COLUMNS)
    places = [
        {"row": place + 1, "partition": 0, "offset": each["offset"], "position": place % 2, "replayed": False}
        for place, each in enumerate(copies)
    ]
    wanted, unchecked = contents.conflicts(batch, pa.Table.from_pylist(places, schema=COPIES))
    positions = pa.array([place["position"] for place in places], pa.int32())
    marked = batch.append_column("position", positions).append_column("partial", pa.array([False] * len(copies)))
    judged = judge_copies(
        lake.spark.createDataFrame(marked), lake.spark.createDataFrame(pa.Table.from_pylist(stored, schema=COMPARED))
    ).persist()
    found = [each.asDict() for each in refused_records(judged).sort("partition", "offset").collect()]
    assert found == wanted
    assert judged.where("reason = 'unchecked_duplicate'").count() == unchecked
    assert {each["reason"] for each in found} == {"conflicting_duplicate", "unchecked_duplicate"}
    judged.unpersist()
