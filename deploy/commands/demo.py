"""`tidegate demo`: break a part of the embedded run and watch alerts, page and audit."""

from typing import TYPE_CHECKING, Annotated

import typer

from deploy.commands.options import Data, Json, show_json

if TYPE_CHECKING:
    from deploy.demo.faults import DemoFault

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    demo = typer.Typer(no_args_is_help=True, help="Break a part of the embedded run and watch it heal.")
    demo.command("ls")(ls)
    demo.command("fail")(fail)
    parent.add_typer(demo, name="demo")


def ls(as_json: Json = False) -> None:
    """List the faults: part, seconds, alert, and visible effects."""
    from deploy.demo.faults import FAULTS

    if as_json:
        rows = ("part", "seconds", "least_seconds", "alert", "shows")
        show_json([{name: getattr(fault, name) for name in rows} for fault in FAULTS.values()])
        return
    for fault in FAULTS.values():
        typer.echo(f"{fault.part:<8} {fault.seconds:4.0f} s  {fault.alert}\n{'':<17}{fault.shows}")


def fail(
    part: Annotated[str, typer.Argument(help="Part: kafka, broker, gateway or stream.")],
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", help="Duration in seconds (default: 60, or 100 if the alert waits longer)."),
    ] = None,
    kill: Annotated[
        bool, typer.Option("--kill", help="Kill the part, and again after each restart, instead of letting it hang.")
    ] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Let a part hang, heal it, and prove that nothing was lost.

    Follows the alerts meanwhile. The part continues at the end, after Ctrl-C, and when this command is killed.
    Exit 0 only if the alert fired and resolved, all parts are ready again and the audit balances.
    """
    from deploy.demo.demonstration import Demo
    from deploy.settings import data_dir

    fault, lasts = _chosen(part, seconds)
    demo = Demo(data_dir(data), fault, seconds=lasts, kill=kill, tell=lambda line: typer.echo(line, err=as_json))
    report = demo.run()
    if as_json:
        show_json(report.as_dict())
    else:
        typer.echo(report.balance())
        typer.echo(report.verdict())
    raise typer.Exit(0 if report.ok else 1)


def _chosen(part: str, seconds: float | None) -> "tuple[DemoFault, float]":
    from deploy.demo.faults import FAULTS, MOST_SECONDS

    if part not in FAULTS:
        msg = f"Unknown part {part!r}: use one of {', '.join(FAULTS)}."
        raise typer.BadParameter(msg)
    fault = FAULTS[part]
    lasts = fault.seconds if seconds is None else seconds
    if not fault.least_seconds <= lasts <= MOST_SECONDS:
        msg = (
            f"--seconds {lasts:g} is out of range: use {fault.least_seconds:g} (below, {fault.alert} does not fire) to "
            f"{MOST_SECONDS:g} (above, the supervisor restarts the hanging part)."
        )
        raise typer.BadParameter(msg)
    return fault, lasts
