"""Panels of the stream: batches, commits, what it drops, what it derives, and streams written in SQL."""

from typing import Final

from monitoring.grafana.fleet import fleet_rate
from monitoring.grafana.panel import Panel, Query, timeseries
from monitoring.grafana.promql import age, growth, mean, quantile, rate, total

__all__ = ["derived_panels", "sql_panels", "stream_panels"]

_SHARES: Final = (0.5, 0.95, 0.99)
_STREAM: Final = 'stream=~"$stream"'
_TABLE: Final = 'table=~"$table"'


def stream_panels() -> list[Panel]:
    """From Kafka to committed rows."""
    batch = "tidegate_stream_batch_duration_seconds"
    commit = "tidegate_stream_commit_duration_seconds"
    return [
        timeseries(
            "Behind Kafka",
            "Records in Kafka that are not yet committed, as the stream itself knows; it says nothing while it is down.",
            "short",
            Query(total("tidegate_stream_offsets_behind", "query, topic"), "{{query}} {{topic}}"),
        ),
        timeseries(
            "Unread by group",
            "The same as Kafka knows it: it grows while the stream is down.",
            "short",
            Query(total("kafka_consumergroup_lag", "consumergroup, topic"), "{{consumergroup}} {{topic}}"),
        ),
        timeseries(
            "Unread in time",
            "Age of the oldest record that is not yet read, by Kafka's clock.",
            "s",
            Query(
                total("tidegate_kafka_lag_seconds", "consumergroup, topic", how="max"), "{{consumergroup}} {{topic}}"
            ),
        ),
        timeseries(
            "Batch duration",
            "One micro-batch, trigger to done.",
            "s",
            *(Query(quantile(share, batch), f"p{share * 100:g}") for share in _SHARES),
        ),
        timeseries(
            "Time spent in phases",
            "Share of the time that Spark spends in each phase of its batches, in its own words; near 1 together it is busy.",
            "percentunit",
            Query(rate("tidegate_stream_phase_seconds_total", "phase", 'phase!="triggerExecution"'), "{{phase}}"),
            stacked=True,
        ),
        timeseries(
            "Records in and worked off",
            "Records that arrived per second before the newest batch, and that it worked off per second; 0 while idle.",
            "cps",
            Query(total("tidegate_stream_input_rows_per_second", "query"), "{{query}} in"),
            Query(total("tidegate_stream_processed_rows_per_second", "query"), "{{query}} worked off"),
        ),
        timeseries(
            "Commit duration by table",
            "Mean of one table's write and commit.",
            "s",
            Query(mean(commit, "table", _TABLE), "{{table}}"),
        ),
        timeseries(
            "Rows committed",
            "By table; the canary's rows are in it.",
            "cps",
            Query(rate("tidegate_stream_rows_total", "table", _TABLE), "{{table}}"),
        ),
        timeseries(
            "Rows of the fleet",
            "Rows committed to readings without the canary's.",
            "cps",
            Query(
                fleet_rate("tidegate_stream_rows_total", 'table="readings"', canary="tidegate_canary_seen_total"),
                "rows",
            ),
        ),
        timeseries(
            "Duplicates and conflicts",
            "Rows dropped because their identity is stored; rows refused uncompared; records refused that contradict it.",
            "cps",
            Query(rate("tidegate_stream_duplicate_rows_total"), "duplicates"),
            Query(rate("tidegate_stream_duplicate_rows_unchecked_total"), "not compared"),
            Query(rate("tidegate_stream_conflicting_duplicates_total"), "conflicts"),
        ),
        timeseries(
            "Identities held",
            "Identities that redeliveries are recognised by: ranges of counters, and points (all other ids) of the horizon.",
            "short",
            Query(total("tidegate_stream_identities", "kind"), "{{kind}}"),
        ),
        timeseries(
            "Identities against their limit",
            "Past the limit the oldest are forgotten, and a copy that comes very late is stored twice.",
            "percentunit",
            Query(total("tidegate_stream_identities_fill_ratio", "kind", how="max"), "{{kind}}"),
        ),
        timeseries(
            "Identities forgotten",
            "Identities forgotten because the limit of their kind was reached.",
            "cps",
            Query(rate("tidegate_stream_identities_evicted_total", "kind"), "{{kind}}"),
        ),
        timeseries(
            "Late rows",
            "Rows of readings older than the watermark's delay when the gateway received them; all are stored.",
            "cps",
            Query(rate("tidegate_stream_late_rows_total"), "late"),
        ),
        timeseries(
            "Since the last batch",
            "How long ago the newest batch ended; it grows where the stream stands still, and where nothing comes in.",
            "s",
            Query(age("tidegate_stream_last_batch_timestamp_seconds", "query"), "{{query}}"),
        ),
        timeseries(
            "Restarts and poison",
            "Query restarts after a passing fault, and records in the outcomes topic that are no outcomes.",
            "short",
            Query(growth("tidegate_stream_query_restarts_total"), "restarts"),
            Query(growth("tidegate_stream_poison_outcomes_total"), "poison outcomes"),
        ),
    ]


def derived_panels() -> list[Panel]:
    """Rollups, and what the writing process does beside landing."""
    return [
        timeseries(
            "Rollup age",
            "How far the rollups' watermark and their newest reading are behind now; the watermark waits for late readings.",
            "s",
            Query(age("tidegate_rollup_watermark_timestamp_seconds"), "watermark"),
            Query(total("tidegate_rollup_watermark_bound_seconds", how="max"), "watermark by the settings"),
            Query(age("tidegate_rollup_newest_reading_timestamp_seconds"), "newest reading"),
        ),
        timeseries(
            "Windows written",
            "Windows that were new, changed or became final; and those corrected after they were final.",
            "cps",
            Query(rate("tidegate_rollup_windows_written_total", "table", _TABLE), "{{table}}"),
            Query(rate("tidegate_rollup_corrections_total", "table", _TABLE), "{{table}} corrected"),
        ),
        timeseries(
            "Chore duration",
            "Mean run of what the writing process does beside landing.",
            "s",
            Query(mean("tidegate_stream_chore_duration_seconds", "chore"), "{{chore}}"),
        ),
        timeseries(
            "Time spent on chores",
            "Share of the time that the chores' thread works, by chore; near 1 together they fall behind.",
            "percentunit",
            Query(rate("tidegate_stream_chore_duration_seconds_sum", "chore"), "{{chore}}"),
            stacked=True,
        ),
        timeseries(
            "Chores that failed",
            "Runs that failed and are tried again.",
            "short",
            Query(growth("tidegate_stream_chore_failures_total", "chore"), "{{chore}}"),
        ),
    ]


def sql_panels() -> list[Panel]:
    """One series per applied stream; empty where none is applied."""
    name = "{{stream}}"
    return [
        timeseries(
            "SQL streams behind",
            "Records that each SQL-defined stream has not read yet.",
            "short",
            Query(total("tidegate_stream_sql_offsets_behind", "stream", _STREAM), name),
        ),
        timeseries(
            "SQL streams' rows",
            "Rows committed, and rows that came after the watermark and were dropped.",
            "cps",
            Query(rate("tidegate_stream_sql_rows_total", "stream", _STREAM), name),
            Query(rate("tidegate_stream_sql_late_rows_total", "stream", _STREAM), "{{stream}} late"),
        ),
        timeseries(
            "SQL streams' faults",
            "Times that a stream ended by a fault.",
            "short",
            Query(growth("tidegate_stream_sql_errors_total", "stream", _STREAM), name),
        ),
        timeseries(
            "SQL streams' last batch",
            "How long ago each stream finished a batch.",
            "s",
            Query(age("tidegate_stream_sql_last_commit_timestamp_seconds", "stream", _STREAM), name),
        ),
    ]
