"""What a correction would do: rows, files, smallest and largest value before and after, one example. Changes nothing."""

import difflib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import TidegateError
from lakehouse.query import run_sql
from streaming.history.change import COLUMNS, FLAG, Change
from streaming.history.selection import Match, Selection, matches

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Plan", "known_devices", "plan_correction", "require_device"]

_DEVICES: Final = """
    select device from devices union select device from readings
    union select device from dead_letters where device is not null order by device"""
_BEYOND_DOUBLE: Final = "beyond_double"


@dataclass(frozen=True, slots=True)
class Plan:
    """A correction that can be made now: the selected rows, those of them that it changes, and their new numbers."""

    match: Match
    touched: "pa.Table"
    values: "pa.ChunkedArray"
    change: Change

    @property
    def removed_rows(self) -> int:
        """Rows that will be gone."""
        return self.touched.num_rows if self.change.delete else 0

    def told(self) -> dict[str, Any]:
        """For people and as JSON. Times ISO 8601 UTC."""
        return {
            "rows": self.touched.num_rows,
            "untouched": self.match.row_count - self.touched.num_rows,
            "files": len(self.match.files),
            "metrics": _counted(self.touched["metric"]),
            "units": _counted(self.touched["unit"]),
            "before": _bounds(self.touched["value"]),
            "after": {"min": None, "max": None} if self.change.delete else _bounds(self.values),
            "first": _time(self.touched, last=False),
            "last": _time(self.touched, last=True),
            "example": self._example(),
        }

    def _example(self) -> dict[str, Any]:
        before = self.touched.slice(0, 1).to_pylist()[0]
        before["event_time"] = before["event_time"].isoformat()
        if self.change.delete:
            return {"before": before, "after": None}
        after = {**before, "flags": list(before["flags"] or [])}
        if self.change.unit is not None:
            after["unit"] = self.change.unit
        if self.change.unit is None or self.change.conversions is not None:
            after["value"], after["text"] = self.values[0].as_py(), None
            after["flags"] = [flag for flag in after["flags"] if flag != _BEYOND_DOUBLE]
        if FLAG not in after["flags"]:
            after["flags"].append(FLAG)
        return {"before": before, "after": after}


def plan_correction(root: str, selection: Selection, change: Change) -> Plan:
    """Look at the table as it is now.

    Raises:
        TidegateError: there is nothing to correct, or it cannot be done so; a sentence with the next step.
        UnavailableError: there is no table.
    """
    change.check()
    _check_range(selection)
    match = matches(root, "readings", selection, columns=COLUMNS)
    if not match.row_count:
        raise TidegateError(_nothing(root, selection))
    touched = change.touched(match.rows)
    if unknown := change.unknown_units(touched):
        shown = ", ".join("no unit" if unit is None else repr(unit) for unit in unknown)
        message = (
            f"Rows of the device {selection.device} have {shown}, which cannot be converted to {change.unit}; nothing was "
            f"changed. Name a --metric whose unit fits, or add --relabel to give the unit {change.unit} and keep the numbers."
        )
        raise TidegateError(message)
    if not touched.num_rows:
        raise TidegateError(_untouched(selection, change, match.row_count))
    values = change.values(touched)
    bounds = _bounds(values)
    if any(value is not None and not math.isfinite(value) for value in bounds.values()):
        message = f"A value would become {bounds['min']} or {bounds['max']}, which is not stored. Nothing was changed."
        raise TidegateError(message)
    return Plan(match, touched, values, change)


def require_device(root: str, device: str) -> None:
    """Refuse a device that no table knows.

    Raises:
        TidegateError: names those that are spelled alike.
    """
    known = known_devices(root)
    if device in known:
        return
    close = difflib.get_close_matches(device, known, n=3, cutoff=0.6)
    hint = (
        f" Did you mean {' or '.join(close)}?" if close else ' `tidegate sql "select device from devices"` lists them.'
    )
    message = f"No table knows a device {device}; {len(known)} are known.{hint}"
    raise TidegateError(message)


def known_devices(root: str) -> list[str]:
    """The devices that any of the tables names."""
    found = run_sql(root, _DEVICES)
    return list(found["device"].to_pylist())


def _check_range(selection: Selection) -> None:
    since, until = selection.since, selection.until
    if since is not None and until is not None and since >= until:
        message = (
            f"The range from {since.isoformat()} to {until.isoformat()} is empty: --from must be before --to, "
            "and a reading at --to itself is not in it."
        )
        raise TidegateError(message)


def _nothing(root: str, selection: Selection) -> str:
    require_device(root, selection.device)
    device = selection.device.replace("'", "''")
    sql = (
        "select metric, count(*) as rows, min(event_time) as since, max(event_time) as until "  # noqa: S608
        f"from readings where device = '{device}' group by metric order by rows desc"
    )
    found = run_sql(root, sql).to_pylist()
    if not found:
        return f"The device {selection.device} has no rows in readings any more."
    held = [row for row in found if selection.metric in (None, row["metric"])]
    if not held:
        names = [row["metric"] for row in found]
        close = difflib.get_close_matches(selection.metric or "", names, n=1) or names[:5]
        return f"The device {selection.device} has no metric {selection.metric}; it has {', '.join(close)}."
    since, until = min(row["since"] for row in held), max(row["until"] for row in held)
    return (
        f"Nothing of the device {selection.device} lies in that range; nothing was changed. Its rows have event_time from "
        f"{since.isoformat()} to {until.isoformat()}."
    )


def _untouched(selection: Selection, change: Change, rows: int) -> str:
    if change.unit is not None:
        return f"All {rows} rows of the device {selection.device} in that range have the unit {change.unit} already."
    return (
        f"The {rows} rows of the device {selection.device} in that range hold no number to change: they are text or true "
        "and false. Only --delete and --unit --relabel reach those."
    )


def _bounds(values: "pa.ChunkedArray") -> dict[str, float | None]:
    import pyarrow.compute as pc

    found: dict[str, float | None] = pc.min_max(values).as_py()
    return found


def _counted(values: "pa.ChunkedArray") -> dict[str, int]:
    return {entry["values"] or "": entry["counts"] for entry in values.value_counts().to_pylist()}


def _time(rows: "pa.Table", *, last: bool) -> str:
    import pyarrow.compute as pc

    found = pc.min_max(rows["event_time"]).as_py()["max" if last else "min"]
    return str(found.isoformat())
