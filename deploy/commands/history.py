"""`tidegate correct` and `tidegate erase`: history changed on purpose, with who and why; the writer does it."""

import getpass
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.command_line import CommandLine, of_options
from deploy.commands.options import Data, Json, OptionalConfig, parse_time, show_json

__all__ = ["register"]

Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the table's history and in the journal.")]
Author = Annotated[
    str | None, typer.Option("--author", help="Who (default: the user of this system).", show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]
Device = Annotated[str, typer.Option("--device", "-d", help="The device, as in the column of that name.")]


def register(parent: typer.Typer) -> None:
    """Add the commands to the command line."""
    parent.command()(correct)
    parent.command()(erase)


def correct(
    device: Device,
    since: Annotated[str, typer.Option("--from", help="From this event_time on: ISO time, or 2h-ago.")],
    until: Annotated[str, typer.Option("--to", help="Up to this event_time, which is left as it is.")],
    reason: Reason,
    metric: Annotated[str | None, typer.Option("--metric", "-m", help="Only this one.", show_default=False)] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Take the rows away.")] = False,
    factor: Annotated[float | None, typer.Option("--factor", help="Multiply by it.", show_default=False)] = None,
    offset: Annotated[float | None, typer.Option("--offset", help="Add it.", show_default=False)] = None,
    unit: Annotated[
        str | None, typer.Option("--unit", help="Convert to this unit, such as °C.", show_default=False)
    ] = None,
    relabel: Annotated[bool, typer.Option("--relabel", help="With --unit: name it so and keep the numbers.")] = False,
    author: Author = None,
    dry_run: DryRun = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Correct stored readings of a device, with a reason.

    Those with event_time in [--from, --to), once, by one of --delete, --factor, --offset and --unit. Corrected rows carry
    the flag `corrected`; rollups and latest values follow by themselves; what the rows were stays readable with
    `tidegate sql --version` as long as the log is kept. Rows that arrive later are stored as they come.
    """
    from deploy.local.locate import locate_settings
    from lakehouse.requests import Request
    from streaming.history.change import Change
    from streaming.history.plan import plan_correction
    from streaming.history.selection import Selection

    if relabel and unit is None:
        msg = "--relabel goes with --unit"
        raise typer.BadParameter(msg)
    settings, line = locate_settings(config, data, needs_run=False), of_options(config, data)
    selection = Selection(device, metric, parse_time(since), parse_time(until))
    plain = Change(delete, factor, offset, unit)
    plain.check()
    change = plain if unit is None or relabel else _conversion(settings.lake.root, selection, unit)
    # Also before the real thing: what is refused is refused at once, whether a writer runs or not.
    planned = plan_correction(settings.lake.root, selection, change).told()
    if dry_run:
        _show({**selection.arguments(), **planned, "dry_run": True}, line, as_json=as_json)
        return
    from deploy.requests import run_request

    arguments = {**selection.arguments(), **change.arguments()}
    request = Request("correct", arguments, author=author or _user(), reason=_said(reason))
    done = run_request(settings, request, tell=lambda text: typer.echo(text, err=True))
    _show(done, line, as_json=as_json)


def erase(
    device: Device,
    reason: Reason,
    author: Author = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Erase a device from every table, with a receipt.

    It says when each place that still holds the device forgets it. It cannot be undone. The receipt names the device by a
    hash and is kept under `_erasures` beside the tables. If the device sends again it is stored again.
    """
    from deploy.local.locate import locate_settings
    from lakehouse.requests import Request
    from streaming.history.plan_erasure import plan_erasure

    settings = locate_settings(config, data, needs_run=False)
    planned = plan_erasure(settings.lake.root, device)
    if dry_run:
        cut = f"dead letters of others that would be cut: {planned['letters_to_cut']}"
        show_json({**planned, "dry_run": True}) if as_json else typer.echo(
            "\n".join([*_counted(planned["tables"]), cut])
        )
        return
    if not yes:
        _confirm(device, planned["tables"])
    from deploy.requests import run_request

    request = Request("erase", {"device": device}, author=author or _user(), reason=_said(reason), private=True)
    receipt = run_request(settings, request, tell=lambda text: typer.echo(text, err=True))
    if as_json:
        show_json(receipt)
    else:
        typer.echo("\n".join(_receipt(receipt)))
        typer.echo(f"The receipt is {Path(settings.lake.root) / '_erasures' / receipt['id']}.json", err=True)


def _conversion(root: str, selection: Any, unit: str) -> Any:
    from deploy.conversions import conversions_to
    from gateway.profiles.units import canonical_spelling, known_unit
    from ingest.contract.errors import TidegateError
    from streaming.history.change import Change
    from streaming.history.plan import units_of

    if not known_unit(unit):
        message = (
            f"Nothing converts to the unit {unit!r}. To give it to the rows and keep their numbers, add --relabel."
        )
        raise TidegateError(message)
    wanted = canonical_spelling(unit)
    given = [each for each in units_of(root, selection) if each != wanted]
    return Change(unit=wanted, conversions=conversions_to(wanted, given))


def _confirm(device: str, tables: dict[str, Any]) -> None:
    if not sys.stdin.isatty():
        msg = "erasing cannot be undone: add --yes where nobody can be asked, or --dry-run to see what would go"
        raise typer.BadParameter(msg)
    typer.echo("\n".join(_counted(tables)), err=True)
    typer.confirm(f"Erase the device {device} from these tables for good?", abort=True, err=True)


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
        lines.append(f"{told['untouched']} rows of that span stay as they are")
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


def _counted(tables: dict[str, Any]) -> list[str]:
    return [f"{name:<20} {entry['rows']:>10} rows in {entry['files']} files" for name, entry in tables.items()]


def _receipt(receipt: dict[str, Any]) -> list[str]:
    lines = [f"{receipt['rows']} rows erased; device {receipt['device_sha256'][:16]}… (SHA-256 of its id)"]
    for name, entry in receipt["tables"].items():
        lines.append(f"{name:<24} {entry['rows']:>8} rows; no file or log of it from {entry['forgotten_at']} on")
    for name, entry in receipt["kafka"].items():
        lines.append(f"{name:<24} {entry['forgotten_at'] or 'no date'}: {entry['why']}")
    if receipt["letters_cut"]:
        lines.append(
            f"{receipt['letters_cut']} dead letters of other devices, or of none, named it: their payload is cut"
        )
    return [*lines, *(f"- {remark}" for remark in receipt["remarks"])]


def _said(reason: str) -> str:
    if not reason.strip():
        msg = "--reason is empty: say why, for whoever reads the history"
        raise typer.BadParameter(msg)
    return reason.strip()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
