"""`tidegate route show NAME`: show a mapping with everything that it extends, or the rules of a vendor."""

from typing import Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

__all__ = ["register"]


def register(group: typer.Typer) -> None:
    """Add the command to `tidegate route`."""
    group.command()(show)


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
    from deploy.commands.route import settings_of
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
