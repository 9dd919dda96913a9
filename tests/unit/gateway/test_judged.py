"""A message has one outcome however often it is delivered: steps, stuck values and rates over lost connections and PUBACKs."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import Message, MessageProcessor
from gateway.profiles.check_memory import JudgementCache
from gateway.profiles.policy import ProfilePolicy
from gateway.profiles.profile_folder import ProfileFolder
from gateway.rate import DeviceRate
from gateway.routes import compile_routes
from ingest.contract.reasons import Reason

T0 = 1_790_000_000_000_000
WINDOW = 4
PROFILE = """
name = "pump"
version = 1
devices = ["pump-*"]
[metrics.t]
max_step = 5
stuck_count = 3
"""
Verdict = tuple[bool, Reason | None]


class Broker:
    """Sends a queue in order, at most a window without PUBACK; after a loss what it has no PUBACK for, with DUP."""

    def __init__(self, folder: Path, messages: list[tuple[str, float, bool]], *, burst: float = 1e9) -> None:
        self.messages = messages
        self.policy = ProfilePolicy(
            ProfileFolder(folder), None, DeviceRate(1e-9, burst, catch_up_seconds=0), window_messages=WINDOW
        )
        self.gate = MessageProcessor(compile_routes(()), GatewaySettings(window_messages=WINDOW), policy=self.policy)
        self.number = self.sent = self.ever_sent = self.known = self.written = 0
        self.verdicts: list[set[Verdict]] = [set() for _ in messages]
        self.numbers: list[int] = []

    def send(self) -> None:
        if self.sent == len(self.messages) or self.sent - self.known >= WINDOW:
            return
        device, value, has_time = self.messages[self.sent]
        item = {"values": {"t": value}} | ({"ts": T0 // 1000 + self.sent} if has_time else {})
        self.number += 1
        message = Message(
            self.number, 1, T0 + self.number, f"tidegate/v1/{device}/readings".encode(), json.dumps(item).encode(),
            dup=self.sent < self.ever_sent, mid=self.sent % 8 + 1,
        )  # fmt: skip
        outcome = self.gate.decide(message)
        self.verdicts[self.sent].add((outcome.accepted, outcome.rejected))
        self.numbers.append(self.number)
        self.sent += 1
        self.ever_sent = max(self.ever_sent, self.sent)

    def acknowledge(self) -> None:
        """The gateway writes the PUBACK of its oldest message that has none."""
        if self.written < self.sent:
            self.gate.acknowledged(self.numbers[self.written], [])
            self.written += 1

    def take_puback(self) -> None:
        self.known += self.known < self.written

    def lose(self) -> None:
        self.sent = self.written = self.known
        del self.numbers[self.known :]
        self.gate.roll_back()

    def run(self, steps: list[str]) -> list[set[Verdict]]:
        for step in steps:
            getattr(self, step)()
        while self.known < len(self.messages):
            self.send()
            self.acknowledge()
            self.take_puback()
        return self.verdicts


STEPS = st.sampled_from(["send"] * 4 + ["acknowledge"] * 3 + ["take_puback"] * 2 + ["lose"])
MESSAGES = st.lists(
    st.tuples(st.sampled_from(["pump-1", "pump-2"]), st.sampled_from([20.0, 20.0, 24.0, 50.0]), st.booleans()),
    min_size=1,
    max_size=16,
)


@settings(max_examples=400)
@given(MESSAGES, st.lists(STEPS, max_size=60), st.sampled_from([1e9, 3.0]))
def test_any_order_of_deliveries_and_losses_gives_the_outcomes_of_one_delivery(
    tmp_path_factory: pytest.TempPathFactory, messages: list[tuple[str, float, bool]], steps: list[str], burst: float
) -> None:
    folder = tmp_path_factory.getbasetemp() / "judged"
    folder.mkdir(exist_ok=True)
    (folder / "pump.toml").write_text(PROFILE)
    once = Broker(folder, messages, burst=burst).run([])
    assert Broker(folder, messages, burst=burst).run(steps) == once


def test_copies_of_accepted_messages_are_not_stuck(tmp_path: Path) -> None:
    (tmp_path / "pump.toml").write_text(PROFILE)
    broker = Broker(tmp_path, [("pump-1", 20.0, False)] * 2 + [("pump-1", 24.0, False)])
    broker.run(["send", "send", "acknowledge", "acknowledge", "lose"])
    assert broker.verdicts == [{(True, None)}] * 3


def test_what_may_come_again_is_forgotten_after_a_window_of_messages() -> None:
    kept = JudgementCache(window_messages=10, max_notes=5)

    def send(number: int) -> None:
        judged = kept.begin(Message(number, 1, T0, b"t", b"%d" % number, mid=number))
        judged.within["a"] = True
        kept.keep(number, judged)

    for number in range(1, 50):
        send(number)
        assert len(kept) <= 5, "never more than its room"
    kept = JudgementCache(window_messages=10)
    for number in range(1, 50):
        send(number)
        kept.acknowledged(number)
        assert len(kept) <= 12
    kept.roll_back()
    for number in range(50, 62):
        kept.begin(Message(number, 1, T0, b"t", b"", mid=number))
    assert len(kept) == 0
