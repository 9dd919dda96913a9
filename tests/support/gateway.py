"""A gateway between a scripted broker and a log in memory, whose loop turns only while a test waits for something."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.gateway_settings import GatewaySettings, MqttSettings, RouteSettings
from gateway.lease.gateway_lease import GatewayLease
from gateway.policy import ReadingPolicy
from gateway.route_reload import ReadRoutes, no_route_update
from gateway.service import GatewayService
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.errors import RetryableError
from ingest.contract.outcome import OutcomeRecord, decode_outcome
from ingest.contract.reading import decode_record
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.log import LogWriter
from ingest.memory import MemoryLog
from monitoring.metrics.gateway import GatewayMetrics


class GatewayRig:
    """A gateway whose loop turns only while the test waits for something."""

    def __init__(
        self,
        broker: Any,
        registry: CollectorRegistry,
        *,
        policy: ReadingPolicy | None = None,
        read_routes: ReadRoutes = no_route_update,
        make_lease: Callable[[MemoryLog], GatewayLease] | None = None,
        mqtt: Mapping[str, Any] | None = None,
        route: RouteSettings | None = None,
        **limits: Any,
    ) -> None:
        self.log = MemoryLog()
        self.registry = registry
        self.stop = threading.Event()
        self.opened = 0
        self.refuse_open = 0
        session = {"port": broker.port, "protocol": broker.protocol, "reconnect_max_seconds": 0.05, "client_id": "gate"}
        self.service = GatewayService(
            MqttSettings.model_validate({**session, **(mqtt or {})}),
            GatewaySettings(**limits),
            (route or RouteSettings(filter="site/#"),),
            self._open,
            GatewayMetrics(registry, reasons=Reason, ignored_reasons=IgnoredReason),
            policy=policy,
            read_routes=read_routes,
            lease=None if make_lease is None else make_lease(self.log),
        )
        broker.pump = self.pump

    def _open(self, stop: threading.Event, tell: Callable[[str], None]) -> LogWriter:
        if self.refuse_open:
            self.refuse_open -= 1
            raise RetryableError("waiting for Kafka at nowhere", retry_after_seconds=0.01)
        self.opened += 1
        return self.log.writer()

    def pump(self) -> None:
        self.service._pass(self.stop)

    def until(self, condition: Callable[[], Any], what: str = "the condition") -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come true"
            self.pump()

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    def outcomes(self) -> list[OutcomeRecord]:
        return [decode_outcome(record.value) for record in self.log.records(OUTCOMES) if record.value]

    def seqs(self) -> list[int | None]:
        return [decode_record(record.value).seq for record in self.log.records(READINGS) if record.value]

    def reasons(self) -> list[str]:
        return [decode_dead_letter(record.value).reason for record in self.log.records(DEAD_LETTERS) if record.value]


@pytest.fixture
def new_gateway(
    scripted_broker: Any, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., GatewayRig]]:
    """`new_gateway(**limits)` makes a gateway; it has this test's metrics registry unless it is given another."""
    monkeypatch.setattr("gateway.service.IDLE_SECONDS", 0.01)
    made: list[GatewayRig] = []

    def make(metrics: CollectorRegistry = registry, **limits: Any) -> GatewayRig:
        made.append(GatewayRig(scripted_broker, metrics, **limits))
        return made[-1]

    yield make
    for gateway in made:
        gateway.service._session.drop("end of test")


@pytest.fixture
def gateway_rig(new_gateway: Callable[..., GatewayRig]) -> GatewayRig:
    """One such gateway with the usual limits."""
    return new_gateway()
