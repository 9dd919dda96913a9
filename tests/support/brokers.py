"""Brokers of the gateway's broker suite: each is started once for all tests, and `BrokerCase` gives a test its own names there.

`make test` runs the suite on mosquitto and iotcore. `make conformance` fetches the others, runs it on all, and counts the cases
of each broker that passed.
"""

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pytest

from deploy.local.broker import EmbeddedBroker, find_mosquitto, make_broker
from deploy.local.environment import ProgressLine
from deploy.local.ports import choose_port
from gateway.devtools.tool_client import ToolClient
from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import TidegateError, UnavailableError
from tests.support import jvm_brokers
from tests.support.servers import BrokerServer
from tests.support.session import SessionRig

__all__ = ["BrokerCase", "acknowledge", "connect", "end", "native", "numbers", "settle", "take"]

Kind = Literal["mosquitto", "iotcore", "artemis", "hivemq"]
INFLIGHT: Final = 40
"""Unacknowledged messages to one client by MQTT 3.1.1, where a broker can be told; less than the gateway's window."""
USER, PASSWORD = "tester", "a secret: with spaces"
FETCHED: Final = ("artemis", "hivemq")
_CASE: Final = re.compile(rf"test_gateway_brokers\.py::.*\[({'|'.join(get_args(Kind))})-(3\.1\.1|5)\]$")
_OUTCOMES: Final = ("passed", "failed", "error", "skipped")
DEVICE_WINDOW: Final = 10
"""HiveMQ's Receive Maximum, which paho does not heed by itself."""


@dataclass(frozen=True)
class Traits:
    """What a broker does where brokers differ. DEVICES.md says the same to people."""

    inflight: int = INFLIGHT
    """Unacknowledged messages to one client by MQTT 3.1.1."""
    inflight_5: int = 65535
    """The same by MQTT 5, where the client's Receive Maximum is larger."""
    keeps_inflight: bool = True
    """Whether it keeps to these limits after a PUBACK, while it has a queue."""
    durable: bool = True
    """Whether a broker that is killed keeps what it acknowledged."""
    marks_copies: bool = True
    """Whether a message that comes again has DUP."""
    says_refused: bool = True
    """Whether it says why it refuses a user."""
    says_taken_over: bool = True
    """Whether it says to a client of MQTT 5 that another one took its session over."""
    heeds_client: bool = True
    """Whether `inflight_5` gives way to a smaller Receive Maximum of the client."""
    refills: bool = True
    """Whether it sends another message for each PUBACK, and not only after the PUBACKs of all that it has sent."""
    keeps_order: bool = True
    """Whether the messages of one device come in the order in which it published them."""
    shares_safely: bool = True
    """Whether the others, or the same one later, get what a member of a shared subscription leaves unacknowledged."""


TRAITS: Final[dict[Kind, Traits]] = {
    "mosquitto": Traits(keeps_inflight=False, says_taken_over=False),
    "iotcore": Traits(
        inflight=100,
        inflight_5=100,
        heeds_client=False,
        durable=False,
        marks_copies=False,
        says_refused=False,
        says_taken_over=False,
        shares_safely=False,
    ),
    "artemis": Traits(marks_copies=False, keeps_order=False),
    "hivemq": Traits(inflight=50, inflight_5=50, refills=False),
}


def _part(kind: Kind, folder: Path) -> EmbeddedBroker:
    port, port_v5 = choose_port(0)[0], choose_port(0)[0]
    users = {USER: PASSWORD}
    if kind == "artemis":
        return jvm_brokers.Artemis(folder, port, users=users, window=INFLIGHT)
    if kind == "hivemq":
        return jvm_brokers.HiveMq(folder, port, users=users, window=INFLIGHT)
    return make_broker(kind, folder, port, port_v5=port_v5, users=users, window=INFLIGHT)


class RunningBrokers:
    """Brokers of this session, each started when a test first asks for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[Kind, BrokerServer] = {}

    def get(self, kind: Kind) -> BrokerServer:
        """The running broker; skips the test where this machine does not have it."""
        if kind == "mosquitto" and find_mosquitto() is None:
            pytest.skip("mosquitto is not on this machine")
        if kind in FETCHED and (missing := jvm_brokers.missing(kind)):
            pytest.skip(f"{missing}: see make conformance")
        if kind not in self._servers:
            folder = self._folder / kind
            folder.mkdir(exist_ok=True)
            self._servers[kind] = BrokerServer(_part(kind, folder), folder / "stdout.log", USER, PASSWORD)
        elif not self._servers[kind].alive:
            self._servers[kind].start()
        return self._servers[kind]

    def close(self) -> None:
        for server in self._servers.values():
            server.kill()


class BrokerCase:
    """One broker by one MQTT version, as a test meets it: gateways' sessions and a device, under names of this test."""

    def __init__(self, kind: Kind, server: BrokerServer, protocol: str, name: str) -> None:
        self.kind, self.server, self.protocol, self.name = kind, server, protocol, name
        self.traits = TRAITS[kind]
        self.port = server.port_v5 if protocol == "5" else server.port
        self.pump: Callable[[], None] = lambda: None
        self._gates: list[SessionRig] = []
        self._device: ToolClient | None = None

    @property
    def login(self) -> dict[str, Any]:
        """Address and user, as in `[mqtt]`."""
        return {
            "host": self.server.host, "port": self.port, "protocol": self.protocol, "username": self.server.username,
            "password": self.server.password,
        }  # fmt: skip

    @property
    def settings(self) -> MqttSettings:
        return MqttSettings.model_validate(self.login)

    def inflight(self, window: int) -> int:
        """Messages that come unacknowledged to a session that takes so many."""
        if self.protocol != "5":
            return self.traits.inflight
        return min(window, self.traits.inflight_5) if self.traits.heeds_client else self.traits.inflight_5

    def session(self, suffix: str = "gate", *, window: int = 100, **more: Any) -> SessionRig:
        """A gateway's session that subscribes to all topics of this test; it is not connected yet."""
        wanted = {**self.login, "client_id": f"{self.name}-{suffix}", "subscriptions": (f"{self.name}/#",), **more}
        self._gates.append(SessionRig(self, window=window, **wanted))
        return self._gates[-1]

    def gate(self, suffix: str = "gate", **more: Any) -> SessionRig:
        """The same, connected."""
        gate = self.session(suffix, **more)
        connect(gate)
        return gate

    def client(self, client_id: str) -> ToolClient:
        """A client that is connected; a device, or somebody with a gateway's id."""
        client = ToolClient(self.settings, client_id)
        client.max_inflight_messages_set(DEVICE_WINDOW)
        client.begin()
        deadline = time.monotonic() + 60
        while not client.is_connected():
            assert time.monotonic() < deadline, f"{client_id} is not let in: {client.fault}"
            time.sleep(0.005)
        return client

    def send(self, *payloads: Any, topic: str = "a", retain: bool = False) -> None:
        """Publish at QoS 1 as a device; back when the broker has acknowledged all."""
        self._device = self._device or self.client(f"{self.name}-device")
        infos = [
            self._device.publish(f"{self.name}/{topic}", payload, qos=1, retain=retain)
            for payload in ([str(one) if isinstance(one, int) else one for one in payloads])
        ]
        for info in infos:
            info.wait_for_publish(60)
            assert info.is_published()

    def queue(self, gate: SessionRig, *payloads: Any) -> None:
        """Publish these while the gateway is away, and let it come back."""
        gate.session.close()
        self.send(*payloads)
        connect(gate)

    def ordered(self, found: list[int]) -> list[int]:
        """As they came, where the broker keeps the order of a device; else sorted."""
        return found if self.traits.keeps_order else sorted(found)

    def restart(self) -> None:
        """Kill the broker and start it again; the device connects again when it is needed."""
        self._end_device()
        self.server.restart()

    def close(self) -> None:
        self._end_device()
        for gate in self._gates:
            gate.session.drop("end of test")

    def _end_device(self) -> None:
        if self._device is not None:
            end(self._device)
            self._device = None


def end(client: ToolClient) -> None:
    client.disconnect()
    client.loop_stop()


def connect(gate: SessionRig) -> None:
    """Connect, or connect again."""
    before = len(gate.heard.epochs)
    gate.until(lambda: gate.session.connected and len(gate.heard.epochs) > before, "the connection")


def numbers(gate: SessionRig, first: int = 0) -> list[int]:
    """Payloads of all messages from this one on."""
    return [int(message.payload) for message in gate.heard.messages[first:]]


def acknowledge(gate: SessionRig, first: int, upto: int | None = None) -> None:
    """PUBACK these messages of the current connection, by their place among all."""
    mids = [message.mid.to_bytes(2, "big") for message in gate.heard.messages[first:upto]]
    assert gate.session.acknowledge(gate.session.epoch, mids) == len(mids)


def take(gate: SessionRig, count: int) -> None:
    """Acknowledge the messages of this connection as they come, until so many have come in all."""
    while True:
        gate.taken = max(gate.taken, gate.heard.begins[-1])
        if len(gate.heard.messages) > gate.taken:
            acknowledge(gate, gate.taken)
            gate.taken = len(gate.heard.messages)
        if gate.taken >= count:
            break
        gate.until(lambda: len(gate.heard.messages) > gate.taken, f"message {gate.taken + 1} of {count}")
    gate.pump()


def settle(gate: SessionRig, seconds: float = 0.3) -> int:
    """Let come what comes; the number of messages then."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        gate.pump()
    return len(gate.heard.messages)


def native(seq: int) -> bytes:
    """A message of the native format."""
    return json.dumps({"boot": 1, "seq": seq, "values": {"temp": seq / 10}}).encode()


@pytest.fixture(scope="session")
def running_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBrokers]:
    running = RunningBrokers(tmp_path_factory.mktemp("brokers"))
    yield running
    running.close()


@pytest.fixture(
    params=[
        pytest.param((kind, protocol), id=f"{kind}-{protocol}", marks=[pytest.mark.conformance] * (kind in FETCHED))
        for kind in get_args(Kind)
        for protocol in ("3.1.1", "5")
    ]
)
def broker_case(
    request: pytest.FixtureRequest, running_brokers: RunningBrokers, unique_name: str
) -> Iterator[BrokerCase]:
    """Each broker by each MQTT version; see `BrokerCase`."""
    kind, protocol = request.param
    made = BrokerCase(kind, running_brokers.get(kind), protocol, unique_name)
    yield made
    with suppress(OSError):
        made.close()


def case_lines(found: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a line for each broker with the outcomes of its cases.

    Args:
        found: names of tests by their outcome.

    Returns:
        No line if no case of a fetched broker is there: `make test` needs none.
    """
    cases = Counter[tuple[str, str, str]]()
    for outcome, names in found.items():
        cases.update((*case.groups(), outcome) for name in names if (case := _CASE.search(name)))
    brokers = [kind for kind in get_args(Kind) if any(kind == case[0] for case in cases)]
    if not set(brokers) & set(FETCHED):
        return []

    def counted(kind: str, protocol: str) -> str:
        counts = [f"{cases[kind, protocol, word]} {word}" for word in _OUTCOMES if cases[kind, protocol, word]]
        return f"MQTT {protocol}: {', '.join(counts) or 'no case'}"

    return [f"{kind:<10} {counted(kind, '3.1.1'):<24} {counted(kind, '5')}" for kind in brokers]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print `case_lines` of this run."""
    found = {outcome: [one.nodeid for one in terminalreporter.getreports(outcome)] for outcome in _OUTCOMES}
    if lines := case_lines(found):
        terminalreporter.section("cases of each broker")
        for line in lines:
            terminalreporter.write_line(line)


def main() -> int:
    """Have all brokers of `make conformance`; 69 with the next step where that is impossible."""
    shown = ProgressLine()
    try:
        if find_mosquitto() is None:
            message = "mosquitto is not on this machine. Install it, then run `make conformance` again."
            raise UnavailableError(message)
        for kind in FETCHED:
            jvm_brokers.fetch(kind, shown.show)
            if missing := jvm_brokers.missing(kind):
                message = f"{missing}. Install a JDK of 17 or newer, then run `make conformance` again."
                raise UnavailableError(message)
    except TidegateError as error:
        sys.stderr.write(f"\n{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
