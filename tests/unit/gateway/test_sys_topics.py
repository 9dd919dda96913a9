"""What brokers tell under `$SYS`: names, nodes, and payloads that are none of a broker's."""

import pytest

from gateway.mqtt.broker_probe import SYS_FILTERS, SysFigures
from monitoring.metrics.monitor import BROKER


def told(*messages: tuple[str, bytes]) -> dict[str, float]:
    figures = SysFigures()
    for topic, payload in messages:
        figures.take(topic, payload)
    return figures.values()


def test_mosquittos_names_become_those_of_its_exporter() -> None:
    found = told(
        ("$SYS/broker/publish/messages/dropped", b"7"),
        ("$SYS/broker/uptime", b"123 seconds"),
        ("$SYS/broker/clients/connected", b"3"),
    )
    assert found == {"broker_publish_messages_dropped": 7.0, "broker_uptime": 123.0, "broker_clients_connected": 3.0}


def test_the_nodes_of_an_emqx_are_summed_and_the_newest_figure_of_each_counts() -> None:
    found = told(
        ("$SYS/brokers/emqx@10.0.0.1/stats/connections/count", b"5"),
        ("$SYS/brokers/emqx@10.0.0.2/stats/connections/count", b"4"),
        ("$SYS/brokers/emqx@10.0.0.1/stats/connections/count", b"6"),
        ("$SYS/brokers/emqx@10.0.0.1/metrics/messages/dropped", b"99"),
    )
    assert found == {"broker_clients_connected": 10.0}


def test_every_filter_leads_to_a_declared_name() -> None:
    declared = {family.name for family in BROKER if not family.labels}
    for text in SYS_FILTERS:
        (name,) = told((text.replace("+", "node"), b"1"))
        assert name in declared
    reached = {name for text in SYS_FILTERS for name in told((text.replace("+", "node"), b"1"))}
    assert reached == declared - {"tidegate_broker_reachable", "tidegate_broker_sys_available"}


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"-1", b"nan", b"NaN", b"inf", b"1e300", b"9" * 16, b"9" * 100_000, b"0x10", b"1_000", b" 1", b"1\n", b"1 second",
        b"\xd9\xa1", b"<script>alert(1)</script>", b"1; DROP", b"\x00\x01", b"1.", b".5", b"true", b"{}",
    ],
)  # fmt: skip
def test_what_is_no_plain_number_is_ignored(payload: bytes) -> None:
    assert told(("$SYS/broker/uptime", payload)) == {}


@pytest.mark.parametrize(
    "topic",
    [
        "", "$SYS", "$SYS/broker", "$SYS/broker/", "$SYS/broker/uptime/", "$SYS/broker/version", "SYS/broker/uptime",
        "$SYS/brokers/uptime", "$SYS/brokers/n/uptime", "$SYS/brokers//x", "tidegate/v1/$SYS/broker/uptime",
    ],
)  # fmt: skip
def test_other_topics_are_ignored(topic: str) -> None:
    assert told((topic, b"1")) == {}


def test_made_up_nodes_do_not_grow_without_end() -> None:
    found = told(*((f"$SYS/brokers/n{number}/metrics/bytes/sent", b"1") for number in range(10_000)))
    assert found == {"broker_bytes_sent": 64.0}


def test_after_a_lost_connection_nothing_is_known() -> None:
    figures = SysFigures()
    figures.take("$SYS/broker/uptime", b"5 seconds")
    figures.clear()
    assert figures.values() == {}
