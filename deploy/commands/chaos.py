"""`tidegate chaos run | ls`: cause faults under load, and account for every message."""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Json, show_json
from deploy.process_signals import terminated_as_interrupted

__all__ = ["register"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Fault tests on separate servers: list, run.",
)


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="chaos")


@app.command("ls")
def list_faults(as_json: Json = False) -> None:
    """List the faults, and those that only other tests cover."""
    from deploy.chaos.faults import FAULTS, SKIPPED

    if as_json:
        faults = [{"fault": one.id, "title": one.title, "long_seconds": one.long_seconds} for one in FAULTS]
        show_json({"faults": faults, "skipped": [{"fault": fault, "why": why} for fault, why in SKIPPED.items()]})
        return
    for one in FAULTS:
        typer.echo(f"{one.id:<4} {one.title}")
    for fault, why in SKIPPED.items():
        typer.echo(f"{fault:<4} not here: {why}")


@app.command()
def run(
    fault: Annotated[list[str] | None, typer.Option("--fault", help="Fault number, repeatable (default: all).")] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Duration of each fault in seconds.")] = 20.0,
    long: Annotated[
        bool, typer.Option("--long", help="Let each fault last as long as its proof needs, up to 5 min.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Random seed.")] = 1,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Messages per second.")] = 500.0,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Folder for all files and logs, which is kept.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Run faults under load, and account for each message.

    Runs one fault after the other while messages flow, with MQTT 5 and 3.1.1. Exit 1 if a message was lost, doubled, out of
    order or unexplained.
    """
    from deploy.chaos.faults import FAULTS, SKIPPED
    from deploy.chaos.run import any_failed, run_faults

    named = [one.upper() for one in fault or []]
    known = {one.id: one for one in FAULTS}
    unknown = [one for one in named if one not in known and one not in SKIPPED]
    if unknown:
        msg = f"Unknown fault {', '.join(unknown)}: `tidegate chaos ls` lists the faults."
        raise typer.BadParameter(msg)
    chosen = [known[one] for one in named or known if one in known]
    skipped = [{"fault": one, "why": SKIPPED[one]} for one in named or SKIPPED if one in SKIPPED]
    folder = keep or Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
    try:
        with terminated_as_interrupted():
            results = run_faults(
                chosen,
                folder.absolute(),
                seconds=lambda one: one.long_seconds if long else seconds,
                seed=seed,
                rate=rate,
                tell=lambda text: typer.echo(text, err=True),
            )
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        show_json({"runs": results, "skipped": skipped})
    else:
        _render(results)
    raise typer.Exit(1 if any_failed(results) else 0)


def _render(results: list[dict[str, object]]) -> None:
    names = ("sent", "lost", "duplicate", "repeated", "reordered", "unexplained", "recovery_s", "peak_rss_mb")
    typer.echo("fault  mqtt   " + "".join(f"{name:>13}" for name in names))
    for result in results:
        figures = "".join(f"{result[name] if result[name] is not None else 'never':>13}" for name in names)
        typer.echo(f"{result['fault']:<6} {result['protocol']:<6} {figures}")
