"""A pair of gateways on a real broker and Kafka: one is killed, hangs or loses its network, and the other takes over."""

import logging
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.chaos.proxy import LinkProxy
from deploy.chaos.run import KafkaReader
from deploy.chaos.testbed import GatewayProcess
from deploy.chaos.verdict import DeliveryVerdict, judge
from deploy.local.java import find_java
from deploy.local.kafka import EmbeddedKafka, KafkaProfile
from deploy.local.ports import choose_port
from deploy.testbed.server_process import SingleServer

pytestmark = [pytest.mark.durable_broker, pytest.mark.promise("P3")]

logger = logging.getLogger("tests.standby")

LEASE_SECONDS = 10.0
OTHER_MACHINE = """
import gateway.build
gateway.build.machine_name = lambda: ""
{more}
from deploy.cli import main
main()
"""
"""A process that does not know its machine, so that nobody looks for its process id: as on two machines."""
NO_TIMER = "gateway.build.KillTimer = lambda: None"


class Pair:
    """Two processes with the same settings, and what is in Kafka of them."""

    def __init__(self, rig: Any, protocol: str, *, first: dict[str, Any] | None = None) -> None:
        self.rig, name = rig, f"{rig.name}-{protocol.replace('.', '')}"
        self.reader = KafkaReader(rig.kafka_settings, name)
        self.processes: list[GatewayProcess] = []
        for side, more in (("a", first or {}), ("b", {})):
            settings = rig.stage.settings(
                name,
                mqtt={"protocol": protocol, "keepalive_seconds": 5, "session_file": None, **more.get("mqtt", {})},
                gateway={"gateway_id": name, "standby": True, "lease_seconds": LEASE_SECONDS, "conflicts": "warn"},
                kafka=more.get("kafka", {}),
            )
            self.processes.append(rig.stage.gateway(settings, folder=f"{name}-{side}"))

    def start(self, wait_until: Any, *, more: str = "") -> None:
        """The first one works, and the second one waits."""
        for process, state in zip(self.processes, ("lease_held", "standby_waiting"), strict=True):
            process.start(OTHER_MACHINE.format(more=more))
            self.await_state(wait_until, process, state)

    def await_state(self, wait_until: Any, process: GatewayProcess, state: str) -> None:
        wait_until(lambda: process.metric(f"tidegate_gateway_{state}") == 1, what=f"{state}: {process.log()[-500:]}")

    def await_takeover(self, wait_until: Any, process: GatewayProcess) -> float:
        """Seconds until it has the session of the other one."""
        began = time.monotonic()
        wait_until(
            lambda: process.metric("tidegate_gateway_connections_total") == 1,
            seconds=30,
            what=f"the takeover: {process.log()[-500:]}",
        )
        return time.monotonic() - began

    def verdict(self, wait_until: Any, **how: Any) -> DeliveryVerdict:
        """Once all has arrived."""
        load = self.rig.load
        wait_until(lambda: not set(load.sent).difference(self.reader.look().keys()), what="all messages")
        wait_until(lambda: not judge(load.sent, load.sent, self.reader.look()).unexplained, what="the counts")
        return judge(load.sent, load.acknowledged, self.reader.look(), **how)


def await_load(load: Any, wait_until: Any, count: int) -> None:
    """Until so many more messages have their PUBACK."""
    least = len(load.acknowledged) + count
    wait_until(lambda: len(load.acknowledged) >= least, what="the load")


def assert_whole(pair: Pair, wait_until: Any, *, no_late_records: bool = True) -> DeliveryVerdict:
    """Nothing lost, stored twice or out of order; and no record of an epoch comes after one of a later epoch."""
    verdict = pair.verdict(wait_until)
    assert verdict.whole, (verdict, [process.log()[-1000:] for process in pair.processes])
    if no_late_records:
        assert pair.verdict(wait_until, by_device=False).reordered == 0
    for process in pair.processes:
        assert "Traceback" not in process.log(), process.log()
    return verdict


@pytest.fixture
def pairs(fault_rig: Callable[..., Any], wait_until: Any) -> list[Pair]:
    """A pair per MQTT version on one broker."""
    rig = fault_rig()
    made = [Pair(rig, protocol) for protocol in ("5", "3.1.1")]
    for pair in made:
        pair.start(wait_until)
    return made


def test_a_standby_takes_over_after_a_kill_and_back(pairs: list[Pair], wait_until: Any) -> None:
    load = pairs[0].rig.load
    load.start(200)
    for dying, taking in ((0, 1), (1, 0)):
        await_load(load, wait_until, 300)
        for pair in pairs:
            pair.processes[dying].kill()
        for pair in pairs:
            seconds = pair.await_takeover(wait_until, pair.processes[taking])
            logger.info("killed: taken over after %.1f s of a lease of %g s", seconds, LEASE_SECONDS)
        for pair in pairs:
            pair.processes[dying].start(OTHER_MACHINE.format(more=""))
            pair.await_state(wait_until, pair.processes[dying], "standby_waiting")
    assert load.finish()
    for pair in pairs:
        assert_whole(pair, wait_until)
        epochs = {reading.epoch for _, reading in pair.reader.landed.readings}
        assert len(epochs) >= 3, "a connection per holder"


def test_a_holder_that_stands_still_is_dead_before_the_standby_begins(pairs: list[Pair], wait_until: Any) -> None:
    load = pairs[0].rig.load
    load.start(200)
    await_load(load, wait_until, 300)
    for pair in pairs:
        pair.processes[0].hold()
    for pair in pairs:
        seconds = pair.await_takeover(wait_until, pair.processes[1])
        logger.info("stopped: taken over after %.1f s of a lease of %g s", seconds, LEASE_SECONDS)
        assert pair.processes[0].ended == -signal.SIGKILL, "the kernel's timer does not need the process to run"
    await_load(load, wait_until, 300)
    assert load.finish()
    for pair in pairs:
        assert_whole(pair, wait_until)


def test_without_a_timer_a_holder_that_runs_again_ends_and_only_copies_may_be_late(
    fault_rig: Callable[..., Any], wait_until: Any
) -> None:
    rig = fault_rig()
    pairs = [Pair(rig, protocol) for protocol in ("5", "3.1.1")]
    for pair in pairs:
        pair.start(wait_until, more=NO_TIMER)
    rig.load.start(500)
    await_load(rig.load, wait_until, 500)
    for pair in pairs:
        pair.processes[0].hold()
    for pair in pairs:
        pair.await_takeover(wait_until, pair.processes[1])
        pair.processes[0].resume_process()
    for pair in pairs:
        wait_until(lambda one=pair.processes[0]: one.ended is not None, what="the end of the first one")
        assert pair.processes[0].ended == 1
        assert "could not renew the lease" in pair.processes[0].log()
    assert rig.load.finish()
    for pair in pairs:
        assert_whole(pair, wait_until, no_late_records=False)


def test_a_stop_hands_the_session_over_at_once_and_without_a_copy(pairs: list[Pair], wait_until: Any) -> None:
    load = pairs[0].rig.load
    load.start(200)
    await_load(load, wait_until, 300)
    for pair in pairs:
        assert pair.processes[0].terminate(10) == 0
        seconds = pair.await_takeover(wait_until, pair.processes[1])
        logger.info("stopped by SIGTERM: taken over after %.1f s", seconds)
        assert "ended without releasing" not in pair.processes[1].log()
    assert load.finish()
    for pair in pairs:
        assert assert_whole(pair, wait_until).repeated == 0


class CutKafka:
    """A Kafka with a second address behind a link that a test can cut."""

    def __init__(self, folder: Path) -> None:
        port, controller, behind = (choose_port(0)[0] for _ in range(3))
        self.proxy = LinkProxy(("127.0.0.1", behind))
        properties: dict[str, str | int | None] = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},CUT://127.0.0.1:{behind}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},CUT://127.0.0.1:{self.proxy.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CUT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        part = EmbeddedKafka(
            folder / "kafka", find_java(), port, controller, heap="256m", profile=KafkaProfile(properties=properties)
        )
        self.server = SingleServer(part, folder / "kafka.log")

    def close(self) -> None:
        self.server.kill()
        self.proxy.close()


@pytest.fixture
def cut_kafka(tmp_path: Path) -> Iterator[CutKafka]:
    kafka = CutKafka(tmp_path)
    yield kafka
    kafka.close()


def test_a_standby_takes_over_when_the_network_of_the_holder_is_cut(
    fault_rig: Callable[..., Any], cut_kafka: CutKafka, new_proxy: Callable[[int], LinkProxy], wait_until: Any
) -> None:
    """Its machine reaches neither broker nor Kafka. When the network is back, what was under way arrives late."""
    rig = fault_rig(kafka=cut_kafka.server)
    links = [new_proxy(rig.broker.part.port) for _ in range(2)]
    kafka = {"bootstrap_servers": f"127.0.0.1:{cut_kafka.proxy.port}"}
    pairs = [
        Pair(rig, protocol, first={"mqtt": {"port": link.port}, "kafka": kafka})
        for protocol, link in zip(("5", "3.1.1"), links, strict=True)
    ]
    for pair in pairs:
        pair.start(wait_until)
    rig.load.start(300)
    await_load(rig.load, wait_until, 500)
    for link in (*links, cut_kafka.proxy):
        link.silence()
    for pair in pairs:
        seconds = pair.await_takeover(wait_until, pair.processes[1])
        logger.info("cut off: taken over after %.1f s of a lease of %g s", seconds, LEASE_SECONDS)
        wait_until(lambda one=pair.processes[0]: one.ended is not None, what="the end of the first one")
    for link in (*links, cut_kafka.proxy):
        link.restore(forget=False)
    await_load(rig.load, wait_until, 500)
    for pair in pairs:
        pair.processes[0].start(OTHER_MACHINE.format(more=""))
        pair.await_state(wait_until, pair.processes[0], "standby_waiting")
    assert rig.load.finish()
    for pair in pairs:
        assert_whole(pair, wait_until, no_late_records=False)


def test_a_holder_that_lacks_only_the_broker_gives_way(
    fault_rig: Callable[..., Any], new_proxy: Callable[[int], LinkProxy], wait_until: Any
) -> None:
    rig = fault_rig()
    links = [new_proxy(rig.broker.part.port) for _ in range(2)]
    pairs = [
        Pair(rig, protocol, first={"mqtt": {"port": link.port}})
        for protocol, link in zip(("5", "3.1.1"), links, strict=True)
    ]
    for pair in pairs:
        pair.start(wait_until)
    rig.load.start(200)
    await_load(rig.load, wait_until, 300)
    for link in links:
        link.silence()
    for pair in pairs:
        seconds = pair.await_takeover(wait_until, pair.processes[1])
        logger.info("without the broker: taken over after %.1f s (keepalive 5 s)", seconds)
        wait_until(lambda one=pair.processes[0]: one.ended == 1, what="its end")
        assert "has released its lease" in pair.processes[0].log()
    assert rig.load.finish()
    for pair in pairs:
        assert_whole(pair, wait_until)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"gateway_id": "same"}, "runs with gateway.gateway_id"),
        ({"client_id": "same"}, "mqtt.client_id: gateway"),
        ({}, "both take the topic tidegate/v1/any/readings"),
    ],
)
def test_a_gateway_that_conflicts_ends_with_exit_code_78_and_names_both(
    fault_rig: Callable[..., Any], wait_until: Any, other: dict[str, str], said: str
) -> None:
    rig = fault_rig()
    strict = {"conflicts": "reject", "lease_seconds": LEASE_SECONDS}
    first, second = f"{rig.name}-east", f"{rig.name}-west"
    running = rig.stage.gateway(rig.stage.settings(first, gateway={"gateway_id": first, **strict}))
    running.start()
    wait_until(running.healthy, what="the first one")
    name = first if "gateway_id" in other else second
    client_id = first if "client_id" in other else f"{second}-client"
    late = rig.stage.gateway(
        rig.stage.settings(name, gateway={"gateway_id": name, **strict}, mqtt={"client_id": client_id}), folder="late"
    )
    late.start()
    wait_until(lambda: late.ended is not None, what="the end of the second one")
    assert late.ended == 78, late.log()
    assert said in late.log()
    assert first in late.log()
    assert running.healthy()
    running.kill()
    late.start()
    wait_until(late.healthy, what="the second one, once the first one has ended")
