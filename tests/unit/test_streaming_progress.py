"""What the landing tells: every row in the latency histograms, lag, and a state to read from any thread."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
from prometheus_client import CollectorRegistry

from monitoring.metrics.stream import StreamMetrics
from streaming.progress import Progress, StreamState


def progress(registry: CollectorRegistry) -> Progress:
    metrics = StreamMetrics(registry, query="land", tables=["readings"], topics=["a"])
    return Progress(metrics, "land")


def test_every_row_of_a_batch_is_in_the_histogram(registry: CollectorRegistry) -> None:
    now = datetime.now(UTC)
    ages, redriven = [0.0, 0.3, 0.3, 7.0, 500.0], [86_400.0]
    column = pa.array([now - timedelta(seconds=age) for age in ages + redriven], pa.timestamp("us", tz="UTC"))
    gateways = ["gw-1"] * len(ages) + ["redrive"]
    progress(registry).latency(pa.table({"received_at": column, "kafka_time": column, "gateway": gateways}))

    def upto(bound: str) -> float | None:
        labels = {"stage": "receive_to_commit", "le": bound}
        return registry.get_sample_value("tidegate_stage_latency_seconds_bucket", labels)

    assert [upto(bound) for bound in ("0.2", "2.5", "10.0", "60.0", "+Inf")] == [1, 3, 4, 4, 5]
    total = registry.get_sample_value("tidegate_stage_latency_seconds_sum", {"stage": "kafka_to_commit"})
    assert total is not None
    assert sum(ages) <= total < sum(ages) + 60


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
