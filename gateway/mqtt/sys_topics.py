"""Figures of brokers under `$SYS`, with the names of mosquitto's exporter.

Mosquitto's topics are `$SYS/broker/…`, EMQX's `$SYS/brokers/<node>/…` for each node. Only figures with the same meaning are
taken: EMQX's `messages/dropped` also counts messages without a subscriber, and its uptime is a text of many forms.
"""

import re
from typing import Final

__all__ = ["SYS_FILTERS", "SysFigures"]

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
