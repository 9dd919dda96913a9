"""What the gateway's own machine does to it: no memory, no files, a clock that jumps, other certificates (F42-F48)."""

import os
import resource
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.certificates.issue import LeafRequest, create_authority, sign_leaf
from deploy.local.broker import Mosquitto, find_mosquitto
from deploy.local.ports import choose_port
from deploy.settings_file import write_private
from deploy.testbed.server_process import SingleServer
from tests.support.secured_pipeline import serves

pytestmark = pytest.mark.durable_broker

PROTOCOLS = ("5", "3.1.1")
CLOCK = """
import pathlib, threading, time

offset_ns, real_ns = 0, time.time_ns

def follow(file=pathlib.Path({file!r})):
    global offset_ns
    while True:
        offset_ns = int(float(file.read_text() or 0) * 1e9)
        time.sleep(0.02)

threading.Thread(target=follow, daemon=True).start()
time.sleep(0.1)
time.time_ns = lambda: real_ns() + offset_ns
time.time = lambda: time.time_ns() / 1e9
from deploy.cli import main
main()
"""


def test_no_file_left_to_open_is_told_and_passes(
    fault_rig: Callable[..., Any],
    start_all: Callable[..., None],
    assert_whole: Callable[..., Any],
    new_proxy: Callable[[int], Any],
    wait_until: Any,
) -> None:
    rig = fault_rig()
    proxies = [new_proxy(rig.broker.part.port) for _ in PROTOCOLS]
    for protocol, proxy in zip(PROTOCOLS, proxies, strict=True):
        rig.add(protocol, mqtt={"port": proxy.port, "reconnect_max_seconds": 0.5})
    start_all(rig)
    rig.load.send(50)
    assert_whole(rig)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for gateway, proxy in zip(rig.gateways, proxies, strict=True):
        # Fewer than are open: what is open stays so, and nothing can be opened.
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (3, hard))
        proxy.reset()
    rig.load.send(50)
    for gateway in rig.gateways:
        wait_until(lambda one=gateway: "Too many open files" in one.log(), what="the lack being told")
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (hard, hard))
    assert_whole(rig)


def test_memory_stays_within_the_window_while_kafka_hangs(
    fault_rig: Callable[..., Any], start_all: Callable[..., None], wait_until: Any
) -> None:
    """A hundred times more waits at the broker than the window holds."""
    rig = fault_rig(window=200)
    for protocol in PROTOCOLS:
        rig.add(protocol, gateway={"window_messages": 200})
    start_all(rig)
    rig.load.send(200)
    wait_until(lambda: all(rig.has_all(one) for one in rig.gateways), what="all stored")
    before = [gateway.resident_mb for gateway in rig.gateways]
    rig.kafka.hold()
    try:
        publish_large(rig, 2000)
        for gateway in rig.gateways:
            wait_until(
                lambda one=gateway: one.metric("tidegate_gateway_inflight_messages") == 200, what="a full window"
            )
        until = time.monotonic() + 2
        while time.monotonic() < until:
            for gateway, begin in zip(rig.gateways, before, strict=True):
                # The window holds 200 x 20 KB; each is there as payload, as record, and in the writer's queue.
                assert gateway.resident_mb - begin < 40, "more is held than the window"
            time.sleep(0.2)
    finally:
        rig.kafka.resume_process()
    for gateway in rig.gateways:
        wait_until(lambda one=gateway: len(rig.landed(one).readings) == 2200, seconds=60, what="all stored")
        assert gateway.metric("tidegate_gateway_connections_total") == 1


def test_a_gateway_without_memory_ends_and_loses_nothing(
    fault_rig: Callable[..., Any], start_all: Callable[..., None], wait_until: Any
) -> None:
    """It may get no more than it has, and is sent far more than that; whoever watches it starts it again."""
    rig = fault_rig()
    for protocol in PROTOCOLS:
        rig.add(protocol)
    start_all(rig)
    rig.load.send(20)
    wait_until(lambda: all(rig.has_all(one) for one in rig.gateways), what="all stored")
    for gateway in rig.gateways:
        has = psutil.Process(gateway.pid).memory_info().vms
        resource.prlimit(gateway.pid, resource.RLIMIT_AS, (has, resource.RLIM_INFINITY))

    def lacks(gateway: Any) -> bool:
        return gateway.ended is not None or "MemoryError" in gateway.log()

    rig.kafka.hold()
    try:
        publish_large(rig, 800, 100_000)
        held_up = "waiting for Kafka to acknowledge"
        for gateway in rig.gateways:
            wait_until(lambda one=gateway: lacks(one) or held_up in one.log(), what="its memory being full")
    finally:
        rig.kafka.resume_process()
    for gateway in rig.gateways:
        wait_until(lambda one=gateway: lacks(one), what="the lack of memory")
        gateway.kill()
    start_all(rig)
    for gateway in rig.gateways:
        wait_until(lambda one=gateway: len(large_ones(rig, one)) == 800, seconds=60, what="all stored")
        assert rig.landed(gateway).dead_letters == [], "the lack of memory was no fault of the messages"


def publish_large(rig: Any, count: int, size_bytes: int = 20_000) -> None:
    for seq in range(count):
        payload = b'{"boot":1,"seq":%d,"values":{"text":"%s"}}' % (seq, os.urandom(size_bytes // 2).hex().encode())
        assert rig.load._publisher.publish(f"tidegate/v1/{rig.name}-large/readings", payload)
    assert rig.load.finish()


def large_ones(rig: Any, gateway: Any) -> set[int]:
    return {reading.seq for _, reading in rig.landed(gateway).readings if reading.device == f"{rig.name}-large"}


def test_a_clock_that_jumps_moves_no_timer_and_no_order(
    fault_rig: Callable[..., Any],
    assert_whole: Callable[..., Any],
    new_proxy: Callable[[int], Any],
    wait_until: Any,
    tmp_path: Path,
) -> None:
    rig = fault_rig()
    proxies = [new_proxy(rig.broker.part.port) for _ in PROTOCOLS]
    clock = tmp_path / "offset"
    clock.write_text("0")

    def up() -> None:
        for gateway in rig.gateways:
            gateway.start(CLOCK.format(file=str(clock)))
        for gateway in rig.gateways:
            wait_until(gateway.healthy, what="being up")

    for protocol, proxy in zip(PROTOCOLS, proxies, strict=True):
        rig.add(protocol, mqtt={"port": proxy.port})
    up()
    rig.load.start(100)
    for offset in (0, 3600, -600):
        beside = clock.with_suffix(".new")
        beside.write_text(str(offset))
        beside.replace(clock)
        for gateway in rig.gateways:
            wait_until(lambda one=gateway, at=offset: newest_offset(rig, one) == at, what="readings by the new clock")
    for gateway in rig.gateways:
        assert gateway.metric("tidegate_gateway_connections_total") == 1
        wait_until(gateway.healthy, what="messages flowing")
    # A new connection, then a new process, both with the clock behind: neither is taken for an older one.
    for proxy in proxies:
        proxy.reset()
    for gateway in rig.gateways:
        wait_until(lambda one=gateway: one.metric("tidegate_gateway_connections_total") == 2, what="a new connection")
    rig.load.send(20)
    for gateway in rig.gateways:
        wait_until(lambda one=gateway: len(set(epochs(rig, one))) == 2, what="records of the new connection")
        gateway.kill()
    up()
    rig.load.send(20)
    assert_whole(rig)
    for gateway in rig.gateways:
        found = epochs(rig, gateway)
        assert (found, len(set(found))) == (sorted(found), 3)


def epochs(rig: Any, gateway: Any) -> list[int]:
    return [reading.epoch for _, reading in by_offset(rig.landed(gateway))]


def by_offset(landed: Any) -> list[Any]:
    return sorted((pair for pair in landed.readings if pair[0].partition == 0), key=lambda pair: pair[0].offset)


def newest_offset(rig: Any, gateway: Any) -> float | None:
    """How far the gateway's clock is from Kafka's, in whole minutes given as seconds, by its newest reading."""
    pairs = by_offset(rig.landed(gateway))
    if not pairs:
        return None
    record, reading = pairs[-1]
    return float(round((reading.received_us / 1e6 - record.timestamp_ms / 1e3) / 60) * 60)


class TlsMosquitto(Mosquitto):
    """With a listener that speaks TLS beside the plain one."""

    def __init__(self, *arguments: Any, certificates: Path, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.tls_port, _ = choose_port(0)
        self._certificates = certificates

    def _configuration(self) -> str:
        tls = f"listener {self.tls_port} {self.host}\n"
        tls += f"certfile {self._certificates}/server.pem\nkeyfile {self._certificates}/server.pem\n"
        return super()._configuration() + tls


def make_certificates(folder: Path, authority: str) -> None:
    """An authority of that name, and a certificate for 127.0.0.1 that it signed."""
    now = datetime.now(UTC)
    made = create_authority(authority, now=now, days=2)
    (folder / "ca.new").write_text(made.certificate_pem)
    write_private(folder / "server.pem", sign_leaf(made, LeafRequest.server("127.0.0.1", days=1), now=now).pem)


def test_a_certificate_that_is_rotated_needs_no_restart(
    fault_rig: Callable[..., Any],
    start_all: Callable[..., None],
    assert_whole: Callable[..., Any],
    wait_until: Any,
    await_save: Callable[[Any], None],
    tmp_path: Path,
) -> None:
    """First the broker's, so that the gateway refuses it and says so; then the gateway's file with the authority."""
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not on this machine")
    rig = fault_rig()
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    make_certificates(certificates, "first")
    trusted = certificates / "ca.pem"
    trusted.write_bytes((certificates / "ca.new").read_bytes())
    users = {"tester": "a secret: with spaces"}
    part = TlsMosquitto(tmp_path / "tls", choose_port(0)[0], users=users, certificates=certificates)
    rig.broker.kill()
    rig.broker = rig.stage.broker = broker = SingleServer(part, tmp_path / "tls-broker.log")
    tls = {"port": part.tls_port, "tls": True, "ca_file": str(trusted), "reconnect_max_seconds": 0.5}
    for protocol in PROTOCOLS:
        rig.add(protocol, mqtt=tls)
    start_all(rig)
    rig.load.send(50)
    assert_whole(rig)

    make_certificates(certificates, "second")
    os.kill(broker.pid, signal.SIGHUP)
    wait_until(lambda: serves(part.tls_port, certificates / "server.pem"), what="the new certificate at the broker")
    rig.load.send(50)
    assert_whole(rig)
    for gateway in rig.gateways:
        assert gateway.metric("tidegate_gateway_connections_total") == 1, "the connection outlives the certificate"
    # The gateway cannot come in at first: only its session keeps what is published meanwhile.
    await_save(broker)
    broker.kill()
    broker.start()
    rig.load.send(50)
    for gateway in rig.gateways:
        wait_until(lambda one=gateway: "does not contain the authority" in one.log(), what="the refusal being told")
        assert not gateway.healthy()
    trusted.write_bytes((certificates / "ca.new").read_bytes())
    assert_whole(rig, by_device=False)
