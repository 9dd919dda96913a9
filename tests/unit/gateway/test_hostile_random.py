"""Random bytes and good payloads bent, for every decoder and preset: one outcome, and a sound one."""

from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.profiles.policy import make_policy
from gateway.routes import compile_routes
from tests.fuzz.checks import faults_of
from tests.fuzz.mutate import bend
from tests.fuzz.seeds import FuzzTarget, SeedMessage, fitting_seeds, read_seeds, targets

pytestmark = pytest.mark.promise("P4")

EXAMPLES = Path(__file__).parents[2] / "data" / "payloads.jsonl"
NOW_US = 1_796_000_000_000_000
"""After every time in the examples."""
LIMITS = GatewaySettings(max_payload_bytes=32 * 1024, max_readings_per_message=200)
each_target = pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)


@cache
def seeds_of(target: FuzzTarget) -> list[SeedMessage]:
    """What the target accepts, else all: foreign messages come to the wrong decoder too."""
    every = read_seeds(EXAMPLES)
    return fitting_seeds(target, every, LIMITS, NOW_US) or every or [SeedMessage(target.topics[0], b'{"a":1}')]


def check(target: FuzzTarget, messages: list[SeedMessage]) -> None:
    """Each message of a session has a sound outcome; decoders may remember the earlier ones."""
    gate = target.gate(LIMITS)
    for number, (topic, payload) in enumerate(messages):
        message = Message(number, 1, NOW_US, topic.encode(), payload)
        assert faults_of(message, gate.decide(message), LIMITS) == [], (topic, payload)


@each_target
@settings(max_examples=30)
@given(st.data())
def test_random_bytes(target: FuzzTarget, data: st.DataObject) -> None:
    topic = data.draw(st.sampled_from(target.topics))
    check(target, [SeedMessage(topic, data.draw(st.binary(max_size=120)))])


@each_target
@settings(max_examples=50)
@given(st.randoms(use_true_random=False), st.integers(0, 10_000))
def test_good_payloads_bent(target: FuzzTarget, random: Random, place: int) -> None:
    seeds = seeds_of(target)
    place %= len(seeds)
    topic, payload = seeds[place]
    check(
        target,
        [*seeds[max(0, place - 8) : place], SeedMessage(topic, bend(random, payload, random.choice(seeds).payload))],
    )


@each_target
def test_each_example_as_it_is_and_of_every_other_format(target: FuzzTarget) -> None:
    check(target, read_seeds(EXAMPLES))
    for topic in target.topics:
        check(target, [SeedMessage(topic, seed.payload) for seed in seeds_of(target)])


CHECKED = LIMITS.model_copy(
    update={
        "profiles": str(Path(__file__).parent / "hostile" / "profiles"),
        "device_registry": str(Path(__file__).parent / "hostile" / "devices.jsonl"),
        "unregistered": "quarantine",
        "device_rate": 10.0,
    }
)
PUMP = (
    b'{"boot":1,"seq":2,"values":{"t":21.5,"flow":3,"serial":"x"}}',
    b'[{"boot":1,"seq":3,"ts":1795999999000,"values":{"t":{"value":70,"unit":"\xc2\xb0F"}}},{"values":{"t":22,"x":1}}]',
)


@settings(max_examples=150)
@given(st.randoms(use_true_random=False))
def test_good_payloads_bent_with_profiles_registry_and_rate(random: Random) -> None:
    gate = MessageProcessor(compile_routes((RouteSettings(filter="j/{device}", decoder="json", device="{device}"),)), CHECKED,
                policy=make_policy(CHECKED))  # fmt: skip
    for number in range(6):
        topic = random.choice((b"tidegate/v1/pump-1/readings", b"tidegate/v1/pump-9/readings", b"j/pump-2"))
        payload = bend(random, random.choice(PUMP), PUMP[0])
        message = Message(number, 1, NOW_US + number * 1000, topic, payload)
        assert faults_of(message, gate.decide(message), CHECKED) == [], (topic, payload)
