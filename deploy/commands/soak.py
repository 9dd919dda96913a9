"""`tidegate soak`: run the whole pipeline under load for minutes or hours, and check the growth of its resources."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Json, show_json
from deploy.process_signals import terminated_as_interrupted

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(soak)


def soak(
    minutes: Annotated[float, typer.Option("--minutes", min=0.5, help="Minutes of load.")] = 10.0,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Messages per second.")] = 200.0,
    faults: Annotated[bool, typer.Option("--faults", help="Kill or hang a random part once a minute.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the faults.")] = 1,
    report: Annotated[
        Path | None, typer.Option("--report", help="File for the result with every sample.", show_default=False)
    ] = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Empty folder for the run's data, which is kept.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Load a pipeline for hours and judge what grows.

    Watches memory, descriptors, files, state and latency. Starts its own pipeline, even next to another one, and audits it at
    the end. Exit 1 if the audit does not balance, a part restarted without a fault, the landing failed, or a figure grows
    faster than its bound.
    """
    from deploy.soak.run import SoakOptions, render_soak, run_soak

    if keep is not None and keep.exists() and any(keep.iterdir()):
        msg = f"--keep {keep} is not empty, but a soak needs its own data. Name another folder."
        raise typer.BadParameter(msg)
    folder = (keep or Path(tempfile.mkdtemp(prefix="tidegate-soak-"))).absolute()
    options = SoakOptions(minutes=minutes, rate=rate, faults=faults, seed=seed)
    try:
        with terminated_as_interrupted():
            result = run_soak(options, folder, tell=lambda text: typer.echo(text, err=True))
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if report is not None:
        report.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if as_json:
        show_json({name: value for name, value in result.items() if name != "samples"})
    else:
        typer.echo(render_soak(result))
    raise typer.Exit(0 if result["passed"] else 1)
