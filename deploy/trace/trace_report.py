"""Puts together what tables, logs and Kafka say of a device's last messages: the answer of `tidegate trace`, as JSON has it."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

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
from lakehouse.render import json_value

__all__ = ["HOPS", "trace_device"]

HOPS: Final = ("device_to_gateway", "gateway_to_kafka", "kafka_to_read", "read_to_commit")
"""Named as the canary's; a negative one says that two clocks differ."""

LookUp = Callable[[KafkaSettings, Iterable[TracedMessage]], Mapping[RecordOrigin, RecordLookup]]


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
