"""Alerts on clocks, and on deletions that wait because a clock may be wrong."""

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
            "Find the wrong clock: run `chronyc tracking` or `timedatectl` on the machines of the gateway, the stream and Kafka.",
            "Set that clock. The alert then ends by itself.",
            "`tidegate dlq ls --reason ts_too_far_future`: list what was rejected in the meantime.",
            "Then redrive it with a larger `gateway.max_future_seconds`: a message is judged by the time of its arrival.",
        ),
    )


CLOCKS: Final = (
    _clock(
        "behind",
        Compare(_SKEW, ">", OFF_SECONDS),
        "The gateway's clock is {value} behind Kafka's.",
        "Device times look like future times. Above `gateway.max_future_seconds` each message becomes a dead letter "
        "(ts_too_far_future), although the clocks of the devices are right.",
    ),
    _clock(
        "ahead",
        Compare(_SKEW, "<", -OFF_SECONDS),
        "The gateway's clock runs ahead of Kafka's (difference {value}).",
        "Rows get dates in the future, future device times are accepted, and device clocks seem to be slow.",
    ),
    _clock(
        "stream",
        Compare(select("tidegate_stream_clock_behind_seconds"), ">", OFF_SECONDS),
        "By the clock of the stream's machine, the newest rows landed {value} in the future.",
        "Retention, vacuum and log cleaning use the earlier time, so they do not delete what is due.",
    ),
    Alert(
        name="TidegateRetentionWaits",
        part="tables",
        severity="warning",
        signal=Compare(select("tidegate_table_retention_waiting_partitions"), ">", 0),
        for_seconds=300,
        summary="Days past their retention wait for a confirmation",
        text="{value} days of the table {table} are past their retention and were not dropped.",
        impact="The days stay readable and use space on the disk. Nothing is lost.",
        causes=(
            "The clock of the stream's machine runs ahead: the days are not that old.",
            "Nothing has landed for a long time, so no row confirms the clock.",
            "`lake.readings_days` or another retention was shortened, so that a large part of the table expires at once.",
        ),
        actions=(
            "Check the clock of the stream's machine: `date -u`.",
            "`tidegate maintain --drop-days --dry-run`: list the days that wait.",
            "`tidegate maintain --drop-days`: drop them, if the clock is right.",
            "Raise `lake.drop_limit_ratio` if so much expires regularly.",
        ),
    ),
)
