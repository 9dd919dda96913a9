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
        summary="More than one stored message in twenty came late",
        text="{value} of the messages stored in the last hour held a reading older than the allowed lateness.",
        impact="Final windows are corrected afterwards: who read them early has other figures.",
        causes=(
            "Devices keep readings while they are offline and send them later.",
            "Clocks of devices run behind.",
            "`stream.watermark_delay_seconds` is shorter than the fleet's usual delay.",
        ),
        actions=(
            '`tidegate sql "SELECT device, sum(late) FROM ledger WHERE minute > now() - INTERVAL 1 HOUR GROUP BY device '
            'ORDER BY 2 DESC LIMIT 10"`: whose are they?',
            '`tidegate sql "SELECT device, clock_skew_ms FROM devices ORDER BY clock_skew_ms LIMIT 10"`: clocks behind.',
            "Raise `stream.watermark_delay_seconds` where such delays are normal here.",
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
        text="The rollups' watermark is {value} older than the settings make it.",
        impact="Windows stay open; reports that wait for `is_final` wait on.",
        causes=(
            "The chore that makes rollups fails or is slower than what comes in.",
            "The stream catches up a backlog.",
        ),
        actions=(
            "`tidegate status`: is there lag? Then it is catching up.",
            "`tidegate logs stream -n 200`: faults and durations of the chore `derive`.",
            "`tidegate repair`: with the stream stopped, finds a damaged rollup table; it is then made anew.",
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
        text="What is due to the table {table} has been waiting for {value}.",
        impact="Small files pile up: queries and commits become slower, the disk fuller.",
        causes=(
            "More files come in than the short time of a pass joins: landing is too busy, or a backlog is worked off.",
            "The chores' thread hangs, or another chore (a long correction, a rewind) holds it for so long.",
            "Maintenance of this table fails, too seldom for TidegateChoreFails.",
        ),
        actions=(
            "`tidegate tables ls`: files and small files per table.",
            "`tidegate maintain --dry-run`: what is due.",
            "`tidegate logs stream -n 200`: why it was put off or failed.",
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
        impact="On a full disk Kafka stops, the gateway acknowledges nothing, and tables stand still. Nothing stored is lost.",
        causes=(
            "More data than planned for, or retention longer than the disk.",
            "Maintenance is overdue: old versions were not deleted.",
            "Something else fills the disk.",
        ),
        actions=(
            "`tidegate status` and `du -sh tidegate-data/*`: who takes the room.",
            "`tidegate maintain --keep-hours 1 --dry-run`: what old files take; without `--dry-run` they go.",
            "`tidegate topics ls`: what Kafka's topics take; `tidegate topics set TOPIC --retention-bytes 128MiB` makes it less.",
            "Shorten `lake.readings_days` and `kafka.retention_bytes` so that it stays so, or move the folder to a larger disk.",
            "After a full disk: `tidegate status` until it is ready, then `tidegate audit --since 1h`.",
        ),
    )


def disk_alerts() -> tuple[Alert, ...]:
    """By what is free now, and by when nothing will be."""
    free, days = select("node_filesystem_avail_bytes", job="tidegate-monitor"), select("tidegate_table_disk_full_days")
    now, soon = (
        "Only {value} are free on {mountpoint}.",
        "At the pace of the last hours the disk of {mountpoint} is full in {value} days.",
    )
    return (
        _disk("critical", Compare(free, "<", GIB), 30, "bytes", now),
        _disk("warning", Compare(free, "<", 5 * GIB), 300, "bytes", now),
        _disk("critical", Compare(days, "<", 0.25), 900, "days", soon),
        _disk("warning", Compare(days, "<", 3), 1800, "days", soon),
    )
