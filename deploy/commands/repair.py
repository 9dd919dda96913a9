"""`tidegate repair`: what keeps the stream from starting, and what mends it; changes nothing without --apply."""

from typing import TYPE_CHECKING, Annotated

import typer

from deploy.command_line import of_options
from deploy.commands.options import Data, Json, OptionalConfig, show_json

if TYPE_CHECKING:
    from streaming.repair import Examination

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(repair)


def repair(
    mend: Annotated[bool, typer.Option("--apply", help="Do it; without this nothing is changed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done (the default).")] = False,
    drop_missing: Annotated[
        bool,
        typer.Option("--drop-missing-files", help="With --apply: take data files that are gone out of a table's log."),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="With --apply: go on without records that Kafka no longer has."),
    ] = False,
    author: Annotated[str, typer.Option("--author", help="Who does it; kept in the report.")] = "",
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Find what is broken in checkpoint and tables, and mend it.

    Looks for a checkpoint without metadata or with torn files, torn commits and checkpoints of the tables, data files that
    are gone, leftovers of killed writers, and records that Kafka deleted before they were stored. With --apply what is in
    the way is set aside under `_repair` in the tables' folder; nothing is deleted. Stop the stream first. Exit 1 where
    something is left that needs mending.
    """
    from deploy.local.locate import locate_settings
    from streaming.repair import ACCEPT_FLAG, DROP_FLAG, Patient, apply, examine

    if mend and dry_run:
        message = "--apply and --dry-run contradict each other: wanted one of them"
        raise typer.BadParameter(message)
    settings = locate_settings(config, data, needs_run=False)
    patient = Patient.of(settings.lake.root, settings.stream.checkpoint, settings.kafka)
    given = {DROP_FLAG: drop_missing, ACCEPT_FLAG: accept_loss}
    flags = {flag for flag, on in given.items() if on}
    found, done = apply(patient, flags, note={"author": author}) if mend else (examine(patient), [])
    left = found.left(flags) if mend else [each for each in found.findings if not each.harmless]
    if as_json:
        findings = [each.to_dict() for each in found.findings]
        show_json({"applied": mend, "findings": findings, "left": len(left), "done": done, "notes": list(found.notes)})
    else:
        typer.echo("\n".join(_told(found, flags, mend=mend)))
    for line in [*found.notes, *done]:
        typer.echo(line, err=True)
    if not as_json and not mend and found.findings:
        words = f"Nothing was changed. To do it: `tidegate repair --apply{''.join(f' {flag}' for flag in flags)}`"
        typer.echo(of_options(config, data).fill(words), err=True)
    raise typer.Exit(1 if left else 0)


def _told(found: "Examination", flags: set[str], *, mend: bool) -> list[str]:
    lines = []
    for number, each in enumerate(found.findings, 1):
        lines.append(f"{number}. {each.what}")
        if each.by_hand:
            lines.append(f"   By hand: {each.then}.")
        elif each.needs is not None and each.needs not in flags:
            lines.append(f"   Left alone; with {each.needs} it {each.then}.")
        else:
            lines.append(f"   {'Done' if mend else 'Would be done'}: {each.then}.")
    return lines or ["Nothing is broken: checkpoint, tables and Kafka fit together."]
