"""`tidegate device simulate`."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

__all__ = ["register"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="For device developers.")


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="device")


@app.callback()
def group() -> None:
    """Keep `device` a group while it has one command."""


@app.command()
def simulate(
    devices: Annotated[int, typer.Option("--devices", "-n", min=1, help="How many.")] = 20,
    rate: Annotated[float, typer.Option("--rate", "-r", min=0.01, help="Messages per second of all together.")] = 20.0,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Stop after this long; default: until Ctrl-C.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same devices, values and faults.")] = 1,
    prefix: Annotated[str, typer.Option("--prefix", help="Device ids begin with this.")] = "sim",
    faults: Annotated[
        float, typer.Option("--faults", min=0, max=25, help="1 = a little of each fault, 0 = none.")
    ] = 1.0,
    connections: Annotated[int, typer.Option("--connections", min=1, help="MQTT connections.")] = 2,
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Append every attempt (A) and PUBACK (P) to this file.")
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Publish as a fleet of simulated devices: to the broker of --config, else to the embedded run's.

    Faults are bad JSON, messages out of order, a clock a year ahead and messages sent twice.
    """
    import time

    from deploy.local.locate import locate_settings
    from deploy.process import configure_logging, stop_on_signals
    from gateway.devices import FaultRates, FleetScript
    from gateway.fleet import Journal, run_fleet

    configure_logging()
    settings = locate_settings(config, data, needs_run=True)
    script = FleetScript(
        devices, seed=seed, boot=int(time.time() * 1000), faults=FaultRates.lively().scaled(faults), prefix=prefix
    )
    totals = run_fleet(
        settings.mqtt, script, rate=rate, stop=stop_on_signals(), seconds=seconds, connections=connections,
        journal=Journal(journal) if journal else None, client_prefix=f"tidegate-{prefix}",
    )  # fmt: skip
    if as_json:
        show_json({"sent": totals.sent, "acknowledged": totals.acknowledged, "faults": totals.faults})
    else:
        typer.echo(f"Sent {totals.sent} messages, {totals.acknowledged} acknowledged by the broker.", err=True)
