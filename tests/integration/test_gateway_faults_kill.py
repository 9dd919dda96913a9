"""The gateway killed between any two steps of a message's way, and asked to stop amid the load (F1-F4)."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.durable_broker

STEPS = {
    "received, not produced": ("telemetry.readings", "before produce"),
    "produced, not sent": ("telemetry.readings", "after produce"),
    "in Kafka, report not seen": ("telemetry.readings", "before report"),
    "reported, outcome not produced": ("telemetry.outcomes", "before produce"),
    "outcome in Kafka, PUBACK not sent": ("telemetry.outcomes", "before report"),
    "PUBACK written, perhaps not sent": ("telemetry.outcomes", "after report"),
}
DYING = """
import os, signal
import confluent_kafka

def reached(topic, step):
    if (topic, step) == ({topic!r}, {step!r}):
        os.kill(os.getpid(), signal.SIGKILL)

flying, landed = set(), set()

class Producer(confluent_kafka.Producer):
    # Good reports come as no report at all: what was produced has arrived once nothing is left in the client.
    def produce_batch(self, topic, *arguments, **named):
        self.after_report()
        reached(topic, "before produce")
        answer = super().produce_batch(topic, *arguments, **named)
        flying.add(topic)
        reached(topic, "after produce")
        return answer

    def poll(self, *arguments):
        self.after_report()
        return super().poll(*arguments)

    def __len__(self):
        left = super().__len__()
        if not left:
            for topic in flying:
                reached(topic, "before report")
            landed.update(flying)
            flying.clear()
        return left

    def after_report(self):
        for topic in landed:
            reached(topic, "after report")
        landed.clear()

confluent_kafka.Producer = Producer
from deploy.cli import main
main()
"""


def test_kill_9_at_each_step_of_a_message_loses_nothing(
    fault_rig: Callable[..., Any],
    start_all: Callable[..., None],
    assert_whole: Callable[..., Any],
) -> None:
    """Each life ends at the next step, the first of them amid the redelivery of what the life before left."""
    rig = fault_rig()
    gateways = [rig.add("5"), rig.add("3.1.1")]
    start_all(rig)
    rig.load.send(8)
    for gateway in gateways:
        gateway.kill()
    for topic, step in STEPS.values():
        rig.load.send(40)
        for gateway in gateways:
            gateway.start(DYING.format(topic=topic, step=step))
        for gateway in gateways:
            assert gateway.wait(90) == -signal.SIGKILL, (step, gateway.log()[-1000:])
    rig.load.send(40)
    start_all(rig)
    for verdict in assert_whole(rig):
        assert verdict.repeated > 0, "no life ended after Kafka had something that was not acknowledged yet"


def test_a_message_without_identity_is_there_and_says_that_it_has_none(
    fault_rig: Callable[..., Any], start_all: Callable[..., None], wait_until: Any
) -> None:
    """It was in Kafka before the gateway died, and is redelivered: at least once, and each copy flagged."""
    rig = fault_rig()
    gateways = [rig.add("5"), rig.add("3.1.1")]
    start_all(rig)
    for gateway in gateways:
        gateway.kill()
        gateway.start(DYING.format(topic="telemetry.outcomes", step="before report"))
    for number in range(20):
        payload = b'{"values":{"count":%d}}' % number
        assert rig.load._publisher.publish(f"tidegate/v1/{rig.name}-nameless/readings", payload)
    for gateway in gateways:
        assert gateway.wait(90) == -signal.SIGKILL, gateway.log()[-1000:]
        gateway.start()
    for gateway in gateways:
        wait_until(lambda one=gateway: len(numbers(rig, one)) == 20, what="all stored")
        for _, reading in rig.landed(gateway).readings:
            assert reading.message_id is not None or "no_identity" in (reading.flags or ())


def numbers(rig: Any, gateway: Any) -> set[float]:
    return {value.value for _, reading in rig.landed(gateway).readings for value in reading.readings}


def test_a_stop_amid_the_load_leaves_nothing_twice(
    fault_rig: Callable[..., Any], start_all: Callable[..., None], assert_whole: Callable[..., Any], wait_until: Any
) -> None:
    """SIGTERM: what Kafka has is acknowledged before the end, so the broker sends none of it again."""
    rig = fault_rig()
    for protocol in ("5", "3.1.1"):
        rig.add(protocol)
    start_all(rig)
    rig.load.start(300)
    for _ in range(2):
        before = len(rig.load.acknowledged)
        wait_until(lambda before=before: len(rig.load.acknowledged) > before + 100, what="the load")
        for gateway in rig.gateways:
            assert gateway.terminate(10) == 0, gateway.log()[-1000:]
        start_all(rig)
    for verdict in assert_whole(rig):
        assert verdict.repeated == 0
