"""One paho client, made, connected and subscribed as the promises need it."""

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.settings import MqttSettings

__all__ = ["connect", "new_client", "subscriptions"]


def new_client(settings: MqttSettings, *, connect_seconds: float) -> paho.Client:
    """A client with manual acknowledgement and a session that the broker keeps."""
    is_5 = settings.protocol == "5"
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id=settings.client_id,
        clean_session=None if is_5 else False,
        protocol=MQTTProtocolVersion.MQTTv5 if is_5 else MQTTProtocolVersion.MQTTv311,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    client.connect_timeout = connect_seconds
    if settings.username is not None:
        password = settings.password
        client.username_pw_set(settings.username, None if password is None else password.get_secret_value())
    if settings.tls:
        client.tls_set(ca_certs=settings.ca_file)
    return client


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


def subscriptions(settings: MqttSettings, filters: tuple[str, ...]) -> list[tuple[str, int | SubscribeOptions]]:
    """Each filter at QoS 1, never 2: paho confirms a QoS 2 message before Kafka has it; brokers downgrade instead."""
    if settings.protocol != "5":
        return [(text, 1) for text in filters]
    # No Local: what this client publishes is no reading. Retain handling 1: retained messages come only with a
    # subscription that is new. Retain flag as set by the broker (not as published): retain=1 means a replay.
    options = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=False, retainHandling=1)
    return [(text, options) for text in filters]
