"""`tidegate route suggest --live`: what a real broker sends becomes the draft of a route."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from deploy.cli import run
from gateway.devtools.listeners import read_live_messages
from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import UnavailableError


def test_messages_of_the_broker_become_a_draft(
    mqtt_broker: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = mqtt_broker()
    device = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="kiln")
    device.username_pw_set(broker.username, broker.password)
    device.connect(broker.host, broker.port)
    device.loop_start()
    for number in (4, 5):
        payload = json.dumps({"at": 1795890000000, "temp_c": 800 + number})
        device.publish(f"plant/kiln-{number}/state", payload, qos=1, retain=True).wait_for_publish(30)
    config = tmp_path / "settings.toml"
    config.write_text(
        f'[mqtt]\nhost = "{broker.host}"\nport = {broker.port_v5}\nusername = "{broker.username}"\n'
        f"password = {json.dumps(broker.password)}\n",
        "utf-8",
    )
    assert run(["route", "suggest", "plant/#", "--live", "3", "--config", str(config), "--json"]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert (found["route"]["filter"], found["works"]) == ("plant/{device}/state", True)
    assert sorted(one["topic"] for one in found["messages"]) == ["plant/kiln-4/state", "plant/kiln-5/state"]
    device.disconnect()
    device.loop_stop()


def test_a_broker_that_refuses_the_login_is_named(mqtt_broker: Callable[..., Any]) -> None:
    broker = mqtt_broker()
    settings = MqttSettings(host=broker.host, port=broker.port, protocol="3.1.1", username="nobody", password="wrong")
    with pytest.raises(
        UnavailableError, match=rf"broker {broker.host}:{broker.port} does not accept a subscription to #"
    ):
        next(read_live_messages(settings, "#", client_id="suggest-1", seconds=1))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("paho-mqtt-client-suggest")]
