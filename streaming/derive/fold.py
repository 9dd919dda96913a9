"""Folding of readings into partial aggregates, and of these into rows of a rollup table: DataFrame functions, no actions.

A partial aggregate covers some readings of one device, metric and minute. Partial aggregates merge with each other and with the
table's row in any order and grouping: of equal event times, the earlier arrival wins. Times inside are epoch µs (`start`,
`first_at`, …), which aggregate and compare fastest.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse.tables import Table
from streaming.derive.windows import MINUTE_US, ChangedRange, WindowShape

__all__ = [
    "WriteStamp",
    "merge_partials",
    "minute_partials",
    "overlaps_changed_range",
    "spark_literal",
    "stored_partials",
    "window_partials",
]

STORED, FOLDED, RECOMPUTED = 0, 1, 2
"""Kinds of parts: the table's own row, the addition of new readings, and the replacement of the row."""

# The years 1700 to 2261: what a reader that counts nanoseconds can show; no sensor measured anything outside.
_FIRST_US, _LAST_US = -8_520_336_000_000_000, 9_214_646_400_000_000
_VALUES: Final = ("count", "sum", "min", "max", "first", "last", "first_at", "last_at")
_NO_WATERMARK: Final = -(2**62)


def minute_partials(
    readings: DataFrame, *, excluded: Sequence[str], skew_us: int, one_task: bool, count_retained: bool = False
) -> DataFrame:
    """Aggregate the readings of each device, metric and minute.

    Args:
        readings: rows of `readings`.
        excluded: devices that no rollup shows.
        skew_us: how far ahead of the gateway's clock an event time may move the watermark.
        one_task: gather the rows in one task, which spares a small pass the shuffle.
        count_retained: aggregate retained messages too.

    Returns:
        device, metric, minute; `count` (0 where the readings hold no number), sum, min, max, first, last, first_at,
        last_at; `seen`, the largest min(event time, receive time + skew), and `received`, the newest receive time.
    """
    names = ", ".join(map(spark_literal, excluded))
    shown = f"event_us BETWEEN {_FIRST_US} AND {_LAST_US}" + (f" AND device NOT IN ({names})" if names else "")
    rows = readings if count_retained else readings.where("retained IS NOT TRUE")
    rows = rows.selectExpr(
        "device", "metric", "value", "unix_micros(event_time) AS event_us", "unix_micros(received_at) AS received_us",
        "landed_at", "partition", "offset", "index",
    ).selectExpr(
        "device", "metric", f"event_us - pmod(event_us, {MINUTE_US}L) AS minute", "event_us", "received_us",
        f"CASE WHEN {shown} THEN value END AS value",
        f"CASE WHEN value IS NOT NULL AND {shown} THEN struct(event_us, landed_at, partition, offset, index) END AS arrival",
    )  # fmt: skip
    return (rows.coalesce(1) if one_task else rows).groupBy("device", "metric", "minute").agg(
        *map(F.expr, (
            "count(value) AS count", "sum(value) AS sum", "min(value) AS min", "max(value) AS max",
            "min_by(value, arrival) AS first", "max_by(value, arrival) AS last",
            "min(arrival.event_us) AS first_at", "max(arrival.event_us) AS last_at",
            f"max(least(event_us, received_us + {skew_us}L)) AS seen", "max(received_us) AS received",
        ))
    )  # fmt: skip


def spark_literal(text: str) -> str:
    """A text as a literal of Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def window_partials(partials: DataFrame, shape: WindowShape, kind: int = FOLDED) -> DataFrame:
    """The parts that minutes add to the windows of a shape: a row per partial and window that holds its minute."""
    if shape.step == shape.length:
        start = f"minute - pmod(minute, {shape.length}L)"
    else:
        start = f"explode(sequence(minute - {shape.length - shape.step}L, minute, {shape.step}L))"
    return partials.where("count > 0").selectExpr(
        "device", "metric", f"{start} AS start", *_VALUES,
        f"{kind} AS kind", "false AS is_final", "0 AS revision", "0L AS updated_us",
    )  # fmt: skip


def stored_partials(rows: DataFrame) -> DataFrame:
    """Rows of a rollup table as parts."""
    values = (f"unix_micros({name}) AS {name}" if name.endswith("_at") else name for name in _VALUES)
    return rows.selectExpr(
        "device", "metric", "unix_micros(window_start) AS start", *values,
        f"{STORED} AS kind", "is_final", "revision", "unix_micros(updated_at) AS updated_us",
    )  # fmt: skip


class WriteStamp:
    """The watermark and the time of a write as expressions whose value does not become part of the generated code.

    A plain literal does, and every pass would compile its code again.
    """

    def __init__(self, watermark: int | None, now: int) -> None:
        values = f"array({_NO_WATERMARK if watermark is None else watermark}L, {now}L)"
        self.watermark, self.now = (f"get({values}, {place} + kind - kind)" for place in (0, 1))


def overlaps_changed_range(ranges: Sequence[ChangedRange], shape: WindowShape) -> Column:
    """Return whether a part (device, start) is of a window that overlaps any of these ranges."""
    found = F.lit(False)
    for each in ranges:
        inside = (F.col("start") > each.low - shape.length) & (F.col("start") <= each.high)
        name = F.sha2(F.col("device").cast("binary"), 256) if each.hashed else F.col("device")
        found = found | (inside if each.device is None else inside & (name == each.device))
    return found


def merge_partials(
    parts: DataFrame,
    shape: WindowShape,
    stamp: WriteStamp,
    *,
    replaced: Column | None = None,
    kept_before: int | None = None,
) -> DataFrame:
    """One row per device, metric and window, as the table has them.

    Args:
        parts: all parts of the windows, in one task where the result shall be.
        shape: the table's windows.
        stamp: watermark and time of the write.
        replaced: True for parts of windows whose RECOMPUTED parts replace all others; a window that has none is
            left out, one that comes to the same as before stays as it is.
        kept_before: of the replaced windows that begin before it, those that know more readings than are left stay.
    """
    if replaced is not None:
        parts = parts.withColumn("replaced", replaced)
    use = "true" if replaced is None else f"NOT replaced OR kind = {RECOMPUTED}"
    totals = {
        "count": f"sum(CASE WHEN {use} THEN count END)",
        "sum": f"sum(CASE WHEN {use} THEN sum END)",
        "min": f"min(CASE WHEN {use} THEN min END)",
        "max": f"max(CASE WHEN {use} THEN max END)",
        "first": f"min_by(first, CASE WHEN {use} THEN 2 * first_at + least(kind, 1) END)",
        "last": f"max_by(last, CASE WHEN {use} THEN 2 * last_at + least(kind, 1) END)",
        "first_at": f"min(CASE WHEN {use} THEN first_at END)",
        "last_at": f"max(CASE WHEN {use} THEN last_at END)",
    }  # fmt: skip
    rest = {
        "kind": "max(kind)", "was_final": "max(is_final)", "was_revision": "max(revision)", "was_updated": "max(updated_us)",
    }  # fmt: skip
    if replaced is None:
        grouped = parts.groupBy("device", "metric", "start").agg(*_named(totals | rest))
        return _rows(grouped, shape, stamp, touched=f"kind > {STORED}")
    before = {f"was_{name}": f"max(CASE WHEN kind = {STORED} THEN {name} END)" for name in _VALUES}
    grouped = parts.groupBy("device", "metric", "start").agg(
        *_named(totals | rest | before | {"replaced": "max(replaced)"})
    )
    same = " AND ".join(f"{name} <=> was_{name}" for name in _VALUES if name != "sum")
    # Adding in another order may give another last bit: that is not a correction.
    same = f"{same} AND (sum <=> was_sum OR abs(sum - was_sum) <= 1e-9 * greatest(abs(min), abs(max)) * count)"
    more = "false" if kept_before is None else f"start < {kept_before}L AND coalesce(count, 0) < was_count"
    chosen = grouped.selectExpr("*", f"replaced AND coalesce(({same}) OR ({more}), false) AS stays").selectExpr(
        "device", "metric", "start", "was_final", "was_revision", "was_updated", "kind",
        *(f"CASE WHEN stays THEN was_{name} ELSE {name} END AS {name}" for name in _VALUES),
        f"NOT stays AND (replaced OR kind > {STORED}) AS touched",
    ).where("count > 0")  # fmt: skip
    return _rows(chosen, shape, stamp, touched="touched")


def _rows(grouped: DataFrame, shape: WindowShape, stamp: WriteStamp, *, touched: str) -> DataFrame:
    """The table's columns: final once the watermark passed the window; a revision where a final window was touched."""
    final = f"start + {shape.length}L <= {stamp.watermark} OR was_final"
    columns = {
        "window_start": "timestamp_micros(start)",
        "window_end": f"timestamp_micros(start + {shape.length}L)",
        "avg": "sum / count",
        "is_final": final,
        "revision": f"was_revision + CASE WHEN was_final AND {touched} THEN 1 ELSE 0 END",
        "updated_at": f"timestamp_micros(CASE WHEN {touched} OR ({final}) <> was_final THEN {stamp.now} ELSE was_updated END)",
        "first_at": "timestamp_micros(first_at)",
        "last_at": "timestamp_micros(last_at)",
        "date": "CAST(timestamp_micros(start) AS DATE)",
    }  # fmt: skip
    return grouped.selectExpr(*(f"{columns.get(name, name)} AS {name}" for name in _names(shape.table)))


def _named(expressions: dict[str, str]) -> list[Column]:
    return [F.expr(f"{expression} AS {name}") for name, expression in expressions.items()]


def _names(table: Table) -> list[str]:
    return [column.name for column in table.columns]
