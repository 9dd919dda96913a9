"""`tidegate doctor`: checks of everything that a run needs."""

from typing import Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(doctor)


def doctor(
    config: OptionalConfig = None,
    data: Data = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for each server.")] = 3.0,
    as_json: Json = False,
) -> None:
    """Check what a run needs, and say how to fix what is missing.

    Checks Java, JVM parts, memory, disk and packages. With --config it also checks that the broker and Kafka answer, that the
    login to Kafka works, which roles its user has the rights of, and that it may use the topics of applied SQL streams.

    Exit 1 if a check fails. Each failed check says how to fix it.
    """
    from deploy.local.preflight import examine_setup
    from deploy.settings import data_dir, load_settings

    settings = load_settings(config)
    found = list(examine_setup(settings, data_dir(data), servers=config is not None, timeout_seconds=timeout))
    if as_json:
        show_json({"ok": all(check.state != "fail" for check in found), "checks": [check.as_dict() for check in found]})
    else:
        for check in found:
            typer.echo(f"{check.state:<5} {check.name:<10} {check.text}{'. ' + check.fix if check.fix else ''}")
    raise typer.Exit(1 if any(check.state == "fail" for check in found) else 0)
