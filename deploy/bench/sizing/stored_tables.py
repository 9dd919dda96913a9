"""Rows, bytes and files of the tables for a fleet. Pure."""

from collections.abc import Sequence
from typing import Final

from deploy.bench.sizing.costs import Costs
from deploy.bench.sizing.fleet import Fleet, StoredTable
from deploy.settings import Settings
from lakehouse.derived_tables import DEVICES, LATEST, LEDGER
from lakehouse.maintenance import TIERS
from lakehouse.tables import READINGS
from streaming.derive.windows import DAY_US, MINUTE_US, SHAPES, WindowShape

__all__ = ["DERIVED_TABLES", "joins_per_day", "rewritten_rows", "stored_tables"]

DAY_SECONDS: Final = 86_400
DERIVED_TABLES: Final = (*(shape.table.name for shape in SHAPES), LEDGER.name, LATEST.name, DEVICES.name)
"""Tables of a derive pass, each with a commit."""


def stored_tables(fleet: Fleet, costs: Costs, settings: Settings) -> Sequence[StoredTable]:
    """Return `readings` and the tables derived from it; rejected messages and duplicates are left out."""
    lake = settings.lake
    days = lake.readings_days if fleet.days is None else fleet.days
    messages = DAY_SECONDS / fleet.every_seconds
    minutes = min(DAY_US / MINUTE_US, messages)
    dated = {
        READINGS.name: (fleet.rows_per_second * DAY_SECONDS, days),
        **{
            shape.table.name: (fleet.series * _windows(shape, messages), lake.rollups_days) for shape in SHAPES
        },
        LEDGER.name: (fleet.devices * minutes, lake.rollups_days),
    }  # fmt: skip
    found = [
        StoredTable(name, rows, kept, rows * (kept or 365), *_row(costs, name)) for name, (rows, kept) in dated.items()
    ]
    whole = {LATEST.name: fleet.series, DEVICES.name: fleet.devices}
    return [*found, *(StoredTable(name, 0.0, 0, float(rows), *_row(costs, name)) for name, rows in whole.items())]


def _windows(shape: WindowShape, messages_per_day: float) -> float:
    """Return the windows of a series in a day: each of them, or those that its evenly sent messages are in."""
    return min(DAY_US / shape.step, messages_per_day * shape.length / shape.step)


def rewritten_rows(fleet: Fleet) -> dict[str, float]:
    """Return the most rows of each derived table that one pass writes again.

    A pass writes the open slice of each rollup table again, which is full at its end, and the whole of `latest` and `devices`.
    """
    messages = DAY_SECONDS / fleet.every_seconds
    slices = {
        shape.table.name: fleet.series * max(1.0, _windows(shape, messages) * shape.slice / DAY_US) for shape in SHAPES
    }
    return {**slices, LATEST.name: float(fleet.series), DEVICES.name: float(fleet.devices)}


def joins_per_day(commits_per_day: float) -> float:
    """Return the joins of small files a day, if each commit adds one file of the smallest tier."""
    found, files = 0.0, commits_per_day
    for _, together in TIERS:
        files /= together
        found += files
    return found


def _row(costs: Costs, name: str) -> tuple[float, str]:
    figure = costs.tables[name]
    return figure.value, figure.source
