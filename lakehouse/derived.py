"""The tables that are derived from committed versions of the hot path's; they can be made anew from them at any time."""

from typing import Final

from lakehouse.tables import TABLES, Column, Table

__all__ = ["ALL_TABLES", "DERIVED", "DEVICES", "LATEST", "LEDGER", "ROLLUPS"]

_WINDOW: Final = (
    Column("device", "string", "Device id.", nullable=False),
    Column("metric", "string", "What was measured.", nullable=False),
    Column("window_start", "timestamp", "First moment of the window (UTC).", nullable=False),
    Column("window_end", "timestamp", "First moment after the window (UTC).", nullable=False),
    Column("count", "bigint", "Readings with a number whose event_time lies in the window.", nullable=False),
    Column("min", "double", "Smallest value.", nullable=False),
    Column("max", "double", "Largest value.", nullable=False),
    Column("sum", "double", "Sum of the values.", nullable=False),
    Column("avg", "double", "sum / count.", nullable=False),
    Column("first", "double", "Value of the earliest event_time; the first to arrive among equals.", nullable=False),
    Column("last", "double", "Value of the latest event_time; the last to arrive among equals.", nullable=False),
    Column(
        "is_final", "boolean", "True once the watermark (or a quiet fleet's timeout) passed the window.", nullable=False
    ),
    Column("revision", "int", "How often the window was corrected after it was final.", nullable=False),
    Column("updated_at", "timestamp", "When this row was last written (UTC).", nullable=False),
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
        Column("metric", "string", "What was measured.", nullable=False),
        Column("value", "double", "The number; null for text."),
        Column("text", "string", "The text."),
        Column("unit", "string", "Unit as the device or the route gives it."),
        Column("event_time", "timestamp", "When it was measured (UTC).", nullable=False),
        Column("received_at", "timestamp", "When the gateway received it (UTC).", nullable=False),
        Column("flags", "array<string>", "Flags of that reading."),
        Column("updated_at", "timestamp", "When this row was last written (UTC).", nullable=False),
        Column(
            "stale_since",
            "timestamp",
            "From when on the value is out of date (UTC): five usual intervals of its device (an hour where none is known) "
            "after its newest reading, a minute at least; null while it is not.",
        ),
    ),
    statistics=("device", "metric", "event_time"),
    partitioned_by=(),
)

LEDGER: Final = Table(
    name="ledger",
    comment="What was received of each device in each minute and what became of it, in messages.",
    columns=(
        Column("device", "string", "Device id; empty where the message names none.", nullable=False),
        Column("minute", "timestamp", "The minute of received_at (UTC).", nullable=False),
        Column("expected", "bigint", "received + gap - reordered; null where the device counts no sequence."),
        Column("received", "bigint", "Messages received.", nullable=False),
        Column(
            "stored", "bigint", "Messages with at least one row in readings, partial ones included.", nullable=False
        ),
        Column("partial", "bigint", "Stored messages of which a part was refused.", nullable=False),
        Column("dead_lettered", "bigint", "Messages refused as a whole.", nullable=False),
        Column("ignored", "bigint", "Messages that hold no reading by rule.", nullable=False),
        Column(
            "duplicate", "bigint", "Messages that were stored already, as the landing counted them.", nullable=False
        ),
        Column("gap", "bigint", "Messages missing between sequence numbers.", nullable=False),
        Column("reordered", "bigint", "Messages that came after a later one.", nullable=False),
        Column("late", "bigint", "Stored messages with a reading older than the allowed lateness.", nullable=False),
        Column("updated_at", "timestamp", "When this row was last written (UTC).", nullable=False),
        Column("date", "date", "UTC day of minute; the table is partitioned by it.", nullable=False),
        Column(
            "settled",
            "boolean",
            "True when all that was counted has landed: then unaccounted is known.",
        ),
        Column("sequenced", "boolean", "True where the device counts its messages."),
        Column("accepted", "bigint", "Messages that the gateway accepted."),
        Column(
            "shared",
            "bigint",
            "Of received: messages that hold another device too, and are accepted under its name.",
        ),
        Column("counted_dead", "bigint", "Messages that the gateway refused as a whole, as outcomes count them."),
        Column("counted_partial", "bigint", "Of partial: what outcomes count."),
        Column("tail_stored", "bigint", "Of stored: messages of a gateway that died before it counted them."),
        Column("tail_dead", "bigint", "Of letters: the same."),
        Column("tail_partial", "bigint", "Of partial: the same."),
        Column("spark_refused", "bigint", "Records under this device's key that Spark refused to read."),
        Column("open", "array<string>", "Messages that no outcome counts yet: kind:number:epoch:gateway."),
        Column(
            "unaccounted",
            "bigint",
            "received - stored - dead_lettered - ignored - duplicate: 0 where all is well, above 0 where messages are lost, "
            "below 0 where more is stored than came; null until settled, and where an older version wrote the row.",
        ),
        Column("copies", "bigint", "Messages of which the landing stored nothing for this device: copies."),
        Column("conflicting", "bigint", "Of copies: those in dead_letters, because their content differs."),
        Column("tail_copies", "bigint", "Of copies: messages of a gateway that died before it counted them."),
        Column("restarts", "bigint", "How often the device began to count again under the same boot."),
        Column("letters", "bigint", "Of dead_lettered: those of the gateway, as dead_letters holds them."),
        Column(
            "retained",
            "bigint",
            "Of received: retained messages that the broker replayed to a new subscription, whatever became of them.",
        ),
    ),
    statistics=("device", "minute", "unaccounted"),
)

DEVICES: Final = Table(
    name="devices",
    comment="One row per device that was ever heard.",
    columns=(
        Column("device", "string", "Device id.", nullable=False),
        Column("first_seen", "timestamp", "received_at of its first message (UTC).", nullable=False),
        Column(
            "last_seen", "timestamp", "received_at of its newest message, refused ones included (UTC).", nullable=False
        ),
        Column("last_rejected_because", "string", "Reason of its newest refusal."),
        Column("last_rejected_at", "timestamp", "When that was (UTC)."),
        Column(
            "clock_skew_ms",
            "bigint",
            "Device clock minus gateway clock, lately, by messages that came as they were measured; null where none did.",
        ),
        Column("interval_learned_s", "double", "Usual time between its messages, learned."),
        Column("profile", "string", "Profile of its newest refusal, where one refused it."),
        Column("updated_at", "timestamp", "When this row was last written (UTC).", nullable=False),
        Column(
            "sequence_restarted_at",
            "timestamp",
            "The minute in which it last began to count again under the same boot (UTC).",
        ),
        Column("last_device_time", "timestamp", "The time that it claimed last (UTC)."),
        Column("last_device_time_at", "timestamp", "received_at of that message (UTC)."),
    ),
    statistics=("device", "last_seen"),
    partitioned_by=(),
)

ROLLUPS: Final = {table.name: table for table in (ROLLUPS_1M, ROLLUPS_5M, ROLLUPS_1H, ROLLING_15M)}
DERIVED: Final = {**ROLLUPS, LATEST.name: LATEST, LEDGER.name: LEDGER, DEVICES.name: DEVICES}

ALL_TABLES: Final = {**TABLES, **DERIVED}
