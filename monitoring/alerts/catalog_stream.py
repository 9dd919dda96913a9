"""Alerts on the second half of a reading's path: stream, SQL-defined streams, and the canary for the whole path."""

from typing import Final

from monitoring.alerts.model import Alert
from monitoring.alerts.operands import Increase, Sum, select
from monitoring.alerts.signals import Compare, IncreasedWithin, Unless, started_within

__all__ = ["CANARY", "STREAM"]

LANDING: Final = "tidegate-land"
"""The consumer group of the landing; each SQL-defined stream has one of its own."""
STREAMS: Final = "tidegate-stream-.*"
"""Consumer groups of SQL-defined streams, as a pattern. Other programs have other names."""
_ROWS: Final = Increase(select("tidegate_stream_rows_total", table="~readings|dead_letters"), 120)

STREAM: Final = (
    Alert(
        name="TidegateStreamStalled",
        part="stream",
        severity="critical",
        signal=Unless(
            Compare(select("tidegate_kafka_lag_seconds", consumergroup=LANDING), ">", 60),
            Compare(Sum(_ROWS, ("*",)), ">", 0),
            on=(),
        ),
        for_seconds=90,
        unit="seconds",
        summary="The tables get no new rows, but Kafka holds unread records",
        text="The oldest unread record of {topic} has waited {value}, and no table gets new rows.",
        impact="The tables get no new rows. Nothing is lost while Kafka keeps the records: see TidegateTimeToDataLoss.",
        causes=(
            "The stream is down, or does not start because something must be repaired first.",
            "A batch hangs: Kafka does not answer, the disk is full, or the JVM is short of memory.",
            "Another writer holds the lock of the tables.",
        ),
        actions=(
            "`tidegate status`: check the state and the last message of the part `stream`.",
            "`tidegate logs stream -n 100` and `tidegate logs spark -n 100`: find out what it waits for.",
            "`tidegate repair`: with the stream stopped, show what is damaged. `--apply` repairs it.",
            "When the stream runs again: `tidegate audit --since 1h`.",
        ),
        follows=("TidegateKafkaUnreachable", "TidegateTargetDown/tidegate-stream"),
    ),
    Alert(
        name="TidegateStreamRestarts",
        part="stream",
        severity="warning",
        signal=IncreasedWithin(select("tidegate_stream_query_restarts_total"), 900, more_than=2),
        summary="The landing query restarts repeatedly",
        text="The landing query was restarted {value} times within 15 minutes.",
        impact="Each restart delays readings by some seconds. Nothing is lost or stored twice.",
        causes=("Kafka has short outages.", "The disk has errors or is full.", "The JVM is short of memory."),
        actions=(
            "`tidegate logs stream -n 200`: find the error before each restart.",
            "`tidegate status`: check Kafka, disk and memory.",
            "`tidegate doctor`: check that disk and memory are enough for a run.",
        ),
        follows=("TidegateKafkaUnreachable",),
    ),
    Alert(
        name="TidegateChoreFails",
        part="stream",
        severity="warning",
        signal=IncreasedWithin(select("tidegate_stream_chore_failures_total"), 900, more_than=2),
        summary="A background task of the stream fails repeatedly",
        text="The background task {chore} failed {value} times within 15 minutes.",
        impact="Readings land. The results of the task (rollups, ledger, devices, joined files) get out of date.",
        causes=("A derived table is damaged.", "The disk is full.", "The JVM is short of memory."),
        actions=(
            "`tidegate logs stream -n 200`: find the error, with the name of the task.",
            "`tidegate repair`: with the stream stopped, find torn commits and files that are gone.",
            "`tidegate maintain --dry-run`: list the maintenance that is due.",
        ),
    ),
    Alert(
        name="TidegateDuplicatesUnchecked",
        part="stream",
        severity="warning",
        signal=IncreasedWithin(select("tidegate_stream_duplicate_rows_unchecked_total"), 900),
        summary="Duplicates could not be compared with the stored rows",
        text="{value} readings with a stored identity became dead letters `unchecked_duplicate` within 15 minutes.",
        impact="Nothing is lost: each message is kept whole and can be redriven. A device may use an identity twice.",
        causes=(
            "A device sends weeks of messages again, so the time for lookups is used up.",
            "Retention, `tidegate correct --delete` or a repair deleted the stored rows.",
            "A device counts again under an old `boot`.",
        ),
        actions=(
            "`tidegate dlq ls --reason unchecked_duplicate`: find the devices, and when it began.",
            "`tidegate dlq redrive --where \"reason = 'unchecked_duplicate'\"`: when the load is over, compare them again.",
            "`tidegate dlq show ID`: a message that is rejected again has no stored row left to compare with.",
        ),
    ),
    Alert(
        name="TidegateIdentitiesFull",
        part="stream",
        severity="warning",
        signal=Compare(select("tidegate_stream_identities_fill_ratio"), ">", 0.8),
        unit="ratio",
        summary="The memory of identities is nearly full",
        text="The identities of the kind {kind} fill {value} of their limit.",
        impact="At the limit the oldest are forgotten. A message that is delivered again very late is then stored twice.",
        causes=(
            "Ranges: devices lose many messages, or `seq` jumps, so a device needs many ranges.",
            "Ranges: devices send a new `boot` in each message.",
            "Points: within `stream.horizon_days` more readings without `boot` and `seq` come than the limit allows.",
        ),
        actions=(
            '`tidegate sql "SELECT device, count(DISTINCT boot) FROM readings GROUP BY 1 ORDER BY 2 DESC LIMIT 9"`: '
            "find devices with many boots.",
            "Let devices send `boot` and `seq`: a device that counts without gaps needs one range.",
            "Set `stream.horizon_days` no higher than the broker's session expiry plus a day.",
        ),
    ),
    Alert(
        name="TidegateSqlStreamFails",
        part="stream",
        severity="warning",
        signal=IncreasedWithin(select("tidegate_stream_sql_errors_total"), 900),
        summary="A SQL-defined stream failed",
        text="The stream {stream} failed {value} times within 15 minutes. It is started again.",
        impact="Its table and topic get no new data. The landing and other streams continue.",
        causes=(
            "Its SQL fails on a row, in a cast or a division.",
            "Its checkpoint does not fit its definition.",
            "The topic or table that it reads does not exist any more.",
        ),
        actions=(
            "`tidegate streams ls`: read its last error.",
            "`tidegate streams test NAME`: test it with its golden data, without touching the running stream.",
            "`tidegate streams plan NAME`, then `tidegate streams apply NAME`: apply the fixed definition.",
            "`tidegate streams rewind NAME --since TIME --into shadow`, then `tidegate streams rewind NAME --swap`: recalculate "
            "wrong results.",
        ),
    ),
    Alert(
        name="TidegateSqlStreamLags",
        part="stream",
        severity="warning",
        signal=Compare(select("tidegate_kafka_lag_seconds", consumergroup=f"~{STREAMS}"), ">", 300),
        for_seconds=300,
        keep_firing_seconds=60,
        unit="seconds",
        summary="A SQL-defined stream is behind",
        text="The oldest record of {topic} that {consumergroup} has not read is {value} old.",
        impact="Its table and topic are out of date by the same time. The landing and other streams continue.",
        causes=(
            "It was stopped, or errors keep it from starting.",
            "Its SQL is too slow for the incoming records: many keys, long windows, large joins.",
            "Too many streams run on this machine.",
        ),
        actions=(
            "`tidegate streams ls`: check whether it runs, how far it is behind, and its last error.",
            "`tidegate logs stream -n 200`: check how long its batches take.",
            "`tidegate streams drop NAME`: drop it if nobody needs it. Otherwise give the stream more cores (`stream.master`).",
        ),
        follows=("TidegateKafkaUnreachable", "TidegateTargetDown/tidegate-stream", "TidegateSqlStreamFails"),
    ),
)

CANARY: Final = (
    Alert(
        name="TidegateCanaryMissing",
        part="canary",
        severity="critical",
        signal=Unless(
            Unless(
                Compare(Increase(select("tidegate_canary_published_total"), 60), ">", 1),
                IncreasedWithin(select("tidegate_canary_seen_total"), 60),
                on=("job", "instance"),
            ),
            started_within("tidegate-canary", 180),
            on=("job", "instance"),
        ),
        for_seconds=15,
        keep_firing_seconds=15,
        summary="Canary readings do not arrive",
        text="The canary published {value} readings in the last minute, and none of them is in the table.",
        impact="Readings of devices take the same path, so they do not become queryable either.",
        causes=(
            "A part on the path is down or hangs: broker, gateway, Kafka, stream.",
            "The canary cannot read the table.",
            "An access rule of the broker blocks the canary's messages.",
        ),
        actions=(
            "`tidegate status`: find the part that is not ready, or where lag grows.",
            "`tidegate trace --device tidegate-canary`: find out how far its last readings came.",
            "`tidegate logs canary -n 50`: read the canary's own log.",
            "If all parts are ready and the lag is 0: `tidegate dlq ls --where \"device = 'tidegate-canary'\"`.",
        ),
        follows=(
            "TidegateKafkaUnreachable",
            "TidegateBrokerUnreachable",
            "TidegateGatewayDisconnected",
            "TidegateStreamStalled",
            "TidegateTargetDown/tidegate-gateway",
            "TidegateTargetDown/tidegate-stream",
        ),
    ),
)
