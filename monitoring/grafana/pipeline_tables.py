"""Panels of the tables and of what they say of the devices, and of the monitoring itself."""

from typing import Final

from monitoring.grafana.panel import Panel, Query, stat, timeseries
from monitoring.grafana.promql import age, growth, mean, rate, select, total

__all__ = ["device_panels", "monitor_panels", "table_panels"]

_TABLE: Final = 'table=~"$table"'
_LEDGER: Final = "tidegate_ledger_messages"


def table_panels() -> list[Panel]:
    """Freshness, files, size, maintenance."""
    name = "{{table}}"
    return [
        timeseries(
            "Since the last commit",
            "How long ago each table was written; a table to which nothing came is not late.",
            "s",
            Query(age("tidegate_table_last_commit_timestamp_seconds", "table", _TABLE), name),
        ),
        timeseries(
            "Files",
            "Data files of the newest version, and those that wait to be joined.",
            "short",
            Query(total("tidegate_table_files", "table", _TABLE), name),
            Query(total("tidegate_table_small_files", "table", _TABLE), "{{table}} small"),
        ),
        timeseries(
            "Size",
            "Data files of the newest version; older versions stay on disk until vacuum.",
            "bytes",
            Query(total("tidegate_table_size_bytes", "table", _TABLE), name),
        ),
        timeseries(
            "Opening the table",
            "What opening takes: the log is read up to its newest version.",
            "s",
            Query(total("tidegate_table_snapshot_load_seconds", "table", _TABLE, how="max"), name),
        ),
        timeseries(
            "Since maintenance was complete",
            "How long ago all that was due to the table had been done; overdue at some minutes.",
            "s",
            Query(age("tidegate_table_maintained_timestamp_seconds", "table", _TABLE), name),
        ),
        timeseries(
            "Days until the disk is full",
            "At the pace of the last hours; no line where it does not grow.",
            "d",
            Query(total("tidegate_table_disk_full_days", "mountpoint", how="min"), "{{mountpoint}}"),
        ),
    ]


def device_panels() -> list[Panel]:
    """Counts only: which devices they are says the table `devices`, never a label."""
    return [
        timeseries(
            "Devices",
            "Ever heard; those that may be silent; heard within the hour; silent by their learned interval; clock a minute off; "
            "refused within the hour for a reason that they were not refused for in the day before.",
            "short",
            Query(total("tidegate_devices_known", how="max"), "known"),
            Query(total("tidegate_devices_heard", how="max"), "may be silent"),
            Query(total("tidegate_devices_active", how="max"), "active"),
            Query(total("tidegate_devices_silent", how="max"), "silent"),
            Query(total("tidegate_devices_skewed", how="max"), "clock off"),
            Query(total("tidegate_devices_newly_refused", how="max"), "newly refused"),
        ),
        timeseries(
            "Ledger of the last settled hour",
            "What became of each message, by the book that counts arrivals.",
            "short",
            Query(total(_LEDGER, "outcome", how="max"), "{{outcome}}"),
        ),
        timeseries(
            "Gaps and late messages",
            "Messages missing between sequence numbers, and stored ones that were late, of the last hour.",
            "short",
            Query(total("tidegate_ledger_gap_messages", how="max"), "missing"),
            Query(total("tidegate_ledger_late_messages", how="max"), "late"),
        ),
        timeseries(
            "Audit",
            "What the last audit looked at; what it or the ledger found wrong: anything but 0 is a loss, a double or a disorder.",
            "short",
            Query(total("tidegate_audit_messages", how="max"), "messages looked at"),
            Query(total("tidegate_audit_unaccounted_messages", how="max"), "lost"),
            Query(total("tidegate_audit_duplicate_rows", how="max"), "duplicate rows"),
            Query(total("tidegate_audit_order_violations", how="max"), "out of order"),
            Query(total("tidegate_ledger_unaccounted_messages", how="max"), "unaccounted in the ledger"),
        ),
        stat(
            "Audit takes",
            "How long the last audit took, and how much time of receive was left out since outages were too long.",
            "s",
            Query(total("tidegate_audit_duration_seconds", how="max"), "took"),
            Query(growth("tidegate_audit_skipped_seconds_total", window="$__range"), "left out"),
            height=8,
        ),
        stat(
            "Certificates end in",
            "Time until the certificate that a server shows ends; empty without TLS.",
            "s",
            Query(
                f"min by (server) ({select('tidegate_certificate_expiry_timestamp_seconds')}) - time()", "{{server}}"
            ),
            height=8,
            steps=[(None, "red"), (7 * 86400, "orange"), (30 * 86400, "green")],
        ),
    ]


def monitor_panels() -> list[Panel]:
    """What watching costs, and whether it works."""
    return [
        timeseries(
            "Looks of the monitor",
            "Mean duration of one look of each probe.",
            "s",
            Query(mean("tidegate_monitor_probe_duration_seconds", "probe"), "{{probe}}"),
        ),
        timeseries(
            "Looks without an answer",
            "By probe; its series end until it answers again.",
            "ops",
            Query(rate("tidegate_monitor_probe_failures_total", "probe"), "{{probe}}"),
        ),
        timeseries(
            "Page",
            "Browsers that follow the page, and its answers per second by kind.",
            "short",
            Query(total("tidegate_monitor_page_viewers"), "browsers"),
            Query(rate("tidegate_monitor_page_requests_total", "code"), "{{code}} per second"),
        ),
        timeseries(
            "Versions",
            "Instances by part and version: two versions of one part are an unfinished upgrade.",
            "short",
            Query(total("tidegate_build_info", "part, version"), "{{part}} {{version}}"),
        ),
        timeseries(
            "JMX scrape",
            "How long each JVM's agent took to read its beans.",
            "s",
            Query(total("jmx_scrape_duration_seconds", "job", how="max"), "{{job}}"),
        ),
        timeseries(
            "JMX errors",
            "1 where the agent could not read its beans.",
            "short",
            Query(total("jmx_scrape_error", "job", how="max"), "{{job}}"),
        ),
    ]
