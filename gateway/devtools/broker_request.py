"""Request to a broker on one topic, answered on another: how mosquitto's plugins are controlled."""

import queue
import time
from collections.abc import Callable

import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode

from gateway.devtools.tool_client import ToolClient
from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import UnavailableError

__all__ = ["send_request"]


def send_request(
    settings: MqttSettings,
    topic: str,
    payload: bytes,
    *,
    answers_on: str,
    is_done: Callable[[bytes], bool],
    client_id: str,
    timeout_seconds: float = 10.0,
) -> None:
    """Publish a request, and hand over answers until one is the last.

    Args:
        settings: broker, user and certificates.
        topic: of the request.
        payload: of the request.
        answers_on: topic of the answers, which may include answers to other clients.
        is_done: takes an answer; returns whether it was the last one.
        client_id: unique at the broker.
        timeout_seconds: longest time for all of it.

    Raises:
        UnavailableError: the broker does not answer in time, or refuses the user; the text is only the reason.
    """
    events: queue.Queue[tuple[str, bytes]] = queue.Queue()
    client = ToolClient(settings, client_id)

    def on_connect(client: paho.Client, _data: object, _flags: object, reason: ReasonCode, _more: object) -> None:
        if reason.is_failure:
            events.put(("refused", str(reason).encode()))
        else:
            client.subscribe(answers_on, qos=1)

    def on_subscribe(_client: object, _data: object, _mid: int, reasons: list[ReasonCode], _more: object) -> None:
        events.put(("refused", str(reasons[0]).encode()) if reasons[0].is_failure else ("subscribed", b""))

    def on_message(_client: object, _data: object, message: paho.MQTTMessage) -> None:
        events.put(("answered", bytes(message.payload)))

    client.on_connect, client.on_subscribe, client.on_message = on_connect, on_subscribe, on_message
    client.begin()
    deadline = time.monotonic() + timeout_seconds
    try:
        while True:
            what, content = events.get(timeout=max(0.0, deadline - time.monotonic()))
            if what == "refused":
                raise UnavailableError(content.decode())
            if what == "subscribed":
                client.publish(topic, payload, qos=1)
            elif is_done(content):
                return
    except queue.Empty as error:
        raise UnavailableError(client.fault or "no answer") from error
    finally:
        client.disconnect()
        client.loop_stop()
