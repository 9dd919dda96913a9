"""Topics and users as Strimzi's operators take them: the topics of the contract, and the rights of each role.

With these topics in place the gateway creates none, so its user needs no right to create topics.
"""

from typing import Any, Final

from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, OUTCOMES, READINGS, stream_topic, topic_specs
from ingest.kafka_settings import KafkaSettings

__all__ = ["ROLES", "strimzi_topics", "strimzi_users"]

OWN: Final = (READINGS, DEAD_LETTERS, OUTCOMES, GATEWAY_STATE)
SEEN: Final = ("Describe", "DescribeConfigs")
"""A part that sees a topic's limits need not learn them from errors."""

Right = tuple[str, str, str, tuple[str, ...]]
"""Kind of resource, its name, `literal` or `prefix`, and Kafka's operations."""

ROLES: Final[dict[str, tuple[Right, ...]]] = {
    # It reads its own state and the counts of its last process after a restart.
    "gateway": tuple(
        ("topic", name, "literal", ("Write", *SEEN, *(("Read",) if name in (OUTCOMES, GATEWAY_STATE) else ())))
        for name in OWN
    ),
    # An erasure replaces a device's state. SQL streams have topics of their own.
    "stream": (
        *(("topic", name, "literal", ("Read", *SEEN)) for name in (READINGS, DEAD_LETTERS, OUTCOMES)),
        ("topic", GATEWAY_STATE, "literal", ("Read", "Write", *SEEN)),
        ("topic", stream_topic(""), "prefix", ("Read", "Write", "Create", "Delete", *SEEN)),
        ("group", "tidegate-", "prefix", ("Read", "Delete", "Describe")),
    ),
    # Audits read all records; the page shows topics and groups.
    "monitor": (
        *(("topic", name, "literal", ("Read", *SEEN)) for name in OWN),
        ("topic", stream_topic(""), "prefix", ("Read", *SEEN)),
        ("group", "tidegate-", "prefix", ("Describe",)),
    ),
}
"""Rights of the parts. Redrives from the page also need Write on readings and dead letters."""
USUAL_COPIES: Final = 3


def strimzi_topics(settings: KafkaSettings) -> list[dict[str, Any]]:
    """Return name, partitions, replicas and configuration of each topic of the contract."""
    copies = (settings.replication if "replication" in settings.model_fields_set else 0) or USUAL_COPIES
    specs = topic_specs(
        partitions=settings.partitions,
        max_record_bytes=settings.max_record_bytes,
        retention_bytes=settings.retention_bytes,
        retention_ms=settings.retention_hours * 3_600_000,
    )
    durable = {"min.insync.replicas": str(copies - 1), "unclean.leader.election.enable": "false"} if copies > 2 else {}
    return [
        {"name": spec.name, "partitions": spec.partitions, "replicas": copies, "config": spec.config | durable}
        for spec in specs
    ]


def strimzi_users() -> list[dict[str, Any]]:
    """Return a user per role, with a password that Strimzi makes."""
    return [
        {
            "name": f"tidegate-{role}",
            "authentication": "scram-sha-512",
            "acls": [
                {"resource": {"type": kind, "name": name, "patternType": pattern}, "operations": list(operations)}
                for kind, name, pattern, operations in rights
            ],
        }
        for role, rights in ROLES.items()
    ]
