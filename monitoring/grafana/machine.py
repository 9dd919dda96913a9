"""What Kafka stands on: its JVM, the machine, and the MQTT broker beside it."""

from typing import Final

from monitoring.grafana.panel import Panel, Query, stat, timeseries
from monitoring.grafana.promql import OURS, rate, select, total

__all__ = ["broker_panels", "host_panels", "jvm_panels"]

_CPU: Final = "node_cpu_seconds_total"


def jvm_panels() -> list[Panel]:
    """The JVMs that carry the JMX agent: Kafka's and Spark's."""
    return [
        timeseries(
            "Heap",
            "Memory used by each JVM's heap, and how much it may use.",
            "bytes",
            Query(total("jvm_memory_used_bytes", "job, instance", 'area="heap"'), "{{job}} used"),
            Query(total("jvm_memory_max_bytes", "job, instance", 'area="heap"'), "{{job}} at most"),
        ),
        timeseries(
            "Garbage collection",
            "Share of the time that each JVM collects.",
            "percentunit",
            Query(rate("jvm_gc_collection_seconds_sum", "job, gc"), "{{job}} {{gc}}"),
        ),
        timeseries(
            "Processors used",
            "Processors that each part's own process keeps busy.",
            "short",
            Query(rate("process_cpu_seconds_total", "job", OURS), "{{job}}"),
        ),
        timeseries(
            "Memory of processes",
            "Resident memory of each part's own process.",
            "bytes",
            Query(total("process_resident_memory_bytes", "job", OURS), "{{job}}"),
        ),
        timeseries(
            "Open files",
            "Share of the files that each process may have open.",
            "percentunit",
            Query(
                f"max by (job) ({select('process_open_fds', OURS)} / {select('process_max_fds', OURS)})",
                "{{job}}",
            ),
            maximum=1,
        ),
        timeseries(
            "Running for",
            "How long each process has been running; a fall to 0 is a restart.",
            "s",
            Query(f"time() - {total('process_start_time_seconds', 'job', OURS, how='max')}", "{{job}}"),
        ),
        timeseries(
            "Buffers outside the heap",
            "Memory of each JVM's buffer pools.",
            "bytes",
            Query(total("jvm_buffer_pool_used_bytes", "job, pool"), "{{job}} {{pool}}"),
        ),
        timeseries(
            "Threads",
            "Threads of each JVM.",
            "short",
            Query(total("jvm_threads_current", "job"), "{{job}}"),
        ),
    ]


def host_panels() -> list[Panel]:
    """By instance: machines of others may tell the same names."""
    all_modes = rate(_CPU, "instance")
    return [
        timeseries(
            "CPU by mode",
            "Share of all processors' time, idle left out.",
            "percentunit",
            Query(
                f"{rate(_CPU, 'instance, mode', 'mode!=' + chr(34) + 'idle' + chr(34))}"
                f" / on (instance) group_left () {all_modes}",
                "{{instance}} {{mode}}",
            ),
            stacked=True,
            maximum=1,
        ),
        timeseries(
            "IO wait ratio",
            "Share of the processors' time spent waiting for disks: above 0.2 the disk bounds Kafka and the tables.",
            "percentunit",
            Query(f"{rate(_CPU, 'instance', 'mode=' + chr(34) + 'iowait' + chr(34))} / {all_modes}", "{{instance}}"),
        ),
        timeseries(
            "Disk busy",
            "Time that disks were busy per second; of several disks together it may pass 1.",
            "percentunit",
            Query(rate("node_disk_io_time_seconds_total", "instance"), "{{instance}}"),
        ),
        timeseries(
            "Memory available",
            "Memory that programs can have without swapping, and all of it.",
            "bytes",
            Query(total("node_memory_MemAvailable_bytes", "instance", how="max"), "{{instance}} available"),
            Query(total("node_memory_MemTotal_bytes", "instance", how="max"), "{{instance}} all"),
        ),
        timeseries(
            "Disk available",
            "Free space of the disks that hold Kafka's and the tables' data.",
            "bytes",
            Query(
                total("node_filesystem_avail_bytes", "instance, mountpoint", how="max"), "{{instance}} {{mountpoint}}"
            ),
        ),
        timeseries(
            "Disk used",
            "Share of those disks that is used.",
            "percentunit",
            Query(
                f"1 - {total('node_filesystem_avail_bytes', 'instance, mountpoint', how='max')} / "
                f"{total('node_filesystem_size_bytes', 'instance, mountpoint', how='max')}",
                "{{instance}} {{mountpoint}}",
            ),
            maximum=1,
        ),
    ]


def broker_panels() -> list[Panel]:
    """What the MQTT broker tells under $SYS; its counts begin at its start and end with it."""
    return [
        stat(
            "Broker figures",
            "Whether the broker tells its own figures under $SYS; without them the panels beside are empty.",
            "none",
            Query(total("tidegate_broker_sys_available", how="min")),
            height=8,
            words={"0": ("none", "orange"), "1": ("told", "green")},
        ),
        timeseries(
            "Clients",
            "Clients that are connected, and those whose sessions the broker keeps while they are away.",
            "short",
            Query(total("broker_clients_connected"), "connected"),
            Query(total("broker_clients_disconnected"), "away"),
            width=5,
        ),
        timeseries(
            "PUBLISH packets",
            "Received, sent and dropped per second. Dropped ones are lost: a queue was full or a client too slow.",
            "pps",
            Query(_growth("broker_publish_messages_received"), "received"),
            Query(_growth("broker_publish_messages_sent"), "sent"),
            Query(_growth("broker_publish_messages_dropped"), "dropped"),
            width=5,
        ),
        timeseries(
            "Broker bytes",
            "Bytes received and sent per second.",
            "Bps",
            Query(_growth("broker_bytes_received"), "received"),
            Query(_growth("broker_bytes_sent"), "sent"),
            width=5,
        ),
        timeseries(
            "Messages held",
            "Messages that the broker holds, retained ones included.",
            "short",
            Query(total("broker_messages_stored"), "held"),
            width=5,
        ),
    ]


def _growth(metric: str) -> str:
    """They are counters whatever their names say."""
    return f"sum(rate({select(metric)}[$__rate_interval]))"
