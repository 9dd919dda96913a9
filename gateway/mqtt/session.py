"""MQTT session: QoS 1 with manual acknowledgement, kept connected by its owner's loop.

paho's `ack` takes only a packet identifier and writes on whatever connection is open. So each connection is a link with
its own client and epoch, and acknowledgements name the epoch. The session itself lives at the broker and outlives all
connections.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from paho.mqtt.reasoncodes import ReasonCode

from gateway.gateway_settings import MqttSettings
from gateway.mqtt.backoff import ReconnectBackoff
from gateway.mqtt.connection import ConnectionEvents, MqttConnection
from gateway.mqtt.session_events import SessionEvents
from gateway.mqtt.session_text import (
    describe_qos_downgrade,
    describe_refused_connection,
    describe_repeated_losses,
    session_name,
    session_taken_over,
)
from gateway.mqtt.subscriptions import Subscriptions
from gateway.mqtt.tls import fault_text
from gateway.safe_text import show_text
from ingest.contract.errors import FatalError

__all__ = ["MqttSession"]

logger = logging.getLogger("tidegate.gateway")

TAKEN_OVER: Final = 0x8E
HANDSHAKE_SECONDS: Final = 15.0


class MqttSession(ConnectionEvents):
    """Connected session. Not thread-safe: everything but the attributes belongs to one thread.

    Attributes:
        epoch: of the current or last connection.
        connected: whether the subscriptions are granted.
        session_present: whether the broker had kept the session at the last connection.
        read_bytes: how much the last `loop` received, as far as the client reports it.
        detail: state, for people.
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
        self._link: MqttConnection | None = None
        self._had_session = False
        self._reconnect = ReconnectBackoff(settings.reconnect_max_seconds)
        self._handshake_until = 0.0
        self._fatal: FatalError | None = None
        self.epoch = 0
        self.connected = self.session_present = False
        self.read_bytes = 0
        self.detail = "not connected yet"
        # Made only for its errors: a wrong file fails at the start. Later it is a reason to try again.
        self._new_link()

    @property
    def address(self) -> str:
        """The broker, for people."""
        return f"{self._settings.host}:{self._settings.port}"

    @property
    def name(self) -> str:
        """Name of the session at the broker, as a key for remembered state."""
        return session_name(self._settings)

    @property
    def subscriptions(self) -> Subscriptions:
        """The session's filters."""
        return self._subscriptions

    def follow_epoch(self, epoch: int) -> None:
        """Number the next connection after this epoch of another process, whatever this machine's clock says."""
        self.epoch = max(self.epoch, epoch)

    @property
    def live(self) -> bool:
        """Return whether this connection can still acknowledge."""
        return self._link is not None and self._link.live

    @property
    def contended(self) -> bool:
        """Return whether connection after connection ends soon without a reason, as if two clients share the client id."""
        return self._reconnect.is_suspect(self._clock())

    @property
    def state(self) -> str:
        """State for people, with the suspicion for as long as there is one."""
        suspected = (
            describe_repeated_losses(self._reconnect.quick_losses, self._settings.client_id) if self.contended else ""
        )
        return self.detail + suspected

    @property
    def closed(self) -> bool:
        """Return whether there is neither a connection nor an attempt: only the next `loop` would begin one."""
        return self._link is None

    def loop(self, timeout_seconds: float, *, read: bool = True) -> None:
        """Run one pass: connect if it is time, read what came, write what waits, keep the connection alive.

        Args:
            timeout_seconds: longest wait for the broker.
            read: False leaves data in the socket: when no more can be held, and in the last moments of a stop. The
                keepalive continues.

        Raises:
            FatalError: the broker says that another client took this session over; reconnecting would be an endless fight.
        """
        self.read_bytes = 0
        if self._link is None:
            self._wait_or_connect(timeout_seconds)
        else:
            self._turn(self._link, timeout_seconds, read=read)
        if self._link is not None and self._link.lost_because is not None:
            self._lose(self._link.lost_because)
        if self._fatal is not None:
            raise self._fatal

    def acknowledge(self, epoch: int, mids: list[bytes]) -> int:
        """PUBACK these in order, if their epoch is still the current connection; returns how many went out."""
        link = self._link
        if epoch != self.epoch or link is None or not link.live:
            return 0
        return link.acknowledge(mids)

    def publish(self, topic: str, payload: bytes, correlation: bytes | None = None) -> bool:
        """Publish at QoS 0 if the connection takes it now; False if it is not sent. Never waits, never raises.

        Args:
            topic: to the device side.
            payload: as it goes out.
            correlation: Correlation Data of MQTT 5; left out if the session uses 3.1.1.
        """
        link = self._link
        if link is None or not self.connected or not link.live:
            return False
        return link.publish(topic, payload, correlation)

    def ping(self) -> int:
        """Request an answer behind everything that the broker sends now; returns the ping's number, 0 if none goes out."""
        link = self._link
        return 0 if link is None or not link.live else link.ping()

    def drop(self, why: str) -> None:
        """Close the connection without further acknowledgements. The session stays, and the broker will redeliver."""
        if self._link is not None:
            self._link.loss_explained = True
            self._lose(why)

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Send DISCONNECT after waiting data is written; the session stays at the broker."""
        if self._link is not None:
            self._link.send_disconnect(timeout_seconds)
        self._discard()
        self.connected = False
        self.detail = "stopped"

    def _wait_or_connect(self, timeout_seconds: float) -> None:
        wait = self._reconnect.wait_seconds(self._clock())
        if wait > 0:
            time.sleep(min(wait, timeout_seconds))
            return
        self._reconnect.attempt()
        try:
            self._link = self._new_link()
            self._handshake_until = self._clock() + HANDSHAKE_SECONDS
            self._link.connect(window=self._window)
        except Exception as error:
            why = fault_text(error, presents_certificate=self._settings.cert_file is not None)
            self._lose(f"cannot reach the MQTT broker at {self.address}: {show_text(why)}")

    def _new_link(self) -> MqttConnection:
        return MqttConnection(self._settings, self._events, self, self._clock)

    def _turn(self, link: MqttConnection, timeout_seconds: float, *, read: bool) -> None:
        link.run_once(timeout_seconds, read=read)
        self.read_bytes = link.read_bytes
        if not self.connected and self._clock() > self._handshake_until:
            link.lose(
                f"the broker at {self.address} did not answer CONNECT or SUBSCRIBE within {HANDSHAKE_SECONDS:g} s"
            )

    # Answers of the broker. The link calls these within `loop`.

    def connack(self, link: MqttConnection, reason: ReasonCode, *, session_present: bool) -> None:
        """Begin the epoch, and subscribe if the session does not hold the subscriptions."""
        if reason.is_failure:
            link.lose(describe_refused_connection(reason, self.address, self._settings))
            return
        session_lost = not session_present and (self._had_session or self._subscriptions.remembered)
        self._had_session = link.accepted = True
        self.session_present = session_present
        self._reconnect.accepted(self._clock())
        # Before the next packets: with a kept session the broker sends PUBLISH packets right behind CONNACK.
        self.epoch = max(self.epoch + 1, self._wall_ms())
        self._events.connected(self.epoch, session_lost=session_lost)
        if self._subscriptions.ask(link.client, present=session_present):
            self._established()

    def suback(self, link: MqttConnection, reasons: list[ReasonCode]) -> None:
        """Note that the subscriptions are granted, unless one is refused."""
        if refused := self._subscriptions.answered(reasons):
            names, user = ", ".join(refused), self._settings.username
            link.lose(f"the broker refuses the subscription to {names}: check its access rules for {user}")
            return
        if self._subscriptions.at_most_once:
            logger.error("the MQTT broker at %s %s", self.address, self._downgrade())
        self._established()

    def disconnect(self, link: MqttConnection, reason: ReasonCode, *, is_packet: bool) -> None:
        """Note that the connection is gone; for good if another client took the session over."""
        if is_packet:
            link.loss_explained = True
            if reason.value == TAKEN_OVER:
                self._fatal = session_taken_over(self._settings.client_id, self.address)
        if fault := link.tls_fault:
            link.loss_explained = True
            link.lose(f"the broker at {self.address} closed the connection: {fault}")
        link.lose(f"the broker at {self.address} closed the connection ({reason})")

    def _downgrade(self) -> str:
        return describe_qos_downgrade(self._subscriptions.at_most_once, self._settings.username)

    def _established(self) -> None:
        self.connected = True
        self._reconnect.established()
        self.detail = f"connected to {self.address}"
        if self._subscriptions.at_most_once:
            self.detail += f", which {self._downgrade()}"

    def _lose(self, why: str) -> None:
        """End this connection and plan the next one."""
        explained = self._link is not None and self._link.loss_explained
        if self.connected and self._reconnect.lost(self._clock(), explained=explained):
            why += describe_repeated_losses(self._reconnect.quick_losses, self._settings.client_id)
        self.connected = False
        self._discard()
        self.detail = f"{why}; next try in {self._reconnect.plan(self._clock()):.1f} s"
        logger.warning("MQTT session: %s", self.detail)
        self._events.disconnected(why)

    def _discard(self) -> None:
        if self._link is not None:
            self._link.discard()
        self._link = None
