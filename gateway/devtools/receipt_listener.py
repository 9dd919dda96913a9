"""Listener to the receipts of one device, for `tidegate device watch`."""

import json
import queue
from typing import Any, Final

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from gateway.gateway_settings import MqttSettings
from gateway.mqtt.paho_client import authenticate
from gateway.replies.receipts import receipt_topic
from gateway.safe_text import show_text
from ingest.contract.errors import UnavailableError

__all__ = ["ReceiptListener"]

_WAITING: Final = 10_000
"""Most receipts that wait to be read; further ones are dropped."""


class ReceiptListener:
    """MQTT connection subscribed to a device's receipts; it reconnects by itself after a loss."""

    def __init__(self, settings: MqttSettings, device: str, *, client_id: str) -> None:
        """Prepare the connection; `client_id` must be unique at the broker."""
        self.topic = receipt_topic(device)
        self._settings = settings
        self._received: queue.Queue[dict[str, Any]] = queue.Queue(_WAITING)
        self._ready: queue.Queue[str] = queue.Queue()
        protocol = mqtt.MQTTv5 if settings.protocol == "5" else mqtt.MQTTv311
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=protocol)
        self._client.reconnect_delay_set(1, 5)
        authenticate(self._client, settings)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def open(self, *, timeout_seconds: float = 10.0) -> None:
        """Connect and subscribe.

        Raises:
            UnavailableError: the broker does not answer, or refuses the login or the subscription.
        """
        self._client.connect_async(self._settings.host, self._settings.port, self._settings.keepalive_seconds)
        self._client.loop_start()
        try:
            refused = self._ready.get(timeout=timeout_seconds)
        except queue.Empty:
            refused = "no answer"
        if refused:
            self.close()
            message = (
                f"MQTT broker {self._settings.host}:{self._settings.port} does not accept a subscription to {self.topic} "
                f"({refused}). Check that it runs and that [mqtt] has the right user and password."
            )
            raise UnavailableError(message)

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
