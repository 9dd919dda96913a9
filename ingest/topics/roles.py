"""Rights in Kafka per role: all that each part of Tidegate needs there, and nothing else.

WRITE, READ and DELETE include DESCRIBE; ALTER_CONFIGS includes DESCRIBE_CONFIGS.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, OUTCOMES, READINGS, stream_topic

__all__ = ["GROUPS", "OWN_TOPICS", "STREAMS", "Acl", "Role", "needed_acls"]


class Role(StrEnum):
    """Part that a Kafka user plays in Tidegate."""

    GATEWAY = "gateway"
    STREAM = "stream"
    OPERATOR = "operator"
    READER = "reader"
    REDRIVE = "redrive"


OWN_TOPICS: Final = (READINGS, DEAD_LETTERS, OUTCOMES, GATEWAY_STATE)
STREAMS: Final = stream_topic("")
"""Prefix of the topics of SQL streams."""
GROUPS: Final = "tidegate-"
"""Prefix of Tidegate's own consumer groups."""


@dataclass(frozen=True, order=True, slots=True)
class Acl:
    """One right of a principal, in Kafka's words.

    Attributes:
        resource: kind of resource: `topic`, `group`, `cluster` or `transactional_id`.
        name: name of the resource, or the beginning of names.
        pattern: `literal` or `prefixed`.
        operation: such as `WRITE`.
        host: address from which it may be used; `*` for any.
        permission: `ALLOW` or `DENY`.
    """

    resource: str
    name: str
    pattern: str
    operation: str
    host: str = "*"
    permission: str = "ALLOW"


_Rights = Mapping[tuple[str, str, str], str]
"""Kind, name and pattern of a resource; the operations on it."""


def _own(operations: str, **more: str) -> _Rights:
    """Return these operations on each own topic, and more on some: keys are the last word of the topic's name."""
    found = {}
    for topic in OWN_TOPICS:
        extra = more.get(topic.rpartition(".")[2].replace("-", "_"), "")
        found["topic", topic, "literal"] = f"{operations} {extra}"
    return found


_RIGHTS: Final[Mapping[Role, _Rights]] = {
    # It creates missing topics and reads its own state after a restart.
    Role.GATEWAY: _own("WRITE CREATE DESCRIBE_CONFIGS", outcomes="READ", gateway_state="READ"),
    # It erases a device's state in the topic of states, and owns the topics and groups of SQL streams.
    Role.STREAM: {
        **_own("READ DESCRIBE_CONFIGS", gateway_state="WRITE"),
        ("topic", STREAMS, "prefixed"): "READ WRITE CREATE DELETE DESCRIBE_CONFIGS",
        ("group", GROUPS, "prefixed"): "READ DELETE",
    },
    # Redrives write readings and outcomes; `topics set` changes the retention.
    Role.OPERATOR: {
        **_own("READ WRITE CREATE ALTER_CONFIGS"),
        ("topic", STREAMS, "prefixed"): "READ WRITE CREATE DELETE ALTER_CONFIGS",
        ("group", GROUPS, "prefixed"): "READ DELETE",
    },
    # Monitor, audit, `tail`, and a gateway with receipts.positive.
    Role.READER: {
        **_own("READ DESCRIBE_CONFIGS"),
        ("topic", STREAMS, "prefixed"): "READ DESCRIBE_CONFIGS",
        ("group", GROUPS, "prefixed"): "DESCRIBE",
    },
    # A monitor whose page redrives, in addition to reader. What is still rejected stays where it is, as the dead letter it was.
    Role.REDRIVE: {
        ("topic", READINGS, "literal"): "WRITE DESCRIBE_CONFIGS",
        ("topic", OUTCOMES, "literal"): "WRITE DESCRIBE_CONFIGS",
        ("topic", GATEWAY_STATE, "literal"): "READ",
    },
}


def needed_acls(roles: Iterable[Role]) -> frozenset[Acl]:
    """Return all rights that a principal with these roles needs."""
    return frozenset(
        Acl(*resource, operation)
        for role in roles
        for resource, operations in _RIGHTS[role].items()
        for operation in operations.split()
    )
