"""Alerts on the second half of a reading's way: stream, SQL-defined streams, and the canary that goes all of it."""

from typing import Final

from monitoring.alerts.model import Alert
from monitoring.alerts.operands import Gain, Sum, select
from monitoring.alerts.signals import Compare, Happened, Unless, young

__all__ = ["CANARY", "STREAM"]

LANDING: Final = "tidegate-land"
"""The consumer group of the landing; each SQL-defined stream has one of its own."""
STREAMS: Final = "tidegate-stream-.*"
"""Those of SQL-defined streams, as a pattern; programs of other people have other names."""
_ROWS: Final = Gain(select("tidegate_stream_rows_total", table="~readings|dead_letters"), 120)

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
        summary="Nothing is committed though Kafka holds unread records",
        text="The oldest unread record of {topic} has waited {value} and no table takes rows.",
        impact="Tables stand still. Nothing is lost while Kafka keeps the records; see TidegateTimeToDataLoss.",
        causes=(
            "The stream is down or refuses to start, because something must be mended first.",
            "A batch hangs: Kafka's answer, a full disk, or a JVM short of memory.",
            "Another writer holds the tables' lock.",
        ),
        actions=(
            "`tidegate status`: state and last words of the part `stream`.",
            "`tidegate logs stream -n 100` and `tidegate logs spark -n 100`: what it waits for.",
            "`tidegate repair`: with the stream stopped, shows what is broken; `--apply` mends it.",
            "After it runs again: `tidegate audit --since 1h`.",
        ),
        follows=("TidegateKafkaUnreachable", "TidegateTargetDown/tidegate-stream"),
    ),
    Alert(
        name="TidegateStreamRestarts",
        part="stream",
        severity="warning",
        signal=Happened(select("tidegate_stream_query_restarts_total"), 900, more_than=2),
        summary="The landing query restarts again and again",
        text="The landing query was started anew {value} times within 15 minutes.",
        impact="Each restart delays readings by some seconds; nothing is lost or doubled.",
        causes=("Kafka comes and goes.", "A disk with errors, or without room.", "The JVM is short of memory."),
        actions=(
            "`tidegate logs stream -n 200`: the fault before each restart.",
            "`tidegate status`: Kafka, disk, memory.",
            "`tidegate doctor`: room and memory against what a run needs.",
        ),
        follows=("TidegateKafkaUnreachable",),
    ),
    Alert(
        name="TidegateChoreFails",
        part="stream",
        severity="warning",
        signal=Happened(select("tidegate_stream_chore_failures_total"), 900, more_than=2),
        summary="Work beside the landing fails again and again",
        text="The chore {chore} failed {value} times within 15 minutes.",
        impact="Readings land. What the chore makes (rollups, ledger, devices, small tables) grows old.",
        causes=("A derived table is damaged.", "The disk is full.", "The JVM is short of memory."),
        actions=(
            "`tidegate logs stream -n 200`: the fault, with the chore's name.",
            "`tidegate repair`: with the stream stopped, finds torn commits and files that are gone.",
            "`tidegate maintain --dry-run`: what waits to be done.",
        ),
    ),
    Alert(
        name="TidegateDuplicatesUnchecked",
        part="stream",
        severity="warning",
        signal=Happened(select("tidegate_stream_duplicate_rows_unchecked_total"), 900),
        summary="Copies could not be compared with what is stored",
        text="{value} readings under a stored identity became dead letters `unchecked_duplicate` within 15 minutes.",
        impact="Nothing is lost: each message is kept whole and can be redriven. A device may use an identity twice.",
        causes=(
            "A device repeats weeks of messages, so that the look-ups' share of time is used up.",
            "Retention, `tidegate correct --delete` or a repair deleted the rows that the copies are compared with.",
            "A device begins to count again under an old `boot`.",
        ),
        actions=(
            "`tidegate dlq ls --reason unchecked_duplicate`: which devices, since when.",
            "`tidegate dlq redrive --where \"reason = 'unchecked_duplicate'\"`: when the load is over, compares them again.",
            "`tidegate dlq show ID`: what stays refused after that has no row left to compare with.",
        ),
    ),
    Alert(
        name="TidegateIdentitiesFull",
        part="stream",
        severity="warning",
        signal=Compare(select("tidegate_stream_identities_fill_ratio"), ">", 0.8),
        unit="ratio",
        summary="The memory of identities is nearly full",
        text="Identities of the kind {kind} fill {value} of their limit.",
        impact="At the limit the oldest are forgotten: a message that comes again very late is then stored twice.",
        causes=(
            "Ranges: devices lose many messages, or `seq` jumps, so that a device needs many ranges.",
            "Ranges: `boot` is another one with each message.",
            "Points: more readings without `boot` and `seq` than the limit has room for within `stream.horizon_days`.",
        ),
        actions=(
            '`tidegate sql "SELECT device, count(DISTINCT boot) FROM readings GROUP BY 1 ORDER BY 2 DESC LIMIT 9"`: odd ones.',
            "Have devices send `boot` and `seq`: a device that counts without gaps needs one range.",
            "`stream.horizon_days`: not above the broker's session expiry and a day.",
        ),
    ),
    Alert(
        name="TidegateSqlStreamFails",
        part="stream",
        severity="warning",
        signal=Happened(select("tidegate_stream_sql_errors_total"), 900),
        summary="A SQL-defined stream ended by a fault",
        text="The stream {stream} ended by a fault {value} times within 15 minutes; it is tried again.",
        impact="Its table and topic stand still; the landing and other streams go on.",
        causes=(
            "Its SQL fails on a row, by a cast or a division.",
            "Its checkpoint does not fit its definition.",
            "The topic or table that it reads is gone.",
        ),
        actions=(
            "`tidegate streams ls`: its last error stands there.",
            "`tidegate streams test NAME`: its golden data, without touching what runs.",
            "`tidegate streams plan NAME`, then `tidegate streams apply NAME`: put the mended definition in force.",
            "`tidegate streams rewind NAME --since TIME`: make anew what was wrong.",
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
        impact="Its table and topic are old by as much; the landing and other streams go on.",
        causes=(
            "It was stopped, or its faults keep it from starting.",
            "Its SQL is slower than what comes in: many keys, long windows, large joins.",
            "Too many streams for the machine.",
        ),
        actions=(
            "`tidegate streams ls`: does it run, how far is it behind, what was its last error?",
            "`tidegate logs stream -n 200`: how long its batches take.",
            "`tidegate streams drop NAME`: where nobody needs it; else give the stream more cores (`stream.master`).",
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
                Compare(Gain(select("tidegate_canary_published_total"), 60), ">", 1),
                Happened(select("tidegate_canary_seen_total"), 60),
                on=("job", "instance"),
            ),
            young("tidegate-canary", 180),
            on=("job", "instance"),
        ),
        for_seconds=15,
        keep_firing_seconds=15,
        summary="Canary readings do not arrive",
        text="Of {value} canary readings of the last minute none can be read from the table.",
        impact="Readings of devices take the same way: they do not become queryable either.",
        causes=(
            "A part on the way is down or hangs: broker, gateway, Kafka, stream.",
            "The canary's own reader fails.",
            "A rule of the broker keeps the canary's messages out.",
        ),
        actions=(
            "`tidegate status`: which part is not ready, where lag grows.",
            "`tidegate trace --device tidegate-canary`: how far its last readings came.",
            "`tidegate logs canary -n 50`: what it says itself.",
            "If all parts are well and lag is 0: `tidegate dlq ls --where \"device = 'tidegate-canary'\"`.",
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
