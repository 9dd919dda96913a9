"""`bench land`: what is produced, and what people are shown."""

import tomllib
from typing import Any

from deploy.bench.gateway_testbed import to_toml
from deploy.bench.land import render_catch_up, render_live
from deploy.bench.land_feed import FeedPlan, record_of
from ingest.contract.reading import decode_record

MACHINE = {"cpu": "a processor", "cores": 2, "memory_gb": 24.0, "load_1m": 0.1}


def test_records_are_those_of_a_gateway_with_an_identity_and_the_time_they_are_due() -> None:
    plan = FeedPlan(bootstrap_servers="", records=10, devices=2, readings=2, rate=100.0, boot=7, begin_at=1_000.0)
    key, value = record_of(plan, 5)
    record = decode_record(value)
    assert (key, record.device, record.number) == (b"bench-0001", "bench-0001", 5)
    assert (record.message_id, record.boot, record.seq) == ("bs:7:3", 7, 3)
    assert [reading.metric for reading in record.readings] == ["temperature", "humidity"]
    assert {reading.time_us for reading in record.readings} == {1_000_050_000}
    identities = {(plan.names(number)) for number in range(plan.records)}
    assert len(identities) == plan.records


def test_settings_are_written_as_toml_with_a_table_in_a_section() -> None:
    sections: dict[str, dict[str, Any]] = {
        "stream": {"extra": {"spark.a": "b"}, "trigger_seconds": 1.5},
        "lake": {"root": "/x y"},
    }
    assert tomllib.loads(to_toml(sections)) == sections


def test_a_result_is_shown_with_its_hardware() -> None:
    run = {"rows_per_second": 50_000, "cpu_us_per_row": 30.0}
    caught_up = {
        "rows": 10, "partitions": 2, "warm": [run], "first": run, "rows_per_second": 80_000.0, "cpu_us_per_row": 15.0,
        "python_us_per_row": 2.0, "peak_mb": 1500, "lost": 0, "hardware": MACHINE,
    }  # fmt: skip
    assert "80000 rows/s, 15.0 µs" in render_catch_up(caught_up)
    assert "first run: 50000 rows/s" in render_catch_up(caught_up)
    live = {
        "rate": 1000.0, "seconds": 30.0, "p50_ms": 300, "p95_ms": 600, "p99_ms": 900, "rows": 30_000, "commits": 100, "lost": 0,
        "cores": 0.5, "python_cores": 0.1, "idle_cores": 0.04, "peak_mb": 1500, "hardware": MACHINE,
    }  # fmt: skip
    assert "p50 300 ms   p95 600 ms   p99 900 ms" in render_live(live)
    assert "a processor, 2 cores" in render_live(live)
