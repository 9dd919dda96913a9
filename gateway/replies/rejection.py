"""Rejections: the interface between outcomes and receipts."""

from typing import NamedTuple

from gateway.decoders.shape import Reply
from gateway.delivery.sequence import SequenceRestart
from gateway.routes import RouteTable
from ingest.contract.dead_letter import Reject

__all__ = ["ReceiptBuilder", "Rejection"]


class Rejection(NamedTuple):
    """One dead letter, whole or of a part (`partial`), after it is in Kafka.

    `response_topic` and `correlation` are the message's own (MQTT 5), `message_id` is its identity (see `identity_of`), None if
    it has none. `device` is None if the message names none.
    """

    device: str | None
    reject: Reject
    response_topic: str | None = None
    correlation: bytes | None = None
    message_id: str | None = None
    topic: str = ""
    partial: bool = False


class ReceiptBuilder:
    """Writer of receipts, which sends none; others extend it.

    Owned by the gateway's one thread: it must neither wait nor raise. Its replies are published at QoS 0, as far as the
    connection takes them at once.
    """

    def of(self, refusals: list[Rejection], received_us: int) -> list[Reply]:
        """Return the replies to rejections whose dead letters are in Kafka and whose messages are being acknowledged.

        Args:
            refusals: rejections of one batch, in receive order.
            received_us: when the batch's first message was received (epoch µs).
        """
        return []

    def restarted(self, restarts: list[SequenceRestart], received_us: int) -> list[Reply]:
        """Return the replies to devices whose numbers began again under the same boot; arguments as in `of`."""
        return []

    def follow_routes(self, routes: RouteTable) -> None:
        """Match topics by these routes from now on."""

    def tick(self) -> list[Reply]:
        """Return, once a second, the replies that are due now but were not before."""
        return []
