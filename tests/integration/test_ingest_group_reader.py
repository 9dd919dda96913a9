"""What a real Kafka refuses to the monitor's user makes its look incomplete, and is said in a sentence; the rest is seen."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from ingest.contract.topics import DEAD_LETTERS, LAND_GROUP, READINGS
from ingest.groups.offset_mirror import OffsetMirror
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_probe import ClusterProbe
from ingest.producer import KafkaWriter
from ingest.topics.setup import ensure_topics
from monitoring.periodic_query import IncompleteError

Samples = dict[str, list[tuple[tuple[str, ...], float]]]
Wait = Callable[..., Any]
LAG = "kafka_consumergroup_lag"


class Cluster:
    """A Kafka that lets everybody do what no rule forbids, with a group that is 5 records behind."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.settings = KafkaSettings(bootstrap_servers=bootstrap_servers, partitions=1)
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        ensure_topics(self.settings)
        writer = KafkaWriter(self.settings, None)
        for number in range(5):
            writer.produce(READINGS, b"k", b"%d" % number, lambda _error: None)
        assert writer.flush(60) == 0
        writer.close()
        mirror = OffsetMirror(self.settings, LAND_GROUP)
        mirror.mirror({READINGS: {0: 0}})
        assert mirror.drain(60)
        mirror.close()

    def forbid(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """This, and nothing else of it: where there is a rule for a thing, what no rule allows is forbidden."""
        rules = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", *what)
            for what in ((AclOperation.ALL, AclPermissionType.ALLOW), (operation, AclPermissionType.DENY))
        ]
        for future in self.admin.create_acls(rules).values():
            future.result(30)

    def allow_all(self) -> None:
        everything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        for future in self.admin.delete_acls([everything]).values():
            future.result(30)


@pytest.fixture
def cluster(new_kafka: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Cluster:
    from deploy.local import kafka

    monkeypatch.setitem(
        kafka._FIXED, "authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    )
    monkeypatch.setitem(kafka._FIXED, "allow.everyone.if.no.acl.found", "true")
    return Cluster(new_kafka().bootstrap_servers)


@pytest.fixture
def probe(cluster: Cluster) -> Iterator[ClusterProbe]:
    made = ClusterProbe(cluster.settings, lambda: [LAND_GROUP])
    yield made
    made.close()


def seen(probe: ClusterProbe) -> tuple[str, Samples]:
    """What is missing, and what was seen."""
    try:
        return "", probe.look()
    except IncompleteError as error:
        return str(error), error.answer


def test_what_a_user_may_not_see_is_said_and_the_rest_is_told(
    cluster: Cluster, probe: ClusterProbe, wait_until: Wait
) -> None:
    def is_whole() -> bool:
        missing, samples = seen(probe)
        return not missing and ((LAND_GROUP, READINGS, "0"), 5.0) in samples[LAG]

    def says(words: str) -> Samples:
        samples: Samples = wait_until(
            lambda: (found := seen(probe)) and words in found[0] and found[1], what=f"the sentence with {words!r}"
        )
        assert samples["tidegate_kafka_reachable"] == [((), 1.0)]
        return samples

    wait_until(is_whole, what="a look at all of it")

    cluster.forbid(ResourceType.GROUP, LAND_GROUP, AclOperation.ALL)
    samples = says(f"cannot read the committed offsets of group {LAND_GROUP}")
    assert samples[LAG] == samples["tidegate_kafka_lag_seconds"] == []
    assert "user may not describe the group" in seen(probe)[0]
    cluster.allow_all()
    wait_until(is_whole, what="a look at all of it again")

    cluster.forbid(ResourceType.TOPIC, DEAD_LETTERS, AclOperation.DESCRIBE)
    samples = says(f"does not see topic {DEAD_LETTERS}")
    assert {labels[1] for labels, _ in samples[LAG]} == {READINGS}
    cluster.allow_all()
    wait_until(is_whole, what="a look at all of it again")


def test_a_user_who_may_read_no_record_or_no_setting_is_told_so(
    cluster: Cluster, probe: ClusterProbe, wait_until: Wait
) -> None:
    cluster.forbid(ResourceType.TOPIC, READINGS, AclOperation.READ)
    wait_until(lambda: "cannot read records of telemetry.readings" in seen(probe)[0], what="the refusal to be said")
    cluster.allow_all()
    wait_until(lambda: not seen(probe)[0], what="a look at all of it")
    cluster.forbid(ResourceType.TOPIC, READINGS, AclOperation.DESCRIBE_CONFIGS)
    new = ClusterProbe(cluster.settings, lambda: [LAND_GROUP])
    try:
        wait_until(lambda: f"cannot read the retention of {READINGS}" in seen(new)[0], what="the refusal to be said")
    finally:
        new.close()


def test_topics_that_are_not_made_yet_are_missed(empty_kafka: Any, wait_until: Wait) -> None:
    settings = KafkaSettings(bootstrap_servers=empty_kafka.bootstrap_servers, partitions=1)
    probe = ClusterProbe(settings, lambda: [LAND_GROUP])
    try:
        wait_until(lambda: "And 1 more of this kind." in seen(probe)[0], what="both topics to be missed")
        assert "it does not exist" in seen(probe)[0]
        ensure_topics(settings)
        wait_until(lambda: not seen(probe)[0], what="a look at all of it")
    finally:
        probe.close()
