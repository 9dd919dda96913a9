"""Tables in a bucket: what lands there, and a writer that was overtaken while it lives. Spark and its S3 client are real."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from prometheus_client import CollectorRegistry
from pyarrow.fs import FileSelector, PyFileSystem

from ingest.contract.errors import ConfigError, FatalError
from ingest.contract.reading import Reading, encode_record
from ingest.kafka_settings import KafkaSettings
from lakehouse.append import Appender
from lakehouse.conditional_puts import check_conditional_put, conditional_conf, define_log_store
from lakehouse.create import create_table, ensure_tables
from lakehouse.derived_tables import ALL_TABLES, LATEST
from lakehouse.lake_settings import LakeSettings
from lakehouse.object_store import s3_spark_conf, use_s3
from lakehouse.paths import log_name
from lakehouse.query import run_spark_sql, run_sql
from lakehouse.session import LakeSession
from lakehouse.tables import READINGS, TABLES
from lakehouse.writer_epoch import CommitConflictError, FencedError, take_tables
from monitoring.metrics.stream import StreamMetrics
from streaming.executors.executor_check import check_login
from streaming.executors.identity_parts import IdentityParts, _union
from streaming.executors.parts_folder import PartsFolder, drop_parts
from streaming.kafka_source import LandedTopics
from streaming.landing_progress import LandingProgress
from streaming.start_landing import open_check, start_landing
from streaming.stream_settings import StreamSettings
from tests.support.bucket import Bucket, FaultyConnection

OVERTAKE = """
import sys
from lakehouse.writer_epoch import take_tables
with take_tables(sys.argv[1], sys.argv[2:]) as epoch:
    print(epoch)
"""
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
ATTEMPTS = "spark.databricks.delta.maxCommitAttempts"


@pytest.fixture
def store(lake: LakeSession, bucket: Bucket, request: pytest.FixtureRequest) -> Iterator[LakeSettings]:
    """Settings of tables of the test's own; Spark commits and writes checkpoints as it does for a bucket."""
    settings = bucket.lake(request.node.name)
    use_s3(settings)
    define_log_store(lake.spark)
    conf = {**s3_spark_conf(settings, settings.root), **conditional_conf()}
    before = {name: lake.spark.conf.get(name, None) for name in (CHECKPOINTS, ATTEMPTS)}
    for name in before:
        lake.spark.conf.set(name, conf[name])
    yield settings
    for name, value in before.items():
        if value is None:
            lake.spark.conf.unset(name)
        else:
            lake.spark.conf.set(name, value)


@pytest.fixture
def latest(lake: LakeSession, store: LakeSettings) -> Iterator[Appender]:
    """A writer of a table, with epoch 1."""
    create_table(store.root, LATEST, log_retention_hours=24)
    with take_tables(store.root, ["latest"]):
        yield Appender(lake.spark, store.root, LATEST)


@contextmanager
def connected(lake: LakeSession, bucket: Bucket, name: str, *, careless: bool = False) -> Iterator[FaultyConnection]:
    """A new bucket that Spark reaches over a faulty connection, and delta-rs without one."""
    bucket.make(name)
    line = FaultyConnection(bucket, careless=careless)
    lake.spark._jsc.hadoopConfiguration().set(f"fs.s3a.bucket.{name}.endpoint", line.endpoint)
    try:
        yield line
    finally:
        line.close()


def frame(lake: LakeSession, device: str) -> Any:
    from datetime import UTC, datetime

    now = datetime(2026, 5, 1, tzinfo=UTC)
    schema = ", ".join(f"`{column.name}` {column.type}" for column in LATEST.columns)
    return lake.spark.createDataFrame([(device, "m", 1.0, None, None, now, now, [], now, None)], schema).coalesce(1)


def put(lake: LakeSession, appender: Appender, device: str) -> int:
    with appender.begin() as append:
        append.write(frame(lake, device))
        return append.commit("{}")


def overtake(root: str, *tables: str) -> int:
    """Another process, which has no Spark yet, takes the tables; returns its epoch."""
    command = [sys.executable, "-c", OVERTAKE, root, *tables]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout)


def log_of(uri: str) -> list[tuple[int | None, int]]:
    """Of each version: the epoch of its writer and the files that it added."""
    files = PyFileSystem(DeltaStorageHandler(uri))
    names = sorted(info.path for info in files.get_file_info(FileSelector("_delta_log")) if info.path.endswith(".json"))
    found = []
    for name in names:
        with files.open_input_stream(name) as stream:
            actions = [json.loads(line) for line in stream.readall().decode().splitlines()]
        epoch = next((action["txn"]["version"] for action in actions if "txn" in action), None)
        found.append((epoch, sum("add" in action for action in actions)))
    return found


def devices(uri: str) -> list[str]:
    return sorted(pa.table(DeltaTable(uri).to_pyarrow_table())["device"].to_pylist())


def test_a_writer_that_was_overtaken_cannot_commit(lake: LakeSession, store: LakeSettings, latest: Appender) -> None:
    """The store rejects its put of the next version."""
    put(lake, latest, "stored")
    with latest.begin() as append:
        append.write(frame(lake, "too late"))
        assert overtake(store.root, "latest") == 2
        with pytest.raises(FencedError, match="writer epoch 2, this one has 1"):
            append.commit("{}")
    with pytest.raises(FencedError):
        put(lake, latest, "too late again")
    assert devices(latest.uri) == ["stored"]
    assert log_of(latest.uri) == [(None, 0), (1, 0), (1, 1), (2, 0)]


def test_each_commit_of_the_session_is_conditional(lake: LakeSession, bucket: Bucket, store: LakeSettings) -> None:
    """Also those of statements that no fence checks, such as a DELETE."""
    root = "s3a://watched/tables"
    with connected(lake, bucket, "watched") as line:
        create_table(root, LATEST, log_retention_hours=24)
        put(lake, Appender(lake.spark, root, LATEST), "stored")
        lake.spark.sql(f"DELETE FROM delta.`{root}/latest` WHERE device = 'stored'")
        commits = {path: is_conditional for path, is_conditional in line.puts.items() if path.endswith(".json")}
        assert commits == {f"/watched/tables/latest/{log_name(version)}": True for version in (1, 2)}
    assert devices(f"{root}/latest") == []


def test_a_writer_whose_spark_read_the_new_commits_cannot_commit_on_top_of_them(
    lake: LakeSession, store: LakeSettings, latest: Appender
) -> None:
    put(lake, latest, "stored")
    assert overtake(store.root, "latest") == 2
    assert lake.spark.read.format("delta").load(latest.uri).count() == 1
    assert latest.version == 3
    with pytest.raises(FencedError, match="writer epoch 2, this one has 1"):
        put(lake, latest, "too late")
    with pytest.raises(FencedError):
        put(lake, Appender(lake.spark, store.root, LATEST), "too late again")
    assert devices(latest.uri) == ["stored"]


def test_a_lost_answer_to_a_commit_ends_the_writer_and_the_next_one_finds_it(
    lake: LakeSession, bucket: Bucket, store: LakeSettings
) -> None:
    """The store took the commit, its answer was lost, and the client's second put is rejected."""
    root = "s3a://lossy/tables"
    with connected(lake, bucket, "lossy") as line:
        create_table(root, LATEST, log_retention_hours=24)
        with take_tables(root, ["latest"]):
            writer = Appender(lake.spark, root, LATEST)
            put(lake, writer, "before")
            line.lose_next = True
            with pytest.raises(CommitConflictError, match="Nothing is lost") as caught:
                put(lake, writer, "answer lost")
            assert (type(caught.value), line.lost) == (CommitConflictError, 1)
            with pytest.raises(CommitConflictError):
                put(lake, writer, "after it")
        assert devices(f"{root}/latest") == ["answer lost", "before"]
        with take_tables(root, ["latest"]) as epoch:
            assert epoch == 2
            put(lake, Appender(lake.spark, root, LATEST), "next")
        assert devices(f"{root}/latest") == ["answer lost", "before", "next"]


def test_a_store_that_lets_a_second_put_win_is_rejected(lake: LakeSession, bucket: Bucket, store: LakeSettings) -> None:
    check_conditional_put(lake.spark, store.root)
    with (
        connected(lake, bucket, "careless", careless=True),
        pytest.raises(FatalError, match="took a second put of the same object"),
    ):
        check_conditional_put(lake.spark, "s3a://careless/tables")
    with pytest.raises(FatalError, match="Cannot write to s3a://missing/tables"):
        check_conditional_put(lake.spark, "s3a://missing/tables")


Land = Callable[..., None]


@pytest.fixture
def land(lake: LakeSession, kafka_server: Any, unique_name: str, store: LakeSettings) -> Land:
    """`land(settings, *values)` sends records to topics of the test's own and lands them next to the settings' checkpoint."""
    from tests.support.servers import make_topics

    kafka = KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers)
    topics = LandedTopics(f"{unique_name}.readings", f"{unique_name}.dead-letters", f"{unique_name}.outcomes")
    make_topics(kafka.bootstrap_servers, *(NewTopic(name, 1, 1) for name in (*topics.names, topics.outcomes)))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    metrics = StreamMetrics(CollectorRegistry(), query="land", tables=ALL_TABLES, topics=topics.names)

    def land(settings: StreamSettings, *values: bytes) -> None:
        root = settings.checkpoint.removesuffix("/checkpoint")
        for value in values:
            producer.produce(topics.readings, key=b"d1", value=value)
        assert producer.flush(60) == 0
        ensure_tables(root, TABLES.values(), log_retention_hours=24)
        with take_tables(root, TABLES):
            progress = LandingProgress(metrics, "land")
            check, _ = open_check(lake.spark, root, settings, progress)
            started = start_landing(lake.spark, root, kafka, settings, check, progress, lambda offsets: None, topics)
            try:
                started.query.processAllAvailable()
            finally:
                started.landing.stop()
                started.query.stop()
                started.landing.close()

    return land


def test_batches_land_in_a_bucket_exactly_once_and_are_read_without_spark(
    lake: LakeSession, bucket: Bucket, land: Land, record: Callable[..., Any]
) -> None:
    root = "s3a://landed/tables"
    settings = StreamSettings(checkpoint=f"{root}/checkpoint", max_records_per_batch=1000)
    with connected(lake, bucket, "landed") as line:
        land(settings, *(encode_record(record(number)) for number in range(5)), b"{")
        land(settings, *(encode_record(record(number)) for number in range(5, 8)))
        # As after a crash between Delta's commit and the checkpoint's: the newest batch runs again.
        files = PyFileSystem(DeltaStorageHandler(settings.checkpoint))
        ended = [info for info in files.get_file_info(FileSelector("commits")) if info.base_name.isdigit()]
        newest = max(ended, key=lambda info: int(info.base_name))
        files.delete_file(newest.path)
        land(settings, encode_record(record(8)))
    # The files that two writers could both put: the tables' logs, and plans and ends of batches. Marks of folders are empty.
    shared = [path for path in line.puts if ("/_delta_log/" in path or "/checkpoint/" in path) and path[-1] != "/"]
    assert {path for path in shared if not line.puts[path]} == set()
    for folder in ("readings/_delta_log", "checkpoint/offsets", "checkpoint/commits"):
        assert [path for path in shared if f"/{folder}/" in path], folder
    per_message = "SELECT message_number n, count(*) c FROM readings GROUP BY 1 ORDER BY 1"
    assert run_sql(root, per_message).to_pylist() == [{"n": number, "c": 2} for number in range(9)]
    assert run_sql(root, "SELECT reason FROM dead_letters").to_pylist() == [{"reason": "spark_corrupt_record"}]
    assert run_spark_sql(lake.spark, root, "SELECT count(*) n FROM readings").to_pylist() == [{"n": 18}]
    epochs = [epoch for epoch, _ in log_of(f"{root}/readings") if epoch is not None]
    assert epochs == sorted(epochs)
    assert set(epochs) == {1, 2, 3}


def test_executors_find_copies_in_a_bucket_and_an_overtaken_stream_leaves_the_parts_of_the_newer_one(
    lake: LakeSession, store: LakeSettings, land: Land, record: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = store.root
    settings = StreamSettings(checkpoint=f"{root}/checkpoint", max_records_per_batch=1000, identity_lookup="executors")

    def send(*identities: dict[str, Any]) -> None:
        reading = [Reading("temperature", value=21.0)]
        land(settings, *(encode_record(record(1, readings=reading, **identity)) for identity in identities))

    monkeypatch.setattr("streaming.executors.identity_parts.LEAST_TASKS", 1)
    send({"seq": 1}, {"seq": 1}, {"message_id": "mp:a"})
    send({"seq": 1}, {"message_id": "mp:a"}, {"seq": 3})
    stored = "SELECT message_id FROM readings ORDER BY 1"
    assert [row["message_id"] for row in run_sql(root, stored).to_pylist()] == ["bs:1:1", "bs:1:3", "mp:a"]
    with take_tables(root, TABLES) as epoch:
        older = IdentityParts(lake.spark, root)
        older.load(horizon_days=8)
        assert overtake(root, *TABLES) == epoch + 1
        # The newer stream joins what it found, and has not removed that yet.
        version = DeltaTable(f"{root}/readings").version()
        parts = older._folder.names()
        joined = _union([part.frame for part in older._parts])
        newer = PartsFolder(lake.spark, root, str(DeltaTable(f"{root}/readings").metadata().id)).write(
            joined, 0, version
        )
        with pytest.raises(FencedError):
            older._merge(0)
        with pytest.raises(FencedError):
            IdentityParts(lake.spark, root).load(horizon_days=8)
        with pytest.raises(FencedError):
            drop_parts(lake.spark, root)
        assert {*parts, newer.name} <= {*older._folder.names()}
        older.close()
    with take_tables(root, TABLES):
        next_start = IdentityParts(lake.spark, root)
        next_start.load(horizon_days=8)
        assert next_start._folder.names() == [newer.name]
        assert {kind: held for kind, (held, _, _) in next_start.figures.items()} == {"range": 2, "point": 1}
        next_start.close()


def test_a_start_names_the_login_that_executors_miss(lake: LakeSession, bucket: Bucket, store: LakeSettings) -> None:
    bucket.make("closed")
    create_table("s3a://closed/tables", READINGS, log_retention_hours=24)
    provider = "fs.s3a.bucket.closed.aws.credentials.provider"
    lake.spark._jsc.hadoopConfiguration().set(provider, "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider")
    with pytest.raises(
        ConfigError, match=r"executors of Spark cannot read s3a://closed/tables/readings.*NoAwsCredentials"
    ):
        check_login("s3a://closed/tables", lake.spark)
    create_table(store.root, READINGS, log_retention_hours=24)
    check_login(store.root, lake.spark)
