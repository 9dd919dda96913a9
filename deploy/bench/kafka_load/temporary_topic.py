"""Topic of a load, which exists only during the load."""

from collections.abc import Iterator
from contextlib import contextmanager

from deploy.bench.kafka_load.feed import SteadyLoad
from deploy.bench.kafka_load.workload import Workload
from ingest.contract.errors import FatalError
from ingest.kafka_settings import KafkaSettings
from ingest.topics.setup import create_topic, delete_topic

__all__ = ["temporary_topic"]


@contextmanager
def temporary_topic(load: Workload | SteadyLoad, kafka: KafkaSettings, name: str = "") -> Iterator[None]:
    """Make the topic of a load, or another one as it with this name; it is removed when the block ends.

    Raises:
        ConfigError: Kafka can't make such a topic.
        FatalError: a right is missing, or the topic is there already: it belongs to another run, and stays.
        RetryableError: Kafka does not answer.
    """
    name = name or load.topic
    settings = kafka.model_copy(update={"replication": load.replication})
    if not create_topic(settings, name, partitions=load.partitions, config=load.topic_config):
        message = f"topic {name} already exists: another run uses it or left it behind. In the second case delete it"
        raise FatalError(message)
    try:
        yield
    finally:
        delete_topic(kafka, name)
