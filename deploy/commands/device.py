"""`tidegate device simulate | snippet | watch | add | push | login`: tools for developers of devices."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Data, DryRun, Json, OptionalConfig, show_json

__all__ = ["register"]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Devices: simulate, print code, watch, add, push, log in."
)


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="device")


class Language(StrEnum):
    """Language of a snippet."""

    PYTHON = "python"
    ARDUINO = "arduino"
    MOSQUITTO = "mosquitto"


@app.command()
def simulate(
    devices: Annotated[int, typer.Option("--devices", "-n", min=1, help="Number of devices.")] = 20,
    rate: Annotated[float, typer.Option("--rate", "-r", min=0.01, help="Messages per second, all devices.")] = 20.0,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Stop after this many seconds (default: until Ctrl-C).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of devices, values and faults.")] = 1,
    prefix: Annotated[str, typer.Option("--prefix", help="Beginning of the device ids.")] = "sim",
    faults: Annotated[
        float, typer.Option("--faults", min=0, max=25, help="Amount of faults: 1 = a little of each fault, 0 = none.")
    ] = 1.0,
    connections: Annotated[int, typer.Option("--connections", min=1, help="Number of MQTT connections.")] = 2,
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Append every attempt (A) and PUBACK (P) to this file.")
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Publish messages of a fleet of simulated devices.

    Publishes to the broker of --config, else to the embedded run's. Faults are bad JSON, messages out of order, a clock a year
    ahead and messages sent twice.
    """
    import time

    from deploy.local.locate_settings import locate_settings
    from deploy.process_signals import configure_logging, stop_on_signals
    from gateway.devtools.fleet_publisher import PublishJournal, run_fleet
    from gateway.devtools.simulator import FaultRates, FleetScript

    configure_logging()
    settings = locate_settings(config, data, needs_run=True)
    script = FleetScript(
        devices, seed=seed, boot=int(time.time() * 1000), faults=FaultRates.default_mix().scaled(faults), prefix=prefix
    )
    totals = run_fleet(
        settings.mqtt.with_login("devices"), script, rate=rate, stop=stop_on_signals(), seconds=seconds, connections=connections,
        journal=PublishJournal(journal) if journal else None, client_prefix=f"tidegate-{prefix}",
    )  # fmt: skip
    if as_json:
        show_json({"sent": totals.sent, "acknowledged": totals.acknowledged, "faults": totals.faults})
    else:
        typer.echo(f"Sent {totals.sent} messages, {totals.acknowledged} acknowledged by the broker.", err=True)


@app.command()
def snippet(
    device: Annotated[str, typer.Argument(metavar="[ID]", help="Device id.", show_default=False)] = "my-device",
    language: Annotated[Language, typer.Option("--lang", "-l", help="Language of the code.")] = Language.PYTHON,
    with_password: Annotated[
        bool,
        typer.Option(
            "--with-password", help="Put the password into the code; without it the code reads MQTT_PASSWORD."
        ),
    ] = False,
    own_login: Annotated[
        bool, typer.Option("--login", help="Use the device's own login, which `device login ID` creates.")
    ] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Print the code of a publisher for this broker, ready to run."""
    from deploy.local.locate_settings import locate_target
    from deploy.snippets import check_device, render_snippet

    check_device(device)
    if own_login and with_password:
        msg = f"only `tidegate device login {device}` showed the password of {device}: leave out --with-password."
        raise typer.BadParameter(msg)
    target = locate_target(config, data, with_password=with_password)
    if own_login:
        where = f"The password that `tidegate device login {device}` printed: export MQTT_PASSWORD=..."
        target = target._replace(username=device, password=None, where=where)
    text = render_snippet(language, device, target)
    if as_json:
        show_json({"language": language, "device": device, "text": text})
    else:
        typer.echo(text, nl=False)


@app.command()
def watch(
    device: Annotated[str, typer.Argument(metavar="ID", help="Device id.")],
    values: Annotated[bool, typer.Option("--values", help="Also show the stored readings of the device.")] = False,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Stop after this many seconds (default: until Ctrl-C).")
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show a device's rejected messages live.

    Shows why each message is rejected and what to do. --values also shows the stored readings. --json prints one object per
    line.
    """
    from deploy.device_watch import show_line, watch_device
    from deploy.local.locate_settings import locate_settings
    from deploy.process_signals import stop_on_signals

    settings = locate_settings(config, data, needs_run=True)
    root = settings.lake.root if values else None
    stop = stop_on_signals()
    typer.echo(f"Watching {device} at {settings.mqtt.host}:{settings.mqtt.port}. Stop with Ctrl-C.", err=True)
    mqtt = settings.mqtt.with_login("devices")
    for seen in watch_device(mqtt, device, root=root, stop=stop, seconds=seconds):
        typer.echo(show_line(seen, as_json=as_json))


@app.command()
def add(
    device: Annotated[str, typer.Argument(metavar="ID", help="Device id.")],
    profile: Annotated[str | None, typer.Option("--profile", help="Validation profile of this device.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Tag name=value for each of its readings; repeatable.")
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Register a device in the file that gateway.device_registry names, or in Kafka with gateway.shared_inputs.

    A running gateway takes it within seconds.
    """
    from deploy.local.locate_settings import locate_settings
    from gateway.device_registry import add_device
    from ingest.contract.errors import ConfigError, FatalError

    settings = locate_settings(config, data, needs_run=False)
    registry = settings.gateway.device_registry
    if registry is None:
        msg = "gateway.device_registry is not set, so every device is accepted. Set it to a file to register devices."
        raise ConfigError(msg)
    pairs = [text.partition("=") for text in tag or ()]
    if wrong := next(
        (text for text, (name, sign, _) in zip(tag or (), pairs, strict=True) if not (name and sign)), None
    ):
        msg = f"--tag {wrong!r}: use name=value."
        raise typer.BadParameter(msg)
    tags = {name: value for name, _, value in pairs}
    try:
        if settings.gateway.shared_inputs:
            from deploy.push_inputs import push_device
            from gateway.shared_inputs import device_input

            added, registry = push_device(settings.kafka, device_input(device, profile, tags)), "Kafka"
        else:
            added = add_device(Path(registry), device, profile=profile, tags=tags)
    except OSError as error:
        msg = f"{registry} cannot be written ({error.strerror}). Check gateway.device_registry and its permissions."
        raise FatalError(msg) from error
    if as_json:
        show_json({"device": device, "added": added, "registry": registry})
    else:
        typer.echo(f"{device} {'added to' if added else 'is already registered like this in'} {registry}.", err=True)


@app.command()
def push(
    file: Annotated[Path, typer.Argument(help="Registry file: one device per line, as `device add` writes it.")],
    config: OptionalConfig = None,
    data: Data = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Give the devices of a registry file to all gateways with gateway.shared_inputs, through Kafka.

    Kafka then holds the devices of this file and no others. The gateways apply them within seconds.
    """
    from deploy.local.locate_settings import locate_settings
    from deploy.push_inputs import push_inputs
    from gateway.shared_inputs import device_inputs
    from ingest.contract.errors import ConfigError

    kafka = locate_settings(config, data, needs_run=False).kafka
    try:
        wanted = device_inputs(file)
    except OSError as error:
        message = f"{file} cannot be read ({error.strerror}). Name a registry file: one device per line."
        raise ConfigError(message) from error
    if not wanted:
        message = f"{file} has no device, and a push without any would remove all. Name another file."
        raise ConfigError(message)
    plan = push_inputs(kafka, wanted, profiles=False, dry_run=dry_run)
    if as_json:
        show_json(plan.summary(dry_run=dry_run))
    else:
        typer.echo(plan.sentence("device", dry_run=dry_run))


@app.command()
def login(
    device: Annotated[str, typer.Argument(metavar="ID", help="Device id; it is also the user name.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", help="Topic filter that the device may publish too, such as shellies/ID/#; repeatable."
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the login and end its connections.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Give a device a login of its own at the embedded broker, and print its password.

    The login may publish on tidegate/v1/ID/# and read tidegate/receipts/ID. It works at once. The password is printed once and
    kept only as a hash. Run the command again for a new password.
    """
    from deploy.local.device_logins import remove_login, set_login
    from deploy.local.locate_settings import locate_settings
    from deploy.local.runfile import require_run
    from deploy.settings import data_dir

    mqtt, folder = locate_settings(None, data, needs_run=True).mqtt, data_dir(data)
    run, topics = require_run(folder), tuple(topic or ())
    if remove:
        removed = remove_login(mqtt, folder, run, device)
        if as_json:
            show_json({"device": device, "removed": removed})
        else:
            typer.echo(f"{device} {'has no login any more' if removed else 'had no login'}.", err=True)
        return
    password = set_login(mqtt, folder, run, device, topics)
    if as_json:
        show_json({"device": device, "username": device, "password": password, "topics": list(topics)})
        return
    typer.echo(f"Password of user {device}, shown only once:", err=True)
    typer.echo(password)
