"""Preview of a correction: rows, files, smallest and largest value before and after, one example. It changes nothing."""

import difflib
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import TidegateError
from lakehouse.query import duckdb_literal, run_sql
from streaming.history.row_correction import BEYOND_DOUBLE, COLUMNS, FLAG, RowCorrection
from streaming.history.selection import MatchedFiles, RowSelection, find_matches

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CorrectionPlan", "plan_correction", "require_device", "units_of"]

_DEVICES: Final = """
    select device from devices union select device from readings
    union select device from dead_letters where device is not null order by device"""


@dataclass(slots=True)
class CorrectionPlan:
    """Findings of a planned correction, gathered from one batch of selected rows after the other."""

    change: RowCorrection
    match: MatchedFiles = field(init=False)
    rows: int = 0
    metrics: Counter[str] = field(default_factory=Counter)
    units: Counter[str] = field(default_factory=Counter)
    unknown_units: set[str | None] = field(default_factory=set)
    bounds: "dict[str, tuple[Any, Any]]" = field(default_factory=dict)
    example: dict[str, Any] | None = None

    @property
    def removed_rows(self) -> int:
        """Rows that will be gone."""
        return self.rows if self.change.delete else 0

    def see(self, batch: "pa.RecordBatch") -> None:
        """Take in selected rows (COLUMNS)."""
        import pyarrow as pa

        touched = self.change.touched(pa.Table.from_batches([batch]).select(COLUMNS))
        if not touched.num_rows:
            return
        self.rows += touched.num_rows
        self.metrics += _counted(touched["metric"])
        self.units += _counted(touched["unit"])
        self.unknown_units |= set(self.change.unknown_units(touched))
        values = self.change.values(touched)
        for name, column in (("event_time", touched["event_time"]), ("before", touched["value"]), ("after", values)):
            self._stretch(name, column)
        if self.example is None:
            self.example = self._example(touched, values)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for people and as JSON. Times are ISO 8601 in UTC."""
        first, last = self.bounds["event_time"]
        return {
            "rows": self.rows,
            "untouched": self.match.row_count - self.rows,
            "files": len(self.match.files),
            "metrics": dict(self.metrics),
            "units": dict(self.units),
            "before": self._named("before"),
            "after": {"min": None, "max": None} if self.change.delete else self._named("after"),
            "first": first.isoformat(),
            "last": last.isoformat(),
            "example": self.example,
        }

    def _stretch(self, name: str, column: "pa.ChunkedArray") -> None:
        import pyarrow.compute as pc

        found = pc.min_max(column).as_py()
        low, high = self.bounds.get(name, (None, None))
        lows = [value for value in (low, found["min"]) if value is not None]
        highs = [value for value in (high, found["max"]) if value is not None]
        self.bounds[name] = (min(lows, default=None), max(highs, default=None))

    def _named(self, name: str) -> dict[str, float | None]:
        low, high = self.bounds[name]
        return {"min": low, "max": high}

    def _example(self, touched: "pa.Table", values: "pa.ChunkedArray") -> dict[str, Any]:
        before = touched.slice(0, 1).to_pylist()[0]
        before["event_time"] = before["event_time"].isoformat()
        if self.change.delete:
            return {"before": before, "after": None}
        after = {**before, "flags": list(before["flags"] or [])}
        if self.change.unit is not None:
            after["unit"] = self.change.unit
        if self.change.unit is None or self.change.conversions is not None:
            after["value"], after["text"] = values[0].as_py(), None
            after["flags"] = [flag for flag in after["flags"] if flag != BEYOND_DOUBLE]
        if FLAG not in after["flags"]:
            after["flags"].append(FLAG)
        return {"before": before, "after": after}


def plan_correction(root: str, selection: RowSelection, change: RowCorrection) -> CorrectionPlan:
    """Look at the table as it is now. Memory holds one batch of rows.

    Raises:
        TidegateError: there is nothing to correct, or it cannot be done so; a sentence with the next step.
        UnavailableError: there is no table.
    """
    change.check()
    _check_range(selection)
    plan = CorrectionPlan(change)
    plan.match = find_matches(root, "readings", selection, columns=COLUMNS, see=plan.see)
    if not plan.match.row_count:
        raise TidegateError(_nothing(root, selection))
    if plan.unknown_units:
        shown = ", ".join("no unit" if unit is None else repr(unit) for unit in sorted(plan.unknown_units, key=str))
        message = (
            f"Rows of the device {selection.device} have {shown}, which cannot be converted to {change.unit}; nothing was "
            f"changed. Name a --metric with a unit that fits, or add --relabel to set the unit {change.unit} without a change "
            "of the numbers."
        )
        raise TidegateError(message)
    if not plan.rows:
        raise TidegateError(_untouched(selection, change, plan.match.row_count))
    low, high = plan.bounds["after"]
    if any(value is not None and not math.isfinite(value) for value in (low, high)):
        message = f"A value would become {low} or {high}, which cannot be stored. Nothing was changed."
        raise TidegateError(message)
    return plan


def units_of(root: str, selection: RowSelection) -> list[str]:
    """The units that the selected rows have."""
    found: set[str | None] = set()
    find_matches(
        root, "readings", selection, columns=("unit",), see=lambda rows: found.update(rows["unit"].unique().to_pylist())
    )
    return sorted(unit for unit in found if unit is not None)


def require_device(root: str, device: str) -> None:
    """Refuse a device that no table has.

    Raises:
        TidegateError: names those that are spelled alike.
    """
    known = _known_devices(root)
    if device in known:
        return
    close = difflib.get_close_matches(device, known, n=3, cutoff=0.6)
    hint = (
        f" Did you mean {' or '.join(close)}?" if close else ' `tidegate sql "select device from devices"` lists them.'
    )
    message = f"No table has a device {device}; the tables have {len(known)} devices.{hint}"
    raise TidegateError(message)


def _known_devices(root: str) -> list[str]:
    """The devices that any of the tables names."""
    found = run_sql(root, _DEVICES)
    return list(found["device"].to_pylist())


def _check_range(selection: RowSelection) -> None:
    since, until = selection.since, selection.until
    if since is not None and until is not None and since >= until:
        message = (
            f"The range from {since.isoformat()} to {until.isoformat()} is empty: --from must be before --to, "
            "and the range excludes a reading at --to itself."
        )
        raise TidegateError(message)


def _nothing(root: str, selection: RowSelection) -> str:
    require_device(root, selection.device)
    sql = (
        "select metric, count(*) as rows, min(event_time) as since, max(event_time) as until "  # noqa: S608
        f"from readings where device = {duckdb_literal(selection.device)} group by metric order by rows desc"
    )
    found = run_sql(root, sql).to_pylist()
    if not found:
        return f"The device {selection.device} no longer has rows in readings."
    held = [row for row in found if selection.metric in (None, row["metric"])]
    if not held:
        names = [row["metric"] for row in found]
        close = difflib.get_close_matches(selection.metric or "", names, n=1) or names[:5]
        return f"The device {selection.device} has no metric {selection.metric}; it has {', '.join(close)}."
    since, until = min(row["since"] for row in held), max(row["until"] for row in held)
    return (
        f"The device {selection.device} has no rows in that range; nothing was changed. Its rows have event_time from "
        f"{since.isoformat()} to {until.isoformat()}."
    )


def _untouched(selection: RowSelection, change: RowCorrection, rows: int) -> str:
    if change.unit is not None:
        return f"All {rows} rows of the device {selection.device} in that range already have the unit {change.unit}."
    return (
        f"The {rows} rows of the device {selection.device} in that range hold text or true and false, not numbers. Only "
        "--delete and --unit --relabel can change those."
    )


def _counted(values: "pa.ChunkedArray") -> Counter[str]:
    return Counter({entry["values"] or "": entry["counts"] for entry in values.value_counts().to_pylist()})
