"""`tidegate bench ls | run | report | compare | gate`: measure scenarios cell by cell, report, compare and check them."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import Json, show_json

__all__ = ["register"]

File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Result of `bench run --json`.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the group `bench`."""
    for command in (ls, run, report, compare, gate):
        app.command()(command)


def ls(as_json: Json = False) -> None:
    """List the scenarios with their cells and durations.

    Durations are approximate minutes, complete and with --short. `bench run --all` leaves out the long scenarios.
    """
    from deploy.bench.suite.library import list_scenarios

    found = list_scenarios()
    if as_json:
        show_json(found)
        return
    typer.echo(f"{'name':14} {'cells':>5} {'minutes':>8} {'short':>6}  title")
    for one in found:
        minutes = f"{one['minutes']:>8} {one['short_minutes']:>6}"
        typer.echo(f"{one['name']:14} {one['cells']:>5} {minutes}  {'long: ' if one['long'] else ''}{one['title']}")


def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Scenarios of `bench ls`, or files that end in .toml.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Run all scenarios of `bench ls` except the long ones.")
    ] = False,
    long: Annotated[bool, typer.Option("--long", help="Run all long scenarios, which take some hours.")] = False,
    target: Annotated[
        Path | None,
        typer.Option("--target", help="Existing cluster to measure: TOML with a section [kafka].", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --target: write without asking.")] = False,
    max_rate: Annotated[
        float, typer.Option("--max-rate", min=1, help="With --target: maximum messages per second.")
    ] = 10_000.0,
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, max=100, help="Number of runs of each cell.", show_default=False)
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Parameter of all cells, such as brokers=3 or replication=3; repeatable.",
        ),
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="Run the short variant of each scenario.")] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Folder for report.html and result.json.", show_default=False),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=1,
            max=65535,
            show_default=False,
            help="Serve the figures for Prometheus on this loopback port during the run.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure scenarios and judge each cell by its goal.

    Starts the clusters of a scenario one after the other in temporary folders, or measures an existing cluster (--target).
    Exit 1 if a goal was missed or a cell could not be measured. On a busy machine no goal counts as met.
    """
    from deploy.bench.suite.command import RunRequest, exit_code, render_result, run_scenarios
    from deploy.bench.suite.library import names_by_length

    if (everything or long) == bool(names):
        msg = "Name scenarios of `tidegate bench ls`, or use --all or --long."
        raise typer.BadParameter(msg)
    request = RunRequest(
        names=tuple(names or names_by_length(usual=everything, long=long)),
        target=target, agreed=yes, max_rate=max_rate, repeats=repeats, short=short,
        parameters=tuple(parameters or ()), metrics_port=metrics_port,
    )  # fmt: skip
    if report is not None:
        from deploy.bench.suite.report.html_report import check_folder

        check_folder(report)
    results = run_scenarios(request, say=lambda text: typer.echo(text, err=True), ask=_ask)
    if report is not None:
        from deploy.bench.suite.report.html_report import write_report

        typer.echo(f"Report: {write_report(results, report)}", err=True)
    if as_json:
        show_json(results[0] if len(results) == 1 else results)
    else:
        typer.echo("\n\n".join(map(render_result, results)))
    raise typer.Exit(exit_code(results))


def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULT…", exists=True, dir_okay=False, help="Results of `bench run --json` or --report."
        ),
    ],
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", help="File to fill with the tables, such as BENCHMARKS.md.", show_default=False),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--report", help="Folder for report.html, report.md and result.json.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make one report of several results.

    Scenarios are in the order of `bench ls`. If a cell was measured more than once, the last measurement is used.

    --markdown writes between the file's two marks, and creates a missing file. Tables of scenarios without a result there stay.
    Without options the tables go to stdout.
    """
    from deploy.bench.suite.compare import read_results
    from deploy.bench.suite.report.benchmarks_file import fill_file, render_tables
    from deploy.bench.suite.report.html_report import check_folder, write_report
    from deploy.bench.suite.report.merge import merge_results

    results = merge_results(result for file in files for result in read_results(file))
    if markdown is not None:
        fill_file(markdown, results)
        typer.echo(f"Tables: {markdown}", err=True)
    if folder is not None:
        check_folder(folder)
        typer.echo(f"Report: {write_report(results, folder)}", err=True)
    if as_json:
        show_json(results)
    elif markdown is None and folder is None:
        typer.echo(render_tables(results), nl=False)


def compare(before: File, after: File, as_json: Json = False) -> None:
    """Compare two results of the same scenarios.

    Shows the cells that differ by more than the spread of both. Exit 1 if a cell got worse or failed.
    """
    from deploy.bench.suite.compare import compare_results, read_results, render_comparison

    compared = compare_results(read_results(before), read_results(after))
    if as_json:
        show_json(compared)
    else:
        typer.echo(render_comparison(compared))
    raise typer.Exit(1 if compared["worse"] or compared["unmeasured"] else 0)


def gate(
    file: File,
    bounds: Annotated[
        Path, typer.Option("--bounds", help="TOML: [[bounds]] with scenario, figure, at_least or at_most.")
    ],
    as_json: Json = False,
) -> None:
    """Check a result against bounds, for CI.

    Exit 1 if a cell misses a bound, with the list of these cells.
    """
    from deploy.bench.suite.compare import read_results
    from deploy.bench.suite.gate import gate_results, read_bounds, render_gate

    judged = gate_results(read_results(file), read_bounds(bounds))
    if as_json:
        show_json(judged)
    else:
        typer.echo(render_gate(judged))
    raise typer.Exit(1 if judged["missed"] else 0)


def _ask(question: str) -> bool:
    return typer.confirm(question, err=True)
