"""Publisher with little processor time: MQTT 3.1.1 over bare sockets, with all packets encoded before the clock starts.

It runs as its own process, so that its work does not count as the gateway's. It reads a plan as one line of JSON, prints
`ready`, waits for another line, publishes, and prints the result as JSON. Packets of a device stay on one connection, in order;
a connection has at most a window of unacknowledged packets.
"""

import json
import math
import select
import socket
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gateway.gateway_settings import MqttSettings

__all__ = [
    "LoadPlan",
    "LoadResult",
    "Payload",
    "broker_fields",
    "connect_packet",
    "native_payload",
    "publish_packet",
    "run_load",
    "timed_payload",
]

_TICK_SECONDS: Final = 0.001
_PUBACK_BYTES: Final = 4
GIVE_UP_SECONDS: Final = 60.0

Payload = Callable[[int, int], tuple[str, bytes]]
"""(device number, sequence number) to topic and payload."""
Encode = Callable[["LoadPlan", Payload], Sequence[Sequence[bytes]]]
"""The packets of each connection of a plan, in the order of their numbers."""


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """Load to publish: `messages` in all, at `rate` a second, or as fast as the windows allow if it is 0.

    With `begin_at` (epoch seconds) message number i is due at `begin_at + i / rate`, says so itself as its `ts`, and is
    never sent before: so what a slow publisher or broker delays counts as latency too.
    """

    host: str
    port: int
    username: str
    password: str
    messages: int
    rate: float = 0.0
    devices: int = 100
    connections: int = 4
    window: int = 500
    boot: int = 1
    first_seq: int = 1
    readings: int = 1
    """Readings per message, for a plan with `begin_at`."""
    name: str = "bench"
    begin_at: float = 0.0
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str = ""

    def due_at(self, number: int) -> float:
        """Return the time at which message `number` is due, in epoch seconds; for a plan with `begin_at`."""
        return self.begin_at + number / self.rate

    def names(self, number: int) -> tuple[int, int]:
        """Device number and sequence number of message `number`."""
        return number % self.devices, self.first_seq + number // self.devices

    def due_on(self, connection: int, due: int) -> int:
        """Return how many of the first `due` messages a connection has: not an equal share if it has more devices than others."""
        rounds, rest = divmod(due, self.devices)
        return rounds * self._devices_on(connection, self.devices) + self._devices_on(connection, rest)

    def _devices_on(self, connection: int, devices: int) -> int:
        return max(0, devices - connection + self.connections - 1) // self.connections


def broker_fields(mqtt: "MqttSettings") -> dict[str, Any]:
    """Return the fields of a plan that say how devices reach the broker of the settings."""
    login = mqtt.with_login("devices")
    return {
        "host": login.host, "port": login.port, "username": login.username or "",
        "password": "" if login.password is None else login.password.get_secret_value(),
        "tls": login.tls, "ca_file": login.ca_file, "cert_file": login.cert_file, "key_file": login.key_file,
        "key_password": "" if login.key_password is None else login.key_password.get_secret_value(),
    }  # fmt: skip


@dataclass(frozen=True)
class LoadResult:
    """Result of a load; `seconds` from the first packet to the last PUBACK, `cpu_seconds` of this process."""

    sent: int
    acknowledged: int
    seconds: float
    sending_seconds: float
    cpu_seconds: float


class _Link:
    """One connection with the packets that go over it."""

    def __init__(self, plan: LoadPlan, number: int, packets: Sequence[bytes]) -> None:
        self._packets, self._window = packets, plan.window
        self.sent = self._bytes_back = 0
        self.socket = socket.create_connection((plan.host, plan.port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if plan.tls:
            context = ssl.create_default_context(cafile=plan.ca_file)
            if plan.cert_file is not None:
                context.load_cert_chain(plan.cert_file, plan.key_file, password=lambda: plan.key_password)
            self.socket = context.wrap_socket(self.socket, server_hostname=plan.host)
        self.socket.sendall(connect_packet(f"{plan.name}-{number}", plan.username, plan.password))
        answer = self.socket.recv(4)
        if answer[:1] != b"\x20" or answer[3:] != b"\0":
            message = f"the broker refuses the publisher: {answer.hex()}"
            raise ConnectionError(message)

    @property
    def acknowledged(self) -> int:
        return self._bytes_back // _PUBACK_BYTES

    @property
    def done(self) -> bool:
        return self.acknowledged >= len(self._packets)

    def send(self, upto: int) -> None:
        """Send up to packet number `upto`, as far as the window goes."""
        upto = min(upto, len(self._packets), self.acknowledged + self._window)
        if upto > self.sent:
            self.socket.sendall(b"".join(self._packets[self.sent : upto]))
            self.sent = upto

    def receive(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            message = "the broker closed the publisher's connection"
            raise ConnectionError(message)
        self._bytes_back += len(data)
        if isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            self.receive()


def _encode(plan: LoadPlan, payload: Payload) -> list[list[bytes]]:
    packets: list[list[bytes]] = [[] for _ in range(plan.connections)]
    for number in range(plan.messages):
        device, seq = plan.names(number)
        own = packets[device % plan.connections]
        own.append(publish_packet(*payload(device, seq), mid=len(own) % 65535 + 1))
    return packets


def run_load(
    plan: LoadPlan,
    payload: Payload,
    *,
    wait: Callable[[], object] = lambda: None,
    encode: Encode = _encode,
    most_sent: Callable[[], float] = lambda: math.inf,
) -> LoadResult:
    """Encode everything, call `wait`, publish all of it, and wait for the last PUBACK.

    Never more than the first `most_sent()` messages are sent: so what comes after the broker may set the pace.

    Raises:
        ConnectionError: the broker refused or closed a connection.
    """
    links = [_Link(plan, number, packets) for number, packets in enumerate(encode(plan, payload))]
    wait()
    time.sleep(max(0.0, plan.begin_at - time.time()))
    began_cpu, began = time.process_time(), time.monotonic()
    sent_at = began
    sockets = {link.socket: link for link in links}
    deadline = began + plan.messages / (plan.rate or 500) + GIVE_UP_SECONDS
    while not all(link.done for link in links) and time.monotonic() < deadline:
        due = int((time.monotonic() - began) * plan.rate) + 1 if plan.rate else plan.messages
        due = int(min(due, most_sent()))
        for number, link in enumerate(links):
            link.send(plan.due_on(number, due))
        if sum(link.sent for link in links) < plan.messages:
            sent_at = time.monotonic()
        if plan.rate:
            time.sleep(_TICK_SECONDS)
        for ready in select.select(list(sockets), [], [], 0.0 if plan.rate else 0.05)[0]:
            sockets[ready].receive()
    ended = time.monotonic()
    for link in links:
        link.socket.sendall(b"\xe0\0")
        link.socket.close()
    acknowledged = sum(link.acknowledged for link in links)
    return LoadResult(
        sum(link.sent for link in links), acknowledged, ended - began, sent_at - began, time.process_time() - began_cpu
    )


def native_payload(boot: int, now_ms: int) -> Payload:
    """Native messages of about 110 bytes with two metrics; times are spread over the second before `now_ms`."""

    def make(device: int, seq: int) -> tuple[str, bytes]:
        ts = now_ms - 1000 + (device * 7 + seq) % 1000
        temperature, humidity = 20 + (device + seq) % 800 / 100, 40 + (device * 3 + seq) % 2000 / 100
        text = f'{{"ts":{ts},"boot":{boot},"seq":{seq},"values":{{"temperature":{temperature:.2f},"humidity":{humidity:.2f}}}}}'
        return f"tidegate/v1/bench-{device:04d}/readings", text.encode()

    return make


def timed_payload(plan: LoadPlan) -> Payload:
    """Native messages whose `ts` is when they are due; one metric, or as many as the plan's readings."""
    more = "".join(f',"metric_{place}":{place}.5' for place in range(2, plan.readings + 1))

    def make(device: int, seq: int) -> tuple[str, bytes]:
        number = (seq - plan.first_seq) * plan.devices + device
        ts, value = round(plan.due_at(number) * 1000), 20 + number % 800 / 100
        text = f'{{"ts":{ts},"boot":{plan.boot},"seq":{seq},"values":{{"temperature":{value:.2f}{more}}}}}'
        return f"tidegate/v1/{plan.name}-{device:04d}/readings", text.encode()

    return make


def connect_packet(client_id: str, username: str = "", password: str = "") -> bytes:
    """CONNECT of MQTT 3.1.1 with a clean session and no keepalive; without a user it names none."""
    flags, texts = (b"\xc2", (client_id, username, password)) if username else (b"\2", (client_id,))
    body = b"\0\4MQTT\4" + flags + b"\0\0" + b"".join(map(_text, texts))
    return b"\x10" + _length(len(body)) + body


def publish_packet(topic: str, payload: bytes, *, mid: int) -> bytes:
    """PUBLISH of MQTT 3.1.1 at QoS 1."""
    body = _text(topic) + mid.to_bytes(2, "big") + payload
    return b"\x32" + _length(len(body)) + body


def _text(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def _length(size: int) -> bytes:
    encoded = bytearray()
    while True:
        encoded.append(size & 127 | (128 if size > 127 else 0))
        size >>= 7
        if not size:
            return bytes(encoded)


def main() -> None:
    """One plan from the command line."""
    plan = LoadPlan(**json.loads(sys.stdin.readline()))

    def wait() -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()

    payload = timed_payload(plan) if plan.begin_at else native_payload(plan.boot, int(time.time() * 1000))
    result = run_load(plan, payload, wait=wait)
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


if __name__ == "__main__":
    main()
