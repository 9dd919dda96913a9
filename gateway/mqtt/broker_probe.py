"""Probe of the MQTT broker from outside: its answer to a client, and its figures under `$SYS`.

The monitor has its own session. It publishes nothing, so the broker's counts are those of other clients. It sends MQTT's
ping, for which a client needs no rights.

The figures have the names of mosquitto's exporter. Mosquitto's topics are `$SYS/broker/…`, EMQX's are
`$SYS/brokers/<node>/…` for each node. Only figures with the same meaning are used: EMQX's `messages/dropped` also counts
messages without a subscriber, and its uptime is a text of many forms.
"""

import contextlib
import logging
import re
import time
from collections.abc import Callable
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from gateway.gateway_settings import MqttSettings
from gateway.mqtt.paho_client import authenticate
from gateway.mqtt.tls import fault_text
from gateway.safe_text import show_text

__all__ = ["SYS_FILTERS", "BrokerProbe", "SysFigures"]

logger = logging.getLogger("tidegate.gateway.broker")

Samples = dict[str, list[tuple[tuple[str, ...], float]]]
"""Name -> (label values, value) per series."""

LOOK_SECONDS: Final = 2.0
CONNECT_SECONDS: Final = 1.5
KEEPALIVE_SECONDS: Final = 60
LONGEST_PAUSE_SECONDS: Final = 5.0
SYS_REFUSALS: Final = 2
"""After this many connections in a row that ended at the subscription, the broker is taken to reject readers of `$SYS`."""
SYS_AGAIN_SECONDS: Final = 600.0

_MOSQUITTO: Final = {
    "clients/connected": "broker_clients_connected",
    "clients/disconnected": "broker_clients_disconnected",
    "messages/received": "broker_messages_received",
    "messages/sent": "broker_messages_sent",
    # The older name and the newer one of the same figure.
    "messages/stored": "broker_messages_stored",
    "store/messages/count": "broker_messages_stored",
    "store/messages/bytes": "broker_messages_stored_bytes",
    "publish/messages/received": "broker_publish_messages_received",
    "publish/messages/sent": "broker_publish_messages_sent",
    "publish/messages/dropped": "broker_publish_messages_dropped",
    "bytes/received": "broker_bytes_received",
    "bytes/sent": "broker_bytes_sent",
    "uptime": "broker_uptime",
}
_EMQX: Final = {
    "stats/connections/count": "broker_clients_connected",
    "metrics/packets/received": "broker_messages_received",
    "metrics/packets/sent": "broker_messages_sent",
    "metrics/packets/publish/received": "broker_publish_messages_received",
    "metrics/packets/publish/sent": "broker_publish_messages_sent",
    "metrics/delivery/dropped/queue_full": "broker_publish_messages_dropped",
    "metrics/bytes/received": "broker_bytes_received",
    "metrics/bytes/sent": "broker_bytes_sent",
}
SYS_FILTERS: Final = (
    *(f"$SYS/broker/{rest}" for rest in _MOSQUITTO),
    *(f"$SYS/brokers/+/{rest}" for rest in _EMQX),
)
"""Filters to subscribe to: all of `$SYS/#` would be ten times as much."""
MOST_NODES: Final = 64
_NUMBER = re.compile(rb"([0-9]{1,15}(?:\.[0-9]{1,9})?)(?: seconds)?")


class SysFigures:
    """Newest figure of each name and node; those of a cluster are summed."""

    def __init__(self) -> None:
        self._figures: dict[str, dict[str, float]] = {}

    def take(self, topic: str, payload: bytes) -> None:
        """Take one message; one that is not a plain number, or of an unknown topic, is ignored."""
        found = _NUMBER.fullmatch(payload)
        named = _name(topic)
        if found is None or named is None:
            return
        name, node = named
        nodes = self._figures.setdefault(name, {})
        if node in nodes or len(nodes) < MOST_NODES:
            nodes[node] = float(found[1])

    def clear(self) -> None:
        """Forget all figures, because the connection is gone."""
        self._figures.clear()

    def values(self) -> dict[str, float]:
        """Return figures by the exporter's names; empty without any."""
        return {name: sum(nodes.values()) for name, nodes in self._figures.items()}


def _name(topic: str) -> tuple[str, str] | None:
    """Return the exporter's name, and the node."""
    _sys, _, rest = topic.partition("/")
    kind, _, rest = rest.partition("/")
    if _sys != "$SYS":
        return None
    if kind == "broker":
        name, node = _MOSQUITTO.get(rest), ""
    else:
        node, _, rest = rest.partition("/")
        name = _EMQX.get(rest) if kind == "brokers" else None
    return None if name is None else (name, node)


class _PingClient(paho.Client):
    """Client that pings on request. paho itself pings only when a keepalive is over."""

    answered = False

    def ping(self) -> MQTTErrorCode:
        self.answered = False
        return self._send_pingreq()

    def _handle_pingresp(self) -> MQTTErrorCode:
        self.answered = True
        return super()._handle_pingresp()


class BrokerProbe:
    """Probe driven by its looks alone, on one thread: it has no thread of its own and nothing that outlives its owner."""

    def __init__(self, settings: MqttSettings, client_id: str) -> None:
        """Prepare the probe; it connects at the first look.

        Args:
            settings: broker, credentials, MQTT version, TLS.
            client_id: unique at the broker, never the gateway's.

        Raises:
            ConfigError: a certificate or key of `[mqtt]` cannot be used.
        """
        self._settings, self._client_id = settings, client_id
        self._client: _PingClient | None = None
        self._figures = SysFigures()
        self._admitted = self._subscribed = False
        self._refused = ""
        self._pause_seconds = self._next_try_at = 0.0
        self._sys_refusals = 0
        self._sys_again_at = 0.0
        self._why: str | None = None
        self._new_client()

    def look(self) -> Samples:
        """Return samples under the names of the families BROKER, within about three seconds.

        A broker that does not answer has only `tidegate_broker_reachable` 0; one without `$SYS` has no figures.
        """
        try:
            why = self._ask(time.monotonic() + LOOK_SECONDS)
        except Exception as error:
            # A packet that paho cannot parse, a refused connection, a bad certificate: the next look connects again.
            why = show_text(fault_text(error, presents_certificate=self._settings.cert_file is not None))
        self._tell(why)
        if why:
            self._drop()
            return {"tidegate_broker_reachable": [((), 0.0)]}
        figures = self._figures.values()
        return {
            "tidegate_broker_reachable": [((), 1.0)],
            "tidegate_broker_sys_available": [((), float(bool(figures)))],
            **{name: [((), value)] for name, value in figures.items()},
        }

    def close(self) -> None:
        """Send DISCONNECT."""
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.disconnect()
        self._drop()

    def _ask(self, until: float) -> str:
        """Return why the broker cannot be reached; empty if it can."""
        if self._client is not None:
            if self._ping(self._client, until):
                return ""
            is_silent = self._client.is_connected()
            self._drop()
            if is_silent:
                return "no answer"
        if time.monotonic() < self._next_try_at:
            return self._why or "no connection yet"
        why = self._connect(until)
        self._pause_seconds = min(LONGEST_PAUSE_SECONDS, 2 * self._pause_seconds or 1.0) if why else 0.0
        self._next_try_at = time.monotonic() + self._pause_seconds
        return why

    def _connect(self, until: float) -> str:
        client = self._client = self._new_client()
        client.connect(self._settings.host, self._settings.port, KEEPALIVE_SECONDS)
        if not self._turn(client, until, lambda: self._admitted or bool(self._refused)):
            return "no answer to CONNECT"
        if self._refused:
            return self._refused
        if time.monotonic() >= self._sys_again_at:
            client.subscribe([(text, 0) for text in SYS_FILTERS])
            if not self._turn(client, until, lambda: self._subscribed):
                return self._unsubscribed(client)
            self._sys_refusals = 0
        # The broker's retained `$SYS` messages come before the answer to a ping.
        return "" if self._ping(client, until) else "no answer"

    def _unsubscribed(self, client: paho.Client) -> str:
        """Judge a missing SUBACK: the broker hangs, or it is well but disconnects readers of `$SYS` (rumqttd)."""
        if client.is_connected():
            return "no answer to SUBSCRIBE"
        self._sys_refusals += 1
        if self._sys_refusals >= SYS_REFUSALS:
            self._sys_again_at = time.monotonic() + SYS_AGAIN_SECONDS
        self._drop()
        return ""

    def _ping(self, client: _PingClient, until: float) -> bool:
        return client.ping() == MQTTErrorCode.MQTT_ERR_SUCCESS and self._turn(client, until, lambda: client.answered)

    def _turn(self, client: paho.Client, until: float, done: Callable[[], bool]) -> bool:
        """Let the client work until it is done; False if the time is over or the connection is lost."""
        while not done():
            left = until - time.monotonic()
            if left <= 0 or client.loop(min(left, 0.2)) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return done()
        return True

    def _new_client(self) -> _PingClient:
        is_5 = self._settings.protocol == "5"
        client = _PingClient(
            CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            clean_session=None if is_5 else True,
            protocol=MQTTProtocolVersion.MQTTv5 if is_5 else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
        )
        client.connect_timeout = CONNECT_SECONDS
        authenticate(client, self._settings)
        self._admitted, self._subscribed, self._refused = False, False, ""
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        return client

    def _drop(self) -> None:
        client, self._client = self._client, None
        sock = None if client is None else client.socket()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()
        self._figures.clear()

    def _tell(self, why: str) -> None:
        # Log once: in a long outage the reason changes with each try.
        if why and not self._why:
            logger.warning(
                "The monitor cannot reach the MQTT broker at %s:%d: %s", self._settings.host, self._settings.port, why
            )
        elif not why and self._why:
            logger.info("The MQTT broker answers the monitor again.")
        self._why = why

    def _on_connect(self, _client: paho.Client, _data: object, _flags: object, reason: ReasonCode, _more: Any) -> None:
        if reason.is_failure:
            self._refused = f"the broker refuses the monitor's connection ({reason})"
        else:
            self._admitted = True

    def _on_subscribe(self, _client: paho.Client, _data: object, _mid: int, _reasons: object, _more: Any) -> None:
        self._subscribed = True

    def _on_message(self, _client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        with contextlib.suppress(UnicodeDecodeError):
            self._figures.take(message.topic, bytes(message.payload))
