"""`tidegate route suggest`: draft a route from real messages."""

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

if TYPE_CHECKING:
    from deploy.settings import Settings
    from gateway.suggest.message_families import SampleMessage
    from gateway.suggest.propose import Proposal

__all__ = ["register", "suggest_next_step"]

_SHOWN = 3
"""Messages whose readings are shown for each draft; --json has all of them."""


def register(app: typer.Typer) -> None:
    """Add the command to the group `route`."""
    app.command()(suggest)


def suggest(
    topic: Annotated[
        str | None,
        typer.Argument(help="Topic or topic filter of the messages to use (default: all).", show_default=False),
    ] = None,
    from_dlq: Annotated[bool, typer.Option("--from-dlq", help="Use the dead letters of the run.")] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="Use the lines of this file (- for stdin): TOPIC PAYLOAD as mosquitto_sub -v prints them, or JSON.",
            show_default=False,
        ),
    ] = None,
    live: Annotated[
        float | None,
        typer.Option("--live", min=0.1, help="Listen to the broker for this many seconds.", show_default=False),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(
            "--zone", help="IANA zone of local times without an offset, such as Europe/Berlin.", show_default=False
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", "-w", help="Settings file for the draft (default: --config).", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Draft a route from real messages.

    The messages come from dead letters (--from-dlq), from a file or stdin (--file), or from the broker (--live). The draft
    says where device, time, identity, values and units are, and what it leaves out. The command tries it on the messages and
    shows the readings. After a yes it adds the draft to the settings file and changes nothing else there. Exit 1 if no draft
    reads the messages, or the answer is no.
    """
    from deploy.route_file import add_routes
    from gateway.suggest.propose import propose_routes

    settings = _settings(config, data, needs_run=from_dlq or (live is not None and config is None))
    samples = _samples(topic, settings, from_dlq=from_dlq, file=file, live=live)
    proposals = propose_routes(samples, settings.routes, settings.gateway, zone=zone)
    if as_json:
        show_json([one.to_dict() for one in proposals])
    else:
        for one in proposals:
            typer.echo(_shown(one))
    good = [one for one in proposals if one.works]
    if not proposals:
        typer.echo(
            "No route can match these messages: each has an empty payload, or a topic with + or #, to which "
            "MQTT does not allow publishing.",
            err=True,
        )
        raise typer.Exit(1)
    if not good:
        typer.echo(
            "No draft reads these messages without an edit: `rejected` or `doubt` above names the unclear part. Describe it in "
            "the mapping (`time`, `time_offset`, `skip`), or write a decoder (`tidegate route new NAME`).",
            err=True,
        )
        raise typer.Exit(1)
    if len(good) < len(proposals):
        rest = len(proposals) - len(good)
        typer.echo(
            f"{rest} of {len(proposals)} drafts need an edit (`rejected` or `doubt` says why) and are not written to a file.",
            err=True,
        )
    target = write or config
    if target is None:
        if not as_json:
            typer.echo("To keep it, run this again with --write FILE (settings for `--config FILE`).", err=True)
        return
    if not yes and not _agreed(target, len(good)):
        raise typer.Exit(1)
    add_routes(target, [(one.toml, one.route, one.samples[0].topic) for one in good])
    written = f"{len(good)} route{'s' if len(good) != 1 else ''} written to {target}."
    typer.echo(f"{written} {suggest_next_step(target, config, data, from_dlq=from_dlq)}", err=True)


def suggest_next_step(target: Path, config: Path | None, data: Path | None, *, from_dlq: bool) -> str:
    """Return the step that makes the gateway read the file, and the step that stores the dead letters."""
    from deploy.command_line import commands_for_options

    command = commands_for_options(config, data)
    start = "Restart the gateway with it."
    if config is None and (from_dlq or data is not None):
        run = f" --data {shlex.quote(str(data))}" if data is not None else ""
        start = f"`tidegate route apply {shlex.quote(str(target))}{run}` applies it to the running gateway."
    elif config == target:
        start = "A gateway that runs with this file reads it within seconds."
    return command.fill(f"{start} Then `tidegate dlq redrive` stores the dead letters." if from_dlq else start)


def _agreed(target: Path, count: int) -> bool:
    if not sys.stdin.isatty():
        typer.echo(f"Nothing was written, because input is not a terminal: add --yes to write to {target}.", err=True)
        return False
    drafts = "this draft" if count == 1 else f"these {count} drafts"
    return typer.confirm(f"Write {drafts} to {target}?", err=True)


def _settings(config: Path | None, data: Path | None, *, needs_run: bool) -> "Settings":
    from deploy.commands.route import settings_of
    from deploy.local.locate_settings import locate_settings

    return locate_settings(config, data, needs_run=False) if needs_run else settings_of(config, data)


def _samples(
    topic: str | None, settings: "Settings", *, from_dlq: bool, file: Path | None, live: float | None
) -> "list[SampleMessage]":
    """Return the messages of the one source that is named.

    Raises:
        BadParameter: no source or several are named.
        UnavailableError: the source has no message.
    """
    from ingest.contract.errors import UnavailableError

    if from_dlq + (file is not None) + (live is not None) != 1:
        msg = "Name one source of messages: --from-dlq, --file FILE (- for stdin) or --live SECONDS."
        raise typer.BadParameter(msg)
    if from_dlq:
        from deploy.dlq.samples import dead_samples

        found, where = dead_samples(settings.lake.root, topic), "among the dead letters"
    elif file is not None:
        found, where = _of_file(file, topic), f"in {file}"
    else:
        found, where = _overheard(settings, topic or "#", live or 0), "at the broker in that time"
    if not found:
        msg = f"There is no complete message{f' of {topic}' if topic else ''} {where}."
        raise UnavailableError(msg)
    return found


def _of_file(file: Path, topic: str | None) -> "list[SampleMessage]":
    from gateway.suggest.message_families import read_samples
    from gateway.topic_filters import compile_filter
    from ingest.contract.errors import UnavailableError

    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        msg = f"{file} cannot be read ({error.strerror}). Name a file of messages, or - for stdin."
        raise UnavailableError(msg) from error
    samples = read_samples(content.decode("utf-8", "surrogateescape").split("\n"))
    wanted = None if topic is None else compile_filter(topic)
    return [sample for sample in samples if wanted is None or wanted.match(sample.topic) is not None]


def _overheard(settings: "Settings", topic: str, seconds: float) -> "list[SampleMessage]":
    import os

    from gateway.devtools.listeners import read_live_messages
    from gateway.suggest.message_families import SampleMessage

    client_id = f"{settings.mqtt.client_id}-suggest-{os.getpid()}"
    typer.echo(f"Listening to {topic} for {seconds:g} s …", err=True)
    messages: Iterable[tuple[str, bytes, int]] = read_live_messages(
        settings.mqtt, topic, client_id=client_id, seconds=seconds
    )
    return [SampleMessage(*message) for message in messages]


def _shown(one: "Proposal") -> str:
    from deploy.commands.route import reading_lines
    from gateway.safe_text import show_text

    lines = [one.toml]
    for message in one.decoded[:_SHOWN]:
        lines.append(
            f"{show_text(message['topic'])}: {message['outcome']}"
            + (f", {message['reason']}" if message["reason"] else "")
        )
        lines += reading_lines(message["readings"]) if message["readings"] else []
        lines += [_refused(part) for part in [*message["rejected"], *([message] if message.get("wanted") else [])]]
    lines += [f"doubt     {text}" for text in one.draft.doubts]
    more = len(one.decoded) - _SHOWN
    lines += [f"… and {more} more messages"] if more > 0 else []
    lines += [f"left out  {show_text(each.name)}: {each.why}" for each in one.draft.left_out]
    return "\n".join(lines) + "\n"


def _refused(part: dict[str, Any]) -> str:
    return f"rejected  {part['path']}: {part['reason']}: got {part['got']}; wanted {part['wanted']}"
