"""A cell of `bench run pipeline` on the embedded run of the other tests."""

from typing import Any

from deploy.bench.suite.cell_beds import CellBed
from deploy.bench.suite.pipeline_bed import RunningPipeline, pipeline_cell
from deploy.bench.suite.scenario import Parameters
from deploy.bench.target import with_device_port


def test_a_cell_measures_latency_backlog_cost_and_memory_of_every_part(pipeline: Any) -> None:
    running = RunningPipeline()
    running.settings, running.parts.folder = with_device_port(pipeline.settings, pipeline.data), pipeline.data
    work = Parameters(kind="pipeline", devices=5, readings=3, rate=50, messages=100, warmup_messages=50)
    figures = pipeline_cell(work, CellBed(pipeline.settings.kafka, brokers=running.parts, running=running))
    assert (figures["rows"], figures["lost"], figures["unacknowledged"]) == (300, 0, 0)
    assert 0 < figures["commit_p50_ms"] <= figures["p50_ms"] <= figures["p99_ms"]
    assert figures["backlog_at_end"] >= 1 and figures["messages_per_second"] > 0
    for part in ("broker", "gateway", "kafka", "stream"):
        assert figures[f"cpu_us_per_message_{part}"] > 0 and figures[f"peak_rss_mb_{part}"] > 0
    assert sum(value for name, value in figures.items() if name.startswith("cpu_seconds_per_million_")) > 0
    assert figures["peak_rss_mb"] > figures["peak_rss_mb_stream"]
    assert "open_ms" not in figures
