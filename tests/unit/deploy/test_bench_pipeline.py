"""Cells of a whole pipeline, and of benchmarks that start their own parts: what they measure, without any server."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench import table_rows
from deploy.bench.e2e import LandingTimes, RowCount, schedule_delay_figures
from deploy.bench.load_publisher import LoadPlan, timed_payload
from deploy.bench.suite import pipeline_bed
from deploy.bench.suite.cell_beds import CellBed
from deploy.bench.suite.library import load_scenario, names_by_length
from deploy.bench.suite.own_parts import own_bed, own_cell, soak_figures
from deploy.bench.suite.parts_cost import PartsSample, PartsWatch, RunParts, busy_text, cost_figures
from deploy.bench.suite.pipeline_bed import RunningPipeline, pipeline_cell
from deploy.bench.suite.progress import SuiteProgress
from deploy.bench.suite.scenario import Parameters, Scenario, ScenarioTarget
from deploy.bench.suite.scenario_run import ScenarioPlan, run_plan
from deploy.settings import Settings
from ingest.contract.errors import FatalError
from ingest.kafka_settings import KafkaSettings
from lakehouse.create import create_table
from lakehouse.maintenance import SMALL_BYTES, newest_landed, table_state
from lakehouse.query import run_sql
from lakehouse.table_follower import FollowedCommit, TableFollower
from lakehouse.tables import READINGS


def test_a_commit_without_rows_changes_no_count() -> None:
    count = RowCount(boot=7)
    none = pa.table({"boot": pa.nulls(0)})
    for rows in (none, pa.table({"boot": [7, 8, 7]}), none):
        count.add(FollowedCommit(1, 0.0, 0.0, rows))
    assert count.rows == 2


@given(delay=st.floats(0.05, 2), rate=st.sampled_from([10.0, 1000.0]), count=st.integers(20, 200))
def test_a_pipeline_that_keeps_up_has_the_backlog_of_its_delay(delay: float, rate: float, count: int) -> None:
    due = [1e9 + number / rate for number in range(count)]
    found = schedule_delay_figures(due, [at + delay for at in due])
    assert found["backlog_at_end"] == pytest.approx(min(count, delay * rate), abs=1.01)
    assert found["drain_seconds"] == pytest.approx(delay, abs=0.002)
    assert found["delay_growth_ms_per_second"] == pytest.approx(0, abs=0.02)


def test_above_capacity_the_backlog_and_the_delay_grow() -> None:
    due = [number / 1000 for number in range(10_000)]
    found = schedule_delay_figures(due, [number / 400 for number in range(10_000)])
    assert found["messages_per_second"] == pytest.approx(400, rel=0.01)
    assert found["backlog_at_end"] == pytest.approx(6000, abs=5)
    assert found["drain_seconds"] == pytest.approx(15, abs=0.1)
    assert found["delay_growth_ms_per_second"] == pytest.approx(1500, rel=0.01)


def test_the_backlog_of_a_warm_up_counts_as_carried() -> None:
    due = [number / 1000 for number in range(10_000)]
    seen = [number / 400 for number in range(10_000)]
    whole = schedule_delay_figures(due[2000:], list(seen[2000:]), earlier=seen[:2000])
    assert whole["messages_per_second"] == pytest.approx(400, rel=0.01)
    assert whole["backlog_at_end"] == pytest.approx(6000, abs=5)


def test_a_message_is_a_row_when_all_its_readings_are() -> None:
    def commit(at: float, *rows: tuple[str, int]) -> FollowedCommit:
        columns = {"device": [device for device, _ in rows], "boot": [7] * len(rows), "seq": [seq for _, seq in rows]}
        return FollowedCommit(version=1, committed_at=at - 1, seen_at=at, rows=pa.table(columns))

    landing = LandingTimes(boot=7, readings=2)
    for one in (commit(5.0, ("a", 1), ("b", 1), ("b", 1)), commit(6.0, ("c", 1)), commit(8.0, ("c", 1), ("c", 1))):
        landing.add(one)
    assert landing.seen_at == {("b", 1): 5.0, ("c", 1): 8.0}, "a reading of a is missing"
    assert landing.committed_at == {("b", 1): 4.0, ("c", 1): 7.0}


def test_messages_that_never_came_are_a_backlog_and_no_delay() -> None:
    assert schedule_delay_figures([1.0, 2.0], [None, None]) == {}
    found = schedule_delay_figures([1.0, 2.0, 3.0], [1.5, None, 3.5])
    assert (found["backlog_at_end"], found["drain_seconds"]) == (2, 0.5)
    assert "messages_per_second" not in schedule_delay_figures([1.0], [1.0])


def test_cost_counts_from_the_beginning_of_the_load() -> None:
    looks = [
        PartsSample(10.0, {"gateway": 1.0, "stream": 5.0}, {"gateway": 50.0, "stream": 900.0}),
        PartsSample(12.0, {"gateway": 2.0, "stream": 7.0}, {"gateway": 80.0, "stream": 800.0}),
        PartsSample(20.0, {"gateway": 4.0, "stream": 17.0}, {"gateway": 60.0, "stream": 700.0}),
    ]
    found = cost_figures(looks, begin_at=13.0, messages=1_000_000, readings=4)
    assert found == {
        "cpu_us_per_message_gateway": 2.0, "cpu_us_per_message_stream": 10.0,
        "cpu_seconds_per_million_gateway": 0.5, "cpu_seconds_per_million_stream": 2.5, "cpu_seconds_per_million": 3.0,
        "peak_rss_mb_gateway": 80.0, "peak_rss_mb_stream": 900.0, "peak_rss_mb": 950.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "last", [{"gateway": 4.0, "stream": 1.0}, {"gateway": 4.0}, {"gateway": 4.0, "stream": 8.0, "new": 1.0}]
)
def test_a_part_that_started_again_has_no_cost_rather_than_none(last: dict[str, float]) -> None:
    looks = [
        PartsSample(1.0, {"gateway": 2.0, "stream": 7.0}, {"gateway": 1.0}),
        PartsSample(2.0, last, {"gateway": 2.0}),
    ]
    found = cost_figures(looks, begin_at=1.0, messages=1_000_000, readings=1)
    assert found["cpu_us_per_message_gateway"] == 2
    assert ("cpu_us_per_message_stream" in found) == (last.get("stream", 0) > 7)
    assert "cpu_seconds_per_million" not in found and "cpu_us_per_message_new" not in found


def test_the_busiest_part_is_named_where_the_parts_fill_the_processors() -> None:
    looks = [
        PartsSample(0.0, {"gateway": 0.0, "stream": 0.0}, {}),
        PartsSample(10.0, {"gateway": 3.0, "stream": 12.0}, {}),
    ]
    assert busy_text(looks, begin_at=0.0, cores=2) == (
        "the parts used 1.5 of 2 cores, stream 1.2; publisher and reader used the rest"
    )
    assert busy_text(looks, begin_at=0.0, cores=8) == ""


def test_a_process_that_ended_still_counts_with_its_part() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    code = (
        "import subprocess, sys; print(0, flush=True); sys.stdin.readline(); "
        f"subprocess.run([sys.executable, '-c', {burn!r}]); print(1, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as part:
        assert part.stdin is not None and part.stdout is not None
        # Between its fork and its exec a process has next to no memory.
        assert part.stdout.readline() == b"0\n"
        with PartsWatch({"monitor": part.pid}).running() as watch:
            part.stdin.write(b"\n")
            part.stdin.flush()
            assert part.stdout.readline() == b"1\n"
        part.stdin.close()
    assert watch.looks[-1].cpu_seconds["monitor"] - watch.looks[0].cpu_seconds["monitor"] >= 0.29
    assert watch.looks[0].rss_mb["monitor"] > 1


def test_a_message_carries_as_many_readings_as_the_plan_says() -> None:
    base: dict[str, Any] = {"host": "", "port": 1, "username": "", "password": "", "messages": 9, "rate": 1.0}
    _, one = timed_payload(LoadPlan(**base, begin_at=5.0))(0, 1)
    _, four = timed_payload(LoadPlan(**base, begin_at=5.0, readings=4))(0, 1)
    assert list(json.loads(one)["values"]) == ["temperature"]
    assert list(json.loads(four)["values"]) == ["temperature", "metric_2", "metric_3", "metric_4"]


class Course:
    """A pipeline that only notes what would be done to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.through = 1.0
        self.count: Any = None
        monkeypatch.setattr(pipeline_bed, "own_run", self._own_run)
        monkeypatch.setattr(pipeline_bed, "measure_e2e", lambda *_, **__: None)
        monkeypatch.setattr(pipeline_bed, "grow_table", self._grow)
        monkeypatch.setattr(pipeline_bed, "publish", self._publish)
        monkeypatch.setattr(pipeline_bed, "follow_rows", self._following)
        monkeypatch.setattr(pipeline_bed, "TableFollower", lambda *_, **__: None)
        monkeypatch.setattr(pipeline_bed, "GIVE_UP_SECONDS", 0.3)

    @contextmanager
    def _own_run(self, folder: Path, *, port_offset: int, config: Path) -> Iterator[Settings]:
        self.done.append(f"start {config.read_text().split()[-1]}")
        yield Settings()
        assert folder.exists()
        self.done.append("stop")

    def _following(self, _follower: None, count: Any) -> Any:
        self.count = count
        return nullcontext()

    def _grow(self, root: str, rows: int, *, after: int) -> None:
        self.done.append(f"grow {after} by {rows}")

    def _publish(self, plan: LoadPlan) -> None:
        self.done.append(f"introduce {plan.devices} of {plan.messages}")
        self.count.rows = int(plan.messages * self.through)


def test_a_pipeline_starts_again_only_where_a_cell_wants_another(monkeypatch: pytest.MonkeyPatch) -> None:
    course, running = Course(monkeypatch), RunningPipeline()
    work = Parameters(kind="pipeline", partitions=2, warmup_messages=500)
    for change in (
        {}, {"rate": 5}, {"devices": 1000}, {"devices": 1000}, {"table_rows": 10**6}, {"table_rows": 10**7}, {},
        {"partitions": 4}, {"partitions": 4, "devices": 1000},
    ):  # fmt: skip
        running.fit(work.model_copy(update=change))
    running.close()
    assert running.settings is None
    assert course.done == [
        "start 2", "introduce 1000 of 1000", "grow 0 by 1000000", "grow 1000000 by 9000000", "stop",
        "start 2", "stop", "start 4", "introduce 1000 of 1000", "stop",
    ]  # fmt: skip


def test_devices_that_do_not_get_through_end_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    course, running = Course(monkeypatch), RunningPipeline()
    course.through = 0.5
    with pytest.raises(FatalError, match="only 500 of 1,000 devices have a row"):
        running.fit(Parameters(kind="pipeline", devices=1000))
    running.close()


def test_a_cell_without_rows_is_a_fault_and_others_have_all_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {
        "p50_ms": 80, "p95_ms": 90, "p99_ms": 95, "rows": 10, "commits": 2, "lost": 0, "unacknowledged": 0,
        "backlog_at_end": 3.0, "begin_at": 0.0, "commit": {"p50_ms": 70},
    }  # fmt: skip
    monkeypatch.setattr(pipeline_bed, "measure_e2e", lambda *_, **__: found)
    bed: Any = SimpleNamespace(
        running=SimpleNamespace(settings=Settings(), parts=RunParts(), fleet=lambda devices: "fleet")
    )
    figures = pipeline_cell(Parameters(kind="pipeline", messages=10), bed)
    assert (figures["p50_ms"], figures["commit_p50_ms"], figures["backlog_at_end"]) == (80, 70, 3)
    assert "drain_seconds" not in figures and "open_ms" not in figures
    found["p50_ms"] = None
    with pytest.raises(FatalError, match="none of 10 messages became a row"):
        pipeline_cell(Parameters(kind="pipeline", messages=10), bed)


def test_linked_rows_are_a_large_table_that_brings_no_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_rows, "FILE_ROWS", 1000)
    root = str(tmp_path / "tables")
    create_table(root, READINGS, log_retention_hours=24)
    follower = TableFollower(root, "readings", columns=("device",))
    now = datetime(2021, 3, 2, 11, tzinfo=UTC)
    table_rows.grow_table(root, 3000, now=now)
    table_rows.grow_table(root, 17_000, after=3000, now=now)
    state = table_state(root, "readings")
    assert (state.file_count, sum(state.files["num_records"].to_pylist())) == (20, 20_000)
    assert sorted({str(day) for day in state.files["partition.date"].to_pylist()}) == [
        "2021-02-27",
        "2021-02-28",
        "2021-03-01",
    ]
    newest = newest_landed(state)
    assert newest is not None and newest < now.replace(hour=0)
    assert sum(commit.rows.num_rows for commit in follower.poll()) == 0
    assert run_sql(root, "select count(*) from readings").to_pylist() == [{"count_star()": 20_000}]
    assert DeltaTable(f"{root}/readings").version() == 2
    assert (tmp_path / table_rows.SOURCE).stat().st_nlink == 21


def test_rows_that_make_no_whole_file_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 1000000"):
        Parameters(kind="pipeline", table_rows=1_500_000)


def test_a_linked_file_is_too_large_for_maintenance_to_take_up() -> None:
    assert table_rows.FILE_ROWS * 40 > SMALL_BYTES


def test_own_benchmarks_give_flat_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def note(name: str, found: Mapping[str, Any]) -> Any:
        def measure(**parameters: Any) -> Mapping[str, Any]:
            asked[name] = {key: value for key, value in parameters.items() if key != "tell"}
            return found

        return measure

    landed = {
        "rows": 40,
        "rows_per_second": 9,
        "cpu_us_per_row": 7.5,
        "python_us_per_row": 2,
        "executor_us_per_row": 22.5,
        "lost": 0,
        "peak_mb": 800,
    }
    monkeypatch.setattr("deploy.bench.land.measure_catch_up", note("land", landed))
    cells = [{"layout": "arrival", "files": 30, "device_month_ms": 1.5}, {"layout": "device", "files": 31}]
    monkeypatch.setattr("deploy.bench.layout.measure_layouts", note("layout", {"cells": cells}))
    day = {"before": {"files": 9, "open_ms": 5}, "after": {"files": 1}, "maintain": {"seconds": 4}}
    monkeypatch.setattr("deploy.bench.day.measure_day", note("day", day))

    work = Parameters(messages=10, readings=4, partitions=2, batch_records=5, devices=3)
    figures = {kind: own_cell(work.model_copy(update={"kind": kind}), {}) for kind in ("land", "layout", "day")}
    assert asked == {
        "land": {"rows": 40, "runs": 1, "partitions": 2, "readings": 4, "workers": 0},
        "layout": {"rows": 10, "devices": 3},
        "day": {"commits": 2, "rows_per_commit": 5, "devices": 3},
    }
    assert figures["land"]["cpu_seconds_per_million"] == 7.5 and figures["land"]["peak_rss_mb"] == 800
    assert figures["land"]["driver_share"] == 0.25
    assert figures["layout"] == {"arrival_files": 30, "arrival_device_month_ms": 1.5, "device_files": 31}
    assert figures["day"] == {
        "commits": 2, "maintain_seconds": 4, "before_files": 9, "before_open_ms": 5, "after_files": 1
    }  # fmt: skip


def soak_result(**more: Any) -> dict[str, Any]:
    slopes = [
        {"name": "memory_mb.stream/java", "last": 900.0, "per_hour": 12.5, "above": False},
        {"name": "state_files", "last": 30.0, "per_hour": None, "above": False},
        {"name": "descriptors.gateway", "last": 40.0, "per_hour": 99.0, "above": True},
    ]
    audit = {"unaccounted": 0, "duplicate_rows": 0, "order_violations": 0}
    return {"slopes": slopes, "audit": audit, "acknowledged": 500, "wrong": [], **more}


def test_a_soak_gives_the_slopes_that_were_judged_and_says_why_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = soak_figures(soak_result())
    assert found["per_hour_memory_mb_stream_java"] == 12.5
    assert (found["last_state_files"], found["over_bound"], found["wrong"]) == (30, 1, 0)
    assert "per_hour_state_files" not in found and "limit" not in found

    wrong = ["descriptors.gateway grows by 99 an hour; the limit is 60"]
    minutes: list[float] = []

    def run_soak(options: Any, folder: Path, *, tell: Any) -> dict[str, Any]:
        assert folder.is_dir() and not options.faults
        minutes.append(options.minutes)
        return soak_result(wrong=wrong)

    monkeypatch.setattr("deploy.soak.run.run_soak", run_soak)
    scenario = Scenario.model_validate(
        {
            "title": "soak", "matrix": [{"kind": "soak", "messages": 1200, "rate": 10}], "targets": [{"runs": "own"}],
            "goals": [{"figure": "wrong", "at_most": 0}], "warmup_runs": 0,
        }
    )  # fmt: skip
    result = run_plan(
        ScenarioPlan("soak", scenario, scenario.cells(), 1),
        open_bed=lambda target: own_bed(),
        run_cell=lambda workload, topic, bed: own_cell(workload, bed.brokers),
        progress=SuiteProgress(lambda text: None, steps=1, seconds_per_step=1),
    )
    assert minutes == [2]
    (cell,) = result["cells"]
    assert cell["met"] is False
    assert cell["why"] == f"wrong is 1; {wrong[0]}"
    assert "limit" not in cell["spread"]


def test_a_bed_is_made_to_fit_before_each_run_and_its_topics_are_only_looked_for_where_there_are_any() -> None:
    steps: list[str] = []
    scenario = Scenario.model_validate(
        {"title": "x", "matrix": [{"kind": "pipeline", "devices": [1, 2]}], "targets": [{"runs": "pipeline"}]}
    )

    @contextmanager
    def open_bed(target: ScenarioTarget | None) -> Iterator[CellBed]:
        # Nothing answers at this address: looking for topics there would fail.
        kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
        yield CellBed(kafka, fit=lambda work: steps.append(f"fit {work.devices}"), makes_topics=False)

    def run_cell(workload: Parameters, topic: str, bed: CellBed) -> Mapping[str, Any]:
        steps.append(f"run {workload.devices}")
        return {"p50_ms": 1.0}

    said: list[str] = []
    progress = SuiteProgress(said.append, steps=2, seconds_per_step=1)
    run_plan(ScenarioPlan("x", scenario, scenario.cells(), 1), open_bed=open_bed, run_cell=run_cell, progress=progress)
    assert steps == ["fit 1", "run 1"] * 2 + ["fit 2", "run 2"]
    assert not any("did not delete" in text for text in said)


def test_shipped_scenarios_of_hours_are_long_and_have_a_short_form_of_minutes() -> None:
    assert "pipeline" in names_by_length(usual=True, long=False)
    for name in names_by_length(usual=False, long=True):
        assert name.startswith("long-")
        scenario = load_scenario(name)[1]
        assert scenario.shortened().seconds_per_run < scenario.seconds_per_run
        assert all(one.messages <= 100_000 for one in scenario.shortened().workloads)
