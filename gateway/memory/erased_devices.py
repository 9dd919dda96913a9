"""Erased devices, so that a running gateway does not write their numbers again.

An erasure removes a device from `telemetry.gateway-state` and leaves a record that names it by a hash. A look reads new
records there, on its own thread: messages do not wait for it. A gateway that starts later finds the state without the
device.
"""

from collections.abc import Iterable
from typing import Final

from gateway.memory.shared_id import ReadNewer
from ingest.contract.forget import FORGET_KEY, decode_forget
from monitoring.periodic_query import PeriodicQuery

__all__ = ["ErasureListener"]

LOOK_SECONDS: Final = 30.0
_END_SECONDS: Final = 1.0


class ErasureListener:
    """Reader of erasures. `start`, `stop` and `take` belong to the gateway's thread, `look` to that of the poll."""

    def __init__(self, read_newer: ReadNewer) -> None:
        self._read_newer = read_newer
        self._offsets: dict[int, int] | None = None
        self._heard: list[str] = []
        self._poll: PeriodicQuery[int] = PeriodicQuery("erasures", LOOK_SECONDS, self.look, default=0)

    def start(self) -> None:
        """Begin to look; a second call does nothing."""
        self._poll.start()

    def stop(self) -> None:
        """Stop looking."""
        self._poll.stop()
        self._poll.join(_END_SECONDS)

    def look(self) -> int:
        """Look once; returns how many records came."""
        values, self._offsets = self._read_newer(FORGET_KEY, self._offsets)
        self._heard += _digests(values)
        return len(values)

    def take(self) -> frozenset[str]:
        """Return the SHA-256 of each device that was erased since the last call."""
        count = len(self._heard)  # the poll may add to it meanwhile
        taken = frozenset(self._heard[:count])
        del self._heard[:count]
        return taken


def _digests(values: Iterable[bytes]) -> list[str]:
    return [digest for value in values if (digest := decode_forget(value)) is not None]
