"""`tidegate route test | ls | show | suggest | apply | new`: test and list routes, draft, apply and write new ones."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.commands import route_suggest
from deploy.commands.options import Data, Json, OptionalConfig, show_json

if TYPE_CHECKING:
    from deploy.settings import Settings

__all__ = ["reading_lines", "register", "settings_of"]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Routes and mappings: list, show, test, draft, apply."
)


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    route_suggest.register(app)
    for command in (apply, new, show):
        app.command()(command)
    parent.add_typer(app, name="route")


@app.command()
def test(
    topic: Annotated[str, typer.Argument(help="Topic to which the device publishes.")],
    payload: Annotated[str, typer.Argument(help="Payload; @FILE reads the bytes of a file, - reads stdin.")],
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show a message's route and its readings, without a server.

    Exit 1 if the message would be a dead letter.
    """
    import time

    from gateway.devtools.explain_route import explain_message
    from gateway.profiles.policy import make_policy

    settings = settings_of(config, data)
    policy = make_policy(settings.gateway, settings.routes, live=False)
    found = explain_message(
        topic, _bytes(payload), settings.routes, settings.gateway, policy=policy, received_us=time.time_ns() // 1000
    )
    if as_json:
        show_json(found)
    else:
        _print(found)
    raise typer.Exit(1 if found["outcome"] == "dead_letter" else 0)


@app.command()
def ls(
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
    dropped: Annotated[
        bool, typer.Option("--dropped", help="List fields that mappings leave out, with counts; needs Kafka.")
    ] = False,
) -> None:
    """List the routes in the order in which they are tried.

    Routes of the settings come first, then those of the shipped presets.
    """
    from gateway.devtools.explain_route import list_routes

    settings = settings_of(config, data)
    if dropped:
        _list_dropped(settings, as_json=as_json)
        return
    rows = list_routes(settings.routes, settings.gateway)
    if as_json:
        show_json(rows)
        return
    width = max(len(row["filter"]) for row in rows)
    for row in rows:
        conditions = f"  where {' and '.join(row['conditions'])}" if row["conditions"] else ""
        typer.echo(f"{row['filter']:<{width}}  {row['decoder']:<26}  {row['name']}{conditions}")


def _list_dropped(settings: "Settings", *, as_json: bool) -> None:
    """Print the left-out fields as the gateways reported them, at most about a minute ago."""
    from gateway.left_out import is_left_out, read_left_out
    from ingest.gateway_state import read_state

    rows = read_left_out(read_state(settings.kafka, wanted=is_left_out))
    if as_json:
        from gateway.keep_field import add_keep_steps
        from gateway.routes import compile_routes

        show_json(add_keep_steps(rows, compile_routes(settings.routes, settings.gateway), settings.gateway.vendors))
        return
    if not rows:
        typer.echo("No gateway has reported a field that a mapping leaves out. Gateways report about once a minute.")
    for row in rows:
        typer.echo(f"{row['count']:>10}  {row['field']}  {row['route']}  {row['gateway']}")


def show(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of a mapping (own or shipped), filter of a route that has a mapping, or name of a vendor."
        ),
    ],
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show a mapping or the rules of a vendor as TOML.

    The mapping includes everything that it extends.
    """
    from gateway.devtools.explain_route import find_mapping
    from gateway.routes import compile_vendors, shipped_mappings
    from gateway.suggest.toml_text import show_mapping, show_vendor

    settings = settings_of(config, data)
    vendor = compile_vendors(settings.gateway.vendors).get(name)
    if vendor is not None and not as_json:
        typer.echo(show_vendor(name, vendor), nl=False)
    if vendor is not None and name not in settings.mappings and name not in shipped_mappings():
        if as_json:
            show_json(vendor.model_dump(mode="json", exclude_unset=True))
        return
    mapping = find_mapping(name, settings.mappings, settings.routes)
    if as_json:
        show_json(mapping.model_dump(mode="json", exclude_unset=True))
    else:
        typer.echo(show_mapping(name, mapping), nl=False)


def apply(
    file: Annotated[Path, typer.Argument(help="Settings file (TOML).")],
    data: Data = None,
) -> None:
    """Apply the routes of a settings file to the embedded run.

    Replaces the run's routes, mappings and vendors. The gateway reads them within seconds, between two messages, without a
    restart. The rest of the file applies at the next `tidegate up --config FILE`. A gateway that you run yourself needs no
    command: it reads its own settings file.
    """
    from deploy.command_line import commands_for_options
    from deploy.local.runfile import require_run
    from deploy.settings import data_dir, load_settings
    from deploy.settings_file import to_toml, write_private

    given, folder = load_settings(file), data_dir(data)
    targets = [folder / name for name in require_run(folder).configs]
    before = load_settings(targets[0], environ={})
    after = _replace_routes(before, given)
    _check_as_gateway(after)
    for target in targets:
        write_private(target, to_toml(_replace_routes(load_settings(target, environ={}), given)))
    count = len(after.routes)
    typer.echo(f"The gateway applies {count} route{'' if count == 1 else 's'} of {file} within seconds and logs it.")
    gone = [route.filter for route in before.routes if route not in after.routes]
    if gone:
        typer.echo(f"Removed: {', '.join(gone)}.")
    run = f" --data {shlex.quote(str(data))}" if data is not None else ""
    start = commands_for_options(None, None).fill(f"`tidegate up{run} --config {shlex.quote(str(file))}`")
    typer.echo(f"Use {start} for the next start.")


def new(
    name: Annotated[str, typer.Argument(help="Name of the decoder: small letters, digits and _.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", help="Folder for the files (default: gateway.decoders of the settings).", show_default=False
        ),
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Create a decoder in Python for a format without a mapping.

    Writes NAME.py and test_NAME.py, for formats that a mapping cannot describe. The gateway runs the decoder in its own
    process, so an error costs one message. Existing files are never overwritten.
    """
    from gateway.decoders.python_file import NAME, decoder_text, route_text, test_text
    from gateway.decoders.registry import decoder_names
    from ingest.contract.errors import ConfigError

    if NAME.fullmatch(name) is None:
        msg = f"{name!r} is not a name of a decoder: use small letters, digits and _, such as kiln_raw, not test_…."
        raise typer.BadParameter(msg)
    settings, place = _decoder_folder(folder, config, data)
    if name in decoder_names():
        msg = f"A shipped decoder has the name {name!r}, and shipped names win. Choose another name."
        raise ConfigError(msg)
    files = {place / f"{name}.py": decoder_text(name)}
    test = place / f"test_{name}.py"
    files[test] = test_text(name, str(test))
    for file in files:
        if file.exists():
            msg = f"{file} exists and is not overwritten. Choose another name, or remove it."
            raise ConfigError(msg)
    place.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    route = route_text(name)
    if settings.gateway.decoders is None or Path(settings.gateway.decoders).absolute() != place.absolute():
        route = f'[gateway]\ndecoders = "{place.absolute()}"\n\n{route}'
    if as_json:
        show_json({"files": [str(file) for file in files], "settings": route})
        return
    for file in files:
        typer.echo(str(file))
    typer.echo(f"\nTest it: python -m pytest {test}\nThen add to the settings:\n\n{route}", err=True)


def settings_of(config: Path | None, data: Path | None) -> "Settings":
    """Return the settings of --config, else of the run that --data names, else the defaults."""
    from deploy.local.locate_settings import locate_settings
    from deploy.settings import load_settings

    return load_settings(config) if data is None else locate_settings(config, data, needs_run=False)


def _bytes(payload: str) -> bytes:
    """Return the payload that an argument gives or names.

    Raises:
        UnavailableError: the file cannot be read.
    """
    from ingest.contract.errors import UnavailableError

    if payload == "-":
        return sys.stdin.buffer.read()
    if not payload.startswith("@"):
        return payload.encode("utf-8", "surrogateescape")
    try:
        return Path(payload[1:]).read_bytes()
    except OSError as error:
        msg = f"{payload[1:]} cannot be read ({error.strerror}). Use @FILE, - for stdin, or the payload itself."
        raise UnavailableError(msg) from error


def _print(found: dict[str, Any]) -> None:
    route = found["route"]
    others = [tried for tried in found["tried"] if not tried["topic"]]
    # One route for other topics shows enough; --json has all of them.
    for tried in others[:1] + [tried for tried in found["tried"] if tried["topic"]]:
        typer.echo(f"tried     {tried['name']} ({tried['filter']}): {tried['why']}")
    if len(others) > 1:
        typer.echo(f"          and {len(others) - 1} more routes of the settings, for other topics")
    if route is not None:
        typer.echo(f"route     {route['name']} ({route['filter']})")
        typer.echo(f"decoder   {route['decoder']}")
    if found["device"] is not None:
        typer.echo(f"device    {found['device']}")
    count = len(found["readings"])
    outcome = {"reading": f"{count} reading{'s' if count != 1 else ''}", "dead_letter": "dead letter"}
    reason = f", {found['reason']}" if found["reason"] else ""
    typer.echo(f"outcome   {outcome.get(found['outcome'], found['outcome'])}{reason}")
    if found["readings"]:
        typer.echo("\n".join(reading_lines(found["readings"])))
    if found.get("wanted") or found.get("got"):
        typer.echo(f"          at {found['path'] or 'the whole payload'}: got {found['got']}; wanted {found['wanted']}")
    for part in found["rejected"]:
        typer.echo(f"rejected  {part['path']}: {part['reason']}: got {part['got']}; wanted {part['wanted']}")
    if found["suggestion"] is not None:
        typer.echo(f"next      {found['suggestion']}")


def reading_lines(readings: list[dict[str, Any]]) -> list[str]:
    """Return readings as a text table; each cell is safe for a terminal."""
    from deploy.commands.options import text_table

    rows = []
    for reading in readings:
        value = reading["value"] if reading["text"] is None else reading["text"]
        time = reading["time"] or "receive time"
        flags = ", ".join(reading.get("flags", ()))
        rows.append((reading["device"], reading["metric"], str(value), reading["unit"] or "", time, flags))
    return [f"  {line}" for line in text_table(("device", "metric", "value", "unit", "time", "flags"), rows)]


def _replace_routes(run: "Settings", given: "Settings") -> "Settings":
    """Return the settings of a run with the routes, mappings and vendors of `given`."""
    update = {name: getattr(given, name) for name in ("routes", "mappings", "vendors")}
    return run.model_copy(update={**update, "gateway": run.gateway.with_vendors(given.vendors)})


def _check_as_gateway(settings: "Settings") -> None:
    """Check the settings as the gateway does.

    Raises:
        ConfigError: a route, mapping or vendor is wrong, or a route names a profile that does not exist.
    """
    from gateway.profiles.policy import make_policy
    from gateway.routes import compile_routes

    compile_routes(settings.routes, settings.gateway)
    make_policy(settings.gateway, settings.routes, live=False)


def _decoder_folder(folder: Path | None, config: Path | None, data: Path | None) -> "tuple[Settings, Path]":
    """Return the settings and the folder for the files.

    Raises:
        ConfigError: neither the option nor the settings name a folder.
    """
    from ingest.contract.errors import ConfigError

    settings = settings_of(config, data)
    if folder is None and settings.gateway.decoders is None:
        msg = "There is no folder of decoders. Use --folder DIR, or set `decoders` in [gateway] of the settings."
        raise ConfigError(msg)
    return settings, folder or Path(settings.gateway.decoders or "")
