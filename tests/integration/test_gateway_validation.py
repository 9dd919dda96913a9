"""Profiles, registry and rate in a running gateway: taken in under traffic, refused when bad, a flood beside a good one."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.device_registry import add_device
from gateway.gateway_settings import GatewaySettings, MqttSettings
from gateway.profiles.policy import make_policy
from gateway.service import GatewayService
from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.log import LogWriter
from ingest.memory import MemoryLog
from monitoring.metrics.gateway import GatewayMetrics

PUBACK = 4


def profile(version: int, limit: float) -> str:
    return f'name = "pump"\nversion = {version}\ndevices = ["pump-*"]\npolicy = "reject"\n[metrics.t]\nmax = {limit}\n'


class Rig:
    """A gateway whose loop turns only while the test waits for something; its looks at the disk come at once."""

    def __init__(self, broker: Any, registry: CollectorRegistry, **settings: Any) -> None:
        self.log, self.registry, self.mid = MemoryLog(), registry, 0
        limits = GatewaySettings(**settings)
        metrics = GatewayMetrics(registry, reasons=Reason, ignored_reasons=IgnoredReason)
        self.policy = make_policy(limits, metrics=metrics)
        mqtt = MqttSettings.model_validate(
            {"port": broker.port, "protocol": broker.protocol, "reconnect_max_seconds": 0.05, "client_id": "gate"}
        )
        self.service = GatewayService(mqtt, limits, (), self._open, metrics, policy=self.policy)
        self._stop = threading.Event()
        broker.pump = self.pump

    def _open(self, stop: threading.Event, tell: Callable[[str], None]) -> LogWriter:
        return self.log.writer()

    def pump(self) -> None:
        self.service._pass(self._stop)

    def publish(self, link: Any, device: str, value: float, seq: int) -> None:
        self.mid = self.mid % 60_000 + 1
        payload = json.dumps({"boot": 1, "seq": seq, "values": {"t": value}}).encode()
        link.publish(f"tidegate/v1/{device}/readings".encode(), payload, self.mid)

    def until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come true"
            self.pump()

    def readings(self) -> list[ReadingRecord]:
        return [decode_record(record.value) for record in self.log.records(READINGS) if record.value]

    def letters(self) -> list[DeadLetterRecord]:
        return [decode_dead_letter(record.value) for record in self.log.records(DEAD_LETTERS) if record.value]

    def metric(self, name: str) -> float:
        return self.registry.get_sample_value(name) or 0.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.service.IDLE_SECONDS", 0.01)
    monkeypatch.setattr("gateway.service.TICK_SECONDS", 0.05)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "pump.toml").write_text(profile(1, 100))
    (tmp_path / "devices.jsonl").touch()
    return tmp_path


@pytest.fixture
def rig(scripted_broker: Any, registry: CollectorRegistry, place: Path) -> Iterator[Rig]:
    made = Rig(
        scripted_broker, registry, profiles=str(place / "profiles"), device_registry=str(place / "devices.jsonl"),
        unregistered="quarantine",
    )  # fmt: skip
    yield made
    made.service._session.drop("end of test")


def test_profiles_and_devices_change_under_traffic_and_nothing_is_lost(
    scripted_broker: Any, rig: Rig, place: Path
) -> None:
    link = scripted_broker.accept()
    link.handshake()
    add_device(place / "devices.jsonl", "pump-1")
    reloads = "tidegate_gateway_profile_reloads_total"
    seq = 0

    def send_until(condition: Callable[[], Any], what: str) -> None:
        """Traffic goes on while the gateway finds what changed."""
        nonlocal seq

        def turn() -> Any:
            nonlocal seq
            seq += 1
            rig.publish(link, "pump-1", 50.0, seq)
            rig.publish(link, "pump-2", 50.0, seq)
            assert link.packet(PUBACK).kind == PUBACK
            assert link.packet(PUBACK).kind == PUBACK
            return condition()

        rig.until(turn, what)

    send_until(lambda: rig.metric(reloads) == 1, "the registered device is known")
    (place / "profiles" / "pump.toml").write_text(profile(2, 10))
    send_until(lambda: rig.metric(reloads) == 2, "the new profile applies")
    send_until(lambda: True, "one more message")
    (place / "profiles" / "pump.toml").write_text("name = [")
    send_until(lambda: rig.metric("tidegate_gateway_profile_files_refused") == 1, "the bad file is refused")
    send_until(lambda: True, "one more message")
    assert rig.letters()[-2].profile == "pump@2", "the old one stays"
    (place / "profiles" / "pump.toml").write_text(profile(3, 60))
    send_until(lambda: rig.metric(reloads) == 3, "the mended file applies")
    send_until(lambda: True, "one more message")
    stored = {(one.device, one.seq) for one in rig.readings()}
    refused = Counter((one.device, one.reason) for one in rig.letters())
    assert len(stored) + sum(refused.values()) == 2 * seq, "each message is stored or a dead letter"
    assert ("pump-1", seq) in stored
    assert refused["pump-2", Reason.UNKNOWN_DEVICE] == seq
    assert refused["pump-1", Reason.OUT_OF_RANGE] >= 4


def test_a_flood_is_refused_at_once_and_holds_up_nobody(scripted_broker: Any, registry: CollectorRegistry) -> None:
    rig = Rig(scripted_broker, registry, device_rate=1, device_burst=20, device_catch_up_seconds=0)
    link = scripted_broker.accept()
    link.handshake()
    for seq in range(1, 201):
        for _ in range(5):
            rig.publish(link, "flood", 1.0, seq)
        if seq % 20 == 0:
            rig.publish(link, "good", 1.0, seq)
    mids = [link.packet(PUBACK).mid for _ in range(1010)]
    assert mids == list(range(1, 1011)), "in the order received, none held"
    assert sum(one.device == "good" for one in rig.readings()) == 10
    reasons = Counter((one.device, one.reason) for one in rig.letters())
    assert set(reasons) == {("flood", Reason.RATE_LIMITED)}
    flood = sum(one.device == "flood" for one in rig.readings())
    assert flood + reasons["flood", Reason.RATE_LIMITED] == 1000
    assert 20 <= flood < 1000
    rig.service._session.drop("end of test")


def test_what_kafka_had_not_confirmed_comes_again_and_is_neither_charged_nor_compared_twice(
    scripted_broker: Any, registry: CollectorRegistry, place: Path
) -> None:
    text = profile(1, 1000).replace("max =", "max_step = 5\nmax =").replace("reject", "salvage")
    (place / "profiles" / "pump.toml").write_text(text)
    rig = Rig(
        scripted_broker, registry, profiles=str(place / "profiles"), device_rate=0.001, device_burst=7,
        device_catch_up_seconds=0,
    )  # fmt: skip
    link = scripted_broker.accept()
    link.handshake()
    rig.publish(link, "pump-1", 20.0, 1)
    link.packet(PUBACK)
    rig.log.hold()
    sent = [(2, 24.0), (3, 85.0), (4, 24.0), (5, 60.0), (6, 61.0), (7, 61.0)]
    for seq, value in sent:
        rig.publish(link, "pump-1", value, seq)
    rig.until(lambda: rig.service._chain.in_flight == 6, "all are received")
    link.close()
    rig.log.release()
    again = scripted_broker.accept()
    again.handshake(session_present=True)
    for seq, value in sent:
        rig.publish(again, "pump-1", value, seq)
    for _ in sent:
        again.packet(PUBACK)
    rig.publish(again, "pump-1", 61.0, 8)
    again.packet(PUBACK)
    stored = {one.seq for one in rig.readings()}
    refused = {one.reason for one in rig.letters()}
    assert stored == {1, 2, 4, 6, 7}
    assert refused == {Reason.STEP_EXCEEDED, Reason.RATE_LIMITED}
    assert [one.reason for one in rig.letters()].count(Reason.RATE_LIMITED) == 1, "the eighth message alone"
    rig.service._session.drop("end of test")
