"""What Spark shows of secrets, and which ports its driver opens to whom."""

from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr
from pyspark.errors import StreamingQueryException

from ingest.kafka_settings import KafkaSettings
from lakehouse.session import LakeSession
from streaming.kafka_source import LandedTopics, kafka_options, read_topics

SECRET = 'S3CR3T-"of\\kafka'
QUOTED = ("S3CR3T", "of\\kafka", "of\\\\kafka")
"""Any part of it, as it is and as JAAS writes it."""


@pytest.fixture
def options() -> dict[str, str]:
    """Options of the source with a secret in each place that may hold one; nobody listens there."""
    kafka = KafkaSettings(
        bootstrap_servers="127.0.0.1:1", security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="u",
        sasl_password=SecretStr(SECRET),
    )  # fmt: skip
    more = {"kafka.ssl.keystore.key": SECRET, "kafka.ssl.key.password": SECRET, "kafka.ssl.truststore.password": SECRET}
    patience = {"kafka.default.api.timeout.ms": "1500", "kafka.request.timeout.ms": "1000"}
    return {**kafka_options(kafka, LandedTopics("a", "b"), start={}, max_records=1), **more, **patience}


def shows_secret(text: str) -> list[str]:
    return [line for line in text.splitlines() if any(part in line for part in QUOTED)]


def test_no_plan_shows_an_option_of_the_source(lake: LakeSession, options: dict[str, str]) -> None:
    frame = read_topics(lake.spark, options)
    execution = frame._jdf.queryExecution()
    plans = [execution.toString(), execution.logical().toString(), execution.analyzed().treeString()]
    assert "key" in "".join(plans)
    assert shows_secret("\n".join(plans)) == []


def test_a_query_that_fails_shows_none_either_nor_does_its_log(
    lake: LakeSession, options: dict[str, str], tmp_path: Path
) -> None:
    plain = {name: value for name, value in options.items() if "store" not in name and "key" not in name}
    query = (
        read_topics(lake.spark, plain | {"startingOffsets": "earliest"})
        .writeStream.foreachBatch(lambda _frame, _number: None)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(120)
    told = [str(caught.value), query._jsq.toString(), lake.jvm.log.read_text("utf-8")]
    told += [file.read_text("utf-8", "replace") for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    assert shows_secret("\n".join(told)) == []


@pytest.mark.parametrize("name", ["x.sasl.jaas.config", "x.ssl.keystore.key", "x.secret", "x.account.key.y"])
def test_settings_are_masked_where_spark_lists_them(lake: LakeSession, name: str) -> None:
    lake.spark.conf.set(name, SECRET)
    try:
        shown = lake.spark.sql(f"SET `{name}`").collect() + lake.spark.sql("SET").collect()
        assert [row.key for row in shown].count(name) == 2
        assert shows_secret(str(shown)) == []
    finally:
        lake.spark.conf.unset(name)


def listening(process: psutil.Process) -> list[str]:
    connections = process.net_connections("tcp")
    return [each.laddr.ip.removeprefix("::ffff:") for each in connections if each.status == psutil.CONN_LISTEN]


def test_a_local_driver_listens_on_loopback_only_and_asks_for_a_secret(lake: LakeSession) -> None:
    jvm = psutil.Process(lake.jvm.process.pid)
    addresses = listening(jvm)
    # RPC, blocks, py4j, and the JMX agent that these tests start.
    assert 1 <= len(addresses) <= 4
    assert all(ip_address(each).is_loopback for each in addresses), addresses
    java: Any = lake.spark._jvm
    assert java.org.apache.spark.SparkEnv.get().securityManager().isAuthenticationEnabled()
