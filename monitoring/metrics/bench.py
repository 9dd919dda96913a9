"""Metrics of a benchmark while it runs: where it is, what its last runs measured, and the resources around them.

`bench run --metrics-port` serves them. A figure that is not measured has no series, such as those of brokers without a JMX agent.
"""

from typing import Final

from monitoring.metrics.families import Family

__all__ = ["BENCH"]

_PART: Final = ("part",)
_KIND: Final = ("kind",)

BENCH: Final = (
    Family("tidegate_bench_runs_planned", "Runs that this benchmark counts, all scenarios together."),
    Family("tidegate_bench_runs_done", "Runs that have ended."),
    Family("tidegate_bench_left_seconds", "Time until the last run ends, by the runs so far."),
    Family(
        "tidegate_bench_cell_run",
        "Number of the run that is measured now; the labels say of which cell.",
        ("scenario", "target", "cell"),
    ),
    Family(
        "tidegate_bench_records_per_second",
        "Throughput by kind, such as produce and consume: the median of the runs of the cell that was measured last.",
        _KIND,
    ),
    Family(
        "tidegate_bench_latency_seconds",
        "Latency by kind, such as ack and end_to_end, from the time a record was due: the median of that cell's runs.",
        ("kind", "percentile"),
    ),
    Family("tidegate_bench_errors", "Errors that the clients reported, in all runs so far."),
    Family("tidegate_bench_lost_records", "Records that were lost, in all runs so far."),
    Family("tidegate_bench_faults", "Cells and clusters that could not be measured."),
    Family(
        "tidegate_bench_cpu_seconds_total",
        "CPU time of the brokers, of the clients, and of all programs of this machine.",
        _PART,
        "counter",
    ),
    Family("tidegate_bench_memory_bytes", "Resident memory of the brokers and of the clients.", _PART),
    Family("tidegate_bench_memory_available_bytes", "Memory of this machine that programs can have without swapping."),
    Family("tidegate_bench_disk_available_bytes", "Free space of the disk that holds the brokers' data."),
    Family(
        "tidegate_bench_io_wait_seconds_total",
        "Time that the processors of the brokers' machine waited for disks, over the number of processors.",
        (),
        "counter",
    ),
    Family("tidegate_bench_context_switches_total", "Context switches of this machine.", (), "counter"),
    Family("tidegate_bench_kafka_bytes_total", "Bytes that the brokers took (in) and gave (out).", _KIND, "counter"),
    Family(
        "tidegate_bench_kafka_request_seconds",
        "TotalTimeMs of the slowest broker, by percentile; Kafka counts it over about five minutes.",
        ("request", "percentile"),
    ),
    Family("tidegate_bench_kafka_errors_total", "Answers of the brokers with an error.", (), "counter"),
    Family("tidegate_bench_kafka_failed_requests_total", "Requests that failed by a broker's fault.", (), "counter"),
    Family("tidegate_bench_kafka_purgatory_requests", "Requests that wait in the brokers.", ("request",)),
)
