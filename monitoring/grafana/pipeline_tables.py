"""Panels of the tables, of the devices, and of the monitoring itself."""

from typing import Final

from monitoring.grafana.panel import Panel, PanelQuery, stat, timeseries
from monitoring.grafana.promql import age, growth, mean, rate, select, total

__all__ = ["device_panels", "monitor_panels", "table_panels"]

_TABLE: Final = 'table=~"$table"'
_LEDGER: Final = "tidegate_ledger_messages"


def table_panels() -> list[Panel]:
    """Return the panels of freshness, files, size and maintenance."""
    name = "{{table}}"
    return [
        timeseries(
            "Time since the last commit",
            "Time since each table was written. A table without new data is not late.",
            "s",
            PanelQuery(age("tidegate_table_last_commit_timestamp_seconds", "table", _TABLE), name),
        ),
        timeseries(
            "Files",
            "Data files of the newest version, and small files that wait to be joined.",
            "short",
            PanelQuery(total("tidegate_table_files", "table", _TABLE), name),
            PanelQuery(total("tidegate_table_small_files", "table", _TABLE), "{{table}} small"),
        ),
        timeseries(
            "Size",
            "Size of the data files of the newest version. Files of older versions stay on disk until vacuum.",
            "bytes",
            PanelQuery(total("tidegate_table_size_bytes", "table", _TABLE), name),
        ),
        timeseries(
            "Table load time",
            "Time to open the table: its log is read up to the newest version.",
            "s",
            PanelQuery(total("tidegate_table_snapshot_load_seconds", "table", _TABLE, how="max"), name),
        ),
        timeseries(
            "Time since complete maintenance",
            "Time since all due maintenance of the table was done. After some minutes it is overdue.",
            "s",
            PanelQuery(age("tidegate_table_maintained_timestamp_seconds", "table", _TABLE), name),
        ),
        timeseries(
            "Days until the disk is full",
            "At the pace of the last hours. No line if the used space does not grow.",
            "d",
            PanelQuery(total("tidegate_table_disk_full_days", "mountpoint", how="min"), "{{mountpoint}}"),
        ),
    ]


def device_panels() -> list[Panel]:
    """Return panels of counts only: the table `devices` names the devices, never a label."""
    return [
        timeseries(
            "Devices",
            "Devices ever heard; those that can count as silent; heard within the hour; silent by their learned interval; with a "
            "clock off by a minute; rejected within the hour for a reason that they did not have in the day before.",
            "short",
            PanelQuery(total("tidegate_devices_known", how="max"), "known"),
            PanelQuery(total("tidegate_devices_heard", how="max"), "may be silent"),
            PanelQuery(total("tidegate_devices_active", how="max"), "active"),
            PanelQuery(total("tidegate_devices_silent", how="max"), "silent"),
            PanelQuery(total("tidegate_devices_skewed", how="max"), "clock off"),
            PanelQuery(total("tidegate_devices_newly_refused", how="max"), "newly rejected"),
        ),
        timeseries(
            "Ledger of the last settled hour",
            "Outcomes of the messages in the ledger.",
            "short",
            PanelQuery(total(_LEDGER, "outcome", how="max"), "{{outcome}}"),
        ),
        timeseries(
            "Gaps and late messages",
            "Messages missing between sequence numbers, and stored messages that were late, in the last hour.",
            "short",
            PanelQuery(total("tidegate_ledger_gap_messages", how="max"), "missing"),
            PanelQuery(total("tidegate_ledger_late_messages", how="max"), "late"),
        ),
        timeseries(
            "Audit",
            "Messages that the last audit checked, and errors that the audit or the ledger found. Every error count must be 0.",
            "short",
            PanelQuery(total("tidegate_audit_messages", how="max"), "messages checked"),
            PanelQuery(total("tidegate_audit_unaccounted_messages", how="max"), "lost"),
            PanelQuery(total("tidegate_audit_duplicate_rows", how="max"), "duplicate rows"),
            PanelQuery(total("tidegate_audit_order_violations", how="max"), "out of order"),
            PanelQuery(total("tidegate_ledger_unaccounted_messages", how="max"), "unaccounted in the ledger"),
        ),
        stat(
            "Audit duration",
            "Duration of the last audit, and the receive time that audits left out because outages were too long.",
            "s",
            PanelQuery(total("tidegate_audit_duration_seconds", how="max"), "duration"),
            PanelQuery(growth("tidegate_audit_skipped_seconds_total", window="$__range"), "left out"),
            height=8,
        ),
        stat(
            "Certificates expire in",
            "Time until the certificate that a server presents expires. Empty without TLS.",
            "s",
            PanelQuery(
                f"min by (server) ({select('tidegate_certificate_expiry_timestamp_seconds')}) - time()", "{{server}}"
            ),
            height=8,
            steps=[(None, "red"), (7 * 86400, "orange"), (30 * 86400, "green")],
        ),
    ]


def monitor_panels() -> list[Panel]:
    """Return the panels of the cost and the health of monitoring."""
    return [
        timeseries(
            "Probe duration",
            "Mean duration of one check, by probe.",
            "s",
            PanelQuery(mean("tidegate_monitor_probe_duration_seconds", "probe"), "{{probe}}"),
        ),
        timeseries(
            "Probe failures",
            "Failed checks by probe. The figures of a probe are missing until a check succeeds again.",
            "ops",
            PanelQuery(rate("tidegate_monitor_probe_failures_total", "probe"), "{{probe}}"),
        ),
        timeseries(
            "Page",
            "Browsers that show the page, and HTTP answers per second by status code.",
            "short",
            PanelQuery(total("tidegate_monitor_page_viewers"), "browsers"),
            PanelQuery(rate("tidegate_monitor_page_requests_total", "code"), "{{code}} per second"),
        ),
        timeseries(
            "Versions",
            "Instances by part and version. Two versions of one part mean an unfinished upgrade.",
            "short",
            PanelQuery(total("tidegate_build_info", "part, version"), "{{part}} {{version}}"),
        ),
        timeseries(
            "JMX scrape",
            "Time that the agent of each JVM took to read its beans.",
            "s",
            PanelQuery(total("jmx_scrape_duration_seconds", "job", how="max"), "{{job}}"),
        ),
        timeseries(
            "JMX errors",
            "1 if the agent could not read its beans.",
            "short",
            PanelQuery(total("jmx_scrape_error", "job", how="max"), "{{job}}"),
        ),
    ]
