"""Topics and users as Strimzi's operators take them: the topics of the contract, and the rights of each role.

With these topics in place the gateway creates none, so its user needs no right to create topics.
"""

from typing import Any, Final

from ingest.contract.topics import topic_specs
from ingest.kafka_settings import KafkaSettings
from ingest.topics.roles import OWN_TOPICS, Acl, Role, needed_acls

__all__ = ["strimzi_topics", "strimzi_users"]

USERS: Final = {"gateway": Role.GATEWAY, "stream": Role.STREAM, "monitor": Role.READER}
"""Role of each part's user. Redrives from the page need the role operator instead."""
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
    """Return a user per part with the rights of its role, and with a password that Strimzi makes."""
    return [
        {"name": f"tidegate-{part}", "authentication": "scram-sha-512", "acls": _rights(role)}
        for part, role in USERS.items()
    ]


def _rights(role: Role) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for acl in sorted(needed_acls([role])):
        if not (acl.operation == "CREATE" and acl.name in OWN_TOPICS):
            found.setdefault((acl.resource, acl.name, acl.pattern), []).append(_word(acl))
    return [
        {"resource": {"type": kind, "name": name, "patternType": pattern.removesuffix("ed")}, "operations": operations}
        for (kind, name, pattern), operations in found.items()
    ]


def _word(acl: Acl) -> str:
    """Return an operation as Strimzi spells it, such as DescribeConfigs."""
    return "".join(part.capitalize() for part in acl.operation.split("_"))
