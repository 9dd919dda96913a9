"""Rights of a user on a topic and a group: asked of Kafka beforehand, and one error if Kafka refuses."""

import difflib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, NewTopic

from ingest.contract.errors import FatalError, MissingRightError
from ingest.contract.topics import LAND_GROUP, stream_topic
from ingest.kafka_login import user_name
from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import (
    DENIED,
    TIMEOUT_SECONDS,
    admin_client,
    no_answer_error,
    partition_counts,
    result_of,
)
from ingest.topics.roles import GROUPS, OWN_TOPICS, STREAMS, Acl, Role, needed_acls

__all__ = [
    "check_stream_rights",
    "is_denied",
    "missing_by_role",
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


def missing_rights(settings: KafkaSettings, topic: str, needed: Sequence[AclOperation] = _OF_TOPIC) -> list[str]:
    """Return those of the needed rights that this user lacks on an existing topic; empty if Kafka has no authorizer.

    Raises:
        RetryableError: Kafka does not answer.
    """
    client = admin_client(settings)
    return _missing(
        lambda: client.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=TIMEOUT_SECONDS
        )[topic],
        needed,
        settings,
        f"asking for the rights on topic {topic}",
    )


def missing_group_rights(settings: KafkaSettings, group: str, needed: Sequence[AclOperation] = _OF_GROUP) -> list[str]:
    """Return those of the needed rights that this user lacks on a group, used or not; empty if Kafka has no authorizer.

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
        needed,
        settings,
        f"asking for the rights on group {group}",
        is_there=False,
    )


def missing_by_role(settings: KafkaSettings) -> dict[Role, list[Acl]]:
    """Return the rights that this user lacks for each role; empty lists if Kafka has no authorizer.

    Asks about Tidegate's own topics and the group of the landing. A topic that does not exist yet needs CREATE; its other
    rights are not known. Topics of SQL streams are left out: `check_stream_rights` asks about each.

    Raises:
        RetryableError: Kafka does not answer.
    """
    existing = partition_counts(admin_client(settings), settings)
    needed = {role: sorted(one for one in needed_acls([role]) if one.name != STREAMS) for role in Role}
    lacking: dict[str, list[str]] = {}
    for topic in OWN_TOPICS:
        operations = sorted({one.operation for acls in needed.values() for one in acls if one.name == topic})
        if topic in existing:
            lacking[topic] = missing_rights(settings, topic, [AclOperation[one] for one in operations])
        elif _is_hidden(settings, topic):
            lacking[topic] = operations
        else:
            lacking[topic] = [] if _may_create(settings, topic) else ["CREATE"]
    operations = sorted({one.operation for acls in needed.values() for one in acls if one.name == GROUPS})
    lacking[GROUPS] = missing_group_rights(settings, LAND_GROUP, [AclOperation[one] for one in operations])
    # A topic that exists is not created.
    return {
        role: [
            one
            for one in acls
            if one.operation in lacking[one.name] and (one.operation != "CREATE" or one.name not in existing)
        ]
        for role, acls in needed.items()
    }


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


def _may_create(settings: KafkaSettings, topic: str) -> bool:
    """Return whether Kafka would let this user create the topic; creates nothing."""
    client = admin_client(settings)
    asked = client.create_topics([NewTopic(topic, 1, -1)], validate_only=True, request_timeout=TIMEOUT_SECONDS)
    try:
        result_of(asked[topic])
    except (KafkaException, TimeoutError) as error:
        return not is_denied(error)
    return True


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
