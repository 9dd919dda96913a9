"""Received messages to blocks: on the fast path if possible, else through the processor."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final

from gateway.delivery.block import Block
from gateway.fast_path.encoder import FastPathEncoder
from gateway.message_processor import MessageProcessor
from gateway.mqtt.session_events import Incoming, Received

__all__ = ["MAX_BLOCK", "MessageIntake"]

logger = logging.getLogger("tidegate.gateway")

MAX_BLOCK: Final = 500
"""Most messages of one block."""


class MessageIntake:
    """Numbering of messages and decision about each. Owned by the gateway's one thread.

    Attributes:
        number: of the last message.
        waited_since_us: since when the broker may have kept the arriving messages: see `Message`.
        dropped: messages at QoS 0 for which there was no room, so far.
    """

    def __init__(
        self,
        processor: MessageProcessor,
        encoder: FastPathEncoder,
        *,
        is_full: Callable[[Block], bool],
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """Take the parts; `is_full` says whether a message at QoS 0 has no room next to this block."""
        self._processor, self._encoder, self._is_full, self._wall_us = processor, encoder, is_full, wall_us
        self.number = 0
        self.waited_since_us: int | None = None
        self.dropped = 0

    def take(self, messages: list[Incoming], epoch: int, outcome_bytes: int) -> Iterator[Block]:
        """Yield all messages as blocks, in order; the counts of each take `outcome_bytes`, or those of one message.

        The caller takes a block into account before the next one is decided.

        Raises:
            MemoryError: not the message's fault; it comes again on the next connection.
            RuntimeError: a message was taken without its record; it comes again too.
        """
        received_us, received_at = self._wall_us(), time.monotonic()
        at = 0
        while at < len(messages):
            block = Block(epoch, self.number + 1, received_us, received_at)
            block.waited_since_us = self.waited_since_us
            at = self._fill(block, messages, at, outcome_bytes)
            if len(block):
                self.number += len(block)
                yield block

    def _fill(self, block: Block, messages: list[Incoming], at: int, outcome_bytes: int) -> int:
        end = min(len(messages), at + MAX_BLOCK)
        part = messages if end - at == len(messages) else messages[:end]
        while at < end and (not len(block) or block.outcome_bytes < outcome_bytes):
            before, begin = block.columns, at
            try:
                at = self._encoder.encode_into(block, part, at, outcome_bytes)
            except MemoryError:
                raise
            except Exception:
                logger.exception("The fast path failed. The message takes the slow path.")
                at = begin + _grown(block, before)
            if at < end and (not len(block) or block.outcome_bytes < outcome_bytes):
                self._take_one(block, part[at])
                at += 1
        return at

    def _take_one(self, block: Block, received: Incoming) -> None:
        if isinstance(received, Received) and received.qos == 0 and self._is_full(block):
            self.dropped += 1
            return
        block.add(received, self._processor.decide(block.next_message(received)))


def _grown(block: Block, before: tuple[int, int, int, int]) -> int:
    """Return how many messages the fast path added, each with its record."""
    grown = {now - then for now, then in zip(block.columns, before, strict=True)}
    if len(grown) != 1:
        message = f"the fast path left a message without its record (columns {before} became {block.columns})"
        raise RuntimeError(message)
    return grown.pop()
