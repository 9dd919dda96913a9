"""What metrics may cost: series that do not grow with the fleet, a short scrape, and a small share of the gateway's time.

The gateway here is the real one without its sockets: messages come in as the session hands them over, records go to a log in
memory, reports come back and are accounted.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from gateway.gateway_settings import GatewaySettings, MqttSettings, ReceiptSettings
from gateway.metric_accumulator import MetricAccumulator
from gateway.mqtt.session_events import Plain
from gateway.replies.receipts import make_receipts
from gateway.service import GatewayService
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import READINGS, topic_specs
from ingest.memory import MemoryLog
from lakehouse.derived_tables import ALL_TABLES
from monitoring.metrics.canary import CanaryMetrics
from monitoring.metrics.families import Samples
from monitoring.metrics.gateway import GatewayMetrics
from monitoring.metrics.monitor import PROBES, MonitorMetrics
from monitoring.metrics.process_metrics import build_info, process_metrics
from monitoring.metrics.stream import StreamMetrics
from streaming.background_tasks import CHORE_NAMES

MOST_SERIES, MOST_SECONDS = 2_000, 0.2
PASS_MESSAGES = 50
"""What a pass of the gateway's loop finds at some 1,500 messages a second."""
SQL_STREAMS = 20


class Gateway:
    """Messages in, accounted at the end; `spent` are the seconds in it, and of those in the metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        metrics = GatewayMetrics(registry, reasons=list(Reason), ignored_reasons=list(IgnoredReason))
        limits, log = GatewaySettings(), MemoryLog()
        receipts = make_receipts(ReceiptSettings(), (), limits, metrics)
        self._writer = log.writer()
        self._service = GatewayService(MqttSettings(), limits, (), lambda *_: self._writer, metrics, receipts=receipts)
        self._log = log
        self._service._log = self._writer
        self._service._session.acknowledge = lambda epoch, mids: len(mids)  # type: ignore[method-assign]
        self._service.connected(1, session_lost=False)

    def take(self, messages: list[Plain], *, at_once: int = PASS_MESSAGES) -> None:
        for at in range(0, len(messages), at_once):
            self._service.received(messages[at : at + at_once])
            while self._service._deliverer.busy:
                self._service._deliverer.run_once(self._writer, 0.0)
            self._service._accounts.flush(in_flight=self._service._chain.in_flight, stale_reports=0)

    def records(self) -> int:
        return len(self._log.records(READINGS))


def messages_of(devices: int, count: int, *, seed: int = 1) -> Iterator[Plain]:
    """Messages of devices that are named by random MAC addresses, one in twenty of them wrong in one of several ways."""
    chance = random.Random(seed)
    macs = [chance.randbytes(6).hex(":") for _ in range(devices)]
    wrong = [b"{", b'{"values": {"t": [1]}}', b'{"ts": "no time", "values": {"t": 1}}', b"\xff", b""]
    for number in range(count):
        topic = f"tidegate/v1/{macs[number % devices]}/readings"
        payload = b'{"boot": 1, "seq": %d, "values": {"temperature": 21.5, "on": true}}' % (number // devices)
        if number % 20 == 7:
            payload = wrong[number // 20 % len(wrong)]
        elif number % 20 == 11:
            topic = f"{macs[number % devices]}/of/no/route"
        yield topic.encode(), payload, (number % 65_535 + 1).to_bytes(2, "big")


def series(registry: CollectorRegistry) -> int:
    return sum(line[:1] not in {b"#", b""} for line in generate_latest(registry).splitlines())


def figure(registry: CollectorRegistry, what: str) -> float:
    name = f"tidegate_gateway_messages_{what}_total"
    samples = (sample for family in registry.collect() for sample in family.samples if sample.name == name)
    return sum(sample.value for sample in samples)


def test_a_hundred_thousand_devices_make_no_more_series_than_ten(registry: CollectorRegistry) -> None:
    gateway = Gateway(registry)
    gateway.take(list(messages_of(10, 2_000)))
    few = series(registry)
    gateway.take(list(messages_of(100_000, 100_000, seed=2)), at_once=500)

    assert series(registry) == few
    assert figure(registry, "received") == 102_000
    assert figure(registry, "accepted") == gateway.records() == 102_000 * 0.9
    assert figure(registry, "rejected") + figure(registry, "ignored") == 102_000 * 0.1


def filled_probes() -> Iterator[tuple[str, Samples]]:
    """Every family of the monitor with as many series as a cluster with the default topics and a fleet has."""
    kept: dict[str, Any] = {"max_record_bytes": 10**6, "retention_bytes": 10**9, "retention_ms": 10**9}
    specs = topic_specs(partitions=6, **kept)
    streams = [f"telemetry.stream.s{number}" for number in range(SQL_STREAMS)]
    partitions = [(spec.name, str(part)) for spec in specs for part in range(spec.partitions)]
    partitions += [(name, str(part)) for name in streams for part in range(6)]
    groups = [("tidegate-land", READINGS, str(part)) for part in range(6)]
    values: dict[tuple[str, ...], list[tuple[str, ...]]] = {
        (): [()],
        ("topic",): [(topic,) for topic in sorted({topic for topic, _ in partitions})],
        ("topic", "partition"): partitions,
        ("consumergroup", "topic", "partition"): groups,
        ("consumergroup", "topic"): sorted({group[:2] for group in groups}),
        ("mode",): [(mode,) for mode in ("user", "system", "idle", "iowait", "irq", "softirq", "steal", "nice")],
        ("mountpoint",): [("/",), ("/data",)],
        ("outcome",): [(outcome,) for outcome in ("received", "stored", "dead_lettered", "ignored", "duplicate")],
        ("server",): [("mqtt",), ("kafka",)],
    }
    for probe, families in PROBES.items():
        yield probe, {family.name: [(labels, 1.0) for labels in values[family.labels]] for family in families}


@pytest.fixture
def served() -> dict[str, CollectorRegistry]:
    """The registries of all processes in a busy pipeline."""
    made = {part: CollectorRegistry() for part in ("gateway", "stream", "canary", "monitor")}
    Gateway(made["gateway"]).take(list(messages_of(1_000, 2_000)))
    topics = (READINGS, "telemetry.dead-letters")
    stream = StreamMetrics(made["stream"], query="land", tables=ALL_TABLES, topics=topics, chores=CHORE_NAMES)
    for number in range(SQL_STREAMS):
        stream.sql.add(f"s{number}")
    for figure in ("files", "small_files", "bytes", "snapshot_load", "maintained"):
        for table in ALL_TABLES:
            getattr(stream, f"table_{figure}").labels(table).set(1)
    CanaryMetrics(made["canary"])
    monitor = MonitorMetrics(made["monitor"])
    for probe, samples in filled_probes():
        monitor.families.replace(probe, samples)
    for part, registry in made.items():
        build_info(registry, "1.0", part)
        process_metrics(registry)
    return made


def test_all_processes_together_serve_fewer_series_than_two_thousand(served: dict[str, CollectorRegistry]) -> None:
    counted = {part: series(registry) for part, registry in served.items()}

    assert sum(counted.values()) < MOST_SERIES, counted
    assert min(counted.values()) > 50, counted


def test_a_scrape_is_rendered_in_well_under_200_ms(served: dict[str, CollectorRegistry]) -> None:
    def seconds(registry: CollectorRegistry) -> float:
        began = time.thread_time()
        generate_latest(registry)
        return time.thread_time() - began

    medians = {part: statistics.median(seconds(registry) for _ in range(9)) for part, registry in served.items()}

    assert max(medians.values()) < MOST_SECONDS, medians


@contextmanager
def timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Seconds in each call of `MetricAccumulator`, the only way of the gateway's core to its metrics."""
    spent: list[float] = []

    def measured(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            began = time.thread_time()
            try:
                return original(*given, **more)
            finally:
                spent.append(time.thread_time() - began)

        return call

    with monkeypatch.context() as patch:
        for name in ("received", "flush", "batch", "replied"):
            patch.setattr(MetricAccumulator, name, measured(getattr(MetricAccumulator, name)))
        yield spent


def test_metrics_take_a_small_share_of_the_gateways_time(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share is of the core alone: with the sockets and Kafka's client it is less than half of that again."""
    gateway, shares = Gateway(registry), []
    for seed in range(5):
        messages = list(messages_of(1_000, 5_000, seed=seed))
        with timed(monkeypatch) as spent:
            began = time.thread_time()
            gateway.take(messages)
            shares.append(sum(spent) / (time.thread_time() - began))

    assert statistics.median(shares) < 0.10, shares
