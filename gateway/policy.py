"""What is asked of a device's readings beyond their format. This one asks nothing; others extend it."""

from gateway.decoders.shape import Decoded, RouteMatch
from ingest.contract.dead_letter import Reject

__all__ = ["Policy"]


class Policy:
    """Owned by the gateway's one thread; called for each device of each message, in receive order.

    `number` names the message (`Message.number`). What a policy remembers of messages that are not acknowledged yet
    it forgets at `roll_back`: the broker sends them again, and they must then be judged as the first time.
    """

    def admit(self, device: str, match: RouteMatch, received_us: int, number: int) -> Reject | None:
        """Why this message's part of that device is refused as a whole (unregistered, over its rate); else None.

        Asked also for messages that could not be decoded: a flood of garbage is a flood.
        """
        return None

    def check(self, decoded: Decoded, match: RouteMatch, received_us: int, number: int) -> Reject | None:
        """Move what the device's profile refuses from `readings` to `rejects`, add flags; a Reject refuses all."""
        return None

    def plain(self, device: str) -> bool:
        """Whether nothing is to be checked for this device on a native topic: `admit` and `check` may be skipped.

        Cheap (one look into a dict) and true until the next `tick`.
        """
        return True

    def tick(self) -> None:
        """Called about once a second, between messages: read anew what changed on disk. Never raises, never waits."""

    def acknowledged(self, upto: int) -> None:
        """Messages up to this number will not come again."""

    def roll_back(self) -> None:
        """A new connection begins: forget what came from messages that will come again."""
