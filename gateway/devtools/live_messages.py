"""Live messages from the broker, for people: a separate session at QoS 0, which takes no message from anyone."""

import queue
import time
from collections.abc import Iterator

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from gateway.gateway_settings import MqttSettings
from gateway.mqtt.paho_client import authenticate
from gateway.topic_filters import subscription_filter
from ingest.contract.errors import UnavailableError

__all__ = ["read_live_messages"]

_WAITING = 10_000


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
    protocol = mqtt.MQTTv5 if settings.protocol == "5" else mqtt.MQTTv311
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=protocol)
    authenticate(client, settings)

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
    client.connect_async(settings.host, settings.port, settings.keepalive_seconds)
    client.loop_start()
    try:
        _await_ready(ready, settings, topic)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                yield received.get(timeout=left)
            except queue.Empty:
                return
    finally:
        client.disconnect()
        client.loop_stop()


def _await_ready(ready: "queue.Queue[str]", settings: MqttSettings, topic: str) -> None:
    try:
        refused = ready.get(timeout=10.0)
    except queue.Empty:
        refused = "no answer"
    if refused:
        message = (
            f"MQTT broker {settings.host}:{settings.port} does not accept a subscription to {topic} ({refused}). Check that "
            "it runs and that [mqtt] has the right user and password."
        )
        raise UnavailableError(message)
