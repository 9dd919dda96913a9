"""Panels of Kafka's JVM, of the machine, and of the MQTT broker."""

from typing import Final

from monitoring.grafana.panel import Panel, PanelQuery, stat, timeseries
from monitoring.grafana.promql import OURS, rate, select, total

__all__ = ["broker_panels", "host_panels", "jvm_panels"]

_CPU: Final = "node_cpu_seconds_total"


def jvm_panels() -> list[Panel]:
    """Return the panels of the JVMs with the JMX agent: Kafka's and Spark's."""
    return [
        timeseries(
            "Heap",
            "Heap memory that each JVM uses, and its limit.",
            "bytes",
            PanelQuery(total("jvm_memory_used_bytes", "job, instance", 'area="heap"'), "{{job}} used"),
            PanelQuery(total("jvm_memory_max_bytes", "job, instance", 'area="heap"'), "{{job}} limit"),
        ),
        timeseries(
            "Garbage collection",
            "Share of the time that each JVM spends on garbage collection.",
            "percentunit",
            PanelQuery(rate("jvm_gc_collection_seconds_sum", "job, gc"), "{{job}} {{gc}}"),
        ),
        timeseries(
            "Processors used",
            "Processors that the process of each part uses.",
            "short",
            PanelQuery(rate("process_cpu_seconds_total", "job", OURS), "{{job}}"),
        ),
        timeseries(
            "Memory of processes",
            "Resident memory of the process of each part.",
            "bytes",
            PanelQuery(total("process_resident_memory_bytes", "job", OURS), "{{job}}"),
        ),
        timeseries(
            "Open files",
            "Open files of each process, as a share of its limit.",
            "percentunit",
            PanelQuery(
                f"max by (job) ({select('process_open_fds', OURS)} / {select('process_max_fds', OURS)})",
                "{{job}}",
            ),
            maximum=1,
        ),
        timeseries(
            "Uptime",
            "Time since the start of each process. A fall to 0 is a restart.",
            "s",
            PanelQuery(f"time() - {total('process_start_time_seconds', 'job', OURS, how='max')}", "{{job}}"),
        ),
        timeseries(
            "Buffers outside the heap",
            "Memory of each JVM's buffer pools.",
            "bytes",
            PanelQuery(total("jvm_buffer_pool_used_bytes", "job, pool"), "{{job}} {{pool}}"),
        ),
        timeseries(
            "Threads",
            "Threads of each JVM.",
            "short",
            PanelQuery(total("jvm_threads_current", "job"), "{{job}}"),
        ),
    ]


def host_panels() -> list[Panel]:
    """Return the panels by instance, since other machines may report the same names."""
    all_modes = rate(_CPU, "instance")
    return [
        timeseries(
            "CPU by mode",
            "Share of the time of all processors, without idle time.",
            "percentunit",
            PanelQuery(
                f"{rate(_CPU, 'instance, mode', 'mode!=' + chr(34) + 'idle' + chr(34))}"
                f" / on (instance) group_left () {all_modes}",
                "{{instance}} {{mode}}",
            ),
            stacked=True,
            maximum=1,
        ),
        timeseries(
            "IO wait ratio",
            "Share of the processors' time spent waiting for disks. Above 0.2 the disk slows Kafka and the tables.",
            "percentunit",
            PanelQuery(
                f"{rate(_CPU, 'instance', 'mode=' + chr(34) + 'iowait' + chr(34))} / {all_modes}", "{{instance}}"
            ),
        ),
        timeseries(
            "Disk busy",
            "Busy time of the disks per second. With several disks the sum can be above 1.",
            "percentunit",
            PanelQuery(rate("node_disk_io_time_seconds_total", "instance"), "{{instance}}"),
        ),
        timeseries(
            "Memory available",
            "Memory that programs can use without swapping, and total memory.",
            "bytes",
            PanelQuery(total("node_memory_MemAvailable_bytes", "instance", how="max"), "{{instance}} available"),
            PanelQuery(total("node_memory_MemTotal_bytes", "instance", how="max"), "{{instance}} total"),
        ),
        timeseries(
            "Disk available",
            "Free space of the disks that hold Kafka's and the tables' data.",
            "bytes",
            PanelQuery(
                total("node_filesystem_avail_bytes", "instance, mountpoint", how="max"), "{{instance}} {{mountpoint}}"
            ),
        ),
        timeseries(
            "Disk used",
            "Share of those disks that is used.",
            "percentunit",
            PanelQuery(
                f"1 - {total('node_filesystem_avail_bytes', 'instance, mountpoint', how='max')} / "
                f"{total('node_filesystem_size_bytes', 'instance, mountpoint', how='max')}",
                "{{instance}} {{mountpoint}}",
            ),
            maximum=1,
        ),
    ]


def broker_panels() -> list[Panel]:
    """Return the panels of the MQTT broker's figures under $SYS. Its counts begin again at each start."""
    return [
        stat(
            "Broker figures",
            "Reported if the broker publishes its own figures under $SYS. Without them the panels next to this one are empty.",
            "none",
            PanelQuery(total("tidegate_broker_sys_available", how="min")),
            height=8,
            words={"0": ("none", "orange"), "1": ("reported", "green")},
        ),
        timeseries(
            "Clients",
            "Connected clients, and disconnected clients whose sessions the broker keeps.",
            "short",
            PanelQuery(total("broker_clients_connected"), "connected"),
            PanelQuery(total("broker_clients_disconnected"), "disconnected"),
            width=5,
        ),
        timeseries(
            "PUBLISH packets",
            "Received, sent and dropped per second. Dropped messages are lost: a queue was full or a client was too slow.",
            "pps",
            PanelQuery(_growth("broker_publish_messages_received"), "received"),
            PanelQuery(_growth("broker_publish_messages_sent"), "sent"),
            PanelQuery(_growth("broker_publish_messages_dropped"), "dropped"),
            width=5,
        ),
        timeseries(
            "Broker bytes",
            "Bytes received and sent per second.",
            "Bps",
            PanelQuery(_growth("broker_bytes_received"), "received"),
            PanelQuery(_growth("broker_bytes_sent"), "sent"),
            width=5,
        ),
        timeseries(
            "Messages held",
            "Messages that the broker holds, including retained messages.",
            "short",
            PanelQuery(total("broker_messages_stored"), "held"),
            width=5,
        ),
    ]


def _growth(metric: str) -> str:
    """Return the growth of a metric that is a counter, whatever its name says."""
    return f"sum(rate({select(metric)}[$__rate_interval]))"
