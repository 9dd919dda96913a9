"""`tidegate audit`: check the balance of stored messages."""

from pathlib import Path
from typing import Annotated, Final

import typer

from deploy.commands.options import Data, Json, OptionalConfig, parse_span, show_json

__all__ = ["register"]

BALANCE: Final = (
    "received", "stored", "partial", "dead_lettered", "ignored", "duplicate",
    "unaccounted", "duplicate_rows", "order_violations",
)  # fmt: skip


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(audit)


def audit(
    since: Annotated[
        str | None, typer.Option("--since", help="How far back: 10m, 2h, 1d (default: as far as Kafka reaches).")
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds to wait until Spark has landed Kafka's records.")
    ] = 30.0,
    accept: Annotated[
        bool,
        typer.Option("--accept", help="Acknowledge the current audit finding and clear its alert. No audit runs."),
    ] = False,
    author: Annotated[str, typer.Option("--author", help="With --accept: your name, kept in the report.")] = "",
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Prove that nothing was lost, doubled or reordered.

    Reads the records in Kafka and the tables, independently of their writer, and checks that
    received = stored + dead-lettered + ignored + duplicate. Exit 1 if it does not balance.
    """
    if accept:
        _accept(config, data, author)
        return
    from deploy.balance_audit import AuditBounds
    from deploy.balance_audit import audit as strike_balance
    from deploy.local.locate_settings import locate_settings

    span = parse_span(since) if since is not None else None
    settings = locate_settings(config, data, needs_run=True)
    bounds = AuditBounds.of(settings)
    report = strike_balance(settings.kafka, settings.lake.root, span, bounds=bounds, wait_seconds=wait)
    found = report.to_dict()
    if as_json:
        show_json(found)
    else:
        for name in BALANCE:
            typer.echo(f"{name.replace('_', ' '):<17} {found[name]:>12,}")
        typer.echo("Balanced." if report.balanced else "NOT balanced: run it with --json for examples.", err=True)
    for note in report.notes:
        typer.echo(note, err=True)
    raise typer.Exit(0 if report.balanced else 1)


def _accept(config: Path | None, data: Path | None, author: str) -> None:
    """Accept the finding of the monitor with these settings; the monitor notices it within seconds."""
    from deploy.monitor.audit_finding import accept_finding, state_folder
    from deploy.settings import data_dir, load_settings
    from ingest.contract.errors import UnavailableError

    folder = data_dir(data) if config is None else state_folder(load_settings(config).monitoring, config)
    try:
        accepted = accept_finding(folder, author)
    except OSError as error:
        msg = f"{folder} cannot be written ({error.strerror}): run this as the monitor's user, whose finding is there."
        raise UnavailableError(msg) from error
    if accepted is None:
        msg = (
            f"Nothing to accept: the monitor's audit has left no finding in {folder}. Run this where the monitor runs, and name "
            "its settings with --config, or the folder of an embedded run with --data."
        )
        raise UnavailableError(msg)
    finding, report = accepted
    found = ", ".join(
        f"{count:,} {name.replace('_', ' ')}" for name, count in finding.faults._asdict().items() if count
    )
    typer.echo(f"Accepted: {found}. The report is {report}; the alert ends with the next audit, in about a minute.")
