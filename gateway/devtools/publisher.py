"""Publisher over MQTT at QoS 1 with a window, for simulated devices, the canary and the benchmarks.

The gateway itself never publishes through this module. The client is paho with a read buffer: one large receive replaces three
small ones per packet, because these system calls, which release the interpreter's lock, cost more than the packets.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from paho.mqtt import client as mqtt
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from gateway.devtools.tool_client import ToolClient, advice
from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import UnavailableError

__all__ = ["Publisher"]

_LOOK_SECONDS: Final = 0.2

CHUNK_BYTES: Final = 64 * 1024


class BufferedClient(ToolClient):
    """Client for an owner that drives `loop_read` itself. The owner reads on while `buffered`, because the socket looks empty."""

    _held = b""
    _at = 0

    @property
    def buffered(self) -> bool:
        """Return whether bytes were received that do not make a packet yet."""
        return self._at < len(self._held)

    def _sock_recv(self, bufsize: int) -> bytes:
        if self._at >= len(self._held):
            self._held, self._at = super()._sock_recv(CHUNK_BYTES), 0
        chunk = self._held[self._at : self._at + bufsize]
        self._at += len(chunk)
        return chunk

    def _sock_close(self) -> None:
        # Bytes of an old connection must not be read as the beginning of the next one.
        self._held, self._at = b"", 0
        super()._sock_close()


class DrainingClient(BufferedClient):
    """Client for paho's own loop thread, which looks only at the socket."""

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read one packet, then everything that is buffered."""
        answer = super().loop_read(max_packets)
        while answer == MQTTErrorCode.MQTT_ERR_SUCCESS and self.buffered:
            answer = super().loop_read(max_packets)
        return answer


class Publisher:
    """MQTT connection that publishes. After a lost connection, paho resends messages without PUBACK.

    Args:
        settings: broker, credentials, protocol.
        client_id: unique at the broker.
        window: messages published and not yet acknowledged, or fewer if a broker of MQTT 5 takes fewer; `publish` blocks
            while it is full.
        acknowledged: called with the tag of each message whose PUBACK came, from the network thread.
        stop: ends the wait for a full window, which would be endless without a broker.
    """

    def __init__(
        self,
        settings: MqttSettings,
        *,
        client_id: str,
        window: int = 200,
        acknowledged: Callable[[object], None] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._settings = settings
        self._acknowledged = acknowledged or (lambda tag: None)
        self._stop = stop or threading.Event()
        self._slots, self._window = threading.Semaphore(window), window
        self._excess = 0
        self._pending: dict[int, object] = {}
        self._early: dict[int, bool] = {}
        self._lock = threading.Lock()
        self._connected = threading.Event()
        self._refused = ""
        self.sent_count = 0
        self.acknowledged_count = 0
        self._client = self._make_client(client_id, window)

    def _make_client(self, client_id: str, window: int) -> DrainingClient:
        client = DrainingClient(self._settings, client_id)
        client.max_inflight_messages_set(window)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish
        client.suppress_exceptions = False
        return client

    def connect(self, *, timeout_seconds: float = 10.0) -> None:
        """Connect, and stay connected until `close`.

        Raises:
            UnavailableError: no connection within the time; the text says what the broker answered.
        """
        self._client.begin()
        if not self._connected.wait(timeout_seconds):
            self._client.loop_stop()
            answer = self._refused or self._client.fault or "no answer"
            msg = (
                f"MQTT broker {self._settings.host}:{self._settings.port} does not accept the connection ({answer}). "
                f"{advice(self._settings)}"
            )
            raise UnavailableError(msg)

    @property
    def waiting_count(self) -> int:
        """Messages published and not yet acknowledged."""
        return len(self._pending)

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        tag: object = None,
        qos: int = 1,
        message_id: str | None = None,
        traceparent: str | None = None,
    ) -> bool:
        """Publish one message; blocks while the window is full.

        `message_id` and `traceparent` (W3C) become user properties, if the protocol is MQTT 5.

        Returns False if `stop` was set while it waited: the message was not sent.
        """
        properties = None
        named = [(key, text) for key, text in (("message-id", message_id), ("traceparent", traceparent)) if text]
        if named and self._settings.protocol == "5":
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.UserProperty = named
        while not self._slots.acquire(timeout=_LOOK_SECONDS):
            if self._stop.is_set():
                return False
        info = self._client.publish(topic, payload, qos=qos, properties=properties)
        # Without a connection paho keeps a QoS 1 message for the next one; a QoS 0 message is lost.
        kept = info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS or (info.rc == MQTTErrorCode.MQTT_ERR_NO_CONN and qos > 0)
        if not kept:
            self._slots.release()
            msg = f"cannot publish to {topic}: {mqtt.error_string(info.rc)}"
            raise UnavailableError(msg)
        self.sent_count += 1
        self._register(info.mid, tag)
        return True

    def _register(self, mid: int, tag: object) -> None:
        # No lock is held over client.publish(): paho calls on_publish under the lock that publish() takes. So the
        # PUBACK may come before its tag is known here.
        with self._lock:
            if mid not in self._early:
                self._pending[mid] = tag
                return
            failed = self._early.pop(mid)
        self._settle(tag, failed)

    def _settle(self, tag: object, failed: bool) -> None:
        with self._lock:
            frees = not self._excess
            self._excess -= not frees
        if frees:
            self._slots.release()
        if not failed:
            self.acknowledged_count += 1
            self._acknowledged(tag)

    def drain(self, *, timeout_seconds: float = 30.0) -> bool:
        """Wait until every message has its PUBACK; False if some have none within the time."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            with self._lock:
                if not self._pending:
                    return True
            time.sleep(0.01)
        return False

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()

    def _on_connect(
        self, client: mqtt.Client, userdata: object, flags: object, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.is_failure:
            self._refused = str(reason)
            return
        self._narrow(getattr(properties, "ReceiveMaximum", None))
        self._connected.set()

    def _narrow(self, receive_maximum: int | None) -> None:
        """Make the window as small as the broker's Receive Maximum: it ends the connection of a client that exceeds it."""
        if receive_maximum is None or receive_maximum >= self._window:
            return
        with self._lock:
            for _ in range(self._window - receive_maximum):
                # A slot in use is given up when its PUBACK comes.
                self._excess += not self._slots.acquire(blocking=False)
            self._window = receive_maximum

    def _on_disconnect(
        self, client: mqtt.Client, userdata: object, flags: object, reason: ReasonCode, properties: Properties | None
    ) -> None:
        self._connected.clear()

    def _on_publish(
        self, client: mqtt.Client, userdata: object, mid: int, reason: ReasonCode, properties: Properties | None
    ) -> None:
        with self._lock:
            if mid not in self._pending:
                self._early[mid] = reason.is_failure
                return
            tag = self._pending.pop(mid)
        self._settle(tag, reason.is_failure)
