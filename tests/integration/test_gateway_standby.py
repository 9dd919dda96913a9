"""A pair of gateways on a real broker and Kafka: one is killed, hangs or loses its network, and the other takes over."""

import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
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
    """Two processes with the same settings, and what is in Kafka of them.

    Attributes:
        holder, standby: who has the lease and who waits for it, as of `start` or `refresh`.
        links: of each process to the broker, where it has one of its own.
    """

    def __init__(self, rig: Any, protocol: str, links: Sequence[LinkProxy] = (), **first: Any) -> None:
        self.rig, name = rig, f"{rig.name}-{protocol.replace('.', '')}"
        self.reader = KafkaReader(rig.kafka_settings, name)
        self.processes: list[GatewayProcess] = []
        for side, more in (("a", first), ("b", {})):
            port = {"port": links[len(self.processes)].port} if links else {}
            settings = rig.stage.settings(
                name,
                mqtt={"protocol": protocol, "keepalive_seconds": 5, "session_file": None, **port},
                gateway={"gateway_id": name, "standby": True, "lease_seconds": LEASE_SECONDS, "conflicts": "warn"},
                kafka=more.get("kafka", {}),
            )
            self.processes.append(rig.stage.gateway(settings, folder=f"{name}-{side}"))
        self.holder, self.standby = self.processes
        self.links = dict(zip(self.processes, links, strict=False))
        self._told: dict[GatewayProcess, int] = {}

    def start(self, wait_until: Any, *, more: str = "") -> None:
        """The first one works, and the second one waits."""
        for process, state in zip(self.processes, ("lease_held", "standby_waiting"), strict=True):
            process.start(OTHER_MACHINE.format(more=more))
            self.await_state(wait_until, process, state)

    def start_missing(self) -> None:
        """Start what has not begun or has ended."""
        for process in self.processes:
            if not process.alive:
                process.start(OTHER_MACHINE.format(more=""))

    def refresh(self, wait_until: Any) -> None:
        """Find out who works and who waits, once one of them does each."""

        def found() -> list[GatewayProcess]:
            held = [one for one in self.processes if one.metric("tidegate_gateway_lease_held") == 1 and one.healthy()]
            waits = [one for one in self.processes if one.metric("tidegate_gateway_standby_waiting") == 1]
            return [*held, *waits] if (len(held), len(waits)) == (1, 1) else []

        self.holder, self.standby = wait_until(found, what=f"a holder and a standby of {self.holder.name}")
        self._told = {one: len(one.log()) for one in self.processes}

    def said(self, process: GatewayProcess) -> str:
        """Its log since `refresh`."""
        return process.log()[self._told[process] :]

    def await_state(self, wait_until: Any, process: GatewayProcess, state: str) -> None:
        wait_until(lambda: process.metric(f"tidegate_gateway_{state}") == 1, what=f"{state}: {process.log()[-500:]}")

    def await_takeover(self, wait_until: Any) -> float:
        """Seconds until the standby has the session of the other one."""
        began = time.monotonic()
        wait_until(
            lambda: self.standby.metric("tidegate_gateway_connections_total") == 1,
            seconds=30,
            what=f"the takeover: {self.standby.log()[-500:]}",
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


@pytest.fixture(scope="module")
def shared_pairs(shared_rig: Callable[..., Any]) -> Iterator[list[Pair]]:
    """A pair per MQTT version on one broker, each process with a link of its own."""
    rig = shared_rig()
    links = [LinkProxy(("127.0.0.1", rig.broker.part.port)) for _ in range(4)]
    yield [Pair(rig, "5", links[:2]), Pair(rig, "3.1.1", links[2:])]
    for link in links:
        link.close()


@pytest.fixture
def pairs(shared_pairs: list[Pair], wait_until: Any) -> list[Pair]:
    """These pairs, each with a holder and a standby. Who took over in one test is the holder in the next one."""
    for pair in shared_pairs:
        pair.start_missing()
    for pair in shared_pairs:
        pair.refresh(wait_until)
    return shared_pairs


def epochs(pair: Pair) -> set[int]:
    return {reading.epoch for _, reading in pair.reader.look().readings}


def test_a_standby_takes_over_after_a_kill(pairs: list[Pair], wait_until: Any) -> None:
    load = pairs[0].rig.load
    known = [epochs(pair) for pair in pairs]
    load.start(200)
    await_load(load, wait_until, 300)
    for pair in pairs:
        pair.holder.kill()
    for pair in pairs:
        seconds = pair.await_takeover(wait_until)
        logger.info("killed: taken over after %.1f s of a lease of %g s", seconds, LEASE_SECONDS)
        assert "ended without releasing" in pair.said(pair.standby)
    await_load(load, wait_until, 300)
    assert load.finish()
    for pair, before in zip(pairs, known, strict=True):
        assert_whole(pair, wait_until)
        assert epochs(pair) > before, "a connection per holder"


def test_a_holder_that_stands_still_is_dead_before_the_standby_begins(pairs: list[Pair], wait_until: Any) -> None:
    load = pairs[0].rig.load
    load.start(200)
    await_load(load, wait_until, 300)
    for pair in pairs:
        pair.holder.hold()
    for pair in pairs:
        seconds = pair.await_takeover(wait_until)
        logger.info("stopped: taken over after %.1f s of a lease of %g s", seconds, LEASE_SECONDS)
        assert pair.holder.ended == -signal.SIGKILL, "the kernel's timer does not need the process to run"
    await_load(load, wait_until, 300)
    assert load.finish()
    for pair in pairs:
        assert_whole(pair, wait_until)


def test_a_stop_hands_the_session_over_at_once_and_without_a_copy(pairs: list[Pair], wait_until: Any) -> None:
    load = pairs[0].rig.load
    copies = [pair.verdict(wait_until).repeated for pair in pairs]
    load.start(200)
    await_load(load, wait_until, 300)
    for pair in pairs:
        assert pair.holder.terminate(10) == 0
        seconds = pair.await_takeover(wait_until)
        logger.info("stopped by SIGTERM: taken over after %.1f s", seconds)
        assert "ended without releasing" not in pair.said(pair.standby)
    assert load.finish()
    for pair, before in zip(pairs, copies, strict=True):
        assert assert_whole(pair, wait_until).repeated == before


def test_a_holder_that_lacks_only_the_broker_gives_way(pairs: list[Pair], wait_until: Any) -> None:
    load = pairs[0].rig.load
    load.start(200)
    await_load(load, wait_until, 300)
    for pair in pairs:
        pair.links[pair.holder].silence()
    for pair in pairs:
        seconds = pair.await_takeover(wait_until)
        logger.info("without the broker: taken over after %.1f s (keepalive 5 s)", seconds)
        wait_until(lambda one=pair.holder: one.ended == 1, what="its end")
        assert "has released its lease" in pair.said(pair.holder)
        pair.links[pair.holder].restore()
    await_load(load, wait_until, 300)
    assert load.finish()
    for pair in pairs:
        assert_whole(pair, wait_until)


@pytest.mark.chaos
def test_without_a_timer_a_holder_that_runs_again_ends_and_only_copies_may_be_late(
    fault_rig: Callable[..., Any], wait_until: Any
) -> None:
    """In short: tests/unit/gateway/test_gateway_lease.py."""
    rig = fault_rig()
    pairs = [Pair(rig, protocol) for protocol in ("5", "3.1.1")]
    for pair in pairs:
        pair.start(wait_until, more=NO_TIMER)
    rig.load.start(500)
    await_load(rig.load, wait_until, 500)
    for pair in pairs:
        pair.holder.hold()
    for pair in pairs:
        pair.await_takeover(wait_until)
        pair.holder.resume_process()
    for pair in pairs:
        wait_until(lambda one=pair.holder: one.ended is not None, what="the end of the first one")
        assert pair.holder.ended == 1
        assert "could not renew the lease" in pair.holder.log()
    assert rig.load.finish()
    for pair in pairs:
        assert_whole(pair, wait_until, no_late_records=False)


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
    kafka = {"bootstrap_servers": f"127.0.0.1:{cut_kafka.proxy.port}"}
    pairs = [
        Pair(rig, protocol, [new_proxy(rig.broker.part.port) for _ in range(2)], kafka=kafka)
        for protocol in ("5", "3.1.1")
    ]
    links = [pair.links[pair.holder] for pair in pairs]
    for pair in pairs:
        pair.start(wait_until)
    rig.load.start(300)
    await_load(rig.load, wait_until, 500)
    for link in (*links, cut_kafka.proxy):
        link.silence()
    for pair in pairs:
        seconds = pair.await_takeover(wait_until)
        logger.info("cut off: taken over after %.1f s of a lease of %g s", seconds, LEASE_SECONDS)
        wait_until(lambda one=pair.holder: one.ended is not None, what="the end of the first one")
    for link in (*links, cut_kafka.proxy):
        link.restore(forget=False)
    await_load(rig.load, wait_until, 500)
    for pair in pairs:
        pair.start_missing()
        pair.await_state(wait_until, pair.holder, "standby_waiting")
    assert rig.load.finish()
    for pair in pairs:
        assert_whole(pair, wait_until, no_late_records=False)


CONFLICTS = {
    "gateway id": "runs with gateway.gateway_id",
    "client id": "mqtt.client_id: gateway",
    "topics": "both take the topic tidegate/v1/any/readings",
}


def test_a_gateway_that_conflicts_ends_with_exit_code_78_and_names_both(
    fault_rig: Callable[..., Any], wait_until: Any
) -> None:
    """Three at once, each with another conflict; none of them is in the way of the others, for none takes a lease."""
    rig = fault_rig()
    strict = {"conflicts": "reject", "lease_seconds": LEASE_SECONDS}
    first = f"{rig.name}-east"
    running = rig.stage.gateway(rig.stage.settings(first, gateway={"gateway_id": first, **strict}))
    running.start()
    wait_until(running.healthy, what="the first one")
    late: dict[str, GatewayProcess] = {}
    for number, kind in enumerate(CONFLICTS):
        name = first if kind == "gateway id" else f"{rig.name}-{number}"
        client_id = first if kind == "client id" else f"{rig.name}-{number}-client"
        settings = rig.stage.settings(name, gateway={"gateway_id": name, **strict}, mqtt={"client_id": client_id})
        late[kind] = rig.stage.gateway(settings, folder=f"late-{number}")
        late[kind].start()
    for kind, process in late.items():
        wait_until(lambda one=process: one.ended is not None, what=f"the end of the one with the same {kind}")
        assert process.ended == 78, process.log()
        assert CONFLICTS[kind] in process.log()
        assert first in process.log()
    assert running.healthy()
    running.kill()
    for kind, process in late.items():
        process.start()
        wait_until(process.healthy, what=f"the one with the same {kind}, once the others have ended")
        assert process.terminate(10) == 0
