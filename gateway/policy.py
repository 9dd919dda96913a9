"""What is asked of a device's readings beyond their format. This one asks nothing; others extend it."""

from gateway.decoders.shape import Decoded, RouteMatch
from ingest.contract.dead_letter import Reject

__all__ = ["Policy"]


class Policy:
    """Owned by the gateway's one thread; called for each device of each message, in receive order."""

    def admit(self, device: str, match: RouteMatch, received_us: int) -> Reject | None:
        """Why this message's part of that device is refused as a whole (unregistered, over its rate); else None."""
        return None

    def check(self, decoded: Decoded, match: RouteMatch, received_us: int) -> Reject | None:
        """Move what the device's profile refuses from `readings` to `rejects`, add flags; a Reject refuses all."""
        return None
