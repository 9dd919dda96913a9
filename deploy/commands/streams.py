"""`tidegate streams ls | plan | apply | test | rewind | drop`: streams that SQL files define."""

import getpass
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from deploy.commands.options import Data, Json, OptionalConfig, parse_time, show_json

if TYPE_CHECKING:
    from deploy.settings import Settings

__all__ = ["register"]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="SQL-defined streams: list, plan, apply, test, rewind."
)

Name = Annotated[str, typer.Argument(help="The stream: the name of its file without .sql.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with what is applied.", show_default=False)]

FRESH_SECONDS: Final = 60.0
_COLUMNS: Final = ("name", "state", "sinks", "behind", "late", "errors", "rows", "committed_at", "detail")


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="streams")


@app.command()
def ls(config: OptionalConfig = None, data: Data = None, as_json: Json = False) -> None:
    """List the streams: those that are applied with state, lag, late rows, errors and freshness, and files that are not."""
    from lakehouse.lock import is_held
    from streaming.sql.applied import load_applied
    from streaming.sql.folder import list_streams
    from streaming.sql.status import read_status

    settings, folder = _where(config, data)
    root = settings.lake.root
    applied, files = load_applied(root), list_streams(folder)
    written_at, told = read_status(root)
    writing = is_held(Path(root.removeprefix("file://")))
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
    _table(found, _COLUMNS)
    if applied and not writing:
        ago = f", {time.time() - written_at:.0f} s ago" if written_at else ""
        typer.echo(f"No stream process writes now: figures are its last ones{ago}.", err=True)


@app.command()
def plan(
    name: Annotated[str | None, typer.Argument(help="The stream, or `land` for the landing itself.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every stream of the folder; the examples where it has none.")
    ] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show what applying would do: columns, state, sinks, what changes, and whether the checkpoint survives.

    Changes nothing. Exit 1 where a definition can't be applied as it is.
    """
    from ingest.contract.errors import TidegateError
    from streaming.sql.folder import find_stream, list_streams

    if (name is None) is not every:
        msg = "give one stream, or --all"
        raise typer.BadParameter(msg)
    settings, folder = _where(config, data)
    if name == "land":
        _show_plans([_plan_land(settings)], as_json=as_json)
        return
    chosen = list(list_streams(folder).values()) if every else [find_stream(folder, str(name))]
    if every:
        chosen = [file for file in chosen if not file.shipped] or chosen
    plans = []
    for file in chosen:
        try:
            plans.append(_ask(settings, "plan", file.name, text=file.text))
        except TidegateError as error:
            if not every:
                raise
            plans.append({"name": file.name, "checkpoint": "refused", "error": str(error)})
    _show_plans(plans, as_json=as_json)
    if any(found["checkpoint"] in ("rewind", "refused") for found in plans):
        raise typer.Exit(1)


@app.command()
def apply(
    name: Name, reason: Reason = "", config: OptionalConfig = None, data: Data = None, as_json: Json = False
) -> None:
    """Make the file's definition the one that runs; it survives restarts until it is dropped.

    A stream that failed is started again by it, also where its file is as before.
    """
    from streaming.sql.folder import find_stream

    settings, folder = _where(config, data)
    answer = _ask(settings, "apply", name, reason=reason, text=find_stream(folder, name).text)
    if as_json:
        show_json(answer)
    else:
        already = " already" + ("; it is started again" if answer.get("restarted") else "")
        typer.echo(f"{name} is applied" + (f": {', '.join(answer['sinks'])}" if answer["changed"] else already))


@app.command()
def test(
    name: Annotated[str | None, typer.Argument(help="The stream; without it every one that has golden data.")] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Run golden data (NAME.test.jsonl beside NAME.sql) through the statement, without Kafka; exit 1 on a difference.

    A line that is missing is shown with -, one too many with +.
    """
    from ingest.contract.errors import UnavailableError
    from streaming.sql.folder import find_stream, list_streams
    from streaming.sql.golden import read_golden, run_golden
    from streaming.sql.header import parse_definition

    folder = _folder(config, data)
    streams = list_streams(folder)
    chosen = [find_stream(folder, name)] if name else [file for file in streams.values() if file.golden is not None]
    for file in chosen:
        if file.golden is None:
            msg = f"There is no {file.name}.test.jsonl beside {file.where}. Its lines: see `tidegate streams test --help`."
            raise UnavailableError(msg)
        parse_definition(file.name, file.text, file=file.where)
    golden = {file.name: read_golden(file.golden or [], f"{file.name}.test.jsonl") for file in chosen}
    found: list[dict[str, Any]] = []
    with _spark() as spark:
        for each, lines in golden.items():
            compared = run_golden(spark, each, lines, streams, f"{each}.test.jsonl")
            found.append({"name": each, "same": compared.same, "rows": compared.rows, "missing": compared.missing,
                          "unexpected": compared.unexpected})  # fmt: skip
    if as_json:
        show_json(found)
    for told in [] if as_json else found:
        typer.echo(f"{told['name']}: {'ok' if told['same'] else 'differs'}, {told['rows']} rows")
        for sign, key in (("-", "missing"), ("+", "unexpected")):
            for row in told[key]:
                typer.echo(f"{sign} {row}")
    if not all(told["same"] for told in found):
        raise typer.Exit(1)


@app.command()
def rewind(
    name: Name,
    since: Annotated[
        str | None, typer.Option("--since", help="ISO time, or how long ago, such as '2 days ago'.", show_default=False)
    ] = None,
    into: Annotated[str | None, typer.Option("--into", help="shadow: the table beside the live one.")] = None,
    swap: Annotated[bool, typer.Option("--swap", help="Put the shadow in the live table's place.")] = False,
    reason: Reason = "",
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Rebuild a stream from a past moment into NAME__shadow and show how it differs; then --swap makes it live.

    The file's definition is used, so that a change which its checkpoint would not survive goes this way. Read from Kafka, or
    from the table readings where Kafka's retention has passed.
    """
    from streaming.sql.folder import find_stream

    settings, folder = _where(config, data)
    if swap:
        if since is not None or into is not None:
            msg = "--swap goes alone, after a rewind"
            raise typer.BadParameter(msg)
        answer = _ask(settings, "swap", name, reason=reason)
        show_json(answer) if as_json else typer.echo(
            f"{name} is swapped: its rows since {answer.get('since', 'then')} are anew"
        )
        return
    if since is None or into != "shadow":
        msg = "give --since TIME --into shadow, or --swap"
        raise typer.BadParameter(msg)
    text = find_stream(folder, name).text
    answer = _ask(settings, "rewind", name, reason=reason, text=text, since=parse_time(since).isoformat())
    if as_json:
        show_json(answer)
        return
    for topic, parts in answer["from_kafka"].items():
        for part, (first, end) in parts.items():
            typer.echo(f"from Kafka  {topic} partition {part}: offsets {first} to {end}")
    for topic, parts in answer["from_delta"].items():
        for part, which in parts.items():
            typer.echo(f"from Delta  readings, {topic} partition {part}: {which}")
    diff = answer["diff"]
    typer.echo(f"same {diff['same']}, only live {diff['only_live']}, only shadow {diff['only_shadow']}")
    for sign, key in (("-", "only_live_examples"), ("+", "only_shadow_examples")):
        for row in diff[key]:
            typer.echo(f"{sign} {row}")
    typer.echo(f"Look at {answer['shadow']}, then: tidegate streams rewind {name} --swap", err=True)


@app.command()
def drop(
    name: Name,
    keep_table: Annotated[bool, typer.Option("--keep-table", help="Leave its table as it is.")] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Stop a stream and delete its checkpoint, topic and consumer group, and its table; the SQL file stays."""
    settings, _ = _where(config, data)
    answer = _ask(settings, "drop", name, keep_table=keep_table)
    if as_json:
        show_json(answer)
    else:
        typer.echo(f"{name} is dropped: {', '.join(answer['gone'])}" if answer["dropped"] else f"{name} is not applied")


def _where(config: Path | None, data: Path | None) -> "tuple[Settings, Path]":
    from deploy.local.locate import locate_settings

    settings = locate_settings(config, data, needs_run=False)
    return settings, Path(settings.stream.streams_dir or "streams")


def _folder(config: Path | None, data: Path | None) -> Path:
    """The folder of files also where nothing runs: golden data need no run."""
    from deploy.local.locate import locate_settings
    from deploy.settings import data_dir
    from ingest.contract.errors import UnavailableError

    try:
        return Path(locate_settings(config, data, needs_run=False).stream.streams_dir or "streams")
    except UnavailableError:
        run = data_dir(data) / "streams"
        return run if run.is_dir() else Path("streams")


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


def _plan_land(settings: "Settings") -> dict[str, Any]:
    """What of the landing's own settings its checkpoint depends on."""
    keeps = "kept per topic and partition in the checkpoint and in every commit"
    return {
        "name": "land",
        "applied": True,
        "columns": [],
        "sources": [
            {"name": "readings", "topic": "telemetry.readings"},
            {"name": "dead_letters", "topic": "telemetry.dead-letters"},
        ],
        "tables": [],
        "state": [],
        "partitions": settings.kafka.partitions,
        "sinks": ["table readings", "table dead_letters"],
        "changes": [
            {"what": "stream.master, driver_memory, trigger_seconds, max_records_per_batch, extra", "verdict": "keeps",
             "why": "nothing of them is in the checkpoint"},
            {"what": "stream.checkpoint", "verdict": "keeps", "why": "a new one begins where the tables say; nothing is doubled"},
            {"what": "kafka.partitions", "verdict": "keeps", "why": "new partitions are read from their oldest record"},
            {"what": "lake.root", "verdict": "refused", "why": f"offsets are {keeps}: other tables need a new checkpoint too"},
            {"what": "kafka.bootstrap_servers to another cluster", "verdict": "refused",
             "why": f"offsets are {keeps}: another cluster needs new tables"},
        ],
        "checkpoint": "survives",
    }  # fmt: skip


def _show_plans(plans: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        show_json(plans if len(plans) != 1 else plans[0])
        return
    for found in plans:
        typer.echo("\n".join(_plan_lines(found)))


def _plan_lines(found: dict[str, Any]) -> list[str]:
    if "error" in found:
        return [f"{found['name']}: {found['error']}"]
    sources = ", ".join(f"{source['name']} ({source['topic']})" for source in found["sources"])
    lines = [
        f"{found['name']}: {_VERDICTS[found['checkpoint']]}",
        f"  reads       {sources}" + (f"; tables {', '.join(found['tables'])}" if found["tables"] else ""),
        f"  writes      {', '.join(found['sinks'])}",
        f"  remembers   {'; '.join(found['state']) or 'nothing'}",
        f"  partitions  {found['partitions']}",
    ]
    lines += [f"  column      {column['name']} {column['type']}" for column in found["columns"]]
    return lines + [f"  {change['verdict']:<10}  {change['what']}: {change['why']}" for change in found["changes"]]


_VERDICTS: Final = {
    "new": "new",
    "unchanged": "applied as it is",
    "survives": "its checkpoint survives",
    "rewind": "its checkpoint does not survive: `streams rewind` it into a shadow, then swap",
    "refused": "it can't be changed so",
}


def _spark() -> Any:
    """A local Spark for one command, without tables and Kafka."""
    import shutil
    import tempfile
    from contextlib import contextmanager

    from deploy.local.artifacts import spark_jars
    from deploy.local.java import find_java
    from lakehouse.jvm import JvmOptions
    from lakehouse.session import open_session

    @contextmanager
    def opened() -> Any:
        logs = Path(tempfile.mkdtemp(prefix="tidegate-streams-"))
        java = find_java()
        flags = (*java.gc_options, "-XX:TieredStopAtLevel=1")
        typer.echo("Starting Spark, which takes some seconds.", err=True)
        session = open_session(JvmOptions(java.home, tuple(spark_jars()), logs, flags=flags), master="local[1]")
        try:
            yield session.spark
        finally:
            session.close()
            shutil.rmtree(logs, ignore_errors=True)

    return opened()


def _instant(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    cells = [list(columns), *([_cell(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    for line in cells:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
