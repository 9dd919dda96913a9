"""Sparkplug over dropped connections and killed gateways: each message is read as in an undisturbed run, at each delivery.

A model of what stands around the decoder: a broker that sends again, in order, what it has no PUBACK for; PUBACKs that
are lost on their way; a log that has some of what a killed gateway produced; and gateways that begin from that log.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.decoders.state import DecoderState
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from ingest.contract.reading import decode_record
from ingest.contract.topics import GATEWAY_STATE, READINGS

Encode = Callable[..., bytes]
T = 1_750_000_000_000
NOW_US = (T + 3_600_000) * 1000
WINDOW = 6
FLOAT, INT32 = 9, 3
ROUTES = compile_routes((RouteSettings(filter="spBv1.0/#", decoder="sparkplug"),))
LIMITS = GatewaySettings(window_messages=WINDOW)
NAMES = ("a", "b", "c")
# What births may say: which metric has alias 0, 1, 2. Data is by alias only, so a wrong birth is a wrong name.
MEANINGS = [(0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1)]


def birth(sparkplug: Encode, topic: str, meaning: int, at: int, seq: int) -> tuple[str, bytes]:
    metrics = [
        {"name": NAMES[name], "alias": alias, "datatype": (FLOAT, INT32)[meaning % 2], ("float", "int")[meaning % 2]: 1}
        for alias, name in enumerate(MEANINGS[meaning])
    ]
    return topic, sparkplug(metrics, time_ms=at, seq=seq)


class Script:
    """Messages as a node with one device sends them."""

    def __init__(self, sparkplug: Encode) -> None:
        self._sparkplug = sparkplug
        self.messages: list[tuple[str, bytes]] = []
        self._at, self._seq = T, 0
        self._meanings = {"n": 0, "n/d": 0}

    def born(self, target: str, meaning: int, step_ms: int) -> None:
        kind = "NBIRTH" if target == "n" else "DBIRTH"
        self._at += step_ms
        self._seq = 0 if target == "n" else (self._seq + 1) % 256
        self._meanings[target] = meaning
        self.messages.append(birth(self._sparkplug, f"spBv1.0/G/{kind}/{target}", meaning, self._at, self._seq))

    def data(self, target: str, alias: int, step_ms: int) -> None:
        kind = "NDATA" if target == "n" else "DDATA"
        self._at += step_ms
        self._seq = (self._seq + 1) % 256
        value = {"float": 2} if self._meanings[target] % 2 == 0 else {"int": 2}
        payload = self._sparkplug([{"alias": alias, **value}], time_ms=self._at, seq=self._seq)
        self.messages.append((f"spBv1.0/G/{kind}/{target}", payload))


def told(outcome: Outcome) -> Any:
    """What a message became, without what tells of doubt."""
    readings = [
        (record.device, one.metric, one.value, one.time_us)
        for item in outcome.records
        if item.topic == READINGS
        for record in [decode_record(item.value)]
        for one in record.readings
    ]
    return readings or outcome.rejected or outcome.ignored


def undisturbed(messages: list[tuple[str, bytes]]) -> list[Any]:
    gate = MessageProcessor(ROUTES, LIMITS)
    return [
        told(gate.decide(Message(n, 1, NOW_US, topic.encode(), payload))) for n, (topic, payload) in enumerate(messages)
    ]


class World:
    """Broker, gateway and log around the messages of a script. Indexes: what each of them has up to."""

    def __init__(self, messages: list[tuple[str, bytes]]) -> None:
        self.messages = messages
        self.log: dict[str, bytes] = {}
        self.pubacked = self.received = 0
        self.deliveries: list[tuple[int, Any]] = []
        self._number = 0
        self.kill()

    def kill(self) -> None:
        """The gateway dies, and a new one begins from the log."""
        self.gate = MessageProcessor(ROUTES, LIMITS, state=DecoderState(self.log.items()))
        self.drop()

    def drop(self) -> None:
        """The connection is lost, and a new one begins with what the broker has no PUBACK for."""
        self.gate.roll_back()
        self.flying: list[tuple[int, Outcome]] = []
        self.acknowledging: list[int] = []
        self.received = self.pubacked

    def receive(self, count: int) -> None:
        for _ in range(count):
            if self.received < min(len(self.messages), self.pubacked + WINDOW):
                topic, payload = self.messages[self.received]
                self._number += 1
                outcome = self.gate.decide(Message(self._number, 1, NOW_US, topic.encode(), payload))
                self.deliveries.append((self.received, told(outcome)))
                self.flying.append((self.received, outcome))
                self.received += 1

    def produce(self, count: int) -> None:
        """Records of the oldest messages come into the log; these are then acknowledged by the gateway."""
        for _ in range(min(count, len(self.flying))):
            place, outcome = self.flying.pop(0)
            self.log_state(outcome)
            self.gate.acknowledged(self._number, outcome.changes)
            self.acknowledging.append(place + 1)

    def produce_ahead(self) -> None:
        """All that flies comes into the log, but no report comes back: what a gateway killed now leaves behind."""
        for _place, outcome in self.flying:
            self.log_state(outcome)

    def log_state(self, outcome: Outcome) -> None:
        for record in outcome.records:
            if record.topic == GATEWAY_STATE:
                self.log[record.key.decode()] = record.value

    def puback(self, count: int) -> None:
        """PUBACKs arrive at the broker; those that do not are lost with the connection."""
        for _ in range(min(count, len(self.acknowledging))):
            self.pubacked = self.acknowledging.pop(0)

    def finish(self) -> None:
        while self.pubacked < len(self.messages):
            self.receive(WINDOW)
            self.produce(WINDOW)
            self.puback(WINDOW)


def play(sparkplug: Encode, text: str) -> Script:
    """`A`, `B`, `C`: a birth of the node by that meaning, `a`, `b` of its device; `.` and `,`: their data; `<`: a clock back."""
    script = Script(sparkplug)
    step = 1
    for number, letter in enumerate(text):
        if letter == "<":
            step = -10
            continue
        if letter in "ABC":
            script.born("n", "ABC".index(letter), step)
        elif letter in "abc":
            script.born("n/d", "abc".index(letter), step)
        else:
            script.data("n" if letter == "." else "n/d", number % 3, step)
        step = 1
    return script


@pytest.mark.parametrize("text", [".A..B..", "A.B.A.", "Aa,.bB,", "A.A.B"])
def test_any_prefix_in_the_log_and_any_prefix_acknowledged(sparkplug: Encode, text: str) -> None:
    """Every state that a gateway can die or be cut off in; then once more, after any number of messages."""
    script = play(sparkplug, text)
    wanted = undisturbed(script.messages)
    count = len(script.messages)
    states = [(p, a, r) for r in range(count + 1) for p in range(r + 1) for a in range(p + 1)]
    for produced, acknowledged, received in states:
        for (first, second), more in product((("kill", "drop"), ("drop", "kill")), (1, 4)):
            world = World(script.messages)
            world.receive(min(received, WINDOW))
            world.produce(produced)
            world.puback(acknowledged)
            world.receive(received - WINDOW)
            getattr(world, first)()
            world.receive(more)
            world.produce_ahead()
            getattr(world, second)()
            world.finish()
            assert {place for place, _got in world.deliveries} == set(range(count))
            for place, got in world.deliveries:
                assert got == wanted[place], (produced, acknowledged, received, first, second, more, place)


@pytest.mark.parametrize("text", ["A..<B..", "A.<B.<A.", "A.BABA."])
def test_what_cannot_be_decided_is_refused(sparkplug: Encode, text: str) -> None:
    """A clock that ran back at a birth, or more births at once than are kept: refused, not read by another's birth."""
    script = play(sparkplug, text)
    wanted = undisturbed(script.messages)
    refused = 0
    for received, acknowledged in product(range(len(wanted) + 1), range(len(wanted))):
        world = World(script.messages)
        world.receive(received)
        world.produce(acknowledged)
        world.puback(acknowledged)
        world.receive(received)
        world.produce_ahead()
        world.kill()
        world.finish()
        for place, got in world.deliveries:
            assert got in (wanted[place], "alias_unknown"), (received, acknowledged, place)
            refused += got != wanted[place]
    assert refused, "else this tries nothing"


SENT = st.tuples(st.sampled_from("...,,ABCab"), st.integers(-20, 20))
STEPS = st.lists(
    st.tuples(st.sampled_from(["receive", "produce", "puback", "drop", "kill", "produce_ahead"]), st.integers(1, 4)),
    max_size=40,
)


def test_random_faults_never_make_a_wrong_name(sparkplug: Encode) -> None:
    @settings(max_examples=100)
    @given(st.lists(SENT, min_size=4, max_size=20), STEPS)
    def run(sent: list[tuple[str, int]], steps: list[tuple[str, int]]) -> None:
        text = "".join(("<" if jump < -15 and letter.isalpha() else "") + letter for letter, jump in sent)
        script = play(sparkplug, text)
        wanted = undisturbed(script.messages)
        world = World(script.messages)
        for step, count in steps:
            if step in ("drop", "kill", "produce_ahead"):
                getattr(world, step)()
            else:
                getattr(world, step)(count)
        world.finish()
        for place, got in world.deliveries:
            assert got in (wanted[place], "alias_unknown"), (text, place)

    run()


def test_a_gateway_that_begins_from_the_log_asks_once_and_is_certain_again_after_the_birth(sparkplug: Encode) -> None:
    script = Script(sparkplug)
    script.born("n", 0, 1)
    for _ in range(3):
        script.data("n", 0, 1)
    script.born("n", 0, 1)
    script.data("n", 0, 1)
    gate = MessageProcessor(ROUTES, LIMITS)
    log: dict[str, bytes] = {}
    found: list[tuple[list[str] | None, int]] = []
    for n, (topic, payload) in enumerate(script.messages):
        if n == 2:
            gate = MessageProcessor(ROUTES, LIMITS, state=DecoderState(log.items()))
        outcome = gate.decide(Message(n, 1, NOW_US, topic.encode(), payload))
        log |= {record.key.decode(): record.value for record in outcome.records if record.topic == GATEWAY_STATE}
        flags = next(decode_record(record.value).flags for record in outcome.records if record.topic == READINGS)
        found.append((flags, len(outcome.replies)))
    assert found == [(None, 0), (None, 0), (["birth_unconfirmed"], 1), (["birth_unconfirmed"], 0), (None, 0), (None, 0)]
