"""Derivation of `latest`: the newest reading of each device and metric by event_time; of equal ones the later arrival.

An event_time far ahead of its receipt counts as `received_at + AHEAD`, so that a clock that once ran ahead does not keep the
row for years. The row itself has the event_time of `readings`. Retained messages do not count unless a setting says so, because
the broker replays them and they may be old.

`stale_since` belongs to a device: its newest reading of any metric is older than five of its usual intervals, as `devices`
learned them (`monitoring/silence.py`). A metric that is sent only on change does not become stale while its device sends
others. Values become stale by time alone, so a pass without news looks at the next moment at which one does.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from lakehouse.changes import newest_version, table_files
from lakehouse.data_files import read_columns
from lakehouse.derived_tables import DEVICES, LATEST
from lakehouse.file_stats import may_hold_text
from lakehouse.frames import rows_of
from lakehouse.paths import table_uri
from monitoring.silence import silence_seconds
from streaming.arrow_sql import ArrowSql
from streaming.derive.derived_table import DerivedTable
from streaming.derive.shared_arrivals import (
    READING_COLUMNS,
    SMALL_ROWS,
    SharedArrivals,
    TableChanges,
    coalesce_few_rows,
    drop_devices,
)
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = ["LatestDerivation", "latest_rows", "next_stale"]

AHEAD: Final = timedelta(minutes=10)
_VALUES: Final = ("value", "text", "unit", "event_time", "received_at", "flags")
_NEVER: Final = "timestamp_seconds(0)"
_FAR: Final = datetime.max.replace(tzinfo=UTC)
LOOK_AGAIN: Final = timedelta(minutes=5)
"""Intervals change meanwhile."""
_NEXT_STALE: Final = f"""
    WITH heard AS (
        SELECT device, epoch(max(received_at)) AS heard_at, bool_or(stale_since IS NULL) AS is_fresh FROM latest GROUP BY device
    )
    SELECT min(heard_at + {silence_seconds("interval_learned_s")}) AS at
    FROM heard LEFT JOIN devices USING (device) WHERE is_fresh"""  # noqa: S608


def latest_rows(
    readings: "DataFrame | None", known: "DataFrame | None", now: datetime, devices: "DataFrame | None" = None
) -> "DataFrame":
    """The newest of new readings and known rows; a known row stays as it is where no newer reading came.

    At least one of the two is given. `devices` are rows of that table, for the intervals.
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
    rows = _with_stale(newest.select("device", "metric", "newest.*"), devices, moment)
    return rows.select(*(F.col(c.name) for c in LATEST.columns))


def _with_stale(rows: "DataFrame", devices: "DataFrame | None", now: "Column") -> "DataFrame":
    """Add `stale_since`. Intervals come in as rows of their own, so that no exchange is needed for a join."""
    from pyspark.sql import functions as F

    rows = rows.withColumn("interval", F.lit(None).cast("double"))
    if devices is not None:
        nothing = [F.lit(None).cast(c.type).alias(c.name) for c in LATEST.columns if c.name in (*_VALUES, "updated_at")]
        learned = devices.select(
            "device",
            F.lit(None).cast("string").alias("metric"),
            *nothing,
            F.col("interval_learned_s").alias("interval"),
        )
        rows = rows.unionByName(learned).coalesce(1)
    of_device = "OVER (PARTITION BY device)"
    silence = silence_seconds("interval_usual")
    rows = rows.withColumns(
        {"interval_usual": F.expr(f"max(interval) {of_device}"), "heard_at": F.expr(f"max(received_at) {of_device}")}
    )
    rows = rows.withColumn("due", F.expr(f"timestamp_micros(unix_micros(heard_at) + CAST({silence} * 1e6D AS BIGINT))"))
    rows = rows.withColumn("stale_since", F.when(F.col("due") <= now, F.col("due")))
    return rows.where("metric IS NOT NULL")


def next_stale(latest: "pa.Table", devices: "pa.Table") -> datetime | None:
    """Return the time at which the next value goes stale; None if all are stale, or there is none."""
    at = ArrowSql().query(_NEXT_STALE, latest=latest, devices=devices)["at"][0].as_py()
    return None if at is None else datetime.fromtimestamp(at, UTC)


class LatestDerivation:
    """`run` is one pass. Not thread-safe: the chores' thread calls it."""

    name = "latest"

    def __init__(
        self,
        writer: WriterContext,
        arrivals: SharedArrivals,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._writer, self._arrivals, self._now = writer, arrivals, now
        self._own = DerivedTable(writer, LATEST)
        self._stale_at: datetime | None = None
        self._looked_at = datetime.min.replace(tzinfo=UTC)

    def run(self) -> bool:
        """Run one pass; return False if nothing landed, was corrected or went stale."""
        if not self._arrivals.begin():
            return False
        self._own.refresh()
        self._arrivals.look()
        seen = self._own.cursor["readings"] if self._own.cursor else None
        news = self._arrivals.readings.news(seen)
        if news.is_empty and not self._goes_stale():
            return self._own.idle()
        rows = self._rows(news)
        self._stale_at = None
        replaced = list(self._own.files.values())
        self._own.replace(rows, replaced if rows is not None else (), lambda _append: {"readings": news.upto})
        return True

    def _rows(self, news: TableChanges) -> "DataFrame | None":
        from pyspark.sql import functions as F

        known = None if news.whole or not self._own.files else self._known()
        landed = self._counted(self._arrivals.readings_rows(news, READING_COLUMNS))
        landed, known = drop_devices(landed, self._own.erased - news.erased), drop_devices(known, news.erased)
        if news.corrected:
            corrected = sorted(news.corrected)
            if known is not None:
                known = known.where(~F.col("device").isin(corrected))
            anew = self._anew(corrected)
            other = landed.where(~F.col("device").isin(corrected)) if landed is not None else None
            landed = anew if other is None else other if anew is None else other.unionByName(anew)
        if landed is None and known is None:
            return None
        return latest_rows(landed, known, self._now(), self._devices()).coalesce(1)

    def _devices(self) -> "DataFrame | None":
        version = newest_version(self._writer.root, DEVICES.name)
        files = table_files(self._writer.root, DEVICES.name, version=version)
        return rows_of(self._writer.spark, self._writer.root, DEVICES, files) if files else None

    def _goes_stale(self) -> bool:
        """Return whether a value has gone stale since the last write; files are read once for each write, without Spark."""
        now = self._now()
        if self._stale_at is None or now - self._looked_at >= LOOK_AGAIN:
            self._stale_at, self._looked_at = self._next_stale(), now
        return now >= self._stale_at

    def _next_stale(self) -> datetime:
        root, wanted = (
            self._writer.root,
            {LATEST: ("device", "received_at", "stale_since"), DEVICES: ("device", "interval_learned_s")},
        )
        found = []
        for table, columns in wanted.items():
            files = table_files(root, table.name, version=newest_version(root, table.name))
            if not files:
                return _FAR
            found.append(read_columns(table_uri(root, table.name), [unquote(file.path) for file in files], columns))
        return next_stale(*found) or _FAR

    def _known(self) -> "DataFrame":
        files = list(self._own.files.values())
        rows = rows_of(self._writer.spark, self._writer.root, LATEST, files)
        return coalesce_few_rows(rows, min(SMALL_ROWS, sum(file.rows or 0 for file in files)))

    def _anew(self, devices: list[str]) -> "DataFrame | None":
        """All readings of some devices, as the table is now."""
        from pyspark.sql import functions as F

        everything = self._arrivals.readings.news(None)
        files = [file for file in everything.files if any(may_hold_text(file, "device", device) for device in devices)]
        rows = self._arrivals.rows(
            self._arrivals.readings,
            TableChanges(everything.upto, [(files, frozenset())] if files else []),
            READING_COLUMNS,
        )
        return None if rows is None else self._counted(rows.where(F.col("device").isin(devices)))

    def _counted(self, rows: "DataFrame | None") -> "DataFrame | None":
        return rows if rows is None or self._writer.settings.count_retained else rows.where("retained IS NOT TRUE")
