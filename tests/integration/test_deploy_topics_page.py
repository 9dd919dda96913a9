"""Topics for the page, from a real Kafka: what each holds and since when, records as JSON, and which topics are none of its."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from deploy.monitor.topic_pages import list_topics, show_topic
from ingest.contract.errors import RetryableError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from monitoring.page.page_api import TopicRequest
from monitoring.page.topic_request import topic_request
from tests.support.servers import make_topics

DAY_MS = 86_400_000


@pytest.fixture
def settings(kafka_server: Any) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers)


@pytest.fixture
def topic(settings: KafkaSettings, unique_name: str) -> str:
    name = f"telemetry.stream.{unique_name}"
    config = {"retention.ms": "-1", "retention.bytes": "1048576", "cleanup.policy": "compact,delete"}
    make_topics(settings.bootstrap_servers, NewTopic(name, 2, 1, config=config))
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    for number in range(5):
        producer.produce(name, b'{"n":%d}' % number, b"\xff", 0, timestamp=DAY_MS + number, headers=[("h", b"v")])
    assert producer.flush(60) == 0
    return name


@pytest.fixture
def ask(settings: KafkaSettings) -> Callable[..., dict[str, Any]]:
    return lambda **query: show_topic(settings, topic_request(query))


def test_a_topic_is_told_with_its_partitions_and_how_long_it_keeps_records(settings: KafkaSettings, topic: str) -> None:
    listed = list_topics(settings)["topics"]
    assert all(each["topic"].startswith("telemetry.") for each in listed)
    found = next(each for each in listed if each["topic"] == topic)
    first, second = found.pop("partitions")
    assert found == {
        "topic": topic, "retention_seconds": None, "retention_bytes": 1048576.0, "policy": "compact,delete",
        "time_type": "create", "min_in_sync": 1,
    }  # fmt: skip
    # The newest record is read for its time where it comes within a second.
    assert {**first, "oldest_ms": None, "newest_ms": None, "leader": None} == {
        "partition": 0, "first": 0, "next": 5, "records": 5, "leader": None, "replicas": 1, "in_sync": 1,
        "oldest_ms": None, "newest_ms": None,
    }  # fmt: skip
    assert first["oldest_ms"] in (None, DAY_MS)
    assert first["newest_ms"] in (None, DAY_MS + 4)
    assert (second["records"], second["oldest_ms"], second["newest_ms"]) == (0, None, None)


def test_records_are_json_and_pages_go_on_by_what_an_answer_says(topic: str, ask: Callable[..., Any]) -> None:
    found = ask(name=topic, limit="2")
    assert [record["value"]["text"] for record in found["records"]] == ['{"n":4}', '{"n":3}']
    assert found["records"][0] == {
        "partition": 0, "offset": 4, "at_ms": DAY_MS + 4, "time_type": "create", "size_bytes": 10,
        "key": {"base64": "/w==", "bytes": 1, "cut": False},
        "headers": [{"name": "h", "value": {"text": "v", "bytes": 1, "cut": False}}],
        "value": {"text": '{"n":4}', "bytes": 7, "cut": False},
    }  # fmt: skip
    older = ask(name=topic, limit="9", **{"from": "before", "at": found["older"]})
    assert [record["offset"] for record in older["records"]] == [2, 1, 0]
    assert older["older"] is None
    newer = ask(name=topic, limit="9", **{"from": "after", "at": found["newer"]})
    assert (newer["records"], newer["newer"]) == ([], found["newer"])


def test_topics_of_others_are_none_of_the_pages(settings: KafkaSettings) -> None:
    nowhere = settings.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    for name in ("payments", "__consumer_offsets", "telemetry"):
        with pytest.raises(UnavailableError, match=f"Topic {name} is not one of Tidegate's"):
            show_topic(nowhere, topic_request({"name": name}))


def test_a_kafka_that_is_not_there_is_one_sentence(no_kafka: KafkaSettings) -> None:
    with pytest.raises(RetryableError, match="does not answer"):
        list_topics(no_kafka)
    wanted = TopicRequest("telemetry.readings", "newest", 0, None, None, None, 5)
    with pytest.raises(RetryableError, match="does not answer"):
        show_topic(no_kafka, wanted)
