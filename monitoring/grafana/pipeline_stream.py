"""Panels of the stream: batches, commits, dropped rows, derived tables, and SQL-defined streams."""

from typing import Final

from monitoring.grafana.fleet_rate import fleet_rate
from monitoring.grafana.panel import Panel, PanelQuery, timeseries
from monitoring.grafana.promql import age, growth, mean, quantile, rate, total

__all__ = ["derived_panels", "sql_panels", "stream_panels"]

_SHARES: Final = (0.5, 0.95, 0.99)
_STREAM: Final = 'stream=~"$stream"'
_TABLE: Final = 'table=~"$table"'


def stream_panels() -> list[Panel]:
    """Return the panels from Kafka to committed rows."""
    batch = "tidegate_stream_batch_duration_seconds"
    commit = "tidegate_stream_commit_duration_seconds"
    return [
        timeseries(
            "Records not committed",
            "Records in Kafka that are not committed yet, as the stream reports it. No line while the stream is down.",
            "short",
            PanelQuery(total("tidegate_stream_offsets_behind", "query, topic"), "{{query}} {{topic}}"),
        ),
        timeseries(
            "Unread by group",
            "The same, as Kafka reports it. It grows while the stream is down.",
            "short",
            PanelQuery(total("kafka_consumergroup_lag", "consumergroup, topic"), "{{consumergroup}} {{topic}}"),
        ),
        timeseries(
            "Age of the oldest unread record",
            "Age by Kafka's clock.",
            "s",
            PanelQuery(
                total("tidegate_kafka_lag_seconds", "consumergroup, topic", how="max"), "{{consumergroup}} {{topic}}"
            ),
        ),
        timeseries(
            "Batch duration",
            "Duration of one micro-batch, from its trigger to its end.",
            "s",
            *(PanelQuery(quantile(share, batch), f"p{share * 100:g}") for share in _SHARES),
        ),
        timeseries(
            "Time spent in phases",
            "Share of the time that Spark spends in each phase of its batches, by Spark's names. A sum near 1 means fully busy.",
            "percentunit",
            PanelQuery(rate("tidegate_stream_phase_seconds_total", "phase", 'phase!="triggerExecution"'), "{{phase}}"),
            stacked=True,
        ),
        timeseries(
            "Records in and processed",
            "Records per second that arrived before the newest batch, and that it processed. 0 while idle.",
            "cps",
            PanelQuery(total("tidegate_stream_input_rows_per_second", "query"), "{{query}} in"),
            PanelQuery(total("tidegate_stream_processed_rows_per_second", "query"), "{{query}} processed"),
        ),
        timeseries(
            "Commit duration by table",
            "Mean duration of write and commit, by table.",
            "s",
            PanelQuery(mean(commit, "table", _TABLE), "{{table}}"),
        ),
        timeseries(
            "Rows committed",
            "Rows by table, including the canary's rows.",
            "cps",
            PanelQuery(rate("tidegate_stream_rows_total", "table", _TABLE), "{{table}}"),
        ),
        timeseries(
            "Rows of the fleet",
            "Rows committed to readings without the canary's.",
            "cps",
            PanelQuery(
                fleet_rate("tidegate_stream_rows_total", 'table="readings"', canary="tidegate_canary_seen_total"),
                "rows",
            ),
        ),
        timeseries(
            "Duplicates and conflicts",
            "Rows dropped because they are stored already; rows rejected without a comparison; records rejected as conflicts.",
            "cps",
            PanelQuery(rate("tidegate_stream_duplicate_rows_total"), "duplicates"),
            PanelQuery(rate("tidegate_stream_duplicate_rows_unchecked_total"), "not compared"),
            PanelQuery(rate("tidegate_stream_conflicting_duplicates_total"), "conflicts"),
        ),
        timeseries(
            "Identities held",
            "Identities kept to recognise redeliveries: ranges of counters, and points (all other ids) of the horizon.",
            "short",
            PanelQuery(total("tidegate_stream_identities", "kind"), "{{kind}}"),
        ),
        timeseries(
            "Identities against their limit",
            "Above the limit the oldest are forgotten, and a duplicate that comes very late is stored twice.",
            "percentunit",
            PanelQuery(total("tidegate_stream_identities_fill_ratio", "kind", how="max"), "{{kind}}"),
        ),
        timeseries(
            "Identities forgotten",
            "Identities forgotten because the limit of their kind was reached.",
            "cps",
            PanelQuery(rate("tidegate_stream_identities_evicted_total", "kind"), "{{kind}}"),
        ),
        timeseries(
            "Late rows",
            "Rows of readings that were older than the watermark's delay when the gateway received them. All are stored.",
            "cps",
            PanelQuery(rate("tidegate_stream_late_rows_total"), "late"),
        ),
        timeseries(
            "Time since the last batch",
            "Time since the newest batch ended. It grows if the stream hangs, and if nothing comes in.",
            "s",
            PanelQuery(age("tidegate_stream_last_batch_timestamp_seconds", "query"), "{{query}}"),
        ),
        timeseries(
            "Restarts and invalid outcomes",
            "Query restarts after a temporary error, and records in the outcomes topic that are not outcomes.",
            "short",
            PanelQuery(growth("tidegate_stream_query_restarts_total"), "restarts"),
            PanelQuery(growth("tidegate_stream_poison_outcomes_total"), "invalid outcomes"),
        ),
    ]


def derived_panels() -> list[Panel]:
    """Return the panels of rollups and of the background tasks of the writing process."""
    return [
        timeseries(
            "Rollup age",
            "Age of the rollups' watermark and of their newest reading. The watermark waits for late readings.",
            "s",
            PanelQuery(age("tidegate_rollup_watermark_timestamp_seconds"), "watermark"),
            PanelQuery(total("tidegate_rollup_watermark_bound_seconds", how="max"), "watermark limit by the settings"),
            PanelQuery(age("tidegate_rollup_newest_reading_timestamp_seconds"), "newest reading"),
        ),
        timeseries(
            "Windows written",
            "Windows that were new, changed or became final, and windows corrected after they were final.",
            "cps",
            PanelQuery(rate("tidegate_rollup_windows_written_total", "table", _TABLE), "{{table}}"),
            PanelQuery(rate("tidegate_rollup_corrections_total", "table", _TABLE), "{{table}} corrected"),
        ),
        timeseries(
            "Background task duration",
            "Mean duration of one run, by task.",
            "s",
            PanelQuery(mean("tidegate_stream_chore_duration_seconds", "chore"), "{{chore}}"),
        ),
        timeseries(
            "Time spent on background tasks",
            "Share of the time that the thread of the background tasks is busy, by task. With a sum near 1 they fall behind.",
            "percentunit",
            PanelQuery(rate("tidegate_stream_chore_duration_seconds_sum", "chore"), "{{chore}}"),
            stacked=True,
        ),
        timeseries(
            "Failed background tasks",
            "Runs that failed. They are tried again.",
            "short",
            PanelQuery(growth("tidegate_stream_chore_failures_total", "chore"), "{{chore}}"),
        ),
    ]


def sql_panels() -> list[Panel]:
    """Return the panels with one series per applied stream; empty if none is applied."""
    name = "{{stream}}"
    return [
        timeseries(
            "SQL stream lag",
            "Records that each SQL-defined stream has not read yet.",
            "short",
            PanelQuery(total("tidegate_stream_sql_offsets_behind", "stream", _STREAM), name),
        ),
        timeseries(
            "SQL stream rows",
            "Rows committed, and rows that came after the watermark and were dropped.",
            "cps",
            PanelQuery(rate("tidegate_stream_sql_rows_total", "stream", _STREAM), name),
            PanelQuery(rate("tidegate_stream_sql_late_rows_total", "stream", _STREAM), "{{stream}} late"),
        ),
        timeseries(
            "SQL stream errors",
            "How often each stream ended with an error.",
            "short",
            PanelQuery(growth("tidegate_stream_sql_errors_total", "stream", _STREAM), name),
        ),
        timeseries(
            "SQL stream last batch",
            "Time since each stream finished a batch.",
            "s",
            PanelQuery(age("tidegate_stream_sql_last_commit_timestamp_seconds", "stream", _STREAM), name),
        ),
    ]
