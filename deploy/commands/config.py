"""`tidegate config show | validate | schema`: the settings."""

import typer

from deploy.commands.options import Json, OptionalConfig, show_json

__all__ = ["register"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Settings: show, validate, print the schema.")


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="config")


@app.command()
def show(config: OptionalConfig = None, as_json: Json = False) -> None:
    """Print the effective settings, with secrets masked.

    Later sources win: the defaults, the file, the environment TIDEGATE_<SECTION>__<FIELD>.
    """
    from deploy.settings import load_settings, masked_settings
    from deploy.settings_file import to_toml

    settings = load_settings(config)
    if as_json:
        show_json(masked_settings(settings))
    else:
        typer.echo(to_toml(settings, mask_secrets=True), nl=False)


@app.command()
def validate(config: OptionalConfig = None, as_json: Json = False) -> None:
    """Check a settings file.

    Exit 78 if it is wrong, with each wrong key, its line and a suggestion.
    """
    from deploy.settings import load_settings
    from deploy.settings_check import check_settings

    check_settings(load_settings(config))
    if as_json:
        show_json({"valid": True, "file": str(config) if config else None})
    else:
        typer.echo(f"{config or 'The settings'}: valid.", err=True)


@app.command()
def schema() -> None:
    """Print the JSON schema of the settings file, for editors.

    Every setting has a description there.
    """
    from deploy.settings import Settings

    show_json(Settings.model_json_schema())
