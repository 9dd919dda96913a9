"""Users with the rights of one role on a real Kafka: what each may do, and that no more is needed."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pydantic import BaseModel

from deploy.cli import run
from deploy.settings_file import to_toml, write_private
from deploy.testbed.cluster import KafkaCluster, open_cluster
from ingest.contract.errors import MissingRightError
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, LAND_GROUP, OUTCOMES, READINGS, stream_topic
from ingest.gateway_state import read_state
from ingest.groups.offset_mirror import OffsetMirror, group_lag
from ingest.kafka_settings import KafkaSettings
from ingest.log import DeliveryError
from ingest.producer import open_writer
from ingest.read.offset_range import read_range
from ingest.record_limits import LearnedLimits
from ingest.security import client_conf
from ingest.topics.acl import apply_acls
from ingest.topics.roles import OWN_TOPICS, Acl
from ingest.topics.setup import create_topic, delete_topic, ensure_topics

Captured = pytest.CaptureFixture[str]
Wait = Callable[..., Any]
GUEST = "User:guest"


class _File(BaseModel):
    kafka: KafkaSettings


class Bed:
    """A secured cluster with a guest who may do nothing at first, and the files of both users."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        one = {"partitions": 1}
        self.admin = cluster.settings.model_copy(update=one)
        self.guest = cluster.settings_of("guest").model_copy(update=one)
        self.files = {"admin": folder / "admin.toml", "guest": folder / "guest.toml"}
        write_private(self.files["admin"], to_toml(_File(kafka=self.admin)))
        write_private(self.files["guest"], to_toml(_File(kafka=self.guest)))

    def acl(self, capsys: Captured, role: str, *options: str, user: str = "admin") -> dict[str, Any]:
        """Run the command; returns its JSON."""
        capsys.readouterr()
        command = ["topics", "acl", "--principal", GUEST, "--role", role, "--config", str(self.files[user]), "--json"]
        assert run([*command, *options]) == 0, capsys.readouterr().err
        shown: dict[str, Any] = json.loads(capsys.readouterr().out)
        return shown

    def write(
        self, settings: KafkaSettings, topic: str, *values: bytes, learned: LearnedLimits | None = None
    ) -> list[DeliveryError | None]:
        """Write values as one batch; returns the failure of each, None for one that Kafka has."""
        found: list[DeliveryError | None] = [None] * len(values)
        done: list[bool] = []

        def note(failures: list[tuple[int, DeliveryError]]) -> None:
            for place, error in failures:
                found[place] = error
            done.append(True)

        writer = open_writer(settings, learned=learned)
        try:
            assert writer.produce_batch(topic, [b"key"] * len(values), values, note) == len(values)
            while not done:
                writer.poll(1.0)
        finally:
            writer.close()
        return found

    def read(self, settings: KafkaSettings, topic: str, count: int) -> list[bytes | None]:
        return [one.value for batch in read_range(settings, topic, {0: 0}, {0: count}) for one in batch]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder = tmp_path_factory.mktemp("roles")
    with open_cluster(folder / "bed", brokers=1, security="sasl_ssl") as cluster:
        yield Bed(cluster, folder)


@pytest.fixture(autouse=True)
def _no_rights_left(bed: Bed, capsys: Captured) -> Iterator[None]:
    """After a test the guest may do nothing, and no topic is left."""
    yield
    take_all_rights(bed)
    assert not bed.acl(capsys, "gateway")["granted"]
    for topic in OWN_TOPICS:
        delete_topic(bed.admin, topic)


def take_all_rights(bed: Bed) -> None:
    """As for a client whose certificate is revoked."""
    command = ["topics", "acl", "--principal", GUEST, "--no-role", "--apply", "--prune"]
    assert run([*command, "--config", str(bed.files["admin"])]) == 0


def checks(bed: Bed, capsys: Captured) -> dict[str, dict[str, str]]:
    """Return what doctor says about the guest."""
    capsys.readouterr()
    run(["doctor", "--config", str(bed.files["guest"]), "--json"])
    return {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}


def test_the_gateway_writes_and_does_not_read_readings(bed: Bed, capsys: Captured, wait_until: Wait) -> None:
    with pytest.raises(MissingRightError, match=r"may not create topic telemetry\.readings: grant it CREATE"):
        ensure_topics(bed.guest)
    plan = bed.acl(capsys, "gateway")
    assert (plan["applied"], plan["granted"], plan["surplus"]) == (False, [], [])
    assert bed.acl(capsys, "gateway")["missing"] == plan["missing"], "a dry run changes nothing"

    assert bed.acl(capsys, "gateway", "--apply")["missing"] == plan["missing"]
    assert bed.acl(capsys, "gateway")["granted"] == plan["missing"]
    wait_until(lambda: checks(bed, capsys)["kafka rights"]["state"] == "ok", what="the rights")
    assert ensure_topics(bed.guest) == []
    for topic in (READINGS, DEAD_LETTERS, OUTCOMES, GATEWAY_STATE):
        assert bed.write(bed.guest, topic, b"1") == [None]
    assert read_state(bed.guest) == [("key", b"1")]
    with pytest.raises(MissingRightError, match=r"guest may not read topic telemetry\.readings: grant it READ"):
        bed.read(bed.guest, READINGS, 1)
    found = checks(bed, capsys)
    assert found["kafka login"]["text"] == "the Kafka user guest is logged in (SCRAM-SHA-512, SASL_SSL)"
    assert "has the rights of gateway, redrive; not of stream" in found["kafka rights"]["text"]
    assert "READ on telemetry.readings" in found["kafka rights"]["text"]
    take_all_rights(bed)
    wait_until(lambda: bed.write(bed.guest, READINGS, b"1") != [None], what="the end of its rights")


def test_the_stream_reads_and_does_not_write_readings(bed: Bed, capsys: Captured, wait_until: Wait) -> None:
    ensure_topics(bed.admin)
    assert bed.write(bed.admin, READINGS, b"1", b"2") == [None, None]
    bed.acl(capsys, "gateway", "--apply")
    assert ["WRITE", READINGS] in [[one["operation"], one["name"]] for one in bed.acl(capsys, "stream")["surplus"]]
    bed.acl(capsys, "stream", "--apply", "--prune")
    assert bed.acl(capsys, "stream")["surplus"] == []
    wait_until(lambda: "rights of stream" in checks(bed, capsys)["kafka rights"]["text"], what="the rights")

    assert bed.read(bed.guest, READINGS, 2) == [b"1", b"2"]
    mirror = OffsetMirror(bed.guest, LAND_GROUP)
    mirror.mirror({READINGS: {0: 1}})
    assert mirror.drain(60), "the group of the landing takes offsets"
    mirror.close()
    assert group_lag(bed.guest, LAND_GROUP, [READINGS]) == {READINGS: {0: (1, 2)}}
    topic = stream_topic("rooms")
    create_topic(bed.guest, topic, partitions=1)
    assert bed.write(bed.guest, topic, b"3") == [None]
    delete_topic(bed.guest, topic)

    (refused,) = bed.write(bed.guest, READINGS, b"3")
    assert refused is not None
    assert refused.kind == "retriable"
    assert "grant the Kafka user WRITE on the topic" in refused.text


def test_a_reader_sees_the_lag_and_changes_nothing(bed: Bed, capsys: Captured, wait_until: Wait) -> None:
    ensure_topics(bed.admin)
    bed.write(bed.admin, READINGS, b"1")
    mirror = OffsetMirror(bed.admin, LAND_GROUP)
    mirror.mirror({READINGS: {0: 0}})
    assert mirror.drain(60)
    mirror.close()
    bed.acl(capsys, "reader", "--apply")
    wait_until(lambda: "rights of reader" in checks(bed, capsys)["kafka rights"]["text"], what="the rights")
    assert bed.read(bed.guest, READINGS, 1) == [b"1"]
    assert group_lag(bed.guest, LAND_GROUP, [READINGS]) == {READINGS: {0: (0, 1)}}
    capsys.readouterr()
    assert (
        run(["topics", "set", READINGS, "--retention-hours", "1", "--accept-loss", "--config", str(bed.files["guest"])])
        == 69
    )
    assert "grant it ALTER_CONFIGS on the topic" in capsys.readouterr().err


def test_without_describe_configs_a_large_record_is_rejected_alone(
    bed: Bed, capsys: Captured, wait_until: Wait
) -> None:
    """A user who may only write cannot read a topic's limit: it is learned, and the neighbours of a large record are stored."""
    admin = AdminClient(client_conf(bed.admin, client_id="test"))
    new = [NewTopic(name, 1, 1, config={"max.message.bytes": "100000"}) for name in OWN_TOPICS]
    for future in admin.create_topics(new).values():
        future.result(60)
    apply_acls(bed.admin, GUEST, add=[Acl("topic", name, "literal", "WRITE") for name in OWN_TOPICS])
    # The limit is that of a compressed batch.
    small, large, learned = os.urandom(20_000), os.urandom(150_000), LearnedLimits()
    values = [small, small, large, small]
    wait_until(lambda: bed.write(bed.guest, OUTCOMES, b"1") == [None], what="the right to write")
    for _try in range(20):
        # As the gateway does: after a failure that is not of one record, all of it again with a new writer.
        failures = bed.write(bed.guest, READINGS, *values, learned=learned)
        if all(error is None or error.kind == "record" for error in failures):
            break
    assert [error is None for error in failures] == [True, True, False, True]
    assert failures[2] is not None
    assert failures[2].kind == "record"


def test_a_user_without_the_right_to_see_acls_is_one_sentence(bed: Bed, capsys: Captured) -> None:
    command = ["topics", "acl", "--principal", GUEST, "--role", "gateway", "--config", str(bed.files["guest"])]
    assert run(command) == 69
    assert "The Kafka user guest may not see ACLs: grant it DESCRIBE on the cluster" in capsys.readouterr().err


def test_a_cluster_without_authorizer_is_one_sentence(kafka_server: Any, capsys: Captured) -> None:
    command = ["topics", "acl", "--principal", GUEST, "--role", "gateway", "-b", kafka_server.bootstrap_servers]
    assert run(command) == 69
    said = capsys.readouterr().err
    assert "has no authorizer, so every user may do everything" in said
    assert len(said.splitlines()) == 1
