"""Presets of further systems: samples of their public documentation (tests/data/presets.jsonl) under the shipped settings."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.presets.loader import load_presets
from gateway.routes import compile_routes
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.reading import decode_record
from ingest.contract.topics import READINGS

SAMPLES = Path(__file__).parents[2] / "data" / "presets.jsonl"
LINES = [json.loads(line) for line in SAMPLES.read_text("utf-8").splitlines()]
RECEIVED_US = 1_795_900_000_000_000
Row = tuple[str, str, Any, str | None, int | None]


@pytest.fixture(scope="module")
def gate() -> MessageProcessor:
    return MessageProcessor(compile_routes((), GatewaySettings()), GatewaySettings())


def microseconds(text: str | None) -> int | None:
    return None if text is None else round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000) * 1000


def wanted(line: dict[str, Any]) -> set[Row]:
    found: set[Row] = set()
    for one in line["expect"]:
        value = str(one["value"]).lower() if isinstance(one["value"], bool) else one["value"]
        found.add((one["device"], one["metric"], value, one["unit"], microseconds(one["time"])))
    return found


def rows(outcome: Outcome) -> set[Row]:
    return {
        (record.device, one.metric, one.value if one.text is None else one.text, one.unit, one.time_us)
        for record in (decode_record(found.value) for found in outcome.records if found.topic == READINGS)
        for one in record.readings
    }


def refused(outcome: Outcome) -> list[list[str | None]]:
    letters = [decode_dead_letter(found.value) for found in outcome.records if found.topic != READINGS]
    return [[letter.path, letter.reason] for letter in letters]


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(line["id"]))
def test_a_sample_gives_these_readings_and_no_other(line: dict[str, Any], gate: MessageProcessor) -> None:
    outcome = gate.decide(Message(1, 1, RECEIVED_US, line["topic"].encode(), line["payload"].encode()))
    assert rows(outcome) == wanted(line)
    if "outcome" in line:
        kind, reason = line["outcome"]
        assert (outcome.ignored if kind == "ignored" else outcome.rejected) == reason
    else:
        assert refused(outcome) == line.get("refused", [])


def test_each_sample_names_its_preset_and_where_it_is_documented() -> None:
    assert {line["format"] for line in LINES} <= set(load_presets())
    assert all(line["source"].startswith("https://") for line in LINES)


@pytest.mark.parametrize(
    ("topic", "body", "change"),
    [
        ("msh/2/json/LongFast/!7efeee00", {"from": 1, "id": 5, "type": "telemetry", "timestamp": 1_795_890_000,
         "sender": "!7efeee00", "rssi": -45, "payload": {"voltage": 4.1}},
         {"sender": "!7efeee01", "rssi": -80, "timestamp": 1_795_890_002}),
        ("enocean/office", {"TMP": 21.6, "_RSSI_": -60, "_DATE_": "2026-11-28T12:00:00.2Z"},
         {"_RSSI_": -80, "_DATE_": "2026-11-28T12:00:00.4Z"}),
    ],
)  # fmt: skip
def test_a_copy_through_another_gateway_has_the_same_identity(
    gate: MessageProcessor, topic: str, body: dict[str, Any], change: dict[str, Any]
) -> None:
    def identity(payload: dict[str, Any]) -> str | None:
        outcome = gate.decide(Message(1, 1, RECEIVED_US, topic.encode(), json.dumps(payload).encode()))
        record = decode_record(outcome.records[0].value)
        return record.readings[0].message_id or record.message_id

    assert identity(body) == identity(body | change)
    assert (identity(body) or "").startswith("tg:")
