"""`tidegate export`: files for tools that people already run."""

import typer

from deploy.commands import export_grafana, export_prometheus

__all__ = ["register"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Write files for tools that you already run.")
export_grafana.register(app)
export_prometheus.register(app)


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="export")


@app.callback()
def _group() -> None:
    """Write files for tools that you already run."""
