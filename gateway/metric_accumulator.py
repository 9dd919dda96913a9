"""Metrics of the gateway, added per loop pass or per acknowledged batch, never per message."""

from collections import Counter
from collections.abc import Iterable, Mapping

from gateway.delivery.ack_chain import Batch
from monitoring.metrics.gateway import GatewayMetrics

__all__ = ["MetricAccumulator"]


class MetricAccumulator:
    """Counts in plain integers, added to the metrics on request."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics
        self._received: Counter[str] = Counter()
        self._dropped = 0
        self._stale_seen = 0
        self._in_flight = -1
        self._waits = False

    def received(self, count: int, *, at_qos_1: int, dropped: int) -> None:
        """Count received PUBLISH packets, those at QoS 1, and those at QoS 0 that were dropped."""
        self._received["1"] += at_qos_1
        self._received["0"] += count - at_qos_1
        self._dropped += dropped

    def replied(self, sent: int, dropped: int) -> None:
        """Count messages that went out to the device side, and those that did not."""
        if sent:
            self._metrics.replies.labels("sent").inc(sent)
        if dropped:
            self._metrics.replies.labels("dropped").inc(dropped)

    def failed(self, stage: str) -> None:
        """Count an error that the gateway survived."""
        self._metrics.errors.labels(stage).inc()

    def connected(self, *, session_lost: bool) -> None:
        """Note that a connection is up."""
        self._metrics.connected.set(1)
        self._metrics.connections.inc()
        if session_lost:
            self._metrics.sessions_lost.inc()

    def disconnected(self) -> None:
        """Note that the connection is gone."""
        self._metrics.connected.set(0)

    def session(self, *, broker_limit: int, contended: bool, id_shared: bool) -> None:
        """Set the state of the session, once a second."""
        self._metrics.broker_limit.set(broker_limit)
        self._metrics.contended.set(contended)
        self._metrics.id_shared.set(id_shared)

    def lease(self, *, works: bool, waits: bool) -> None:
        """Set the part of this process in a pair: it works or waits; both are False without a standby."""
        self._metrics.lease_held.set(works)
        self._metrics.standby_waits.set(waits)
        if waits != self._waits:
            # A standby needs no session, so nothing is wrong with it. One that takes over needs one.
            self._metrics.connected.set(waits)
            self._waits = waits

    def memories(self, fill: Mapping[str, float]) -> None:
        """Set the used share of each memory about devices, once a second."""
        for name, share in fill.items():
            self._metrics.memory_fill.labels(name).set(share)

    def flush(self, *, in_flight: int, stale_reports: int) -> None:
        """Add the counts of a loop pass."""
        if self._received:
            for qos, count in self._received.items():
                self._metrics.received.labels(qos).inc(count)
            self._received.clear()
        if self._dropped:
            self._metrics.dropped.inc(self._dropped)
            self._dropped = 0
        if stale_reports != self._stale_seen:
            self._metrics.stale_acks.inc(stale_reports - self._stale_seen)
            self._stale_seen = stale_reports
        if in_flight != self._in_flight:
            self._metrics.in_flight.set(in_flight)
            self._in_flight = in_flight

    def batch(self, batch: Batch, *, acknowledged: int, produce_seconds: float) -> None:
        """Add the outcomes of one batch whose outcome record is in Kafka; `acknowledged` of its PUBACKs went out."""
        metrics = self._metrics
        outcomes = [outcome for block in batch.blocks for outcome in block.odd.values()]
        accepted = [outcome for outcome in outcomes if outcome.accepted]
        usual = len(batch) - len(outcomes)
        metrics.accepted.inc(usual + len(accepted))
        readings = sum(block.readings for block in batch.blocks)
        metrics.readings.inc(readings + sum(outcome.readings for outcome in accepted))
        if accepted:
            metrics.partial.inc(sum(1 for outcome in accepted if outcome.parts))
            _add(metrics.rejected_parts, (part for outcome in accepted for part in outcome.parts))
        if len(accepted) < len(outcomes):
            _add(metrics.rejected, (outcome.rejected for outcome in outcomes if outcome.rejected))
            _add(metrics.ignored, (outcome.ignored for outcome in outcomes if outcome.ignored))
        metrics.acknowledged.inc(acknowledged)
        if batch.restarts:
            metrics.sequence_restarts.inc(len(batch.restarts))
        metrics.produce.observe(produce_seconds)


def _add(metric: object, labels: Iterable[str]) -> None:
    for label, count in Counter(labels).items():
        metric.labels(label).inc(count)  # type: ignore[attr-defined]
