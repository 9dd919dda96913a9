"""The benchmark's publisher: its packets are MQTT's, its windows hold, its rate is open loop."""

import json
import socket
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.gateway_cost import cpu_seconds
from deploy.bench.load_publisher import (
    LoadPlan,
    connect_packet,
    native_payload,
    publish_packet,
    run_load,
    timed_payload,
)
from gateway.mqtt.publish_parser import split_packets
from gateway.mqtt.session_events import Incoming


def test_packets_are_those_that_the_gateway_reads() -> None:
    publishes: list[Incoming] = []
    data = b"".join(publish_packet("a/b", b"x" * size, mid=size + 1) for size in (0, 120, 20_000))
    at, _, control = split_packets(data, 0, publishes, is_5=False)
    assert (at, control) == (len(data), None)
    assert [(one[0], len(one[1]), one[2]) for one in publishes] == [
        (b"a/b", 0, b"\x00\x01"), (b"a/b", 120, b"\x00\x79"), (b"a/b", 20_000, b"\x4e\x21"),
    ]  # fmt: skip
    assert connect_packet("c", "u", "p")[:2] == bytes([0x10, len(connect_packet("c", "u", "p")) - 2])


def test_the_payload_is_a_usual_native_message() -> None:
    topic, payload = native_payload(1_764_331_200, 1_764_331_200_000)(7, 3)
    document = json.loads(payload)
    assert topic == "tidegate/v1/bench-0007/readings"
    assert (document["boot"], document["seq"], len(document["values"])) == (1_764_331_200, 3, 2)
    assert 90 <= len(payload) <= 130


class Broker:
    """Takes connections and acknowledges so many messages at a time as it is told; counts what waits at most."""

    def __init__(self) -> None:
        self.most = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.topics: list[list[bytes]] = []
        self.arrived: list[tuple[float, bytes]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        seen: list[bytes] = []
        self.topics.append(seen)
        link.recv(4096)
        link.sendall(b"\x20\x02\x00\x00")
        held = b""
        while data := link.recv(1024 * 1024):
            publishes: list[Incoming] = []
            at, _, control = split_packets(held + data, 0, publishes, is_5=False)
            held = (held + data)[at:]
            self.most = max(self.most, len(publishes))
            seen += [one[0] for one in publishes]
            self.arrived += [(time.time(), one[1]) for one in publishes]
            link.sendall(b"".join(b"\x40\x02" + bytes(one[2]) for one in publishes))
            if control is not None:
                return


@pytest.mark.parametrize("rate", [0.0, 5000.0])
def test_every_message_is_sent_in_order_within_the_window(rate: float) -> None:
    broker = Broker()
    plan = LoadPlan(
        host="127.0.0.1", port=broker.port, username="u", password="p", messages=600, rate=rate, devices=10,
        connections=2, window=20,
    )  # fmt: skip
    begun: list[bool] = []
    result = run_load(plan, native_payload(1, 1_764_331_200_000), wait=lambda: begun.append(True))
    broker.listener.close()
    assert begun == [True]
    assert (result.sent, result.acknowledged) == (600, 600)
    assert broker.most <= 20
    assert sorted(map(len, broker.topics)) == [300, 300]
    assert not set(broker.topics[0]) & set(broker.topics[1]), "a device stays on its connection"


def test_no_more_is_sent_than_the_pace_allows() -> None:
    broker = Broker()
    plan = LoadPlan(
        host="127.0.0.1", port=broker.port, username="u", password="p", messages=60, devices=10, connections=2
    )
    seen: list[int] = []

    def most_sent() -> int:
        seen.append(sum(map(len, broker.topics)))
        return seen[-1] + 7

    assert run_load(plan, native_payload(1, 1_764_331_200_000), most_sent=most_sent).acknowledged == 60
    broker.listener.close()
    assert max(after - before for before, after in pairwise(seen)) <= 7


@given(devices=st.integers(1, 30), connections=st.integers(1, 6), due=st.integers(0, 200))
def test_a_connection_has_due_what_its_devices_have_due(devices: int, connections: int, due: int) -> None:
    plan = LoadPlan(
        host="", port=1, username="", password="", messages=200, rate=1.0, devices=devices, connections=connections
    )
    of_connection = [plan.names(number)[0] % connections for number in range(due)]
    assert [plan.due_on(one, due) for one in range(connections)] == [
        of_connection.count(one) for one in range(connections)
    ]


@pytest.mark.parametrize("connections", [2, 4])
def test_a_timed_message_says_when_it_is_due_and_is_not_sent_before(connections: int) -> None:
    broker = Broker()
    plan = LoadPlan(
        host="127.0.0.1", port=broker.port, username="u", password="p", messages=200, rate=1000.0, devices=10,
        connections=connections, begin_at=time.time() + 0.3,
    )  # fmt: skip
    result = run_load(plan, timed_payload(plan))
    broker.listener.close()
    assert result.acknowledged == 200
    claimed = sorted(json.loads(payload)["ts"] for _, payload in broker.arrived)
    assert claimed == [round(plan.due_at(number) * 1000) for number in range(200)]
    # Half a millisecond of rounding, and as much for two clocks of one machine.
    assert all(at >= json.loads(payload)["ts"] / 1000 - 0.001 for at, payload in broker.arrived)


def test_a_broker_that_refuses_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            link, _ = listener.accept()
            link.recv(4096)
            link.sendall(b"\x20\x02\x00\x05")

        threading.Thread(target=refuse, daemon=True).start()
        plan = LoadPlan(
            host="127.0.0.1", port=listener.getsockname()[1], username="u", password="p", messages=1, connections=1
        )
        with pytest.raises(ConnectionError, match="refuses"):
            run_load(plan, native_payload(1, 1_764_331_200_000))


def test_processor_time_only_grows() -> None:
    import os

    before = cpu_seconds(os.getpid())
    total = sum(number * number for number in range(300_000))
    assert total
    assert sum(cpu_seconds(os.getpid())) >= sum(before)
