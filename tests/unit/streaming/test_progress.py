"""What the landing tells: every row in the latency histograms, lag, and a state to read from any thread."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from monitoring.metrics.stream import STAGES, StreamMetrics
from streaming.executors.executor_check import ExecutorCheck
from streaming.landing_progress import LandingProgress, StreamState, unseen_reports


def progress(registry: CollectorRegistry) -> LandingProgress:
    metrics = StreamMetrics(registry, query="land", tables=["readings"], topics=["a"])
    return LandingProgress(metrics, "land")


BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
COMMITTED_AFTER = 0.3


def batch(received_before: list[float], kafka_after: float = 0.004, *, redriven: int = 0, old: float = 0.0) -> pa.Table:
    """Rows received so many seconds before the batch began, `old` seconds after they were measured; the last ones are
    of a redrive."""
    received = [BEGAN - timedelta(seconds=before) for before in received_before]
    in_kafka = [at + timedelta(seconds=kafka_after) for at in received]
    fresh = len(received) - redriven
    stamp = pa.timestamp("us", tz="UTC")
    times = {"received_at": pa.array(received, stamp), "kafka_time": pa.array(in_kafka, stamp)}
    times["event_time"] = pa.array([at - timedelta(seconds=old) for at in received], stamp)
    return pa.table({**times, "gateway": ["gw-1"] * fresh + ["redrive"] * redriven})


def tell(registry: CollectorRegistry, rows: pa.Table) -> None:
    began = BEGAN.timestamp()
    progress(registry).latency(rows, began_at=began, committed_at=began + COMMITTED_AFTER)


def stage(registry: CollectorRegistry, name: str, part: str) -> float:
    value = registry.get_sample_value(f"tidegate_stage_latency_seconds_{part}", {"stage": name})
    assert value is not None
    return value


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"tidegate_stream_{name}", {"query": "land", **labels})


def upto(registry: CollectorRegistry, name: str, *bounds: str) -> list[float | None]:
    bucket = "tidegate_stage_latency_seconds_bucket"
    return [registry.get_sample_value(bucket, {"stage": name, "le": bound}) for bound in bounds]


def test_every_row_of_a_batch_is_in_the_histogram_and_none_that_was_redriven(registry: CollectorRegistry) -> None:
    ages = [0.0, 0.3, 0.3, 7.0, 500.0, 86_400.0]
    tell(registry, batch([age - COMMITTED_AFTER for age in ages], redriven=1))

    assert upto(registry, "receive_to_commit", "0.2", "2.5", "10.0", "60.0", "+Inf") == [1, 3, 4, 4, 5]
    assert stage(registry, "receive_to_commit", "sum") == pytest.approx(sum(ages[:-1]))
    assert [stage(registry, name, "count") for name in STAGES] == [5] * len(STAGES)


def test_backlog_stands_apart_from_processing_and_the_stages_sum_to_the_whole(registry: CollectorRegistry) -> None:
    tell(registry, batch([0.5, 20.0]))

    assert stage(registry, "receive_to_kafka", "sum") == pytest.approx(2 * 0.0045)
    assert stage(registry, "kafka_to_batch", "sum") == pytest.approx(20.5 - 2 * 0.0045)
    assert stage(registry, "batch_to_commit", "sum") == pytest.approx(2 * COMMITTED_AFTER)
    assert upto(registry, "kafka_to_batch", "0.35", "0.5", "10.0", "30.0") == [0, 1, 1, 2]
    assert upto(registry, "batch_to_commit", "0.2", "0.35", "+Inf") == [0, 2, 2]
    parts = sum(stage(registry, name, "sum") for name in ("receive_to_kafka", "kafka_to_batch", "batch_to_commit"))
    assert stage(registry, "receive_to_commit", "sum") == pytest.approx(parts)


def test_clocks_that_disagree_count_as_no_time(registry: CollectorRegistry) -> None:
    tell(registry, batch([0.5], kafka_after=-3.0))

    assert stage(registry, "receive_to_kafka", "sum") == 0
    assert upto(registry, "receive_to_kafka", "0.05") == [1]


def test_a_batch_of_nothing_but_redriven_rows_adds_nothing(registry: CollectorRegistry) -> None:
    tell(registry, batch([0.5], redriven=1))

    assert [stage(registry, name, "count") for name in STAGES] == [0] * len(STAGES)


def test_a_row_is_late_that_was_old_when_it_was_received(registry: CollectorRegistry) -> None:
    told = progress(registry)
    for old in (-9_000.0, 0.0, 119.9, 120.0, 86_400.0):
        told.latency(batch([500.0, 0.5, 0.5], old=old, redriven=1), began_at=BEGAN.timestamp(), committed_at=0)
    assert value(registry, "late_rows_total") == 4


def report(number: int, *, rows: int = 10, **more: Any) -> dict[str, Any]:
    durations = {"triggerExecution": 300, "addBatch": 250, "queryPlanning": 30, "somethingNew": 5}
    source = {"endOffset": {"a": {"0": 5, "1": 5}}, "latestOffset": {"a": {"0": 9, "1": 6}}}
    return {"batchId": number, "numInputRows": rows, "durationMs": durations, "sources": [source], **more}


def test_lag_is_what_kafka_has_and_the_tables_have_not(registry: CollectorRegistry) -> None:
    told = progress(registry)
    told.spark([report(3)])
    told.spark([report(3)])
    assert value(registry, "offsets_behind", topic="a") == 5
    assert value(registry, "batch_duration_seconds_count") == 1


def test_what_spark_reports_of_a_batch_is_counted_once_by_phase(registry: CollectorRegistry) -> None:
    told = progress(registry)
    told.spark([report(1, inputRowsPerSecond=50.0, processedRowsPerSecond=70.0), report(2, inputRowsPerSecond=9.5)])
    told.spark([report(2), report(3, inputRowsPerSecond=8.0)])
    assert value(registry, "phase_seconds_total", phase="addBatch") == pytest.approx(0.75)
    assert value(registry, "phase_seconds_total", phase="walCommit") == 0
    assert value(registry, "phase_seconds_total", phase="somethingNew") is None, "phases are a closed list"
    assert value(registry, "input_rows_per_second") == 8
    assert value(registry, "processed_rows_per_second") == 0


def test_a_report_is_awaited_until_it_is_there_and_an_idle_one_is_none(registry: CollectorRegistry) -> None:
    told = progress(registry)
    assert not told.awaits_report
    told.batch(7, 0.3)
    assert told.awaits_report, "Spark reports a moment after the landing"
    told.spark([])
    assert told.awaits_report
    told.spark([report(7), report(8, rows=0)])
    assert not told.awaits_report
    told.batch(8, 0.3)
    told.spark([report(8)])
    assert value(registry, "batch_duration_seconds_count") == 2
    assert value(registry, "last_batch_timestamp_seconds") == pytest.approx(time.time(), abs=60)


def test_the_rates_of_a_stream_that_idles_go_to_nothing(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = progress(registry)
    told.batch(1, 0.3)
    told.spark([report(1, inputRowsPerSecond=8.0, processedRowsPerSecond=9.0)])
    told.idle()
    assert value(registry, "input_rows_per_second") == 8, "the next batch may be on its way"
    monkeypatch.setattr("streaming.landing_progress.IDLE_SECONDS", -1)
    told.idle()
    assert (value(registry, "input_rows_per_second"), value(registry, "processed_rows_per_second")) == (0, 0)


class JvmReport:
    """One report in the JVM; `asked` counts what each question would cost."""

    asked = 0

    def __init__(self, number: int) -> None:
        self._number = number

    def batchId(self) -> int:
        return self._number

    def json(self) -> str:
        JvmReport.asked += 1
        return json.dumps(report(self._number))


def test_only_the_reports_that_are_new_are_fetched_oldest_first() -> None:
    query = SimpleNamespace(_jsq=SimpleNamespace(recentProgress=lambda: [JvmReport(number) for number in range(20)]))
    assert [each["batchId"] for each in unseen_reports(query, 16)] == [17, 18, 19]
    assert JvmReport.asked == 3


def test_the_state_keeps_its_time_while_nothing_changes() -> None:
    state = StreamState()
    state.set(ready=True, detail="landing")
    since = state.since
    state.set(ready=True, detail="landing")
    assert state.since == since
    assert state.healthy() == (True, "landing")


def test_a_latency_that_executors_cannot_measure_is_only_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The rows are committed: the next batch and the end of the landing do not fail by it."""
    identities: Any = SimpleNamespace(figures={}, close=lambda: None)
    spark: Any = None
    check = ExecutorCheck(spark, str(tmp_path), identities, progress(CollectorRegistry()))
    for _ in range(2):
        check.measure(str(tmp_path), ["gone.parquet"], BEGAN, BEGAN.timestamp())
    check.close(None)
    assert [each.message.partition(":")[0] for each in caplog.records] == ["cannot measure the latency of a batch"] * 2
