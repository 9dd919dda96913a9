"""ACLs of a principal in Kafka: compared with what its roles need, added, and removed."""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from ingest.contract.errors import MissingRightError, TidegateError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import TIMEOUT_SECONDS, admin_client, no_answer_error, partition_counts, result_of
from ingest.topics.rights import is_denied, missing_right
from ingest.topics.roles import Acl, Role, needed_acls

__all__ = ["AclPlan", "apply_acls", "plan_acls"]

Made = TypeVar("Made")

SHOWN_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.05
_ANY: Any = None
"""Any name or host in a filter; the client's type hints do not know it."""
_CLUSTER: Final = "cluster"
"""Kafka's word for the resource that librdkafka calls BROKER."""


@dataclass(frozen=True, slots=True)
class AclPlan:
    """Rights of a principal next to those that its roles need; each sorted.

    Attributes:
        granted: needed, and granted.
        missing: needed, but not granted.
        surplus: granted or denied, but not needed.
    """

    granted: tuple[Acl, ...]
    missing: tuple[Acl, ...]
    surplus: tuple[Acl, ...]


def plan_acls(settings: KafkaSettings, principal: str, roles: Iterable[Role]) -> AclPlan:
    """Compare the principal's ACLs with what its roles need; changes nothing.

    Args:
        settings: the cluster, with a user who may see its ACLs.
        principal: as brokers name it, such as `User:gateway`.
        roles: all roles of the principal.

    Raises:
        UnavailableError: the cluster has no authorizer.
        MissingRightError: this user may not see the ACLs.
        RetryableError: Kafka does not answer.
    """
    client = admin_client(settings)
    # Ask for topics first: that answer says why a login fails.
    partition_counts(client, settings)
    _check_may_see(client, settings)
    found = _acls_of(client, settings, principal)
    if not found:
        _check_authorizer(client, settings)
    return _compare(found, needed_acls(roles))


def apply_acls(settings: KafkaSettings, principal: str, *, add: Sequence[Acl], remove: Sequence[Acl] = ()) -> None:
    """Add rights, then remove others. Returns when Kafka shows the change, after five seconds at the latest.

    Raises:
        UnavailableError: the cluster has no authorizer.
        MissingRightError: this user may not change the ACLs.
        RetryableError: Kafka does not answer.
    """
    client = admin_client(settings)
    partition_counts(client, settings)
    doing = f"change the ACLs of {principal}"
    if add:
        made = client.create_acls([_binding(one, principal) for one in add], request_timeout=TIMEOUT_SECONDS)
        _await_all(made.values(), settings, doing)
    if remove:
        gone = client.delete_acls([_filter(one, principal) for one in remove], request_timeout=TIMEOUT_SECONDS)
        _await_all(gone.values(), settings, doing)
    deadline = time.monotonic() + SHOWN_SECONDS
    while time.monotonic() < deadline:
        shown = _acls_of(client, settings, principal)
        if shown >= set(add) and not shown & set(remove):
            return
        time.sleep(PAUSE_SECONDS)


def _compare(found: frozenset[Acl], needed: frozenset[Acl]) -> AclPlan:
    return AclPlan(tuple(sorted(found & needed)), tuple(sorted(needed - found)), tuple(sorted(found - needed)))


def _check_may_see(client: AdminClient, settings: KafkaSettings) -> None:
    """Check the right to see ACLs: librdkafka answers a refused question about ACLs with an empty list (2.16.0).

    Raises:
        MissingRightError: this user lacks the right.
    """
    asked = client.describe_cluster(include_authorized_operations=True, request_timeout=TIMEOUT_SECONDS)
    (found,) = _await_all([asked], settings, "see ACLs", right="DESCRIBE")
    allowed = found.authorized_operations
    if not {AclOperation.DESCRIBE, AclOperation.ALTER, AclOperation.ALL}.intersection(allowed or ()):
        raise missing_right(settings, "see ACLs", "DESCRIBE", _CLUSTER)


def _check_authorizer(client: AdminClient, settings: KafkaSettings) -> None:
    """Check that the cluster keeps ACLs, by the removal of one that nobody can have; a refusal shows an authorizer too.

    Raises:
        UnavailableError: the cluster has no authorizer.
    """
    nobody = f"User:{uuid.uuid4()}"
    asked = client.delete_acls(
        [_filter(Acl("topic", nobody, "literal", "READ"), nobody)], request_timeout=TIMEOUT_SECONDS
    )
    try:
        _await_all(asked.values(), settings, "see ACLs")
    except MissingRightError:
        return


def _acls_of(client: AdminClient, settings: KafkaSettings, principal: str) -> frozenset[Acl]:
    wanted = AclBindingFilter(
        ResourceType.ANY, _ANY, ResourcePatternType.ANY, principal, _ANY, AclOperation.ANY, AclPermissionType.ANY
    )
    (found,) = _await_all(
        [client.describe_acls(wanted, request_timeout=TIMEOUT_SECONDS)], settings, "see ACLs", right="DESCRIBE"
    )
    return frozenset(
        Acl(
            _CLUSTER if one.restype == ResourceType.BROKER else one.restype.name.lower(),
            one.name,
            one.resource_pattern_type.name.lower(),
            one.operation.name,
            one.host,
            one.permission_type.name,
        )
        for one in found
    )


def _await_all(futures: Iterable[Any], settings: KafkaSettings, doing: str, *, right: str = "ALTER") -> list[Any]:
    try:
        return [result_of(future) for future in futures]
    except (KafkaException, TimeoutError) as error:
        raise _acl_error(settings, error, doing, right) from error


def _acl_error(settings: KafkaSettings, error: Exception, doing: str, right: str) -> TidegateError:
    if is_denied(error):
        return missing_right(settings, doing, right, _CLUSTER)
    if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.SECURITY_DISABLED:
        return UnavailableError(
            f"Kafka at {settings.bootstrap_servers} has no authorizer, so every user may do everything and it keeps no ACLs: "
            "set authorizer.class.name on all brokers first."
        )
    return no_answer_error(settings, error, f"asked to {doing}")


def _binding(acl: Acl, principal: str) -> AclBinding:
    return _as(AclBinding, acl, principal)


def _filter(acl: Acl, principal: str) -> AclBindingFilter:
    return _as(AclBindingFilter, acl, principal)


def _as(kind: Callable[..., Made], acl: Acl, principal: str) -> Made:
    return kind(
        ResourceType.BROKER if acl.resource == _CLUSTER else ResourceType[acl.resource.upper()],
        acl.name,
        ResourcePatternType[acl.pattern.upper()],
        principal,
        acl.host,
        AclOperation[acl.operation],
        AclPermissionType[acl.permission],
    )
