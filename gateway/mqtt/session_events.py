"""Events of the MQTT session for its owner, and the forms in which messages come."""

from typing import NamedTuple

__all__ = ["Incoming", "Plain", "Received", "SessionEvents"]


class Received(NamedTuple):
    """One PUBLISH as it came; `topic` in bytes, because it need not be UTF-8. The last four are properties of MQTT 5."""

    topic: bytes
    payload: bytes
    mid: int
    qos: int
    dup: bool = False
    retain: bool = False
    message_id: str | None = None
    trace: str | None = None
    response_topic: str | None = None
    correlation: bytes | None = None


Plain = tuple[bytes, bytes, bytes]
"""(topic, payload, packet identifier in two bytes) of a PUBLISH at QoS 1 without flags and properties. Nearly all are of
this kind, and an object for each would cost as much as its decoding."""

Incoming = Plain | Received


class SessionEvents:
    """Events for the owner. All of them run inside `MqttSession.loop`."""

    def connected(self, epoch: int, *, session_lost: bool) -> None:
        """Handle a new connection; everything of the old epoch is void."""

    def disconnected(self, why: str) -> None:
        """Handle the end of the connection."""

    def received(self, messages: list[Incoming]) -> None:
        """Handle PUBLISH packets of the current epoch, in receive order; the list belongs to the receiver."""

    def answered(self, ping: int) -> None:
        """Handle the broker's answer to this ping; everything that it sent before was received."""

    def failed(self, stage: str) -> None:
        """Handle an error that the session survived."""
