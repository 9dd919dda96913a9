"""`tidegate bench size`: the size of a pipeline for a fleet, from measured costs and the limits of the code."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the group `bench`."""
    app.command()(size)


def size(
    devices: Annotated[
        int | None, typer.Option("--devices", min=1, help="Number of devices.", show_default=False)
    ] = None,
    every: Annotated[
        float, typer.Option("--every", min=0.001, help="Seconds between two messages of a device.")
    ] = 60.0,
    readings: Annotated[int, typer.Option("--readings", min=1, help="Readings in one message.")] = 1,
    payload_bytes: Annotated[
        int | None,
        typer.Option("--bytes", min=1, help="Bytes of a payload (default: as measured).", show_default=False),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            "--days", min=1, help="Days that readings are kept (default: lake.readings_days).", show_default=False
        ),
    ] = None,
    counters: Annotated[bool, typer.Option("--counters/--no-counters", help="Devices send boot and seq.")] = True,
    machine_cores: Annotated[
        int, typer.Option("--machine-cores", min=1, help="Cores of a machine for Kafka's brokers.")
    ] = 8,
    tls: Annotated[
        bool, typer.Option("--tls", help="Connections to Kafka and to the MQTT broker are encrypted.")
    ] = False,
    price_core_hour: Annotated[
        float | None,
        typer.Option("--price-core-hour", min=0, help="Price of a core for an hour.", show_default=False),
    ] = None,
    price_gb_month: Annotated[
        float | None,
        typer.Option("--price-gb-month", min=0, help="Price of 1 GB of storage for a month.", show_default=False),
    ] = None,
    price_1000_puts: Annotated[
        float | None,
        typer.Option(
            "--price-1000-puts", min=0, help="Price of 1,000 writing requests to an object store.", show_default=False
        ),
    ] = None,
    result: Annotated[
        Path | None,
        typer.Option(
            "--result",
            exists=True,
            dir_okay=False,
            help="Costs of `bench run pipeline --report` (default: the shipped ones).",
            show_default=False,
        ),
    ] = None,
    own_tables: Annotated[
        bool, typer.Option("--own-tables", help="Take the bytes of a row from the tables of --config or --data.")
    ] = False,
    save_costs: Annotated[
        Path | None,
        typer.Option("--save-costs", help="Also write the costs that were used to this file.", show_default=False),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown",
            help="Write the page with three fleets, such as SIZING.md, with the shipped costs, and print nothing.",
            show_default=False,
        ),
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Compute gateways, Kafka, landing, tables and money for a fleet.

    Also names the limit that breaks first, and the number of devices at which it does. Costs are measured; each figure says
    between which measured points it lies, or that it is beyond them. Settings such as retention come from --config.
    """
    from deploy.bench.sizing.costs import costs_of_result, costs_of_tables, read_costs
    from deploy.bench.sizing.costs import save_costs as write_costs
    from deploy.bench.sizing.fleet import Fleet, Prices
    from deploy.bench.sizing.model import size_fleet
    from deploy.bench.sizing.page import write_page
    from deploy.bench.sizing.render import render_size, size_data
    from deploy.local.locate_settings import locate_settings
    from deploy.settings import load_settings

    if (devices is None) == (markdown is None):
        msg = "Give either --devices N or --markdown FILE."
        raise typer.BadParameter(msg)
    if markdown is not None:
        write_page(markdown)
        return
    assert devices is not None  # noqa: S101
    has_run = config is not None or data is not None or own_tables
    settings = locate_settings(config, data, needs_run=False) if has_run else load_settings()
    costs = read_costs()
    if result is not None:
        costs = costs_of_result(result, costs)
    if own_tables:
        costs = costs_of_tables(settings.lake.root, costs)
    if save_costs is not None:
        write_costs(costs, save_costs)
    prices = Prices(core_hour=price_core_hour, gb_month=price_gb_month, thousand_puts=price_1000_puts)
    fleet = Fleet(
        devices=devices, every_seconds=every, readings=readings, payload_bytes=payload_bytes, days=days, numbered=counters,
        machine_cores=machine_cores, tls=tls, prices=prices,
    )  # fmt: skip
    found = size_fleet(fleet, costs, settings)
    if as_json:
        show_json(size_data(found))
    else:
        typer.echo(render_size(found))
