"""What a user may do with a topic: asked of Kafka, instead of learned by a failure in the middle of a run."""

from collections.abc import Collection
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation

from ingest.admin import TIMEOUT_SECONDS, admin_client, result_of, unanswered
from ingest.settings import KafkaSettings

__all__ = ["missing_rights"]

_NEEDED: Final = (AclOperation.WRITE, AclOperation.READ, AclOperation.DELETE)


def missing_rights(settings: KafkaSettings, topic: str) -> list[str]:
    """Those of WRITE, READ and DELETE that this user lacks on an existing topic; none where Kafka has no authorizer.

    Raises:
        RetryableError: Kafka does not answer, or does not let this user describe the topic.
    """
    client = admin_client(settings)
    described = client.describe_topics(
        TopicCollection([topic]), include_authorized_operations=True, request_timeout=TIMEOUT_SECONDS
    )
    try:
        allowed = result_of(described[topic]).authorized_operations
    except (KafkaException, TimeoutError) as error:
        raise unanswered(settings, error, f"asking for the rights on topic {topic}") from error
    # A broker that does not say has nothing to forbid.
    return [] if allowed is None else _lacking(allowed)


def _lacking(allowed: Collection[AclOperation]) -> list[str]:
    return [] if AclOperation.ALL in allowed else [needed.name for needed in _NEEDED if needed not in allowed]
