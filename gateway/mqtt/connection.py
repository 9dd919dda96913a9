"""One connection of the MQTT session: its own paho client, driven pass by pass by its owner's loop.

An exception in a callback or a malformed packet would end paho's loop, or make it hand over the same packet forever. So
every call into paho is guarded. The first reason that ends the connection is kept, and the owner begins another one.
"""

import contextlib
import logging
import select
import socket
from collections.abc import Callable
from typing import Any, Final, cast

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from gateway.gateway_settings import MqttSettings
from gateway.mqtt.paho_client import (
    acknowledge,
    connect,
    is_buffered,
    link_error,
    new_client,
    ping,
    postpone_ping_timeout,
    read_bytes,
    send,
    send_disconnect,
)
from gateway.mqtt.publish_parser import BadPacket
from gateway.mqtt.session_events import Incoming, SessionEvents
from gateway.mqtt.tls import tls_fault
from gateway.safe_text import show_text

__all__ = ["ConnectionEvents", "MqttConnection"]

logger = logging.getLogger("tidegate.gateway")

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 0.05
_READS_PER_PASS: Final = 500
"""Most reads per pass of a client that takes one packet at a time."""


class ConnectionEvents:
    """Answers of the broker on a link. All of these run inside `MqttConnection.run_once`."""

    def connack(self, link: "MqttConnection", reason: ReasonCode, *, session_present: bool) -> None:
        """Handle CONNACK: the broker accepts the connection, or refuses it."""

    def suback(self, link: "MqttConnection", reasons: list[ReasonCode]) -> None:
        """Handle SUBACK: the broker grants subscriptions, or refuses them."""

    def disconnect(self, link: "MqttConnection", reason: ReasonCode, *, is_packet: bool) -> None:
        """Handle the end of the connection; `is_packet`: the broker announced it."""


class MqttConnection:
    """One connection, from the attempt to its end. Not thread-safe.

    Attributes:
        accepted: whether the broker accepted the connection; the handler of CONNACK sets it.
        lost_because: what ended it; None while it lasts.
        loss_explained: whether the reason is known, so that it is not a sign of a bad link.
        read_bytes: how much the last `run_once` received, as far as the client reports it.
    """

    def __init__(
        self, settings: MqttSettings, events: SessionEvents, answers: ConnectionEvents, clock: Callable[[], float]
    ) -> None:
        """Make a link that is not connected yet.

        Raises:
            ConfigError: a certificate or key of `[mqtt]` cannot be used.
        """
        self._settings, self._events, self._answers, self._clock = settings, events, answers, clock
        self.accepted = self.loss_explained = False
        self.lost_because: str | None = None
        self.read_bytes = 0
        self._reads = 0
        self._is_over = False
        receive, answered = self._guard(self._on_publish), self._guard(events.answered)
        self.client = new_client(settings, connect_seconds=CONNECT_SECONDS, receive=receive, answered=answered)
        self.client.on_connect = self._guard(self._on_connect)
        self.client.on_subscribe = self._guard(self._on_subscribe)
        self.client.on_disconnect = self._guard(self._on_disconnect)

    @property
    def live(self) -> bool:
        """Return whether it can still acknowledge."""
        return self.accepted and self.lost_because is None

    @property
    def tls_fault(self) -> str:
        """Return why the broker ended TLS after the handshake, for people; empty if it did not, or if that is not known."""
        error = link_error(self.client)
        return "" if error is None else tls_fault(error, presents_certificate=self._settings.cert_file is not None)

    def connect(self, *, window: int) -> None:
        """Send CONNECT; raises OSError if the broker cannot be reached."""
        connect(self.client, self._settings, window=window)

    def run_once(self, timeout_seconds: float, *, read: bool) -> None:
        """Run one pass, which at worst ends the link: read what came, write what waits, keep the connection alive."""
        self.read_bytes = 0
        client = self.client
        try:
            sock = cast("socket.socket | None", client.socket())
            if sock is None:
                self.lose("the broker closed the connection")
                return
            wait = 0.0 if read and is_buffered(client) else timeout_seconds
            writers = [sock] if client.want_write() else []
            readable, writable, _ = select.select([sock] if read else [], writers, [], wait)
            if readable or (read and wait == 0.0):
                self._read()
            if writable:
                client.loop_write()
            if not read:
                postpone_ping_timeout(client)
            client.loop_misc()
        except Exception as error:
            # A packet that paho cannot parse raises from loop_read and would do so forever: begin a new connection.
            self._fault("receive", error)

    def acknowledge(self, mids: list[bytes]) -> int:
        """PUBACK these in order; returns how many went out."""
        try:
            return acknowledge(self.client, mids)
        except Exception as error:
            self._fault("acknowledge", error)
            return 0

    def ping(self) -> int:
        """Request an answer behind everything that the broker sends now; returns the ping's number, 0 if none goes out."""
        try:
            return ping(self.client)
        except Exception as error:
            self._fault("ping", error)
            return 0

    def publish(self, topic: str, payload: bytes, correlation: bytes | None) -> bool:
        """Publish at QoS 0 if the connection takes it now; False if it is not sent. Never waits, never raises."""
        if self.client.want_write():
            return False
        try:
            return send(self.client, topic, payload, correlation)
        except Exception as error:
            logger.warning("MQTT session: cannot publish to %s: %s", show_text(topic), show_text(f"{error}"))
            return False

    def lose(self, why: str) -> None:
        """Note what ended it, unless a reason was noted before."""
        self.lost_because = self.lost_because or why

    def send_disconnect(self, timeout_seconds: float) -> None:
        """Send DISCONNECT after waiting data is written, if the broker accepted the connection."""
        if self.accepted:
            with contextlib.suppress(Exception):
                send_disconnect(self.client, timeout_seconds)

    def discard(self) -> None:
        """Close the socket; later callbacks of paho are ignored."""
        self._is_over, self.accepted = True, False
        sock = self.client.socket()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()

    def _read(self) -> None:
        """Read a chunk; with stock paho, read packets until none comes or other work is due (keepalive, reports)."""
        client, until = self.client, self._clock() + READ_SECONDS
        for _ in range(_READS_PER_PASS):
            before = self._reads
            if client.loop_read() != MQTTErrorCode.MQTT_ERR_SUCCESS:
                self.lose("the connection to the broker was lost")
            self.read_bytes = read_bytes(client)
            if self.read_bytes or self.lost_because is not None or self._clock() > until:
                return
            if self._reads == before and not is_buffered(client):
                return

    def _guard(self, callback: Callable[..., None]) -> Callable[..., None]:
        """Keep exceptions from paho: its loop would hand over the same packet again, forever."""

        def guarded(_client: paho.Client, *arguments: Any) -> None:
            if self._is_over:
                return
            try:
                callback(*arguments)
            except Exception as error:
                self._fault("receive", error)

        return guarded

    def _fault(self, stage: str, error: Exception) -> None:
        logger.error("MQTT session: %s failed: %s", stage, show_text(f"{type(error).__name__}: {error}"))
        self.lose(f"{stage} failed ({show_text(str(error))}); reconnecting")
        self.loss_explained = True
        self._events.failed(stage)

    def _on_publish(self, messages: list[Incoming]) -> None:
        self._reads += 1
        if self.lost_because is not None:
            # After a failure in the same chunk: taken now, these would precede the messages that the failure left out.
            return
        if not self.accepted:
            message = "the broker sent a message before CONNACK"
            raise BadPacket(message)
        self._events.received(messages)

    def _on_connect(self, _data: object, flags: paho.ConnectFlags, reason: ReasonCode, _properties: object) -> None:
        self._answers.connack(self, reason, session_present=flags.session_present)

    def _on_subscribe(self, _data: object, _mid: int, reasons: list[ReasonCode], _properties: object) -> None:
        self._answers.suback(self, reasons)

    def _on_disconnect(
        self, _data: object, flags: paho.DisconnectFlags, reason: ReasonCode, _properties: object
    ) -> None:
        self._answers.disconnect(self, reason, is_packet=flags.is_disconnect_packet_from_server)
