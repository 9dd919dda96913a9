"""The MQTT session: one paho client per connection, QoS 1 with manual acknowledgement, driven by its owner's loop.

paho's `ack` takes only a packet identifier and writes on whatever connection is open; a callback's exception and a
malformed packet end its loop. So each connection gets a client of its own and an epoch; acknowledgements name the
epoch, and every call into paho is guarded. The session itself lives at the broker and survives all of this.
"""

import contextlib
import logging
import select
import socket
import time
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
    read_bytes,
    say_goodbye,
    send,
)
from gateway.publish_packet import BadPacket
from gateway.reconnect import Reconnect
from gateway.session_events import Incoming, SessionEvents
from gateway.session_words import downgrade, refusal, suspicion, taken_over
from gateway.settings import MqttSettings
from gateway.show import show
from gateway.subscribe import Subscriptions
from ingest.contract.errors import FatalError

__all__ = ["MqttSession"]

logger = logging.getLogger("tidegate.gateway")

TAKEN_OVER: Final = 0x8E
CONNECT_SECONDS: Final = 5.0
HANDSHAKE_SECONDS: Final = 15.0
READ_SECONDS: Final = 0.05
_READS_PER_PASS: Final = 500
"""Of a client that takes one packet at a time."""


class MqttSession:
    """Keeps the session connected. Not thread-safe: all but the attributes belongs to one thread.

    Attributes:
        epoch: of the current or last connection.
        connected: whether the subscriptions stand.
        read_bytes: how much the last `loop` received, as far as the client tells.
        detail: how it is, for people.
    """

    def __init__(
        self,
        settings: MqttSettings,
        *,
        window: int,
        events: SessionEvents,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._settings, self._window, self._events = settings, window, events
        self._clock, self._wall_ms = clock, wall_ms
        self._subscriptions = Subscriptions(settings)
        self._client: paho.Client | None = None
        self._had_session = False
        self._reconnect = Reconnect(settings.reconnect_max_seconds)
        self._handshake_until = 0.0
        self._reads = 0
        self._lost_because: str | None = None
        self._loss_explained = False
        self._live = False
        self._fatal: FatalError | None = None
        self.epoch = 0
        self.connected = False
        self.read_bytes = 0
        self.detail = "not connected yet"
        # Made for its faults: a wrong file is a sentence at the start. Later it is a reason to try again.
        self._new_client()

    @property
    def address(self) -> str:
        """The broker, for people."""
        return f"{self._settings.host}:{self._settings.port}"

    @property
    def live(self) -> bool:
        """Whether this connection can still acknowledge."""
        return self._live and self._lost_because is None

    @property
    def closed(self) -> bool:
        """Whether there is no connection, nor an attempt at one: only the next `loop` would begin it."""
        return self._client is None

    def loop(self, timeout_seconds: float, *, read: bool = True) -> None:
        """One pass: connect if it is time, read what came, write what waits, keep the connection alive.

        Args:
            timeout_seconds: longest wait for the broker.
            read: False leaves what comes in the socket: where no more can be held, and in the last moments of a stop.
                The keepalive goes on.

        Raises:
            FatalError: the broker says that another client took this session over; going on would be an endless fight.
        """
        self.read_bytes = 0
        if self._client is None:
            self._wait_or_connect(timeout_seconds)
        else:
            self._pass(self._client, timeout_seconds, read=read)
        if self._lost_because is not None:
            self._lose(self._lost_because)
        if self._fatal is not None:
            raise self._fatal

    def acknowledge(self, epoch: int, mids: list[bytes]) -> int:
        """PUBACK these in order, if their epoch is still the current connection; returns how many went out."""
        client = self._client
        if epoch != self.epoch or client is None or not self.live:
            return 0
        try:
            return acknowledge(client, mids)
        except Exception as error:
            self._fault("acknowledge", error)
            return 0

    def publish(self, topic: str, payload: bytes, correlation: bytes | None = None) -> bool:
        """Publish at QoS 0 if the connection takes it now; False where it is not sent. Never waits, never raises.

        Args:
            topic: to the device side.
            payload: as it goes out.
            correlation: Correlation Data of MQTT 5; left out where the session speaks 3.1.1.
        """
        client = self._client
        if client is None or not self.connected or not self.live or client.want_write():
            return False
        try:
            return send(client, topic, payload, correlation)
        except Exception as error:
            logger.warning("MQTT session: cannot publish to %s: %s", show(topic), show(f"{error}"))
            return False

    def drop(self, why: str) -> None:
        """Close the connection without acknowledging anything more; the session stays, the broker will redeliver."""
        if self._client is not None:
            self._loss_explained = True
            self._lose(why)

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Say DISCONNECT (the session stays at the broker) after what waits to be written is out."""
        if self._client is not None and self._live:
            with contextlib.suppress(Exception):
                say_goodbye(self._client, timeout_seconds)
        self._lost_because = None
        self._discard()
        self.connected = False
        self.detail = "stopped"

    def _wait_or_connect(self, timeout_seconds: float) -> None:
        wait = self._reconnect.wait_seconds(self._clock())
        if wait > 0:
            time.sleep(min(wait, timeout_seconds))
            return
        self._reconnect.attempt()
        self._lost_because = None
        try:
            self._client = self._new_client()
            self._handshake_until = self._clock() + HANDSHAKE_SECONDS
            connect(self._client, self._settings, window=self._window)
        except Exception as error:
            self._lost_because = (
                f"cannot reach the MQTT broker at {self.address}: {show(str(error) or type(error).__name__)}"
            )

    def _new_client(self) -> paho.Client:
        receive = self._guard("receive", self._on_publish)
        client = new_client(self._settings, connect_seconds=CONNECT_SECONDS, receive=receive)
        client.on_connect = self._guard("receive", self._on_connect)
        client.on_subscribe = self._guard("receive", self._on_subscribe)
        client.on_disconnect = self._guard("receive", self._on_disconnect)
        return client

    def _guard(self, stage: str, callback: Callable[..., None]) -> Callable[..., None]:
        """An exception must not reach paho: its loop would hand the same packet over again, for ever."""

        def guarded(client: paho.Client, *arguments: Any) -> None:
            if client is not self._client:
                return
            try:
                callback(client, *arguments)
            except Exception as error:
                self._fault(stage, error)

        return guarded

    def _fault(self, stage: str, error: Exception) -> None:
        logger.error("MQTT session: %s failed: %s", stage, show(f"{type(error).__name__}: {error}"))
        self._lost_because = self._lost_because or f"{stage} failed ({show(str(error))}); connecting anew"
        self._loss_explained = True
        self._events.failed(stage)

    def _pass(self, client: paho.Client, timeout_seconds: float, *, read: bool) -> None:
        try:
            sock = cast("socket.socket | None", client.socket())
            if sock is None:
                self._lost_because = self._lost_because or "the broker closed the connection"
                return
            wait = 0.0 if read and is_buffered(client) else timeout_seconds
            writers = [sock] if client.want_write() else []
            readable, writable, _ = select.select([sock] if read else [], writers, [], wait)
            if readable or (read and wait == 0.0):
                self._read(client)
            if writable:
                client.loop_write()
            if not read:
                excuse_ping(client)
            client.loop_misc()
        except Exception as error:
            # A packet that paho cannot parse raises out of loop_read and would do so for ever: begin a new connection.
            self._fault("receive", error)
        if self._lost_because is None and not self.connected and self._clock() > self._handshake_until:
            self._lost_because = (
                f"the broker at {self.address} did not answer CONNECT or SUBSCRIBE within {HANDSHAKE_SECONDS:g} s"
            )

    def _read(self, client: paho.Client) -> None:
        """Read a chunk; with stock paho, packets until none comes or others want their turn (keepalive, reports)."""
        until = self._clock() + READ_SECONDS
        for _ in range(_READS_PER_PASS):
            before = self._reads
            if client.loop_read() != MQTTErrorCode.MQTT_ERR_SUCCESS:
                self._lost_because = self._lost_because or "the connection to the broker broke"
            self.read_bytes = read_bytes(client)
            if self.read_bytes or self._lost_because is not None or self._clock() > until:
                return
            if self._reads == before and not is_buffered(client):
                return

    def _on_connect(
        self, client: paho.Client, _data: object, flags: paho.ConnectFlags, reason: ReasonCode, _properties: object
    ) -> None:
        if reason.is_failure:
            self._lost_because = refusal(reason, self.address, self._settings.username)
            return
        present = flags.session_present
        session_lost = not present and (self._had_session or self._subscriptions.remembered)
        self._had_session = True
        self._live = True
        self._reconnect.accepted(self._clock())
        # Before CONNACK's successors: with a kept session the broker sends PUBLISH packets right behind it.
        self.epoch = max(self.epoch + 1, self._wall_ms())
        self._events.connected(self.epoch, session_lost=session_lost)
        if self._subscriptions.ask(client, present=present):
            self._established()

    def _on_subscribe(
        self, _client: paho.Client, _data: object, _mid: int, reasons: list[ReasonCode], _properties: object
    ) -> None:
        refused = self._subscriptions.answered(reasons)
        if refused:
            names = ", ".join(refused)
            self._lost_because = (
                f"the broker refuses the subscription to {names}: check its access rules for {self._settings.username}"
            )
            return
        if self._subscriptions.at_most_once:
            logger.error("the MQTT broker at %s %s", self.address, self._downgrade())
        self._established()

    def _downgrade(self) -> str:
        return downgrade(self._subscriptions.at_most_once, self._settings.username)

    def _established(self) -> None:
        self.connected = True
        self._reconnect.established()
        self.detail = f"connected to {self.address}"
        if self._subscriptions.at_most_once:
            self.detail += f", which {self._downgrade()}"

    def _on_publish(self, _client: paho.Client, messages: list[Incoming]) -> None:
        self._reads += 1
        if self._lost_because is not None:
            # Behind a failure in the same chunk: taken now, it would come before what the failure left out.
            return
        if not self._live:
            message = "the broker sent a message before CONNACK"
            raise BadPacket(message)
        self._events.received(messages)

    def _on_disconnect(
        self, _client: paho.Client, _data: object, flags: paho.DisconnectFlags, reason: ReasonCode, _properties: object
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self._loss_explained = True
            if reason.value == TAKEN_OVER:
                self._fatal = taken_over(self._settings.client_id, self.address)
        self._lost_because = self._lost_because or f"the broker at {self.address} closed the connection ({reason})"

    def _lose(self, why: str) -> None:
        """End this connection and plan the next one."""
        if self.connected and self._reconnect.lost(self._clock(), explained=self._loss_explained):
            why += suspicion(self._reconnect.quick_losses, self._settings.client_id)
        self._lost_because, self._loss_explained, self.connected = None, False, False
        self._discard()
        self.detail = f"{why}; next try in {self._reconnect.plan(self._clock()):.1f} s"
        logger.warning("MQTT session: %s", self.detail)
        self._events.disconnected(why)

    def _discard(self) -> None:
        client, self._client, self._live = self._client, None, False
        sock = None if client is None else client.socket()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()
