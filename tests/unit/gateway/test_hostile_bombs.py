"""Payloads made to cost far more than their size do not: neither time, beside a good message, nor memory.

No clock decides here but in a ratio of two costs in one run; `make chaos` asserts the milliseconds.
"""

import gc
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from gateway import routes
from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import Message, MessageProcessor
from tests.fuzz.bombs import BOMBS, make_bomb
from tests.fuzz.checks import faults_of
from tests.fuzz.seeds import FuzzTarget, targets

pytestmark = pytest.mark.promise("P4")

NOW_US = 1_764_331_200_000_000
LIMITS = GatewaySettings()
FEWER = LIMITS.model_copy(update={"max_readings_per_message": 1000})
"""Cheaper to try for every target, and no less sharp: what grows with the square of a size does so before the limit."""
MAX_RATIO = 20
"""What grows with the square of a size costs hundreds of times a good message; a busy machine doubles a cost."""
MAX_PEAK_BYTES = 48 << 20
GOOD = "readings 10000"
SUSPECT = ("keys 9999 NaN", "one name 8192 times", "tree", "wide bad times", "key over many", "gzip of 64 MiB")
"""For presets, whose one engine all bombs try as `json` already: those that a mapping may make worse."""
HEAVY = (
    "tree", "one name 8192 times", "key over many", "depth open objects", "gzip of 64 MiB", "gzip in gzip in gzip",
    "cbor length 2^63", "cbor map 2^32", "cbor bignum", "cbor many", "protobuf many empty metrics", "line of tags",
)  # fmt: skip
"""Those that may take memory: tracing it makes each dear."""
TARGETS = targets()
ENGINES = [target for target in TARGETS if not target.presets]

bomb = cache(make_bomb)
each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
each_engine = pytest.mark.parametrize("target", ENGINES, ids=lambda target: target.name)


def cost_seconds(target: FuzzTarget, payload: bytes, limits: GatewaySettings) -> float:
    """CPU time of one message; the outcome must be sound."""
    gate, message = target.gate(limits), Message(1, 1, NOW_US, target.topics[0].encode(), payload)
    started = time.thread_time()
    outcome = gate.decide(message)
    took = time.thread_time() - started
    assert faults_of(message, outcome, limits) == []
    return took


@cache
def good_seconds() -> float:
    """What a good message of as many readings as are allowed costs: the dearest of three looks."""
    native = next(target for target in ENGINES if target.name == "native")
    return max(cost_seconds(native, bomb(GOOD), LIMITS) for _ in range(3))


@pytest.fixture(autouse=True)
def _own_garbage() -> Iterator[None]:
    """What this process holds of hundreds of other tests is no cost of a message: the collector leaves it out meanwhile."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def dear_ones(target: FuzzTarget, names: Iterable[str], limits: GatewaySettings, ratio: int = MAX_RATIO) -> list[str]:
    """A sentence for each bomb that costs `ratio` times what a good message does."""
    told = []
    for name in names:
        took = cost_seconds(target, bomb(name), limits)
        if took > ratio * good_seconds():
            # Another look at both, for a machine that became busy with something else.
            good_seconds.cache_clear()
            took = min(cost_seconds(target, bomb(name), limits) for _ in range(3))
        if took > ratio * good_seconds():
            told.append(f"{name}: {took * 1000:.0f} ms, where a good message costs {good_seconds() * 1000:.0f} ms")
    return told


@each_target
def test_no_bomb_costs_many_times_a_good_message(target: FuzzTarget) -> None:
    assert dear_ones(target, SUSPECT if target.presets else BOMBS, FEWER) == []


@pytest.mark.parametrize("name", ["native", "json"])
def test_nor_with_all_the_readings_that_a_message_may_hold(name: str) -> None:
    target = next(target for target in ENGINES if target.name == name)
    many = [name for name in BOMBS if name.startswith(("keys", "wide", "tree", "one"))]
    # Names from nested paths are dearer than those of the good message, which has none; what grows with a square is far off.
    assert dear_ones(target, many, LIMITS, 3 * MAX_RATIO) == []


@each_engine
def test_no_bomb_takes_much_memory(target: FuzzTarget) -> None:
    gate = target.gate(FEWER)
    tracemalloc.start()
    try:
        for name in HEAVY:
            message = Message(1, 1, NOW_US, target.topics[0].encode(), bomb(name))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            gate.decide(message)
            peak_bytes = tracemalloc.get_traced_memory()[1] - before
            assert peak_bytes < MAX_PEAK_BYTES, f"{name}: {peak_bytes >> 20} MiB"
    finally:
        tracemalloc.stop()


def test_ever_new_devices_take_no_ever_new_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """B80: after as many as are remembered, the next ones leave nothing behind in the gate and its routes."""
    monkeypatch.setattr(routes, "_CACHED_TOPICS", 100)
    gate = MessageProcessor(routes.compile_routes(()), LIMITS)
    gate._known_devices.update(f"earlier-{number}" for number in range(100_000))

    def send(numbers: range) -> None:
        for number in numbers:
            topic = f"tidegate/v1/device-{number}/readings".encode()
            assert gate.decide(Message(number, 1, NOW_US + number, topic, b'{"values":{"m":1}}')).accepted

    tracemalloc.start()
    send(range(1000))
    before = tracemalloc.get_traced_memory()[0]
    send(range(1000, 6000))
    grown_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # Five thousand ids alone would take more.
    assert grown_bytes < 150_000
