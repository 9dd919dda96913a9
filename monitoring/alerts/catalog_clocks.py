"""Alerts on clocks, and on what waits because a clock may be wrong."""

from typing import Final

from monitoring.alerts.model import Alert
from monitoring.alerts.operands import select
from monitoring.alerts.signals import Compare, Signal

__all__ = ["CLOCKS"]

OFF_SECONDS: Final = 60.0
_SKEW: Final = select("tidegate_gateway_clock_skew_seconds")


def _clock(by: str, signal: Signal, text: str, impact: str) -> Alert:
    return Alert(
        name="TidegateClockOff",
        part="gateway" if by != "stream" else "stream",
        severity="critical" if by == "behind" else "warning",
        signal=signal,
        for_seconds=60,
        unit="seconds",
        labels=(("by", by),),
        summary="A clock is wrong",
        text=text,
        impact=impact,
        causes=(
            "No time service runs on that machine, or it gives a wrong time.",
            "A virtual machine was resumed, or the battery of its clock is dead.",
            "Kafka's clock is the wrong one.",
        ),
        actions=(
            "`chronyc tracking` or `timedatectl` on the machines of the gateway, the stream and Kafka: which clock is wrong?",
            "Set that clock; the alert ends by itself.",
            "`tidegate dlq ls --reason ts_too_far_future`: what was refused meanwhile.",
            "Then redrive it with a larger `gateway.max_future_seconds`: a message is judged by the time of its receipt.",
        ),
    )


CLOCKS: Final = (
    _clock(
        "behind",
        Compare(_SKEW, ">", OFF_SECONDS),
        "The gateway's clock is {value} behind Kafka's.",
        "Device times look like times of the future: past `gateway.max_future_seconds` each message becomes a dead letter "
        "(ts_too_far_future), though the devices are right.",
    ),
    _clock(
        "ahead",
        Compare(_SKEW, "<", -OFF_SECONDS),
        "The gateway's clock is {value} off Kafka's: it runs ahead.",
        "Rows get days that have not come yet, device times of the future pass, and device clocks look slow.",
    ),
    _clock(
        "stream",
        Compare(select("tidegate_stream_clock_behind_seconds"), ">", OFF_SECONDS),
        "The newest rows landed {value} later than the clock of the stream's machine says it is.",
        "Retention, vacuum and the cleaning of logs count from the earlier time: what they should delete stays.",
    ),
    Alert(
        name="TidegateRetentionWaits",
        part="tables",
        severity="warning",
        signal=Compare(select("tidegate_table_retention_waiting_partitions"), ">", 0),
        for_seconds=300,
        summary="Days past their retention wait for a person",
        text="{value} days of the table {table} are past their retention and were not dropped.",
        impact="The days stay readable and take room on the disk. Nothing is lost.",
        causes=(
            "The clock of the stream's machine runs ahead: the days are not that old.",
            "Nothing has landed for long, so no row confirms the clock.",
            "`lake.readings_days` or another retention was shortened, so that a large part of the table expires at once.",
        ),
        actions=(
            "`date -u` on the stream's machine: is it right?",
            "`tidegate maintain --drop-days --dry-run`: which days wait.",
            "`tidegate maintain --drop-days`: the clock is right and they are to go.",
            "Raise `lake.drop_limit_ratio` where so much expires regularly.",
        ),
    ),
)
