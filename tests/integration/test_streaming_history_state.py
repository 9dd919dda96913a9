"""An erasure and the state of gateways in a real Kafka."""

import json
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ingest.contract.forget import FORGET_KEY, decode_forget, device_digest
from ingest.gateway_state import read_newer, read_state
from ingest.kafka_settings import KafkaSettings
from streaming.history.traces import forget_state


def test_an_erasure_replaces_what_names_the_device_and_tells_gateways(kafka_server: Any, unique_name: str) -> None:
    settings = KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers)
    assert "why" in forget_state(settings, "patient-B", topic=unique_name), "there is no such topic"
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    config = {"cleanup.policy": "compact"}
    admin.create_topics([NewTopic(unique_name, 1, 1, config=config)])[unique_name].result(60)
    assert forget_state(settings, "patient-B", topic=unique_name) == {"replaced": 0}
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    numbers = json.dumps({"patient-B": [[1, 5, []]], "pump": [[1, 6, []]]})
    producer.produce(unique_name, key="tidegate/gw-1/numbers/7", value=numbers)
    producer.produce(unique_name, key="sparkplug/hall/patient-B", value=b"\x91births")
    assert producer.flush(60) == 0
    _, since = read_newer(settings, FORGET_KEY, None, topic=unique_name)
    assert forget_state(settings, "patient-B", topic=unique_name) == {"replaced": 2}
    found = dict(read_state(settings, topic=unique_name))
    assert json.loads(found.pop("tidegate/gw-1/numbers/7")) == {"pump": [[1, 6, []]]}
    assert list(found) == [FORGET_KEY]
    values, _ = read_newer(settings, FORGET_KEY, since, topic=unique_name)
    assert [decode_forget(value) for value in values] == [device_digest("patient-B")]
