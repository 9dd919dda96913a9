"""An MQTT broker that a test scripts byte by byte: to see what a real one never lets you see."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = (
    1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14,
)  # fmt: skip


QUIET_TURNS = 20


@dataclass(frozen=True)
class Packet:
    kind: int
    flags: int
    body: bytes

    @property
    def mid(self) -> int:
        return int(struct.unpack_from(">H", self.body)[0])


class Link:
    """One client's connection. While it waits it calls `pump`, so a test may drive the client in the same thread."""

    def __init__(self, sock: socket.socket, protocol: str, pump: Callable[[], None]) -> None:
        self._sock, self._protocol, self._pump = sock, protocol, pump
        self._buffer = b""
        self.closed = False
        sock.setblocking(False)

    def packet(self, kind: int | None = None, *, seconds: float = 60.0) -> Packet:
        """The next packet, of this kind (PINGREQ is answered on the way)."""
        deadline = time.monotonic() + seconds
        while True:
            found = self._take()
            if found is not None and found.kind == PINGREQ:
                self.send(bytes([PINGRESP << 4, 0]))
                continue
            if found is not None:
                assert kind in (None, found.kind), f"wanted packet {kind}, got {found}"
                return found
            assert not self.closed, f"the client closed while packet {kind} was awaited"
            assert time.monotonic() < deadline, f"no packet {kind} within {seconds:g} s"
            self._pump()
            self._fill()

    def quiet(self, seconds: float = 0.3) -> list[Packet]:
        """What comes within a while: for proving that something is not sent.

        The client gets its turns in it however busy the machine is.
        """
        deadline, turns = time.monotonic() + seconds, 0
        found = []
        while (time.monotonic() < deadline or turns < QUIET_TURNS) and not self.closed:
            turns += 1
            self._pump()
            self._fill()
            while (packet := self._take()) is not None:
                found.append(packet)
            time.sleep(0.005)
        return [packet for packet in found if packet.kind != PINGREQ]

    def answer_ping(self, seconds: float = 60.0) -> None:
        """Answer the client's PINGREQ once it has come; what came before it is passed over."""
        deadline = time.monotonic() + seconds
        while (found := self._take()) is None or found.kind != PINGREQ:
            assert not self.closed, "the client closed while its PINGREQ was awaited"
            assert time.monotonic() < deadline, f"no PINGREQ within {seconds:g} s"
            if found is None:
                self._pump()
                self._fill()
        self.send(bytes([PINGRESP << 4, 0]))

    def answer_pings(self) -> None:
        """Answer each PINGREQ that is there; waits for none, and passes over what came beside it."""
        self._fill()
        while (found := self._take()) is not None:
            if found.kind == PINGREQ:
                self.send(bytes([PINGRESP << 4, 0]))

    def wait_closed(self, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not self.closed:
            assert time.monotonic() < deadline, "the client kept the connection"
            self._pump()
            self._fill()

    def send(self, packet: bytes) -> None:
        self._sock.setblocking(True)
        self._sock.sendall(packet)
        self._sock.setblocking(False)

    def connack(self, *, session_present: bool = False, reason: int = 0) -> None:
        properties = b"\0" if self._protocol == "5" else b""
        self.send(frame(CONNACK << 4, bytes([session_present, reason]) + properties))

    def suback(self, mid: int, *reasons: int) -> None:
        properties = b"\0" if self._protocol == "5" else b""
        self.send(frame(SUBACK << 4, struct.pack(">H", mid) + properties + bytes(reasons or (1,))))

    def publish(
        self,
        topic: bytes,
        payload: bytes,
        mid: int | None,
        *,
        dup: bool = False,
        retain: bool = False,
        user_properties: tuple[tuple[str, str], ...] = (),
    ) -> None:
        head = PUBLISH << 4 | dup << 3 | (mid is not None) << 1 | retain
        body = text(topic) + (b"" if mid is None else struct.pack(">H", mid))
        if self._protocol == "5":
            properties = b"".join(
                b"\x26" + text(name.encode()) + text(value.encode()) for name, value in user_properties
            )
            body += length(len(properties)) + properties
        self.send(frame(head, body + payload))

    def close(self) -> None:
        self._sock.close()
        self.closed = True

    def handshake(self, *, session_present: bool = False) -> None:
        """CONNECT to SUBACK, as a broker does that has no session yet (or still has one)."""
        self.packet(CONNECT)
        self.connack(session_present=session_present)
        if not session_present:
            self.suback(self.packet(SUBSCRIBE).mid)

    def _fill(self) -> None:
        try:
            data = self._sock.recv(65536)
        except BlockingIOError:
            time.sleep(0.002)
            return
        except OSError:
            data = b""
        self.closed = self.closed or not data
        self._buffer += data

    def _take(self) -> Packet | None:
        size, used = 0, 1
        for place, byte in enumerate(self._buffer[1:5]):
            size += (byte & 127) << 7 * place
            used = place + 2
            if byte < 128:
                break
        else:
            return None
        if len(self._buffer) < used + size:
            return None
        packet = Packet(self._buffer[0] >> 4, self._buffer[0] & 15, self._buffer[used : used + size])
        self._buffer = self._buffer[used + size :]
        return packet


class ScriptedBroker:
    """Listens on a free port; `accept` gives the next connection."""

    def __init__(self, protocol: str = "5") -> None:
        self.protocol = protocol
        self.pump: Callable[[], None] = lambda: None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.links: list[Link] = []

    def accept(self, *, seconds: float = 60.0) -> Link:
        deadline = time.monotonic() + seconds
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                assert time.monotonic() < deadline, "the client did not connect"
                self.pump()
                time.sleep(0.002)
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.links.append(Link(sock, self.protocol, self.pump))
            return self.links[-1]

    def close(self) -> None:
        self._listener.close()
        for link in self.links:
            link.close()


def frame(head: int, body: bytes) -> bytes:
    return bytes([head]) + length(len(body)) + body


def length(size: int) -> bytes:
    encoded = bytearray()
    while True:
        size, low = divmod(size, 128)
        encoded.append(low | (128 if size else 0))
        if not size:
            return bytes(encoded)


def text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


@pytest.fixture(params=["3.1.1", "5"])
def scripted_broker(request: pytest.FixtureRequest) -> Iterator[ScriptedBroker]:
    """A broker under the test's control, once for each MQTT version."""
    broker = ScriptedBroker(request.param)
    yield broker
    broker.close()
