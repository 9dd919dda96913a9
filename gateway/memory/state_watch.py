"""Watch of `telemetry.gateway-state` for records of other processes: a live gateway with the same id, and erased devices.

Each gateway process writes its own record about once a minute. A record of another process under the same
`gateway.gateway_id` that Kafka took after this one's first look comes from a process that lives now, so no clocks are
compared.

An erasure removes a device from the topic and leaves a record that names it by a hash, so that a running gateway does not
write the device's numbers again. A gateway that starts later finds the state without the device.

A look runs on its own thread and reads a bounded number of records: messages do not wait for it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from gateway.memory.restart_state import ALIVE_MS, SessionRecord
from ingest.contract.forget import FORGET_KEY, decode_forget
from monitoring.periodic_query import PeriodicQuery

__all__ = ["ErasureListener", "ReadNewer", "SharedIdDetector"]

logger = logging.getLogger("tidegate.gateway")

LOOK_SECONDS: Final = 30.0
_END_SECONDS: Final = 1.0

ReadNewer = Callable[[str, Mapping[int, int] | None], tuple[list[bytes], dict[int, int]]]
"""Function of a key and the offset per partition to read from. It returns the key's values and the next offsets; without offsets
no values."""

_decode = msgspec.json.Decoder(SessionRecord).decode


class SharedIdDetector:
    """Detection of a shared id. `start`, `stop` and `words` belong to the gateway's thread, `look` to that of the poll."""

    def __init__(
        self,
        gateway_id: str,
        key: str,
        process: str,
        read_newer: ReadNewer,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the `key` of the gateway's own record, and `process`, the name of this process in it."""
        self._gateway_id, self._key, self._process = gateway_id, key, process
        self._read_newer, self._clock = read_newer, clock
        self._offsets: dict[int, int] | None = None
        self._seen: dict[str, tuple[str, float]] = {}
        self._logged: set[str] = set()
        self._poll: PeriodicQuery[str] = PeriodicQuery("gateway id", LOOK_SECONDS, self.look, default="")

    def start(self) -> None:
        """Begin to look; a second call does nothing."""
        self._poll.start()

    def stop(self) -> None:
        """Stop looking."""
        self._poll.stop()
        self._poll.join(_END_SECONDS)

    @property
    def words(self) -> str:
        """Return a sentence for `status` while another live gateway has this id; empty while none has."""
        other = self._poll.newest
        return self._sentence(other) if other else ""

    def look(self) -> str:
        """Look once; returns process and session of another live gateway with this id, empty if there is none."""
        values, self._offsets = self._read_newer(self._key, self._offsets)
        now = self._clock()
        for value in values:
            try:
                held = _decode(value)
            except msgspec.MsgspecError:
                continue
            if held.process == self._process:
                continue
            self._seen.pop(held.process, None)
            if not held.stopped:
                self._seen[held.process] = f"process {held.process or '(unknown)'}, MQTT session {held.session}", now
        self._seen = {name: one for name, one in self._seen.items() if now - one[1] < ALIVE_MS / 1000}
        for name in self._seen.keys() - self._logged:
            logger.error("%s", self._sentence(self._seen[name][0]).lstrip("; "))
        self._logged = set(self._seen)
        return next(iter(self._seen.values()))[0] if self._seen else ""

    def _sentence(self, other: str) -> str:
        return (
            f"; another gateway uses gateway.gateway_id {self._gateway_id!r} ({other}), so the audit and the ledger mix up "
            "their messages: give each gateway its own id"
        )


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
