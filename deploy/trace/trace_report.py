"""Report of `tidegate trace`: what tables, logs and Kafka know about a device's last messages, as JSON and as lines for people.

The lines follow the stages, have at most 80 columns, and contain no control characters for a terminal.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any, Final

from deploy.command_line import CommandLine
from deploy.local.text_format import clean_text
from deploy.settings import Settings
from deploy.trace.messages import (
    RecordOrigin,
    TracedMessage,
    describe_unknown_device,
    find_messages,
    is_text,
    known_device,
    ledger_minutes,
    near_names,
)
from deploy.trace.records import CommitLookup, RecordLookup, TableLog, look_up_records
from ingest.kafka_settings import KafkaSettings
from lakehouse.render import cell_text, json_value

__all__ = ["render_trace", "trace_device"]

HOPS: Final = ("device_to_gateway", "gateway_to_kafka", "kafka_to_read", "read_to_commit")
"""Named as the canary's; a negative one says that two clocks differ."""

LookUp = Callable[[KafkaSettings, Iterable[TracedMessage]], Mapping[RecordOrigin, RecordLookup]]

WIDTH: Final = 80
MOST_READINGS: Final = 12
_OUTCOMES: Final = {"stored": "stored", "partial": "stored, a part rejected", "refused": "rejected"}
_FIELD: Final = 10


def trace_device(settings: Settings, device: str, last: int, *, look: LookUp = look_up_records) -> dict[str, Any]:
    """The device's last messages, newest first, each across all hops; every value is one of JSON's.

    Args:
        settings: where the tables and Kafka are; neither the pipeline nor Kafka need run.
        device: its id.
        last: so many messages at most.
        look: how Kafka is asked.

    Raises:
        UnavailableError: there are no tables, or none of them has the device.
    """
    root = settings.lake.root
    if not is_text(device):
        raise describe_unknown_device(device, ())
    known = known_device(root, device)
    messages = find_messages(root, device, last, heard_at=known["last_seen"] if known else None)
    if known is None and not messages:
        raise describe_unknown_device(device, near_names(root, device))
    looks = look(settings.kafka, messages)
    logs = {table: TableLog(root, table) for table in {o.table for m in messages for o in m.origins}}
    minutes = ledger_minutes(root, device, (message.received_at for message in messages))
    told = [_told(message, looks, logs, minutes) for message in messages]
    found: dict[str, Any] = json_value({"device": device, "known": known, "messages": told})
    return found


def _told(
    message: TracedMessage,
    looks: Mapping[RecordOrigin, RecordLookup],
    logs: Mapping[str, TableLog],
    minutes: Mapping[datetime, dict[str, Any]],
) -> dict[str, Any]:
    records = [_record(origin, looks[origin], logs[origin.table]) for origin in message.origins]
    minute = message.received_at.astimezone(UTC).replace(second=0, microsecond=0)
    facts: Mapping[str, Any] = next((looks[origin].facts for origin in message.origins if looks[origin].facts), {})
    first = records[0]
    at = {
        "device": message.device_time,
        "gateway": message.received_at,
        "kafka": first["kafka_time"],
        "read": first["landed_at"],
        "commit": first["committed_at"],
    }
    return {
        "outcome": message.outcome,
        "gateway": message.gateway,
        "epoch": message.epoch,
        "number": message.number,
        "mqtt_topic": message.mqtt_topic,
        "qos": facts.get("qos"),
        "dup": facts.get("dup"),
        "retain": facts.get("retain"),
        "message_id": message.message_id,
        "boot": message.boot,
        "seq": message.seq,
        "trace": message.trace,
        "clocks": at,
        "hops_ms": _hops(list(at.values())),
        "receive_to_commit_ms": _apart(message.received_at, first["committed_at"]),
        "records": records,
        "readings": message.readings,
        "refused": message.refused,
        "minute": minutes.get(minute),
    }


def _record(origin: RecordOrigin, look: RecordLookup, log: TableLog) -> dict[str, Any]:
    committed: CommitLookup = log.commit_of(origin.topic, origin.partition, origin.offset, origin.landed_at)
    in_kafka = None if look.time_ms is None else datetime.fromtimestamp(look.time_ms / 1000, UTC)
    return {
        "topic": origin.topic,
        "partition": origin.partition,
        "offset": origin.offset,
        "kafka_time": origin.kafka_time or in_kafka,
        "in_kafka": look.found,
        "in_kafka_why": look.why,
        "landed_at": origin.landed_at,
        "table": origin.table,
        "version": committed.version,
        "committed_at": committed.at,
        "version_why": committed.why,
    }


def _hops(clocks: list[datetime | None]) -> dict[str, float | None]:
    return {hop: _apart(before, after) for hop, before, after in zip(HOPS, clocks, clocks[1:], strict=False)}


def _apart(before: datetime | None, after: datetime | None) -> float | None:
    return None if before is None or after is None else round((after - before).total_seconds() * 1000, 1)


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
