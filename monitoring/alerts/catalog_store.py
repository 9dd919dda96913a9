"""Alerts on what is stored and on what it rests: proof, tables, disk, devices, certificates, and the monitoring itself."""

from typing import Final

from monitoring.alerts.model import Alert, Severity, Unit
from monitoring.alerts.operands import Age, Left, Operand, Quotient, Sum, select
from monitoring.alerts.signals import Both, Compare, Either, Happened, Query, Signal, Unless, young

__all__ = ["DEVICES", "MONITORING", "TABLES", "disk_alerts", "proof_alerts"]

DAY: Final = 86400
GIB: Final = 1024**3


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
            "A fault of Tidegate: please report it with the audit's answer.",
        ),
        actions=(
            "`tidegate audit --since 1h --json`: the balance, and examples with topic, partition and offset.",
            "`tidegate repair`: with the stream stopped, finds files that are gone and records that Kafka deleted.",
            "`tidegate tables history readings`: who committed what, and when.",
            "Keep the data folder and the logs as they are until it is explained; `tidegate logs stream -n 500`.",
        ),
    )


def proof_alerts(audit_seconds: float) -> tuple[Alert, ...]:
    """What the running audit says, and whether it runs; `audit_seconds` 0 means that nobody asked for it."""
    found = _what_the_audit_says()
    return (*found, _audit_old(3 * audit_seconds + 600)) if audit_seconds else found


def _what_the_audit_says() -> tuple[Alert, ...]:
    return (
        _proof(
            "TidegateUnaccounted",
            "tidegate_audit_unaccounted_messages",
            summary="Acknowledged messages are missing",
            text="{value} acknowledged messages are in no table, no dead letter and no count.",
            impact="Data that a device was told to be safe is lost, or is not where it should be.",
        ),
        _proof(
            "TidegateDuplicateRows",
            "tidegate_audit_duplicate_rows",
            summary="Rows are stored twice",
            text="{value} rows are stored twice.",
            impact="Sums and counts over the readings concerned are too large.",
        ),
        _proof(
            "TidegateOrderViolations",
            "tidegate_audit_order_violations",
            summary="Readings of a device are out of order in Kafka",
            text="{value} readings stand before an older one of the same device in their topic.",
            impact="Consumers that trust the order per device (state machines, counters) may be wrong.",
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
        summary="The balance has not been proven for long",
        text="No audit has ended for {value}.",
        impact="A loss would not be noticed. None is known.",
        causes=("Kafka does not answer.", "The audit takes longer than its period: too much to read."),
        actions=(
            "`tidegate audit --since 10m`: does it work by hand, and how long does it take?",
            "`tidegate logs monitor -n 100`: why its audits fail.",
            "Raise `monitoring.audit_seconds` where the machine is too small for it.",
        ),
        follows=("TidegateKafkaUnreachable",),
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
        signal=Compare(Age(select("tidegate_rollup_watermark_timestamp_seconds")), ">", 900),
        for_seconds=120,
        unit="seconds",
        summary="Rollups do not become final",
        text="The rollups' watermark is {value} old.",
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
            "Landing leaves no time for it.",
            "Maintenance fails, or a reader holds old files.",
            "The disk is full.",
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
            "`tidegate maintain --dry-run`: what deleting old files would free; then `tidegate maintain`.",
            "Shorten `lake.readings_days` or `kafka.retention_bytes`, or move the folder to a larger disk.",
            "After a full disk: `tidegate status` until it is ready, then `tidegate audit --since 1h`.",
        ),
    )


def disk_alerts() -> tuple[Alert, ...]:
    """By what is free now, and by when nothing will be."""
    free, days = select("node_filesystem_avail_bytes"), select("tidegate_table_disk_full_days")
    now, soon = (
        "Only {value} are free on {mountpoint}.",
        "At the pace of the last hours the tables' disk is full in {value} days.",
    )
    return (
        _disk("critical", Compare(free, "<", GIB), 30, "bytes", now),
        _disk("warning", Compare(free, "<", 5 * GIB), 300, "bytes", now),
        _disk("critical", Compare(days, "<", 0.25), 900, "days", soon),
        _disk("warning", Compare(days, "<", 3), 1800, "days", soon),
    )


def _share_silent() -> Signal:
    silent, active = Sum(select("tidegate_devices_silent")), Sum(select("tidegate_devices_active"))
    return Either(
        Compare(Quotient(silent, active, minimum=5), ">", 0.1),
        Both(Compare(silent, ">", 0), Compare(active, "==", 0), on=("job",)),
    )


def _certificate(severity: Severity, days: int) -> Alert:
    expiry: Operand = Left(select("tidegate_certificate_expiry_timestamp_seconds"))
    return Alert(
        name="TidegateCertificateExpires",
        part="broker",
        severity=severity,
        signal=Compare(expiry, "<", days * DAY),
        for_seconds=60,
        unit="seconds",
        summary=f"A server certificate ends within {days} days",
        text="The certificate of the {server} server ends in {value}.",
        impact="From then on devices, or gateway and stream, are refused or refuse to connect.",
        causes=("Nobody renewed it.", "It was renewed, but the server was not told to read it again."),
        actions=(
            "`openssl s_client -connect HOST:PORT </dev/null | openssl x509 -noout -enddate`: which one is shown now.",
            "Renew it with the same CA, or give devices the new CA before you change it.",
            "Let the server read it: restart the broker or Kafka; clients connect again by themselves.",
            "`tidegate doctor --config FILE`: do both servers answer?",
        ),
    )


DEVICES: Final = (
    Alert(
        name="TidegateDevicesSilent",
        part="devices",
        severity="warning",
        signal=_share_silent(),
        for_seconds=300,
        keep_firing_seconds=60,
        unit="ratio",
        summary="Many devices are silent",
        text="Silent against active devices: {value}. Silent means much longer than the device's own learned interval.",
        impact="Their readings are missing. One silent device is no alert: it stands on the ops page and in `devices`.",
        causes=(
            "A site lost power or its network.",
            "Credentials or a certificate of many devices ended at once.",
            "A topic or access rule of the broker was changed.",
        ),
        actions=(
            '`tidegate sql "SELECT device, last_seen, interval_learned_s FROM devices ORDER BY last_seen LIMIT 20"`: '
            "what have they in common?",
            "`tidegate logs broker -n 200`: are they refused?",
            "`tidegate device watch DEVICE`: see one live, with what is refused of it.",
            "`tidegate dlq ls`: do they send, but what nobody takes?",
        ),
        follows=(
            "TidegateBrokerUnreachable",
            "TidegateKafkaUnreachable",
            "TidegateGatewayDisconnected",
            "TidegateStreamStalled",
            "TidegateTargetDown/tidegate-gateway",
            "TidegateTargetDown/tidegate-stream",
        ),
    ),
    _certificate("critical", 2),
    _certificate("warning", 14),
)


def _target_down(severity: Severity, jobs: str, seconds: int) -> Alert:
    return Alert(
        name="TidegateTargetDown",
        part="monitor",
        severity=severity,
        signal=Unless(Compare(select("up", job=f"~tidegate-({jobs})"), "==", 0), young("tidegate-monitor", 300), on=()),
        for_seconds=seconds,
        summary="A part does not answer",
        text="{job} does not answer on its metrics address.",
        impact="The part is down, or nobody sees how it is: its alerts are silent.",
        causes=("The part is down, starts, or hangs.", "Its metrics port is taken or not reachable from here."),
        actions=(
            "`tidegate status`: state and last words of each part.",
            "`tidegate logs gateway -n 100`, or `stream`, `canary`, `kafka`, `spark`, `monitor`: its last words.",
            "`curl -s http://HOST:PORT/healthz`: what it says of itself.",
            "Start it again; the embedded parts are restarted by themselves.",
        ),
        follows=("TidegateKafkaUnreachable",) if severity == "warning" else (),
    )


MONITORING: Final = (
    Alert(
        name="TidegateWatchdog",
        part="monitor",
        severity="info",
        signal=Query("vector(1)"),
        summary="Alerts are delivered",
        text="This alert always fires. When it stops arriving, alerting itself is broken.",
        impact="None while it arrives.",
        causes=("It fires on purpose.",),
        actions=(
            "Send it to a dead man's switch that wakes somebody when it is missing.",
            "If it is missing: `tidegate status`, then Prometheus' and Alertmanager's logs.",
        ),
    ),
    _target_down("critical", "gateway|stream|monitor", 120),
    _target_down("warning", "canary|kafka|spark", 120),
    Alert(
        name="TidegateMonitorBlind",
        part="monitor",
        severity="warning",
        signal=Happened(
            select("tidegate_monitor_probe_failures_total", probe="~host|tables|certificates"), 600, more_than=10
        ),
        summary="The monitor cannot see something that alerts rest on",
        text="The probe {probe} failed {value} times within 10 minutes.",
        impact="Alerts on devices, disk or certificates are silent without being well.",
        causes=("Tables cannot be read: rights, a damaged log, an object store away.", "A server is down."),
        actions=(
            "`tidegate logs monitor -n 100`: the probe's fault.",
            "`tidegate tables ls`: can the tables be read by hand?",
            "`tidegate repair`: with the stream stopped, finds damaged tables.",
        ),
        follows=("TidegateKafkaUnreachable", "TidegateBrokerUnreachable"),
    ),
    Alert(
        name="AlertmanagerDown",
        part="monitor",
        severity="critical",
        signal=Query('up{job="alertmanager"} == 0'),
        for_seconds=60,
        summary="Alertmanager does not answer",
        text="Alertmanager does not answer: alerts fire, and nobody is told.",
        impact="Only the ops page and Prometheus show alerts.",
        causes=("It is down, or its configuration was refused at the start.",),
        actions=(
            "`tidegate status`: is the part `alertmanager` ready?",
            "`amtool check-config alertmanager.yml`: is its configuration right?",
            "`tidegate logs alertmanager -n 50`: its last words.",
        ),
    ),
)
