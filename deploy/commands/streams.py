"""`tidegate streams ls | plan | apply | test | rewind | drop`: SQL streams, each defined by a file."""

import getpass
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from deploy.command_line import commands_for_options
from deploy.commands.options import Data, Json, OptionalConfig, parse_time, show_json
from deploy.commands.streams_show import golden_lines, plan_land, plan_lines, rewind_lines, swap_lines, table_lines
from lakehouse.paths import to_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deploy.settings import Settings
    from streaming.sql.stream_folder import StreamFile

__all__ = ["register"]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="SQL streams: list, plan, apply, test, rewind, drop."
)

Name = Annotated[str, typer.Argument(help="Name of the stream: its file name without .sql.")]
Reason = Annotated[str, typer.Option("--reason", help="Reason, kept with the change.", show_default=False)]

_COLUMNS: Final = ("name", "state", "sinks", "behind", "late", "errors", "rows", "committed_at", "detail")


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="streams")


@app.command()
def ls(config: OptionalConfig = None, data: Data = None, as_json: Json = False) -> None:
    """List the streams and their state.

    Applied streams have state, lag, late rows, errors and freshness. Files that are not applied are listed too.
    """
    from lakehouse.lock import is_held
    from streaming.sql.applied_streams import load_applied
    from streaming.sql.stream_folder import list_streams
    from streaming.sql.stream_status import read_status

    settings, folder = _where(config, data)
    root = settings.lake.root
    applied, files = load_applied(root), list_streams(folder)
    written_at, told = read_status(root)
    writing = is_held(to_path(root))
    found: list[dict[str, Any]] = []
    for name in sorted({*applied, *files}):
        stream, status = applied.get(name), told.get(name, {})
        state = ("applied" if not status else status["state"]) if writing else "stopped"
        file = files.get(name)
        if stream is None:
            state = "example" if file is not None and file.shipped else "not applied"
        elif file is not None and file.text != stream.text:
            status = {**status, "detail": f"{status.get('detail', '')} (the file differs: streams plan {name})".strip()}
        found.append(
            {
                "name": name,
                "state": state,
                "sinks": list(stream.shape.sinks) if stream else [],
                "behind": status.get("behind"),
                "late": status.get("late"),
                "errors": status.get("errors"),
                "rows": status.get("rows"),
                "committed_at": _instant(status.get("committed_at")),
                "watermark": status.get("watermark"),
                "detail": status.get("detail", "") if stream else "",
                "incarnation": stream.incarnation if stream else None,
                "group": f"tidegate-stream-{name}" if stream else None,
            }
        )
    if as_json:
        show_json(found)
        return
    _show(table_lines(found, _COLUMNS))
    if applied and not writing:
        ago = f", {time.time() - written_at:.0f} s ago" if written_at else ""
        typer.echo(f"No stream process writes now: these are its last figures{ago}.", err=True)


@app.command()
def plan(
    name: Annotated[str | None, typer.Argument(help="Name of the stream, or `land` for the landing itself.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All streams of the folder, or the examples if it has none.")
    ] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show what applying a stream would do.

    Shows columns, state, sinks, changes, and whether the checkpoint survives. Changes nothing. Exit 1 if a definition cannot be
    applied as it is.
    """
    from ingest.contract.errors import TidegateError
    from streaming.sql.stream_folder import find_stream, list_streams

    if (name is None) is not every:
        msg = "Name one stream, or use --all."
        raise typer.BadParameter(msg)
    settings, folder = _where(config, data)
    if name == "land":
        landing = plan_land(settings)
        show_json(landing) if as_json else _show(plan_lines(landing))
        return
    chosen = _own(list_streams(folder)) if every else [find_stream(folder, str(name))]
    plans = []
    for file in chosen:
        try:
            plans.append(_ask(settings, "plan", file.name, text=file.text))
        except TidegateError as error:
            if not every:
                raise
            plans.append({"name": file.name, "checkpoint": "refused", "error": str(error)})
    if as_json:
        show_json(plans if every else plans[0])
    for found in [] if as_json else plans:
        _show(plan_lines(found))
    if any(found["checkpoint"] in ("rewind", "refused") for found in plans):
        raise typer.Exit(1)


@app.command()
def apply(
    name: Name, reason: Reason = "", config: OptionalConfig = None, data: Data = None, as_json: Json = False
) -> None:
    """Run the stream as its file defines it.

    It runs until it is dropped, also after restarts. The command also restarts a stream that failed, even if its file is
    unchanged.
    """
    from streaming.sql.stream_folder import find_stream

    settings, folder = _where(config, data)
    answer = _ask(settings, "apply", name, reason=reason, text=find_stream(folder, name).text)
    if as_json:
        show_json(answer)
    else:
        already = " already" + ("; it is restarted" if answer.get("restarted") else "")
        typer.echo(f"{name} is applied" + (f": {', '.join(answer['sinks'])}" if answer["changed"] else already))


@app.command()
def test(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of the stream (default: all of the folder with golden data, or the examples if it has no stream)."
        ),
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Test streams with golden data, without Kafka.

    Runs the rows of NAME.test.jsonl, next to NAME.sql, through the statement. Exit 1 on a difference: - marks a missing row, +
    a row too many. Exit 0 with a message if no stream has golden data. Each line of the file is an object with one row that
    comes in, or one row that must come out; columns that it leaves out are null:

    \b
    {"in": "readings", "row": {"device": "d1", "metric": "temperature", "value": 21.5}}
    {"out": {"device": "d1", "value": 21.5}}
    """  # noqa: D301 - the mark itself, which keeps the lines apart, is wanted
    from streaming.sql.stream_folder import find_stream, list_streams

    folder = _folder(config, data)
    streams = list_streams(folder)
    chosen = [find_stream(folder, name)] if name else [file for file in _own(streams) if file.golden is not None]
    if not chosen:
        typer.echo(f"No stream has golden data: there is no NAME.test.jsonl next to a NAME.sql in {folder}.", err=True)
    found = _run_golden(chosen, streams) if chosen else []
    if as_json:
        show_json(found)
    for told in [] if as_json else found:
        _show(golden_lines(told))
    if not all(told["same"] for told in found):
        raise typer.Exit(1)


@app.command()
def rewind(
    name: Name,
    since: Annotated[
        str | None, typer.Option("--since", help="Start: ISO time, or a time such as '2 days ago'.", show_default=False)
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", help="Table to write: shadow, which is next to the live table.")
    ] = None,
    swap: Annotated[bool, typer.Option("--swap", help="Replace the live table by the shadow.")] = False,
    reason: Reason = "",
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Rebuild a stream from a past time into a shadow table.

    Writes NAME__shadow and shows how it differs from the live table. Then --swap makes it live. Use it for a change that the
    stream's checkpoint does not survive: it uses the definition of the file. It reads Kafka, and the table readings for times
    before Kafka's retention.
    """
    from streaming.sql.stream_folder import find_stream

    settings, folder = _where(config, data)
    if swap:
        if since is not None or into is not None:
            msg = "Use --swap alone, after a rewind."
            raise typer.BadParameter(msg)
        answer = _ask(settings, "swap", name, reason=reason)
        show_json(answer) if as_json else _show(swap_lines(answer))
        return
    if since is None or into != "shadow":
        msg = "Use --since TIME --into shadow, or --swap."
        raise typer.BadParameter(msg)
    text = find_stream(folder, name).text
    ahead = settings.gateway.max_future_seconds
    moment = parse_time(since).isoformat()
    answer = _ask(settings, "rewind", name, reason=reason, text=text, since=moment, ahead_seconds=ahead)
    if as_json:
        show_json(answer)
        return
    _show(rewind_lines(answer))
    words = f"Check {answer['shadow']}, then run `tidegate streams rewind {name} --swap`"
    typer.echo(commands_for_options(config, data).fill(words), err=True)


@app.command()
def drop(
    name: Name,
    keep_table: Annotated[bool, typer.Option("--keep-table", help="Keep the table of the stream.")] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Stop a stream and delete its data.

    Deletes its checkpoint, topic, consumer group and table. The SQL file stays.
    """
    settings, _ = _where(config, data)
    answer = _ask(settings, "drop", name, keep_table=keep_table)
    if as_json:
        show_json(answer)
    else:
        typer.echo(f"{name} is dropped: {', '.join(answer['gone'])}" if answer["dropped"] else f"{name} is not applied")


def _where(config: Path | None, data: Path | None) -> "tuple[Settings, Path]":
    from deploy.local.locate_settings import locate_settings

    settings = locate_settings(config, data, needs_run=False)
    return settings, Path(settings.stream.streams_dir or "streams")


def _folder(config: Path | None, data: Path | None) -> Path:
    """Return the folder of stream files, even if nothing runs: golden data need no run."""
    from deploy.local.locate_settings import locate_settings
    from deploy.settings import data_dir
    from ingest.contract.errors import UnavailableError

    try:
        return Path(locate_settings(config, data, needs_run=False).stream.streams_dir or "streams")
    except UnavailableError:
        run = data_dir(data) / "streams"
        return run if run.is_dir() else Path("streams")


def _own(streams: "dict[str, StreamFile]") -> "list[StreamFile]":
    """Return the folder's own streams, or the examples if it has none."""
    return [file for file in streams.values() if not file.shipped] or list(streams.values())


def _run_golden(chosen: "Sequence[StreamFile]", streams: "Mapping[str, StreamFile]") -> list[dict[str, Any]]:
    """Return the result of each stream with its golden data; check every file before Spark starts.

    Raises:
        ConfigError: a definition or a line of golden data is wrong.
        UnavailableError: a stream has no golden data.
    """
    from ingest.contract.errors import UnavailableError
    from streaming.sql.golden import read_golden, run_golden
    from streaming.sql.header import parse_definition

    for file in chosen:
        if file.golden is None:
            msg = f"There is no {file.name}.test.jsonl next to {file.where}. `tidegate streams test --help` explains its lines."
            raise UnavailableError(msg)
        parse_definition(file.name, file.text, file=file.where)
    golden = {file.name: read_golden(file.golden or [], f"{file.name}.test.jsonl") for file in chosen}
    found = []
    with _spark() as spark:
        for name, lines in golden.items():
            compared = run_golden(spark, name, lines, streams, f"{name}.test.jsonl")
            found.append({"name": name, "same": compared.same, "rows": compared.rows, "missing": compared.missing,
                          "unexpected": compared.unexpected})  # fmt: skip
    return found


@contextmanager
def _spark() -> Iterator[Any]:
    """Run a Spark of its own, without tables and Kafka, while the block runs."""
    import shutil
    import tempfile

    from deploy.local.artifacts import spark_jars
    from deploy.local.java import find_java
    from lakehouse.jvm import JvmOptions
    from lakehouse.session import open_session

    logs = Path(tempfile.mkdtemp(prefix="tidegate-streams-"))
    java = find_java()
    flags = (*java.gc_options, "-XX:TieredStopAtLevel=1")
    typer.echo("Starting Spark; this takes some seconds.", err=True)
    session = open_session(JvmOptions(java.home, tuple(spark_jars()), logs, flags=flags), master="local[1]")
    try:
        yield session.spark
    finally:
        session.close()
        shutil.rmtree(logs, ignore_errors=True)


def _ask(settings: "Settings", kind: str, name: str, *, reason: str = "", **arguments: Any) -> dict[str, Any]:
    from deploy.requests import run_request
    from lakehouse.requests import Request

    request = Request(f"streams.{kind}", {"name": name, **arguments}, author=_author(), reason=reason)
    return run_request(settings, request, tell=lambda text: typer.echo(text, err=True))


def _author() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def _show(lines: "Iterable[str]") -> None:
    for line in lines:
        typer.echo(line)


def _instant(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
