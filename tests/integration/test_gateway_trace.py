"""A W3C traceparent on its way: MQTT user property -> the gateway's record, which Spark lands in the column `trace`."""

from collections.abc import Callable
from typing import Any

import pytest

from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.reading import decode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TOPIC = b"tidegate/v1/d1/readings"
BROKEN = [
    "",
    "garbage",
    TRACE.upper(),
    TRACE[:-1],
    f"{TRACE}-more",
    TRACE.replace("00-", "ff-", 1),
    f"00-{'0' * 32}-00f067aa0ba902b7-01",
    f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
    f"{TRACE}\n",
    "00-" + "a" * 60_000,
]


@pytest.fixture
def told(scripted_broker: Any, new_gateway: Callable[..., Any]) -> Callable[..., list[str | None]]:
    """The `trace` of the records that come of messages with these traceparents."""
    if scripted_broker.protocol != "5":
        pytest.skip("MQTT 3.1.1 has no user properties")

    def publish(payload: bytes, *traces: str, topic: str = READINGS) -> list[str | None]:
        rig = new_gateway()
        link = scripted_broker.accept()
        link.handshake()
        for packet, trace in enumerate(traces, 1):
            link.publish(TOPIC, payload, packet, user_properties=(("other", "x"), ("traceparent", trace)))
        rig.until(lambda: len(rig.log.records(topic)) == len(traces))
        decode: Any = decode_record if topic == READINGS else decode_dead_letter
        return [decode(record.value).trace for record in rig.log.records(topic)]

    return publish


def test_the_record_has_the_traceparent_of_its_message(told: Callable[..., list[str | None]]) -> None:
    assert told(b'{"values": {"t": 1}}', TRACE) == [TRACE]


def test_a_dead_letter_has_it_too(told: Callable[..., list[str | None]]) -> None:
    assert told(b'{"values": ', TRACE, topic=DEAD_LETTERS) == [TRACE]


def test_a_broken_traceparent_is_left_out_and_its_message_stored(told: Callable[..., list[str | None]]) -> None:
    assert told(b'{"values": {"t": 1}}', *BROKEN) == [None] * len(BROKEN)
