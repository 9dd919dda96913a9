"""`tidegate trace`: follow a device's last messages across all hops.

For people the answer has a line for each stage, within 80 columns, with nothing in it that steers a terminal.
"""

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Annotated, Any, Final

import typer

from deploy.command_line import CommandLine, commands_for_options
from deploy.commands.options import Data, Json, OptionalConfig, show_json
from deploy.local.text_format import clean_text
from lakehouse.render import cell_text

__all__ = ["register", "render_trace"]

MOST: Final = 100

WIDTH: Final = 80
MOST_READINGS: Final = 12
_OUTCOMES: Final = {"stored": "stored", "partial": "stored, a part rejected", "refused": "rejected"}
_FIELD: Final = 10


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(trace)


def trace(
    device: Annotated[str, typer.Option("--device", "-d", help="Device id.", show_default=False)],
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=MOST, help="Number of messages, newest first.")] = 1,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Follow a device's last messages across all hops.

    Shows for each message, stored or rejected, its outcome and when it passed each hop, and by whose clock. Reads the tables
    and their logs, and the records from Kafka if it answers. Nothing needs to run.
    """
    from deploy.local.locate_settings import locate_settings
    from deploy.trace.trace_report import trace_device

    found = trace_device(locate_settings(config, data, needs_run=False), device, last)
    if as_json:
        show_json(found)
    else:
        typer.echo("\n".join(render_trace(found, commands_for_options(config, data))))


def render_trace(found: Mapping[str, Any], line: CommandLine | None = None) -> list[str]:
    """Lines; commands in them as `line` has them."""
    line = line or CommandLine()
    lines = [f"Device {cell_text(found['device'])}{_heard(found)}"]
    if not found["messages"]:
        lines += wrap(
            line.fill(
                "No message of it is stored or rejected: a rule ignores its messages, or retention has deleted them. "
                "`tidegate device watch` shows new messages live."
            ),
            WIDTH,
        )
    for message in found["messages"]:
        lines += ["", *_message(message, line)]
    return lines


def _heard(found: Mapping[str, Any]) -> str:
    """Return the newest time by the table of devices or by a message: the table follows a while later."""
    times = [message["clocks"]["gateway"] or message["clocks"]["kafka"] for message in found["messages"]]
    known = found["known"]["last_seen"] if found["known"] else None
    newest = max((_time(at) for at in (known, *times) if at is not None), default=None)
    return f", last heard {newest[:19]} UTC" if newest else ""


def _message(message: Mapping[str, Any], line: CommandLine) -> Iterator[str]:
    name = f"{message['epoch']}:{message['number']}" if message["number"] is not None else "not from a gateway"
    yield f"Message {name} · {_OUTCOMES[message['outcome']]}"
    if message["mqtt_topic"] is not None:
        yield from _field("topic", f"{cell_text(message['mqtt_topic'])}{_flags(message)}")
    if message["message_id"] is not None:
        numbered = f" (boot {message['boot']}, seq {message['seq']})" if message["seq"] is not None else ""
        yield from _field("identity", f"{cell_text(message['message_id'])}{numbered}")
    yield from _field("trace", message["trace"] or "none: the message had no traceparent")
    yield from _stages(message)
    yield from _became(message, line)
    yield from _minute(message["minute"])


def _flags(message: Mapping[str, Any]) -> str:
    if message["qos"] is None:
        return ""
    told = [f"QoS {message['qos']}", *(name for name in ("dup", "retain") if message[name])]
    return f"  {', '.join(told)}"


def _stages(message: Mapping[str, Any]) -> Iterator[str]:
    clocks, hops, record = message["clocks"], message["hops_ms"], message["records"][0]
    yield f"  {'':<{_FIELD}}{'UTC':<26}{'ms':>11}"
    gateway = (
        f"received by {cell_text(message['gateway'])}" if message["gateway"] else "Kafka's time; not from a gateway"
    )
    version = f"{record['table']} version {record['version']}" if record["version"] is not None else "version unknown"
    claim = "the device claims none" if message["readings"] else "not kept for rejected messages"
    yield _stage("device", clocks["device"], None, "claimed" if clocks["device"] else claim)
    yield _stage("gateway", clocks["gateway"], hops["device_to_gateway"], gateway)
    yield _stage("Kafka", clocks["kafka"], hops["gateway_to_kafka"], "appended" if clocks["kafka"] else "not known")
    yield _stage("stream", clocks["read"], hops["kafka_to_read"], "its batch began")
    yield _stage("Delta", clocks["commit"], hops["read_to_commit"], version)
    if message["receive_to_commit_ms"] is not None:
        yield f"  {'':<{_FIELD}}{'gateway to Delta':<26}{message['receive_to_commit_ms']:>11.1f}"
    if record["version_why"] is not None:
        yield from _field("version", record["version_why"])
    for each in message["records"]:
        place = f"{each['topic']}[{each['partition']}] offset {each['offset']}"
        why = f": {each['in_kafka_why']}" if each["in_kafka_why"] else ""
        yield from _field("in Kafka", f"{place}: {each['in_kafka']}{why}")
    if any(milliseconds is not None and milliseconds < 0 for milliseconds in hops.values()):
        yield from _field("clocks", "a negative hop means that the two clocks differ by at least that much")


def _stage(name: str, at: str | None, milliseconds: float | None, what: str) -> str:
    hop = "" if milliseconds is None else f"{milliseconds:+.1f}"
    line = f"  {name:<{_FIELD}}{_time(at):<26}{hop:>11}  {what}".rstrip()
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def _time(at: str | None) -> str:
    """`2026-11-28 14:30:00.123456`; six digits, so that the clocks stand under each other."""
    if at is None:
        return "-"
    day, _, rest = at.rstrip("Z").partition("T")
    seconds, _, fraction = rest.partition(".")
    return f"{day} {seconds}.{fraction:0<6}"


def _became(message: Mapping[str, Any], line: CommandLine) -> Iterator[str]:
    readings = message["readings"]
    for at, reading in enumerate(readings[:MOST_READINGS]):
        yield from _field("" if at else "readings", _reading(reading))
    if len(readings) > MOST_READINGS:
        yield from _field("", f"and {len(readings) - MOST_READINGS} more: --json shows all")
    for letter in message["refused"]:
        yield from _field("rejected", f"{_letter(letter)}. {line.fill(_explain(letter))}")


def _reading(reading: Mapping[str, Any]) -> str:
    # Next to a number the text is what the device wrote: `true`, or all digits of a large integer.
    value = reading["text"] if reading["text"] is not None else f"{reading['value']:.12g}"
    unit = f" {cell_text(reading['unit'])}" if reading["unit"] else ""
    whose = "" if reading["time_source"] == "device" else " (the gateway's clock)"
    flags = f"  {', '.join(map(cell_text, reading['flags']))}" if reading["flags"] else ""
    return f"{cell_text(reading['metric'])} = {cell_text(value)}{unit}  at {_time(reading['event_time'])}{whose}{flags}"


def _letter(letter: Mapping[str, Any]) -> str:
    # Not shortened: their end is mostly the place of the fault.
    where = f" at {clean_text(letter['path'])}" if letter["path"] else ""
    got = f", got {clean_text(letter['got'])}" if letter["got"] is not None else ""
    wanted = f", wanted {clean_text(letter['wanted'])}" if letter["wanted"] is not None else ""
    redriven = f"; redriven: {letter['redriven_as']}" if letter["redriven_as"] else ""
    part = "a part: " if letter["partial"] else ""
    return f"{part}{letter['reason']}{where}{got}{wanted}{redriven}"


def _explain(letter: Mapping[str, Any]) -> str:
    return f"`tidegate dlq show {cell_text(letter['id'])}`"


def _minute(minute: Mapping[str, Any] | None) -> Iterator[str]:
    if minute is None:
        yield from _field("ledger", "no row of its minute (yet)")
        return
    parts = ("stored", "dead_lettered", "ignored", "duplicate")
    balance = " + ".join(f"{minute[part]} {part.replace('_', '-')}" for part in parts)
    beside = ", ".join(f"{minute[name]} {name}" for name in ("partial", "gap", "late") if minute[name])
    settled = "" if minute["settled"] else ", not settled yet"
    text = f"{_time(minute['minute'])[11:16]} received {minute['received']} = {balance}{settled}"
    yield from _field("ledger", f"{text}; {beside}" if beside else text)


def _field(name: str, text: str) -> Iterator[str]:
    """A labelled text, its further lines under the first."""
    for at, line in enumerate(wrap(text, WIDTH - _FIELD - 2, break_on_hyphens=False) or [""]):
        yield f"  {'' if at else name:<{_FIELD}}{line}"
