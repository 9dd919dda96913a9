"""`tidegate route new`: create a decoder in Python, one file with its test."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

if TYPE_CHECKING:
    from deploy.settings import Settings

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the group `route`."""
    app.command()(new)


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
    settings, place = _place(folder, config, data)
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


def _place(folder: Path | None, config: Path | None, data: Path | None) -> "tuple[Settings, Path]":
    """Return the settings and the folder for the files.

    Raises:
        ConfigError: neither the option nor the settings name a folder.
    """
    from deploy.commands.route import settings_of
    from ingest.contract.errors import ConfigError

    settings = settings_of(config, data)
    if folder is None and settings.gateway.decoders is None:
        msg = "There is no folder of decoders. Use --folder DIR, or set `decoders` in [gateway] of the settings."
        raise ConfigError(msg)
    return settings, folder or Path(settings.gateway.decoders or "")
