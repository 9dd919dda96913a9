"""Alerts on findings of the running audit and the ledger, and on an audit that does not run."""

from monitoring.alerts.model import Alert
from monitoring.alerts.operands import Age, select
from monitoring.alerts.signals import Compare, Either, Unless

__all__ = ["proof_alerts"]


def _proof(name: str, metric: str, *, summary: str, text: str, impact: str) -> Alert:
    return Alert(
        name=name,
        part="tables",
        severity="critical",
        signal=Compare(select(metric), ">", 0),
        summary=summary,
        text=text,
        impact=impact,
        causes=(
            "Data files or commits were removed or changed by hand, or a disk lost them.",
            "Kafka deleted records before they were stored.",
            "A bug in Tidegate: please report it with the audit's answer.",
        ),
        actions=(
            "`tidegate audit --since 1h --json`: show the balance, and examples with topic, partition and offset. "
            "`audit.notes` of `tidegate status --json` say how far back it must reach.",
            "`tidegate repair`: with the stream stopped, find files that are gone and records that Kafka deleted.",
            "`tidegate tables history readings`: find who committed what, and when.",
            "Keep the data folder and the logs as they are until the cause is known. See `tidegate logs stream -n 500`.",
            "The alert ends when an audit that reaches back to the finding finds nothing. If that is not possible any more, "
            "`tidegate audit --accept` ends it and keeps a report.",
        ),
    )


def proof_alerts(audit_seconds: float) -> tuple[Alert, ...]:
    """Return the alerts on findings, and on a missing audit. `audit_seconds` 0 means that no audit is wanted."""
    found = _what_the_audit_says()
    found = (*found, _ledger_unaccounted())
    return (*found, _audit_old(3 * audit_seconds + 600)) if audit_seconds else found


def _what_the_audit_says() -> tuple[Alert, ...]:
    return (
        _proof(
            "TidegateUnaccounted",
            "tidegate_audit_unaccounted_messages",
            summary="Acknowledged messages are missing",
            text="{value} acknowledged messages are missing: no table, dead letter or count has them.",
            impact="Data that was acknowledged to a device is lost, or is not where it should be.",
        ),
        _proof(
            "TidegateDuplicateRows",
            "tidegate_audit_duplicate_rows",
            summary="Rows are stored twice",
            text="{value} rows are stored twice.",
            impact="Sums and counts over these readings are too large.",
        ),
        _proof(
            "TidegateOrderViolations",
            "tidegate_audit_order_violations",
            summary="Readings of a device are out of order in Kafka",
            text="{value} readings are before an older one of the same device in their topic.",
            impact="Consumers that rely on the order per device (state machines, counters) may be wrong.",
        ),
    )


def _ledger_unaccounted() -> Alert:
    return Alert(
        name="TidegateLedgerUnaccounted",
        part="tables",
        severity="critical",
        signal=Compare(select("tidegate_ledger_unaccounted_messages"), ">", 0),
        for_seconds=60,
        summary="The ledger does not balance",
        text="{value} messages are missing or stored too often, in minutes that the ledger settled in the last 24 hours.",
        impact="Data that was acknowledged to a device is lost, or counts twice in sums.",
        causes=(
            "Data files or commits were removed or changed by hand, or a disk lost them.",
            "A person accepted a loss: `tidegate repair --accept-loss` or `--drop-missing-files`.",
            "Kafka deleted records before they were stored, or outcomes before the ledger read them.",
            "An older gateway takes messages of several devices, but does not count the other devices of a message.",
            "A bug in Tidegate: please report it with the audit's answer.",
        ),
        actions=(
            '`tidegate sql "SELECT device, minute, received, stored, dead_lettered, ignored, duplicate, unaccounted FROM ledger '
            'WHERE unaccounted <> 0 ORDER BY minute DESC LIMIT 20"`: list the devices and minutes. Above 0 messages are '
            "missing, below 0 more is stored than was received.",
            "`tidegate audit --since 1h`: prove it from Kafka, with topic, partition and offset.",
            "`tidegate repair`: with the stream stopped, find files that are gone and records that Kafka deleted.",
            "Keep the data folder and the logs as they are until the cause is known.",
        ),
    )


def _audit_old(seconds: float) -> Alert:
    ended, started = (
        select("tidegate_audit_timestamp_seconds"),
        select("process_start_time_seconds", job="tidegate-monitor"),
    )
    never = Unless(Compare(Age(started), ">", seconds), Compare(ended, ">", 0), on=("job",))
    return Alert(
        name="TidegateAuditOld",
        part="tables",
        severity="warning",
        signal=Either(Compare(Age(ended), ">", seconds), never),
        for_seconds=60,
        unit="seconds",
        summary="The balance has not been proven for a long time",
        text="No audit has finished for {value}.",
        impact="A loss would not be noticed. No loss is known.",
        causes=("Kafka does not answer.", "The audit takes longer than its period: too much to read."),
        actions=(
            "`tidegate audit --since 10m`: check whether it works by hand, and how long it takes.",
            "`tidegate logs monitor -n 100`: find out why the monitor's audits fail.",
            "Raise `monitoring.audit_seconds` if the machine is too small for it.",
        ),
        follows=("TidegateKafkaUnreachable",),
    )
