"""What goes back to the device side: replies of decoders, receipts of what was refused. Bounded, and never in the way."""

import logging
from collections.abc import Callable
from typing import Final

from gateway.accounts import Accounts
from gateway.block import Block
from gateway.decoders.shape import Reply
from gateway.refusal import Receipts
from gateway.sequence import Restart
from gateway.show import show

__all__ = ["Answers"]

logger = logging.getLogger("tidegate.gateway")

MAX_REPLIES: Final = 200
"""Published to the device side per acknowledged batch; what goes beyond is dropped and counted."""


class Answers:
    """Publishes at QoS 0 what the connection takes at once; counts the rest."""

    def __init__(
        self, receipts: Receipts, publish: Callable[[str, bytes, bytes | None], bool], accounts: Accounts
    ) -> None:
        self._receipts, self._publish, self._accounts = receipts, publish, accounts

    def told(self, blocks: list[Block], restarts: list[Restart]) -> None:
        """The messages of these blocks are acknowledged: tell the device side what there is to tell."""
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
                logger.error("receipts failed: %s", show(f"{type(error).__name__}: {error}"))
                self._accounts.failed("receipts")
        self._send(replies)

    def tick(self) -> None:
        """Once a second: what is to be told now that could not be told before."""
        self._send(self._receipts.tick())

    def _send(self, replies: list[Reply]) -> None:
        sent = sum(self._publish(*reply) for reply in replies[:MAX_REPLIES])
        self._accounts.replied(sent, len(replies) - sent)
