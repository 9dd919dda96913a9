"""A size as text for people, and as data for `--json`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from deploy.bench.sizing.fleet import Ceiling, Fleet, Size, SizeLine, StoredTable
from deploy.bench.suite.report.html_tables import number_text

__all__ = ["command_line", "render_size", "size_data"]

GB: Final = 1e9


def command_line(fleet: Fleet) -> str:
    """Return the command that prints the size of a fleet with the shipped costs and the default settings."""
    prices = fleet.prices
    given = (
        ("--readings", fleet.readings if fleet.readings != 1 else None),
        ("--bytes", fleet.payload_bytes),
        ("--days", fleet.days),
        ("--machine-cores", None if fleet.machine_cores == 8 else fleet.machine_cores),
        ("--price-core-hour", prices.core_hour),
        ("--price-gb-month", prices.gb_month),
        ("--price-1000-puts", prices.thousand_puts),
    )
    options = [f"{name} {value:g}" for name, value in given if value is not None]
    plain = [name for name, given in (("--no-counters", not fleet.numbered), ("--tls", fleet.tls)) if given]
    return " ".join(
        ["tidegate bench size", f"--devices {fleet.devices}", f"--every {fleet.every_seconds:g}", *options, *plain]
    )


def size_data(size: Size) -> dict[str, Any]:
    """Return the size as JSON-ready data: every figure with its unit and its source."""
    return {
        "fleet": asdict(size.fleet),
        "figures": [asdict(line) for line in size.lines],
        "tables": [
            {**asdict(table), **{name: getattr(table, name) for name in ("bytes_per_day", "bytes", "files_per_day")}}
            for table in size.tables
        ],
        "ceilings": [{**asdict(one), "share": one.share} for one in size.ceilings],
        "assumptions": list(size.assumptions),
        "measured_on": size.machine,
    }


def render_size(size: Size) -> str:
    """Return the size as lines for people."""
    fleet = size.fleet
    title = f"{fleet.devices:,} devices, a message every {fleet.every_seconds:g} s, {fleet.readings} reading(s) each"
    return "\n".join([title, "", *_groups(size.lines), *_tables(size.tables), *_ceilings(size.ceilings), *_notes(size)])


def _groups(lines: Sequence[SizeLine]) -> Iterator[str]:
    for group in dict.fromkeys(line.group for line in lines):
        rows = [(line.name, _amount(line.value, line.unit), line.source) for line in lines if line.group == group]
        yield from [group, *_table(rows), ""]


def _tables(tables: Sequence[StoredTable]) -> Iterator[str]:
    yield "tables after maintenance"
    heads = ("", "rows a day", "GB a day", "files a day", "days", "GB", "bytes a row")
    rows = [
        heads,
        *map(_table_row, tables),
        ("all", "", "", "", "", number_text(sum(table.bytes for table in tables) / GB), ""),
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(heads))]
    for row in rows:
        first, *others = (
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield f"  {first}  {'  '.join(others)}".rstrip()
    for source in dict.fromkeys(table.source for table in tables):
        names = ", ".join(table.name for table in tables if table.source == source)
        yield f"  bytes a row of {names}: {source}"
    yield ""


def _table_row(table: StoredTable) -> tuple[str, ...]:
    kept = str(table.kept_days) if table.kept_days else "365" if table.rows_per_day else ""
    daily = (table.rows_per_day, table.bytes_per_day / GB, table.files_per_day)
    shown = (number_text(value) if table.rows_per_day else "" for value in daily)
    return table.name, *shown, kept, number_text(table.bytes / GB), number_text(table.row_bytes)


def _ceilings(ceilings: Sequence[Ceiling]) -> Iterator[str]:
    yield "first to break (share of the limit, the limit, devices at which it is reached)"
    for one in ceilings:
        mark = "over" if one.share > 1 else "fits"
        amounts = f"{number_text(one.needed)} of {number_text(one.limit)} {one.unit}"
        yield f"  {mark}  {number_text(100 * one.share):>9} %  {one.name}: {amounts}; reached at {one.devices:,.0f} devices"
        yield f"        {one.kind}: {one.where}"
        if one.share > 1:
            yield f"        {one.effect}."
    yield ""


def _notes(size: Size) -> Iterator[str]:
    yield "assumptions"
    yield from (f"  {each}" for each in size.assumptions)
    yield f"  Measured on {size.machine}."


def _table(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    first, second = (max(len(row[place]) for row in rows) for place in (0, 1))
    for name, amount, source in rows:
        yield f"  {name:{first}}  {amount:{second}}  {source}".rstrip()


def _amount(value: float, unit: str) -> str:
    return f"{number_text(value):>15} {unit}".rstrip()
