"""An MQTT session that a test drives by hand against the scripted broker.

`from tests.support.session import SessionRig`.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.gateway_settings import MqttSettings
from gateway.mqtt.session import MqttSession
from gateway.mqtt.session_events import Incoming, Received, SessionEvents


def received(message: Incoming) -> Received:
    """A plain message with the fields that it leaves out."""
    if isinstance(message, Received):
        return message
    return Received(message[0], message[1], int.from_bytes(message[2], "big"), 1)


def mids(*numbers: int) -> list[bytes]:
    return [number.to_bytes(2, "big") for number in numbers]


class Heard(SessionEvents):
    """Remembers what the session told, and may fail where a test wants it to."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.begins: list[int] = []
        """For each epoch: the messages before it."""
        self.lost_sessions: list[bool] = []
        self.messages: list[Received] = []
        self.losses: list[str] = []
        self.faults: list[str] = []
        self.fail_on: bytes | None = None

    def connected(self, epoch: int, *, session_lost: bool) -> None:
        self.epochs.append(epoch)
        self.begins.append(len(self.messages))
        self.lost_sessions.append(session_lost)

    def disconnected(self, why: str) -> None:
        self.losses.append(why)

    def received(self, messages: list[Incoming]) -> None:
        for message in messages:
            if message[1] == self.fail_on:
                self.fail_on = None
                raise RuntimeError("scripted")
            self.messages.append(received(message))

    def failed(self, stage: str) -> None:
        self.faults.append(stage)


class SessionRig:
    def __init__(self, broker: Any, *, window: int = 100, **settings: Any) -> None:
        self.heard = Heard()
        self.settings = MqttSettings.model_validate(
            {
                "port": broker.port,
                "protocol": broker.protocol,
                "subscriptions": ("#",),
                "reconnect_max_seconds": 0.05,
                "client_id": "gate",
                **settings,
            }
        )
        self.ahead = 0.0
        self.taken = 0
        """Messages that `take` of tests/support/brokers.py has acknowledged, or that belong to earlier connections."""
        self.session = MqttSession(
            self.settings, window=window, events=self.heard, clock=lambda: time.monotonic() + self.ahead
        )
        broker.pump = self.pump

    def pump(self) -> None:
        self.session.loop(0.005)

    def until(self, condition: Callable[[], Any], what: str = "the condition") -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come true"
            self.pump()


@pytest.fixture
def mqtt_rig(scripted_broker: Any) -> Iterator[SessionRig]:
    made = SessionRig(scripted_broker)
    yield made
    made.session.drop("end of test")
