"""State of a gateway for its restart: its session's filters, and the last number of each device.

It is in `telemetry.gateway-state`, next to the state of decoders. The numbers are written about once a minute, and at a
stop; each outcome holds those that its messages reached. The last outcome is what was acknowledged. So the state at that
point is the newest written numbers and the outcomes since: after a kill no gap is hidden, and none is invented.
"""

import logging
import time
import zlib
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

import msgspec

from gateway.delivery.sequence import Numbers, SequenceTracker
from gateway.lease.lease_record import is_lease, process_name
from gateway.left_out import LEFT_OUT, encode_left_out
from ingest.contract.errors import FatalError
from ingest.contract.forget import device_digest
from ingest.contract.outcome import OutcomeRecord
from ingest.contract.topics import GATEWAY_STATE, OUTCOMES
from ingest.log import Failure, LogFull, LogWriter

__all__ = ["GatewayState", "ReadOutcomes", "ReadState", "SessionRecord", "is_own_state"]

logger = logging.getLogger("tidegate.gateway")

ReadState = Callable[[], list[tuple[str, bytes]]]
"""State that earlier gateways stored for their decoders; read once, before the first connection."""

ReadOutcomes = Callable[[int], Iterable[OutcomeRecord]]
"""Outcomes since a time in epoch ms, in the order written; read once, before the first connection."""

PREFIX: Final = "tidegate/"
SAVE_SECONDS: Final = 60.0
MARGIN_MS: Final = 120_000
"""Largest expected difference between Kafka's clock and the gateway's. With more, a restart may report false gaps."""
ALIVE_MS: Final = 180_000
_KEY_BYTES: Final = 1024
"""Most bytes of a record's key and frame."""
_BUCKETS: Final = 256
"""With this number, the numbers of 100,000 devices fit into records of the usual size."""


class SessionRecord(msgspec.Struct, frozen=True):
    """Record of one gateway: `session` is its client id and broker, `filters` what it was granted there.

    `saved_ms`: all numbers as of then are written. `stopped`: the gateway stopped by itself. `process`: differs at each
    start. `reached_ms`: all messages published before then had arrived; 0: unknown; None: an older version wrote it.
    """

    session: str
    filters: tuple[str, ...] | None = None
    saved_ms: int = 0
    stopped: bool = False
    process: str = ""
    reached_ms: int | None = None


_encode = msgspec.json.Encoder().encode
_decode_held = msgspec.json.Decoder(SessionRecord).decode
_decode_numbers = msgspec.json.Decoder(dict[str, Numbers]).decode


def is_own_state(key: str) -> bool:
    """Return whether this key of the topic is a gateway's own, and not a decoder's."""
    return key.startswith(PREFIX)


class GatewayState:
    """State of this gateway. Owned by its one thread.

    Attributes:
        filters: filters granted to the broker's session, as far as they are known.
        reached_us: all messages published before this time had arrived; 0: unknown.
        epoch: newest epoch of this gateway in the outcomes that were read.
        process: name of this process in its records.
        key: key of this gateway's record.
    """

    def __init__(
        self,
        gateway_id: str,
        session: str,
        tracker: SequenceTracker,
        *,
        left_out: Callable[[], Mapping[str, Mapping[str, int]]] = dict,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start empty; `session` names client id and broker, `left_out` returns left out fields (see `RouteTable`)."""
        self._base, self._session, self._tracker = f"{PREFIX}{gateway_id}/", session, tracker
        self.key = f"{self._base}held"
        self.process = process_name()
        self._wall_ms, self._clock = wall_ms, clock
        self._left_out, self._since_ms, self._told = left_out, wall_ms(), b""
        self._is_cut = False
        self._dirty: set[int] = set()
        self._saving: tuple[set[int], SessionRecord, bytes] | None = None
        self._written: SessionRecord | None = None
        self._save_at = 0.0
        self._gateway_id = gateway_id
        self.filters: tuple[str, ...] | None = None
        self.shared_with: str | None = None
        self.reached_us = self.epoch = 0

    def load(self, found: Iterable[tuple[str, bytes]]) -> int | None:
        """Load the records of this gateway's last process; returns since when outcomes are needed, in epoch ms."""
        held = None
        for key, value in found:
            if not key.startswith(self._base) or is_lease(key):
                continue
            try:
                if key == self.key:
                    held = _decode_held(value)
                elif key == f"{self._base}{LEFT_OUT}":
                    self._told = value
                else:
                    self._tracker.load(_decode_numbers(value))
            except msgspec.MsgspecError as error:
                logger.warning("Cannot read this gateway's own state under key %s: %s", key, error)
        if held is None:
            return None
        self._written = held
        if held.session == self._session:
            self.filters = held.filters
            self.reached_us = 1000 * (held.saved_ms if held.reached_ms is None else held.reached_ms)
        elif not held.stopped and self._wall_ms() - held.saved_ms < ALIVE_MS:
            self.shared_with = held.session
            logger.error(
                "Another gateway with gateway.gateway_id %r was alive less than %d s ago (MQTT session %s). Give each gateway "
                "its own id: otherwise the audit and the ledger mix up their messages.",
                self._gateway_id,
                ALIVE_MS // 1000,
                held.session,
            )
        return max(0, held.saved_ms - MARGIN_MS) if held.saved_ms else None

    def recall(self, found: Iterable[tuple[str, bytes]], read_outcomes: ReadOutcomes) -> None:
        """Load the records of this gateway's last process, and the numbers of its outcomes since."""
        since_ms = self.load(found)
        if since_ms is None:
            return
        try:
            self.replay(read_outcomes(since_ms))
        except FatalError as error:
            # Then only the numbers of the last minute are unknown: they count as gaps, and nothing is hidden.
            logger.warning(
                "%s. Gaps may be reported that are not real. Grant the Kafka user READ on %s.", error, OUTCOMES
            )

    def replay(self, outcomes: Iterable[OutcomeRecord]) -> None:
        """Take the numbers of outcomes since, in the order written."""
        for outcome in outcomes:
            if outcome.gateway == self._gateway_id:
                self.epoch = max(self.epoch, outcome.epoch)
                for device, boot, seq in outcome.sequences:
                    self._tracker.reach(device, boot, seq)
                    self._dirty.add(_bucket(device))

    def follow(self, outcome: OutcomeRecord) -> None:
        """Note that an outcome is in Kafka."""
        self._dirty.update(_bucket(device) for device, _boot, _seq in outcome.sequences)

    def forget(self, digests: Container[str]) -> None:
        """Forget the devices whose ids have these SHA-256, and write the rest at once."""
        gone = self._tracker.forget(lambda device: device_digest(device) in digests)
        self._dirty.update(map(_bucket, gone))
        self._save_at = 0.0

    def count_again(self) -> None:
        """Count left out fields from now on, because other routes apply."""
        self._since_ms, self._save_at = self._wall_ms(), 0.0

    def reopen(self) -> None:
        """Note a new writer: records in flight may be lost."""
        if self._saving is not None:
            self._dirty |= self._saving[0]
            self._saving = None
        self._save_at = 0.0

    def save(self, log: LogWriter, *, stopped: bool = False) -> None:
        """Write changes, about once a minute; at once if filters changed, or at a stop.

        It writes only while Kafka has the outcomes of all known numbers: else a lost outcome would hide its gaps.
        """
        is_due = self._clock() >= self._save_at
        is_new = self._written is None or (self._written.session, self._written.filters) != (
            self._session,
            self.filters,
        )
        if not (stopped or (self._saving is None and (is_due or is_new))):
            return
        if self._saving is not None:
            # A stop does not wait: there is no next time.
            self._dirty |= self._saving[0]
        # Taken before the numbers are read: a later outcome may be among them or not.
        held = SessionRecord(
            self._session, self.filters, self._wall_ms(), stopped, self.process, self.reached_us // 1000
        )
        buckets, numbers = self._dirty, self._tracker.numbers(_bucket, self._dirty)
        keys = [f"{self._base}numbers/{bucket}".encode() for bucket in sorted(buckets)]
        values = [_encode(numbers.get(bucket, {})) for bucket in sorted(buckets)]
        left_out = self._encode_left_out(log)
        if left_out != self._told:
            keys.append(f"{self._base}{LEFT_OUT}".encode())
            values.append(left_out)
        try:
            # One record after the other in one partition: a reader that finds the last one finds all.
            taken = log.produce_batch(GATEWAY_STATE, [*keys, self.key.encode()], [*values, _encode(held)], self._saved)
        except LogFull:
            return
        self._saving, self._dirty = (buckets, held, left_out), set()
        self._is_cut = taken <= len(keys)
        self._save_at = self._clock() + (0.0 if self._is_cut else SAVE_SECONDS)

    def _encode_left_out(self, log: LogWriter) -> bytes:
        fields = self._left_out()
        if not fields and not self._told:
            return b""
        room = log.max_record_bytes(GATEWAY_STATE) - _KEY_BYTES
        return encode_left_out(fields, self._since_ms if fields else 0, most_bytes=room)

    def _saved(self, failures: list[Failure]) -> None:
        saving, self._saving = self._saving, None
        if saving is None:
            return
        if not failures and not self._is_cut:
            self._written, self._told = saving[1], saving[2]
            return
        self._dirty |= saving[0]
        if not failures:
            return
        logger.warning(
            "Topic %s does not accept this gateway's own state, which it needs after a restart (%s).",
            GATEWAY_STATE,
            failures[0][1].text,
        )


def _bucket(device: str) -> int:
    return zlib.crc32(device.encode("utf-8", "surrogatepass")) % _BUCKETS
