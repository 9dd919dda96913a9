"""`tidegate dlq ls | show | redrive`: list and explain dead letters, and store them after a fix."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.command_line import commands_for_options
from deploy.commands.options import Data, Json, OptionalConfig, show_json

if TYPE_CHECKING:
    from deploy.dlq.redrive import RedriveReport

__all__ = ["register"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Dead letters: list, explain, redrive.")

Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        help="SQL condition over the columns of dead_letters, id and redriven_as, such as \"reason = 'no_route'\".",
        show_default=False,
    ),
]


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="dlq")


@app.command()
def ls(
    where: Where = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Only with this reason.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option("--device", help="Only from this device.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of lines.")] = 20,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """List dead letters, counted by reason, device and topic.

    With conditions it lists them one by one, newest first. It reads the table; nothing needs to run.
    """
    from deploy.dlq.dead_letter_query import join_conditions, list_newest_letters, summarize
    from lakehouse.render import render_table

    root, where = _root(config, data), join_conditions(where, reason=reason, device=device)
    found = summarize(root, None, limit) if where is None else list_newest_letters(root, where, limit)
    typer.echo(render_table(found, "json" if as_json else "table"), nl=False)
    if not as_json and found.num_rows:
        first = found["last_id" if where is None else "id"][0].as_py()
        typer.echo(commands_for_options(config, data).fill(f"Explain one: `tidegate dlq show {first}`"), err=True)


@app.command()
def show(
    letter: Annotated[str, typer.Argument(metavar="ID", help="Id of the dead letter from `dlq ls`, such as 0-17.")],
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Explain one dead letter: what came, what was wanted, what to do next."""
    from deploy.dlq.dead_letter_query import show_letter
    from deploy.dlq.next_steps import next_step

    row = show_letter(_root(config, data), letter)
    row["next"] = commands_for_options(config, data).fill(next_step(row["reason"], row["mqtt_topic"]))
    if as_json:
        from lakehouse.render import json_value

        show_json({name: json_value(value) for name, value in row.items()})
    else:
        typer.echo("\n".join(_explained(row)))


def _explained(row: dict[str, Any]) -> list[str]:
    from deploy.dlq.explain import mark_payload

    kept, size = len(row["payload"] or b""), row["payload_bytes"] or 0
    length = f"{size} bytes" + (f", the first {kept} kept" if kept < size else "")
    redriven = f"{row['redriven_as']}, attempt {row['attempt']}" if row["redriven_as"] else "not yet"
    part = " (part of a message whose other parts were stored)" if row["partial"] else ""
    facts = {
        "reason": f"{row['reason']}{part}",
        "device": row["device"],
        "topic": row["mqtt_topic"],
        "received": f"{row['received_at']:%Y-%m-%d %H:%M:%S.%f}Z by {row['gateway'] or row['stage']}, {length}",
        "path": row["path"],
        "got": row["got"],
        "wanted": row["wanted"],
        "profile": row["profile"],
        "redriven": redriven,
    }
    lines = [f"{name:<9} {value}" for name, value in facts.items() if value is not None]
    payload = mark_payload(row["payload"] or b"", row["path"], row["got"])
    lines += [f"{'payload' if number == 0 else '':<9} {line}" for number, line in enumerate(payload)]
    return [*lines, f"{'next':<9} {row['next']}"]


@app.command()
def redrive(
    where: Where = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of dead letters, oldest first.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would happen; store nothing.")] = False,
    attempt: Annotated[
        Path | None,
        typer.Option(
            "--try", help="Use the routes and limits of this settings file; implies --dry-run.", show_default=False
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Include dead letters that were redriven before.")] = False,
    rate: Annotated[float, typer.Option("--rate", "-r", min=0.1, help="Maximum messages per second.")] = 200.0,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Judge dead letters again, and store what is good now.

    Uses the current routes and profiles. Nothing is stored twice, however often this runs or is interrupted. A message that is
    rejected again stays a dead letter. The journal next to the tables keeps the result of each dead letter, and `dlq ls`
    shows it.
    """
    from deploy.dlq.redrive import run_redrive
    from deploy.local.locate_settings import locate_settings
    from deploy.process_signals import stop_on_signals
    from deploy.settings import load_settings

    dry_run = dry_run or attempt is not None
    settings = locate_settings(config, data, needs_run=not dry_run)
    if attempt is not None:
        tried = load_settings(attempt)
        settings = tried.model_copy(update={"kafka": settings.kafka, "lake": settings.lake})
    report = run_redrive(
        settings, where=where, limit=limit, again=again, rate=rate, dry_run=dry_run, stop=stop_on_signals()
    )
    if as_json:
        show_json(report.to_dict())
    else:
        typer.echo("\n".join(_lines(report)))
        if dry_run and report.accepted:
            line = commands_for_options(config, data)
            typer.echo(line.fill(_APPLY if attempt is None else _APPLY_TRIED).format(attempt), err=True)


_APPLY = "To store them, run `tidegate dlq redrive` with the same conditions, without --dry-run."
_APPLY_TRIED = (
    "To store them, copy the changes of {} into the gateway's settings, restart the gateway, then run `tidegate dlq redrive` "
    "with the same conditions."
)


def _lines(report: "RedriveReport") -> list[str]:
    would = "would be " if report.dry_run else ""
    lines = [f"{report.letters} dead letters"]
    if report.accepted:
        partly = f", {report.partial} of them with parts that are still rejected" if report.partial else ""
        lines.append(f"{report.accepted:>8} {would}accepted: {report.readings} readings{partly}")
        lines += [f"  {_of_reading(reading)}" for reading in report.first]
        lines += [f"  … and {report.readings - len(report.first)} more"] if report.readings > len(report.first) else []
    if report.stored:
        lines.append(f"{report.stored:>8} already stored")
    for name, counts in (("rejected", report.refused), ("ignored", report.ignored), ("skipped", report.skipped)):
        lines += [f"{count:>8} {would if name == 'ignored' else ''}{name}: {why}" for why, count in counts.items()]
    for example in report.examples:
        told = {key: value for key, value in example.items() if value is not None}
        lines.append(f"  {json.dumps(told, ensure_ascii=False)}")
    return lines


def _of_reading(reading: dict[str, Any]) -> str:
    from lakehouse.render import cell_text

    value = reading["text"] if reading["value"] is None else f"{reading['value']:.12g}"
    unit = f" {cell_text(reading['unit'])}" if reading["unit"] else ""
    return f"{cell_text(reading['device'])}: {cell_text(reading['metric'])} = {cell_text(value)}{unit}"


def _root(config: Path | None, data: Path | None) -> str:
    from deploy.local.locate_settings import locate_settings

    return locate_settings(config, data, needs_run=False).lake.root
