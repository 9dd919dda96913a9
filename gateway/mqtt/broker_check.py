"""Check of the MQTT broker before a gateway runs: it logs in as the gateway would, under another client id, and reads the limits.

The limits are those that MQTT 5 names in CONNACK; MQTT 3.1.1 names none. The check never uses the gateway's client id, which
would end a running gateway's connection, and never joins a shared subscription, whose messages it would take away. Its sessions
end with their connections.
"""

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.gateway_settings import MqttSettings
from gateway.mqtt.broker_probe import SYS_FILTERS, SysFigures
from gateway.mqtt.paho_client import authenticate
from gateway.safe_text import show_text
from gateway.topic_filters import is_shared, subscription_filter

__all__ = ["BrokerAnswer", "ask_broker"]

KEEPALIVE_SECONDS: Final = 30
SYS_SECONDS: Final = 1.0
"""Mosquitto's retained figures come at once; a broker without any sends none."""
_VERSION: Final = "$SYS/broker/version"
_NODE_VERSION: Final = "$SYS/brokers/+/version"
_NODE_TIME: Final = "$SYS/brokers/+/datetime"


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """Answer of a broker to a client with the gateway's user.

    Attributes:
        refused: why there is no connection, as a sentence; empty if the broker accepts it.
        receive_maximum: unacknowledged messages that the broker takes from one client; None if it does not say.
        max_packet_bytes: largest packet that the broker takes; None if it does not say.
        session_seconds: time that the broker keeps the session; None if it does not change what the gateway asks for.
        max_qos: highest QoS that the broker takes.
        takes_wildcards: whether filters may have wildcards.
        takes_shared: whether filters may be shared.
        denied: subscriptions that the broker rejects for this user.
        at_most_once: subscriptions that it grants at QoS 0 only.
        version: text of the broker about itself; empty if unknown.
        figures: its figures under `$SYS`, by the names of mosquitto's exporter; empty without any.
        clock: text of the broker's clock and the time of its arrival in epoch seconds; None if it does not publish one.
    """

    refused: str = ""
    receive_maximum: int | None = None
    max_packet_bytes: int | None = None
    session_seconds: int | None = None
    max_qos: int = 2
    takes_wildcards: bool = True
    takes_shared: bool = True
    denied: tuple[str, ...] = ()
    at_most_once: tuple[str, ...] = ()
    version: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    clock: tuple[str, float] | None = None


def ask_broker(settings: MqttSettings, *, timeout_seconds: float = 5.0) -> BrokerAnswer:
    """Connect, read the limits, try the gateway's subscriptions, and read `$SYS`; returns what came in time.

    Raises:
        ConfigError: a file of `[mqtt]` cannot be used.
    """
    try:
        with _Visit(settings, timeout_seconds) as first:
            # No subscription in this session: the broker may keep it for days if this process is killed.
            answer = first.open(session_seconds=settings.session_expiry_seconds)
        if answer.refused:
            return answer
        with _Visit(settings, timeout_seconds) as second:
            if (again := second.open(session_seconds=0)).refused:
                return again
            answer = second.try_subscriptions(answer)
        with _Visit(settings, timeout_seconds) as third:
            # Apart from the subscriptions, because some brokers disconnect readers of `$SYS`.
            return answer if third.open(session_seconds=0).refused else third.read_sys(answer)
    except (OSError, ValueError) as error:
        place = f"{settings.host}:{settings.port}"
        return BrokerAnswer(refused=f"no MQTT connection to {place}: {show_text(str(error) or type(error).__name__)}")


class _Visit:
    """One short connection, driven by its caller's thread."""

    def __init__(self, settings: MqttSettings, timeout_seconds: float) -> None:
        self._settings, self._timeout_seconds = settings, timeout_seconds
        self._is_5 = settings.protocol == "5"
        self._reason: ReasonCode | None = None
        self._limits: Properties | None = None
        self._granted: list[ReasonCode] | None = None
        self._figures = SysFigures()
        self._version = ""
        self._node_clock: tuple[str, float] | None = None
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"tidegate-doctor-{uuid.uuid4().hex[:12]}",
            clean_session=None if self._is_5 else True,
            protocol=MQTTProtocolVersion.MQTTv5 if self._is_5 else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
        )
        self._client.connect_timeout = timeout_seconds
        authenticate(self._client, settings)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def __enter__(self) -> "_Visit":
        return self

    def __exit__(self, *_: object) -> None:
        """Send DISCONNECT, with which the session ends, and close."""
        properties = None
        if self._is_5:
            properties = Properties(PacketTypes.DISCONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 0
        self._client.disconnect(properties=properties)
        self._turn(lambda: False, 0.2)
        sock = self._client.socket()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()

    def open(self, *, session_seconds: int) -> BrokerAnswer:
        """Connect and return the limits; raises OSError if the broker cannot be reached."""
        place = f"{self._settings.host}:{self._settings.port}"
        properties = None
        if self._is_5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = session_seconds
        self._client.connect(self._settings.host, self._settings.port, KEEPALIVE_SECONDS, properties=properties)
        if not self._turn(lambda: self._reason is not None, self._timeout_seconds) or self._reason is None:
            return BrokerAnswer(refused=f"the broker at {place} does not answer CONNECT")
        if self._reason.is_failure:
            user = self._settings.username or "(none)"
            return BrokerAnswer(refused=f"the broker at {place} refuses user {user} ({self._reason})")
        limits = self._limits
        return BrokerAnswer(
            receive_maximum=getattr(limits, "ReceiveMaximum", None),
            max_packet_bytes=getattr(limits, "MaximumPacketSize", None),
            session_seconds=getattr(limits, "SessionExpiryInterval", None),
            max_qos=getattr(limits, "MaximumQoS", 2),
            takes_wildcards=bool(getattr(limits, "WildcardSubscriptionAvailable", 1)),
            takes_shared=bool(getattr(limits, "SharedSubscriptionAvailable", 1)),
        )

    def try_subscriptions(self, answer: BrokerAnswer) -> BrokerAnswer:
        """Return the answer with the filters that the broker rejects or downgrades.

        Only by MQTT 5: in 3.1.1 a subscription also makes the broker send all retained messages.
        """
        filters = [text for text in map(subscription_filter, self._settings.subscriptions) if not is_shared(text)]
        if not self._is_5 or not filters:
            return answer
        self._client.subscribe([(text, SubscribeOptions(1, retainHandling=2)) for text in filters])
        if not self._turn(lambda: self._granted is not None, self._timeout_seconds) or self._granted is None:
            return answer
        granted = list(zip(filters, self._granted, strict=False))
        return replace(
            answer,
            denied=tuple(text for text, reason in granted if reason.is_failure),
            at_most_once=tuple(text for text, reason in granted if reason.value == 0),
        )

    def read_sys(self, answer: BrokerAnswer) -> BrokerAnswer:
        """Return the answer with what the broker publishes about itself."""
        self._client.subscribe([(text, 0) for text in (*SYS_FILTERS, _VERSION, _NODE_VERSION, _NODE_TIME)])
        self._turn(lambda: False, SYS_SECONDS)
        return replace(answer, version=self._version, figures=self._figures.values(), clock=self._node_clock)

    def _turn(self, done: Callable[[], bool], seconds: float) -> bool:
        """Let the client work until it is done; False if the time is over or the connection is lost."""
        until = time.monotonic() + seconds
        while not done():
            left = until - time.monotonic()
            if left <= 0 or self._client.loop(min(left, 0.1)) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return done()
        return True

    def _on_connect(self, _client: paho.Client, _data: object, _flags: object, reason: ReasonCode, limits: Any) -> None:
        self._reason, self._limits = reason, limits

    def _on_subscribe(
        self, _client: paho.Client, _data: object, _mid: int, reasons: list[ReasonCode], _more: Any
    ) -> None:
        self._granted = reasons

    def _on_message(self, _client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        try:
            topic, text = message.topic, bytes(message.payload).decode()
        except UnicodeDecodeError:
            return
        if not topic.startswith("$SYS/"):
            return
        if topic.endswith("/version"):
            self._version = show_text(text)[:80]
        elif topic.endswith("/datetime"):
            self._node_clock = (text[:80], time.time())
        else:
            self._figures.take(topic, bytes(message.payload))
