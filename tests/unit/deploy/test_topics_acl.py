"""`tidegate topics acl` and the rights that `doctor` reports: what is printed and which use is rejected."""

import json
from typing import Any

import pytest

from deploy.cli import run
from deploy.commands.topics_acl import acl_lines
from deploy.local.kafka_rights import rights_check
from ingest.kafka_settings import KafkaSettings
from ingest.topics import acl
from ingest.topics.acl import AclPlan
from ingest.topics.roles import Acl, Role, needed_acls

Captured = pytest.CaptureFixture[str]
WRITE = Acl("topic", "telemetry.readings", "literal", "WRITE")
READ = Acl("group", "tidegate-", "prefixed", "READ")
DENIED = Acl("cluster", "kafka-cluster", "literal", "ALTER", "10.0.0.1", "DENY")
PLAN = AclPlan((WRITE,), (READ,), (DENIED,))


def test_each_right_has_its_state() -> None:
    assert acl_lines(PLAN, applied=False, pruned=False) == [
        "right       on                                   state",
        "WRITE       topic telemetry.readings             granted",
        "READ        group tidegate-*                     missing",
        "DENY ALTER  cluster kafka-cluster from 10.0.0.1  surplus",
    ]
    assert [line.split()[-1] for line in acl_lines(PLAN, applied=True, pruned=True)[1:]] == [
        "granted",
        "added",
        "removed",
    ]


@pytest.mark.parametrize(
    ("options", "added", "removed", "words"),
    [
        ([], None, None, "1 right missing, 1 surplus right. Add --apply to grant what is missing. Add --apply --prune"),
        (["--apply"], [READ], [], "1 right added, 1 surplus right. Add --apply --prune to remove what is surplus."),
        (["--apply", "--prune"], [READ], [DENIED], "1 right added, 1 surplus right removed."),
    ],
)
def test_nothing_changes_without_apply(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, options: list[str], added: Any, removed: Any, words: str
) -> None:
    changes: list[Any] = []
    monkeypatch.setattr(acl, "plan_acls", lambda _kafka, principal, roles: PLAN)
    monkeypatch.setattr(acl, "apply_acls", lambda _kafka, _who, **change: changes.append(change))
    command = ["topics", "acl", "--principal", "User:gw", "--role", "gateway", "--role", "reader", "-b", "kafka:9092"]
    assert run([*command, *options]) == 0
    assert words in capsys.readouterr().err
    assert [(list(each["add"]), list(each["remove"])) for each in changes] == (
        [] if added is None else [(added, removed)]
    )
    assert run([*command, *options, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["roles"], shown["applied"], shown["pruned"]) == (
        ["gateway", "reader"],
        "--apply" in options,
        "--prune" in options,
    )
    assert [one["operation"] for one in (*shown["granted"], *shown["missing"], *shown["surplus"])] == [
        "WRITE", "READ", "ALTER",
    ]  # fmt: skip


def test_a_user_without_a_role_loses_all_rights(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    removed: list[Any] = []

    def plan_acls(_kafka: Any, _principal: str, roles: list[Role]) -> AclPlan:
        assert not roles
        return AclPlan((), (), (WRITE, READ))

    monkeypatch.setattr(acl, "plan_acls", plan_acls)
    monkeypatch.setattr(acl, "apply_acls", lambda _kafka, _who, **change: removed.append(change["remove"]))
    command = ["topics", "acl", "--principal", "User:CN=meter-7", "--no-role", "--apply", "--prune", "-b", "kafka:9092"]
    assert run(command) == 0
    assert removed == [(WRITE, READ)]
    assert "2 surplus rights removed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--principal", "gw", "--role", "gateway"], "wanted TYPE:NAME, such as User:gateway"),
        (["--principal", "User:gw", "--role", "gateway", "--prune"], "use it with --apply"),
        (["--principal", "User:gw", "--role", "boss"], "boss"),
        (["--principal", "User:gw"], "--role"),
        (["--principal", "User:gw", "--role", "gateway", "--no-role"], "--no-role for a user who needs no rights"),
    ],
)
def test_a_wrong_use_is_rejected(arguments: list[str], words: str, capsys: Captured) -> None:
    assert run(["topics", "acl", *arguments, "-b", "kafka:9092"]) == 2
    assert words in capsys.readouterr().err


KAFKA = KafkaSettings(sasl_username="gw")


def test_doctor_names_the_roles_whose_rights_the_user_has() -> None:
    missing: dict[Role, list[Acl]] = {role: [] for role in Role}
    assert rights_check(KAFKA, missing).text == "the Kafka user gw has the rights of every role"
    missing[Role.STREAM] = [Acl("topic", "telemetry.readings", "literal", "READ"), READ]
    found = rights_check(KAFKA, missing)
    assert found.state == "ok"
    assert found.text.endswith(
        "gateway, operator, reader, redrive; not of stream (READ on telemetry.readings and READ on groups tidegate-*)"
    )


def test_doctor_fails_for_a_user_without_the_rights_of_any_role() -> None:
    missing = {role: sorted(needed_acls([role])) for role in Role}
    missing[Role.GATEWAY] = [WRITE]
    found = rights_check(KAFKA, missing)
    assert found.state == "fail"
    assert found.text.endswith("has the rights of no role; for gateway it lacks WRITE on telemetry.readings")
    assert "tidegate topics acl --principal" in found.fix

    # Who has the rights of redrive alone can be no part; of the parts it is nearest to the one that lacks least.
    missing[Role.REDRIVE] = []
    assert rights_check(KAFKA, missing).text == found.text


def test_doctor_warns_a_user_who_lacks_only_describe_configs() -> None:
    missing = {role: sorted(needed_acls([role])) for role in Role}
    missing[Role.GATEWAY] = [Acl("topic", "telemetry.readings", "literal", "DESCRIBE_CONFIGS")]
    found = rights_check(KAFKA, missing)
    assert found.state == "warn"
    assert found.text.endswith("has the rights of gateway, except that it cannot see the topics' settings")
