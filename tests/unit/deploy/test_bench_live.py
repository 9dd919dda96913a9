"""What a benchmark serves while it runs: states in, samples out."""

import urllib.request
from typing import Any

import pytest

from deploy.bench.suite.live_figures import LiveFigures, serve_live
from deploy.bench.suite.resources import ResourceSample
from ingest.contract.errors import UnavailableError
from monitoring.exporter import CollectorRegistry
from monitoring.metrics.names import declared_samples
from monitoring.scrape import scrape


@pytest.fixture
def served() -> Any:
    registry = CollectorRegistry()

    class Served:
        live = LiveFigures(registry)

        def __call__(self) -> dict[str, float]:
            found = {}
            for family in registry.collect():
                for sample in family.samples:
                    assert set(declared_samples()[sample.name]) == set(sample.labels)
                    found[" ".join([sample.name.removeprefix("tidegate_bench_"), *sample.labels.values()])] = (
                        sample.value
                    )
            return found

    return Served()


def test_a_run_says_where_it_is_and_what_its_cell_measured(served: Any) -> None:
    served.live.progress(planned=8, done=2, left_seconds=30.0)
    served.live.begin("dsbs", "1 broker, KRaft, plaintext", "message_bytes=8", 2)
    first = {
        "produce_per_second": 10.0,
        "produce_mb_per_second": 1.0,
        "ack_p50_ms": 2.0,
        "ack_p99_ms": 9.0,
        "errors": 1.0,
    }
    served.live.measured([first])
    served.live.measured([first, {**first, "produce_per_second": 20.0, "errors": 0.0, "lost": 3.0, "p99_ms": 500.0}])
    served.live.fault()

    assert served() == {
        "runs_planned": 8, "runs_done": 2, "left_seconds": 30,
        "cell_run dsbs 1 broker, KRaft, plaintext message_bytes=8": 2,
        "records_per_second produce": 15, "latency_seconds ack 50": 0.002, "latency_seconds ack 99": 0.009,
        "latency_seconds end_to_end 99": 0.5, "errors": 1, "lost_records": 3, "faults": 1,
    }  # fmt: skip


def test_counters_only_grow_also_from_one_cluster_to_the_next(served: Any) -> None:
    def seen(received: float, **gauges: float) -> dict[str, float]:
        served.live.sample(ResourceSample(0.0, {"bytes_in_per_second": received, "other_cpu_cores": 1.0}, gauges))
        return served()

    name = "kafka_bytes_total in"
    assert [seen(received)[name] for received in (1000, 1500, 1400, 1600)] == [0, 500, 500, 700]
    served.live.target()
    assert name not in served()
    assert [seen(received)[name] for received in (50, 80)] == [700, 730]
    found = seen(80, broker_rss_mb=2.0, disk_available_gb=3.0, purgatory_fetch=4.0, produce_total_ms_p999=5.0)
    assert found.items() >= {
        "memory_bytes brokers": 2e6, "disk_available_bytes": 3e9, "kafka_purgatory_requests Fetch": 4,
        "kafka_request_seconds Produce 99.9": 0.005,
    }.items()  # fmt: skip


def test_what_a_cluster_does_not_tell_has_no_series(served: Any) -> None:
    served.live.sample(ResourceSample(0.0, {"client_cpu_cores": 1.0}, {"client_rss_mb": 1.0}))
    assert set(served()) == {"cpu_seconds_total clients", "memory_bytes clients", "errors", "lost_records", "faults"}


def test_it_is_served_on_loopback_and_a_taken_port_is_refused_with_the_flag() -> None:
    from deploy.local.ports import choose_port

    port, _ = choose_port(0)
    with serve_live(port) as live:
        live.begin("s", "t", "c", 1)
        found = scrape(f"http://127.0.0.1:{port}/metrics")
        assert found is not None
        assert found.total("tidegate_bench_cell_run", scenario="s", target="t", cell="c") == 1
        assert found.total("tidegate_build_info", part="bench") == 1
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.read() == b"s: t, c, run 1\n"
        with pytest.raises(UnavailableError, match=f"127.0.0.1:{port} cannot serve.*--metrics-port"), serve_live(port):
            pass
    assert scrape(f"http://127.0.0.1:{port}/metrics") is None
