"""Duties of the run loop towards the lease: take it, keep it, give it back. Without a lease they do nothing."""

import threading
from collections.abc import Callable
from typing import Final

from gateway.lease.gateway_lease import GatewayLease
from gateway.metric_accumulator import MetricAccumulator
from gateway.mqtt.session import MqttSession
from gateway.mqtt.session_text import describe_lost_broker
from ingest.contract.errors import FatalError
from ingest.log import LogWriter

__all__ = ["LeaseDuty"]

RELEASE_SECONDS: Final = 2.0
"""Longest wait for Kafka before and after the release."""


class LeaseDuty:
    """Owned by the gateway's one thread."""

    def __init__(self, lease: GatewayLease | None, session: MqttSession, accounts: MetricAccumulator) -> None:
        self._lease, self._session, self._accounts = lease, session, accounts

    def take(self, log: LogWriter, stop: threading.Event, report: Callable[[str, bool], None]) -> bool:
        """Wait for the lease; False if `stop` was set first. See `GatewayLease.take` for `report` and the errors."""
        lease = self._lease
        if lease is not None and lease.take(log, stop, report):
            self.note(waits=False)
            self._session.follow_epoch(lease.epoch)
        return lease is None or lease.held

    def note(self, *, waits: bool) -> None:
        """Set the metrics of the pair, and end if another process may have taken over.

        Raises:
            FatalError: see `GatewayLease.check`.
        """
        if self._lease is not None:
            self._accounts.lease(works=self._lease.standby and self._lease.held, waits=waits)
            self._lease.check()

    def keep(self, log: LogWriter, epoch: int) -> None:
        """Renew the lease, between two passes of the loop.

        Raises:
            FatalError: the lease is lost or was given back: end. Nothing more is sent.
        """
        if self._lease is None:
            return
        try:
            keeps = self._lease.keep(log, epoch=epoch, connected=self._session.connected)
        except FatalError:
            log.abort()
            self._lease.close()
            raise
        if not keeps:
            log.flush(RELEASE_SECONDS)
            why = self._session.detail
            self.release(log)
            raise FatalError(describe_lost_broker(why))

    def release(self, log: LogWriter) -> None:
        """Give the lease back: last of all, because another process may begin at once."""
        if self._lease is not None:
            self._session.close()
            self._lease.release(log, RELEASE_SECONDS)

    def close(self) -> None:
        """Stop the timer. Call it when nothing of this process can be sent any more."""
        if self._lease is not None:
            self._lease.close()
