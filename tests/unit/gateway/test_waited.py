"""What waited is no news: retained replays, and messages that the broker kept while the gateway was away."""

import json
from typing import Any

import pytest

from gateway.delivery.ack_chain import AckChain
from gateway.delivery.block import Block
from gateway.delivery.intake import MessageIntake
from gateway.delivery.sequence import SequenceTracker
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import RouteSettings
from gateway.message import Message
from gateway.message_processor import MessageProcessor
from gateway.mqtt.session_events import Incoming, Received
from gateway.policy import ReadingPolicy
from gateway.routes import compile_routes
from ingest.contract.outcome import Count
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.contract.reasons import IgnoredReason
from tests.support.outcome import LIMITS, NATIVE, NOW_US, decide, native, record_of

SINCE_US = NOW_US - 3_600_000_000
ROUTES = compile_routes((), LIMITS)


def take(*messages: Incoming, since_us: int | None = None) -> tuple[list[ReadingRecord], Block]:
    """The records of messages that a gateway receives."""
    gate, express = MessageProcessor(ROUTES, LIMITS), FastPathEncoder(ROUTES, LIMITS, ReadingPolicy())
    intake = MessageIntake(gate, express, is_full=lambda block: False, wall_us=lambda: NOW_US)
    intake.waited_since_us = since_us
    [block] = intake.take(list(messages), 9, 100_000)
    return [decode_record(value) for value in block.values], block


def retained(topic: bytes, payload: bytes) -> Received:
    return Received(topic, payload, 1, 1, retain=True)


@pytest.mark.parametrize("fields", [{}, {"ts": NOW_US // 1000}, {"ts": NOW_US // 1000, "boot": 1, "seq": 2}])
def test_a_retained_replay_says_so_with_or_without_a_time_of_its_own(fields: dict[str, Any]) -> None:
    replay = record_of(decide(NATIVE, native(**fields), retain=True))
    live = record_of(decide(NATIVE, native(**fields)))
    assert (replay.retain, live.retain) == (True, False)
    assert "retained" in (replay.flags or ())
    assert "retained" not in (live.flags or ())
    assert replay.payload_hash == live.payload_hash


def counts_of(block: Block, tracker: SequenceTracker | None = None) -> dict[str | None, Count]:
    chain = AckChain("g", tracker)
    chain.begin(9)
    block.waiting = 0
    chain.receive(block)
    batch = chain.next_batch(1_000_000)
    assert batch is not None
    return {count.device: count for count in batch.record.counts}


def test_each_retained_replay_is_counted_as_one_whatever_became_of_it() -> None:
    topics = [b"tidegate/v1/stored/readings", b"tidegate/v1/refused/readings", b"tidegate/v1/ignored/readings"]
    payloads = [native(), b"{", b""]
    _, block = take(*map(retained, topics, payloads), (topics[0], native(), b"\0\1"), retained(b"nowhere/x", b"1"))
    found = counts_of(block)
    assert {name: (count.received, count.retained) for name, count in found.items()} == {
        "stored": (2, 1), "refused": (1, 1), "ignored": (1, 1), None: (1, 1)
    }  # fmt: skip
    gateway = json.dumps({"a": [{"t": 1}], "b": [{"t": 1}]}).encode()
    _, block = take(retained(b"v1/gateway/telemetry", gateway))
    assert [(count.received, count.shared, count.retained) for count in counts_of(block).values()] == [
        (1, 0, 1), (0, 1, 1)
    ]  # fmt: skip


def test_the_number_of_a_replay_begins_no_counter_and_closes_a_gap_of_a_known_one() -> None:
    topic, tracker = b"tidegate/v1/d1/readings", SequenceTracker()
    _, block = take(retained(topic, native(boot=1, seq=5)), (topic, native(boot=1, seq=900), b"\0\1"))
    assert counts_of(block, tracker)["d1"].gap == 0
    _, block = take((topic, native(boot=1, seq=903), b"\0\1"), retained(topic, native(boot=1, seq=902)))
    found = counts_of(block, tracker)["d1"]
    assert (found.gap, found.reordered, found.restarts) == (2, 1, 0)


@pytest.mark.parametrize("retain", [True, False])
def test_an_empty_payload_is_ignored_on_a_topic_without_a_route_too(retain: bool) -> None:
    """A broker delivers the delete of a retained message live without the retain flag."""
    outcome = decide(b"zigbee2mqtt/bridge/what/ever", b"", retain=retain)
    assert (outcome.ignored, outcome.records, outcome.device) == (IgnoredReason.EMPTY_PAYLOAD, [], None)


TOPIC = b"tidegate/v1/d1/readings"
UNTIMED, TIMED = native(boot=1, seq=1), native(boot=1, seq=2, ts=NOW_US // 1000)
HALF_TIMED = json.dumps(
    [{"boot": 1, "seq": 3, "values": {"t": 1}}, {"boot": 1, "seq": 4, "ts": NOW_US // 1000, "values": {"t": 2}}]
).encode()


@pytest.mark.parametrize("since_us", [SINCE_US, 0])
def test_a_message_that_may_have_waited_says_so_and_since_when(since_us: int) -> None:
    records, block = take(*((TOPIC, each, b"\0\1") for each in (UNTIMED, TIMED, HALF_TIMED)), since_us=since_us)
    flags = [[reading.flags for reading in record.readings] for record in records]
    assert flags == [[["may_have_waited"]], [None], [["may_have_waited"], None]], "only where it has no time of its own"
    assert [record.waited_since_us for record in records] == [since_us or None] * 3
    assert sorted(block.odd) == [0, 2], "what has a time goes the short way"


def test_a_time_that_was_calculated_from_the_arrival_may_be_wrong_as_well() -> None:
    gate = MessageProcessor(compile_routes((RouteSettings(filter="s/{device}", decoder="senml"),), LIMITS), LIMITS)
    senml = b'[{"n":"t","v":1,"t":-5}]'
    record = record_of(gate.decide(Message(1, 9, NOW_US, b"s/x", senml, waited_since_us=SINCE_US)))
    [reading] = record.readings
    assert (reading.time_us is None, reading.flags) == (False, ["relative_time", "may_have_waited"])


def test_what_came_as_it_was_published_has_no_flag() -> None:
    records, _ = take(*((TOPIC, each, b"\0\1") for each in (UNTIMED, TIMED, HALF_TIMED)))
    assert all(reading.flags is None for record in records for reading in record.readings)
    assert all(record.waited_since_us is None for record in records)
