"""The link between gateway and broker: silent, half open, slow, late, reset; both ends held (F5, F9-F13, F47)."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.durable_broker


def add_behind_proxy(rig: Any, new_proxy: Callable[[int], Any], protocol: str, suffix: str = "") -> Any:
    proxy = new_proxy(rig.broker.part.port)
    rig.add(protocol, suffix, mqtt={"port": proxy.port, "reconnect_max_seconds": 0.5})
    return proxy


@contextmanager
def pulses(gateways: list[Any], *, held: float, free: float) -> Iterator[None]:
    """Give these processes only a small share of the time, as an overloaded machine does."""
    done = threading.Event()

    def pulse() -> None:
        while not done.is_set():
            for gateway in gateways:
                gateway.hold()
            time.sleep(held)
            for gateway in gateways:
                gateway.resume_process()
            time.sleep(free)

    thread = threading.Thread(target=pulse)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_silence_from_any_cause_is_noticed_and_costs_nothing(
    fault_rig: Callable[..., Any],
    start_all: Callable[..., None],
    assert_whole: Callable[..., Any],
    new_proxy: Callable[[int], Any],
    wait_until: Any,
) -> None:
    """All at once, since each takes twice the keepalive to be noticed: a link that carries nothing and says nothing, a
    broker that has closed without a packet saying so, a broker that hangs, a gateway that hangs.

    A gateway that gets a little time now and then keeps its connection meanwhile.
    """
    rig, other = fault_rig(), fault_rig()
    proxies = [add_behind_proxy(rig, new_proxy, protocol, "-cut") for protocol in ("5", "3.1.1")]
    broken = [add_behind_proxy(rig, new_proxy, protocol, "-half") for protocol in ("5", "3.1.1")]
    cut = rig.gateways[:]
    held = [rig.add(protocol, "-held") for protocol in ("5", "3.1.1")]
    starved = [rig.add("3.1.1", "-starved")]
    for protocol in ("5", "3.1.1"):
        other.add(protocol, "-mute")
    start_all(rig)
    start_all(other)
    for each in (rig, other):
        each.load.start(100)
    wait_until(lambda: len(rig.load.acknowledged) > 50 and len(other.load.acknowledged) > 50, what="the load")

    for proxy in proxies:
        proxy.silence()
    for proxy in broken:
        proxy.half_open()
    for gateway in held:
        gateway.hold()
    other.broker.hold()
    try:
        with pulses(starved, held=0.7, free=0.1):
            for gateway in (*cut, *other.gateways):
                wait_until(lambda one=gateway: "MQTT session:" in one.log(), seconds=30, what="the silence noticed")
            wait_until(lambda: broker_dropped(rig, held), seconds=30, what="the broker dropping the held gateways")
    finally:
        other.broker.resume_process()
        for gateway in held:
            gateway.resume_process()
        for proxy in proxies:
            proxy.restore()

    assert_whole(rig)
    # The publisher's own link was silent, too, and what it then sends again comes in no certain order.
    assert_whole(other, by_device=False)
    for gateway in starved:
        assert gateway.metric("tidegate_gateway_connections_total") == 1, gateway.log()
    for gateway in (*cut, *held, *other.gateways):
        assert gateway.metric("tidegate_gateway_connections_total") >= 2


def broker_dropped(rig: Any, gateways: list[Any]) -> bool:
    return all(f"Client {gateway.name} has exceeded timeout" in rig.broker.log() for gateway in gateways)


def stood(gateway: Any) -> float:
    """How many of its connections stood."""
    return float(gateway.metric("tidegate_gateway_connections_total"))


def test_a_slow_a_late_and_a_breaking_link_lose_and_reorder_nothing(
    fault_rig: Callable[..., Any],
    start_all: Callable[..., None],
    assert_whole: Callable[..., Any],
    new_proxy: Callable[[int], Any],
    wait_until: Any,
) -> None:
    rig = fault_rig()
    proxies = [add_behind_proxy(rig, new_proxy, protocol) for protocol in ("5", "3.1.1")]
    start_all(rig)
    rig.load.send(20)
    assert_whole(rig)

    # 64 kbit/s, each piece 0.1 to 0.3 s late: with 15 KB to carry, the link is the bottleneck.
    for proxy in proxies:
        proxy.bytes_per_second, proxy.delay_seconds = 8_000, (0.1, 0.3)
    rig.load.send(100)
    assert_whole(rig)
    for gateway in rig.gateways:
        assert gateway.metric("tidegate_gateway_connections_total") == 1, "a slow link is no lost link"

    for proxy in proxies:
        proxy.bytes_per_second, proxy.delay_seconds = 0, (0.0, 0.0)
    files = [psutil.Process(gateway.pid).num_fds() for gateway in rig.gateways]
    rig.load.start(300)
    for count in range(6):
        for gateway, proxy in zip(rig.gateways, proxies, strict=True):
            wait_until(lambda one=proxy, wanted=count + 1: one.connections >= wanted, what="a connection to break")
            if count % 2:  # the others may be cut before they stand
                wait_until(
                    lambda one=gateway, least=count // 2 + 2: stood(one) >= least, what="a connection that stands"
                )
            wait_until(lambda one=proxy: one.reset() > 0, what="something to reset")
    assert_whole(rig)
    for gateway, before in zip(rig.gateways, files, strict=True):
        assert stood(gateway) >= 5, "the first one, one after every other reset, and the last"
        wait_until(
            lambda one=gateway, most=before: psutil.Process(one.pid).num_fds() <= most + 2,
            what="as many files open as before",
        )
