"""Derivation of `devices`: first and last message, last rejection, clock skew and sending interval of each device.

Learned values are smoothed from pass to pass, so they depend a little on the times of the passes:

- `clock_skew_ms`: per live message the newest time that the device claims, minus received_at. A pass takes the median over its
  messages, and the known value moves `SMOOTHING` of the way to it. Only live messages count, so that buffered history does not
  look like a slow clock. A message is live if its claimed time went on as fast as the gateway's clock since the message before,
  within a factor of `PACE`: a device that sends stored readings claims hours within seconds. Messages that the broker kept are
  not live either. A pass in which most messages of a device are not live does not change its skew.
- `interval_learned_s`: the gaps between the messages of a pass (the first counts from the last message of the pass before) give
  sum(gap²) / sum(gap), which is the expected gap at a random time. So a burst of ten messages each hour gives an hour, not six
  minutes. This new value counts as at most `STEP` times and at least a `STEP`th of the known one, because one outage is not
  an interval. The known value moves `SMOOTHING` of the way to it on a logarithmic scale.

Retained messages do not show when a device was alive, so they do not count, unless a setting says so.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from lakehouse.changes import DataFile
from lakehouse.derived_tables import DEVICES
from lakehouse.frames import rows_of
from streaming.derive.derived_table import DerivedTable
from streaming.derive.shared_arrivals import (
    DEAD_LETTER_COLUMNS,
    READING_COLUMNS,
    SharedArrivals,
    TableChanges,
    coalesce_few_rows,
    drop_devices,
)
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DevicesDerivation", "device_rows"]

SMOOTHING: Final = 0.2
STEP: Final = 4.0
PACE: Final = 2.0

_REFUSAL: Final = "struct<at timestamp, because string, profile string>"
_CLAIM: Final = "struct<received timestamp, claimed timestamp>"
_PARTS: Final = {
    "first_seen": "timestamp", "last_seen": "timestamp", "first_new": "timestamp", "gaps": "double", "squares": "double",
    "skew": "bigint", "refusal": _REFUSAL, "known_last": "timestamp", "known_skew": "bigint", "known_interval": "double",
    "known_at": "timestamp", "sequence_restarted_at": "timestamp", "known_restarted_at": "timestamp",
    "claim": _CLAIM,
}  # fmt: skip


def device_rows(
    messages: "DataFrame | None", counts: "DataFrame | None", known: "DataFrame | None", now: datetime
) -> "DataFrame | None":
    """One row per device of everything given; None where nothing is.

    Args:
        messages: as `heard_messages` gives them.
        counts: rows of the ledger that were written since.
        known: rows of `devices`.
        now: the wall clock.
    """
    from pyspark.sql import functions as F

    parts = [] if messages is None else [_part(_told(messages, known))]
    if counts is not None:
        # Ignored messages leave no record, so their minute is all that is known of them.
        # A restart may be counted without a message: its outcome was lost with a connection.
        heard = counts.where("device <> '' AND (received > 0 OR restarts > 0)").groupBy("device")
        news = F.expr("received > coalesce(retained, 0L)")
        first = F.min(F.when(news & (F.col("ignored") > 0), F.col("minute"))).alias("first_seen")
        last = F.max(F.when(news, F.col("minute"))).alias("last_seen")
        restarted = F.max(F.when(F.col("restarts") > 0, F.col("minute"))).alias("sequence_restarted_at")
        parts.append(_part(heard.agg(first, last, restarted)))
    if known is not None:
        refusal = "struct(last_rejected_at AS at, last_rejected_because AS because, profile)"
        names = {"clock_skew_ms": "known_skew", "interval_learned_s": "known_interval", "updated_at": "known_at"}
        same = {"known_last": F.col("last_seen"), "known_restarted_at": F.col("sequence_restarted_at")}
        rows = known.withColumns(same).withColumnsRenamed(names).withColumn("claim", F.expr(_KNOWN_CLAIM))
        parts.append(_part(rows.withColumn("refusal", F.expr(f"IF(last_rejected_at IS NULL, NULL, {refusal})"))))
    if not parts:
        return None
    together = parts[0]
    for part in parts[1:]:
        together = together.unionByName(part)
    return _merged(together.coalesce(1), now)


def heard_messages(readings: "DataFrame | None", dead_letters: "DataFrame | None", *, count: int) -> "DataFrame | None":
    """The messages of new readings and dead letters, `count` rows or fewer.

    Their columns are device, received_at, claimed (time), waited (in the broker, perhaps) and refusal.
    """
    from pyspark.sql import functions as F

    found = []
    if readings is not None:
        by_message = readings.groupBy("device", "gateway", "gateway_epoch", "message_number", "received_at")
        stored = by_message.agg(
            F.max("device_time").alias("claimed"), F.max(F.expr("waited_since IS NOT NULL")).alias("waited")
        )
        found.append(
            stored.select("device", "received_at", "claimed", "waited", F.lit(None).cast(_REFUSAL).alias("refusal"))
        )
    if dead_letters is not None:
        refusal = F.struct(F.col("received_at").alias("at"), F.col("reason").alias("because"), "profile").cast(_REFUSAL)
        refused = dead_letters.where("device <> ''")
        nothing = F.lit(None).cast("timestamp").alias("claimed")
        waited = F.lit(False).alias("waited")
        found.append(refused.select("device", "received_at", nothing, waited, refusal.alias("refusal")))
    if not found:
        return None
    return found[0] if len(found) == 1 else coalesce_few_rows(found[0].unionByName(found[1]), count)


_KNOWN_CLAIM: Final = (
    f"CAST(IF(last_device_time IS NULL, NULL, struct(last_device_time_at, last_device_time)) AS {_CLAIM})"
)
_IN_ORDER: Final = "OVER (PARTITION BY device ORDER BY received_at, is_new)"
_GAP: Final = f"(unix_micros(received_at) - unix_micros(lag(IF(is_new, received_at, NULL)) {_IN_ORDER})) / 1e6D"
_CLAIM_BEFORE: Final = f"lag(claim, 1) IGNORE NULLS {_IN_ORDER}"
_WENT_ON: Final = "(unix_micros(received_at) - unix_micros(before.received))"
_CLAIMED_ON: Final = "(unix_micros(claimed) - unix_micros(before.claimed))"
_IS_LIVE: Final = (
    f"NOT waited AND {_CLAIMED_ON} > 0 AND {_CLAIMED_ON} BETWEEN {_WENT_ON} / {PACE}D AND {_WENT_ON} * {PACE}D"
)
_STEPS: Final = f"count_if({_CLAIMED_ON} <> 0)"
_SKEW: Final = (
    f"IF(2 * count_if({_IS_LIVE}) >= {_STEPS}, "
    f"percentile_approx(IF({_IS_LIVE}, unix_millis(claimed) - unix_millis(received_at), NULL), 0.5D, 1000), NULL)"
)


def _told(messages: "DataFrame", known: "DataFrame | None") -> "DataFrame":
    """Return the facts of new messages per device; the device's last known claim comes before them."""
    from pyspark.sql import functions as F

    rows = messages.withColumn("is_new", F.lit(True))
    if known is not None:
        claims = known.where("last_device_time IS NOT NULL").select(
            "device",
            F.col("last_device_time_at").alias("received_at"),
            F.col("last_device_time").alias("claimed"),
            F.lit(False).alias("waited"),
            F.lit(None).cast(_REFUSAL).alias("refusal"),
            F.lit(False).alias("is_new"),
        )
        rows = rows.unionByName(claims).coalesce(1)
    rows = rows.withColumn(
        "claim", F.expr(f"CAST(IF(claimed IS NULL, NULL, struct(received_at, claimed)) AS {_CLAIM})")
    )
    in_order = rows.withColumns({"gap": F.expr(_GAP), "before": F.expr(_CLAIM_BEFORE)}).where("is_new")
    return in_order.groupBy("device").agg(
        F.min("received_at").alias("first_seen"),
        F.max("received_at").alias("last_seen"),
        F.min("received_at").alias("first_new"),
        F.sum("gap").alias("gaps"),
        F.sum(F.col("gap") * F.col("gap")).alias("squares"),
        F.expr(_SKEW).alias("skew"),
        F.max("claim").alias("claim"),
        F.max("refusal").alias("refusal"),
    )


def _part(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    known = rows.columns
    return rows.select(
        "device", *((F.col(n) if n in known else F.lit(None)).cast(kind).alias(n) for n, kind in _PARTS.items())
    )


def _merged(parts: "DataFrame", now: datetime) -> "DataFrame":
    from pyspark.sql import functions as F

    smallest, sums = {"first_seen", "first_new"}, {"gaps", "squares"}
    rows = parts.groupBy("device").agg(
        *((F.min(n) if n in smallest else F.sum(n) if n in sums else F.max(n)).alias(n) for n in _PARTS)
    )
    # Counted by a gateway, and no record has landed yet: it is heard of when that has a time.
    rows = rows.where("first_seen IS NOT NULL")
    # A whole minute is that of messages which only the ledger counts: no message was at its beginning.
    rows = rows.withColumn(
        "first_seen", F.expr("IF(date_trunc('MINUTE', first_new) = first_seen, first_new, first_seen)")
    )
    since = "IF(date_trunc('MINUTE', known_last) = known_last, 0D, (unix_micros(first_new) - unix_micros(known_last)) / 1e6D)"
    rows = rows.withColumn("since", F.expr(f"greatest(0D, coalesce({since}, 0D))"))
    rows = rows.withColumn(
        "sample", F.expr("(coalesce(squares, 0D) + since * since) / nullif(coalesce(gaps, 0D) + since, 0D)")
    )
    bounded = f"greatest(least(sample, known_interval * {STEP}D), known_interval / {STEP}D)"
    interval = f"known_interval * pow({bounded} / known_interval, {SMOOTHING}D)"
    us = int(now.timestamp() * 1_000_000)
    changed = {
        "last_rejected_because": F.col("refusal.because"),
        "last_rejected_at": F.col("refusal.at"),
        "profile": F.col("refusal.profile"),
        "last_device_time": F.col("claim.claimed"),
        "last_device_time_at": F.col("claim.received"),
        "clock_skew_ms": F.expr(f"coalesce(round(known_skew + (skew - known_skew) * {SMOOTHING}D), skew, known_skew)"),
        "interval_learned_s": F.expr(f"coalesce(IF(sample > 0, {interval}, NULL), known_interval, sample)"),
        # A constant that differs in each pass would make Spark compile the code again.
        "updated_at": F.expr(
            "IF(known_at IS NOT NULL AND first_new IS NULL AND last_seen <= known_last "
            "AND sequence_restarted_at <=> known_restarted_at, known_at, "
            f"get(array(timestamp_micros({us}L)), length(device) - length(device)))"
        ),
    }
    return rows.withColumns(changed).select(*(F.col(c.name).cast(c.type) for c in DEVICES.columns))


class DevicesDerivation:
    """`run` is one pass, the last of those that share `arrivals`. Not thread-safe: the chores' thread calls it."""

    name = "devices"

    def __init__(self, writer: WriterContext, arrivals: SharedArrivals) -> None:
        self._writer, self._arrivals = writer, arrivals
        self._own = DerivedTable(writer, DEVICES)

    def run(self) -> bool:
        """Run one pass; return False if no message came."""
        try:
            return self._arrivals.begin() and self._run()
        finally:
            self._arrivals.release()

    def _run(self) -> bool:
        arrivals = self._arrivals
        self._own.refresh()
        arrivals.look()
        arrivals.ledger.look()  # the ledger's pass was just before this one
        seen = self._own.cursor or {}
        readings = arrivals.readings.news(seen.get("readings"))
        letters = arrivals.dead_letters.news(seen.get("dead_letters"))
        counts = arrivals.ledger.live_after(seen.get("ledger"))
        following = {"readings": readings.upto, "dead_letters": letters.upto, "ledger": arrivals.ledger.version}
        if not (readings.files or readings.erased or letters.files or letters.erased or counts):
            return self._own.idle()
        rows = self._rows(readings, letters, counts)
        replaced = list(self._own.files.values()) if rows is not None else []
        self._own.replace(rows, replaced, lambda _append: following)
        return True

    def _rows(self, readings: TableChanges, letters: TableChanges, counts: list[DataFile]) -> "DataFrame | None":
        from pyspark.sql import functions as F

        arrivals, erased = self._arrivals, self._own.erased
        gone = erased | readings.erased | letters.erased
        landed = drop_devices(arrivals.readings_rows(readings, READING_COLUMNS), erased - readings.erased)
        refused = drop_devices(
            arrivals.rows(arrivals.dead_letters, letters, DEAD_LETTER_COLUMNS), erased - letters.erased
        )
        if not self._writer.settings.count_retained:
            landed = landed if landed is None else landed.where("retained IS NOT TRUE")
            refused = refused if refused is None else refused.where("retain IS NOT TRUE")
        messages = heard_messages(landed, refused, count=readings.rows + letters.rows)
        counted = arrivals.rows(
            arrivals.ledger, TableChanges(0, [(counts, frozenset())] if counts else []), _COUNT_COLUMNS
        )
        files = list(self._own.files.values())
        known = rows_of(self._writer.spark, self._writer.root, DEVICES, files) if files else None
        if self._writer.settings.count_retained and counted is not None:
            counted = counted.drop("retained").withColumn("retained", F.lit(0).cast("bigint"))
        # The ledger may still name a device that an erasure, killed between two tables, has not taken out of it yet.
        return device_rows(messages, drop_devices(counted, gone), drop_devices(known, gone), datetime.now(UTC))


_COUNT_COLUMNS: Final = ("device", "minute", "received", "ignored", "restarts", "retained")
