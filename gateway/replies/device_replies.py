"""Messages to the device side: replies of decoders, and receipts of rejections. Bounded, and never blocking."""

import logging
from collections.abc import Callable
from typing import Final

from gateway.decoders.shape import Reply
from gateway.delivery.block import Block
from gateway.delivery.sequence import SequenceRestart
from gateway.metric_accumulator import MetricAccumulator
from gateway.replies.rejection import ReceiptBuilder
from gateway.safe_text import show_text

__all__ = ["DeviceReplies"]

logger = logging.getLogger("tidegate.gateway")

MAX_REPLIES: Final = 200
"""Most messages published to the device side per acknowledged batch; further ones are dropped and counted."""


class DeviceReplies:
    """Publisher at QoS 0 of what the connection takes at once; it counts the rest."""

    def __init__(
        self, receipts: ReceiptBuilder, publish: Callable[[str, bytes, bytes | None], bool], accounts: MetricAccumulator
    ) -> None:
        self._receipts, self._publish, self._accounts = receipts, publish, accounts

    def on_acknowledged(self, blocks: list[Block], restarts: list[SequenceRestart]) -> None:
        """Send the replies and receipts of acknowledged blocks."""
        odd = [block for block in blocks if block.odd]
        if not odd and not restarts:
            return
        replies = [reply for block in odd for reply in block.replies()]
        refusals = [refusal for block in odd for refusal in block.refusals()]
        if refusals or restarts:
            try:
                replies += self._receipts.of(refusals, blocks[0].received_us)
                replies += self._receipts.restarted(restarts, blocks[0].received_us)
            except Exception as error:
                logger.error("receipts failed: %s", show_text(f"{type(error).__name__}: {error}"))
                self._accounts.failed("receipts")
        self._send(replies)

    def tick(self) -> None:
        """Send, once a second, receipts that could not be sent before."""
        self._send(self._receipts.tick())

    def _send(self, replies: list[Reply]) -> None:
        sent = sum(self._publish(*reply) for reply in replies[:MAX_REPLIES])
        self._accounts.replied(sent, len(replies) - sent)
