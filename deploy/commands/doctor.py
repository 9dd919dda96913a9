"""`tidegate doctor`: checks of everything that a run needs."""

from typing import Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, parse_span, show_json

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(doctor)


def doctor(
    config: OptionalConfig = None,
    data: Data = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for each server.")] = 3.0,
    outage: Annotated[
        str,
        typer.Option(
            "--outage", metavar="SPAN", help="Longest outage of the stream that must lose nothing, such as 12h."
        ),
    ] = "3d",
    as_json: Json = False,
) -> None:
    """Check what a run needs, and say how to fix what is missing.

    Checks Java, JVM parts, memory, disk and packages. With --config it also checks the broker (login, limits, filters), Kafka
    (login, roles, topics, copies, retention), client and gateway ids, certificates, clocks, the tables' folder and free disk. It
    changes nothing, and may run next to the pipeline.

    Exit 1 if a check fails, 78 if the settings are wrong. Each failed check says how to fix it.
    """
    from deploy.doctor.examine import examine_production
    from deploy.local.preflight import examine_setup
    from deploy.settings import data_dir, load_settings
    from deploy.settings_check import check_settings

    span = parse_span(outage)
    settings = load_settings(config)
    check_settings(settings)
    found = list(examine_setup(settings, data_dir(data), servers=config is not None, timeout_seconds=timeout))
    if config is not None:
        answering = {check.name for check in found if check.state == "ok"}
        found += examine_production(settings, answering, outage_seconds=span.total_seconds(), timeout_seconds=timeout)
    if as_json:
        show_json({"ok": all(check.state != "fail" for check in found), "checks": [check.as_dict() for check in found]})
    else:
        width = max(len(check.name) for check in found)
        for check in found:
            typer.echo(f"{check.state:<5} {check.name:<{width}} {check.text}{'. ' + check.fix if check.fix else ''}")
    raise typer.Exit(1 if any(check.state == "fail" for check in found) else 0)
