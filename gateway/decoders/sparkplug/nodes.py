"""Validity of births: sequence numbers, births and deaths per edge node, and when to ask for a rebirth.

A node's messages are numbered 0 to 255 and wrap. A gap means that a message was missed, perhaps a birth, so the known
aliases are in doubt until the node sends a birth again. The same holds after a restart: the births sent meanwhile are
unknown (they travel at QoS 0, and brokers need not keep them). In doubt, readings are still decoded by the known aliases
and flagged, and the node is asked for a rebirth: at most once a minute, and all nodes together at most `MAX_ASKED` times a
minute, so that a restart does not make a whole fleet answer at once.
Source: Sparkplug 3.0.0, tck-id-operational-behavior-host-reordering-*, -edge-node-intentional-disconnect-*.
"""

import hashlib
from collections import OrderedDict
from typing import Final

__all__ = ["EdgeNode", "EdgeNodes"]

MAX_ASKED: Final = 300
_MINUTE_US: Final = 60_000_000
_MAX_NODES: Final = 20_000
"""Most nodes with a birth, and most without."""
_MAX_CHARACTERS: Final = 256
"""Most characters of a kept name; of a longer one its hash is kept."""


class EdgeNode:
    """One edge node as this process has seen it; nothing of it outlives the process."""

    __slots__ = ("_born", "_certain", "_generation", "_gone", "_last_ms", "_last_seq", "asked_us", "bd_seq", "was_born")

    def __init__(self, generation: int) -> None:
        self.asked_us: int | None = None
        self.bd_seq: int | None = None
        self.was_born = False
        self._certain = False
        self._born: set[str] = set()
        self._gone: set[str] = set()
        self._generation = generation
        self._last_seq: int | None = None
        self._last_ms = -1

    def is_certain(self, device: str | None) -> bool:
        """Return whether the newest known birth of the node or of this device is certainly its newest one."""
        return device not in self._gone and (self._certain or device in self._born)

    def follow(self, seq: int | None, time_ms: int | None, generation: int) -> bool:
        """Follow a numbered message other than NBIRTH; True if a message before it was missed."""
        last, expected = self._last_seq, None if self._last_seq is None else (self._last_seq + 1) % 256
        at = self._last_ms if time_ms is None else time_ms
        again = generation != self._generation and at <= self._last_ms
        same = seq == last and at == self._last_ms
        self._generation = generation
        if seq is None:
            return False
        self._last_seq, self._last_ms = seq, at
        # A redelivery on a new connection goes back in the sequence; a repeated message does not move it.
        if expected is None or seq == expected or again or same:
            return False
        self._certain = False
        self._born.clear()
        return True

    def born(self, seq: int | None, time_ms: int | None, bd_seq: int | None, generation: int) -> None:
        """Handle NBIRTH: the sequence begins again, and everything that follows is known."""
        self._last_seq, self._last_ms, self._generation = seq, -1 if time_ms is None else time_ms, generation
        self.bd_seq = bd_seq
        self._certain = self.was_born = True
        self._born.clear()
        self._gone.clear()

    def device_born(self, device: str) -> None:
        """Handle DBIRTH, after `follow`."""
        self._gone.discard(device)
        if not self._certain:
            self._born.add(device)

    def device_gone(self, device: str) -> None:
        """Handle DDEATH of a device that was born, after `follow`."""
        self._born.discard(device)
        self._gone.add(device)

    def gone(self, bd_seq: int | None) -> None:
        """Handle NDEATH; one of an earlier session (another bdSeq) came late and says nothing about this one."""
        if bd_seq is None or self.bd_seq is None or bd_seq == self.bd_seq:
            self._certain = False
            self._born.clear()


class EdgeNodes:
    """All edge nodes, and the rate at which they may be asked."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, EdgeNode] = OrderedDict()
        self._strangers: OrderedDict[str, EdgeNode] = OrderedDict()
        self._minute, self._asked = -1, 0

    def node(self, name: str, generation: int, *, is_known: bool = False) -> EdgeNode:
        """Return the node of this name (group/node); `is_known`: a birth of it is remembered.

        If there are too many, the one that was silent for longest is forgotten; names without a birth displace only such
        names.
        """
        key = name if len(name) <= _MAX_CHARACTERS else hashlib.sha256(name.encode()).hexdigest()
        node = self._known.pop(key, None) or self._strangers.pop(key, None) or EdgeNode(generation)
        group = self._known if is_known or node.was_born else self._strangers
        group[key] = node
        if len(self._strangers) > _MAX_NODES:
            oldest, stranger = self._strangers.popitem(last=False)
            if stranger.was_born:  # by its last message
                self._known[oldest] = stranger
        if len(self._known) > _MAX_NODES:
            self._known.popitem(last=False)
        return node

    def may_ask(self, node: EdgeNode, received_us: int) -> bool:
        """Return whether to ask the node for a rebirth now; True counts as asked."""
        if node.asked_us is not None and 0 <= received_us - node.asked_us < _MINUTE_US:
            return False
        minute = received_us // _MINUTE_US
        if minute != self._minute:
            self._minute, self._asked = minute, 0
        if self._asked >= MAX_ASKED:
            return False
        self._asked += 1
        node.asked_us = received_us
        return True
