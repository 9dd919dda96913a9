"""The rights in Kafka that each form of deployment gives to a part, against what the part does there."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.export.compose import compose_files
from deploy.export.parts import production_parts
from deploy.export.systemd import systemd_files
from deploy.helm.kafka_objects import strimzi_users
from deploy.kafka_users import acl_arguments, part_roles
from deploy.local.secured_run import COMMANDS, kafka_roles
from deploy.production.first_file import next_steps
from deploy.settings import Settings, load_settings
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, OUTCOMES, READINGS, topic_specs
from ingest.topics.roles import Role, needed_acls
from tests.support.dead_letters import Lake

LOGIN = {
    "kafka.bootstrap_servers": "kafka.example.org:9093",
    "kafka.security_protocol": "SASL_SSL",
    "kafka.sasl_mechanism": "SCRAM-SHA-512",
    "kafka.sasl_username": "tide gate",
    "kafka.sasl_password": "hush",
}
PROXY = {
    "monitoring.proxy_user_header": "X-User",
    "monitoring.proxy_addresses": ["10.0.0.5"],
    "monitoring.proxy_write_users": ["kim"],
}
CASES: dict[str, tuple[dict[str, Any], dict[str, tuple[Role, ...]]]] = {
    "usual": ({}, {}),
    "a token for readers": ({"monitoring.read_token_file": "/none"}, {}),
    "a token for redrives": ({"monitoring.page_token_file": "/none"}, {"monitor": (Role.READER, Role.REDRIVE)}),
    "users of a proxy who redrive": (PROXY, {"monitor": (Role.READER, Role.REDRIVE)}),
    "receipts of stored messages": ({"receipts.positive": True}, {"gateway": (Role.GATEWAY, Role.READER)}),
    "no receipts": ({"receipts.positive": True, "receipts.enabled": False}, {}),
}
USUAL = {"gateway": (Role.GATEWAY,), "stream": (Role.STREAM,), "monitor": (Role.READER,)}


def made(name: str) -> Settings:
    return load_settings(environ={}, overrides={**LOGIN, **CASES[name][0]})


def topics_with(operation: str, *roles: Role) -> set[str]:
    return {one.name for one in needed_acls(roles) if one.operation == operation}


def words(text: str) -> list[str]:
    """The roles in the line of a text that grants them."""
    (line,) = (line for line in text.splitlines() if " topics acl " in line)
    flags = shlex.split(line)
    assert flags[flags.index("--principal") + 1] == "User:tide gate"
    return [flags[at + 1] for at, word in enumerate(flags) if word == "--role"]


@pytest.mark.parametrize("name", CASES)
def test_each_part_has_the_roles_that_its_settings_need(name: str) -> None:
    settings = made(name)
    assert part_roles(settings) == USUAL | CASES[name][1]
    assert {part.name for part in production_parts(settings) if "kafka" in part.sections} == set(USUAL)


@pytest.mark.parametrize("name", CASES)
def test_all_forms_of_deployment_give_the_same_roles(name: str) -> None:
    settings = made(name)
    roles = part_roles(settings)
    assert kafka_roles(settings) == roles | {COMMANDS: (Role.OPERATOR,)}, "up --secure"

    shared = {role for found in roles.values() for role in found}
    steps = "\n".join(line for _, lines in next_steps(Path("prod.toml"), settings) for line in lines)
    forms: dict[str, Callable[[], str]] = {
        "init prod": lambda: steps,
        "systemd": lambda: systemd_files(settings)["README.md"],
    }
    for form, text in forms.items():
        assert set(words(text())) == shared, form
    # Compose always has a token for redrives.
    assert set(words(compose_files(settings, image="x")["README.md"])) == shared | {Role.REDRIVE}


@pytest.mark.parametrize("part", USUAL)
def test_strimzi_can_give_all_roles_of_a_part_and_no_more(part: str) -> None:
    """Helm decides which conditions hold: tests/integration/test_deploy_helm_users.py."""
    (user,) = (one for one in strimzi_users() if one["name"] == f"tidegate-{part}")
    rules = [*user["acls"], *(one for more in user.get("aclsIf", {}).values() for one in more)]
    given = {(one["resource"]["name"], word.upper()) for one in rules for word in one["operations"]}
    most = {role for _, found in CASES.values() for role in (USUAL | found)[part]}
    assert given == {(one.name, one.operation.replace("_", "")) for one in needed_acls(most)}


def test_a_redrive_writes_just_what_its_role_may_write(tmp_path: Path) -> None:
    """Also if a part of the message is still rejected: its dead letter stays."""
    lake = Lake(tmp_path / "tables")
    lake.receive("tidegate/v1/d1/readings", b'{"values": {"t": 20.5, "u": {}}}')
    lake.receive("site/attic/t", b"21.5")
    lake.receive("other/attic/t", b"warm")
    report = lake.redrive("site/{device}/{metric}", run=7)
    assert report.accepted and report.refused
    specs = topic_specs(partitions=1, max_record_bytes=1, retention_bytes=8 * 1024**2, retention_ms=1)
    written = {spec.name for spec in specs if list(lake.log.records(spec.name))}
    assert written == {READINGS, OUTCOMES} == topics_with("WRITE", *part_roles(made("a token for redrives"))["monitor"])
    assert topics_with("READ", Role.REDRIVE) == {GATEWAY_STATE}, "births and aliases"
    assert not topics_with("WRITE", *part_roles(made("a token for readers"))["monitor"])
    assert {READINGS, OUTCOMES, DEAD_LETTERS, GATEWAY_STATE} == topics_with("WRITE", Role.GATEWAY)


def test_a_user_by_certificate_has_a_subject() -> None:
    certificate = {
        "kafka.security_protocol": "SSL",
        "kafka.ssl_certificate_file": "/c.pem",
        "kafka.ssl_key_file": "/c.pem",
    }
    settings = load_settings(environ={}, overrides=certificate)
    assert acl_arguments(settings).startswith("--principal User:CN=NAME --role gateway ")
    assert "## Rights in Kafka" in systemd_files(settings)["README.md"]
    assert "Rights in Kafka" not in systemd_files(Settings())["README.md"]
