"""What the MQTT session tells its owner, and in which shape messages come."""

from typing import NamedTuple

__all__ = ["Incoming", "Plain", "Received", "SessionEvents"]


class Received(NamedTuple):
    """One PUBLISH as it came; `topic` in bytes, since it need not be UTF-8. The last four are properties of MQTT 5."""

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
"""(topic, payload, packet identifier in two bytes) of a PUBLISH at QoS 1 that has neither flags nor properties: nearly
all of them are such, and an object for each would cost as much as its decoding."""

Incoming = Plain | Received


class SessionEvents:
    """What the owner hears of. All of it runs inside `MqttSession.loop`."""

    def connected(self, epoch: int, *, session_lost: bool) -> None:
        """A new connection is up; everything of the old epoch is void."""

    def disconnected(self, why: str) -> None:
        """The connection is gone."""

    def received(self, messages: list[Incoming]) -> None:
        """PUBLISH packets of the current epoch, in receive order; the list is the hearer's own."""

    def answered(self, ping: int) -> None:
        """The broker answered the ping of this number; all that it sent before the answer was received."""

    def failed(self, stage: str) -> None:
        """A fault was survived."""
