"""Alerts on the tables and on the disk under them."""

from typing import Final

from monitoring.alerts.model import Alert, Severity, Unit
from monitoring.alerts.operands import Age, Difference, Quotient, Sum, select
from monitoring.alerts.signals import Compare, Signal

__all__ = ["TABLES", "disk_alerts"]

GIB: Final = 1024**3
_OVERDUE: Final = Difference(
    Age(select("tidegate_rollup_watermark_timestamp_seconds")), select("tidegate_rollup_watermark_bound_seconds")
)

TABLES: Final = (
    Alert(
        name="TidegateLateRatio",
        part="tables",
        severity="warning",
        signal=Compare(
            Quotient(
                Sum(select("tidegate_ledger_late_messages")),
                Sum(select("tidegate_ledger_messages", outcome="stored"), ("outcome",)),
                minimum=300,
            ),
            ">",
            0.05,
        ),
        for_seconds=120,
        unit="ratio",
        summary="More than one stored message in twenty was late",
        text="{value} of the messages stored in the last hour held a reading that was older than "
        "`stream.watermark_delay_seconds` when received.",
        impact="Final windows are corrected afterwards. A program that read them before has other figures.",
        causes=(
            "Devices keep readings while they are offline and send them later.",
            "Clocks of devices run behind.",
            "`stream.watermark_delay_seconds` is shorter than the fleet's usual delay.",
        ),
        actions=(
            '`tidegate sql "SELECT device, sum(late) FROM ledger WHERE minute > now() - INTERVAL 1 HOUR GROUP BY device '
            'ORDER BY 2 DESC LIMIT 10"`: find the devices.',
            '`tidegate sql "SELECT device, clock_skew_ms FROM devices ORDER BY clock_skew_ms LIMIT 10"`: '
            "find clocks that are behind.",
            "Raise `stream.watermark_delay_seconds` if such delays are normal here.",
        ),
    ),
    Alert(
        name="TidegateWatermarkOld",
        part="tables",
        severity="warning",
        signal=Compare(_OVERDUE, ">", 900),
        for_seconds=120,
        unit="seconds",
        summary="Rollups do not become final",
        text="The rollups' watermark is {value} older than the settings allow.",
        impact="Windows stay open. Reports that wait for `is_final` are delayed.",
        causes=(
            "The background task that calculates rollups fails, or is too slow for the incoming readings.",
            "The stream is catching up with a backlog.",
        ),
        actions=(
            "`tidegate status`: if there is lag, the stream is catching up.",
            "`tidegate logs stream -n 200`: find errors and durations of the background task `derive`.",
            "`tidegate repair`: with the stream stopped, find a damaged rollup table. `--apply` lets the stream rebuild it.",
        ),
        follows=("TidegateKafkaUnreachable", "TidegateStreamStalled", "TidegateChoreFails"),
    ),
    Alert(
        name="TidegateMaintenanceOverdue",
        part="tables",
        severity="warning",
        signal=Compare(Age(select("tidegate_table_maintained_timestamp_seconds")), ">", 3600),
        for_seconds=300,
        unit="seconds",
        summary="A table waits for its maintenance",
        text="Due maintenance of the table {table} has been waiting for {value}.",
        impact="Small files accumulate: queries and commits become slower, and the disk fills.",
        causes=(
            "More files come in than a pass can join in its short time: the landing is too busy, or reads a backlog.",
            "The thread of the background tasks hangs, or another task (a long correction, a rewind) uses it.",
            "Maintenance of this table fails, but too rarely for TidegateChoreFails.",
        ),
        actions=(
            "`tidegate tables ls`: check files and small files per table.",
            "`tidegate maintain --dry-run`: list what is due.",
            "`tidegate logs stream -n 200`: find out why it was postponed or failed.",
            "`tidegate maintain --full`: do it now, at a quiet hour.",
        ),
        follows=("TidegateChoreFails",),
    ),
)


def _disk(severity: Severity, signal: Signal, seconds: int, unit: Unit, text: str) -> Alert:
    return Alert(
        name="TidegateDiskFull",
        part="tables",
        severity=severity,
        signal=signal,
        for_seconds=seconds,
        unit=unit,
        summary="The disk is full, or will be soon",
        text=text,
        labels=(("by", "forecast" if unit == "days" else "space"),),
        impact="If the disk is full, Kafka stops, the gateway acknowledges nothing, and tables get no rows. Stored data is safe.",
        causes=(
            "More data than planned, or a retention that is too long for the disk.",
            "Maintenance is overdue: old versions were not deleted.",
            "Another program fills the disk.",
        ),
        actions=(
            "`tidegate status` and `du -sh tidegate-data/*`: find what uses the space.",
            "`tidegate maintain --keep-hours 1 --dry-run`: show the size of old files. Without `--dry-run` it deletes them.",
            "`tidegate topics ls`: show Kafka's topics. `tidegate topics set TOPIC --retention-bytes 128MiB` shrinks one.",
            "Lower `lake.readings_days` and `kafka.retention_bytes` for the future, or move the folder to a larger disk.",
            "When there is room again: `tidegate status` until it is ready, then `tidegate audit --since 1h`.",
        ),
    )


def disk_alerts() -> tuple[Alert, ...]:
    """Return the alerts by free space and by forecast."""
    free, days = select("node_filesystem_avail_bytes", job="tidegate-monitor"), select("tidegate_table_disk_full_days")
    now, soon = (
        "Only {value} are free on {mountpoint}.",
        "At the pace of the last hours the disk of {mountpoint} will be full in {value} days.",
    )
    return (
        _disk("critical", Compare(free, "<", GIB), 30, "bytes", now),
        _disk("warning", Compare(free, "<", 5 * GIB), 300, "bytes", now),
        _disk("critical", Compare(days, "<", 0.25), 900, "days", soon),
        _disk("warning", Compare(days, "<", 3), 1800, "days", soon),
    )
