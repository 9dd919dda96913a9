"""The arithmetic of the ledger: facts that add up, and the balance that follows from them. Pure DataFrame functions.

Facts of a device and minute come from three sources and are sums, so that they can be taken in piece by piece:
- outcomes: what the gateway counted (`accepted`, `counted_dead`, `ignored`, …);
- `readings`: messages with rows (`stored`), `late` ones;
- `dead_letters`: refusals, of which only those count here that no outcome counts.

A message is named by (gateway, epoch, number) and is counted by the outcome whose `upto` reaches its number. One past the
last `upto` of its epoch is noted in `open` (kind:number:epoch:gateway): either its outcome comes soon, or its gateway died
before it could count, and then the record itself is the proof. With u the uncounted messages of a row:

    stored = messages with rows             shared = max(0, (stored - u_stored) - accepted)
    dead_lettered = counted_dead + u_dead + what Spark itself refused
    received = accepted + counted_dead + ignored + u_stored + u_dead + shared
    duplicate = max(0, accepted - (stored - u_stored)) - what Spark itself refused, once the row is settled

so `received = stored + dead_lettered + ignored + duplicate` holds in every settled row, whatever the facts are.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lakehouse.derived import LEDGER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "FACTS",
    "Settling",
    "counted_facts",
    "ledger_rows",
    "merged_facts",
    "own_facts",
    "refused_facts",
    "stored_facts",
]

SUMS: Final = (
    "stored", "late", "accepted", "counted_dead", "ignored", "counted_partial", "gap", "reordered",
    "tail_stored", "tail_dead", "tail_partial", "spark_refused",
)  # fmt: skip
FACTS: Final = ("device", "minute", *SUMS, "sequenced", "open", "fresh", "touched", "was_settled", "was_updated_at")
"""`fresh`: an outcome of this pass counts here; `touched`: anything of this pass does."""

_EVERY_NUMBER: Final = 2**63 - 1

Upto = Mapping[str, Mapping[str, int]]


class Settling:
    """What decides whether a row is settled.

    Args:
        upto: gateway -> epoch -> last number counted.
        now: the wall clock.
        young: only what was received after this may still be counted by an outcome to come.
        all_landed: all records of the messages that any outcome so far counts have landed.
        older_landed: those of the outcomes before this pass have.
        forgotten: gateway -> the epoch before which all that are not in `upto` were counted once.
    """

    def __init__(
        self,
        upto: Upto,
        now: datetime,
        young: datetime,
        *,
        all_landed: bool,
        older_landed: bool,
        forgotten: Mapping[str, int],
    ) -> None:
        self._upto, self._forgotten = json.dumps(upto), json.dumps(forgotten)
        self._now, self._young = now, young
        self.all_landed, self.older_landed = all_landed, older_landed

    @property
    def may_settle(self) -> bool:
        """Whether rows that no outcome of this pass counts in can be settled."""
        return self.all_landed or self.older_landed

    def now(self) -> "Column":
        """The wall clock."""
        return _moving(self._now)

    def young(self) -> "Column":
        """The oldest moment that is young."""
        return _moving(self._young)

    def upto(self) -> "Column":
        """The map as one constant."""
        from pyspark.sql import functions as F

        return F.from_json(F.lit(self._upto), "map<string, map<string, bigint>>")

    def last(self) -> "Column":
        """The last number counted of a message's epoch; -1 where none is, any where the epoch is forgotten."""
        from pyspark.sql import functions as F

        gateway, epoch = F.col("gateway"), F.col("gateway_epoch")
        forgotten = F.from_json(F.lit(self._forgotten), "map<string, bigint>")[gateway]
        known = self.upto()[gateway][epoch.cast("string")]
        return F.coalesce(known, F.when(epoch < forgotten, F.lit(_EVERY_NUMBER)), F.lit(-1))


def _moving(moment: datetime) -> "Column":
    """A constant that is another one in each pass: as a plain literal it would have the code compiled anew."""
    from pyspark.sql import functions as F

    us = int(moment.timestamp() * 1_000_000)
    return F.expr(f"get(array(timestamp_micros({us}L)), length(device) - length(device))")


def stored_facts(readings: "DataFrame", settling: Settling, late_after_us: int) -> "DataFrame":
    """Of rows of `readings`: one message per (device, gateway, epoch, number); all its rows landed in one commit.

    `late_after_us`: a message is late with a reading whose event_time is this much older than received_at, or more.
    """
    from pyspark.sql import functions as F

    late = F.expr(f"unix_micros(received_at) - unix_micros(event_time) >= {late_after_us}")
    messages = readings.groupBy("device", "gateway", "gateway_epoch", "message_number", "received_at").agg(
        F.max(late).alias("is_late"), F.max(F.expr("boot IS NOT NULL AND seq IS NOT NULL")).alias("sequenced")
    )
    judged = _judged(messages, settling, F.lit("s"))
    return _facts(
        judged.groupBy("device", "minute").agg(
            F.count("*").alias("stored"),
            F.count_if("is_late").alias("late"),
            F.count_if("is_lost").alias("tail_stored"),
            F.max("sequenced").alias("sequenced"),
            F.collect_list("entry").alias("open"),
        )
    )


def refused_facts(dead_letters: "DataFrame", settling: Settling, readings_topic: str) -> "DataFrame":
    """Of rows of `dead_letters`: those of the gateway that are past its counts, and records that Spark refused.

    What Spark refused was accepted by the gateway. Where it is a record that nobody can read, its message has no name here.
    """
    from pyspark.sql import functions as F

    by_spark = F.col("stage") == "stream"
    letters = dead_letters.where(~by_spark | (F.col("source_topic") == readings_topic)).select(
        F.coalesce("device", F.lit("")).alias("device"),
        "gateway", "gateway_epoch", "message_number", "received_at", "partial", by_spark.alias("by_spark"),
        F.when(F.col("message_number").isNull(), F.col("offset")).alias("unnamed"),
    )  # fmt: skip
    messages = letters.groupBy(
        "device", "gateway", "gateway_epoch", "message_number", "received_at", "by_spark", "unnamed"
    ).agg(F.min("partial").alias("is_part"))
    kind = F.expr("CASE WHEN is_part AND by_spark THEN NULL WHEN is_part THEN 'p' WHEN by_spark THEN 'x' ELSE 'd' END")
    judged = _judged(messages, settling, kind)
    return _facts(
        judged.groupBy("device", "minute").agg(
            F.count_if(F.expr("is_lost AND NOT is_part")).alias("tail_dead"),
            F.count_if(F.expr("is_part AND (by_spark OR is_lost)")).alias("tail_partial"),
            F.count_if(F.expr("by_spark AND NOT is_part AND NOT is_lost")).alias("spark_refused"),
            F.collect_list("entry").alias("open"),
        )
    ).where("tail_dead > 0 OR tail_partial > 0 OR spark_refused > 0 OR size(open) > 0")


def _minute() -> "Column":
    from pyspark.sql import functions as F

    return F.date_trunc("minute", F.col("received_at"))


def _judged(messages: "DataFrame", settling: Settling, kind: "Column") -> "DataFrame":
    """With `minute`, `is_lost` (too old to be counted any more) and `entry` (a note that it is not counted yet)."""
    from pyspark.sql import functions as F

    uncounted = F.col("message_number") > settling.last()
    young = F.col("received_at") >= settling.young()
    note = F.concat_ws(":", kind, F.col("message_number"), F.col("gateway_epoch"), F.col("gateway"))
    return messages.select(
        "*",
        _minute().alias("minute"),
        F.coalesce(uncounted & ~young, F.lit(False)).alias("is_lost"),
        F.when(uncounted & young & kind.isNotNull(), note).alias("entry"),
    )


def counted_facts(sums: "DataFrame") -> "DataFrame":
    """Of the sums of outcomes (streaming/derive/outcomes.py)."""
    from pyspark.sql import functions as F

    known = sums.where("minute IS NOT NULL").drop("gateway", "epoch", "upto", "records")
    return _facts(known.withColumn("fresh", F.lit(1)))


def own_facts(rows: "DataFrame", *, only_counted: bool = False) -> "DataFrame":
    """Of rows of the ledger itself; `only_counted` keeps of them what came from outcomes."""
    from pyspark.sql import functions as F

    facts = rows.withColumnsRenamed({"settled": "was_settled", "updated_at": "was_updated_at"})
    if only_counted:
        facts = facts.drop("stored", "late", "tail_stored", "tail_dead", "tail_partial", "spark_refused", "open")
    return _facts(facts.withColumn("touched", F.lit(0)))


def _facts(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    empty = {name: "0L" for name in SUMS} | {
        "sequenced": "false", "open": "CAST(array() AS ARRAY<STRING>)", "fresh": "0", "touched": "1",
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
            *(F.max(name).alias(name) for name in ("sequenced", "fresh", "touched", "was_settled", "was_updated_at")),
        )
    )


def ledger_rows(facts: "DataFrame", settling: Settling) -> "DataFrame":
    """Rows of the ledger."""
    from pyspark.sql import functions as F

    still_open = F.array_distinct(F.filter("open", lambda note: _is_uncounted(note, settling)))
    rows = facts.withColumn("open", still_open)
    rows = rows.withColumns(
        {
            "u_stored": F.expr("tail_stored + size(filter(open, n -> n LIKE 's:%'))"),
            "u_dead": F.expr("tail_dead + size(filter(open, n -> n LIKE 'd:%' OR n LIKE 'x:%'))"),
            "u_partial": F.expr(
                "tail_partial + size(filter(open, n -> n LIKE 'p:%' AND array_contains(open, concat('s', substring(n, 2)))))"
            ),
            "u_refused": F.expr("spark_refused - size(filter(open, n -> n LIKE 'x:%'))"),
            "settled": _settled(settling),
        }
    )
    rows = rows.withColumn("missing", F.expr("accepted - (stored - u_stored)"))
    rows = rows.withColumn(
        "refused", F.when(F.col("settled"), F.expr("least(u_refused, greatest(0L, missing))")).otherwise(0)
    )
    changed: dict[str, Any] = {
        "shared": F.expr("greatest(0L, -missing)"),
        "dead_lettered": F.expr("counted_dead + u_dead + refused"),
        "duplicate": F.when(F.col("settled"), F.expr("greatest(0L, missing) - refused")).otherwise(F.lit(0)),
        "partial": F.expr("counted_partial + u_partial"),
        "received": F.expr("accepted + counted_dead + ignored + u_stored + u_dead + greatest(0L, -missing)"),
        "sequenced": F.expr("sequenced OR gap > 0 OR reordered > 0"),
        "updated_at": F.when(
            (F.col("touched") == 0) & F.col("settled").eqNullSafe(F.col("was_settled")), F.col("was_updated_at")
        ).otherwise(settling.now()),
        "date": F.to_date("minute"),
    }
    rows = rows.withColumns(changed)
    rows = rows.withColumn("expected", F.when(F.col("sequenced"), F.expr("received + gap - reordered")))
    return rows.select(*(F.col(column.name).cast(column.type) for column in LEDGER.columns))


def _is_uncounted(note: "Column", settling: Settling) -> "Column":
    from pyspark.sql import functions as F

    parts = F.split(note, ":", 4)
    last = F.coalesce(settling.upto()[parts[3]][parts[2]], F.lit(-1))
    return parts[1].cast("bigint") > last


def _settled(settling: Settling) -> "Column":
    from pyspark.sql import functions as F

    waits = (F.size("open") > 0) & (F.col("minute") >= settling.young())
    if settling.all_landed:
        return ~waits
    was = F.lit(True) if settling.older_landed else F.coalesce("was_settled", F.lit(False))
    return ~waits & (F.col("fresh") == 0) & was
