"""The embedded Kafka as clients and the supervisor meet it."""

import subprocess
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.local.kafka import EmbeddedKafka
from deploy.local.ports import choose_port
from tests.support.servers import make_topics

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def make_topic(server: Any, name: str, **config: str) -> None:
    make_topics(server.bootstrap_servers, NewTopic(name, 1, 1, config=config))


def produce(server: Any, topic: str, values: list[bytes], codec: str = "none") -> None:
    producer = Producer({
        "bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True, "compression.type": codec,
    })  # fmt: skip
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def read_all(server: Any, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": f"read-{topic}"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[bytes] = []
    while len(got) < count:
        messages = consumer.consume(count - len(got), timeout=60)
        assert messages, f"{len(got)} of {count} came"
        assert not any(message.error() for message in messages)
        got += [message.value() for message in messages]
    consumer.close()
    return got


@pytest.mark.parametrize("kept", ["producer", *CODECS[1:]])
@pytest.mark.parametrize("sent", CODECS)
def test_every_codec_works_with_the_libraries_shared_with_spark(
    sent: str, kept: str, kafka_server: Any, unique_name: str
) -> None:
    make_topic(kafka_server, unique_name, **{"compression.type": kept})
    values = [b"%d " % number * 50 for number in range(100)]
    produce(kafka_server, unique_name, values, sent)
    assert read_all(kafka_server, unique_name, 100) == values


def test_a_topic_is_never_made_by_asking_for_it(kafka_server: Any, unique_name: str) -> None:
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap_servers, "topic.metadata.propagation.max.ms": 500})
    errors: list[KafkaError | None] = []
    producer.produce(unique_name, b"x", on_delivery=lambda error, _message: errors.append(error))
    producer.flush(60)
    assert [error.code() for error in errors if error] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    topics = AdminClient({"bootstrap.servers": kafka_server.bootstrap_servers}).list_topics(timeout=30).topics
    assert unique_name not in topics


def test_the_oldest_records_go_when_a_topic_reaches_its_size(
    kafka_server: Any, unique_name: str, wait_until: Any
) -> None:
    megabyte = 1024 * 1024
    make_topic(kafka_server, unique_name, **{
        "segment.bytes": str(megabyte), "retention.bytes": str(2 * megabyte), "file.delete.delay.ms": "0",
    })  # fmt: skip
    produce(kafka_server, unique_name, [b"x" * 100_000] * 80)
    consumer = Consumer({"bootstrap.servers": kafka_server.bootstrap_servers, "group.id": unique_name})

    def first_kept() -> int:
        low, _high = consumer.get_watermark_offsets(TopicPartition(unique_name, 0), timeout=30, cached=False)
        return int(low)

    wait_until(lambda: first_kept() >= 40, seconds=90, what="the removal of old segments")
    consumer.close()


def test_records_and_identity_outlive_kill_9_and_other_ports(new_kafka: Any, unique_name: str) -> None:
    server = new_kafka()
    make_topic(server, unique_name)
    values = [b"%d" % number for number in range(1000)]
    produce(server, unique_name, values)
    identity = AdminClient({"bootstrap.servers": server.bootstrap_servers}).list_topics(timeout=30).cluster_id
    server.kill()
    old = server.part
    server.part = EmbeddedKafka(old.data_dir, old.java, choose_port(0)[0], choose_port(0)[0])
    server.restart()
    assert read_all(server, unique_name, 1000) == values
    assert AdminClient({"bootstrap.servers": server.bootstrap_servers}).list_topics(timeout=30).cluster_id == identity


def test_kafkas_own_tool_shows_the_lag_of_a_group(kafka_server: Any, unique_name: str) -> None:
    make_topic(kafka_server, unique_name)
    produce(kafka_server, unique_name, [b"x"] * 10)
    consumer = Consumer({"bootstrap.servers": kafka_server.bootstrap_servers, "group.id": unique_name})
    consumer.commit(offsets=[TopicPartition(unique_name, 0, 4)], asynchronous=False)
    consumer.close()
    arguments = ["--bootstrap-server", kafka_server.bootstrap_servers, "--describe", "--group", unique_name]
    command = kafka_server.part.tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *arguments)
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    line = next(line.split() for line in shown.splitlines() if line.startswith(unique_name))
    assert line[2:6] == ["0", "4", "10", "6"]


def test_a_topic_can_be_made_the_moment_it_says_ready(kafka_server: Any, unique_name: str) -> None:
    assert kafka_server.part.ready()
    make_topic(kafka_server, unique_name)
    with pytest.raises(KafkaException, match="already exists"):
        make_topic(kafka_server, unique_name)


def test_another_server_on_the_port_is_not_taken_for_kafka(mqtt_broker: Any, kafka_server: Any) -> None:
    broker = mqtt_broker("iotcore")
    part = kafka_server.part
    assert not EmbeddedKafka(part.data_dir, part.java, broker.port, part.controller_port).ready()
