"""Keeps `latest`: the newest reading of each device and metric, by event_time; the later arrival among equals.

An event_time far ahead of its receipt counts as `received_at + AHEAD` here: a clock that once ran ahead does not hold the
row for years. The row itself keeps the event_time as it stands in `readings`. Retained messages, which the broker replays and
which may be old, do not count unless a setting says so.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from lakehouse.derived import LATEST
from streaming.derive.arrivals import READING_COLUMNS, SMALL_ROWS, Arrivals, News, gathered, without
from streaming.derive.own import OwnTable
from streaming.derive.source import rows_of
from streaming.writer import Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["AHEAD", "LatestDerivation", "latest_rows"]

AHEAD: Final = timedelta(minutes=10)
_VALUES: Final = ("value", "text", "unit", "event_time", "received_at", "flags")
_NEVER: Final = "timestamp_seconds(0)"


def latest_rows(readings: "DataFrame | None", known: "DataFrame | None", now: datetime) -> "DataFrame":
    """The newest of new readings and known rows; a known row stays as it is where no newer reading came.

    At least one of the two is given.
    """
    from pyspark.sql import functions as F

    us = int(now.timestamp() * 1_000_000)
    moment = F.expr(f"get(array(timestamp_micros({us}L)), length(device) - length(device))")
    parts = []
    if readings is not None:
        parts.append(
            readings.select("device", "metric", *_VALUES, moment.alias("updated_at"), "landed_at", "offset", "index")
        )
    if known is not None:
        arrival = (F.expr(_NEVER).alias("landed_at"), F.lit(0).cast("bigint").alias("offset"), F.lit(0).alias("index"))
        parts.append(known.select("device", "metric", *_VALUES, "updated_at", *arrival))
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1]).coalesce(1)
    seconds = int(AHEAD.total_seconds())
    order = F.struct(
        F.expr(f"least(event_time, received_at + make_dt_interval(0, 0, 0, {seconds}))"), "landed_at", "offset", "index"
    )
    newest = rows.groupBy("device", "metric").agg(F.max_by(F.struct(*_VALUES, "updated_at"), order).alias("newest"))
    return newest.select("device", "metric", "newest.*").select(*(F.col(c.name) for c in LATEST.columns))


class LatestDerivation:
    """`run` is one pass. Not thread-safe: the chores' thread calls it."""

    name = "latest"

    def __init__(self, writer: Writer, arrivals: Arrivals) -> None:
        self._writer, self._arrivals = writer, arrivals
        self._own = OwnTable(writer, LATEST)

    def run(self) -> bool:
        """One pass; False where nothing landed and nothing was corrected."""
        if not self._arrivals.begin():
            return False
        self._own.refresh()
        self._arrivals.look()
        seen = self._own.cursor["readings"] if self._own.cursor else None
        news = self._arrivals.readings.news(seen)
        if news.is_empty:
            return self._own.idle()
        rows = self._rows(news)
        replaced = list(self._own.files.values())
        self._own.replace(rows, replaced if rows is not None else (), lambda _append: {"readings": news.upto})
        return True

    def _rows(self, news: News) -> "DataFrame | None":
        from pyspark.sql import functions as F

        known = None if news.whole or not self._own.files else self._known()
        landed = self._counted(self._arrivals.readings_rows(news, READING_COLUMNS))
        landed, known = without(landed, self._own.erased - news.erased), without(known, news.erased)
        if news.corrected:
            corrected = sorted(news.corrected)
            if known is not None:
                known = known.where(~F.col("device").isin(corrected))
            anew = self._anew(corrected)
            other = landed.where(~F.col("device").isin(corrected)) if landed is not None else None
            landed = anew if other is None else other if anew is None else other.unionByName(anew)
        if landed is None and known is None:
            return None
        return latest_rows(landed, known, datetime.now(UTC)).coalesce(1)

    def _known(self) -> "DataFrame":
        files = list(self._own.files.values())
        rows = rows_of(self._writer.spark, self._writer.root, LATEST, files)
        return gathered(rows, min(SMALL_ROWS, sum(file.rows or 0 for file in files)))

    def _anew(self, devices: list[str]) -> "DataFrame | None":
        """All readings of some devices, as the table is now."""
        from pyspark.sql import functions as F

        everything = self._arrivals.readings.news(None)
        files = [file for file in everything.files if any(_may_hold(file.low, file.high, d) for d in devices)]
        rows = self._arrivals.rows(
            self._arrivals.readings, News(everything.upto, [(files, frozenset())] if files else []), READING_COLUMNS
        )
        return None if rows is None else self._counted(rows.where(F.col("device").isin(devices)))

    def _counted(self, rows: "DataFrame | None") -> "DataFrame | None":
        return rows if rows is None or self._writer.settings.count_retained else rows.where("retained IS NOT TRUE")


def _may_hold(low: Mapping[str, Any], high: Mapping[str, Any], device: str) -> bool:
    first, last = low.get("device"), high.get("device")
    # Statistics of long texts are cut to a prefix.
    return first is None or last is None or first <= device <= last or device.startswith(last)
