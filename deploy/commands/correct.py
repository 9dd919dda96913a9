"""`tidegate correct`: change stored readings on purpose, with author and reason; the writer of the tables does it."""

from typing import Annotated, Any

import typer

from deploy.command_line import CommandLine, commands_for_options
from deploy.commands.options import (
    Author,
    Data,
    Device,
    DryRun,
    Json,
    OptionalConfig,
    Reason,
    given_reason,
    parse_time,
    show_json,
    system_user,
)

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(correct)


def correct(
    device: Device,
    since: Annotated[str, typer.Option("--from", help="First event_time to correct: ISO time, or 2h-ago.")],
    until: Annotated[str, typer.Option("--to", help="Correct up to this event_time, exclusive.")],
    reason: Reason,
    metric: Annotated[
        str | None, typer.Option("--metric", "-m", help="Only this metric (default: all).", show_default=False)
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the rows.")] = False,
    factor: Annotated[
        float | None, typer.Option("--factor", help="Multiply the values by this number.", show_default=False)
    ] = None,
    offset: Annotated[
        float | None, typer.Option("--offset", help="Add this number to the values.", show_default=False)
    ] = None,
    unit: Annotated[
        str | None, typer.Option("--unit", help="Convert to this unit, such as °C.", show_default=False)
    ] = None,
    relabel: Annotated[
        bool, typer.Option("--relabel", help="With --unit: change only the unit, not the values.")
    ] = False,
    author: Author = None,
    dry_run: DryRun = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Correct stored readings of a device, with a reason.

    Corrects the rows with event_time in [--from, --to) once, by one of --delete, --factor, --offset and --unit. Corrected
    rows get the flag `corrected`; rollups and latest values follow automatically. `tidegate sql --version` shows the rows as
    they were, as long as the log is kept. Rows that arrive later are stored unchanged.
    """
    from deploy.local.locate_settings import locate_settings
    from deploy.requests import local_root, run_request
    from lakehouse.requests import Request
    from streaming.history.plan_correction import plan_correction
    from streaming.history.row_correction import RowCorrection
    from streaming.history.selection import RowSelection

    if relabel and unit is None:
        msg = "--relabel needs --unit."
        raise typer.BadParameter(msg)
    settings, line = locate_settings(config, data, needs_run=False), commands_for_options(config, data)
    local_root(settings)
    selection = RowSelection(device, metric, parse_time(since), parse_time(until))
    plain = RowCorrection(delete, factor, offset, unit)
    plain.check()
    change = plain if unit is None or relabel else _conversion(settings.lake.root, selection, unit)
    # Plan also before the change itself, so that an error appears at once, with or without a writer.
    planned = plan_correction(settings.lake.root, selection, change).as_dict()
    if dry_run:
        _show({**selection.arguments(), **planned, "dry_run": True}, line, as_json=as_json)
        return
    arguments = {**selection.arguments(), **change.arguments()}
    request = Request("correct", arguments, author=author or system_user(), reason=given_reason(reason))
    done = run_request(settings, request, tell=lambda text: typer.echo(text, err=True))
    _show(done, line, as_json=as_json)


def _conversion(root: str, selection: Any, unit: str) -> Any:
    from gateway.profiles.units import canonical_spelling, conversions_to, known_unit
    from ingest.contract.errors import TidegateError
    from streaming.history.plan_correction import units_of
    from streaming.history.row_correction import RowCorrection

    if not known_unit(unit):
        message = (
            f"No unit converts to {unit!r}. To change only the unit of the rows and keep their values, add --relabel."
        )
        raise TidegateError(message)
    wanted = canonical_spelling(unit)
    given = [each for each in units_of(root, selection) if each != wanted]
    return RowCorrection(unit=wanted, conversions=conversions_to(wanted, given))


def _show(told: dict[str, Any], line: CommandLine, *, as_json: bool) -> None:
    if as_json:
        show_json(told)
    else:
        typer.echo(line.fill("\n".join(_correction(told))))


def _correction(told: dict[str, Any]) -> list[str]:
    would = "would be " if told.get("dry_run") else ""
    metrics = ", ".join(f"{name} ({rows})" for name, rows in told["metrics"].items())
    lines = [
        f"{told['rows']} rows {would}corrected in {told['files']} files: {metrics}",
        f"event_time  {told['first']} to {told['last']}",
        f"before      {_bounds(told['before'])}",
        f"after       {_bounds(told['after'])}",
    ]
    if told["untouched"]:
        lines.append(f"{told['untouched']} rows in that time stay unchanged")
    if "version" in told:
        lines.append(
            f"version     {told['version']} of readings; as it was: `tidegate sql --version {told['before_version']} 'select …'`"
        )
    elif example := told.get("example"):
        lines += [f"example     {name}: {_row(example[name])}" for name in ("before", "after")]
    return lines


def _bounds(bounds: dict[str, float | None]) -> str:
    return "no number" if bounds["min"] is None else f"{bounds['min']!r} to {bounds['max']!r}"


def _row(row: dict[str, Any] | None) -> str:
    return "gone" if row is None else " ".join(f"{name}={value}" for name, value in row.items() if value is not None)
