"""`tidegate route apply FILE`: apply the routes of a settings file to an embedded run, without a restart."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.commands.options import Data

if TYPE_CHECKING:
    from deploy.settings import Settings

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the group `route`."""
    app.command()(apply)


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
    target = folder / require_run(folder).config
    before = load_settings(target, environ={})
    after = replace_routes(before, given)
    _check(after)
    write_private(target, to_toml(after))
    count = len(after.routes)
    typer.echo(f"The gateway applies {count} route{'' if count == 1 else 's'} of {file} within seconds and logs it.")
    gone = [route.filter for route in before.routes if route not in after.routes]
    if gone:
        typer.echo(f"Removed: {', '.join(gone)}.")
    run = f" --data {shlex.quote(str(data))}" if data is not None else ""
    start = commands_for_options(None, None).fill(f"`tidegate up{run} --config {shlex.quote(str(file))}`")
    typer.echo(f"Use {start} for the next start.")


def replace_routes(run: "Settings", given: "Settings") -> "Settings":
    """Return the settings of a run with the routes, mappings and vendors of `given`."""
    update = {name: getattr(given, name) for name in ("routes", "mappings", "vendors")}
    return run.model_copy(update={**update, "gateway": run.gateway.with_vendors(given.vendors)})


def _check(settings: "Settings") -> None:
    """Check the settings as the gateway does.

    Raises:
        ConfigError: a route, mapping or vendor is wrong, or a route names a profile that does not exist.
    """
    from gateway.profiles.policy import make_policy
    from gateway.routes import compile_routes

    compile_routes(settings.routes, settings.gateway)
    make_policy(settings.gateway, settings.routes, live=False)
