"""The publisher without a broker: what it does while nobody answers."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from gateway.devtools.publisher import Publisher
from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import ConfigError


def test_a_stop_ends_the_wait_for_a_full_window(
    wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    publisher = Publisher(MqttSettings(port=1), client_id="p", window=1, stop=stop)
    assert publisher.publish("t", b"kept for the next connection")
    looks, answers, acquire = list[Any](), list[bool](), publisher._slots.acquire

    def look(**how: Any) -> bool:
        looks.append(how)
        return acquire(**how)

    monkeypatch.setattr(publisher._slots, "acquire", look)
    waiting = threading.Thread(target=lambda: answers.append(publisher.publish("t", b"too many")), daemon=True)
    waiting.start()
    wait_until(lambda: len(looks) > 1 or answers, what="a second look at the full window")
    assert answers == []
    stop.set()
    waiting.join(10)
    assert answers == [False]
    assert publisher.sent_count == 1


@pytest.mark.parametrize("before", [0, 1, 3], ids=["no message", "one message", "a full window"])
def test_the_window_is_the_brokers_receive_maximum_however_many_messages_wait(before: int) -> None:
    """HiveMQ takes 10 unacknowledged messages from a client and ends the connection at the next one."""
    stop = threading.Event()
    publisher = Publisher(MqttSettings(port=1), client_id="p", window=3, stop=stop)
    for _ in range(before):
        assert publisher.publish("t", b"kept for the connection")
    properties = Properties(PacketTypes.CONNACK)
    properties.ReceiveMaximum = 2
    success = ReasonCode(PacketTypes.CONNACK, "Success")
    publisher._on_connect(publisher._client, None, None, success, properties)
    stop.set()
    for _ in range(max(0, 2 - before)):
        assert publisher.publish("t", b"within the limit")
    for mid in list(publisher._pending)[: max(1, before - 1)]:
        assert not publisher.publish("t", b"over the limit")
        publisher._on_publish(publisher._client, None, mid, success, None)
    assert publisher.publish("t", b"after a PUBACK")
    assert not publisher.publish("t", b"over the limit")


def test_a_missing_ca_file_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match=r"mqtt\.ca_file"):
        Publisher(MqttSettings(tls=True, ca_file="/no/such/file.pem"), client_id="p")
