"""The publisher without a broker: what it does while nobody answers."""

import threading

import pytest

from gateway.devtools.publisher import Publisher
from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import ConfigError


def test_a_stop_ends_the_wait_for_a_full_window() -> None:
    stop = threading.Event()
    publisher = Publisher(MqttSettings(port=1), client_id="p", window=1, stop=stop)
    assert publisher.publish("t", b"kept for the next connection")
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(publisher.publish("t", b"too many")), daemon=True)
    waiting.start()
    assert answers == []
    stop.set()
    waiting.join(10)
    assert answers == [False]
    assert publisher.sent_count == 1


def test_a_missing_ca_file_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match=r"mqtt\.ca_file"):
        Publisher(MqttSettings(tls=True, ca_file="/no/such/file.pem"), client_id="p")
