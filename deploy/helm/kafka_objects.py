"""Topics and users as Strimzi's operators take them: the topics of the contract, and the rights of each role.

With these topics in place the gateway creates none, so its user needs no right to create topics.
"""

from typing import Any, Final

from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, OUTCOMES, READINGS, topic_specs
from ingest.kafka_settings import KafkaSettings

__all__ = ["ROLES", "strimzi_topics", "strimzi_users"]

Right = tuple[str, str, str, tuple[str, ...]]
"""Kind of resource, its name, `literal` or `prefix`, and Kafka's operations."""

ROLES: Final[dict[str, tuple[Right, ...]]] = {
    "gateway": (
        ("topic", READINGS, "literal", ("Write", "Describe")),
        ("topic", DEAD_LETTERS, "literal", ("Write", "Describe")),
        # It reads the counts of its last process after a restart.
        ("topic", OUTCOMES, "literal", ("Write", "Describe", "Read")),
        ("topic", GATEWAY_STATE, "literal", ("Write", "Describe", "Read")),
    ),
    "stream": (
        ("topic", READINGS, "literal", ("Read", "Describe")),
        ("topic", DEAD_LETTERS, "literal", ("Read", "Describe")),
        ("topic", OUTCOMES, "literal", ("Read", "Describe")),
        ("group", "tidegate-", "prefix", ("Read",)),
    ),
}
"""Rights of the two roles that move readings. SQL streams with topics, erasures and redrives need more."""
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
