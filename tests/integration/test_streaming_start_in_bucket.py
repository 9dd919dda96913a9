"""Start of a stream on tables in a bucket: it takes them over when it can land, and says what keeps it from that."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError
from prometheus_client import CollectorRegistry

from deploy.local.ports import choose_port
from ingest.contract.errors import ConfigError, FatalError, RetryableError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import wait_for_kafka
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.jvm import JvmOptions
from lakehouse.lake_settings import LakeSettings
from lakehouse.writer_epoch import WRITER, fence_of
from monitoring.metrics.stream import StreamMetrics
from streaming import locked_writer, service
from streaming.locked_writer import LockedWriter, acquire_writer
from streaming.query_failures import classify_query_failure
from streaming.stream_settings import StreamSettings
from tests.support.bucket import Bucket


@pytest.fixture
def lake(bucket: Bucket, request: pytest.FixtureRequest) -> LakeSettings:
    return bucket.lake(request.node.name)


@pytest.fixture
def stream(tmp_path: Path) -> StreamSettings:
    return StreamSettings(checkpoint=str(tmp_path / "checkpoint"))


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """In the place of Spark's session; `fault` ends its start, `refused` its test of the bucket."""
    made = SimpleNamespace(fault=None, refused=None, closed=0, spark=None)

    def close() -> None:
        made.closed += 1

    def open_session(*given: Any, **more: Any) -> SimpleNamespace:
        if made.fault:
            raise made.fault
        return SimpleNamespace(spark=None, close=close)

    def check(session: None, place: str) -> None:
        if made.refused:
            raise made.refused

    monkeypatch.setattr(locked_writer, "open_session", open_session)
    monkeypatch.setattr(locked_writer, "define_log_store", lambda session: None)
    monkeypatch.setattr(locked_writer, "check_conditional_put", check)
    return made


@contextmanager
def started(lake: LakeSettings, stream: StreamSettings) -> Iterator[LockedWriter]:
    with acquire_writer(lake, stream) as sole, sole.session(JvmOptions(Path(), (), Path()), app_name="test"):
        yield sole


def epochs(lake: LakeSettings) -> set[int | None]:
    return {DeltaTable(f"{lake.root}/{name}").transaction_version(WRITER) for name in ALL_TABLES}


def test_a_start_takes_all_tables_and_creates_those_that_are_missing(
    lake: LakeSettings, stream: StreamSettings, spark: SimpleNamespace
) -> None:
    for epoch in (1, 2):
        with started(lake, stream):
            assert epochs(lake) == {epoch}
            assert fence_of(f"{lake.root}/readings") is not None
        assert (spark.closed, fence_of(f"{lake.root}/readings")) == (epoch, None)


def test_a_start_that_cannot_land_leaves_the_tables_to_their_writer(
    lake: LakeSettings, stream: StreamSettings, spark: SimpleNamespace
) -> None:
    with started(lake, stream):
        pass
    weak = stream.model_copy(update={"extra": {"spark.delta.logStore.class": "x"}})
    with pytest.raises(ConfigError, match="overwrite each other's commits"), started(lake, weak):
        pytest.fail("it started")
    spark.fault = FatalError("Spark's JVM ended")
    with pytest.raises(FatalError, match="JVM ended"), started(lake, stream):
        pytest.fail("it started")
    spark.fault, spark.refused = None, FatalError("Cannot write to the bucket of the checkpoint")
    with pytest.raises(FatalError, match="Cannot write"), started(lake, stream):
        pytest.fail("it started")
    assert epochs(lake) == {1}


def test_a_start_does_not_take_tables_that_it_cannot_use(
    lake: LakeSettings, stream: StreamSettings, spark: SimpleNamespace
) -> None:
    with started(lake, stream):
        pass
    foreign = lake.model_copy(update={"root": f"{lake.root}-foreign"})
    write_deltalake(f"{foreign.root}/ledger", pa.table({"x": [1]}))
    with pytest.raises(FatalError, match="does not have the columns of this version"), started(foreign, stream):
        pytest.fail("it started")
    with pytest.raises(TableNotFoundError):
        DeltaTable(f"{foreign.root}/readings")
    assert DeltaTable(f"{foreign.root}/ledger").version() == 0


def test_a_start_adds_new_columns_to_tables_of_an_older_version(
    lake: LakeSettings, stream: StreamSettings, spark: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    latest = ALL_TABLES["latest"]
    last = latest.columns[-1].name
    with monkeypatch.context() as older:
        older.setitem(ALL_TABLES, "latest", replace(latest, columns=latest.columns[:-1]))
        with started(lake, stream):
            assert last not in [field.name for field in DeltaTable(f"{lake.root}/latest").schema().fields]
    with started(lake, stream):
        table, fence = DeltaTable(f"{lake.root}/latest"), fence_of(f"{lake.root}/latest")
        assert last in [field.name for field in table.schema().fields]
        assert fence is not None
        assert (fence.epoch, fence.version) == (2, table.version())


def test_a_store_that_does_not_answer_is_named_with_the_next_step(
    lake: LakeSettings, stream: StreamSettings, spark: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")  # so that it is put back afterwards
    away = lake.model_copy(update={"s3_endpoint": f"http://127.0.0.1:{choose_port(0)[0]}"})
    with pytest.raises(UnavailableError) as caught, started(away, stream):
        pytest.fail("it started")
    text = str(caught.value)
    assert text.startswith(f"Cannot use the tables at {lake.root}: Generic S3 error: Connection refused")
    assert "lake.s3_endpoint" in text
    assert not set("\n\x1b") & set(text)
    cause = caught.value.__cause__
    assert isinstance(cause, OSError)
    waits = classify_query_failure(cause, bootstrap_servers="k:1", log="/l", root=lake.root)
    assert type(waits) is RetryableError
    assert str(waits).startswith("The object store does not answer")


def test_a_start_that_is_stopped_or_cannot_land_takes_nothing(
    lake: LakeSettings, stream: StreamSettings, spark: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(lake, stream):
        assert epochs(lake) == {1}
    settings = StreamSettings.model_validate(
        {"checkpoint": stream.checkpoint, "warm_up": False, "master": "spark://m:7077"}
    )
    stop, port = threading.Event(), choose_port(0)[0]
    metrics = StreamMetrics(CollectorRegistry(), query="land", tables=ALL_TABLES, topics=())

    def run() -> None:
        kafka = KafkaSettings(bootstrap_servers=f"127.0.0.1:{port}")
        service.run(kafka, settings, lake, JvmOptions(Path(), (), Path()), metrics, stop)

    def refused(root: str, session: None) -> None:
        message = "executors have no login"
        raise ConfigError(message)

    monkeypatch.setattr(service, "wait_for_kafka", lambda *given: True)
    monkeypatch.setattr(service, "check_login", refused)
    with pytest.raises(ConfigError, match="no login"):
        run()
    monkeypatch.setattr(service, "check_login", lambda root, session: stop.set())
    run()
    monkeypatch.setattr(service, "wait_for_kafka", wait_for_kafka)
    run()
    assert epochs(lake) == {1}
