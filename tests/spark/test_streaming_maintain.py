"""Maintenance beside a landing that goes on: every row stays where it was to those who read, once and in order."""

import json
import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from prometheus_client import CollectorRegistry

from deploy.bench.day import write_day
from ingest.contract.errors import FatalError, TidegateError
from ingest.kafka_settings import KafkaSettings
from lakehouse import maintenance
from lakehouse.append import Append, Appender
from lakehouse.changes import read_changes
from lakehouse.clock import DeletionClock
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.lake_settings import LakeSettings
from lakehouse.maintenance_log import adopt_checkpoint, last_checkpoint, write_checkpoint
from lakehouse.requests import Request
from lakehouse.table_follower import TableFollower
from lakehouse.tables import READINGS
from monitoring.metrics.stream import StreamMetrics
from streaming.background_tasks import handle_request
from streaming.kafka_source import LandedTopics
from streaming.maintain.table_maintainer import TableMaintainer
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

pytestmark = pytest.mark.promise("P9")


@pytest.fixture
def tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four files are many."""
    monkeypatch.setattr(maintenance, "TIERS", ((256 * 1024, 4), (2 * 1024**2, 8)))


@pytest.fixture
def writer(lake: Any) -> Callable[..., WriterContext]:
    def make(root: str, **settings: Any) -> WriterContext:
        metrics = StreamMetrics(CollectorRegistry(), query="land", tables=ALL_TABLES, topics=("a", "b"))
        lake_settings = LakeSettings(root=root, **settings)
        return WriterContext(lake.spark, KafkaSettings(), StreamSettings(), lake_settings, metrics, LandedTopics())

    return make


def rows(root: str) -> list[dict[str, Any]]:
    return pa.table(DeltaTable(f"{root}/readings").to_pyarrow_table()).to_pylist()


def history(root: str) -> list[dict[str, Any]]:
    return list(DeltaTable(f"{root}/readings").history())


def version(root: str) -> int:
    return int(DeltaTable(f"{root}/readings").version())


def test_files_are_joined_while_rows_land_and_nobody_sees_a_row_twice(
    lander: Any, record: Any, writer: Any, tiers: None, wait_until: Any
) -> None:
    started = lander.start()
    keeper, stop, failures = TableMaintainer(writer(lander.root)), threading.Event(), []

    def keep() -> None:
        while not stop.wait(0.05):
            try:
                keeper.run_pass()
            except Exception as error:
                failures.append(error)

    follower = TableFollower(lander.root, "readings", columns=("message_number",), from_start=True)
    keeping = threading.Thread(target=keep)
    keeping.start()
    try:
        for number in range(12):
            before = version(lander.root)
            lander.send(record(number, device=f"d{number % 3}"))
            wait_until(lambda before=before: version(lander.root) > before, what="the batch")
        wait_until(lambda: len(rows(lander.root)) == 24, what="all rows")
        wait_until(lambda: any("joined" in (c.get("userMetadata") or "") for c in history(lander.root)), what="a join")
    finally:
        stop.set()
        keeping.join()
        started.landing.stop()
        started.query.stop()
        started.landing.close()
    assert failures == []
    found = rows(lander.root)
    assert sorted((r["message_number"], r["metric"]) for r in found) == sorted(
        (n, m) for n in range(12) for m in ("temperature", "state")
    )
    followed = [
        n for commit in follower.poll() if commit.rows.num_rows for n in commit.rows["message_number"].to_pylist()
    ]
    assert sorted(followed) == sorted(2 * list(range(12)))
    state = maintenance.table_state(lander.root, "readings")
    assert state.file_count < 12
    for path in state.files["path"].to_pylist():
        written = pq.ParquetFile(f"{lander.root}/readings/{path}").read().to_pylist()
        order = [(row["device"], row["partition"], row["offset"], row["metric"] != "temperature") for row in written]
        assert order == sorted(order)
    # The landing finds its mark behind the joins.
    lander.land(record(12))
    assert len(rows(lander.root)) == 26


@pytest.fixture
def day(tmp_path: Path, wait_until: Callable[..., Any]) -> Callable[[], str]:
    """A table with eight commits of today, the last of them now."""

    def make() -> str:
        root = str(tmp_path / "the tables")
        # Around midnight the eight would be of two days, or of another day than the one that retention counts from.
        wait_until(
            lambda: time(0, 1) <= datetime.now(UTC).time() < time(23, 58), seconds=200, what="the middle of a day"
        )
        write_day(root, commits=8, rows_per_commit=3, devices=2)
        return root

    return make


def test_a_join_that_fails_before_its_commit_leaves_nothing(
    day: Any, writer: Any, tiers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = day()
    before, files = version(root), sorted(Path(root).rglob("*.parquet"))

    def fail(self: Append, text: str, *, data_change: bool = True) -> int:
        message = "killed here"
        raise OSError(message)

    with monkeypatch.context() as patched:
        patched.setattr(Append, "commit", fail)
        with pytest.raises(OSError, match="killed here"):
            TableMaintainer(writer(root)).run_pass()
    assert version(root) == before
    assert sorted(Path(root).rglob("*.parquet")) == files

    with monkeypatch.context() as patched:
        patched.setattr(Append, "row_count", property(lambda self: 5))
        with pytest.raises(TidegateError, match=r"8 files of readings .* hold 24 rows, but 5 were read"):
            TableMaintainer(writer(root)).run_pass()
    assert version(root) == before


def test_a_table_is_kept_once_and_left_alone_while_nobody_writes(
    day: Any, writer: Any, tiers: None, lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = day()
    made = writer(root)
    keeper, stored = TableMaintainer(made), sorted(rows(root), key=lambda r: r["offset"])
    keeper.run_pass()
    assert maintenance.table_state(root, "readings").file_count == 1
    assert sorted(rows(root), key=lambda r: r["offset"]) == stored
    assert [c.added for c in read_changes(root, "readings", after=8)] == [()]
    assert made.metrics.table_files.labels("readings")._value.get() == 1
    assert made.metrics.table_small_files.labels("readings")._value.get() == 1

    kept = version(root)
    with monkeypatch.context() as patched:
        patched.setattr(
            "streaming.maintain.table_maintainer.table_state", lambda *_: pytest.fail("looked at an idle table")
        )
        keeper.run_pass()
    assert version(root) == kept

    # Every appender of a process has the same idea of the newest version, however long ago the last one was made.
    retention = lake.spark._jvm.org.apache.spark.sql.delta.sources.DeltaSQLConf.DELTA_LOG_CACHE_RETENTION_MINUTES()
    assert int(lake.spark.conf.get(retention.key())) > 10**6

    # A checkpoint that this JVM did not write: before the log is cleaned it takes it as its own beginning.
    answer = handle_request(made, Request("maintain", {"table": "readings", "full": True}))
    assert [table["checkpoint"] for table in answer["tables"]] == [kept]
    assert last_checkpoint(root, "readings") == kept
    appender = Appender(lake.spark, root, READINGS)
    with appender.begin() as append:
        append.write(lake.spark.read.format("delta").load(f"{root}/readings").limit(1))
        assert append.commit("{}") == kept + 1
    assert appender.held_commits() == 1
    adopt_checkpoint(appender, kept)
    assert appender.held_commits() == 1
    with appender.begin() as append:
        append.write(lake.spark.read.format("delta").load(f"{root}/readings").limit(1))
        assert append.commit("{}") == kept + 2
    assert len(rows(root)) == 26
    adopt_checkpoint(appender, write_checkpoint(root, "readings"))
    adopt_checkpoint(appender, kept + 2)
    assert appender.held_commits() == 0


def test_a_table_that_no_time_was_left_for_is_overdue_and_comes_next(
    day: Any, writer: Any, tiers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = day()
    made = writer(root)
    keeper = TableMaintainer(made)

    def maintained_at() -> float:
        return float(made.metrics.table_maintained.labels("readings")._value.get())

    with monkeypatch.context() as patched:
        patched.setattr("streaming.maintain.table_maintainer.PASS_SECONDS", -1.0)
        keeper.run_pass()
        begun = maintained_at()
        keeper.run_pass()
    assert begun > 0, "the clock runs from the first pass on, also where none ends in time"
    assert maintained_at() == begun
    assert maintenance.table_state(root, "readings").file_count == 8
    # Nobody committed meanwhile.
    keeper.run_pass()
    assert maintained_at() > begun
    assert maintenance.table_state(root, "readings").file_count == 1


def test_a_table_to_which_nothing_is_due_is_kept_also_without_time(
    day: Any, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = writer(day())
    keeper = TableMaintainer(made)
    keeper.run_pass()
    begun = made.metrics.table_maintained.labels("readings")._value.get()
    monkeypatch.setattr("streaming.maintain.table_maintainer.PASS_SECONDS", -1.0)
    keeper.run_pass()
    assert made.metrics.table_maintained.labels("readings")._value.get() > begun


def days_of(root: str, ages: range) -> None:
    """The rows of the table once more for each of these ages in days."""
    stored = pa.table(DeltaTable(f"{root}/readings").to_pyarrow_table())
    for age in ages:
        moved = stored
        for name in ("landed_at", "received_at", "date"):
            kind = stored.schema.field(name).type
            values = [value - timedelta(days=age) for value in stored[name].to_pylist()]
            moved = moved.set_column(moved.schema.get_field_index(name), name, pa.array(values, kind))
        write_deltalake(f"{root}/readings", moved, mode="append")


def test_days_past_their_retention_go_in_one_commit_and_many_at_once_wait(day: Any, writer: Any) -> None:
    root = day()
    days_of(root, range(1, 10))

    def maintain(made: WriterContext, **arguments: Any) -> dict[str, Any]:
        (kept,) = handle_request(made, Request("maintain", arguments))["tables"]
        return dict(kept)

    assert len(maintain(writer(root, readings_days=8), dry_run=True)["dropped_days"]) == 1
    assert len(rows(root)) == 240
    assert maintain(writer(root, readings_days=0), full=True)["dropped_days"] == []
    assert len(maintain(writer(root, readings_days=8))["dropped_days"]) == 1
    (last,) = (c for c in read_changes(root, "readings", after=version(root) - 2) if c.removed)
    assert json.loads(last.user_metadata or "")["retention"]["keep_days"] == 8
    assert len(rows(root)) == 216

    made = writer(root, readings_days=4)
    kept = maintain(made)
    assert (kept["dropped_days"], len(kept["waiting_days"])) == ([], 4)
    assert made.metrics.retention_waiting.labels("readings")._value.get() == 4
    # A clock a year ahead: the newest rows do not confirm it, and old files and log stay as well.
    ahead = DeletionClock(lambda: datetime.now(UTC).timestamp() + 365 * 86_400, lambda: 0.0)
    files = sorted(path.name for path in Path(root).rglob("*") if path.is_file())
    passed = TableMaintainer(made, clock=ahead).run_all("readings", full=False)
    assert (passed.dropped_days, len(passed.waiting_days)) == ([], 5)
    assert set(files) <= {path.name for path in Path(root).rglob("*") if path.is_file()}

    assert len(maintain(made, drop_days=True)["dropped_days"]) == 4
    assert len(rows(root)) == 120
    # A clock that is back: nothing goes, and the operator is told.
    behind = TableMaintainer(made, clock=DeletionClock(lambda: 86_400.0, lambda: 0.0))
    assert behind.run_all("readings", full=False).dropped_days == []
    assert made.metrics.clock_behind._value.get() > 86_400


def test_what_would_harm_is_refused_in_a_sentence(day: Any, writer: Any) -> None:
    made = writer(day())
    with pytest.raises(FatalError, match="A vacuum that keeps 0 hours would delete files"):
        handle_request(made, Request("maintain", {"keep_hours": 0}))
    with pytest.raises(TidegateError, match=r"no table reading\. Name one of readings"):
        handle_request(made, Request("maintain", {"table": "reading"}))


def test_a_stream_table_that_was_dropped_and_made_anew_is_another_table(
    writer: Any, tiers: None, tmp_path: Path
) -> None:
    root, path = str(tmp_path), tmp_path / "hot"
    keeper = TableMaintainer(writer(root))

    def write(columns: dict[str, list[Any]], times: int) -> None:
        for _ in range(times):
            write_deltalake(str(path), pa.table(columns), mode="append")

    write({"device": ["a"]}, 9)
    keeper.run_pass()
    first = DeltaTable(str(path)).version()
    assert first == 9, "the nine were joined"
    shutil.rmtree(path)
    write({"device": ["b"], "value": [1.0]}, 5)
    keeper.run_pass()
    made = DeltaTable(str(path))
    assert made.version() == 5, "joined in the new table's own log, without a gap"
    assert pa.table(made.to_pyarrow_table()).to_pydict() == {"device": ["b"] * 5, "value": [1.0] * 5}
