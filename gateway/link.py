"""One connection of the MQTT session: a paho client of its own, driven pass by pass by its owner's loop.

An exception in a callback and a malformed packet would end paho's loop, or have it hand the same packet over for ever. So
every call into paho is guarded; what ends the connection is noted, the first reason counts, and the owner begins another one.
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

from gateway.connection import (
    acknowledge,
    connect,
    excuse_ping,
    is_buffered,
    new_client,
    ping,
    read_bytes,
    say_goodbye,
    send,
)
from gateway.publish_packet import BadPacket
from gateway.session_events import Incoming, SessionEvents
from gateway.settings import MqttSettings
from gateway.show import show

__all__ = ["BrokerAnswers", "Link"]

logger = logging.getLogger("tidegate.gateway")

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 0.05
_READS_PER_PASS: Final = 500
"""Of a client that takes one packet at a time."""


class BrokerAnswers:
    """What the broker answers on a link; all of it runs inside `Link.turn`."""

    def connack(self, link: "Link", reason: ReasonCode, *, session_present: bool) -> None:
        """It lets us in, or does not."""

    def suback(self, link: "Link", reasons: list[ReasonCode]) -> None:
        """It grants subscriptions, or does not."""

    def disconnect(self, link: "Link", reason: ReasonCode, *, is_packet: bool) -> None:
        """The connection is gone; `is_packet` where the broker said so before."""


class Link:
    """From the attempt to the end of one connection. Not thread-safe.

    Attributes:
        accepted: whether the broker let us in; the answer to CONNACK sets it.
        lost_because: what ended it; None while nothing did.
        loss_explained: whether that is no sign of a bad link.
        read_bytes: how much the last `turn` received, as far as the client tells.
    """

    def __init__(
        self, settings: MqttSettings, events: SessionEvents, answers: BrokerAnswers, clock: Callable[[], float]
    ) -> None:
        """A link that is not connected yet.

        Raises:
            ConfigError: `mqtt.ca_file` cannot be read.
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
        """Whether it can still acknowledge."""
        return self.accepted and self.lost_because is None

    def connect(self, *, window: int) -> None:
        """Send CONNECT; raises OSError where the broker cannot be reached."""
        connect(self.client, self._settings, window=window)

    def turn(self, timeout_seconds: float, *, read: bool) -> None:
        """One pass, which ends the link at worst: read what came, write what waits, keep the connection alive."""
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
                excuse_ping(client)
            client.loop_misc()
        except Exception as error:
            # A packet that paho cannot parse raises out of loop_read and would do so for ever: begin a new connection.
            self._fault("receive", error)

    def acknowledge(self, mids: list[bytes]) -> int:
        """PUBACK these in order; returns how many went out."""
        try:
            return acknowledge(self.client, mids)
        except Exception as error:
            self._fault("acknowledge", error)
            return 0

    def ping(self) -> int:
        """Ask for an answer behind all that the broker sends now; the ping's number, 0 where none goes out."""
        try:
            return ping(self.client)
        except Exception as error:
            self._fault("ping", error)
            return 0

    def publish(self, topic: str, payload: bytes, correlation: bytes | None) -> bool:
        """Publish at QoS 0 if the connection takes it now; False where it is not sent. Never waits, never raises."""
        if self.client.want_write():
            return False
        try:
            return send(self.client, topic, payload, correlation)
        except Exception as error:
            logger.warning("MQTT session: cannot publish to %s: %s", show(topic), show(f"{error}"))
            return False

    def lose(self, why: str) -> None:
        """Note what ended it, unless something else did before."""
        self.lost_because = self.lost_because or why

    def say_goodbye(self, timeout_seconds: float) -> None:
        """Say DISCONNECT after what waits to be written is out, where the broker let us in."""
        if self.accepted:
            with contextlib.suppress(Exception):
                say_goodbye(self.client, timeout_seconds)

    def discard(self) -> None:
        """Close the socket; whatever paho still has to tell is heard by nobody."""
        self._is_over, self.accepted = True, False
        sock = self.client.socket()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()

    def _read(self) -> None:
        """Read a chunk; with stock paho, packets until none comes or others want their turn (keepalive, reports)."""
        client, until = self.client, self._clock() + READ_SECONDS
        for _ in range(_READS_PER_PASS):
            before = self._reads
            if client.loop_read() != MQTTErrorCode.MQTT_ERR_SUCCESS:
                self.lose("the connection to the broker broke")
            self.read_bytes = read_bytes(client)
            if self.read_bytes or self.lost_because is not None or self._clock() > until:
                return
            if self._reads == before and not is_buffered(client):
                return

    def _guard(self, callback: Callable[..., None]) -> Callable[..., None]:
        """An exception must not reach paho: its loop would hand the same packet over again, for ever."""

        def guarded(_client: paho.Client, *arguments: Any) -> None:
            if self._is_over:
                return
            try:
                callback(*arguments)
            except Exception as error:
                self._fault("receive", error)

        return guarded

    def _fault(self, stage: str, error: Exception) -> None:
        logger.error("MQTT session: %s failed: %s", stage, show(f"{type(error).__name__}: {error}"))
        self.lose(f"{stage} failed ({show(str(error))}); connecting anew")
        self.loss_explained = True
        self._events.failed(stage)

    def _on_publish(self, messages: list[Incoming]) -> None:
        self._reads += 1
        if self.lost_because is not None:
            # Behind a failure in the same chunk: taken now, it would come before what the failure left out.
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
