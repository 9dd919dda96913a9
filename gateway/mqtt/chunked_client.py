"""paho that reads 64 KiB at once and hands over whole chunks of PUBLISH packets; the only module that uses its internals.

Stock paho makes four system calls and an object with locks for each packet, ten times the cost of the gateway's own
work. Here `publish_packet.split` cuts a chunk into packets; paho handles all other packets. The class uses private
members, so `unsupported_reason` checks at start that this paho has them as in the tested version; else stock paho is used.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, cast

import paho.mqtt.client as paho
from paho.mqtt import __version__ as paho_version
from paho.mqtt.enums import CallbackAPIVersion, MessageType, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.exception import MalformedPacket

from gateway.mqtt.publish_parser import BadPacket, split_packets
from gateway.mqtt.session_events import Incoming
from gateway.mqtt.tls import pending_alert

__all__ = ["ChunkedClient", "unsupported_reason"]

CHUNK_BYTES: Final = 64 * 1024
_KNOWN_PAHO: Final = "2.2."
_METHODS: Final = (
    "_sock_recv", "_sock_send", "_sock_close", "_packet_handle", "_packet_queue", "_loop_rc_handle", "_handle_publish",
    "_send_pingreq", "_handle_pingresp",
)  # fmt: skip
_FIELDS: Final = ("_sock", "_in_packet", "_last_bytes_received", "_ping_t", "_protocol")
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
Receive = Callable[["ChunkedClient", list[Incoming]], None]
Answered = Callable[["ChunkedClient", int], None]


def unsupported_reason(version: str | None = None) -> str | None:
    """Return why this paho cannot be used like this, as half a sentence; None if it can."""
    found = paho_version if version is None else version
    if not found.startswith(_KNOWN_PAHO):
        return f"paho-mqtt {found} is not the version that this gateway was tested with ({_KNOWN_PAHO}x)"
    probe = paho.Client(CallbackAPIVersion.VERSION2)
    missing = [name for name in (*_METHODS, *_FIELDS) if not hasattr(probe, name)]
    return f"paho-mqtt {found} lacks {', '.join(missing)}" if missing else None


class ChunkedClient(paho.Client):
    """Client for an owner that drives `loop_read` itself and sends its own acknowledgements (`acknowledge`).

    Attributes:
        receive: gets the PUBLISH packets of a chunk, in order.
        last_read_bytes: how much the last `loop_read` got: a full chunk means that more waits.
        answered: gets the number of a ping when the broker answers it, after the PUBLISH packets before the answer.
        link_error: what made a read or a write fail. TLS 1.3 reports a refused client certificate only there.
    """

    receive: Receive
    last_read_bytes = 0
    answered: Answered
    link_error: OSError | None = None
    _pings = _pings_answered = 0
    _parts: list[bytes]
    _held_bytes = 0
    _needed_bytes = 2

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._parts = []
        self.answered = lambda _client, _ping: None

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Receive once and handle every complete packet. Raises BadPacket if no packet can be found."""
        try:
            chunk = self._receive_chunk()
        except BlockingIOError:
            self.last_read_bytes = 0
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        except OSError as error:
            self.link_error = error
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        self.last_read_bytes = len(chunk)
        if not chunk:
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        self._last_bytes_received = time.monotonic()
        self._confirm()
        # A packet may have 256 MB: join its parts once, when all of them are here.
        self._parts.append(chunk)
        self._held_bytes += len(chunk)
        if self._held_bytes < self._needed_bytes:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        return self._take(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))

    def _receive_chunk(self) -> bytes:
        """Receive once; over TLS until a chunk is full or nothing waits: a receive returns one record, often of one packet."""
        chunk = self._sock_recv(CHUNK_BYTES)
        if not isinstance(self._sock, ssl.SSLSocket):
            return chunk
        records, size = [chunk], len(chunk)
        while records[-1] and size < CHUNK_BYTES:
            try:
                records.append(self._sock_recv(CHUNK_BYTES - size))
            except BlockingIOError:
                break
            except OSError as error:
                # The next read ends the connection; what came before the error counts.
                self.link_error = error
                break
            size += len(records[-1])
        return b"".join(records)

    def _confirm(self) -> None:
        """Send TCP's own ACK at once: a broker that sends by Nagle's rule (mosquitto's default) waits up to 40 ms for it."""
        sock = cast("socket.socket | None", self._sock)
        if _QUICKACK is not None and sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)

    def acknowledge(self, mids: list[bytes]) -> bool:
        """Send the PUBACKs of these packet identifiers, in order, in one piece; False if the connection is gone."""
        packets = b"\x40\x02" + b"\x40\x02".join(mids)
        return self._packet_queue(MessageType.PUBACK, packets, 0, 1) == MQTTErrorCode.MQTT_ERR_SUCCESS

    def postpone_ping_timeout(self) -> None:
        """Excuse a missing PINGRESP while nothing is read: it is not a sign of a dead link then."""
        self._ping_t = 0.0

    def ping(self) -> int:
        """Send a PINGREQ behind all waiting data; returns its number on this connection, 0 if it cannot go out."""
        return self._pings if self._send_pingreq() == MQTTErrorCode.MQTT_ERR_SUCCESS else 0

    def _send_pingreq(self) -> MQTTErrorCode:
        sent = super()._send_pingreq()
        self._pings += sent == MQTTErrorCode.MQTT_ERR_SUCCESS
        return sent

    def _handle_pingresp(self) -> MQTTErrorCode:
        self._pings_answered += 1
        self.answered(self, self._pings_answered)
        return super()._handle_pingresp()

    def _take(self, data: bytes) -> MQTTErrorCode:
        is_5 = self._protocol == MQTTProtocolVersion.MQTTv5
        at = 0
        while True:
            publishes: list[Incoming] = []
            at, needed, control = split_packets(data, at, publishes, is_5=is_5)
            if publishes:
                self.receive(self, publishes)
            if control is None:
                break
            answer = self._handle_control(*control)
            if answer > 0:
                return self._loop_rc_handle(answer)
            if self._sock is None:
                return MQTTErrorCode.MQTT_ERR_SUCCESS
        rest = data[at:]
        self._parts, self._held_bytes, self._needed_bytes = [rest] if rest else [], len(rest), needed
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_control(self, command: int, body: bytes) -> MQTTErrorCode:
        packet = self._in_packet
        packet["command"], packet["packet"] = command, bytearray(body)
        packet["remaining_length"], packet["pos"] = len(body), 0
        try:
            return self._packet_handle()
        except MalformedPacket:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        finally:
            packet["command"], packet["packet"], packet["remaining_length"] = 0, bytearray(), 0

    def _handle_publish(self) -> MQTTErrorCode:
        message = "a PUBLISH reached paho's own parser"
        raise BadPacket(message)

    def _sock_send(self, buf: bytes | bytearray) -> int:
        try:
            return super()._sock_send(buf)
        except BlockingIOError:
            raise
        except OSError as error:
            self.link_error = pending_alert(self._sock) or error
            raise

    def _sock_close(self) -> None:
        # Bytes of an old connection must not be read as the beginning of the next one.
        self._parts, self._held_bytes, self._needed_bytes = [], 0, 2
        super()._sock_close()
