"""The arithmetic of the ledger: facts that add up, and the balance that follows from them. Pure DataFrame functions.

Facts of a device and minute come from four sources and are sums, so that they can be taken in piece by piece:
- outcomes: what the gateway counted (`accepted`, `shared`, `counted_dead`, `ignored`, …);
- `readings`: messages with rows (`stored`), `late` ones;
- `duplicates`: messages of which nothing was stored (`copies`);
- `dead_letters`: messages that the gateway rejected as a whole (`letters`), and Spark's rejections: copies whose content
  differs (`conflicting`) and records that it cannot read (`spark_refused`).

A message is named by (gateway, epoch, number) and is counted by the outcome whose range holds its number. One that no
outcome has counted yet is noted in `open` (kind:number:epoch:gateway), for as long as its outcome may come: either it
comes, or its gateway died before it could count, and then the record itself is the proof. With u the noted messages:

    missing = accepted + shared - (stored - u_stored) - (copies - u_copies)
    duplicate = copies - conflicting
    dead_lettered = letters + conflicting + refused        refused = as many of spark_refused as are missing
    received = accepted + shared + counted_dead + ignored + u_stored + u_copies + u_dead
    unaccounted = missing - refused + (counted_dead + u_dead - letters)
                = received - stored - dead_lettered - ignored - duplicate, once the row is settled

so `unaccounted` is 0 where nothing went wrong, above 0 where messages or their dead letters are lost, below 0 where more
is stored than came. It is null where the copies or the letters were not counted: rows that an older version wrote, and what
the first pass after it found. There the difference is called `duplicate`, what is stored above `accepted` is called
`shared`, and dead_lettered is what outcomes count, as before.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from lakehouse.derived_tables import LEDGER
from streaming.derive.ledger_progress import Settling

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["copied_facts", "counted_facts", "ledger_rows", "merged_facts", "own_facts", "refused_facts", "stored_facts"]

SUMS: Final = (
    "stored", "late", "copies", "letters", "conflicting", "accepted", "shared", "counted_dead", "ignored", "counted_partial",
    "gap", "reordered", "restarts", "retained", "tail_stored", "tail_copies", "tail_dead", "tail_partial", "spark_refused",
)  # fmt: skip
KEPT: Final = ("stored", "late", "tail_stored")
"""Columns that a recount undercounts after a correction deleted readings of the device: `kept_…` is the row's value."""
_MOST: Final = (
    "sequenced", "fresh", "touched", "unknown", "was_settled", "was_updated_at", *(f"kept_{name}" for name in KEPT),
)  # fmt: skip
"""`fresh`: an outcome of this pass counts here; `touched`: anything of this pass does; `unknown`: copies or letters are not."""


def stored_facts(readings: "DataFrame", settling: Settling, late_after_us: int) -> "DataFrame":
    """Return facts of rows of `readings`: one message per (device, gateway, epoch, number), whose rows landed in one commit.

    A message whose rows are there twice counts twice. `late_after_us`: a message is late with a reading whose event_time is
    this much older than received_at, or more.
    """
    from pyspark.sql import functions as F

    message = ("device", "gateway", "gateway_epoch", "message_number", "received_at")
    late = F.expr(f"unix_micros(received_at) - unix_micros(event_time) >= {late_after_us}")
    values = readings.groupBy(*message, "metric", "index", "event_time").agg(
        F.count("*").alias("times"),
        F.max(late).alias("is_late"),
        F.max(F.expr("boot IS NOT NULL AND seq IS NOT NULL")).alias("sequenced"),
        F.max("landed_at").alias("landed_at"),
    )
    largest = ("times", "is_late", "sequenced", "landed_at")
    messages = values.groupBy(*message).agg(*(F.max(name).alias(name) for name in largest))
    judged = _judged(messages, settling, F.lit("s"))
    return _facts(
        judged.groupBy("device", "minute").agg(
            F.sum("times").alias("stored"),
            F.count_if("is_late").alias("late"),
            F.count_if("is_lost").alias("tail_stored"),
            F.max("sequenced").alias("sequenced"),
            F.collect_list("entry").alias("open"),
        )
    )


def copied_facts(duplicates: "DataFrame", settling: Settling) -> "DataFrame":
    """Return facts of rows of `duplicates`: messages of which nothing was stored for their device."""
    from pyspark.sql import functions as F

    message = ("device", "gateway", "gateway_epoch", "message_number", "received_at")
    messages = duplicates.where("whole").groupBy(*message).agg(F.max("landed_at").alias("landed_at"))
    judged = _judged(messages, settling, F.lit("c"))
    return _facts(
        judged.groupBy("device", "minute").agg(
            F.count("*").alias("copies"),
            F.count_if("is_lost").alias("tail_copies"),
            F.collect_list("entry").alias("open"),
        )
    )


def refused_facts(dead_letters: "DataFrame", settling: Settling, readings_topic: str) -> "DataFrame":
    """Return facts of rows of `dead_letters`: rejections of the gateway, and records that Spark could not read.

    A dead letter of a whole message has the device that the outcome counts the message for; one that is there twice counts
    twice. Spark's rejections were accepted by the gateway. If a record cannot be read, its message has no
    name here.
    """
    from pyspark.sql import functions as F

    by_spark = F.col("stage") == "stream"
    letters = dead_letters.where(~by_spark | (F.col("source_topic") == readings_topic)).select(
        F.coalesce("device", F.lit("")).alias("device"),
        "gateway", "gateway_epoch", "message_number", "received_at", "landed_at", "partial", by_spark.alias("by_spark"),
        F.when(F.col("message_number").isNull(), F.col("offset")).alias("unnamed"),
    )  # fmt: skip
    messages = letters.groupBy(
        "device", "gateway", "gateway_epoch", "message_number", "received_at", "by_spark", "unnamed"
    ).agg(
        F.min("partial").alias("is_part"),
        F.count_if(~F.col("partial")).alias("times"),
        F.max("landed_at").alias("landed_at"),
    )
    # A copy that Spark rejected is noted as its kind in `duplicates`.
    kind = F.expr("CASE WHEN by_spark THEN NULL WHEN is_part THEN 'p' ELSE 'd' END")
    judged = _judged(messages, settling, kind)
    return _facts(
        judged.groupBy("device", "minute").agg(
            F.sum(F.expr("IF(by_spark, 0L, times)")).alias("letters"),
            F.count_if(F.expr("is_lost AND NOT is_part AND NOT by_spark")).alias("tail_dead"),
            F.count_if(F.expr("is_part AND (by_spark OR is_lost)")).alias("tail_partial"),
            F.count_if(F.expr("by_spark AND NOT is_part AND unnamed IS NOT NULL")).alias("spark_refused"),
            F.count_if(F.expr("by_spark AND NOT is_part AND unnamed IS NULL")).alias("conflicting"),
            F.collect_list("entry").alias("open"),
        )
    ).where("letters > 0 OR tail_partial > 0 OR spark_refused > 0 OR conflicting > 0 OR size(open) > 0")


def _minute() -> "Column":
    from pyspark.sql import functions as F

    return F.date_trunc("minute", F.col("received_at"))


def _judged(messages: "DataFrame", settling: Settling, kind: "Column") -> "DataFrame":
    """Add `minute`, `is_lost` (no outcome counts it, and none will) and `entry` (a note that it is not counted yet)."""
    from pyspark.sql import functions as F

    gateway, epoch, number = F.col("gateway"), F.col("gateway_epoch"), F.col("message_number")
    counted = settling.is_counted(gateway, epoch, number) | settling.is_forgotten(gateway, epoch)
    uncounted = F.coalesce(number.isNotNull() & ~counted, F.lit(False))
    given_up = settling.is_given_up(gateway, epoch, F.col("landed_at"))
    note = F.concat_ws(":", kind, number, epoch, gateway)
    return messages.select(
        "*",
        _minute().alias("minute"),
        (uncounted & given_up).alias("is_lost"),
        F.when(uncounted & ~given_up & kind.isNotNull(), note).alias("entry"),
    )


def counted_facts(sums: "DataFrame") -> "DataFrame":
    """Return facts of the sums of outcomes (streaming/derive/outcomes.py)."""
    from pyspark.sql import functions as F

    known = sums.where("minute IS NOT NULL").drop("gateway", "epoch", "first", "upto", "records")
    return _facts(known.withColumn("fresh", F.lit(1)))


def own_facts(rows: "DataFrame", *, only_counted: bool = False, deleted_from: Collection[str] = ()) -> "DataFrame":
    """Return facts of rows of the ledger itself.

    Args:
        rows: of the ledger.
        only_counted: keep what came from outcomes, and which messages they do not count; the tables give the rest again.
        deleted_from: devices of which a correction deleted readings, so that the tables give less than there was.
    """
    from pyspark.sql import functions as F

    facts = rows.withColumnsRenamed({"settled": "was_settled", "updated_at": "was_updated_at"})
    facts = facts.withColumn("unknown", F.expr("CAST(copies IS NULL OR letters IS NULL AS INT)"))
    # The older version's `shared` is what is stored above `accepted`.
    facts = facts.withColumn("shared", F.expr("IF(unknown = 1, NULL, shared)"))
    if only_counted:
        is_kept = F.col("device").isin(sorted(deleted_from))
        facts = facts.withColumns({f"kept_{name}": F.when(is_kept, F.col(name)) for name in KEPT})
        facts = facts.drop(
            "stored", "late", "copies", "letters", "conflicting", "tail_stored", "tail_copies", "tail_dead", "tail_partial",
            "spark_refused",
        )  # fmt: skip
    return _facts(facts.withColumn("touched", F.lit(0)))


def _facts(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    empty = {name: "0L" for name in (*SUMS, *(f"kept_{name}" for name in KEPT))} | {
        "sequenced": "false", "open": "CAST(array() AS ARRAY<STRING>)", "fresh": "0", "touched": "1", "unknown": "0",
        "was_settled": "CAST(NULL AS BOOLEAN)", "was_updated_at": "CAST(NULL AS TIMESTAMP)",
    }  # fmt: skip
    return rows.select(
        "device",
        "minute",
        *(
            (F.coalesce(F.col(name), F.expr(value)) if name in rows.columns else F.expr(value)).alias(name)
            for name, value in empty.items()
        ),
    )


def merged_facts(parts: Sequence["DataFrame"]) -> "DataFrame":
    """One row per device and minute of all parts."""
    from pyspark.sql import functions as F

    together = parts[0]
    for part in parts[1:]:
        together = together.unionByName(part)
    return (
        together.coalesce(1)
        .groupBy("device", "minute")
        .agg(
            *(F.sum(name).alias(name) for name in SUMS),
            F.flatten(F.collect_list(F.when(F.size("open") > 0, F.col("open")))).alias("open"),
            *(F.max(name).alias(name) for name in _MOST),
        )
    )


_HAS_LANDED: Final = (
    "stored + copies + letters + conflicting + spark_refused + tail_stored + tail_copies + tail_dead + tail_partial > 0 "
    "OR size(open) > 0"
)


def ledger_rows(facts: "DataFrame", settling: Settling) -> "DataFrame":
    """Rows of the ledger."""
    from pyspark.sql import functions as F

    still_open = F.array_distinct(F.filter("open", lambda note: ~_is_counted(note, settling)))
    rows = facts.withColumns({name: F.greatest(name, f"kept_{name}") for name in KEPT})
    rows = rows.withColumn("unknown", F.when(settling.is_unknown(), 1).otherwise(F.col("unknown")))
    rows = rows.withColumns({"open": still_open, "settled": _settled(settling, still_open)})
    rows = rows.withColumns(
        {
            "u_stored": F.expr("tail_stored + size(filter(open, n -> n LIKE 's:%'))"),
            "u_copies": F.expr("tail_copies + size(filter(open, n -> n LIKE 'c:%'))"),
            "u_dead": F.expr("tail_dead + size(filter(open, n -> n LIKE 'd:%' OR n LIKE 'x:%'))"),
            "u_partial": F.expr(
                "tail_partial + size(filter(open, n -> n LIKE 'p:%' AND array_contains(open, concat('s', substring(n, 2)))))"
            ),
        }
    )
    # Counted alone: what an outcome that came late says of messages that were erased.
    if settling.erased:
        rows = rows.where(~settling.is_erased() | F.expr(_HAS_LANDED))
    rows = rows.withColumns(_balance("unknown = 1"))
    rows = rows.withColumns(
        {
            "received": F.expr(
                "accepted + shared + counted_dead + ignored + u_stored + u_dead + IF(unknown = 1, 0L, u_copies)"
            ),
            "partial": F.expr("counted_partial + u_partial"),
            "sequenced": F.expr("sequenced OR gap > 0 OR reordered > 0 OR restarts > 0"),
            "updated_at": F.when(
                (F.col("touched") == 0) & F.col("settled").eqNullSafe(F.col("was_settled")), F.col("was_updated_at")
            ).otherwise(settling.now()),
            "date": F.to_date("minute"),
            "copies": F.expr("IF(unknown = 1, NULL, copies)"),
            "letters": F.expr("IF(unknown = 1, NULL, letters)"),
        }
    )
    rows = rows.withColumn("expected", F.when(F.col("sequenced"), F.expr("received + gap - reordered")))
    return rows.select(*(F.col(column.name).cast(column.type) for column in LEDGER.columns))


def _balance(unknown: str) -> "dict[str, Column]":
    """The columns that follow from the facts, by the formulas above; `unknown`: where copies or letters are not."""
    from pyspark.sql import functions as F

    counted = "(stored - u_stored)"
    # Notes of kind x are of an older version: Spark rejected them, and no outcome counts them.
    refused_old = "(spark_refused + conflicting - size(filter(open, n -> n LIKE 'x:%')))"
    missing_old = f"greatest(0L, accepted - {counted})"
    named, missing = "least(conflicting, copies)", f"(accepted + shared - {counted} - (copies - u_copies))"
    old = f"IF(settled, least({refused_old}, {missing_old}), 0L)"
    refused = f"IF(settled, least(spark_refused, greatest(0L, {missing})), 0L)"
    return {
        "shared": F.expr(f"IF({unknown}, greatest(0L, {counted} - accepted), shared)"),
        "duplicate": F.expr(f"IF({unknown}, IF(settled, {missing_old} - {old}, 0L), copies - {named})"),
        "dead_lettered": F.expr(f"IF({unknown}, counted_dead + u_dead + {old}, letters + {named} + {refused})"),
        "unaccounted": F.expr(
            f"IF({unknown} OR NOT settled, NULL, {missing} - {refused} + counted_dead + u_dead - letters)"
        ),
    }


def _is_counted(note: "Column", settling: Settling) -> "Column":
    from pyspark.sql import functions as F

    parts = F.split(note, ":", 4)
    return settling.is_counted(parts[3], parts[2].cast("bigint"), parts[1].cast("bigint"))


def _settled(settling: Settling, still_open: "Column") -> "Column":
    from pyspark.sql import functions as F

    waits = (F.size(still_open) > 0) & (F.col("minute") >= settling.young())
    if settling.all_landed:
        return ~waits
    was = F.lit(True) if settling.older_landed else F.coalesce("was_settled", F.lit(False))
    return ~waits & (F.col("fresh") == 0) & was
