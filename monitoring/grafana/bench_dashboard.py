"""Dashboard Bench: a running benchmark, with the figures of its last runs and the resources used."""

from typing import Any, Final

from monitoring.grafana.dashboard import Row, dashboard
from monitoring.grafana.panel import Panel, PanelQuery, stat, timeseries
from monitoring.grafana.promql import rate, total
from monitoring.grafana.variables import selection

__all__ = ["bench"]

_TOTAL_TIME: Final = "tidegate_bench_kafka_request_seconds"


def bench() -> dict[str, Any]:
    """Return the dashboard for people who run `bench run`."""
    rows = [
        Row("Progress", _progress()),
        Row("Figures", _figures()),
        Row("Brokers", _brokers()),
        Row("Machine", _machine()),
    ]
    return dashboard(
        "tidegate-bench",
        "Tidegate / Bench",
        "A running benchmark: progress, throughput, latency, errors, and the resources of brokers and clients.",
        selection("tidegate_bench_runs_planned"),
        rows,
        span="30m",
    )


def _progress() -> list[Panel]:
    bad = [(None, "green"), (1, "red")]
    return [
        stat(
            "Current cell",
            "Scenario, target and cell that are measured now, and the number of the run.",
            "short",
            PanelQuery(
                total("tidegate_bench_cell_run", "scenario, target, cell", how="max"),
                "{{scenario}}: {{target}}, {{cell}}",
            ),
            width=12,
        ),
        stat(
            "Progress",
            "Finished runs, as a share of all planned runs.",
            "percentunit",
            PanelQuery(f"{total('tidegate_bench_runs_done')} / {total('tidegate_bench_runs_planned')}"),
            width=3,
        ),
        stat(
            "Time left",
            "Estimate from the runs so far.",
            "s",
            PanelQuery(total("tidegate_bench_left_seconds", how="max")),
            width=3,
        ),
        stat(
            "Errors and lost records",
            "Since the start, in the runs that count.",
            "short",
            PanelQuery(total("tidegate_bench_errors"), "errors"),
            PanelQuery(total("tidegate_bench_lost_records"), "lost"),
            width=3,
            steps=bad,
        ),
        stat(
            "Failed cells",
            "Cells and clusters that could not be measured. The output of the run says why.",
            "short",
            PanelQuery(total("tidegate_bench_faults")),
            width=3,
            steps=bad,
        ),
    ]


def _figures() -> list[Panel]:
    return [
        timeseries(
            "Throughput of the cell",
            "Records per second: the median of the runs so far, for the cell that was measured last.",
            "cps",
            PanelQuery(total("tidegate_bench_records_per_second", "kind", how="max"), "{{kind}}"),
            width=12,
        ),
        timeseries(
            "Latency of the cell",
            "Counted from the time at which a record was due, p50 and p99: the median of the same runs.",
            "s",
            PanelQuery(
                total("tidegate_bench_latency_seconds", "kind, percentile", how="max"), "{{kind}} p{{percentile}}"
            ),
            width=12,
        ),
    ]


def _brokers() -> list[Panel]:
    return [
        timeseries(
            "Bytes in and out",
            "Bytes per second that all brokers received and sent.",
            "Bps",
            PanelQuery(rate("tidegate_bench_kafka_bytes_total", "kind"), "{{kind}}"),
        ),
        *(
            timeseries(
                f"Total time: {name}",
                f"TotalTimeMs of {name} requests by percentile, slowest broker. Kafka measures it over about five minutes.",
                "s",
                PanelQuery(total(_TOTAL_TIME, "percentile", f'request="{name}"', how="max"), "p{{percentile}}"),
            )
            for name in ("Produce", "FetchConsumer")
        ),
        timeseries(
            "Errors of brokers",
            "Answers with an error, and requests that failed because of a broker, per second.",
            "reqps",
            PanelQuery(rate("tidegate_bench_kafka_errors_total"), "errors"),
            PanelQuery(rate("tidegate_bench_kafka_failed_requests_total"), "failed"),
        ),
        timeseries(
            "Purgatory of brokers",
            "Waiting requests: Produce waits for replicas, Fetch for data.",
            "short",
            PanelQuery(total("tidegate_bench_kafka_purgatory_requests", "request"), "{{request}}"),
        ),
    ]


def _machine() -> list[Panel]:
    return [
        timeseries(
            "Processors",
            "Share of one processor used by brokers, by clients and by all programs of the machine: 200 % is two processors.",
            "percentunit",
            PanelQuery(rate("tidegate_bench_cpu_seconds_total", "part"), "{{part}}"),
        ),
        timeseries(
            "Memory of brokers and clients",
            "Resident memory of brokers and clients.",
            "bytes",
            PanelQuery(total("tidegate_bench_memory_bytes", "part"), "{{part}}"),
        ),
        timeseries(
            "Memory left",
            "Memory that programs can use without swapping.",
            "bytes",
            PanelQuery(total("tidegate_bench_memory_available_bytes", how="min"), "memory"),
        ),
        timeseries(
            "Disk left",
            "Free space of the disk that holds the brokers' data.",
            "bytes",
            PanelQuery(total("tidegate_bench_disk_available_bytes", how="min"), "disk"),
        ),
        timeseries(
            "Waiting for disks",
            "Share of the processors' time spent waiting for disks.",
            "percentunit",
            PanelQuery(rate("tidegate_bench_io_wait_seconds_total"), "IO wait"),
        ),
        timeseries(
            "Context switches",
            "Context switches of the machine per second.",
            "ops",
            PanelQuery(rate("tidegate_bench_context_switches_total"), "switches"),
        ),
    ]
