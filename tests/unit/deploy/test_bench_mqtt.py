"""A load on an MQTT broker: its packets are MQTT's, what comes is counted once, what does not come is lost."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.kafka_load.client_work import ClientWork
from deploy.bench.kafka_load.latency import Latencies
from deploy.bench.load_publisher import connect_packet
from deploy.bench.mqtt_load import subscribe
from deploy.bench.mqtt_load.mqtt_run import MqttLoad, _figures, _lost, _publish_plans
from deploy.bench.mqtt_load.packets import PacketForm, PacketSplitter, PubackReader
from deploy.bench.suite.cell_beds import CellBed
from deploy.bench.suite.cell_kinds import run_cell
from deploy.bench.suite.library import load_scenario, set_parameters
from deploy.bench.suite.limiting_resource import limit_of
from deploy.bench.suite.scenario import Parameters, ScenarioTarget
from deploy.testbed.mosquitto import MqttAddress
from gateway.mqtt.publish_parser import split_packets
from gateway.mqtt.session_events import Incoming
from ingest.contract.errors import ConfigError, FatalError
from ingest.kafka_settings import KafkaSettings

ADDRESS = MqttAddress("127.0.0.1", 1883)


@given(
    size=st.sampled_from([16, 17, 100, 128, 300, 20_000]),
    messages=st.lists(st.tuples(st.integers(0, 2**60), st.integers(0, 2**40), st.integers(1, 65_535)), max_size=5),
)
def test_blocks_of_packets_are_those_that_the_gateway_reads(size: int, messages: list[tuple[int, int, int]]) -> None:
    form = PacketForm("bench-ü/00", size)
    due, number, mids = ([one[at] for one in messages] for at in range(3))
    data = form.build(due, number, mids)
    publishes: list[Incoming] = []
    assert split_packets(data, 0, publishes, is_5=False)[::2] == (len(data), None)
    assert [(one[0], len(one[1]), int.from_bytes(one[2])) for one in publishes] == [
        ("bench-ü/00".encode(), size, mid) for _, _, mid in messages
    ]
    again, found, answers = form.read(data)
    assert (list(again), list(found)) == (due, number)
    assert answers == b"".join(b"\x40\x02" + mid.to_bytes(2, "big") for _, _, mid in messages)
    assert list(PubackReader().mids(answers)) == mids


@given(st.binary(max_size=60), st.lists(st.integers(1, 9), max_size=20), st.integers(1, 8))
def test_packets_are_whole_however_they_come(data: bytes, cuts: list[int], size: int) -> None:
    rest, whole, at = PacketSplitter(size), b"", 0
    for cut in [*cuts, len(data)]:
        piece = rest.whole(data[at : at + cut])
        assert len(piece) % size == 0
        whole, at = whole + piece, at + cut
    assert whole == data[: len(data) - len(data) % size]


def test_a_packet_that_is_sent_again_is_read_and_any_other_refused() -> None:
    form = PacketForm("t", 16)
    data = bytearray(form.build([5], [3], [1]))
    data[0] |= 0x08  # DUP
    assert list(form.read(bytes(data))[1]) == [3]
    data[0] = 0xD0
    with pytest.raises(ConnectionError, match="other packets than the messages of this load"):
        form.read(bytes(data))
    with pytest.raises(ConnectionError, match="other packets than PUBACKs"):
        PubackReader().mids(b"\x40\x02\x00\x01\xd0\x00\x00\x00")
    with pytest.raises(ValueError, match="message_bytes is 15, wanted 16 or more"):
        PacketForm("t", 15)


def test_a_client_without_a_user_names_none() -> None:
    assert connect_packet("c")[2:] == b"\0\4MQTT\4\x02\0\0\0\1c"
    assert connect_packet("c", "u", "p")[9] == 0xC2


def test_a_message_that_comes_twice_counts_once() -> None:
    subscriber = subscribe._Subscriber.__new__(subscribe._Subscriber)
    subscriber._seen = bytearray(10)
    found, latencies = ClientWork(), Latencies()
    for come in ((0, 1, 2), (2, 3), (3, 3), (), (4, 4)):
        subscriber._count(found, [1] * len(come), come, latencies)
    assert (found.messages, found.again, latencies.count) == (5, 4, 9)


def test_what_has_a_puback_and_no_reader_is_lost_and_what_has_none_is_not() -> None:
    empty = Latencies().encode()
    sent = ClientWork(messages=90, began=10.0, ended=12.0, cpu_seconds=0.001, late_ms=1.0, latencies=empty)
    received = ClientWork(messages=80, again=3, ended=14.0, latencies=empty)
    found = _figures(MqttLoad(topic="t", messages=100), [sent], received)
    assert {name: found[name] for name in ("published", "received", "lost", "unacknowledged", "duplicates")} == {
        "published": 90, "received": 80, "lost": 10, "unacknowledged": 10, "duplicates": 3,
    }  # fmt: skip
    assert (found["publish_per_second"], found["receive_per_second"]) == (45, 20)
    assert "late_ms" not in found and "puback_p50_ms" not in found
    assert "receive_per_second" not in _figures(
        MqttLoad(topic="t", messages=100), [sent], replace(received, messages=0)
    )


def test_a_message_that_came_without_a_puback_hides_none_that_was_lost() -> None:
    assert _lost(100, 100, 100) == {"lost": 0}
    assert _lost(100, 100, 97) == {"lost": 3}
    assert _lost(100, 95, 90) == {"lost": 5}, "at least"
    # Five have no PUBACK: those that came may be among them, and as many of the others may be missing.
    assert _lost(100, 95, 95) == _lost(100, 95, 97) == {}
    assert _lost(100, 0, 0) == {}


def test_publishers_share_the_messages_and_their_numbers() -> None:
    plans = _publish_plans(MqttLoad(topic="t", messages=10, publishers=3, rate=30), ADDRESS)
    assert [(plan["first_number"], plan["messages"], plan["rate"]) for plan in plans] == [
        (0, 4, 10),
        (4, 3, 10),
        (7, 3, 10),
    ]
    assert {len(plan["topic"]) for plan in plans} == {4}


def test_a_load_that_cannot_be_is_refused_by_name() -> None:
    for values, words in (
        ({"message_bytes": 15}, "message_bytes is 15, wanted 16 to 900000"),
        ({"window": 0}, "window is 0, wanted 1 to 65535"),
        ({"publishers": 101}, "publishers is 101, wanted 1 to 100"),
    ):
        with pytest.raises(ConfigError, match=words):
            MqttLoad(topic="t", messages=1, **values)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="wanted 16 or more with mqtt"):
        Parameters(kind="mqtt", message_bytes=8)
    with pytest.raises(FatalError, match='Give the target `runs = "mosquitto"`'):
        run_cell(Parameters(kind="mqtt"), "t", CellBed(KafkaSettings()))


def test_mqtt_runs_on_mosquitto_alone_and_kafka_never() -> None:
    cells = load_scenario("secure")[1].cells()
    assert {(cell.workload.kind, cell.target.runs) for cell in cells if cell.target} == {
        ("load", "kafka"), ("mqtt", "mosquitto"),
    }  # fmt: skip
    assert len(cells) == 12
    for runs, security, words in (
        ("kafka", "tls", "security is tls, wanted plaintext, ssl or sasl_ssl where kafka runs"),
        ("mosquitto", "ssl", "security is ssl, wanted plaintext, tls or tls_password where mosquitto runs"),
    ):
        with pytest.raises(ValueError, match=words):
            ScenarioTarget.model_validate({"runs": runs, "security": security})


def test_a_security_that_is_asked_for_leaves_out_the_servers_that_have_none_of_it() -> None:
    secure = load_scenario("secure")[1]
    found = {
        security: [
            (target.runs, target.security) for target in set_parameters(secure, [f"security={security}"]).targets
        ]
        for security in ("ssl", "tls_password", "plaintext")
    }
    assert found == {
        "ssl": [("kafka", "ssl")],
        "tls_password": [("mosquitto", "tls_password")],
        "plaintext": [("kafka", "plaintext"), ("mosquitto", "plaintext")],
    }
    with pytest.raises(ConfigError, match="security"):
        set_parameters(secure, ["security=ssh"])


@pytest.mark.parametrize(
    ("broker", "clients", "says"),
    [
        (0.9, 0.5, "mosquitto, which has one thread, is the limit (mosquitto 0.90, clients 0.50 cores)"),
        (0.8, 1.0, "the cores are the limit: all 2 were busy (mosquitto 0.80, clients 1.00)"),
        (
            0.4,
            0.5,
            "the cores were not full: 0.90 of 2 were busy (mosquitto 0.40, clients 0.50), the rest waited for answers",
        ),
    ],
)
def test_a_missed_rate_of_mqtt_names_what_was_full(broker: float, clients: float, says: str) -> None:
    figures = {"publish_broker_cores": broker, "publish_client_cores": clients, "machine_cpu_cores": 2.0}
    assert limit_of(figures, 2, "publish_per_second") == says
