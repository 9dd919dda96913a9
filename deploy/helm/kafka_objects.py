"""Topics and users as Strimzi's operators take them: the topics of the contract, and the rights of each part.

The chart decides by its values which rights of `aclsIf` a user gets, since values may change after the export.
"""

from collections.abc import Iterable
from typing import Any, Final

from deploy.kafka_users import MORE, ROLES
from ingest.contract.topics import topic_specs
from ingest.kafka_settings import KafkaSettings
from ingest.topics.roles import OWN_TOPICS, Acl, needed_acls

__all__ = ["strimzi_topics", "strimzi_users"]

USUAL_COPIES: Final = 3
CREATES: Final = "creates"
"""Rights that a part needs where nobody else creates the topics."""


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
    """Return a user per part with the rights of its role, and with a password that Strimzi makes.

    `aclsIf` has more rights by the condition under which the part needs them: `creates`, or a name of MORE.
    """
    return list(map(_user, ROLES))


def _user(part: str) -> dict[str, Any]:
    always = needed_acls([ROLES[part]])
    creates = {acl for acl in always if acl.operation == "CREATE" and acl.name in OWN_TOPICS}
    more = {CREATES: creates} if creates else {}
    if part in MORE:
        more[MORE[part].name] = set(needed_acls([MORE[part].role]) - always)
    return {
        "name": f"tidegate-{part}",
        "authentication": "scram-sha-512",
        "acls": _rights(always - creates),
        **({"aclsIf": {name: _rights(acls) for name, acls in more.items()}} if more else {}),
    }


def _rights(acls: Iterable[Acl]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for acl in sorted(acls):
        found.setdefault((acl.resource, acl.name, acl.pattern), []).append(_word(acl))
    return [
        {"resource": {"type": kind, "name": name, "patternType": pattern.removesuffix("ed")}, "operations": operations}
        for (kind, name, pattern), operations in found.items()
    ]


def _word(acl: Acl) -> str:
    """Return an operation as Strimzi spells it, such as DescribeConfigs."""
    return "".join(part.capitalize() for part in acl.operation.split("_"))
