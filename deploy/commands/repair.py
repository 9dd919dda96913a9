"""`tidegate repair`: find and fix what keeps the stream from starting. Without --apply it changes nothing."""

from typing import TYPE_CHECKING, Annotated

import typer

from deploy.command_line import commands_for_options
from deploy.commands.options import Data, Json, OptionalConfig, show_json

if TYPE_CHECKING:
    from streaming.repair_run import RepairExamination

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(repair)


def repair(
    fix: Annotated[bool, typer.Option("--apply", help="Apply the fixes; without it nothing is changed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done (the default).")] = False,
    drop_missing: Annotated[
        bool,
        typer.Option("--drop-missing-files", help="With --apply: remove missing data files from a table's log."),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="With --apply: continue without records that Kafka no longer has."),
    ] = False,
    author: Annotated[str, typer.Option("--author", help="Your name, kept in the report.")] = "",
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Find and fix damage in the checkpoint and the tables.

    Looks for a checkpoint without metadata or with torn files, torn commits and checkpoints of the tables, missing data
    files, leftovers of killed writers, and records that Kafka deleted before they were stored. --apply moves broken files to
    `_repair` in the tables' folder and deletes nothing. Stop the stream first. Exit 1 if something still needs a fix.
    """
    from deploy.local.locate_settings import locate_settings
    from streaming.repair_run import ACCEPT_FLAG, DROP_FLAG, RepairSubject, apply, examine_pipeline

    if fix and dry_run:
        message = "--apply and --dry-run contradict each other: use one of them."
        raise typer.BadParameter(message)
    settings = locate_settings(config, data, needs_run=False)
    patient = RepairSubject.of(settings.lake.root, settings.stream.checkpoint, settings.kafka)
    given = {DROP_FLAG: drop_missing, ACCEPT_FLAG: accept_loss}
    flags = {flag for flag, on in given.items() if on}
    found, done = apply(patient, flags, note={"author": author}) if fix else (examine_pipeline(patient), [])
    left = found.left(flags) if fix else [each for each in found.findings if not each.harmless]
    if as_json:
        findings = [each.to_dict() for each in found.findings]
        show_json({"applied": fix, "findings": findings, "left": len(left), "done": done, "notes": list(found.notes)})
    else:
        typer.echo("\n".join(_lines(found, flags, fix=fix)))
    for line in [*found.notes, *done]:
        typer.echo(line, err=True)
    if not as_json and not fix and found.findings:
        words = f"Nothing was changed. To fix it, run `tidegate repair --apply{''.join(f' {flag}' for flag in flags)}`"
        typer.echo(commands_for_options(config, data).fill(words), err=True)
    raise typer.Exit(1 if left else 0)


def _lines(found: "RepairExamination", flags: set[str], *, fix: bool) -> list[str]:
    lines = []
    for number, each in enumerate(found.findings, 1):
        lines.append(f"{number}. {each.what}")
        if each.by_hand:
            lines.append(f"   By hand: {each.then}.")
        elif each.needs is not None and each.needs not in flags:
            lines.append(f"   Left alone; with {each.needs} it {each.then}.")
        else:
            lines.append(f"   {'Done' if fix else 'Would be done'}: {each.then}.")
    return lines or ["Nothing is broken: checkpoint, tables and Kafka agree."]
