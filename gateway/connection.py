"""One paho client, made, connected and subscribed as the promises need it."""

import logging
from collections.abc import Callable
from typing import Final

import paho.mqtt.client as paho
from paho.mqtt import __version__ as paho_version
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.buffered import BufferedClient
from gateway.publish_packet import read_publish
from gateway.session_events import Received
from gateway.settings import MqttSettings
from gateway.topics import is_shared
from ingest.contract.errors import ConfigError

__all__ = ["connect", "is_buffered", "new_client", "send", "subscriptions", "use_tls"]

logger = logging.getLogger("tidegate.gateway")

Receive = Callable[[paho.Client, Received], None]
_KNOWN_PAHO: Final = "2.2."


class _Client(BufferedClient):
    """paho, but for PUBLISH: see publish_packet. Acknowledging stays the caller's, as with `manual_ack`."""

    receive: Receive

    def _handle_publish(self) -> MQTTErrorCode:
        packet = self._in_packet
        is_5 = self._protocol == MQTTProtocolVersion.MQTTv5
        self.receive(self, read_publish(packet["command"], packet["packet"], is_5=is_5))
        return MQTTErrorCode.MQTT_ERR_SUCCESS


def new_client(settings: MqttSettings, *, connect_seconds: float, receive: Receive) -> paho.Client:
    """A client with manual acknowledgement and a session that the broker keeps; `receive` gets each PUBLISH.

    Raises:
        ConfigError: `mqtt.ca_file` cannot be read.
    """
    is_5 = settings.protocol == "5"
    kind = _Client if paho_version.startswith(_KNOWN_PAHO) else paho.Client
    client = kind(
        CallbackAPIVersion.VERSION2,
        client_id=settings.client_id,
        clean_session=None if is_5 else False,
        protocol=MQTTProtocolVersion.MQTTv5 if is_5 else MQTTProtocolVersion.MQTTv311,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    if isinstance(client, _Client):
        client.receive = receive
    else:
        logger.warning(
            "paho-mqtt %s is not the version this gateway was proved with (%sx): paho's own parser reads the packets, "
            "and refuses some that MQTT allows; install the pinned version",
            paho_version,
            _KNOWN_PAHO,
        )
        client.on_message = lambda client, _data, message: receive(client, _from_paho(message))
    client.connect_timeout = connect_seconds
    if settings.username is not None:
        password = settings.password
        client.username_pw_set(settings.username, None if password is None else password.get_secret_value())
    use_tls(client, settings)
    return client


def is_buffered(client: paho.Client) -> bool:
    """Whether the client holds bytes that waiting for its socket would not show."""
    if isinstance(client, BufferedClient) and client.buffered:
        return True
    pending = getattr(client.socket(), "pending", None)
    return pending is not None and pending() > 0


def use_tls(client: paho.Client, settings: MqttSettings) -> None:
    """Have the connection encrypted where the settings say so.

    Raises:
        ConfigError: `mqtt.ca_file` is not there, or is no PEM file.
    """
    if not settings.tls:
        return
    try:
        client.tls_set(ca_certs=settings.ca_file)
    except (OSError, ValueError) as error:
        message = (
            f"mqtt.ca_file: {settings.ca_file} cannot be used ({error}): wanted a PEM file with the certificate of the "
            "authority that signed the broker's"
        )
        raise ConfigError(message) from error


def _from_paho(message: paho.MQTTMessage) -> Received:
    try:
        topic = message.topic.encode("utf-8")
    except UnicodeDecodeError as error:
        topic = bytes(error.object)
    names = dict(getattr(message.properties, "UserProperty", ()))
    flags = message.mid, message.qos, message.dup, message.retain
    return Received(
        topic, bytes(message.payload), *flags, names.get("message-id"), names.get("traceparent"),
        getattr(message.properties, "ResponseTopic", None), getattr(message.properties, "CorrelationData", None),
    )  # fmt: skip


def connect(client: paho.Client, settings: MqttSettings, *, window: int) -> None:
    """Open the connection and send CONNECT; raises OSError where the broker cannot be reached."""
    if settings.protocol != "5":
        client.connect(settings.host, settings.port, settings.keepalive_seconds)
        return
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    # Without an expiry the session would end with the connection.
    properties.SessionExpiryInterval = settings.session_expiry_seconds
    properties.ReceiveMaximum = window
    # No MaximumPacketSize: a broker drops what is larger unseen. Without it we see every packet, and refuse aloud.
    client.connect(settings.host, settings.port, settings.keepalive_seconds, clean_start=False, properties=properties)


def send(client: paho.Client, topic: str, payload: bytes, correlation: bytes | None) -> bool:
    """PUBLISH at QoS 0; True where it went out or waits in the client. Raises ValueError where the topic is none."""
    properties = None
    if correlation is not None and client.protocol == MQTTProtocolVersion.MQTTv5:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.CorrelationData = correlation
    return client.publish(topic, payload, 0, properties=properties).rc == MQTTErrorCode.MQTT_ERR_SUCCESS


def subscriptions(settings: MqttSettings, filters: tuple[str, ...]) -> list[tuple[str, int | SubscribeOptions]]:
    """Each filter at QoS 1, never 2: paho confirms a QoS 2 message before Kafka has it; brokers downgrade instead."""
    if settings.protocol != "5":
        return [(text, 1) for text in filters]
    # No Local: what this client publishes is no reading. Retain handling 1: retained messages come only with a
    # subscription that is new. Retain flag as set by the broker (not as published): retain=1 means a replay.
    # With No Local a shared subscription is a protocol error (MQTT-3.8.3-4).
    return [
        (text, SubscribeOptions(1, noLocal=not is_shared(text), retainAsPublished=False, retainHandling=1))
        for text in filters
    ]
