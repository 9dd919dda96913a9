"""What was refused, as those hear of it who tell devices why: the seam between outcomes and receipts."""

from typing import NamedTuple

from gateway.decoders.shape import Reply
from gateway.routes import RouteTable
from gateway.sequence import Restart
from ingest.contract.dead_letter import Reject

__all__ = ["Receipts", "Refusal"]


class Refusal(NamedTuple):
    """One dead letter, whole or of a part (`partial`), after it is in Kafka.

    `response_topic` and `correlation` are the message's own (MQTT 5), `message_id` what makes it recognisable (see
    `Gate`), None where nothing does. `device` is None where the message names none.
    """

    device: str | None
    reject: Reject
    response_topic: str | None = None
    correlation: bytes | None = None
    message_id: str | None = None
    topic: str = ""
    partial: bool = False


class Receipts:
    """Turns refusals into messages to the device side. This one tells nobody; others extend it.

    Owned by the gateway's one thread: it must neither wait nor raise. What it returns is published at QoS 0, as far as
    the connection takes it at once.
    """

    def of(self, refusals: list[Refusal], received_us: int) -> list[Reply]:
        """The replies to refusals whose dead letters are in Kafka and whose messages are being acknowledged.

        Args:
            refusals: of one batch, in receive order.
            received_us: when the batch's first message was received (epoch µs).
        """
        return []

    def restarted(self, restarts: list[Restart], received_us: int) -> list[Reply]:
        """The replies to devices whose numbers began again under the same boot; arguments as in `of`."""
        return []

    def follow_routes(self, routes: RouteTable) -> None:
        """Topics are matched by these from now on."""

    def tick(self) -> list[Reply]:
        """Called once a second: what is to be told now that could not be told before."""
        return []
