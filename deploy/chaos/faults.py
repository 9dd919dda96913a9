"""The faults of `tidegate chaos`, by their numbers; each breaks one thing in a scene and repairs it again."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from deploy.chaos.scene import FaultScene

__all__ = ["FAULTS", "SKIPPED", "ChaosFault"]

SAVED_SECONDS: Final = 2.5
"""Time before a kill after which mosquitto's acknowledged messages are on its disk: it saves every two seconds, which takes a
moment.
"""
NOTED_SECONDS: Final = 0.5
"""An acknowledgement that left the broker before it was killed is noted by the load this much later at most."""


@dataclass(frozen=True, slots=True)
class ChaosFault:
    """One way in which something breaks.

    Attributes:
        id: its number; `tests/integration` has a short instance of each.
        title: what happens, in a line.
        inject: breaks and repairs; returns after the repair.
        long_seconds: how long it lasts with --long.
        restarts: whether the gateways themselves are ended, so that their connections say nothing.
    """

    id: str
    title: str
    inject: Callable[[FaultScene], None]
    long_seconds: float = 60.0
    restarts: bool = False


def kill_at_random(scene: FaultScene) -> None:
    """Each gateway by turns, at random moments of its life: while it starts, catches up, or keeps up."""
    until, kills = scene.until(), 0
    while time.monotonic() < until:
        gateway = scene.gateways[kills % len(scene.gateways)]
        time.sleep(scene.rng.uniform(0.0, 6.0))
        gateway.kill()
        kills += 1
        gateway.start()
    scene.figures["kills"] = kills
    for gateway in scene.gateways:
        scene.wait(gateway.healthy, 120.0, f"start of {gateway.name}")


def stop_and_start(scene: FaultScene) -> None:
    """Stop with SIGTERM and start again, as an update does; nothing may be stored twice."""
    until, stops = scene.until(), 0
    while time.monotonic() < until:
        gateway = scene.gateways[stops % len(scene.gateways)]
        gateway.terminate()
        stops += 1
        scene.start([gateway])
        time.sleep(scene.rng.uniform(0.5, 2.0))
    scene.figures["stops"] = stops


def hold_gateways(scene: FaultScene) -> None:
    """Stop the gateways until the broker has dropped them, and longer."""
    for gateway in scene.gateways:
        gateway.hold()
    time.sleep(scene.seconds)
    for gateway in scene.gateways:
        gateway.resume_process()


def pulse_gateways(scene: FaultScene) -> None:
    """Give the gateways a little time now and then, as on an overloaded machine."""
    until = scene.until()
    while time.monotonic() < until:
        for gateway in scene.gateways:
            gateway.hold()
        time.sleep(scene.rng.uniform(0.3, 0.9))
        for gateway in scene.gateways:
            gateway.resume_process()
        time.sleep(0.1)


def kill_broker(scene: FaultScene) -> None:
    """Kill with SIGKILL every ten seconds. Acknowledged messages that were not saved yet are the broker's own loss."""
    _kill_broker(scene, forget=False)


def broker_forgets(scene: FaultScene) -> None:
    """Kill with SIGKILL and delete the database: sessions, queues, packet identifiers."""
    _kill_broker(scene, forget=True)


def _kill_broker(scene: FaultScene, *, forget: bool) -> None:
    scene.by_device = False
    until, kills = scene.until(), 0
    while time.monotonic() < until:
        began = time.time()
        scene.broker.kill()
        killed = time.time()
        if forget:
            scene.broker.part.database.unlink(missing_ok=True)
        scene.broker.start()
        kills += 1
        for gateway in scene.gateways:
            scene.wait(gateway.healthy, 120.0, f"connection of {gateway.name}")
        # Without a session, a publisher that is back before the gateways publishes for no one.
        scene.forgotten.append((began - SAVED_SECONDS, time.time() if forget else killed + NOTED_SECONDS))
        time.sleep(min(10.0, max(0.0, until - time.monotonic())))
    scene.figures["broker_kills"] = kills


def hold_broker(scene: FaultScene) -> None:
    """Stop the broker: connections stay open and nothing answers."""
    scene.by_device = False
    scene.broker.hold()
    time.sleep(scene.seconds)
    scene.broker.resume_process()


def silence_links(scene: FaultScene) -> None:
    """Silence the link between broker and gateways without telling either side."""
    for proxy in scene.proxies:
        proxy.silence()
    time.sleep(scene.seconds)
    for proxy in scene.proxies:
        proxy.restore()


def reset_links(scene: FaultScene) -> None:
    """RST to both ends every two seconds or so."""
    until, resets = scene.until(), 0
    while time.monotonic() < until:
        time.sleep(scene.rng.uniform(1.0, 3.0))
        resets += sum(proxy.reset() for proxy in scene.proxies)
    scene.figures["resets"] = resets


@contextmanager
def _links(scene: FaultScene, *, bytes_per_second: int = 0, delay: tuple[float, float] = (0.0, 0.0)) -> Iterator[None]:
    for proxy in scene.proxies:
        proxy.bytes_per_second, proxy.delay_seconds = bytes_per_second, delay
    yield
    for proxy in scene.proxies:
        proxy.bytes_per_second, proxy.delay_seconds = 0, (0.0, 0.0)


def slow_links(scene: FaultScene) -> None:
    """64 kbit/s, far less than what comes."""
    with _links(scene, bytes_per_second=8_000):
        time.sleep(scene.seconds)


def late_links(scene: FaultScene) -> None:
    """Each piece 100 to 300 ms late."""
    with _links(scene, delay=(0.1, 0.3)):
        time.sleep(scene.seconds)


def one_client_id(scene: FaultScene) -> None:
    """Another client takes the first gateway's session over, again and again."""
    first = scene.gateways[0].settings
    other = scene.stage.gateway(
        first.model_copy(
            update={
                "mqtt": first.mqtt.model_copy(update={"session_file": None}),
                "monitoring": first.monitoring.model_copy(update={"gateway_port": 0}),
            }
        ),
        folder="other",
    )
    other.start()
    taken = "already connected, closing old connection"
    scene.wait(lambda: taken in scene.broker.log(), 60.0, "session takeover by the other gateway")
    time.sleep(scene.seconds)
    other.kill()
    scene.figures["takeovers"] = scene.broker.log().count(taken)
    if scene.gateways[0].ended is not None:
        scene.start(scene.gateways[:1])


def kill_kafka(scene: FaultScene) -> None:
    """SIGKILL every fifteen seconds."""
    until, kills = scene.until(), 0
    while time.monotonic() < until:
        scene.kafka.kill()
        time.sleep(scene.rng.uniform(0.0, 3.0))
        scene.kafka.start()
        kills += 1
        time.sleep(min(15.0, max(0.0, until - time.monotonic())))
    scene.figures["kafka_kills"] = kills


def hold_kafka(scene: FaultScene) -> None:
    """Stop Kafka: connections stay open and nothing answers."""
    scene.kafka.hold()
    time.sleep(scene.seconds)
    scene.kafka.resume_process()


FAULTS: Final = tuple(
    ChaosFault(*fields)
    for fields in (
        ("F1", "gateways killed at random moments", kill_at_random, 200.0, True),
        ("F4", "gateways stopped and restarted", stop_and_start, 60.0, True),
        ("F5", "gateways held until the broker drops them", hold_gateways, 90.0),
        ("F7", "broker killed and restarted", kill_broker, 60.0),
        ("F8", "broker killed and its database deleted", broker_forgets, 60.0),
        ("F9", "broker hangs", hold_broker, 300.0),
        ("F10", "link to the broker silent", silence_links, 90.0),
        ("F11", "connections to the broker reset every two seconds", reset_links, 300.0),
        ("F12", "link to the broker at 64 kbit/s", slow_links, 60.0),
        ("F13", "link to the broker delayed by 100 to 300 ms", late_links, 60.0),
        ("F14", "another gateway with the same client id", one_client_id, 60.0, True),
        ("F16", "Kafka killed and restarted", kill_kafka, 120.0),
        ("F17", "Kafka hangs", hold_kafka, 300.0),
        ("F47", "gateways starved of processor time", pulse_gateways, 60.0),
    )
)

_ELSEWHERE: Final = {
    "it needs a moment that only a test can choose: tests/integration/test_gateway_faults_kill.py": ("F2", "F3"),
    "it needs a fault inside the process: tests/integration/test_gateway_client.py": ("F6",),
    "it needs a broker with special settings: tests/integration/test_gateway_faults_broker.py": ("F15", "F50", "F51"),
    "it needs a Kafka with special settings or its own disk: tests/integration/test_gateway_faults_kafka.py": (
        "F18", "F19", "F20", "F23", "F24",
    ),
    "it needs limits on the process: tests/integration/test_gateway_faults_process.py": ("F42", "F43", "F46", "F48"),
    "it needs Spark, which this command does not start": tuple(f"F{number}" for number in range(26, 42)),
}  # fmt: skip
SKIPPED: Final = {fault: why for why, faults in _ELSEWHERE.items() for fault in faults}
"""Faults that this command does not try, and why."""
