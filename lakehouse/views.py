"""Named queries over the tables: `readings_wide_<profile>` and `counter_deltas`.

They are made when a query names them and are not stored, so they always use the table version of the query.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lakehouse.counters import COUNTER_DELTAS_SPARK, COUNTER_DELTAS_SQL

__all__ = ["View", "names_in_query", "shipped_views", "views_in", "wide_view"]

WIDE: Final = "readings_wide_"
_NO_REPLAY: Final = "NOT coalesce(retained OR array_contains(flags, 'retained'), false)"
"""Rows of older versions have the flag alone."""
_MESSAGE: Final = ("device", "event_time", "received_at", "message_id", "partition", "offset", "date")


@dataclass(frozen=True, slots=True)
class View:
    """One query with a name; `spark` where Spark writes it in other words than DuckDB."""

    name: str
    comment: str
    sql: str
    spark: str | None = None


def wide_view(profile: str, metrics: Mapping[str, str], *, count_retained: bool = False) -> View:
    """One row per device and message (and per moment, where one message holds several), one column per metric.

    Of several values of one metric in one message the first counts. Only messages with one of the metrics are there.

    Args:
        profile: its name; other characters than letters, digits and underscores become underscores in the view's name.
        metrics: names and kinds as profiles have them: number, integer, boolean, text, enum or any. A metric of any kind
            gets two columns: its number, and `<metric>_text`.
        count_retained: list retained messages too, which a broker replays.
    """
    name = WIDE + re.sub(r"\W", "_", profile, flags=re.ASCII)
    return View(
        name,
        f"The metrics of profile {profile} as columns, one row per device, message and moment.",
        _wide(metrics, '"', count_retained=count_retained),
        _wide(metrics, "`", count_retained=count_retained),
    )


def _wide(metrics: Mapping[str, str], quote: str, *, count_retained: bool) -> str:
    def quoted(text: str) -> str:
        return quote + text.replace(quote, quote * 2) + quote

    def literal(text: str) -> str:
        # Spark reads backslashes in a text, DuckDB does not.
        escaped = text.replace("\\", "\\\\") if quote == "`" else text
        return "'" + escaped.replace("'", "\\'" if quote == "`" else "''") + "'"

    taken = {column.lower() for column in _MESSAGE}
    columns = []
    for metric, kind in metrics.items():
        for column, value in _columns(metric, kind, metrics):
            while column.lower() in taken:
                column = f"{column}_"  # noqa: PLW2901 - a metric named like a column of the message
            taken.add(column.lower())
            first = f"min_by({value}, {quoted('index')}) FILTER (WHERE metric = {literal(metric)})"
            columns.append(f"  {first} AS {quoted(column)}")
    message = ", ".join(quoted(name) for name in _MESSAGE)
    wanted = ", ".join(map(literal, metrics))
    listed = ",\n".join([f"  {message}", *columns])
    condition = f"metric IN ({wanted})" + ("" if count_retained else f" AND {_NO_REPLAY}")
    return f"SELECT\n{listed}\nFROM readings\nWHERE {condition}\nGROUP BY {message}"


def _columns(metric: str, kind: str, metrics: Mapping[str, str]) -> list[tuple[str, str]]:
    if kind == "boolean":
        return [(metric, "value = 1")]
    if kind in ("text", "enum"):
        return [(metric, "text")]
    texts = [(f"{metric}_text", "text")] if kind == "any" and f"{metric}_text" not in metrics else []
    return [(metric, "value"), *texts]


def shipped_views() -> list[View]:
    """The views that need no setting."""
    comment = (
        "Gain of each counter from one reading to the next; a dip, reset or wrap does not give a spike. "
        "`pending` is a further gain that a row with event `open` may have."
    )
    return [View("counter_deltas", comment, COUNTER_DELTAS_SQL, COUNTER_DELTAS_SPARK)]


def views_in(sql: str, views: Iterable[View]) -> list[View]:
    """Return the views whose names are in the query."""
    found = list(views)
    names = set(names_in_query(sql, [view.name for view in found]))
    return [view for view in found if view.name in names]


def names_in_query(sql: str, names: Iterable[str]) -> list[str]:
    """Return the names that are words of the query; one too many costs only some milliseconds."""
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE)]
