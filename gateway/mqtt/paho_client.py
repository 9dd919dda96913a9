"""One paho client, made, connected and subscribed as the gateway's promises require."""

import contextlib
import logging
import os
import select
import socket
import time
from collections.abc import Callable
from typing import cast

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.gateway_settings import MqttSettings
from gateway.mqtt.chunked_client import ChunkedClient, unsupported_reason
from gateway.mqtt.session_events import Incoming, Received
from gateway.mqtt.tls import client_context
from gateway.topic_filters import is_shared

__all__ = [
    "acknowledge",
    "authenticate",
    "connect",
    "is_buffered",
    "link_error",
    "new_client",
    "ping",
    "postpone_ping_timeout",
    "read_bytes",
    "send",
    "send_disconnect",
    "set_user",
    "subscriptions",
]

logger = logging.getLogger("tidegate.gateway")

Receive = Callable[[paho.Client, list[Incoming]], None]
Answered = Callable[[paho.Client, int], None]


def new_client(settings: MqttSettings, *, connect_seconds: float, receive: Receive, answered: Answered) -> paho.Client:
    """Make a client with manual acknowledgement and a session that the broker keeps.

    `receive` gets the PUBLISH packets, `answered` the numbers of pings whose answer came behind them.

    Raises:
        ConfigError: a certificate or key of `[mqtt]` cannot be used.
    """
    is_5 = settings.protocol == "5"
    reason = unsupported_reason()
    kind = ChunkedClient if reason is None else paho.Client
    client = kind(
        CallbackAPIVersion.VERSION2,
        client_id=settings.client_id,
        clean_session=None if is_5 else False,
        protocol=MQTTProtocolVersion.MQTTv5 if is_5 else MQTTProtocolVersion.MQTTv311,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    if isinstance(client, ChunkedClient):
        client.receive, client.answered = receive, answered
    else:
        logger.warning(
            "%s: paho's own parser reads the packets. It costs ten times as much and rejects some packets that MQTT allows. "
            "Install the pinned version.",
            reason,
        )
        client.on_message = lambda client, _data, message: receive(client, [_from_paho(message)])
    client.connect_timeout = connect_seconds
    authenticate(client, settings)
    return client


def is_buffered(client: paho.Client) -> bool:
    """Return whether the client holds bytes that waiting for its socket would not show."""
    pending = getattr(client.socket(), "pending", None)
    return pending is not None and pending() > 0


def authenticate(client: paho.Client, settings: MqttSettings) -> None:
    """Give the client its user and password, and TLS with its certificate if the settings say so.

    Raises:
        ConfigError: a certificate or key of `[mqtt]` cannot be used.
    """
    set_user(client, settings)
    if settings.tls:
        client.tls_set_context(client_context(settings))


def set_user(client: paho.Client, settings: MqttSettings) -> None:
    """Give the client its user and the password that its file has now; before each connection, as it may have changed."""
    if settings.username is not None:
        password = settings.password
        client.username_pw_set(settings.username, None if password is None else password.get_secret_value())


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


def acknowledge(client: paho.Client, mids: list[bytes]) -> int:
    """PUBACK these packet identifiers in order; returns how many went out or wait in the client."""
    if not mids:
        return 0
    if isinstance(client, ChunkedClient):
        return len(mids) if client.acknowledge(mids) else 0
    sent = 0
    for mid in mids:
        if client.ack(int.from_bytes(mid, "big"), 1) != MQTTErrorCode.MQTT_ERR_SUCCESS:
            break
        sent += 1
    return sent


def link_error(client: paho.Client) -> OSError | None:
    """Return what made a read or a write fail, as far as this client knows."""
    return client.link_error if isinstance(client, ChunkedClient) else None


def read_bytes(client: paho.Client) -> int:
    """Return how much the last read brought, as far as this client knows; 0 if it does not."""
    return client.last_read_bytes if isinstance(client, ChunkedClient) else 0


def ping(client: paho.Client) -> int:
    """Request an answer behind everything that the broker sends now; returns the ping's number, 0 if this client cannot ping."""
    return client.ping() if isinstance(client, ChunkedClient) else 0


def postpone_ping_timeout(client: paho.Client) -> None:
    """Excuse a missing PINGRESP while nothing is read: it is not a sign of a dead link. Stock paho reconnects then."""
    if isinstance(client, ChunkedClient):
        client.postpone_ping_timeout()


def send_disconnect(client: paho.Client, timeout_seconds: float) -> None:
    """Write waiting data, then DISCONNECT, and wait for the broker to close; the session stays there."""
    deadline = time.monotonic() + timeout_seconds
    sock = cast("socket.socket", client.socket())
    # paho closes the socket right after DISCONNECT. With unread packets that is a reset, which discards the last
    # PUBACKs in the broker's buffer. A second handle keeps the connection until the broker has ended it.
    with socket.socket(fileno=os.dup(sock.fileno())) as second:
        while client.want_write() and time.monotonic() < deadline:
            select.select([], [sock], [], 0.1)
            client.loop_write()
        client.disconnect()
        second.shutdown(socket.SHUT_WR)
        second.settimeout(0.1)
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                if not second.recv(65536):
                    break


def connect(client: paho.Client, settings: MqttSettings, *, window: int) -> None:
    """Open the connection and send CONNECT; raises OSError if the broker cannot be reached."""
    if settings.protocol != "5":
        client.connect(settings.host, settings.port, settings.keepalive_seconds)
        return
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    # Without an expiry the session would end with the connection.
    properties.SessionExpiryInterval = settings.session_expiry_seconds
    properties.ReceiveMaximum = window
    # No MaximumPacketSize: a broker silently drops larger packets. Without it the gateway gets and rejects them.
    client.connect(settings.host, settings.port, settings.keepalive_seconds, clean_start=False, properties=properties)


def send(client: paho.Client, topic: str, payload: bytes, correlation: bytes | None) -> bool:
    """PUBLISH at QoS 0; True if it went out or waits in the client. Raises ValueError if the topic is invalid."""
    properties = None
    if correlation is not None and client.protocol == MQTTProtocolVersion.MQTTv5:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.CorrelationData = correlation
    return client.publish(topic, payload, 0, properties=properties).rc == MQTTErrorCode.MQTT_ERR_SUCCESS


def subscriptions(settings: MqttSettings, filters: tuple[str, ...]) -> list[tuple[str, int | SubscribeOptions]]:
    """Return each filter at QoS 1, never 2: paho confirms a QoS 2 message before Kafka has it; brokers downgrade instead."""
    if settings.protocol != "5":
        return [(text, 1) for text in filters]
    # No Local: this client's own messages are not readings. Retain handling 1: retained messages come only with a new
    # subscription. Retain flag as set by the broker (not as published): retain=1 means a replay.
    # With No Local a shared subscription is a protocol error (MQTT-3.8.3-4).
    return [
        (text, SubscribeOptions(1, noLocal=not is_shared(text), retainAsPublished=False, retainHandling=1))
        for text in filters
    ]
