"""What a user may do with a topic and a group: asked of Kafka, instead of learned by a failure in the middle of a run."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation

from ingest.admin import TIMEOUT_SECONDS, admin_client, result_of, unanswered
from ingest.settings import KafkaSettings

__all__ = ["missing_group_rights", "missing_rights"]

_OF_TOPIC: Final = (AclOperation.WRITE, AclOperation.READ, AclOperation.DELETE)
_OF_GROUP: Final = (AclOperation.READ,)
_HIDDEN: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED})
"""Each of those rights lets its user describe too: who may not describe has none of them."""


def missing_rights(settings: KafkaSettings, topic: str) -> list[str]:
    """Those of WRITE, READ and DELETE that this user lacks on an existing topic; none where Kafka has no authorizer.

    Raises:
        RetryableError: Kafka does not answer.
    """
    client = admin_client(settings)
    return _missing(
        lambda: client.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=TIMEOUT_SECONDS
        )[topic],
        _OF_TOPIC,
        settings,
        f"asking for the rights on topic {topic}",
    )


def missing_group_rights(settings: KafkaSettings, group: str) -> list[str]:
    """READ where this user lacks it on a group that nobody used yet; none where Kafka has no authorizer.

    Rights are checked before the group is looked for, so another error says that they are there: a new group is not found, and a
    new cluster has no coordinator for its first one.

    Raises:
        RetryableError: Kafka does not answer.
    """
    client = admin_client(settings)
    return _missing(
        lambda: client.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=TIMEOUT_SECONDS
        )[group],
        _OF_GROUP,
        settings,
        f"asking for the rights on group {group}",
        is_there=False,
    )


def _missing(
    ask: Callable[[], Any],
    needed: Sequence[AclOperation],
    settings: KafkaSettings,
    what: str,
    *,
    is_there: bool = True,
) -> list[str]:
    """Names of the rights that are needed and not there; none where what is asked about is not there and so cannot say."""
    try:
        allowed = result_of(ask()).authorized_operations
    except (KafkaException, TimeoutError) as error:
        code = error.args[0].code() if isinstance(error, KafkaException) else None
        if code in _HIDDEN:
            return [each.name for each in needed]
        if code is not None and not is_there:
            return []
        raise unanswered(settings, error, what) from error
    # A broker that does not say has nothing to forbid.
    if allowed is None or AclOperation.ALL in allowed:
        return []
    return [each.name for each in needed if each not in allowed]
