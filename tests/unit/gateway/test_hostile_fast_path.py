"""The fast path takes a message of the table of bad inputs only where its outcome is the same as that of the slow path."""

import tomllib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.delivery.block import Block
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import MessageProcessor
from gateway.policy import ReadingPolicy
from gateway.routes import compile_routes
from ingest.contract.reading import decode_record
from tests.fuzz.bombs import make_bomb
from tests.fuzz.mutate import bend

TABLE = tomllib.loads((Path(__file__).parent / "hostile" / "outcomes.toml").read_text("utf-8"))
ROWS = [row for section in TABLE.values() if isinstance(section, dict) for row in section.get("rows", [])]
NATIVE = [
    row
    for row in ROWS
    if ("native" in row.get("on", ()) or "*" not in row.get("device", "*"))
    and not row.get("checked")
    and "hex" not in row
]
NOW_US = 1_764_331_200_000_000
LIMITS = GatewaySettings()
ROUTES = compile_routes(())
MID = b"\0\1"
GOOD = (
    b'{"ts":1764331199123,"boot":17,"seq":4,"values":{"t":21.5,"n":7}}',
    b'{"ts":1764331199123,"boot":17,"seq":4,"values":{"t":21.5,"on":true,"m":"eco","p":{"value":3,"unit":"hPa"}}}',
    b'{"values":{"t":-0.0}}',
)


@cache
def ways() -> tuple[FastPathEncoder, MessageProcessor]:
    return FastPathEncoder(ROUTES, LIMITS, ReadingPolicy()), MessageProcessor(ROUTES, LIMITS)


def takes(topic: bytes, payload: bytes) -> bool:
    """Whether the short way takes it; fails where the two ways then differ."""
    express, gate = ways()
    short, long = Block(1000, 7, NOW_US, 0.0), Block(1000, 7, NOW_US, 0.0)
    express.encode_into(short, [(topic, payload, MID)], 0, 100_000)
    if not len(short):
        return False
    outcome = gate.decide(short.message(0))
    assert outcome.accepted, outcome
    long.add((topic, payload, MID), outcome)
    assert [repr(decode_record(value)) for value in short.values] == [
        repr(decode_record(value)) for value in long.values
    ]
    assert (short.keys, short.sequences, short.readings) == (long.keys, long.sequences, outcome.readings)
    return True


def payload_of(row: dict[str, Any]) -> bytes:
    text: str = row.get("payload", "")
    return make_bomb(row["make"]) if "make" in row else text.encode()


@pytest.mark.parametrize("row", NATIVE, ids=lambda row: row["b"])
def test_a_row_is_taken_only_where_it_is_accepted_and_then_says_the_same(row: dict[str, Any]) -> None:
    device = row.get("device", "dev-1")
    taken = takes(f"tidegate/v1/{device}/readings".encode(), payload_of(row))
    # The flag of a row that is retained comes from its packet, and only plain packets go the short way.
    flags = {*row.get("flags", ())} - {"retained"}
    assert not taken or (row["is"] == "accepted" and not flags)


@pytest.mark.parametrize(
    "number", ["-0", "-0.0", "0.0", "-0e5", "0.%s1" % ("0" * 400), "1e-310", "4.9e-324", "9007199254740991.0", "1E5"]
)
def test_numbers_at_the_edges(number: str) -> None:
    for body in ('{"values":{"t":%s}}', '{"ts":1764331199123,"boot":1,"seq":2,"values":{"t":%s,"u":1}}'):
        takes(b"tidegate/v1/dev-1/readings", (body % number).encode())


@settings(max_examples=400)
@given(st.randoms(use_true_random=False), st.sampled_from(GOOD), st.sampled_from(GOOD))
@example(Random(0), GOOD[0], GOOD[1])
def test_bent_payloads(random: Random, payload: bytes, other: bytes) -> None:
    takes(b"tidegate/v1/dev-1/readings", bend(random, payload, other))


def test_the_good_ones_go_the_short_way() -> None:
    assert [takes(b"tidegate/v1/dev-1/readings", payload) for payload in GOOD] == [True] * 3
