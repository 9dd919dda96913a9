"""`tidegate erase`: erase a device from every table, with a receipt; the writer of the tables does it."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.commands.options import (
    Author,
    Data,
    Device,
    DryRun,
    Json,
    OptionalConfig,
    Reason,
    given_reason,
    show_json,
    system_user,
)

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(erase)


def erase(
    device: Device,
    reason: Reason,
    author: Author = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Erase without asking.")] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Erase a device from every table, with a receipt.

    This cannot be undone. The receipt says when each place that still holds the device's data deletes it. It names the device
    by a hash and is kept in `_erasures` next to the tables. If the device sends again, its messages are stored again.
    """
    from deploy.local.locate_settings import locate_settings
    from deploy.requests import local_root, run_request
    from lakehouse.requests import Request
    from streaming.history.plan_erasure import plan_erasure

    settings = locate_settings(config, data, needs_run=False)
    local_root(settings)
    planned = plan_erasure(settings.lake.root, device)
    if dry_run:
        cut = f"dead letters of other devices whose payload would be cut: {planned['letters_to_cut']}"
        show_json({**planned, "dry_run": True}) if as_json else typer.echo(
            "\n".join([*_counted(planned["tables"]), cut])
        )
        return
    if not yes:
        _confirm(device, planned["tables"])
    request = Request(
        "erase", {"device": device}, author=author or system_user(), reason=given_reason(reason), private=True
    )
    receipt = run_request(settings, request, tell=lambda text: typer.echo(text, err=True))
    if as_json:
        show_json(receipt)
    else:
        typer.echo("\n".join(_receipt(receipt)))
        typer.echo(f"The receipt is {Path(settings.lake.root) / '_erasures' / receipt['id']}.json", err=True)


def _confirm(device: str, tables: dict[str, Any]) -> None:
    if not sys.stdin.isatty():
        msg = "Erasing cannot be undone, and input is not a terminal: add --yes, or --dry-run to see what would be erased."
        raise typer.BadParameter(msg)
    typer.echo("\n".join(_counted(tables)), err=True)
    typer.confirm(f"Erase device {device} from these tables? This cannot be undone.", abort=True, err=True)


def _counted(tables: dict[str, Any]) -> list[str]:
    return [f"{name:<20} {entry['rows']:>10} rows in {entry['files']} files" for name, entry in tables.items()]


def _receipt(receipt: dict[str, Any]) -> list[str]:
    lines = [f"{receipt['rows']} rows erased; device {receipt['device_sha256'][:16]}… (SHA-256 of its id)"]
    for name, entry in receipt["tables"].items():
        lines.append(f"{name:<24} {entry['rows']:>8} rows; no file or log has them after {entry['forgotten_at']}")
    for name, entry in receipt["kafka"].items():
        lines.append(f"{name:<24} {entry['forgotten_at'] or 'no date'}: {entry['why']}")
    if receipt["letters_cut"]:
        lines.append(
            f"{receipt['letters_cut']} dead letters of other devices, or of none, named it: their payload was cut"
        )
    return [*lines, *(f"- {remark}" for remark in receipt["remarks"])]
