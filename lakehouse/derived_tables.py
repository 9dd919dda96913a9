"""Tables that are derived from committed versions of the hot path's tables, and can be rebuilt from them at any time."""

from typing import Final

from lakehouse.tables import TABLES, Column, Table

__all__ = ["ALL_TABLES", "DERIVED", "DEVICES", "LATEST", "LEDGER", "ROLLUPS"]

_WINDOW: Final = (
    Column("device", "string", "Device id.", nullable=False),
    Column("metric", "string", "Name of the metric.", nullable=False),
    Column("window_start", "timestamp", "First moment of the window (UTC).", nullable=False),
    Column("window_end", "timestamp", "First moment after the window (UTC).", nullable=False),
    Column("count", "bigint", "Numeric readings with an event_time in the window.", nullable=False),
    Column("min", "double", "Smallest value.", nullable=False),
    Column("max", "double", "Largest value.", nullable=False),
    Column("sum", "double", "Sum of the values.", nullable=False),
    Column("avg", "double", "sum / count.", nullable=False),
    Column("first", "double", "Value of the earliest event_time; of equal times, the first to arrive.", nullable=False),
    Column("last", "double", "Value of the latest event_time; of equal times, the last to arrive.", nullable=False),
    Column(
        "is_final",
        "boolean",
        "True after the watermark (or the timeout of a quiet fleet) passed the window.",
        nullable=False,
    ),
    Column("revision", "int", "Number of corrections after the window was final.", nullable=False),
    Column("updated_at", "timestamp", "Time of the last write of this row (UTC).", nullable=False),
    Column("first_at", "timestamp", "event_time of `first` (UTC).", nullable=False),
    Column("last_at", "timestamp", "event_time of `last` (UTC).", nullable=False),
    Column("date", "date", "UTC day of window_start; the table is partitioned by it.", nullable=False),
)


def _rollup(name: str, comment: str) -> Table:
    return Table(
        name=name,
        comment=f"{comment}; exactly one row per device, metric and window.",
        columns=_WINDOW,
        statistics=("device", "metric", "window_start", "window_end", "is_final"),
    )


ROLLUPS_1M: Final = _rollup("rollups_1m", "Aggregates of one minute")
ROLLUPS_5M: Final = _rollup("rollups_5m", "Aggregates of five minutes")
ROLLUPS_1H: Final = _rollup("rollups_1h", "Aggregates of one hour")
ROLLING_15M: Final = _rollup("rolling_15m", "Aggregates of the 15 minutes that begin at each minute")

LATEST: Final = Table(
    name="latest",
    comment="The reading with the latest event_time of each device and metric.",
    columns=(
        Column("device", "string", "Device id.", nullable=False),
        Column("metric", "string", "Name of the metric.", nullable=False),
        Column("value", "double", "The number; null for text."),
        Column("text", "string", "The text."),
        Column("unit", "string", "Unit from the device or the route."),
        Column("event_time", "timestamp", "Time of the measurement (UTC).", nullable=False),
        Column("received_at", "timestamp", "Time of receipt at the gateway (UTC).", nullable=False),
        Column("flags", "array<string>", "Flags of that reading."),
        Column("updated_at", "timestamp", "Time of the last write of this row (UTC).", nullable=False),
        Column(
            "stale_since",
            "timestamp",
            "Time since which the value is out of date (UTC): five usual intervals of the device after its newest reading, at "
            "least a minute; an hour if the interval is unknown. Null while the value is up to date.",
        ),
    ),
    statistics=("device", "metric", "event_time"),
    partitioned_by=(),
)

LEDGER: Final = Table(
    name="ledger",
    comment="Messages received per device and minute, and their outcomes.",
    columns=(
        Column("device", "string", "Device id; empty if the message does not name a device.", nullable=False),
        Column("minute", "timestamp", "The minute of received_at (UTC).", nullable=False),
        Column("expected", "bigint", "received + gap - reordered; null if the device does not count its messages."),
        Column("received", "bigint", "Messages received.", nullable=False),
        Column(
            "stored", "bigint", "Messages with at least one row in readings, including partial ones.", nullable=False
        ),
        Column("partial", "bigint", "Stored messages with a rejected part.", nullable=False),
        Column("dead_lettered", "bigint", "Messages rejected as a whole.", nullable=False),
        Column("ignored", "bigint", "Messages that a rule ignores.", nullable=False),
        Column("duplicate", "bigint", "Messages that the landing found already stored.", nullable=False),
        Column("gap", "bigint", "Messages missing between sequence numbers.", nullable=False),
        Column("reordered", "bigint", "Messages that arrived after a later one.", nullable=False),
        Column(
            "late",
            "bigint",
            "Stored messages with a reading that was older than stream.watermark_delay_seconds when received.",
            nullable=False,
        ),
        Column("updated_at", "timestamp", "Time of the last write of this row (UTC).", nullable=False),
        Column("date", "date", "UTC day of minute; the table is partitioned by it.", nullable=False),
        Column(
            "settled",
            "boolean",
            "True after all counted messages have landed, so that unaccounted is known.",
        ),
        Column("sequenced", "boolean", "True if the device counts its messages."),
        Column("accepted", "bigint", "Messages that the gateway accepted."),
        Column(
            "shared",
            "bigint",
            "Part of received: messages that also hold another device and are accepted under its name.",
        ),
        Column("counted_dead", "bigint", "Messages that the gateway rejected as a whole, from the outcome records."),
        Column("counted_partial", "bigint", "Part of partial: messages in the outcome records."),
        Column("tail_stored", "bigint", "Part of stored: messages of a gateway that died before it counted them."),
        Column("tail_dead", "bigint", "Part of letters: messages of a gateway that died before it counted them."),
        Column("tail_partial", "bigint", "Part of partial: messages of a gateway that died before it counted them."),
        Column("spark_refused", "bigint", "Records under this device's key that Spark could not read."),
        Column("open", "array<string>", "Messages that no outcome record counts yet: kind:number:epoch:gateway."),
        Column(
            "unaccounted",
            "bigint",
            "received - stored - dead_lettered - ignored - duplicate: 0 if all is well, above 0 if messages are lost, below 0 "
            "if more messages are stored than were received; null until settled, and in rows of older versions.",
        ),
        Column(
            "copies",
            "bigint",
            "Messages of which the landing stored nothing for this device, because they were copies.",
        ),
        Column("conflicting", "bigint", "Part of copies: messages in dead_letters, because their content differs."),
        Column("tail_copies", "bigint", "Part of copies: messages of a gateway that died before it counted them."),
        Column("restarts", "bigint", "How often the device restarted its count under the same boot."),
        Column(
            "letters", "bigint", "Part of dead_lettered: messages that the gateway rejected, counted from dead_letters."
        ),
        Column(
            "retained",
            "bigint",
            "Part of received: retained messages that the broker replayed to a new subscription, whatever their outcome.",
        ),
    ),
    statistics=("device", "minute", "unaccounted"),
)

DEVICES: Final = Table(
    name="devices",
    comment="One row per device that has ever sent a message.",
    columns=(
        Column("device", "string", "Device id.", nullable=False),
        Column("first_seen", "timestamp", "received_at of its first message (UTC).", nullable=False),
        Column(
            "last_seen", "timestamp", "received_at of its newest message, also a rejected one (UTC).", nullable=False
        ),
        Column("last_rejected_because", "string", "Reason of its newest rejection."),
        Column("last_rejected_at", "timestamp", "Time of its newest rejection (UTC)."),
        Column(
            "clock_skew_ms",
            "bigint",
            "Recent device clock minus gateway clock, from messages that arrived as they were measured; null if there are none.",
        ),
        Column("interval_learned_s", "double", "Usual time between its messages, learned, in seconds."),
        Column("profile", "string", "Profile of its newest rejection, if a profile rejected it."),
        Column("updated_at", "timestamp", "Time of the last write of this row (UTC).", nullable=False),
        Column(
            "sequence_restarted_at",
            "timestamp",
            "Minute in which the device last restarted its count under the same boot (UTC).",
        ),
        Column("last_device_time", "timestamp", "Newest time that the device claimed (UTC)."),
        Column("last_device_time_at", "timestamp", "received_at of that message (UTC)."),
    ),
    statistics=("device", "last_seen"),
    partitioned_by=(),
)

ROLLUPS: Final = {table.name: table for table in (ROLLUPS_1M, ROLLUPS_5M, ROLLUPS_1H, ROLLING_15M)}
DERIVED: Final = {**ROLLUPS, LATEST.name: LATEST, LEDGER.name: LEDGER, DEVICES.name: DEVICES}

ALL_TABLES: Final = {**TABLES, **DERIVED}
