"""Lease of a gateway: one process per gateway_id works, gateways that conflict do not start, and a standby takes over.

The argument, with its limits, is in DECISIONS.md ("Give each gateway a lease in Kafka"). In short: a process takes the lease with
a record of the next term, and Kafka's order decides between two of them. It renews the lease with further records. The holder
counts its time from before it handed a record over, others count theirs from after they read it. So a holder that others may
replace has stopped, or was killed by the kernel, before anybody else begins.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from msgspec.structs import replace

from gateway.lease.kill_timer import KillTimer, lease_clock
from gateway.lease.lease_record import LeaseRecord, decode_lease, describe_conflict, encode_lease, lease_key
from ingest.contract.errors import ConfigError, FatalError, RetryableError
from ingest.contract.topics import GATEWAY_STATE
from ingest.log import DeliveryError, LogFull, LogWriter
from ingest.state_follower import StateReader

__all__ = ["GatewayLease", "is_running"]

logger = logging.getLogger("tidegate.gateway")

RENEW_SHARE: Final = 0.2
END_SHARE: Final = 0.7
KILL_SHARE: Final = 0.8
"""Shares of the lease's length, counted from before the last record that Kafka confirmed was handed over: the next record is
due, the process ends by itself, the kernel kills it."""
APART_SHARE: Final = 0.25
LEAST_APART_SECONDS: Final = 5.0
"""A holder without the broker releases the lease after this share of its length, and not sooner than this."""
LOOK_SECONDS: Final = 1.0
CLAIM_SECONDS: Final = 2.0
"""Longest wait for Kafka's report of one record in a step."""


def is_running(pid: int) -> bool:
    """Return whether a process with this id exists in this PID namespace."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    with suppress(OSError):
        # One that has ended and that its parent has not noticed yet.
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0] not in ("Z", "X")
    return True


@dataclass(slots=True)
class _Seen:
    """Newest record of a process, when it was read, and whether it came after the first look: then the process lives."""

    record: LeaseRecord
    at: float
    is_new: bool


class GatewayLease:
    """Lease of this process: first `take`, then `keep` in each pass, at a stop `release`, at last `close`.

    Owned by the gateway's one thread.

    Attributes:
        held: whether this process holds the lease.
        waits_as_standby: whether it waits for the end of another process of its gateway_id, or for the broker.
    """

    def __init__(
        self,
        ours: LeaseRecord,
        state: StateReader,
        *,
        conflicts: Literal["reject", "warn"] = "reject",
        reach: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = lease_clock,
        timer: KillTimer | None = None,
        runs: Callable[[int], bool] = is_running,
    ) -> None:
        """Take the parts.

        Args:
            ours: record of this process, with term 0.
            state: reader of `telemetry.gateway-state` that watches leases.
            conflicts: reaction to a live gateway that conflicts.
            reach: returns why the MQTT broker cannot be reached; empty if it can. Only a standby asks.
            clock: monotonic seconds; the timer must use the same clock.
            timer: kills this process at the end of its lease; only with `ours.standby`.
            runs: returns whether a process of this machine exists.
        """
        self._ours, self._state, self._conflicts = ours, state, conflicts
        self._reach, self._clock, self._timer, self._runs = reach, clock, timer, runs
        self._known: dict[tuple[str, str], _Seen] = {}
        self._terms: dict[str, int] = {}
        self._has_looked = False
        self._warned: set[str] = set()
        self._claim: LeaseRecord | None = None
        self._claimed_at = self._confirmed_at = self._renew_at = 0.0
        self._landed: str | None = None
        self._sent: tuple[LeaseRecord, float] | None = None
        self._writer: LogWriter | None = None
        self._fault = ""
        self._apart_since: float | None = None
        self.held = self.waits_as_standby = False

    @property
    def standby(self) -> bool:
        """Return whether another process may replace this one."""
        return self._ours.standby

    @property
    def epoch(self) -> int:
        """Last MQTT epoch of this gateway that its records name."""
        return self._ours.epoch

    def take(self, log: LogWriter, stop: threading.Event, report: Callable[[str, bool], None]) -> bool:
        """Wait until this process holds the lease; False if `stop` was set first.

        `report` gets about once a second what it waits for, and whether it waits as a standby.

        Raises:
            ConfigError, RetryableError: see `step`.
        """
        while not self.held and not stop.is_set():
            wait = self.step(log)
            if wait:
                report(wait, self.waits_as_standby)
                stop.wait(LOOK_SECONDS)
        return self.held

    def step(self, log: LogWriter) -> str:
        """Do the next step towards the lease; returns for people what it waits for, empty once the lease is held.

        Waits at most some seconds for Kafka.

        Raises:
            ConfigError: a live gateway conflicts; two of them must not run.
            RetryableError: Kafka does not answer, or does not take the record.
        """
        if self._claim is None:
            began = self._look()
            wait = self._obstacle(began)
            self.waits_as_standby = self.standby and bool(wait)
            if not wait and self.standby and (wait := self._reach()):
                self.waits_as_standby = True
            if wait:
                return wait
            self._hand_over(log)
        log.flush(CLAIM_SECONDS)
        if self._fault:
            fault, self._fault, self._claim = self._fault, "", None
            message = f"Topic {GATEWAY_STATE} does not accept the lease of this gateway ({fault}): retrying"
            raise RetryableError(message)
        try:
            self._look()
        except ConfigError:
            self._withdraw(log)
            raise
        return self._judge_claim()

    def _look(self) -> float:
        """Read the newer records; returns when the look began."""
        began = self._clock()
        found = self._state.catch_up()
        now = self._clock()
        for _, value in found:
            record = decode_lease(value)
            if record is not None:
                self._take(record, now)
        self._has_looked = True
        return began

    def _take(self, record: LeaseRecord, now: float) -> None:
        claim = self._claim
        if record.process == self._ours.process:
            if claim is not None and record.beat == claim.beat and self._landed is None:
                # Only what is before it in Kafka can be in its way.
                self._landed = self._obstacle(now)
            return
        is_rival = claim is not None and self._landed is not None and record.gateway == claim.gateway
        if is_rival and claim is not None and record.term <= claim.term:
            # Kafka has it behind our own record of that term.
            return
        newest = self._terms.get(record.gateway, 0)
        if record.term < newest:
            return
        if record.term > newest:
            self._terms[record.gateway] = record.term
            self._known = {name: seen for name, seen in self._known.items() if name[0] != record.gateway}
        self._known[record.gateway, record.process] = _Seen(record, now, self._has_looked)

    def _obstacle(self, now: float) -> str:
        """Return what this process waits for as of `now`, empty if nothing is in its way."""
        for seen in self._known.values():
            record = seen.record
            text = "" if record.released else describe_conflict(self._ours, record)
            if not text or self._is_gone(record) or now - seen.at >= record.seconds:
                continue
            is_same = record.gateway == self._ours.gateway
            if is_same and self.standby and record.standby:
                return f"standby: {record.who} holds the lease of gateway {record.gateway}"
            if self._conflicts == "warn" and not (is_same and (self.standby or record.standby)):
                self._warn(record, text)
            elif seen.is_new:
                self._reject(record, text, is_same=is_same)
            else:
                return (
                    f"waiting up to {record.seconds:g} s for a sign that gateway {record.gateway} ({record.who}) still runs, "
                    "which conflicts with this one"
                )
        return ""

    def _reject(self, record: LeaseRecord, text: str, *, is_same: bool) -> None:
        if is_same and self.standby:
            text = (
                f"gateway.standby: gateway {record.gateway!r} runs without it ({record.who}), so no standby can take over. Set "
                "gateway.standby = true for that process too, and restart it."
            )
        raise ConfigError(text)

    def _warn(self, record: LeaseRecord, text: str) -> None:
        if record.process not in self._warned:
            self._warned.add(record.process)
            logger.warning("gateway.conflicts is warn: %s", text)

    def _is_gone(self, record: LeaseRecord) -> bool:
        """Return whether the process of a record has ended for certain, as far as this machine can know."""
        if record.machine and record.machine == self._ours.machine:
            return record.pid == self._ours.pid or not self._runs(record.pid)
        # A restarted container has a PID namespace of its own, and often the same host name and process id. That is not
        # proof enough to replace a process that may still send.
        return not record.standby and record.is_from(socket.gethostname(), os.getpid())

    def _hand_over(self, log: LogWriter) -> None:
        """Hand the record of the next term to Kafka."""
        before = self._same_gateway()
        self._landed, self._fault = None, ""
        for record in before:
            if not record.released:
                logger.warning("The %s of gateway %s ended without releasing its lease.", record.who, record.gateway)
        self._ours = replace(
            self._ours,
            term=max([self._ours.term, *(record.term for record in before)]) + 1,
            beat=self._ours.beat + 1,
            epoch=max([self._ours.epoch, *(record.epoch for record in before)]),
        )
        self._claimed_at, self._claim = self._clock(), self._ours
        self._produce(log, self._ours, self._claim_reported)

    def _same_gateway(self) -> list[LeaseRecord]:
        return [seen.record for (gateway, _), seen in self._known.items() if gateway == self._ours.gateway]

    def _claim_reported(self, error: DeliveryError | None) -> None:
        if error is not None:
            self._fault = error.text

    def _judge_claim(self) -> str:
        """Return an empty text if Kafka's order gives the lease to this process, else what it waits for."""
        if self._landed is None:
            if self._is_over(END_SHARE, since=self._claimed_at):
                self._claim = None
            return "waiting for Kafka to take the lease of this gateway"
        landed, self._claim = self._landed, None
        rivals = [record for record in self._same_gateway() if record.term >= self._ours.term]
        if rivals:
            self.waits_as_standby = self.standby
            return landed or f"{rivals[0].who} took the lease of gateway {self._ours.gateway} first"
        if landed or self._is_over(END_SHARE, since=self._claimed_at):
            return landed or "Kafka was slow to take the lease of this gateway: trying again"
        self.held, self.waits_as_standby = True, False
        self._confirm(self._claimed_at)
        self._apart_since = self._clock()
        logger.info("This process holds the lease of gateway %s, term %d.", self._ours.gateway, self._ours.term)
        return ""

    def _withdraw(self, log: LogWriter) -> None:
        """Take a record back that nobody needs to wait for; not if another process of this gateway wrote under the same key."""
        if all(record.term < self._ours.term for record in self._same_gateway()):
            self._produce(log, replace(self._ours, beat=self._ours.beat + 1, released=True), lambda _error: None)
            log.flush(CLAIM_SECONDS)

    def check(self) -> None:
        """Compare the time with the last renewal, if another process may take the lease.

        Raises:
            FatalError: the lease could not be renewed for too long; end without sending anything more.
        """
        if self.held and self.standby and self._is_over(END_SHARE, since=self._confirmed_at):
            late = self._clock() - self._confirmed_at
            message = (
                f"This process could not renew the lease of gateway {self._ours.gateway} for {late:.0f} s: Kafka did not "
                "confirm it, or the process stood still. It ends, so that the standby can take over, and may be started again."
            )
            raise FatalError(message)

    def keep(self, log: LogWriter, *, epoch: int, connected: bool) -> bool:
        """Renew the lease if it is due; returns False if this process should release it, because it lacks the broker.

        Raises:
            FatalError: see `check`.
        """
        self.check()
        now = self._clock()
        if log is not self._writer:
            # A new writer: nobody reports what was in flight.
            self._writer, self._sent = log, None
        if self._sent is None and (now >= self._renew_at or epoch > self._ours.epoch):
            record = replace(self._ours, beat=self._ours.beat + 1, epoch=max(epoch, self._ours.epoch))
            self._sent = record, now
            if self._produce(log, record, self._renewal_reported):
                self._ours = record
            else:
                self._sent = None
        self._apart_since = None if connected else now if self._apart_since is None else self._apart_since
        patience = max(LEAST_APART_SECONDS, APART_SHARE * self._ours.seconds)
        return not self.standby or self._apart_since is None or now - self._apart_since < patience

    def _renewal_reported(self, error: DeliveryError | None) -> None:
        sent, self._sent = self._sent, None
        if sent is None:
            return
        if error is None:
            self._confirm(sent[1])
            self._fault = ""
            return
        self._renew_at = self._clock() + RENEW_SHARE * self._ours.seconds
        if not self._fault:
            logger.warning("Topic %s does not accept this gateway's lease (%s).", GATEWAY_STATE, error.text)
        self._fault = error.text

    def release(self, log: LogWriter, seconds: float) -> None:
        """Give the lease back if Kafka has all records of this process, else leave it to expire. Waits at most `seconds`."""
        if not self.held or log.in_flight:
            return
        self._ours = replace(self._ours, beat=self._ours.beat + 1, released=True)
        if self._produce(log, self._ours, lambda _error: None):
            log.flush(seconds)
        self.held = False

    def close(self) -> None:
        """Stop the timer. Call it when nothing of this process can be sent any more."""
        self.held = False
        if self._timer is not None:
            self._timer.disarm()

    def _produce(self, log: LogWriter, record: LeaseRecord, done: Callable[[DeliveryError | None], None]) -> bool:
        with suppress(LogFull):
            log.produce(GATEWAY_STATE, lease_key(record.gateway).encode(), encode_lease(record), done)
            return True
        return False

    def _confirm(self, handed_over_at: float) -> None:
        self._confirmed_at = handed_over_at
        self._renew_at = handed_over_at + RENEW_SHARE * self._ours.seconds
        if self.standby and self._timer is not None:
            self._timer.arm(handed_over_at + KILL_SHARE * self._ours.seconds)

    def _is_over(self, share: float, *, since: float) -> bool:
        return self._clock() - since > share * self._ours.seconds
