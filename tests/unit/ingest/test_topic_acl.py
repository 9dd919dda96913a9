"""Rights per role, the comparison with ACLs, and errors of a cluster that keeps none or refuses; without a Kafka."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from ingest.contract.errors import MissingRightError, RetryableError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.topics import acl as acls
from ingest.topics.acl import apply_acls, plan_acls
from ingest.topics.roles import OWN_TOPICS, Acl, Role, needed_acls

SETTINGS = KafkaSettings()
USER = "User:gw"


def answered(result: object) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


class Keeper:
    """Keeps ACLs as Kafka does; `refuses` is the error code of every answer."""

    def __init__(self, refuses: int | None = None) -> None:
        self.held: set[AclBinding] = set()
        self.allowed: list[AclOperation] | None = [AclOperation.DESCRIBE]
        self._refused = None if refuses is None else KafkaException(KafkaError(refuses))

    def describe_cluster(self, **_: Any) -> "Future[Any]":
        return answered(SimpleNamespace(authorized_operations=self.allowed))

    def describe_acls(self, wanted: Any, **_: Any) -> "Future[Any]":
        # Also if it refuses: librdkafka does not pass the error on.
        return answered([one for one in self.held if one.principal == wanted.principal])

    def create_acls(self, bindings: list[AclBinding], **_: Any) -> "dict[Any, Future[Any]]":
        self.held |= set(bindings)
        return {one: answered(self._refused) for one in bindings}

    def delete_acls(self, filters: list[Any], **_: Any) -> "dict[Any, Future[Any]]":
        names = [(one.restype, one.name, one.operation, one.principal) for one in filters]
        self.held = {one for one in self.held if (one.restype, one.name, one.operation, one.principal) not in names}
        return {place: answered(self._refused) for place, _one in enumerate(filters)}


@pytest.fixture
def keep(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Keeper]:
    def be(refuses: int | None = None) -> Keeper:
        keeper = Keeper(refuses)
        monkeypatch.setattr(acls, "admin_client", lambda _settings: keeper)
        monkeypatch.setattr(acls, "partition_counts", lambda *_: {})
        return keeper

    return be


def rights(role: Role, name: str) -> set[str]:
    return {one.operation for one in needed_acls([role]) if one.name == name}


def test_each_role_has_only_its_rights() -> None:
    readings, state = "telemetry.readings", "telemetry.gateway-state"
    assert rights(Role.GATEWAY, readings) == {"WRITE", "CREATE", "DESCRIBE_CONFIGS"}
    assert rights(Role.GATEWAY, state) == {"WRITE", "CREATE", "DESCRIBE_CONFIGS", "READ"}
    assert rights(Role.STREAM, readings) == rights(Role.READER, readings) == {"READ", "DESCRIBE_CONFIGS"}
    assert rights(Role.STREAM, "telemetry.stream.") == {"READ", "WRITE", "CREATE", "DELETE", "DESCRIBE_CONFIGS"}
    assert rights(Role.STREAM, "tidegate-") == {"READ", "DELETE"}
    assert rights(Role.READER, "tidegate-") == {"DESCRIBE"}
    assert rights(Role.REDRIVE, readings) == {"WRITE", "DESCRIBE_CONFIGS"}
    assert rights(Role.REDRIVE, "telemetry.dead-letters") == set()
    for role in Role:
        found = needed_acls([role])
        assert {one.name for one in found} <= {*OWN_TOPICS, "telemetry.stream.", "tidegate-"}
        assert {one.pattern for one in found if one.name in OWN_TOPICS} == {"literal"}
        assert {one.pattern for one in found if one.name not in OWN_TOPICS} <= {"prefixed"}
    # Only the stream deletes, and nobody deletes raw records or grants rights.
    assert not [one for role in Role for one in needed_acls([role]) if one.operation in ("DELETE", "ALTER", "ALL")
                and one.name in OWN_TOPICS]  # fmt: skip
    assert needed_acls([Role.GATEWAY, Role.READER]) == needed_acls([Role.GATEWAY]) | needed_acls([Role.READER])


def test_missing_rights_are_added_and_surplus_ones_removed_only_on_request(keep: Callable[..., Keeper]) -> None:
    keeper = keep()
    spare = AclBinding(
        ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, USER, "10.0.0.1", AclOperation.ALTER,
        AclPermissionType.DENY,
    )  # fmt: skip
    other = AclBinding(
        ResourceType.TOPIC, "rooms", ResourcePatternType.LITERAL, "User:other", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    keeper.held = {spare, other}
    surplus = (Acl("cluster", "kafka-cluster", "literal", "ALTER", "10.0.0.1", "DENY"),)
    needed = tuple(sorted(needed_acls([Role.GATEWAY])))

    plan = plan_acls(SETTINGS, USER, [Role.GATEWAY])
    assert (plan.granted, plan.missing, plan.surplus) == ((), needed, surplus)
    assert keeper.held == {spare, other}

    apply_acls(SETTINGS, USER, add=plan.missing)
    plan = plan_acls(SETTINGS, USER, [Role.GATEWAY])
    assert (plan.granted, plan.missing, plan.surplus) == (needed, (), surplus)

    apply_acls(SETTINGS, USER, add=(), remove=plan.surplus)
    plan = plan_acls(SETTINGS, USER, [Role.GATEWAY])
    assert (plan.granted, plan.missing, plan.surplus) == (needed, (), ())
    assert other in keeper.held
    # A change of role shows what the new one does not need.
    changed = plan_acls(SETTINGS, USER, [Role.READER])
    assert {(one.operation, one.name) for one in changed.surplus} >= {("WRITE", "telemetry.readings")}


def test_a_cluster_without_authorizer_is_one_sentence(keep: Callable[..., Keeper]) -> None:
    keep(KafkaError.SECURITY_DISABLED)
    with pytest.raises(UnavailableError, match="has no authorizer, so every user may do everything"):
        plan_acls(SETTINGS, USER, [Role.GATEWAY])


@pytest.mark.parametrize("nothing", [[], None])
def test_a_user_who_may_not_see_acls_gets_the_missing_right(keep: Callable[..., Keeper], nothing: Any) -> None:
    keep().allowed = nothing
    with pytest.raises(MissingRightError, match="may not see ACLs: grant it DESCRIBE on the cluster"):
        plan_acls(SETTINGS, USER, [Role.GATEWAY])


def test_a_user_who_may_see_acls_and_not_change_them_gets_a_plan(keep: Callable[..., Keeper]) -> None:
    keep(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    assert plan_acls(SETTINGS, USER, [Role.GATEWAY]).missing == tuple(sorted(needed_acls([Role.GATEWAY])))


def test_a_kafka_without_an_answer_is_retryable(keep: Callable[..., Keeper]) -> None:
    keep(KafkaError._TIMED_OUT)
    with pytest.raises(RetryableError, match="failed while asked to see ACLs"):
        plan_acls(SETTINGS, USER, [Role.GATEWAY])


def test_a_user_who_may_not_grant_gets_the_missing_right(keep: Callable[..., Keeper]) -> None:
    keep(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(MissingRightError, match="may not change the ACLs of User:gw: grant it ALTER on the cluster"):
        apply_acls(SETTINGS, USER, add=sorted(needed_acls([Role.READER])))
