"""`tidegate route show NAME`: a mapping in full, with what it extends."""

from typing import Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

__all__ = ["register"]


def register(group: typer.Typer) -> None:
    """Add the command to `tidegate route`."""
    group.command()(show)


def show(
    name: Annotated[
        str, typer.Argument(help="A mapping's name, own or shipped, or the filter of a route that has one.")
    ],
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show a mapping as TOML, with all that it extends."""
    from deploy.commands.route import settings_of
    from gateway.explain_route import find_mapping
    from gateway.show_mapping import show_mapping

    settings = settings_of(config, data)
    mapping = find_mapping(name, settings.mappings, settings.routes)
    if as_json:
        show_json(mapping.model_dump(mode="json", exclude_unset=True))
    else:
        typer.echo(show_mapping(name, mapping), nl=False)
