"""`tidegate audit | decode`: what became of messages, and what would become of them."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from deploy.commands.options import Data, Json, OptionalConfig, parse_span, show_json

__all__ = ["open_lines", "register"]

BALANCE: Final = (
    "received", "stored", "partial", "dead_lettered", "ignored", "duplicate",
    "unaccounted", "duplicate_rows", "order_violations",
)  # fmt: skip


def register(parent: typer.Typer) -> None:
    """Add the commands to the command line."""
    parent.command()(audit)
    parent.command()(decode)


def audit(
    since: Annotated[
        str | None, typer.Option("--since", help="How far back: 10m, 2h, 1d; default: as far as Kafka reaches.")
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds to wait for Spark to land what is in Kafka.")
    ] = 30.0,
    accept: Annotated[
        bool,
        typer.Option("--accept", help="Prove nothing: accept what the running audit found, so that its alert ends."),
    ] = False,
    author: Annotated[str, typer.Option("--author", help="With --accept: who does it; kept in the report.")] = "",
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Prove that nothing was lost, doubled or reordered.

    Reads Kafka's own records and the tables apart from their writer:
    received = stored + dead-lettered + ignored + duplicate. Exit 1 where it does not balance.
    """
    if accept:
        _accept(config, data, author)
        return
    from deploy.audit import AuditBounds
    from deploy.audit import audit as strike_balance
    from deploy.local.locate import locate_settings

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
        typer.echo("Balanced." if report.balanced else "NOT balanced: see --json for examples.", err=True)
    for note in report.notes:
        typer.echo(note, err=True)
    raise typer.Exit(0 if report.balanced else 1)


def _accept(config: Path | None, data: Path | None, author: str) -> None:
    """For the monitor whose settings are these; it sees within seconds that its finding is gone."""
    from deploy.monitor.audit_finding import accept_finding
    from deploy.settings import data_dir
    from ingest.contract.errors import UnavailableError

    folder = config.absolute().parent if config is not None else data_dir(data)
    try:
        accepted = accept_finding(folder, author)
    except OSError as error:
        msg = f"{folder} cannot be written ({error.strerror}): run this as the user of the monitor, whose finding lies there."
        raise UnavailableError(msg) from error
    if accepted is None:
        msg = (
            f"Nothing to accept: no running audit has left a finding in {folder}. Run this where the monitor runs, and name its "
            "settings with --config, or the folder of an embedded run with --data."
        )
        raise UnavailableError(msg)
    finding, report = accepted
    found = ", ".join(
        f"{count:,} {name.replace('_', ' ')}" for name, count in finding.faults._asdict().items() if count
    )
    typer.echo(f"Accepted: {found}. The report is {report}; the alert ends with the next audit, in about a minute.")


def decode(
    file: Annotated[Path, typer.Argument(help="Lines of JSON: {id, topic, payload | payload_base64}; - reads stdin.")],
    config: OptionalConfig = None,
) -> None:
    """Show what the gateway would make of messages; needs no server.

    One JSON line per message: {id, outcome, reason, readings, rejected}.
    """
    from deploy.settings import load_settings
    from gateway.decode_file import decode_lines
    from gateway.profiles.policy import make_policy

    settings = load_settings(config)
    policy = make_policy(settings.gateway, settings.routes, live=False)
    with open_lines(file) as lines:
        for found in decode_lines(lines, settings.routes, settings.gateway, policy=policy):
            typer.echo(json.dumps(found, ensure_ascii=False))


@contextmanager
def open_lines(file: Path) -> Iterator[Iterable[str]]:
    """The lines of a file, or of stdin where it is named `-`.

    Raises:
        UnavailableError: it cannot be read.
    """
    from ingest.contract.errors import UnavailableError

    if str(file) == "-":
        yield sys.stdin
        return
    try:
        lines = file.open(encoding="utf-8")
    except OSError as error:
        msg = f"{file} cannot be read ({error.strerror}). Give a file of JSON lines, or - for stdin."
        raise UnavailableError(msg) from error
    with lines:
        yield lines
