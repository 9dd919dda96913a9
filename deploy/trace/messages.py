"""A device's last messages in the tables: stored readings and rejected parts. No server is needed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from deploy.dlq.dead_letter_query import query_dead_letters
from ingest.contract.errors import UnavailableError
from ingest.contract.topics import READINGS
from lakehouse.catalog import columns_of, table_names
from lakehouse.query import duckdb_literal, run_sql

__all__ = [
    "RecordOrigin",
    "TracedMessage",
    "describe_unknown_device",
    "find_messages",
    "is_text",
    "known_device",
    "ledger_minutes",
    "near_names",
]

_SPANS: Final = (timedelta(minutes=10), timedelta(hours=6), None)
"""Spans before the newest message in which more are looked for: each wider look reads more files, and most need none."""
_NEAR: Final = 0.65

_ROWS: Final = """
    WITH last AS (
        SELECT DISTINCT gateway, gateway_epoch, message_number, partition, "offset", received_at FROM readings
        WHERE {where} ORDER BY received_at DESC, message_number DESC, "offset" DESC LIMIT {limit})
    SELECT gateway, gateway_epoch AS epoch, message_number AS number, partition, "offset", received_at, kafka_time, landed_at,
        device_time, mqtt_topic, message_id, boot, seq, {trace} AS trace, metric, value, text, unit, event_time, time_source,
        "index", flags
    FROM readings r SEMI JOIN last USING (partition, "offset", received_at)
    WHERE {where} ORDER BY received_at DESC, "offset" DESC, "index" """

_LETTERS: Final = """
    SELECT id, gateway, gateway_epoch AS epoch, message_number AS number, partition, "offset", source_topic, received_at,
        landed_at, mqtt_topic, message_id, trace, reason, stage, path, got, wanted, partial, profile, payload_bytes, redriven_as
    FROM letters WHERE {where} ORDER BY received_at DESC, message_number DESC, "offset" DESC LIMIT {limit}"""
LETTERS_PER_MESSAGE: Final = 20
"""A message of many refused parts must not hide the ones before it."""


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """A Kafka record, and the table that its rows went to."""

    topic: str
    partition: int
    offset: int
    table: str
    landed_at: datetime
    kafka_time: datetime | None = None


@dataclass(slots=True)
class TracedMessage:
    """One MQTT message; `number` is None for a record that no gateway of ours wrote."""

    gateway: str | None
    epoch: int | None
    number: int | None
    received_at: datetime
    mqtt_topic: str | None
    trace: str | None
    message_id: str | None
    boot: int | None = None
    seq: int | None = None
    device_time: datetime | None = None
    origins: list[RecordOrigin] = field(default_factory=list)
    readings: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """`stored`, `partial` or `refused`."""
        if not self.readings:
            return "refused"
        return "partial" if self.refused else "stored"


def find_messages(root: str, device: str, last: int, *, heard_at: datetime | None) -> list[TracedMessage]:
    """The device's last messages of which a row is stored or refused, newest first.

    Args:
        root: of the tables.
        device: its id.
        last: so many at most.
        heard_at: when it was last heard, where that is known: the look begins there.

    Raises:
        UnavailableError: there are no tables yet.
    """
    found: list[TracedMessage] = []
    for span in _SPANS:
        where = f"device = {duckdb_literal(device)}"
        if span is not None:
            since_us = int(((heard_at or datetime.now(UTC)) - span).timestamp() * 1_000_000)
            where += f" AND received_at >= make_timestamptz({since_us})"
        found = _merged(_stored(root, where, last), _refused(root, where, last))[:last]
        if len(found) == last:
            break
    return found


def _stored(root: str, where: str, last: int) -> list[dict[str, Any]]:
    if "readings" not in table_names(root):
        return []
    trace = "trace" if any(column.name == "trace" for column in columns_of(root, "readings")) else "NULL::VARCHAR"
    return list(run_sql(root, _ROWS.format(where=where, limit=last, trace=trace)).to_pylist())


def _refused(root: str, where: str, last: int) -> list[dict[str, Any]]:
    if "dead_letters" not in table_names(root):
        return []
    return list(query_dead_letters(root, _LETTERS.format(where=where, limit=last * LETTERS_PER_MESSAGE)).to_pylist())


def _merged(stored: Iterable[dict[str, Any]], refused: Iterable[dict[str, Any]]) -> list[TracedMessage]:
    """One message per name that a gateway gave, or per record where none did; newest first."""
    found: dict[object, TracedMessage] = {}
    for row in stored:
        message = _message_of(row, found, READINGS)
        message.boot, message.seq = row["boot"], row["seq"]
        if row["device_time"] is not None:
            message.device_time = max(row["device_time"], message.device_time or row["device_time"])
        _add_origin(message, RecordOrigin(READINGS, row["partition"], row["offset"], "readings", *_times(row)))
        message.readings.append({name: row[name] for name in _READING})
    for row in refused:
        message = _message_of(row, found, row["source_topic"])
        origin = RecordOrigin(row["source_topic"], row["partition"], row["offset"], "dead_letters", row["landed_at"])
        _add_origin(message, origin)
        message.refused.append({name: row[name] for name in _REFUSED})
    return sorted(found.values(), key=lambda each: (each.received_at, each.number or 0), reverse=True)


_READING: Final = ("metric", "value", "text", "unit", "event_time", "time_source", "index", "flags")
_REFUSED: Final = (
    "id", "reason", "stage", "path", "got", "wanted", "partial", "profile", "payload_bytes", "redriven_as",
)  # fmt: skip


def _message_of(row: dict[str, Any], found: dict[object, TracedMessage], topic: str) -> TracedMessage:
    named = (row["gateway"], row["epoch"], row["number"])
    key = named if row["number"] is not None else (topic, row["partition"], row["offset"])
    if key not in found:
        found[key] = TracedMessage(*named, row["received_at"], row["mqtt_topic"], row["trace"], row["message_id"])
    found[key].trace = found[key].trace or row["trace"]
    return found[key]


def _add_origin(message: TracedMessage, origin: RecordOrigin) -> None:
    if origin not in message.origins:
        message.origins.append(origin)


def _times(row: dict[str, Any]) -> tuple[datetime, datetime]:
    return row["landed_at"], row["kafka_time"]


def known_device(root: str, device: str) -> dict[str, Any] | None:
    """Return the row of `devices` about it; None if it has none."""
    if "devices" not in table_names(root):
        return None
    query = f"FROM devices WHERE device = {duckdb_literal(device)} LIMIT 1"
    found = run_sql(root, query).to_pylist()
    return dict(found[0]) if found else None


def near_names(root: str, device: str) -> list[str]:
    """Devices whose ids resemble this one, nearest first, three at most."""
    if "devices" not in table_names(root):
        return []
    likeness = f"jaro_winkler_similarity(lower(device), lower({duckdb_literal(device)}))"
    query = f"SELECT device FROM devices WHERE {likeness} >= {_NEAR} ORDER BY {likeness} DESC, device LIMIT 3"  # noqa: S608
    return [str(row["device"]) for row in run_sql(root, query).to_pylist()]


def ledger_minutes(root: str, device: str, moments: Iterable[datetime]) -> dict[datetime, dict[str, Any]]:
    """The ledger's row of the device for each of the minutes that these moments lie in."""
    minutes = {moment.replace(second=0, microsecond=0) for moment in moments}
    if not minutes or "ledger" not in table_names(root):
        return {}
    listed = ", ".join(f"make_timestamptz({int(minute.timestamp()) * 1_000_000})" for minute in sorted(minutes))
    query = f"SELECT {_LEDGER} FROM ledger WHERE device = {duckdb_literal(device)} AND minute IN ({listed})"  # noqa: S608
    return {row["minute"].astimezone(UTC): row for row in run_sql(root, query).to_pylist()}


_LEDGER: Final = "minute, received, stored, partial, dead_lettered, ignored, duplicate, gap, late, settled"


def is_text(device: str) -> bool:
    """Return False for bytes of a command line that are not UTF-8: no device has such an id, and no query can hold them."""
    return device.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in device)


def describe_unknown_device(device: str, near: Iterable[str]) -> UnavailableError:
    """Return the sentence about a device that no table has; `near` are ids that resemble it."""
    from lakehouse.render import cell_text

    names = ", ".join(cell_text(name) for name in near)
    hint = f" Did you mean {names}?" if names else ""
    message = (
        f"No message of a device {cell_text(device)} is stored or rejected.{hint} `tidegate sql 'from devices'` lists the "
        f"known devices, and `tidegate device watch {cell_text(device)}` shows new messages of this one live."
    )
    return UnavailableError(message)
