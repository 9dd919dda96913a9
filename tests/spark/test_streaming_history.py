"""Corrections on real tables: each kind, once, beside what lands, in order, and back in time."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry
from pyarrow.parquet import read_schema, read_table

from ingest.contract.errors import TidegateError
from ingest.kafka_settings import KafkaSettings
from lakehouse.append import Append, Appender
from lakehouse.catalog import open_table
from lakehouse.changes import table_files
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.lake_settings import LakeSettings
from lakehouse.requests import Request
from lakehouse.tables import READINGS, spark_ddl
from monitoring.metrics.stream import StreamMetrics
from streaming.history import correct as correct_module
from streaming.history.correct import correct
from streaming.history.journal import CorrectionJournal
from streaming.history.plan_correction import plan_correction
from streaming.history.row_correction import RowCorrection
from streaming.history.selection import RowSelection
from streaming.kafka_source import LandedTopics
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

DAY = datetime(2026, 5, 1, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return DAY + timedelta(minutes=minutes)


@dataclass
class History:
    """Tables with rows that a test appends as the landing does: one file for each call."""

    writer: WriterContext
    offset: int = 0

    @property
    def root(self) -> str:
        return self.writer.root

    def append(self, *rows: dict[str, Any]) -> None:
        names = [column.name for column in READINGS.columns]
        full = [self._row(row) for row in rows]
        frame = self.writer.spark.createDataFrame(
            [tuple(row[name] for name in names) for row in full], spark_ddl(READINGS)
        )
        with Appender(self.writer.spark, self.root, READINGS).begin() as append:
            append.write(frame.coalesce(1))
            append.commit("{}")

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        self.offset += 1
        moment = row.get("event_time", DAY)
        empty: dict[str, Any] = {column.name: None for column in READINGS.columns}
        fixed = {
            "device": "d1", "metric": "t", "value": 1.0, "unit": "°F", "event_time": moment, "time_source": "device",
            "received_at": moment, "kafka_time": moment, "landed_at": moment, "index": 0, "partition": 0,
            "offset": self.offset, "date": moment.date(), "flags": [],
        }  # fmt: skip
        return {**empty, **fixed, **row}

    def rows(self, version: int | None = None) -> list[dict[str, Any]]:
        """In the order of the table's files and of the rows in them."""
        table = open_table(self.root, "readings", version=version)
        return sorted(pa.table(table.to_pyarrow_table()).to_pylist(), key=lambda row: row["offset"])

    def values(self, **where: Any) -> list[float | None]:
        return [row["value"] for row in self.rows() if all(row[key] == value for key, value in where.items())]

    def version(self) -> int:
        return DeltaTable(f"{self.root}/readings").version()


@pytest.fixture
def history(lake: Any, tmp_path: Path) -> History:
    root = str(tmp_path / "the tables")
    ensure_tables(root, ALL_TABLES.values(), log_retention_hours=24)
    metrics = StreamMetrics(CollectorRegistry(), query="land", tables=ALL_TABLES, topics=())
    settings = StreamSettings(checkpoint=str(tmp_path / "checkpoint"))
    made = WriterContext(lake.spark, KafkaSettings(), settings, LakeSettings(root=root), metrics, LandedTopics())
    return History(made)


def ask(device: str = "d1", **arguments: Any) -> Request:
    return Request("correct", {"device": device, **arguments}, author="ada", reason="the sensor lied")


def test_each_kind_changes_what_is_meant_and_nothing_else(history: History) -> None:
    history.append(
        {"value": 98.6, "event_time": at(1)},
        {"device": "d2", "value": 5.0, "event_time": at(1)},
        {"metric": "on", "value": 1.0, "text": "true", "unit": None, "event_time": at(1)},
        {"metric": "label", "value": None, "text": "abc", "unit": None, "event_time": at(1)},
        {"value": 2.0**53, "text": "9007199254740993", "flags": ["beyond_double"], "event_time": at(2)},
    )
    history.append(
        {"value": 212.0, "event_time": at(3)}, {"value": 50.0, "event_time": at(10)}, {"device": "d2", "value": 6.0}
    )
    history.append({"value": 32.0, "event_time": at(24 * 60)}, {"device": "d2", "event_time": at(24 * 60)})
    history.append({"device": "d2", "value": 7.0})
    files = {file.path for file in matched_files(history)}
    before = history.rows()
    conversions = {"°F": [5.0, 9.0, -32 * 5 / 9]}
    span = {"from": at(0).isoformat(), "to": at(3.5).isoformat()}
    told = correct(history.writer, ask(metric="t", unit="°C", conversions=conversions, **span))
    assert (told["rows"], told["files"], told["untouched"]) == (3, 2, 0)
    assert told["before"] == {"min": 98.6, "max": 2.0**53}
    after = history.rows()
    assert [row["value"] for row in after if row["unit"] == "°C"][::2] == [37.0, 100.0]
    big = after[4]
    assert (big["text"], big["flags"]) == (None, ["corrected"])
    for old, new in zip(before, after, strict=True):
        changed = {"value", "text", "unit", "flags"} if new["unit"] == "°C" else set()
        assert {k: v for k, v in old.items() if k not in changed} == {k: v for k, v in new.items() if k not in changed}
    assert len({file.path for file in matched_files(history)} & files) == 2, "files without such rows are left alone"
    assert history.rows(told["before_version"]) == before

    factor = correct(history.writer, ask(factor=2.0, **{"from": at(0).isoformat(), "to": at(2).isoformat()}))
    assert (factor["rows"], factor["untouched"]) == (1, 2), "text and booleans are no numbers to scale"
    assert history.values(metric="on") == [1.0]
    correct(history.writer, ask(metric="t", offset=-0.5, **{"from": at(3).isoformat(), "to": at(4).isoformat()}))
    assert history.values(metric="t", device="d1") == [74.0, 2.0**53 * 5 / 9 - 32 * 5 / 9, 99.5, 50.0, 32.0]
    correct(history.writer, ask(metric="label", unit="word"))
    renamed = next(row for row in history.rows() if row["metric"] == "label")
    assert (renamed["unit"], renamed["text"], renamed["flags"]) == ("word", "abc", ["corrected"])
    deleted = correct(history.writer, ask(delete=True, **{"from": at(5).isoformat()}))
    assert (deleted["rows"], deleted["after"]) == (2, {"min": None, "max": None})
    left = history.rows()
    assert [row["offset"] for row in left] == [1, 2, 3, 4, 5, 6, 8, 10, 11]
    assert [row["flags"] for row in left if row["device"] == "d2"] == [[]] * 4
    assert {entry["author"] for entry in CorrectionJournal(history.root).entries() if entry["state"] == "done"} == {
        "ada"
    }


def matched_files(history: History) -> list[Any]:
    return table_files(history.root, "readings")


def test_rows_keep_their_order_and_small_files_are_joined_in_the_order_of_arrival(history: History) -> None:
    for start in (0, 3, 6):
        history.append(
            *({"value": float(n), "event_time": at(60 - n), "landed_at": at(start)} for n in range(start, start + 3))
        )
    landed = read_schema(matched_files(history)[0].at(f"{history.root}/readings"))
    correct(history.writer, ask(offset=100.0))
    (file,) = matched_files(history)
    assert file.partition == {"date": "2026-05-01"}
    table = read_table(file.at(f"{history.root}/readings"), partitioning=None)
    assert table["value"].to_pylist() == [100.0 + n for n in range(9)]
    assert table.schema.remove_metadata().equals(landed.remove_metadata())


def test_a_request_is_applied_once_wherever_the_writer_was_killed(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.append({"value": 1.0}, {"value": 2.0, "device": "d2"})
    request = ask(factor=10.0)
    with monkeypatch.context() as killed:
        killed.setattr(correct_module, "rewrite_files", crash)
        with pytest.raises(RuntimeError):
            correct(history.writer, request)
    assert history.values() == [1.0, 2.0]
    with monkeypatch.context() as killed:
        killed.setattr(correct_module, "_finish", crash)
        with pytest.raises(RuntimeError):
            correct(history.writer, request)
    assert history.values() == [10.0, 2.0]
    history.append({"value": 3.0})
    history.append({"value": 4.0, "device": "d2"})
    version = history.version()
    told = correct(history.writer, request)
    again = correct(history.writer, request)
    assert history.values() == [10.0, 2.0, 3.0, 4.0]
    assert (told["rows"], told["version"], again["version"], history.version()) == (1, 2, 2, version)
    assert again["again"] is True
    metadata = json.loads(open_table(history.root, "readings").history()[2]["userMetadata"])
    assert metadata["request"]["reason"] == "the sensor lied"
    assert "app" not in metadata, "the landing would take it for its own mark"


def crash(*_arguments: object, **_more: object) -> None:
    message = "killed here"
    raise RuntimeError(message)


def test_what_lands_between_write_and_commit_stays_as_it_came(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.append({"value": 1.0})
    replace = Append.replace

    def land_meanwhile(self: Append, files: Any) -> None:
        monkeypatch.setattr(Append, "replace", replace)
        history.append({"value": 5.0}, {"device": "d2", "value": 6.0})
        replace(self, files)

    monkeypatch.setattr(Append, "replace", land_meanwhile)
    told = correct(history.writer, ask(factor=3.0))
    assert history.values() == [3.0, 5.0, 6.0]
    assert (told["version"], history.version(), told["rows"]) == (3, 3, 1)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"device": "d11", "factor": 2.0}, "Did you mean d1"),
    ({"factor": 2.0, "metric": "temp"}, "has no metric temp; it has"),
    ({"factor": 2.0, "from": at(9).isoformat(), "to": at(9).isoformat()}, "--from must be before --to"),
    (
        {"factor": 2.0, "from": at(900).isoformat()},
        "has no rows in that range; nothing was changed. Its rows have event_time",
    ),
    ({"factor": 0.0}, "A factor of 0"),
    ({"factor": float("nan")}, "is not a finite number"),
    ({"factor": 1.0}, "changes nothing"),
    ({"offset": 0.0}, "changes nothing"),
    ({"factor": 1e308}, "would become"),
    ({}, "exactly one"),
    ({"delete": True, "offset": 1.0}, "exactly one"),
    ({"unit": " "}, "The unit is empty"),
    ({"unit": "°F", "metric": "t"}, "already have the unit °F"),
    (
        {"unit": "bar", "conversions": {"hPa": [1.0, 1000.0, 0.0]}, "metric": "t"},
        "have '°F', which cannot be converted",
    ),
    ({"factor": 2.0, "metric": "on"}, "hold text or true and false, not numbers"),
]


def test_what_cannot_be_meant_is_refused_in_a_sentence(history: History) -> None:
    history.append({"value": 10.0}, {"metric": "on", "value": 1.0, "text": "true"})
    for arguments, words in REFUSED:
        with pytest.raises(TidegateError, match=words):
            correct(history.writer, ask(**arguments))
    assert history.version() == 1
    assert CorrectionJournal(history.root).entries() == []


def test_a_dry_run_says_what_the_correction_then_does(history: History) -> None:
    history.append({"value": 10.0, "event_time": at(1)}, {"value": 30.0, "event_time": at(2)}, {"device": "d2"})
    selection, change = RowSelection("d1", since=at(0), until=at(5)), RowCorrection(factor=0.5)
    planned = plan_correction(history.root, selection, change).as_dict()
    assert history.version() == 1
    assert not (Path(history.root) / "_corrections.jsonl").exists()
    told = correct(history.writer, ask(**selection.arguments() | change.arguments()))
    assert planned.items() <= told.items()
    assert (planned["before"], planned["after"]) == ({"min": 10.0, "max": 30.0}, {"min": 5.0, "max": 15.0})
    assert planned["example"]["after"]["flags"] == ["corrected"]
    assert history.values(device="d1") == [5.0, 15.0]
