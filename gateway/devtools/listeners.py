"""Listeners of the tools, on MQTT connections of their own: to live messages, and to the receipts of one device.

Both subscribe in a session that takes no message from the gateway.
"""

import json
import queue
import time
from collections.abc import Iterator
from typing import Any, Final

from paho.mqtt import client as mqtt
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from gateway.devtools.tool_client import ToolClient, advice
from gateway.gateway_settings import MqttSettings
from gateway.replies.receipts import receipt_topic
from gateway.safe_text import show_text
from gateway.topic_filters import subscription_filter
from ingest.contract.errors import UnavailableError

__all__ = ["ReceiptListener", "read_live_messages"]

_WAITING: Final = 10_000
"""Most messages or receipts that wait to be read; further ones are dropped."""


class ReceiptListener:
    """MQTT connection subscribed to a device's receipts; it reconnects by itself after a loss."""

    def __init__(self, settings: MqttSettings, device: str, *, client_id: str) -> None:
        """Prepare the connection; `client_id` must be unique at the broker."""
        self.topic = receipt_topic(device)
        self._settings = settings
        self._received: queue.Queue[dict[str, Any]] = queue.Queue(_WAITING)
        self._ready: queue.Queue[str] = queue.Queue()
        self._client = ToolClient(settings, client_id)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def open(self, *, timeout_seconds: float = 10.0) -> None:
        """Connect and subscribe.

        Raises:
            UnavailableError: the broker does not answer, or refuses the login or the subscription.
        """
        self._client.begin()
        try:
            _await_subscription(self._ready, self._client, self._settings, self.topic, timeout_seconds)
        except UnavailableError:
            self.close()
            raise

    def next(self, timeout_seconds: float) -> dict[str, Any] | None:
        """Return the next receipt, or None if none came within the time. Its texts are safe for a terminal."""
        try:
            return self._received.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()

    def _on_connect(
        self, client: mqtt.Client, userdata: object, flags: object, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.is_failure:
            self._ready.put(str(reason))
        else:
            client.subscribe(self.topic, qos=1)

    def _on_subscribe(
        self, client: mqtt.Client, userdata: object, mid: int, reasons: list[ReasonCode], properties: object
    ) -> None:
        self._ready.put(str(reasons[0]) if reasons and reasons[0].is_failure else "")

    def _on_message(self, client: mqtt.Client, userdata: object, message: mqtt.MQTTMessage) -> None:
        try:
            told = json.loads(message.payload)
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            told = {"reason": "no receipt", "got": f"{len(message.payload)} bytes that no Tidegate gateway wrote"}
        safe = {
            show_text(str(key)): show_text(value) if isinstance(value, str) else value for key, value in told.items()
        }
        if not self._received.full():
            self._received.put(safe)


def read_live_messages(
    settings: MqttSettings, topic: str, *, client_id: str, seconds: float
) -> Iterator[tuple[str, bytes, int]]:
    """Yield topic, payload and receive time (epoch µs) of each message that comes within the time.

    Args:
        settings: of the broker.
        topic: a topic or topic filter.
        client_id: unique at the broker.
        seconds: how long to listen after the broker has agreed.

    Raises:
        UnavailableError: the broker does not answer, or refuses the login or the subscription.
    """
    received: queue.Queue[tuple[str, bytes, int]] = queue.Queue(_WAITING)
    ready: queue.Queue[str] = queue.Queue()
    client = ToolClient(settings, client_id)

    def on_connect(
        client: mqtt.Client, userdata: object, flags: object, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.is_failure:
            ready.put(str(reason))
        else:
            client.subscribe(subscription_filter(topic), qos=0)

    def on_subscribe(
        client: mqtt.Client, userdata: object, mid: int, reasons: list[ReasonCode], properties: object
    ) -> None:
        ready.put(str(reasons[0]) if reasons and reasons[0].is_failure else "")

    def on_message(client: mqtt.Client, userdata: object, message: mqtt.MQTTMessage) -> None:
        if not received.full():
            received.put((message.topic, bytes(message.payload), time.time_ns() // 1000))

    client.on_connect, client.on_subscribe, client.on_message = on_connect, on_subscribe, on_message
    client.begin()
    try:
        _await_subscription(ready, client, settings, topic, 10.0)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                yield received.get(timeout=left)
            except queue.Empty:
                return
    finally:
        client.disconnect()
        client.loop_stop()


def _await_subscription(
    ready: "queue.Queue[str]", client: ToolClient, settings: MqttSettings, topic: str, timeout_seconds: float
) -> None:
    try:
        refused = ready.get(timeout=timeout_seconds)
    except queue.Empty:
        refused = client.fault or "no answer"
    if refused:
        message = (
            f"MQTT broker {settings.host}:{settings.port} does not accept a subscription to {topic} ({refused}). "
            f"{advice(settings)}"
        )
        raise UnavailableError(message)
