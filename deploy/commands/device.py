"""`tidegate device simulate | snippet | watch | add`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

__all__ = ["register"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="For device developers.")


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="device")


class Language(StrEnum):
    """What a snippet is written in."""

    PYTHON = "python"
    ARDUINO = "arduino"
    MOSQUITTO = "mosquitto"


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


@app.command()
def snippet(
    device: Annotated[str, typer.Argument(metavar="[ID]", help="Device id.", show_default=False)] = "my-device",
    language: Annotated[Language, typer.Option("--lang", "-l", help="What to write it in.")] = Language.PYTHON,
    with_password: Annotated[
        bool, typer.Option("--with-password", help="Write the password into it, instead of reading MQTT_PASSWORD.")
    ] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Print a publisher, ready to run against this broker."""
    from deploy.local.locate import locate_target
    from deploy.snippets import check_device, render_snippet

    check_device(device)
    text = render_snippet(language, device, locate_target(config, data, with_password=with_password))
    if as_json:
        show_json({"language": language, "device": device, "text": text})
    else:
        typer.echo(text, nl=False)


@app.command()
def watch(
    device: Annotated[str, typer.Argument(metavar="ID", help="Device id.")],
    values: Annotated[bool, typer.Option("--values", help="Show also what was stored of it.")] = False,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Stop after this long; default: until Ctrl-C.")
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show live what is refused of a device, why, and what to do; with --values also what was stored.

    With --json one object a line.
    """
    from deploy.local.locate import locate_settings
    from deploy.process import stop_on_signals
    from deploy.watch import show_line, watch_device

    settings = locate_settings(config, data, needs_run=True)
    root = settings.lake.root if values else None
    stop = stop_on_signals()
    typer.echo(f"Watching {device} at {settings.mqtt.host}:{settings.mqtt.port}; Ctrl-C ends.", err=True)
    for seen in watch_device(settings.mqtt, device, root=root, stop=stop, seconds=seconds):
        typer.echo(show_line(seen, as_json=as_json))


@app.command()
def add(
    device: Annotated[str, typer.Argument(metavar="ID", help="Device id.")],
    profile: Annotated[str | None, typer.Option("--profile", help="Validation profile of this device.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="name=value onto each of its readings; may be repeated.")
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Register a device in the file that gateway.device_registry names; a running gateway reads it within seconds."""
    from deploy.local.locate import locate_settings
    from gateway.device_registry import add_device
    from ingest.contract.errors import ConfigError, FatalError

    registry = locate_settings(config, data, needs_run=False).gateway.device_registry
    if registry is None:
        msg = "gateway.device_registry names no file, so every device is accepted as it comes. Set it to register some."
        raise ConfigError(msg)
    pairs = [text.partition("=") for text in tag or ()]
    if wrong := next(
        (text for text, (name, sign, _) in zip(tag or (), pairs, strict=True) if not (name and sign)), None
    ):
        msg = f"{wrong!r} is no tag; wanted name=value"
        raise typer.BadParameter(msg)
    try:
        added = add_device(Path(registry), device, profile=profile, tags={name: value for name, _, value in pairs})
    except OSError as error:
        msg = f"{registry} cannot be written ({error.strerror}). Check gateway.device_registry and its permissions."
        raise FatalError(msg) from error
    if as_json:
        show_json({"device": device, "added": added, "registry": registry})
    else:
        typer.echo(f"{device} {'added to' if added else 'stands so already in'} {registry}.", err=True)
