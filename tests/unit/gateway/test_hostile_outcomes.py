"""Each bad input of tests/unit/gateway/hostile/outcomes.toml has the outcome that is declared there, and a sound one."""

import math
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.profiles.policy import make_policy
from gateway.routes import compile_routes
from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter
from ingest.contract.reading import Reading, ReadingRecord, decode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS
from tests.fuzz.bombs import make_bomb
from tests.fuzz.checks import faults_of
from tests.fuzz.seeds import FuzzTarget, targets

pytestmark = pytest.mark.promise("P4")

HOSTILE = Path(__file__).parent / "hostile"
TABLE = tomllib.loads((HOSTILE / "outcomes.toml").read_text("utf-8"))
OURS = FuzzTarget("the table's routes", (), tuple(RouteSettings.model_validate(route) for route in TABLE["routes"]))
ROWS = [row for section in TABLE.values() if isinstance(section, dict) for row in section.get("rows", [])]
SHIPPED = FuzzTarget("the presets", (), (), ("*",))
NOW_US = 1_764_331_200_000_000
LIMITS = GatewaySettings()
NO_IDENTITY = "no_identity"
REPEAT = re.compile(r"\{([^{}]+)\*(\d+)\}")


def repeat(text: str) -> str:
    """`{x*300}` is 300 times x."""
    return REPEAT.sub(lambda found: found[1] * int(found[2]), text)


def places_of(row: dict[str, Any]) -> list[tuple[str, bytes, FuzzTarget]]:
    """Name, topic and gate of each place where this row's payload is sent."""
    if "topic_hex" in row:
        return [("hex", bytes.fromhex(row["topic_hex"]), OURS)]
    if "device" in row:
        return [("device", f"tidegate/v1/{repeat(row['device'])}/readings".encode(), OURS)]
    places = []
    for name in row["on"]:
        if name == "each":
            places += [(target.name, target.topics[0].encode(), target) for target in targets()]
        else:
            topic = repeat(TABLE["topics"].get(name, name)).encode()
            places.append((name[:20], topic, SHIPPED if row.get("shipped") else OURS))
    return places


def payload_of(row: dict[str, Any]) -> bytes:
    if "hex" in row:
        return bytes.fromhex(row["hex"])
    if "make" in row:
        return make_bomb(row["make"])
    payload: str = row["payload"]
    return payload.encode()


def checked_gate() -> MessageProcessor:
    """With profiles, a registry and a rate."""
    asked = {"profiles": str(HOSTILE / "profiles"), "device_registry": str(HOSTILE / "devices.jsonl")}
    limits = LIMITS.model_copy(
        update={
            **asked,
            "unregistered": "refuse",
            "device_rate": 0.1,
            "device_burst": 3.0,
            "device_catch_up_seconds": 0.0,
        }
    )
    return MessageProcessor(compile_routes(()), limits, policy=make_policy(limits))


CASES = [
    pytest.param(row, topic, target, id=f"{row['b']}-{name}")
    for row in ROWS
    for name, topic, target in places_of(row)
]  # fmt: skip


@pytest.mark.parametrize(("row", "topic", "target"), CASES)
def test_a_bad_input_has_the_outcome_that_is_declared(row: dict[str, Any], topic: bytes, target: FuzzTarget) -> None:
    envelope = {name: row[name] for name in ("retain", "dup", "trace") if name in row}
    if "message_id" in row:
        envelope["message_id"] = repeat(row["message_id"])
    message = Message(7, 1000, NOW_US, topic, payload_of(row), **envelope)
    gate = checked_gate() if row.get("checked") else target.gate(LIMITS)
    for earlier in row.get("before", []):
        at, _, said = earlier.partition(" ")
        payload = bytes.fromhex(said[4:]) if said.startswith("hex:") else said.encode()
        gate.decide(Message(6, 1000, NOW_US, at.encode(), payload))
    outcome = gate.decide(message)
    assert faults_of(message, outcome, LIMITS) == []
    letters = [decode_dead_letter(record.value) for record in outcome.records if record.topic == DEAD_LETTERS]
    kind = "accepted" if outcome.accepted else "dead_letter" if outcome.rejected else "ignored"
    found = f"{kind} {outcome.rejected or outcome.ignored or ''} {[(one.path, one.got) for one in letters][:3]}"
    assert kind in (("dead_letter", "ignored") if row["is"] == "refused" else (row["is"],)), found
    if "why" in row:
        assert (outcome.rejected or outcome.ignored) == row["why"], found
    if "at" in row:
        assert letters[0].path == row["at"]
    if "replies" in row:
        assert [reply.topic for reply in outcome.replies] == row["replies"]
    if kind == "accepted":
        check_record(row, outcome, letters)


def check_record(row: dict[str, Any], outcome: Outcome, letters: list[DeadLetterRecord]) -> None:
    [record] = [decode_record(one.value) for one in outcome.records if one.topic == READINGS]
    if "gives" in row:
        assert {one.metric: seen(one, row["gives"].get(one.metric)) for one in record.readings} == {
            metric: wanted(value) for metric, value in row["gives"].items()
        }
    if "count" in row:
        assert len(record.readings) == row["count"]
    if "time" in row:
        assert {one.time_us for one in record.readings} == {us(row["time"])}
    if "key" in row:
        assert outcome.records[0].key == row["key"].encode()
    assert [f"{letter.path} {letter.reason}" for letter in letters] == row.get("parts", [])
    assert {*(record.flags or ())} - {NO_IDENTITY} == {*row.get("flags", ())}
    check_identity(row, record)


def check_identity(row: dict[str, Any], record: ReadingRecord) -> None:
    if row.get("identity"):
        assert (record.message_id or "").startswith(row["identity"])
    elif "identity" in row:
        assert record.message_id is None
    numbered = record.message_id is not None or all(one.message_id is not None for one in record.readings)
    assert (NO_IDENTITY in (record.flags or ())) != numbered


def us(text: str) -> int | None:
    if not text:
        return None
    at = datetime.fromisoformat(text)
    return int(datetime(*at.timetuple()[:6], tzinfo=UTC).timestamp()) * 1_000_000 + at.microsecond


def wanted(value: object) -> dict[str, object]:
    """A cell of `gives`, spelled out."""
    match value:
        case bool():
            return {"value": (1.0, float(value)), "text": str(value).lower(), "unit": None, "flags": []}
        case int() | float():
            return {"value": exact(float(value)), "text": None, "unit": None, "flags": []}
        case str():
            return {"value": None, "text": value, "unit": None, "flags": []}
        case dict():
            spelled = {"value": None, "text": None, "unit": None, "flags": [], **value}
            if spelled["value"] is not None:
                spelled["value"] = exact(float(spelled["value"]))
            return spelled | ({"time": us(value["time"])} if "time" in value else {})
    raise TypeError(value)


def seen(reading: Reading, cell: object) -> dict[str, object]:
    """A reading in the form of `wanted`; its time only where the cell names one."""
    found: dict[str, object] = {
        "value": None if reading.value is None else exact(reading.value),
        "text": reading.text,
        "unit": reading.unit,
        "flags": reading.flags or [],
    }
    return found | ({"time": reading.time_us} if isinstance(cell, dict) and "time" in cell else {})


def exact(value: float) -> tuple[float, float]:
    """Minus zero is not zero."""
    return (math.copysign(1.0, value), value)
