"""One message put before the gate: `from tests.support.outcome import decide`."""

import json
from typing import Any

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS

NATIVE = b"tidegate/v1/dev-1/readings"
NOW_US = 1_764_331_200_000_000
LIMITS = GatewaySettings()
ROUTES = (
    RouteSettings(filter="site/#", zone="Europe/Berlin", units={"temperature": "°C"}),
    RouteSettings(filter="j/#", decoder="json"),
    RouteSettings(filter="p/#", decoder="plain"),
)


def decide(topic: bytes, payload: bytes, limits: GatewaySettings = LIMITS, **envelope: Any) -> Outcome:
    message = Message(7, 1000, NOW_US, topic, payload, **envelope)
    return MessageProcessor(compile_routes(ROUTES), limits).decide(message)


def record_of(outcome: Outcome) -> ReadingRecord:
    assert outcome.accepted, letters_of(outcome)
    assert outcome.records[0].topic == READINGS
    return decode_record(outcome.records[0].value)


def letters_of(outcome: Outcome) -> list[DeadLetterRecord]:
    return [decode_dead_letter(record.value) for record in outcome.records if record.topic == DEAD_LETTERS]


def stored(outcome: Outcome) -> dict[str, Any]:
    return {r.metric: r.value if r.text is None else r.text for r in record_of(outcome).readings}


def native(values: object = None, **fields: object) -> bytes:
    return json.dumps({"values": {"temp": 21.5} if values is None else values, **fields}).encode()
