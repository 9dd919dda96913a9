"""Rights of a stream's user on the stream's own topic: checked beforehand, because the topic is read after a crash only."""

from ingest.contract.topics import stream_topic
from ingest.kafka_settings import KafkaSettings
from ingest.topics.rights import missing_right, missing_rights

__all__ = ["check_stream_rights"]


def check_stream_rights(kafka: KafkaSettings, name: str) -> None:
    """Ask whether this user may write and read the topic of the stream, which exists.

    Raises:
        MissingRightError: it may not; names each right that is missing.
        RetryableError: Kafka does not answer.
    """
    topic = stream_topic(name)
    missing = missing_rights(kafka, topic)
    lacking = [right for right in ("WRITE", "READ") if right in missing]
    if lacking:
        doing = f"{' and '.join(lacking).lower()} topic {topic}, which its stream writes, and reads after a crash"
        raise missing_right(kafka, doing, " and ".join(lacking))
