"""What is refused of a SenML pack goes to the device that the record names: its letter and its receipt."""

import json
from typing import Any

import pytest

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.topics import DEAD_LETTERS

ONE, TWO = "urn:dev:ow:10e2073a01080001", "urn:dev:ow:10e2073a01080002"


def decide(*records: dict[str, Any]) -> Outcome:
    routes = compile_routes((RouteSettings(filter="senml/#", decoder="senml"),))
    gate = MessageProcessor(routes, GatewaySettings())
    return gate.decide(Message(1, 1, 1_790_000_000_000_000, b"senml/site", json.dumps(list(records)).encode()))


def refused(outcome: Outcome) -> list[tuple[str | None, str]]:
    return sorted((one.device, one.reject.path or "") for one in outcome.refusals)


def letters(outcome: Outcome) -> list[str | None]:
    return sorted(decode_dead_letter(one.value).device or "" for one in outcome.records if one.topic == DEAD_LETTERS)


def test_a_device_without_a_good_reading_gets_its_own_letter_and_receipt() -> None:
    outcome = decide({"bn": f"{ONE}:", "n": "t", "v": 1}, {"bn": f"{TWO}:", "n": "t", "v": "x"}, {"n": "u", "v": "y"})
    assert outcome.accepted
    assert {device for device, _ in refused(outcome)} == {TWO}
    assert set(letters(outcome)) == {TWO}


def test_a_whole_refusal_of_several_tells_each() -> None:
    outcome = decide({"n": f"{ONE}:t", "v": "x"}, {"n": f"{TWO}:t", "v": "y"})
    assert not outcome.accepted
    assert {device for device, _ in refused(outcome)} == {ONE, TWO}


def test_a_device_with_good_readings_has_its_own_refusals() -> None:
    outcome = decide({"n": f"{ONE}:t", "v": 1}, {"n": f"{TWO}:t", "v": 2}, {"n": f"{TWO}:u", "v": "y"})
    assert refused(outcome) == [(TWO, "$[2].v")]


def test_a_record_that_names_nobody_goes_with_the_first() -> None:
    outcome = decide({"n": f"{ONE}:t", "v": 1}, {"n": 7, "v": 2}, {"n": f"{TWO}:t", "v": 2})
    assert refused(outcome) == [(ONE, "$[1].n")]


@pytest.mark.parametrize("spoils", [{"bver": 99}, {"bt": "x"}, {"foo_": 1}, {"bu": 7}, {"bs": []}])
def test_a_pack_that_a_record_spoils_is_refused_for_each_device_so_far(spoils: dict[str, Any]) -> None:
    for record in ({**spoils, "bn": f"{TWO}:", "n": "t", "v": 2}, {"bn": f"{TWO}:", "n": "t", "v": 2, **spoils}):
        alone = decide(record, {"n": "u", "v": 3})
        assert not alone.accepted
        assert letters(alone) == [TWO]
        outcome = decide({"n": f"{ONE}:t", "v": 1}, record, {"n": f"{ONE}:u", "v": 4})
        assert not outcome.accepted
        assert refused(outcome) == [(device, f"$[1].{next(iter(spoils))}") for device in (ONE, TWO)]


def test_a_spoiled_pack_that_names_nobody_is_the_topics() -> None:
    for record in ({"bver": 99, "v": 1}, {"bn": 7, "n": "t", "v": 1}, {"bt": "x", "n": 3, "v": 1}):
        assert letters(decide(record)) == ["senml"]
