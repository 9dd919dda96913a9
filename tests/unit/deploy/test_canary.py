"""The canary: what it published and never saw stays counted, and each hop by the clocks that a reading met."""

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from deploy.local.canary_probe import DEVICE, MOST_WAITING, Canary, HopClocks, HopTimes, _publish, new_traceparent
from gateway.message import traceparent
from ingest.contract.errors import UnavailableError
from lakehouse.table_follower import FollowedCommit
from monitoring.metrics.canary import HOPS, CanaryMetrics

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rows(*numbers: tuple[int, int], sent_at: float = NOW.timestamp()) -> pa.Table:
    def column(seconds: float) -> pa.Array:
        at = datetime.fromtimestamp(sent_at, UTC) + timedelta(seconds=seconds)
        return pa.array([at] * len(numbers), pa.timestamp("us", tz="UTC"))

    boots, seqs = zip(*numbers, strict=True)
    times = {"received_at": column(0.010), "kafka_time": column(0.012), "landed_at": column(0.212)}
    return pa.table({"boot": list(boots), "seq": list(seqs), **times})


def bucket(registry: CollectorRegistry, hop: str, le: str) -> float | None:
    return registry.get_sample_value("tidegate_canary_hop_seconds_bucket", {"hop": hop, "le": le})


def skew(registry: CollectorRegistry, hop: str) -> float | None:
    return registry.get_sample_value("tidegate_canary_clock_skew_seconds", {"hop": hop})


def test_the_canary_is_healthy_while_its_own_readings_come_back(registry: CollectorRegistry) -> None:
    canary = Canary(CanaryMetrics(registry), boot=5, late_seconds=60)
    assert canary.healthy()[0] is False
    payload = json.loads(canary.next_payload())
    assert (payload["boot"], payload["seq"]) == (5, 1)
    sent = payload["ts"] / 1000
    canary.observe(FollowedCommit(0, sent + 0.4, sent + 0.5, rows((4, 1), sent_at=sent)))
    assert canary.healthy()[0] is False
    canary.observe(FollowedCommit(1, sent + 0.4, sent + 0.5, rows((5, 1), (5, 1), sent_at=sent)))
    assert canary.healthy() == (True, "a reading was read back after 0.50 s")
    assert registry.get_sample_value("tidegate_canary_seen_total") == 1
    assert [registry.get_sample_value("tidegate_canary_hop_seconds_count", {"hop": hop}) for hop in HOPS] == [1] * 5
    assert DEVICE == "tidegate-canary"


def test_a_reading_that_never_comes_back_is_published_and_not_seen(registry: CollectorRegistry) -> None:
    canary = Canary(CanaryMetrics(registry), boot=5, late_seconds=60)
    for _ in range(3):
        sent = json.loads(canary.next_payload())["ts"] / 1000
    canary.observe(FollowedCommit(1, sent + 0.4, sent + 9, rows((5, 3), sent_at=sent)))

    assert registry.get_sample_value("tidegate_canary_published_total") == 3
    assert registry.get_sample_value("tidegate_canary_seen_total") == 1
    assert registry.get_sample_value("tidegate_end_to_end_latency_seconds_bucket", {"le": "2.5"}) == 0


class Broker:
    """A publisher whose broker does what the test says, until enough was due."""

    def __init__(self, stop: threading.Event, answer: Callable[[], None], *, turns: int) -> None:
        self.waiting_count, self.sent = 0, 0
        self._stop, self._answer, self._turns = stop, answer, turns

    def connect(self, *, timeout_seconds: float) -> None:
        self._turn()
        self._answer()

    def publish(self, topic: str, payload: bytes, *, traceparent: str) -> None:
        self._turn()
        self.sent += 1
        self.waiting_count += 1

    def _turn(self) -> None:
        self._turns -= 1
        if self._turns <= 0:
            self._stop.set()


def refuse() -> None:
    msg = "the broker does not let us in"
    raise UnavailableError(msg)


def test_the_oldest_reading_that_may_come_back_tells_how_long_it_waits(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [NOW.timestamp()]
    monkeypatch.setattr(
        "deploy.local.canary_probe.time", SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic)
    )
    canary = Canary(CanaryMetrics(registry), boot=5, late_seconds=60)

    def waits() -> float | None:
        return registry.get_sample_value("tidegate_canary_oldest_wait_seconds")

    assert waits() == 0
    for _ in range(4):
        canary.next_payload()
        now[0] += 20
    assert waits() == 80
    canary.observe(FollowedCommit(1, now[0], now[0], rows((4, 4), (5, 2))))
    assert waits() == 40, "the first was overtaken by the second and never comes back"
    canary.observe(FollowedCommit(2, now[0], now[0], rows((5, 3), (5, 4))))
    assert waits() == 0


def test_what_is_due_while_no_broker_lets_it_in_counts_as_published(registry: CollectorRegistry) -> None:
    stop = threading.Event()
    broker = Broker(stop, refuse, turns=5)
    canary = Canary(CanaryMetrics(registry), boot=5, late_seconds=60)

    _publish(broker, canary, 1e-4, stop)  # type: ignore[arg-type]

    assert broker.sent == 0
    assert registry.get_sample_value("tidegate_canary_acknowledged_total") == 0
    published = registry.get_sample_value("tidegate_canary_published_total")
    assert published is not None
    assert published >= 5


def test_only_what_the_broker_took_counts_as_arrived(registry: CollectorRegistry) -> None:
    canary = Canary(CanaryMetrics(registry), boot=5, late_seconds=60)
    for _ in range(3):
        canary.next_payload()
    canary.acknowledged(None)
    assert registry.get_sample_value("tidegate_canary_published_total") == 3
    assert registry.get_sample_value("tidegate_canary_acknowledged_total") == 1


def test_a_broker_that_is_slow_to_refuse_hides_none_of_what_was_due(registry: CollectorRegistry) -> None:
    stop, every = threading.Event(), 0.002

    def refuse_late() -> None:
        until = time.monotonic() + 20 * every
        while time.monotonic() < until:
            pass
        refuse()

    _publish(Broker(stop, refuse_late, turns=1), Canary(CanaryMetrics(registry), boot=5, late_seconds=60), every, stop)  # type: ignore[arg-type]

    published = registry.get_sample_value("tidegate_canary_published_total")
    assert published is not None
    assert published >= 20


def test_a_broker_that_answers_nothing_holds_up_no_count(registry: CollectorRegistry) -> None:
    stop = threading.Event()
    broker = Broker(stop, lambda: None, turns=10**9)
    canary = Canary(CanaryMetrics(registry), boot=5, late_seconds=60)
    thread = threading.Thread(target=_publish, args=(broker, canary, 1e-4, stop))
    thread.start()

    def published() -> float:
        return registry.get_sample_value("tidegate_canary_published_total") or 0.0

    while broker.sent < MOST_WAITING:
        thread.join(0.01)
    until = published() + MOST_WAITING
    while published() < until:
        thread.join(0.01)
    stop.set()
    thread.join()

    assert broker.sent == MOST_WAITING


def test_the_hops_are_between_the_clocks_and_sum_to_the_whole() -> None:
    sent = NOW.timestamp()
    row = rows((1, 1)).to_pylist()[0]
    hops = HopClocks.of_row(row, published_at=sent, committed_at=sent + 0.3, seen_at=sent + 0.35).hops()

    assert list(hops) == list(HOPS)
    assert [round(seconds * 1000, 1) for seconds in hops.values()] == [10.0, 2.5, 199.5, 88.0, 50.0]
    assert sum(hops.values()) == pytest.approx(0.35)


def test_a_negative_hop_counts_as_nothing_and_is_stated_until_it_is_forgotten(registry: CollectorRegistry) -> None:
    times = HopTimes(CanaryMetrics(registry))
    times.observe(HopClocks(10.0, 9.75, 9.8, 10.0, 10.1, 10.2))

    assert skew(registry, "device_to_gateway") == pytest.approx(-0.25)
    assert bucket(registry, "device_to_gateway", "0.001") == 1
    assert registry.get_sample_value("tidegate_canary_hop_seconds_sum", {"hop": "device_to_gateway"}) == 0
    assert [skew(registry, hop) for hop in HOPS[1:]] == [0, 0, 0, 0]

    for _ in range(100):
        times.observe(HopClocks(10.0, 10.1, 10.2, 10.3, 10.4, 10.5))
    assert skew(registry, "device_to_gateway") == 0


def test_a_clock_of_whole_milliseconds_is_no_skew(registry: CollectorRegistry) -> None:
    # Received at 10.0009, appended at 10.00095, which Kafka tells as 10.000.
    times = HopTimes(CanaryMetrics(registry))
    times.observe(HopClocks(10.0, 10.0009, 10.000, 10.2, 10.3, 10.4))

    assert skew(registry, "gateway_to_kafka") == 0
    assert bucket(registry, "gateway_to_kafka", "0.001") == 1


def test_each_reading_has_a_trace_context_that_the_gateway_takes() -> None:
    made = {new_traceparent() for _ in range(3)}

    assert len(made) == 3
    assert all(traceparent(text) == text for text in made)
