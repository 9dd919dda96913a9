"""`tidegate bench e2e | gateway | land | derive | layout | day | decoders | audit`: delay to a row, cost of a message or row.

bench_run has the commands for scenario files (`ls`, `run`, `report`, `compare`, `gate`), and bench_size has `size`.
"""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands import bench_run, bench_size
from deploy.commands.options import Data, Json, OptionalConfig, show_json
from deploy.process_signals import terminated_as_interrupted

__all__ = ["register"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Benchmarks; results name the hardware.")
bench_run.register(app)
bench_size.register(app)


@app.callback()
def clean_up_when_terminated(context: typer.Context) -> None:
    context.with_resource(terminated_as_interrupted())


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="bench")


@app.command()
def e2e(
    rate: Annotated[float, typer.Option("--rate", min=1, help="Messages per second.")] = 1000.0,
    seconds: Annotated[float, typer.Option("--seconds", min=2, help="Seconds to measure.")] = 60.0,
    warmup: Annotated[float, typer.Option("--warmup", min=0, help="Seconds of load before the measurement.")] = 20.0,
    devices: Annotated[int, typer.Option("--devices", min=1, help="Number of devices.")] = 100,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Measure each reading's time from MQTT to a queryable row.

    Publishes to the running embedded run (--data) or the pipeline of --config. If no embedded run is running, it starts one in
    a temporary folder.
    """
    from deploy.bench.e2e import measure_e2e, render_e2e
    from deploy.bench.target import bench_target

    with bench_target(config, data) as settings:
        result = measure_e2e(settings, rate=rate, seconds=seconds, warmup_seconds=warmup, devices=devices)
    if as_json:
        show_json(result)
    else:
        typer.echo(render_e2e(result))
    raise typer.Exit(0 if result["lost"] == 0 else 1)


@app.command()
def gateway(
    rate: Annotated[float, typer.Option("--rate", min=0, help="Messages per second; 0 is as fast as possible.")] = 0.0,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="With --rate: seconds of each repetition.")] = 10.0,
    repetitions: Annotated[
        int, typer.Option("--repetitions", min=1, help="Number of repetitions. The result is their medians.")
    ] = 3,
    protocol: Annotated[str, typer.Option("--protocol", help="MQTT version of the gateway: 3.1.1 or 5.")] = "5",
    inflight: Annotated[
        int,
        typer.Option(
            "--inflight",
            min=0,
            max=65535,
            help="Maximum messages in flight of a scripted broker. 0 uses the real broker.",
        ),
    ] = 0,
    as_json: Json = False,
) -> None:
    """Measure the cost of one message in the gateway process.

    All duties of the gateway are on. Starts its own broker, Kafka and gateway in a temporary folder, and a publisher whose
    packets are encoded beforehand.
    """
    from deploy.bench.gateway_cost import measure_gateway, render_gateway

    result = measure_gateway(rate=rate, seconds=seconds, repetitions=repetitions, protocol=protocol, inflight=inflight)
    if as_json:
        show_json(result)
    else:
        typer.echo(render_gateway(result))
    raise typer.Exit(0 if result["lost"] == 0 else 1)


@app.command()
def land(
    rows: Annotated[int, typer.Option("--rows", min=1, help="Number of rows that wait in Kafka.")] = 1_000_000,
    runs: Annotated[
        int, typer.Option("--runs", min=1, help="Runs per session. The first (cold) run is reported separately.")
    ] = 3,
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="Records per second into a running stream, in place of waiting rows.")
    ] = 0.0,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="With --rate: seconds to measure.")] = 30.0,
    warmup: Annotated[
        float, typer.Option("--warmup", min=0, help="With --rate: seconds of load before the measurement.")
    ] = 20.0,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Number of partitions of telemetry.readings.")
    ] = 2,
    readings: Annotated[int, typer.Option("--readings", min=1, max=4, help="Number of readings in one record.")] = 1,
    as_json: Json = False,
) -> None:
    """Measure the landing: rows per second, or the delay at a rate.

    Without --rate it measures how fast the landing catches up. Starts its own Kafka in a temporary folder, filled with records
    as the gateway writes them.
    """
    from deploy.bench.land import measure_catch_up, measure_live, render_catch_up, render_live

    if rate:
        result = measure_live(
            rate=rate, seconds=seconds, warmup_seconds=warmup, partitions=partitions, readings=readings
        )
    else:
        result = measure_catch_up(rows=rows, runs=runs, partitions=partitions, readings=readings)
    if as_json:
        show_json(result)
    else:
        typer.echo((render_live if rate else render_catch_up)(result))
    raise typer.Exit(0 if result["lost"] == 0 else 1)


@app.command()
def derive(
    devices: Annotated[
        list[int] | None,
        typer.Option(
            "--devices", min=180, help="Number of devices, a multiple of 180; repeatable.", show_default=False
        ),
    ] = None,
    passes: Annotated[
        int, typer.Option("--passes", min=1, help="Passes of each fleet. The result is their medians.")
    ] = 5,
    as_json: Json = False,
) -> None:
    """Measure a pass over the rollups for fleets of several sizes.

    Each device sends one reading a minute, and the open hour is nearly full. Default: 1800, 9000 and 36000 devices. Makes the
    tables in a temporary folder; needs no server.
    """
    from deploy.bench.derive import COMMITS, measure_derive, render_derive

    sizes = sorted(devices or (1800, 9000, 36_000))
    if wrong := [size for size in sizes if size % COMMITS]:
        msg = f"{wrong[0]} devices cannot be spread evenly. Give a multiple of {COMMITS}."
        raise typer.BadParameter(msg, param_hint="--devices")
    result = measure_derive(devices=sizes, passes=passes, tell=lambda text: typer.echo(text, err=True))
    if as_json:
        show_json(result)
    else:
        typer.echo(render_derive(result))


@app.command()
def layout(
    rows: Annotated[int, typer.Option("--rows", min=1000, help="Number of rows, over 30 days.")] = 5_000_000,
    devices: Annotated[int, typer.Option("--devices", min=1, help="Number of devices.")] = 1000,
    as_json: Json = False,
) -> None:
    """Measure two common queries over rows in four orders.

    Writes the rows into a temporary folder, in four orders of the rows within a day's files.
    """
    from deploy.bench.layout import measure_layouts, render_layouts

    result = measure_layouts(rows=rows, devices=devices, tell=lambda text: typer.echo(text, err=True))
    if as_json:
        show_json(result)
    else:
        typer.echo(render_layouts(result))


@app.command()
def day(
    commits: Annotated[
        int, typer.Option("--commits", min=10, help="Commits of the day; 3 per second are 259200.")
    ] = 26_000,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Number of rows in each commit.")] = 20,
    as_json: Json = False,
) -> None:
    """Measure a table after a day of three commits a second.

    Measures opening, querying and committing, before and after maintenance. Makes the table in a temporary folder, commit by
    commit, with the times that the day would have given it.
    """
    from deploy.bench.day import measure_day, render_day

    result = measure_day(commits=commits, rows_per_commit=rows, tell=lambda text: typer.echo(text, err=True))
    if as_json:
        show_json(result)
    else:
        typer.echo(render_day(result))


@app.command()
def decoders(
    file: Annotated[Path, typer.Argument(help="File of JSON lines: {id, format, topic, payload | payload_base64}.")],
    config: OptionalConfig = None,
    as_json: Json = False,
) -> None:
    """Measure the cost of each decoder, without a server.

    The cost is the time from a message to its records.
    """
    from deploy.bench.decoders import measure_decoders, render_decoders
    from deploy.commands.options import open_input_lines
    from deploy.settings import load_settings

    settings = load_settings(config)
    with open_input_lines(file) as lines:
        result = measure_decoders(lines, settings.routes, settings.gateway)
    if as_json:
        show_json(result)
    else:
        typer.echo(render_decoders(result))


@app.command()
def audit(
    rows: Annotated[
        int, typer.Option("--rows", min=2_000_000, help="Rows of the large table, in whole millions.")
    ] = 100_000_000,
    messages: Annotated[
        int, typer.Option("--messages", min=1000, help="Messages in the ten minutes that are audited.")
    ] = 60_000,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Number of runs. The result is their medians.")] = 5,
    as_json: Json = False,
) -> None:
    """Measure an audit of ten minutes in a small and a large table.

    The small table has a million rows. Makes the tables in a temporary folder; needs no server.
    """
    from deploy.bench.audit import FILE_ROWS, measure_audit, render_audit

    sizes = (FILE_ROWS, rows // FILE_ROWS * FILE_ROWS)
    result = measure_audit(rows=sizes, messages=messages, runs=runs, tell=lambda text: typer.echo(text, err=True))
    if as_json:
        show_json(result)
    else:
        typer.echo(render_audit(result))
    raise typer.Exit(0 if result["balanced"] else 1)
