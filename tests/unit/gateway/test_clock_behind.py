"""Clocks far behind: flagged by a bound that can be set, the GPS week rollover by name; no time is corrected."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.clock_behind import rolled_over_weeks
from gateway.delivery.block import Block
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.policy import ReadingPolicy
from gateway.routes import compile_routes
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.reading import decode_record
from ingest.contract.topics import READINGS

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
NOW_US = round(NOW.timestamp()) * 1_000_000
NATIVE, GENERIC = b"tidegate/v1/dev/readings", b"site/dev/data"
ROUTES = compile_routes((RouteSettings(filter="site/#"),), GatewaySettings())
ROLLED = timedelta(weeks=1024)
BOUND = "clock_behind"
GPS = "gps_week_rollover"


def flags_of(at: datetime, topic: bytes = NATIVE, limits: GatewaySettings | None = None, **envelope: Any) -> list[str]:
    ms = round(at.timestamp() * 1000)
    body = {"ts": ms, "values": {"t": 1.5}} if topic == NATIVE else {"ts": ms, "t": 1.5}
    message = Message(7, 1000, NOW_US, topic, json.dumps(body).encode(), **envelope)
    outcome = MessageProcessor(ROUTES, limits or GatewaySettings()).decide(message)
    assert outcome.accepted, outcome
    [record] = [decode_record(record.value) for record in outcome.records if record.topic == READINGS]
    assert record.readings[0].time_us == ms * 1000
    return [flag for flag in record.readings[0].flags or () if flag in (BOUND, GPS)]


@pytest.mark.parametrize("topic", [NATIVE, GENERIC])
@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        (timedelta(0), []),
        (timedelta(days=365), []),
        (timedelta(days=367), [BOUND]),
        (timedelta(days=3000), [BOUND]),
        (ROLLED, [BOUND, GPS]),
        (ROLLED + timedelta(hours=23), [BOUND, GPS]),
        (ROLLED - timedelta(hours=23), [BOUND, GPS]),
        (ROLLED + timedelta(days=2), [BOUND]),
    ],
)
def test_a_time_far_before_its_arrival_is_flagged(topic: bytes, before: timedelta, wanted: list[str]) -> None:
    assert flags_of(NOW - before, topic) == wanted


def test_the_bound_can_be_set_and_switched_off() -> None:
    hour, none = GatewaySettings(clock_behind_seconds=3600), GatewaySettings(clock_behind_seconds=0)
    assert flags_of(NOW - timedelta(hours=2), limits=hour) == [BOUND]
    assert flags_of(NOW - timedelta(minutes=59), limits=hour) == []
    assert flags_of(NOW - timedelta(days=3000), limits=none) == []
    assert flags_of(NOW - ROLLED, limits=none) == [GPS]


def test_what_the_broker_kept_is_no_clock_behind() -> None:
    """A retained replay says nothing about the clock; what waited in a queue was sent earlier."""
    assert flags_of(NOW - timedelta(days=900), retain=True) == []
    since = NOW_US - 6 * 86_400 * 1_000_000
    assert flags_of(NOW - timedelta(days=369), waited_since_us=since) == []
    assert flags_of(NOW - timedelta(days=373), waited_since_us=since) == [BOUND]
    assert flags_of(NOW - timedelta(days=900), waited_since_us=0) == []
    assert flags_of(NOW - ROLLED, retain=True) == [GPS]


def test_a_rollover_to_a_time_before_2000_is_named_in_the_refusal() -> None:
    ms = round((NOW - 2 * ROLLED).timestamp() * 1000)
    generic = [(GENERIC, {"ts": at, "t": 1.5}) for at in (_text(ms), ms // 1000, ms / 1000)]
    for topic, body in ((NATIVE, {"ts": ms, "values": {"t": 1.5}}), *generic):
        outcome = MessageProcessor(ROUTES, GatewaySettings()).decide(
            Message(7, 1000, NOW_US, topic, json.dumps(body).encode())
        )
        letter = decode_dead_letter(outcome.records[0].value)
        assert letter.reason.value == "ts_too_old"
        assert "2048 weeks behind" in str(letter.wanted)


@pytest.mark.parametrize("at", [-1e308, -5, 0, 12345])
def test_a_number_that_is_no_time_is_refused_without_a_hint(at: float) -> None:
    outcome = MessageProcessor(ROUTES, GatewaySettings()).decide(
        Message(7, 1000, NOW_US, GENERIC, json.dumps({"ts": at, "t": 1}).encode())
    )
    letter = decode_dead_letter(outcome.records[0].value)
    assert (letter.reason.value, letter.wanted) == ("ts_too_old", "a time since 2000-01-01T00:00:00Z")


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


@given(st.timedeltas(timedelta(0), timedelta(days=9000)), st.sampled_from([0, 3600, 366 * 86_400, 4000 * 86_400]))
def test_the_short_way_leaves_flagged_times_to_the_long_one(before: timedelta, bound: int) -> None:
    limits = GatewaySettings(clock_behind_seconds=bound)
    flags = flags_of(NOW - before, limits=limits)
    ms = round((NOW - before).timestamp() * 1000)
    payload = json.dumps({"ts": ms, "boot": 1, "seq": 2, "values": {"t": 1.5}}).encode()
    block = Block(1000, 7, NOW_US, 0.0)
    taken = FastPathEncoder(ROUTES, limits, ReadingPolicy()).encode_into(
        block, [(NATIVE, payload, b"\0\1")], 0, 100_000
    )
    if flags:
        assert taken == 0
    if before < timedelta(seconds=bound or 86_400):
        assert taken == 1


def test_weeks_are_named_only_near_a_rollover() -> None:
    us = NOW_US - 1024 * 7 * 86_400 * 1_000_000
    assert rolled_over_weeks(us, NOW_US) == 1024
    assert rolled_over_weeks(us - 1024 * 7 * 86_400 * 1_000_000, NOW_US) == 2048
    assert rolled_over_weeks(us + 2 * 86_400 * 1_000_000, NOW_US) is None
