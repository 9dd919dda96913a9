"""Spark reads from a Kafka that wants a client certificate, and its plans do not show the key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.testbed.cluster import open_cluster
from ingest.contract.errors import MissingRightError
from ingest.kafka_settings import KafkaSettings
from ingest.producer import KafkaWriter
from ingest.security import jvm_conf
from ingest.topics.acl import apply_acls
from ingest.topics.offsets import end_offsets
from ingest.topics.roles import Acl
from ingest.topics.setup import create_topic
from lakehouse.session import LakeSession
from streaming.derive.outcomes import read_outcomes
from tests.support.authority import Authority

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[KafkaSettings, KafkaSettings]]:
    """Settings without and with a certificate. A topic with a rule is open only for those whom the rule names."""
    authority = Authority(tmp_path)
    properties = {
        "listener.name.client.ssl.client.auth": "requested",
        "listener.name.client.ssl.truststore.type": "PEM",
        "listener.name.client.ssl.truststore.location": str(authority.file),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:broker",
    }
    with open_cluster(tmp_path / "bed", brokers=1, security="ssl", properties=properties) as cluster:
        certified = KafkaSettings.model_validate(cluster.settings.model_dump() | authority.kafka_login("stream"))
        yield cluster.settings, certified


def test_spark_logs_in_with_a_certificate_that_its_plans_do_not_show(
    lake: LakeSession, secured: tuple[KafkaSettings, KafkaSettings], capsys: Captured, unique_name: str
) -> None:
    anybody, certified = secured
    create_topic(anybody, unique_name, partitions=1)
    apply_acls(anybody, "User:stream", add=[Acl("topic", unique_name, "literal", right) for right in ("READ", "WRITE")])
    with pytest.raises(MissingRightError, match="or user ANONYMOUS may not see it"):
        end_offsets(anybody, unique_name)
    failures: list[Any] = []
    writer = KafkaWriter(certified, None)
    writer.produce(unique_name, b"k", b"1", failures.append)
    assert writer.flush(60) == 0
    writer.close()
    assert failures == [None]
    rows = read_outcomes(lake.spark, certified, unique_name, {0: 0}, {0: 1})
    assert [bytes(row["value"]) for row in rows.collect()] == [b"1"]
    capsys.readouterr()
    rows.explain(True)
    shown = capsys.readouterr().out + (lake.jvm.log.read_text("utf-8") if lake.jvm.log.exists() else "")
    assert "kafka" in shown.lower()
    assert jvm_conf(certified)["ssl.keystore.key"].splitlines()[1] not in shown
