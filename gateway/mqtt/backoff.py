"""Reconnect times: soon at first, then later and later, never in step with other gateways."""

import random
from typing import Final

__all__ = ["QUICK_LOSSES", "ReconnectBackoff"]

QUICK_LOSS_SECONDS: Final = 10.0
QUICK_LOSS_PAUSES: Final = 4.0
"""A connection also counts as lost quickly if it lasts no longer than this many of the pauses before it: when two gateways
take over each other's session, each stays for as long as the other pauses."""
QUICK_LOSSES: Final = 6
"""After this many connections in a row, each accepted and soon closed by the broker, either two gateways share a client id
(MQTT 3.1.1 does not say so), or the link is bad."""
FIRST_SECONDS: Final = 0.25


class ReconnectBackoff:
    """Counter of attempts and quick losses. All times are monotonic seconds, given by the caller."""

    def __init__(self, longest_seconds: float) -> None:
        self._longest_seconds = longest_seconds
        self._connected_at = 0.0
        self._next_attempt_at = 0.0
        self._attempts = 0
        self._quick_losses = 0
        self._pause_seconds = 0.0
        self._is_up = False

    def wait_seconds(self, now: float) -> float:
        """Return how long until the next attempt; at most 0 if it is due."""
        return self._next_attempt_at - now

    def attempt(self) -> None:
        """Note that an attempt begins now."""
        self._attempts += 1

    def accepted(self, now: float) -> None:
        """Note that the broker accepted the connection."""
        self._connected_at, self._is_up = now, True

    def established(self) -> None:
        """Note that the subscriptions are granted: the next loss begins with the shortest pause."""
        self._attempts = 0

    def lost(self, now: float, *, explained: bool) -> bool:
        """Note that an established connection is gone; True if that has happened repeatedly without a reason.

        Args:
            now: when.
            explained: whether the reason is known, so that it is not a sign of a bad link.
        """
        is_quick = not explained and not self._has_lasted(now)
        self._is_up = False
        self._quick_losses = self._quick_losses + 1 if is_quick else 0
        return self._quick_losses >= QUICK_LOSSES

    def is_suspect(self, now: float) -> bool:
        """Return whether connections repeatedly end soon, and none has lasted since."""
        return self._quick_losses >= QUICK_LOSSES and not (self._is_up and self._has_lasted(now))

    def _has_lasted(self, now: float) -> bool:
        return now - self._connected_at >= max(QUICK_LOSS_SECONDS, QUICK_LOSS_PAUSES * self._pause_seconds)

    @property
    def quick_losses(self) -> int:
        """Number of quick losses in a row."""
        return self._quick_losses

    def plan(self, now: float) -> float:
        """Set the next attempt; returns in how many seconds."""
        tries = min(self._attempts + self._quick_losses, 16)
        delay: float = min(self._longest_seconds, FIRST_SECONDS * 2**tries)
        delay *= random.uniform(0.5, 1.0)  # noqa: S311 - spreads reconnects, guards nothing
        self._next_attempt_at, self._pause_seconds = now + delay, delay
        return delay
