"""One Spark for all tests of this folder, and a landing that a test can start, stop, break and start again."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry

from deploy.local import artifacts
from deploy.local.java import find_java
from deploy.local.jmx import spark_flags
from deploy.local.ports import choose_port
from ingest.contract.dead_letter import DeadLetterRecord, cut_payload, encode_dead_letter
from ingest.contract.reading import Reading, ReadingRecord, encode_record
from ingest.contract.reasons import Reason
from ingest.kafka_settings import KafkaSettings
from lakehouse.conditional_puts import conditional_conf
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.health import refuse_damaged
from lakehouse.jvm import JvmOptions
from lakehouse.lake_settings import LakeSettings
from lakehouse.object_store import s3_spark_conf
from lakehouse.session import LakeSession, open_session
from lakehouse.tables import TABLES
from monitoring.metrics.stream import StreamMetrics
from streaming.kafka_source import LandedTopics
from streaming.landing_offsets import Offsets
from streaming.landing_progress import LandingProgress
from streaming.repair_run import RepairSubject, apply
from streaming.start_landing import LandQuery, open_check, start_landing
from streaming.stream_settings import StreamSettings

COMMIT_ATTEMPTS = "spark.databricks.delta.maxCommitAttempts"


@pytest.fixture(scope="session")
def spark_metrics_port() -> int:
    """Where Spark's JVM shows its metrics, as it does in an embedded run."""
    return choose_port(0)[0]


@pytest.fixture(scope="session")
def jvm_options(tmp_path_factory: pytest.TempPathFactory, spark_metrics_port: int) -> JvmOptions:
    artifacts.fetch_jars("all", lambda text: None)
    jars = artifacts.lake_jars("s3a://lake", progress=lambda text: None)
    java = find_java()
    # Compiling less is worth more than running faster in a session of short queries. With one compiler the JVM reserves 48 MB
    # for code: that is full after some hundred tests, and clearing it took more than a quarter of the session's CPU time.
    compiling = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=512m")
    flags = (*java.gc_options, *compiling, *spark_flags("127.0.0.1", spark_metrics_port))
    return JvmOptions(java.home, tuple(jars), tmp_path_factory.mktemp("spark"), flags=flags)


@pytest.fixture(scope="session")
def lake(jvm_options: JvmOptions, bucket_settings: LakeSettings) -> Iterator[LakeSession]:
    """Spark, which also reaches the bucket of the tests, whose server need not run; its commits are tried again, as on a disk."""
    conf = {**s3_spark_conf(bucket_settings), **conditional_conf()}
    session = open_session(jvm_options, extra={name: conf[name] for name in conf if name != COMMIT_ATTEMPTS})
    yield session
    session.close()


def make_record(number: int, *, seq: int | None = None, device: str = "d1", **more: Any) -> ReadingRecord:
    """Message `number`, with the identity (boot 1, seq) where a seq is given, two readings."""
    received = int(time.time() * 1_000_000)
    readings = [Reading("temperature", value=20.0 + number), Reading("state", text="on")]
    identity = {"message_id": f"bs:1:{seq}", "boot": 1, "seq": seq} if seq is not None else {}
    values = {
        "v": 1,
        "gateway": "g",
        "epoch": 5,
        "number": number,
        "received_us": received,
        "topic": "t",
        "device": device,
    }
    return ReadingRecord(**{**values, "readings": readings, **identity, **more})


def make_dead_letter(number: int, payload: bytes = b"{") -> DeadLetterRecord:
    text, sha256 = cut_payload(payload, 1000)
    return DeadLetterRecord(
        v=1, gateway="g", epoch=5, number=number, received_us=int(time.time() * 1_000_000), topic="t", reason=Reason.BAD_JSON,
        payload_base64=text, payload_bytes=len(payload), payload_sha256=sha256,
    )  # fmt: skip


@dataclass
class Lander:
    """A pipeline from two topics of its own into tables of its own."""

    lake: LakeSession
    kafka: KafkaSettings
    topics: LandedTopics
    root: str
    checkpoint: Path
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    mirrored: list[Offsets] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metrics = StreamMetrics(self.registry, query="land", tables=ALL_TABLES, topics=self.topics.names)
        self.producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 0})

    def send(self, *records: ReadingRecord | DeadLetterRecord | bytes, topic: str | None = None) -> None:
        for record in records:
            if isinstance(record, ReadingRecord):
                self.producer.produce(self.topics.readings, key=record.device, value=encode_record(record), partition=0)
            elif isinstance(record, DeadLetterRecord):
                self.producer.produce(self.topics.dead_letters, value=encode_dead_letter(record))
            else:
                self.producer.produce(topic or self.topics.readings, key=b"d1", value=record, partition=0)
        assert self.producer.flush(120) == 0

    def repair(self, *flags: str) -> list[str]:
        """What `tidegate repair --apply` with these flags found; the JVM of the tests forgets what it knew of the tables."""
        patient = RepairSubject.of(self.root, str(self.checkpoint), self.kafka, self.topics)
        found, _ = apply(patient, flags, note={})
        self.lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        return [each.what for each in found.findings]

    def start(self, *, available_now: bool = False, **more: Any) -> LandQuery:
        """Start the query; `more` are settings of `[stream]`."""
        refuse_damaged(self.root, ALL_TABLES)
        ensure_tables(self.root, ALL_TABLES.values(), log_retention_hours=24)
        given = {"checkpoint": str(self.checkpoint), "max_records_per_batch": 1000, **self.settings, **more}
        settings = StreamSettings(**given)
        progress = LandingProgress(self.metrics, "land")
        check, _ = open_check(self.lake.spark, self.root, settings, progress)
        return start_landing(
            self.lake.spark, self.root, self.kafka, settings, check, progress, self.mirrored.append, self.topics,
            available_now=available_now,
        )  # fmt: skip

    def stop(self, started: LandQuery) -> None:
        """End the query without waiting for records."""
        started.landing.stop()
        started.query.stop()
        started.landing.close()

    def land(self, *records: ReadingRecord | DeadLetterRecord | bytes) -> None:
        """Send, start, land all there is, stop."""
        self.send(*records)
        started = self.start()
        try:
            started.query.processAllAvailable()
        finally:
            self.stop(started)

    def rows(self, table: str = "readings") -> list[dict[str, Any]]:
        found = pa.table(DeltaTable(f"{self.root}/{table}").to_pyarrow_table())
        return sorted(found.to_pylist(), key=lambda row: (row["partition"], row["offset"]))

    def versions(self) -> dict[str, int]:
        return {name: DeltaTable(f"{self.root}/{name}").version() for name in TABLES}

    def forget_commit(self) -> None:
        """As after a crash between Delta's commit and the checkpoint's."""
        newest = max(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit())
        for path in (f"{newest}", f".{newest}.crc"):
            (self.checkpoint / "commits" / path).unlink(missing_ok=True)

    def forget_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture(scope="session")
def new_lander(lake: LakeSession, kafka_server: Any) -> Callable[[str, Path], Lander]:
    """`new_lander(name, folder)` is a pipeline from topics of that name into tables in that folder."""

    return lambda name, folder: make_lander(lake, kafka_server, name, folder)


@pytest.fixture
def lander(new_lander: Callable[[str, Path], Lander], unique_name: str, tmp_path: Path) -> Lander:
    return new_lander(unique_name, tmp_path)


@pytest.fixture
def lander_of(lake: LakeSession, unique_name: str, tmp_path: Path) -> Callable[[Any], Lander]:
    """A lander whose Kafka is the test's own, so that it may be broken."""
    return lambda server: make_lander(lake, server, unique_name, tmp_path)


def make_lander(lake: LakeSession, server: Any, unique_name: str, tmp_path: Path) -> Lander:
    kafka = KafkaSettings(bootstrap_servers=server.bootstrap_servers)
    topics = LandedTopics(f"{unique_name}.readings", f"{unique_name}.dead-letters", f"{unique_name}.outcomes")
    from tests.support.servers import make_topics  # known once pytest is configured

    wanted = (NewTopic(topics.readings, 2, 1), NewTopic(topics.dead_letters, 1, 1), NewTopic(topics.outcomes, 1, 1))
    make_topics(kafka.bootstrap_servers, *wanted)
    return Lander(lake, kafka, topics, str(tmp_path / "the tables"), tmp_path / "checkpoint")


@pytest.fixture
def decode_values(lake: LakeSession) -> Callable[..., Any]:
    """`decode_values(*values, topic=…)` is a frame of Kafka records with these values, decoded."""
    from streaming.decode import decode_stream

    def decode(*values: bytes, topic: str = "telemetry.readings") -> Any:
        from datetime import UTC, datetime

        at = datetime(2026, 5, 1, tzinfo=UTC)
        rows = [(b"key", bytearray(value), topic, 0, offset, at) for offset, value in enumerate(values)]
        schema = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
        return decode_stream(lake.spark.createDataFrame(rows, schema))

    return decode


@pytest.fixture
def record() -> Callable[..., ReadingRecord]:
    return make_record


@pytest.fixture
def dead_letter() -> Callable[..., DeadLetterRecord]:
    return make_dead_letter


@pytest.fixture
def as_json() -> Callable[..., bytes]:
    """A sound record as JSON with some fields replaced (None takes one out)."""

    def change(**fields: Any) -> bytes:
        data = json.loads(encode_record(make_record(1))) | fields
        return json.dumps({key: value for key, value in data.items() if value is not None}).encode()

    return change
