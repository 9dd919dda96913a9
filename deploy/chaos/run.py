"""Run of faults one after another: start the load, break, repair, wait until Kafka has every message, judge.

A reader follows the records of the gateways in Kafka meanwhile.
"""

import contextlib
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from deploy.chaos.faults import ChaosFault
from deploy.chaos.numbered_load import NumberedLoad
from deploy.chaos.proxy import LinkProxy
from deploy.chaos.scene import PROTOCOLS, FaultScene
from deploy.chaos.testbed import ChaosTestbed, GatewayProcess, new_broker, open_kafka
from deploy.chaos.verdict import DeliveryVerdict, MessageKey, RecordedMessages, judge
from deploy.testbed.node import KafkaNode
from deploy.testbed.server_process import SingleServer
from ingest.contract.errors import RetryableError
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.read.offset_range import read_range
from ingest.topics.admin import wait_for_kafka
from ingest.topics.offsets import begin_offsets, end_offsets
from ingest.topics.setup import ensure_topics

__all__ = ["KafkaReader", "any_failed", "run_faults"]

CALM_SECONDS: Final = 3.0
"""Time with load but without fault, before and after the fault."""
RECOVERY_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 0.25
KEEPALIVE_SECONDS: Final = 10


class KafkaReader:
    """Reader of the records of these gateways, from its creation on; other gateways may use the same Kafka."""

    def __init__(self, kafka: KafkaSettings, *gateways: str) -> None:
        self._kafka, self._gateways = kafka, frozenset(gateways)
        self._at = {topic: end_offsets(kafka, topic) for topic in (READINGS, DEAD_LETTERS, OUTCOMES)}
        self.landed = RecordedMessages()

    def look(self) -> RecordedMessages:
        """Read new records; return everything since the reader was made.

        Raises:
            RetryableError: Kafka does not answer.
        """
        take = {
            READINGS: self.landed.add_readings,
            DEAD_LETTERS: self.landed.add_dead_letters,
            OUTCOMES: self.landed.add_outcomes,
        }
        for topic, add in take.items():
            until = end_offsets(self._kafka, topic)
            start = self._at[topic] or begin_offsets(self._kafka, topic)
            for batch in read_range(self._kafka, topic, start, until):
                add(batch, self._gateways)
            self._at[topic] = until
        return self.landed


def run_faults(
    faults: Sequence[ChaosFault],
    folder: Path,
    *,
    seconds: Callable[[ChaosFault], float],
    seed: int,
    rate: float,
    tell: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Run the faults; return one result per fault and MQTT version, as `chaos run --json` prints them.

    Args:
        faults: faults in the order of their runs. They share a Kafka; each has its own broker and gateways.
        folder: folder for the servers' files and all logs.
        seconds: duration of a fault.
        seed: seed of all random choices.
        rate: messages per second.
        tell: gets a sentence about each step.
    """
    results: list[dict[str, Any]] = []
    if not faults:
        return results
    with open_kafka(folder) as kafka:
        for fault in faults:
            lasts = seconds(fault)
            tell(f"{fault.id}: {fault.title}, {lasts:g} s at {rate:g} messages/s")
            results += _run_fault(fault, folder / fault.id, kafka, seconds=lasts, seed=seed, rate=rate)
    return results


def _run_fault(
    fault: ChaosFault, folder: Path, kafka: SingleServer | KafkaNode, *, seconds: float, seed: int, rate: float
) -> list[dict[str, Any]]:
    with _scene(folder, kafka, seconds=seconds, seed=seed) as scene:
        readers = {one.name: KafkaReader(one.settings.kafka, one.name) for one in scene.gateways}
        scene.start()
        with _peak_memory(scene.gateways) as peaks:
            scene.load.start(rate)
            time.sleep(CALM_SECONDS)
            fault.inject(scene)
            ended_at, before = time.monotonic(), _binding(scene)
            recovered = {name: _recover(reader, before, ended_at) for name, reader in readers.items()}
            time.sleep(CALM_SECONDS)
            acknowledged = scene.load.finish(seconds=60.0)
            for reader in readers.values():
                _recover(reader, _binding(scene), time.monotonic())
        common = {"fault": fault.id, "seed": seed, "seconds": seconds, "rate": rate, **scene.figures}
        results = []
        for protocol, gateway in zip(PROTOCOLS, scene.gateways, strict=True):
            verdict = _settle(scene, readers[gateway.name])
            connections = gateway.metric("tidegate_gateway_connections_total")
            results.append(
                {
                    **common,
                    "protocol": protocol,
                    **_figures(verdict, scene),
                    "unacknowledged": 0 if acknowledged else len(scene.load.sent) - len(scene.load.acknowledged),
                    "recovery_s": recovered[gateway.name],
                    "peak_rss_mb": round(peaks[gateway.name], 1),
                    "connections": None if fault.restarts or math.isnan(connections) else int(connections),
                    "examples": verdict.examples,
                }
            )
        return results


@contextlib.contextmanager
def _scene(folder: Path, kafka: SingleServer | KafkaNode, *, seconds: float, seed: int) -> Iterator[FaultScene]:
    with contextlib.ExitStack() as opened:
        broker, login = opened.enter_context(new_broker(folder))
        stage = ChaosTestbed(folder, broker, kafka, **login)
        opened.callback(stage.close)
        proxies = [LinkProxy((broker.part.host, broker.part.port), seed=seed) for _ in PROTOCOLS]
        for proxy in proxies:
            opened.callback(proxy.close)
        gateways: list[GatewayProcess] = []
        for protocol, proxy in zip(PROTOCOLS, proxies, strict=True):
            name = f"{folder.name.lower()}-{seed}-mqtt-{protocol}"
            mqtt = {"protocol": protocol, "port": proxy.port, "keepalive_seconds": KEEPALIVE_SECONDS}
            gateways.append(stage.gateway(stage.settings(name, mqtt=mqtt)))
        settings = stage.settings("load")
        _prepare(gateways[0])
        load = NumberedLoad(settings.mqtt, name=f"{folder.name.lower()}-{seed}", devices=50, boot=int(time.time()))
        opened.callback(load.close)
        yield FaultScene(stage, load, gateways, proxies, seconds, random.Random(seed))  # noqa: S311 - must repeat


def _prepare(gateway: GatewayProcess) -> None:
    kafka = gateway.settings.kafka
    wait_for_kafka(kafka, threading.Event(), lambda text: None)
    ensure_topics(kafka)


@contextlib.contextmanager
def _peak_memory(gateways: Sequence[GatewayProcess]) -> Iterator[dict[str, float]]:
    """Measure the peak memory of each gateway while the block runs."""
    peaks = dict.fromkeys([gateway.name for gateway in gateways], 0.0)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            for gateway in gateways:
                peaks[gateway.name] = max(peaks[gateway.name], gateway.resident_mb)

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()


def _recover(reader: KafkaReader, wanted: set[MessageKey], since: float) -> float | None:
    """Return the seconds until Kafka has all wanted messages; None if that did not happen in time."""
    missing, seen = set(wanted), 0
    while time.monotonic() - since < RECOVERY_SECONDS:
        with contextlib.suppress(RetryableError):
            reader.look()
        missing -= reader.landed.keys(seen)
        seen = len(reader.landed.readings)
        if not missing:
            return round(time.monotonic() - since, 1)
        time.sleep(LOOK_SECONDS)
    return None


def _settle(scene: FaultScene, reader: KafkaReader) -> DeliveryVerdict:
    """Return the verdict. It waits a moment: the last outcomes may come after the readings that they count."""
    for _ in range(20):
        verdict = judge(scene.load.sent, _binding(scene), reader.look(), by_device=scene.by_device)
        if not verdict.unexplained:
            break
        time.sleep(LOOK_SECONDS)
    return verdict


def _binding(scene: FaultScene) -> set[MessageKey]:
    """Return the acknowledged messages that Kafka must have, without those that the broker itself may have lost."""
    acknowledged = list(scene.load.acknowledged_at.items())  # a copy, because the load continues
    return {key for key, at in acknowledged if not any(begin <= at <= end for begin, end in scene.forgotten)}


def _figures(verdict: DeliveryVerdict, scene: FaultScene) -> dict[str, Any]:
    names = ("sent", "stored", "lost", "duplicate", "repeated", "reordered", "unexplained")
    figures = {name: getattr(verdict, name) for name in names}
    if scene.forgotten:
        figures["forgotten_by_broker"] = len(set(scene.load.acknowledged)) - verdict.acknowledged
    return figures


def any_failed(results: Sequence[dict[str, Any]]) -> bool:
    """True if any run broke a promise."""
    names = ("lost", "duplicate", "reordered", "unexplained")
    return any(result[name] for result in results for name in names) or any(
        result["recovery_s"] is None for result in results
    )
