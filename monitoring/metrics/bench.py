"""Metrics of a running benchmark: its progress, the results of its last runs, and resources.

`bench run --metrics-port` serves them. A figure that is not measured has no series, such as those of brokers without a JMX agent.
"""

from typing import Final

from monitoring.metrics.families import MetricFamily

__all__ = ["BENCH"]

_PART: Final = ("part",)
_KIND: Final = ("kind",)

BENCH: Final = (
    MetricFamily("tidegate_bench_runs_planned", "Planned runs of the benchmark, all scenarios together."),
    MetricFamily("tidegate_bench_runs_done", "Runs that have ended."),
    MetricFamily("tidegate_bench_left_seconds", "Estimated seconds until the last run ends, by the runs so far."),
    MetricFamily(
        "tidegate_bench_cell_run",
        "Number of the current run within the cell that the labels name.",
        ("scenario", "target", "cell"),
    ),
    MetricFamily(
        "tidegate_bench_records_per_second",
        "Throughput in records per second by kind, such as produce and consume: median of the last cell's runs.",
        _KIND,
    ),
    MetricFamily(
        "tidegate_bench_latency_seconds",
        "Latency in seconds by kind, such as ack and end_to_end, from a record's due time: median of the last cell's runs.",
        ("kind", "percentile"),
    ),
    MetricFamily("tidegate_bench_errors", "Errors that the clients reported, in all runs so far."),
    MetricFamily("tidegate_bench_lost_records", "Records that were lost, in all runs so far."),
    MetricFamily("tidegate_bench_faults", "Cells and clusters that could not be measured."),
    MetricFamily(
        "tidegate_bench_cpu_seconds_total",
        "CPU time in seconds of the brokers, of the clients, and of all programs on this machine.",
        _PART,
        "counter",
    ),
    MetricFamily("tidegate_bench_memory_bytes", "Resident memory in bytes of the brokers and of the clients.", _PART),
    MetricFamily(
        "tidegate_bench_memory_available_bytes",
        "Bytes of memory that programs on this machine can use without swapping.",
    ),
    MetricFamily("tidegate_bench_disk_available_bytes", "Free bytes of the disk that holds the brokers' data."),
    MetricFamily(
        "tidegate_bench_io_wait_seconds_total",
        "Seconds that the CPUs of the brokers' machine waited for disks, divided by the number of CPUs.",
        (),
        "counter",
    ),
    MetricFamily("tidegate_bench_context_switches_total", "Context switches of this machine.", (), "counter"),
    MetricFamily(
        "tidegate_bench_kafka_bytes_total", "Bytes that the brokers received (in) and sent (out).", _KIND, "counter"
    ),
    MetricFamily(
        "tidegate_bench_kafka_request_seconds",
        "Kafka's TotalTimeMs of the slowest broker in seconds, by percentile, over about five minutes.",
        ("request", "percentile"),
    ),
    MetricFamily("tidegate_bench_kafka_errors_total", "Answers of the brokers with an error.", (), "counter"),
    MetricFamily(
        "tidegate_bench_kafka_failed_requests_total",
        "Requests that failed because of an error in a broker.",
        (),
        "counter",
    ),
    MetricFamily("tidegate_bench_kafka_purgatory_requests", "Requests that wait in the brokers.", ("request",)),
)
