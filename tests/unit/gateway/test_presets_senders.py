"""The default formats of listed senders, and times that are no times."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.reading import decode_record
from ingest.contract.topics import READINGS

NOW_US = 1_800_000_000_000_000
AT = 1_795_900_000_000_000
LINE = b"cpu,host=h1 usage_idle=90.5 1795900000000000000"
BATCH = b"""cpu,cpu=cpu0,host=h1 usage_idle=90.5,usage_user=3 1795900000000000000
cpu,cpu=cpu1,host=h1 usage_idle=80i 1795900000000000000

mem,host=h1 used=1024i,state="ok" 1795900010000000000
"""
Decide = Callable[[str, Any], Outcome]


@pytest.fixture(scope="module")
def decide() -> Decide:
    gate = MessageProcessor(compile_routes((), GatewaySettings()), GatewaySettings())

    def decide(topic: str, payload: Any) -> Outcome:
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return gate.decide(Message(1, 1, NOW_US, topic.encode(), raw))

    return decide


def rows(outcome: Outcome) -> set[tuple[Any, ...]]:
    return {
        (record.device, one.metric, one.value if one.text is None else one.text, one.time_us)
        for record in (decode_record(found.value) for found in outcome.records if found.topic == READINGS)
        for one in record.readings
    }


def test_line_protocol_is_telegrafs_default_and_is_read(decide: Decide) -> None:
    assert rows(decide("telegraf/h1/cpu", LINE)) == {("host=h1", "cpu.usage_idle", 90.5, AT)}
    assert rows(decide("telegraf/h1", LINE)) == {("host=h1", "cpu.usage_idle", 90.5, AT)}
    assert rows(decide("telegraf/h1/a/b/c", LINE)) == {("host=h1", "cpu.usage_idle", 90.5, AT)}


def test_each_line_of_a_batch_is_read(decide: Decide) -> None:
    assert rows(decide("telegraf/h1/batch", BATCH)) == {
        ("cpu=cpu0,host=h1", "cpu.usage_idle", 90.5, AT), ("cpu=cpu0,host=h1", "cpu.usage_user", 3.0, AT),
        ("cpu=cpu1,host=h1", "cpu.usage_idle", 80.0, AT), ("host=h1", "mem.used", 1024.0, AT + 10_000_000),
        ("host=h1", "mem.state", "ok", AT + 10_000_000),
    }  # fmt: skip


def test_a_line_that_cannot_be_read_costs_itself(decide: Decide) -> None:
    outcome = decide("telegraf/h1/cpu", LINE + b"\nnonsense=\n")
    assert rows(outcome) == {("host=h1", "cpu.usage_idle", 90.5, AT)}
    [letter] = [decode_dead_letter(found.value) for found in outcome.records if found.topic != READINGS]
    assert (letter.reason, letter.path) == ("undecoded", "$.metrics[1]")


def test_json_stays_what_it_was(decide: Decide) -> None:
    point = {"name": "cpu", "tags": {"host": "h1"}, "fields": {"usage_idle": 90.5}, "timestamp": 1_795_900_000}
    wanted = {("host=h1", "cpu.usage_idle", 90.5, AT)}
    assert rows(decide("telegraf/h1/cpu", point)) == wanted
    assert rows(decide("telegraf/h1/cpu", {"metrics": [point]})) == wanted
    assert rows(decide("telegraf/h1/cpu", b"\n " + json.dumps(point).encode())) == wanted


def test_the_field_layout_gives_bare_values(decide: Decide) -> None:
    assert rows(decide("telegraf/h1/cpu/usage_idle", b"90.5")) == {("h1", "cpu.usage_idle", 90.5, None)}


@pytest.mark.parametrize("payload", [b"\x01\x02", b"hello", b"21.5"])
def test_what_telegraf_never_writes_is_a_dead_letter(decide: Decide, payload: bytes) -> None:
    outcome = decide("telegraf/h1/cpu", payload)
    [letter] = [decode_dead_letter(found.value) for found in outcome.records]
    assert letter.reason == "undecoded"


@pytest.mark.parametrize("time", ["@0.05s", "@0.000000s", "@12s", "@1795900000.5s"])
def test_a_place_in_the_samples_is_not_a_time(decide: Decide, time: str) -> None:
    body = {"time": time, "model": "Acurite-5n1", "id": 1234, "channel": "A", "temperature_C": 21.5}
    outcome = decide("rtl_433/recv/events", body)
    assert rows(outcome) == {("Acurite-5n1/A/1234", "temperature_C", 21.5, None)}
    [record] = [decode_record(found.value) for found in outcome.records]
    assert record.message_id is None
    assert "no_identity" in (record.flags or [])


def test_another_text_in_place_of_a_time_stays_a_fault(decide: Decide) -> None:
    body = {"time": "@noon", "model": "Acurite-5n1", "id": 1234, "channel": "A", "temperature_C": 21.5}
    [letter] = [decode_dead_letter(found.value) for found in decide("rtl_433/recv/events", body).records]
    assert (letter.reason, letter.path) == ("bad_timestamp", "$.time")
