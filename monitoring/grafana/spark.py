"""Panels of Spark's driver and executors, by the JMX agent."""

from monitoring.grafana.panel import Panel, PanelQuery, timeseries
from monitoring.grafana.promql import rate, total

__all__ = ["spark_panels"]


def spark_panels() -> list[Panel]:
    """Return the panels of Spark's own view of the stream, for people who know Spark."""
    streaming = "spark_driver_structured_streaming"
    return [
        timeseries(
            "Rows in and processed",
            "Input rate and processing rate by query, from Spark's progress. If the second is lower, the query falls behind.",
            "cps",
            PanelQuery(total(f"{streaming}_inputrate", "query_name"), "{{query_name}} in"),
            PanelQuery(total(f"{streaming}_processingrate", "query_name"), "{{query_name}} processed"),
        ),
        timeseries(
            "Spark's batch latency",
            "Duration of the last batch, by query.",
            "ms",
            PanelQuery(total(f"{streaming}_latency", "query_name", how="max"), "{{query_name}}"),
        ),
        timeseries(
            "State",
            "Rows of state that each query keeps.",
            "short",
            PanelQuery(total(f"{streaming}_states_rowstotal", "query_name"), "{{query_name}}"),
        ),
        timeseries(
            "Memory of state",
            "Memory used by the state, and by cached and broadcast data.",
            "bytes",
            PanelQuery(total(f"{streaming}_states_usedbytes", "query_name"), "{{query_name}}"),
            PanelQuery(f"{total('spark_driver_blockmanager_memory_memused_mb')} * 1048576", "cached and broadcast"),
        ),
        timeseries(
            "Tasks",
            "Running tasks, running jobs, waiting stages, and stages that failed since the start.",
            "short",
            PanelQuery(total("spark_executor_threadpool_activetasks"), "tasks running"),
            PanelQuery(total("spark_driver_dagscheduler_job_activejobs"), "jobs running"),
            PanelQuery(total("spark_driver_dagscheduler_stage_waitingstages"), "stages waiting"),
            PanelQuery(total("spark_driver_dagscheduler_stage_failedstages"), "stages failed"),
        ),
        timeseries(
            "Processors used by tasks",
            "CPU time and run time of tasks, and garbage collection as a part of it. Run time without CPU time is waiting.",
            "short",
            PanelQuery(f"{rate('spark_executor_cputime_total')} / 1e9", "CPU"),
            PanelQuery(f"{rate('spark_executor_runtime_total')} / 1e3", "run time"),
            PanelQuery(f"{rate('spark_executor_jvmgctime_total')} / 1e3", "garbage collection"),
        ),
        timeseries(
            "Task rate",
            "Finished tasks per second.",
            "ops",
            PanelQuery(rate("spark_executor_succeededtasks_total"), "tasks"),
        ),
        timeseries(
            "Rows read and written",
            "Rows that Spark's tasks read and wrote.",
            "cps",
            PanelQuery(rate("spark_executor_recordsread_total"), "read"),
            PanelQuery(rate("spark_executor_recordswritten_total"), "written"),
        ),
        timeseries(
            "Shuffle and spill",
            "Bytes that tasks shuffled, and bytes that did not fit into memory.",
            "Bps",
            PanelQuery(rate("spark_executor_shufflebyteswritten_total"), "shuffled"),
            PanelQuery(rate("spark_executor_diskbytesspilled_total"), "spilled"),
        ),
        timeseries(
            "Listener events",
            "Events that wait for their listeners, and lost events per second. Lost events make Spark's own figures wrong.",
            "short",
            PanelQuery(total("spark_driver_livelistenerbus_queue_size", "queue"), "{{queue}} waiting"),
            PanelQuery(
                rate("spark_driver_livelistenerbus_numdroppedevents_total", "queue"), "{{queue}} lost per second"
            ),
        ),
    ]
