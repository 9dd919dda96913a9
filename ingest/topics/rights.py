"""Rights of a user on a topic and a group: asked of Kafka beforehand, and one error if Kafka refuses."""

import difflib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation

from ingest.contract.errors import FatalError, MissingRightError
from ingest.contract.topics import stream_topic
from ingest.kafka_login import user_name
from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import DENIED, TIMEOUT_SECONDS, admin_client, no_answer_error, result_of

__all__ = [
    "check_stream_rights",
    "is_denied",
    "missing_group_rights",
    "missing_right",
    "missing_rights",
    "topic_not_found",
]

Resource = Literal["topic", "group", "cluster"]

_OF_TOPIC: Final = (AclOperation.WRITE, AclOperation.READ, AclOperation.DELETE)
_OF_GROUP: Final = (AclOperation.READ,)


def is_denied(error: BaseException | KafkaError | None) -> bool:
    """Return whether Kafka refuses because of a missing right, and for no other reason."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    return isinstance(cause, KafkaError) and cause.code() in DENIED


def missing_right(
    settings: KafkaSettings, doing: str, right: str, on: Resource = "topic", *, instead: str = ""
) -> MissingRightError:
    """Make the error for a missing right.

    Args:
        settings: the cluster and its user.
        doing: what was refused, with the topic's or the group's name, such as `read topic rooms`.
        right: Kafka's name of the operation.
        on: kind of resource that the right is granted on.
        instead: another next step.
    """
    user = user_name(settings)
    other = f", or {instead}" if instead else ""
    return MissingRightError(f"The Kafka user {user} may not {doing}: grant it {right} on the {on}{other}")


def topic_not_found(settings: KafkaSettings, topic: str, known: Iterable[str]) -> FatalError:
    """Make the error for a topic that this user does not see; it names the nearest topic that the user sees.

    Kafka hides a topic from a user without a right on it, and does not say whether it exists.
    """
    close = difflib.get_close_matches(topic, [name for name in known if not name.startswith("__")], n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    none = f"Kafka at {settings.bootstrap_servers} has no topic {topic}"
    if _is_hidden(settings, topic):
        user = user_name(settings)
        return MissingRightError(
            f"{none}, or user {user} may not see it. {guess}If the topic exists, grant the user READ, WRITE or DESCRIBE on it"
        )
    return FatalError(
        f"{none}. {guess}See `tidegate topics ls --all`, or create it with `tidegate topics create {topic}`"
    )


def missing_rights(settings: KafkaSettings, topic: str) -> list[str]:
    """Return those of WRITE, READ and DELETE that this user lacks on an existing topic; empty if Kafka has no authorizer.

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
    """Return READ if this user lacks it on a group that nobody used yet; empty if Kafka has no authorizer.

    Kafka checks rights before it looks for the group, so any other error shows that the user has them: a new group is not
    found, and a new cluster has no coordinator for its first one.

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


def check_stream_rights(kafka: KafkaSettings, name: str) -> None:
    """Ask whether this user may write and read the topic of the stream, which exists. It is read only after a crash.

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


def _is_hidden(settings: KafkaSettings, topic: str) -> bool:
    """Return whether Kafka refuses to say that this topic exists; False if it does not answer."""
    client = admin_client(settings)
    try:
        # Unlike a request for the topic's metadata, this one never creates a topic.
        result_of(client.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_SECONDS)[topic])
    except (KafkaException, TimeoutError) as error:
        return is_denied(error)
    return False


def _missing(
    ask: Callable[[], Any],
    needed: Sequence[AclOperation],
    settings: KafkaSettings,
    what: str,
    *,
    is_there: bool = True,
) -> list[str]:
    """Return the names of the needed rights that are missing; empty if the resource does not exist."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            allowed = result_of(ask()).authorized_operations
            break
        except (KafkaException, TimeoutError) as error:
            # Each of those rights includes DESCRIBE, so a user who may not describe has none of them.
            if is_denied(error):
                return [each.name for each in needed]
            if isinstance(error, KafkaException) and not is_there:
                return []
            # A broker learns of a new topic after the controller has answered.
            if not _is_unknown(error) or time.monotonic() > deadline:
                raise no_answer_error(settings, error, what) from error
            time.sleep(0.1)
    # A broker that reports no operations forbids nothing.
    if allowed is None or AclOperation.ALL in allowed:
        return []
    return [each.name for each in needed if each not in allowed]


def _is_unknown(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
