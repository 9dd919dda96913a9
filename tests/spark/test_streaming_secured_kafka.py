"""Spark reads from a Kafka that wants a client certificate, and its plans do not show the key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.testbed.cluster import open_cluster
from ingest.kafka_settings import KafkaSettings
from ingest.producer import KafkaWriter
from ingest.topics.setup import create_topic
from lakehouse.session import LakeSession
from streaming.derive.outcomes import read_outcomes
from tests.support.client_certificates import TestAuthority

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[KafkaSettings]:
    """Settings with a certificate; nobody connects to this Kafka without one, once it is ready."""
    authority = TestAuthority(tmp_path)
    properties = {
        "listener.name.client.ssl.client.auth": "requested",
        "listener.name.client.ssl.truststore.type": "PEM",
        "listener.name.client.ssl.truststore.location": str(authority.file),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Without a certificate a client is ANONYMOUS; it needs these rights until the node is known to be ready.
        "super.users": "User:broker;User:stream;User:ANONYMOUS",
    }
    with open_cluster(tmp_path / "bed", brokers=1, security="ssl", properties=properties) as cluster:
        yield KafkaSettings.model_validate(cluster.settings.model_dump() | authority.client("stream"))


def test_spark_logs_in_with_a_certificate_that_its_plans_do_not_show(
    lake: LakeSession, secured: KafkaSettings, capsys: Captured, unique_name: str
) -> None:
    create_topic(secured, unique_name, partitions=1)
    writer = KafkaWriter(secured, None)
    outcomes: list[Any] = []
    writer.produce(unique_name, b"k", b"1", outcomes.append)
    assert writer.flush(60) == 0
    writer.close()
    rows = read_outcomes(lake.spark, secured, unique_name, {0: 0}, {0: 1})
    assert [bytes(row["value"]) for row in rows.collect()] == [b"1"]
    capsys.readouterr()
    rows.explain(True)
    shown = capsys.readouterr().out + (lake.jvm.log.read_text("utf-8") if lake.jvm.log.exists() else "")
    assert "kafka" in shown.lower()
    assert "PRIVATE" + " KEY" not in shown
