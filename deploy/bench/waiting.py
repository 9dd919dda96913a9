"""Waits of a benchmark: until a condition holds, or until nothing more arrives."""

import time
from collections.abc import Callable
from typing import Final

from ingest.contract.errors import UnavailableError

__all__ = ["await_arrivals", "await_condition"]

_LOOK_SECONDS: Final = 0.1


def await_condition(
    holds: Callable[[], bool], otherwise: str, *, seconds: float, look_seconds: float = _LOOK_SECONDS
) -> None:
    """Wait until it holds.

    Raises:
        UnavailableError: it did not within these seconds; the text begins with `otherwise`.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            message = f"{otherwise} within {seconds:g} s"
            raise UnavailableError(message)
        time.sleep(look_seconds)


def await_arrivals(count: Callable[[], int], wanted: float, *, silent_seconds: float) -> None:
    """Wait until so many are there, or none came for these seconds."""
    have, since = -1, time.monotonic()
    while (now := count()) < wanted and time.monotonic() - since < silent_seconds:
        if now != have:
            have, since = now, time.monotonic()
        time.sleep(_LOOK_SECONDS)
