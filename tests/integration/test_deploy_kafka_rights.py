"""A user who lacks a right in Kafka: each command ends with 69 and names the right, on what, and what to do."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pydantic import BaseModel, SecretStr

from deploy.cli import run
from deploy.settings_file import to_toml, write_private
from deploy.testbed.cluster import KafkaCluster, open_cluster
from ingest.contract.errors import MissingRightError
from ingest.contract.topics import stream_topic
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf
from ingest.topics.rights import check_stream_rights
from ingest.topics.setup import create_topic
from streaming.sql.applied_streams import AppliedStream
from streaming.sql.definition_changes import CheckpointShape

Captured = pytest.CaptureFixture[str]
TOPIC, GROUP = "rights", "rights-group"


class _File(BaseModel):
    kafka: KafkaSettings


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with open_cluster(tmp_path_factory.mktemp("bed"), brokers=1, security="sasl_ssl") as cluster:
        yield cluster


def grant(cluster: KafkaCluster, kind: ResourceType, name: str, right: AclOperation) -> None:
    admin = AdminClient(client_conf(cluster.settings, client_id="test"))
    allow, literal = AclPermissionType.ALLOW, ResourcePatternType.LITERAL
    (made,) = admin.create_acls([AclBinding(kind, name, literal, "User:guest", "*", right, allow)]).values()
    made.result(60)


def test_each_command_ends_alike_where_a_right_is_missing(
    secured: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    wait_until: Callable[..., object],
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"1\n"), isatty=lambda: False))
    admin, guest = tmp_path / "admin.toml", tmp_path / "guest.toml"
    write_private(admin, to_toml(_File(kafka=secured.settings)))
    write_private(guest, to_toml(_File(kafka=secured.settings_of("guest"))))
    for command in (["topics", "create", TOPIC], ["produce", TOPIC], ["tail", TOPIC, "-G", GROUP, "-e"]):
        assert run([*command, "--config", str(admin)]) == 0, capsys.readouterr().err
    capsys.readouterr()

    def refused(*command: str) -> str:
        """What the guest reads; exit 69 says that something needed is not there."""
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"2\n"), isatty=lambda: False))
        code, words = run([*command, "--config", str(guest)]), capsys.readouterr().err
        assert code == 69, (command, code, words)
        return words

    tail, produce = ("tail", TOPIC, "-e"), ("produce", TOPIC)
    remove, change = ("topics", "rm", TOPIC, "--yes"), ("topics", "set", TOPIC, "--set", "retention.ms=3600000")
    describe, rewind = ("groups", "describe", GROUP), ("rewind", GROUP, "-t", TOPIC, "--to", "earliest", "--yes")
    for command in (tail, produce, remove, change, ("topics", "describe", TOPIC)):
        words = refused(*command)
        assert (
            f"has no topic {TOPIC}, or user guest may not see it" in words and "READ, WRITE or DESCRIBE on it" in words
        )
    for command in (describe, rewind):
        assert f"guest may not see group {GROUP}: grant it DESCRIBE on the group" in refused(*command)
    assert "guest may not create topic other: grant it CREATE on the cluster" in refused("topics", "create", "other")

    # Kafka applies grants one after the other: the last one is awaited.
    for kind, name in ((ResourceType.GROUP, GROUP), (ResourceType.TOPIC, TOPIC)):
        grant(secured, kind, name, AclOperation.DESCRIBE)
    wait_until(lambda: "has no topic" not in refused(*tail), what="the grant being known")
    assert f"guest may not read topic {TOPIC}: grant it READ on the topic" in refused(*tail)
    assert f"guest may not read as group {GROUP}: grant it READ on the group" in refused("tail", TOPIC, "-G", GROUP)
    assert f"guest may not write to topic {TOPIC}: grant it WRITE on the topic" in refused(*produce)
    assert f"guest may not delete topic {TOPIC}: grant it DELETE on the topic" in refused(*remove)
    assert f"read the settings of topic {TOPIC}: grant it DESCRIBE_CONFIGS on the topic" in refused(*change)
    assert f"set the offsets of group {GROUP}: grant it READ on the group" in refused(*rewind)

    grant(secured, ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE_CONFIGS)
    wait_until(lambda: "DESCRIBE_CONFIGS" not in refused(*change), what="the grant being known")
    assert f"guest may not change topic {TOPIC}: grant it ALTER_CONFIGS on the topic" in refused(*change)
    assert run(["tail", "no-such-topic", "-e", "--config", str(admin)]) == 1, "who may see all hears that there is none"
    assert "may not see it" not in capsys.readouterr().err


def test_a_streams_missing_right_is_known_before_the_crash(
    secured: KafkaCluster, tmp_path: Path, capsys: Captured, wait_until: Callable[..., object]
) -> None:
    """A stream reads its own topic after a crash only: until then it runs without that right."""
    guest, name = secured.settings_of("guest"), "far"
    shape = CheckpointShape(
        body="SELECT 1 AS n", sources=("readings",), tables=(), state=(), columns=(("n", "bigint"),), sinks=("topic",), key=None,
        watermark=None, late="drop", trigger_seconds=1.0, partitions=1,
    )  # fmt: skip
    AppliedStream(name, "-- sink: topic\n-- key: n\nSELECT 1 AS n", "i", "{}", shape, {}).save(str(tmp_path / "tables"))
    create_topic(secured.settings, stream_topic(name), partitions=1)
    config = tmp_path / "guest.toml"
    write_private(config, to_toml(_File(kafka=guest)) + f'\n[lake]\nroot = "{tmp_path / "tables"}"\n')

    def found(state: str, words: str) -> bool:
        """Whether that is all that is found of streams."""
        run(["doctor", "--config", str(config), "--json"])
        told = json.loads(capsys.readouterr().out)["checks"]
        return [(one["state"], words in one["text"]) for one in told if one["name"] == "streams"] == [(state, True)]

    assert found("fail", "or user guest may not see it")
    grant(secured, ResourceType.TOPIC, stream_topic(name), AclOperation.WRITE)
    words = f"guest may not read topic {stream_topic(name)}, which its stream writes, and reads after a crash: grant it READ on"
    wait_until(lambda: found("fail", words), what="the right that is missing")
    with pytest.raises(MissingRightError, match="grant it READ on the topic"):
        check_stream_rights(guest, name)
    grant(secured, ResourceType.TOPIC, stream_topic(name), AclOperation.READ)
    wait_until(lambda: found("ok", f"{stream_topic(name)} is writable and readable"), what="both rights")


def test_a_user_gets_a_password_and_the_rights_of_its_role_in_one_step(
    secured: KafkaCluster, tmp_path: Path, capsys: Captured, wait_until: Callable[..., object]
) -> None:
    admin, guest, own = (tmp_path / f"{name}.toml" for name in ("admin", "guest", "own"))
    write_private(admin, to_toml(_File(kafka=secured.settings)))
    write_private(guest, to_toml(_File(kafka=secured.settings_of("guest"))))
    secret = tmp_path / "secrets" / "own"
    command = ["topics", "user", "own", "--role", "reader", "--password-file", str(secret)]
    assert run([*command, "--config", str(guest)]) == 69
    assert "grant it" in capsys.readouterr().err
    assert not secret.exists(), "who may not see rights leaves no password behind"

    assert run([*command, "--config", str(admin), "--json"]) == 0, capsys.readouterr().err
    made = json.loads(capsys.readouterr().out)
    assert (made["user"], made["password_created"], made["surplus"]) == ("own", True, 0)
    assert made["rights"] == made["added"] > 0
    assert secret.stat().st_mode & 0o777 == 0o600

    login = {"sasl_username": "own", "sasl_password": SecretStr(f"file:{secret}")}
    write_private(own, to_toml(_File(kafka=secured.settings.model_copy(update=login))))
    # Kafka shows a user a moment before it knows the password.
    wait_until(lambda: run(["topics", "ls", "--config", str(own)]) == 0, what="a login with the password")
    first = secret.read_text()
    assert run([*command, "--config", str(admin)]) == 0
    assert "has the password of" in capsys.readouterr().out, "an existing file keeps its password"
    assert secret.read_text() == first

    write_private(secret, "another-password\n")
    assert run(["topics", "ls", "--config", str(own)]) == 69, "Kafka does not know it yet"
    assert run([*command, "--config", str(admin)]) == 0
    assert "no right was missing" in capsys.readouterr().out
    wait_until(lambda: run(["topics", "ls", "--config", str(own)]) == 0, what="a login with the new password")

    secret.chmod(0o644)
    assert run([*command, "--config", str(admin)]) == 78
    assert "chmod" in capsys.readouterr().err
    assert run(["topics", "user", " own", "--role", "reader", "--password-file", str(secret), "-F", str(admin)]) == 2
