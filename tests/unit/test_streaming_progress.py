"""What the landing tells: every row in the latency histograms, lag, and a state to read from any thread."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from monitoring.metrics.stream import STAGES, StreamMetrics
from streaming.progress import Progress, StreamState


def progress(registry: CollectorRegistry) -> Progress:
    metrics = StreamMetrics(registry, query="land", tables=["readings"], topics=["a"])
    return Progress(metrics, "land")


BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
COMMITTED_AFTER = 0.3


def batch(received_before: list[float], kafka_after: float = 0.004, *, redriven: int = 0) -> pa.Table:
    """Rows received so many seconds before the batch began; the last ones are of a redrive."""
    received = [BEGAN - timedelta(seconds=before) for before in received_before]
    in_kafka = [at + timedelta(seconds=kafka_after) for at in received]
    fresh = len(received) - redriven
    stamp = pa.timestamp("us", tz="UTC")
    times = {"received_at": pa.array(received, stamp), "kafka_time": pa.array(in_kafka, stamp)}
    return pa.table({**times, "gateway": ["gw-1"] * fresh + ["redrive"] * redriven})


def tell(registry: CollectorRegistry, rows: pa.Table) -> None:
    began = BEGAN.timestamp()
    progress(registry).latency(rows, began_at=began, committed_at=began + COMMITTED_AFTER)


def stage(registry: CollectorRegistry, name: str, part: str) -> float:
    value = registry.get_sample_value(f"tidegate_stage_latency_seconds_{part}", {"stage": name})
    assert value is not None
    return value


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


def test_lag_is_what_kafka_has_and_the_tables_have_not(registry: CollectorRegistry) -> None:
    source = {"endOffset": {"a": {"0": 5, "1": 5}}, "latestOffset": {"a": {"0": 9, "1": 6}}}
    told = progress(registry)
    report = {"batchId": 3, "numInputRows": 10, "durationMs": {"triggerExecution": 300}, "sources": [source]}
    told.spark([report])
    told.spark([report])
    assert registry.get_sample_value("tidegate_stream_offsets_behind", {"query": "land", "topic": "a"}) == 5
    assert registry.get_sample_value("tidegate_stream_batch_duration_seconds_count", {"query": "land"}) == 1


def test_the_state_keeps_its_time_while_nothing_changes() -> None:
    state = StreamState()
    state.set(ready=True, detail="landing")
    since = state.since
    state.set(ready=True, detail="landing")
    assert state.since == since
    assert state.healthy() == (True, "landing")
