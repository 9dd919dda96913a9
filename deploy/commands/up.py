"""`tidegate up`: the whole pipeline on this machine."""

from typing import Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(up)


def up(
    detach: Annotated[bool, typer.Option("--detach", help="Run in the background.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="With --detach: return when the run is ready.")] = False,
    no_fleet: Annotated[bool, typer.Option("--no-fleet", help="Start no simulated devices.")] = False,
    no_prometheus: Annotated[
        bool, typer.Option("--no-prometheus", help="Start no Prometheus and Alertmanager, even if they are installed.")
    ] = False,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Use TLS and logins for MQTT and Kafka, and rights for each part. A folder that was secured stays so.",
        ),
    ] = False,
    data: Data = None,
    port_offset: Annotated[
        int,
        typer.Option("--port-offset", min=0, max=40000, help="Number to add to every port, for a second run."),
    ] = 0,
    config: OptionalConfig = None,
    as_json: Json = False,
) -> None:
    """Start the whole pipeline on this machine.

    Starts the broker, Kafka, the gateway, Spark, the ops page and a small simulated fleet. "ready" means that a reading
    has passed through all of them. Prometheus and Alertmanager start if they are installed.
    Ctrl-C stops everything in order. After --detach, `tidegate down` does. With --secure, all parts use TLS, and Kafka has a
    user with the least rights for each part.
    """
    from deploy.local.up import UpOptions, run_detached, run_foreground
    from deploy.settings import data_dir, load_settings
    from ingest.contract.errors import ConfigError
    from monitoring.page.page_tokens import exposure_fault

    settings = load_settings(config)
    if fault := exposure_fault(settings.monitoring):
        raise ConfigError(fault)
    options = UpOptions(
        data=data_dir(data),
        config=config,
        port_offset=port_offset,
        fleet=not no_fleet,
        prometheus=not no_prometheus,
        secure=secure,
        as_json=as_json,
    )
    if detach:
        raise typer.Exit(run_detached(options, settings, wait=wait))
    raise typer.Exit(run_foreground(options, settings))
