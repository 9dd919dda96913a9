"""The audit on a real Kafka and real Delta tables, with everything else played by the test."""

import json
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import CommitProperties, DeltaTable, write_deltalake

from deploy.balance import MINUTE_US
from deploy.balance_audit import AuditBounds, audit
from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter, encode_dead_letter
from ingest.contract.outcome import Count, OutcomeRecord, encode_outcome
from ingest.contract.reading import Reading, ReadingRecord, decode_record, encode_record
from ingest.contract.reasons import Reason
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.log import LogRecord
from ingest.producer import open_writer
from ingest.read.offset_range import read_range
from ingest.topics.offsets import begin_offsets, end_offsets
from ingest.topics.setup import ensure_topics

pytestmark = pytest.mark.promise("P1")

FIELDS = {
    "received", "stored", "partial", "dead_lettered", "ignored", "duplicate",
    "unaccounted", "duplicate_rows", "order_violations",
}  # fmt: skip
_ORIGIN = [
    ("partition", pa.int32()), ("offset", pa.int64()), ("gateway_epoch", pa.int64()), ("message_number", pa.int64()),
    ("received_at", pa.timestamp("us", "UTC")), ("date", pa.date32()), ("device", pa.string()),
]  # fmt: skip
_READINGS = pa.schema(
    [
        *_ORIGIN, ("metric", pa.string()), ("index", pa.int32()), ("message_id", pa.string()), ("value", pa.float64()),
        ("text", pa.string()), ("unit", pa.string()), ("event_time", pa.timestamp("us", "UTC")),
        ("device_time", pa.timestamp("us", "UTC")), ("flags", pa.list_(pa.string())),
    ]
)  # fmt: skip
_DEAD_LETTERS = pa.schema([*_ORIGIN, ("source_topic", pa.string()), ("stage", pa.string()), ("reason", pa.string())])


class Pipeline:
    """A gateway that produces and counts, and a landing that copies what Kafka holds into the tables."""

    def __init__(self, kafka: KafkaSettings, root: Path) -> None:
        self.kafka, self.root = kafka, root
        self.epoch, self.number = 1, 0
        self.at_us = time.time_ns() // 1000
        self.landed: dict[str, dict[int, int]] = {READINGS: {0: 0, 1: 0}, DEAD_LETTERS: {0: 0}}

    def receive(self, good: int, bad: int, *, count: bool = True, gateway: str = "gw-1") -> None:
        writer = open_writer(self.kafka)
        first = self.number + 1
        for is_good in [True] * good + [False] * bad:
            self.number += 1
            device = f"dev-{self.number % 7}"
            if is_good:
                readings = [Reading("a", 1.0), Reading("b", 2.0)]
                record = ReadingRecord(
                    1,
                    gateway,
                    self.epoch,
                    self.number,
                    self.at_us,
                    "t",
                    device,
                    readings,
                    message_id=f"bs:{self.epoch}:{self.number}",
                )
                writer.produce(READINGS, device.encode(), encode_record(record), _delivered)
            else:
                letter = DeadLetterRecord(1, "gw-1", self.epoch, self.number, self.at_us, "t", Reason.BAD_JSON, "", 0)
                writer.produce(DEAD_LETTERS, device.encode(), encode_dead_letter(letter), _delivered)
        assert writer.flush(60) == 0
        if count:
            minute = self.at_us // MINUTE_US
            devices = Counter(f"dev-{number % 7}" for number in range(first, first + good))
            counts = [Count(minute, n, device, n) for device, n in devices.items()]
            counts += [Count(minute, bad, None, dead_lettered={"bad_json": bad})]
            outcome = OutcomeRecord(1, "gw-1", self.epoch, first, self.number, counts, began=1)
            writer.produce(OUTCOMES, b"gw-1", encode_outcome(outcome), _delivered)
            assert writer.flush(60) == 0
        writer.close()

    def land(self, *, skip: int = 0) -> None:
        """Append what is new; `skip` readings records are left out, as a faulty landing would."""
        ends = {topic: end_offsets(self.kafka, topic) for topic in (READINGS, DEAD_LETTERS)}
        letters: list[dict[str, Any]] = []
        readings: list[dict[str, Any]] = []
        for batch in read_range(self.kafka, READINGS, self.landed[READINGS], ends[READINGS]):
            for r in batch[skip:]:
                m = decode_record(r.value or b"")
                origin = self._origin(r, m)
                named = origin | {"index": 0, "message_id": m.message_id, "event_time": origin["received_at"]}
                readings += [named | {"metric": x.metric, "value": x.value} for x in m.readings]
            skip = 0
        for batch in read_range(self.kafka, DEAD_LETTERS, self.landed[DEAD_LETTERS], ends[DEAD_LETTERS]):
            for r in batch:
                d = decode_dead_letter(r.value or b"")
                origin = self._origin(r, d)
                letters.append(origin | {"source_topic": DEAD_LETTERS, "stage": "gateway", "reason": "bad_json"})
        mark = json.dumps({"app": "test", "batch": 1, "offsets": ends})
        commit = CommitProperties(custom_metadata={"userMetadata": mark})
        for name, rows, schema in (("readings", readings, _READINGS), ("dead_letters", letters, _DEAD_LETTERS)):
            write_deltalake(
                str(self.root / name), pa.Table.from_pylist(rows, schema), mode="append", partition_by=["date"],
                commit_properties=commit,
            )  # fmt: skip
        self.landed = ends

    @staticmethod
    def _origin(record: LogRecord, message: ReadingRecord | DeadLetterRecord) -> dict[str, Any]:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=message.received_us)
        return {
            "partition": record.partition, "offset": record.offset, "gateway_epoch": message.epoch,
            "message_number": message.number, "received_at": at, "date": at.date(), "device": message.device,
        }  # fmt: skip


def _delivered(error: object) -> None:
    assert error is None


@pytest.fixture
def pipeline(empty_kafka: Any, tmp_path: Path) -> Pipeline:
    kafka = KafkaSettings(bootstrap_servers=empty_kafka.bootstrap_servers, partitions=2)
    ensure_topics(kafka)
    return Pipeline(kafka, tmp_path / "tables")


def run(pipeline: Pipeline, **options: Any) -> Any:
    return audit(pipeline.kafka, str(pipeline.root), pause_seconds=0.05, **options)


def test_the_audit_follows_the_pipeline(pipeline: Pipeline) -> None:
    empty = run(pipeline, wait_seconds=0)
    assert empty.balanced
    assert empty.figures.received == 0

    pipeline.receive(100, 5)
    pipeline.land()
    report = run(pipeline, since=timedelta(minutes=10))
    data = report.to_dict()
    assert report.balanced, data
    assert {name: data[name] for name in FIELDS} == {
        "received": 105, "stored": 100, "partial": 0, "dead_lettered": 5, "ignored": 0, "duplicate": 0,
        "unaccounted": 0, "duplicate_rows": 0, "order_violations": 0,
    }  # fmt: skip
    assert data["behind"] == 0
    assert data["notes"] == []
    assert sum(end - start for start, end in data["offsets"][READINGS].values()) == 100
    assert data["oldest"] == {READINGS: {"0": 0, "1": 0}, DEAD_LETTERS: {"0": 0}, OUTCOMES: {"0": 0}}
    assert json.loads(json.dumps(data)) == data

    # The gateway dies after Kafka has the records and before they are counted; Spark lands them during the wait.
    pipeline.receive(10, 1, count=False)
    landing = threading.Timer(0.5, pipeline.land)
    landing.start()
    try:
        report = run(pipeline, wait_seconds=60)
    finally:
        landing.join()
    assert report.balanced, report.to_dict()
    assert (report.figures.received, report.figures.stored) == (116, 110)

    # The gateway comes back as a new epoch, and Spark is down: what is not landed is pending, and the audit fails.
    pipeline.epoch, pipeline.number = 2, 0
    pipeline.receive(3, 1)
    report = run(pipeline, wait_seconds=0)
    assert not report.balanced
    assert (report.figures.unaccounted, report.figures.pending, report.behind) == (4, 4, 4)
    assert "Spark is 4 records behind" in report.notes[0]
    assert len(report.to_dict()["details"]["unaccounted"]) == 4

    # A landing that loses one message claims the same offsets as an honest one.
    pipeline.land(skip=1)
    report = run(pipeline)
    assert (report.figures.unaccounted, report.figures.pending, report.behind) == (1, 0, 0)
    lost = report.to_dict()["details"]["unaccounted"][0]["device"]

    # It was taken away by request: of what was received before, the journal pardons it.
    at = datetime.now(UTC).isoformat()
    entry = {"id": "1", "state": "done", "at": at, "device": lost, "metric": None, "delete": True}
    (pipeline.root / "_corrections.jsonl").write_text(json.dumps(entry) + "\n")
    assert run(pipeline).balanced

    # What somebody else writes is stored, and counted by nobody; what is changed in the table differs from Kafka.
    pipeline.receive(2, 0, count=False, gateway="somebody")
    pipeline.land()
    report = run(pipeline)
    assert (report.figures.unaccounted, report.figures.pending) == (2, 0)
    assert [each["gateway"] for each in report.to_dict()["details"]["uncounted"]] == ["somebody"] * 2
    kept = DeltaTable(str(pipeline.root / "readings"))
    kept.update(predicate="gateway_epoch = 1 and message_number = 20 and metric = 'a'", updates={"value": "7.5"})
    assert run(pipeline).figures.altered == 1

    # The gateway acknowledges ten messages of which nothing is left, and goes on.
    pipeline.number += 10
    pipeline.receive(1, 0)
    pipeline.land()
    details = run(pipeline).to_dict()["details"]
    assert [(hole["from"], hole["to"]) for hole in details["hole"]] == [(5, 16)]


def test_what_the_tables_no_longer_keep_is_not_audited(pipeline: Pipeline) -> None:
    now_us = pipeline.at_us
    pipeline.at_us -= 3 * 86_400 * 1_000_000
    pipeline.receive(0, 4)
    pipeline.receive(5, 0)
    pipeline.at_us = now_us
    pipeline.receive(10, 2)
    pipeline.land()
    readings = DeltaTable(str(pipeline.root / "readings"))
    readings.delete(f"date < '{datetime.now(UTC).date() - timedelta(days=1)}'")
    assert run(pipeline).figures.unaccounted == 5
    report = run(pipeline, bounds=AuditBounds(keep_days=(1, 90)))
    assert report.balanced, report.to_dict()
    assert report.figures.received == 12
    assert "keep no older rows" in report.notes[0]


def test_what_retention_has_deleted_moves_the_beginning_and_is_said(pipeline: Pipeline) -> None:
    pipeline.receive(50, 0)
    pipeline.land()
    admin = AdminClient({"bootstrap.servers": pipeline.kafka.bootstrap_servers})
    gone = [TopicPartition(READINGS, p, end - 1) for p, end in end_offsets(pipeline.kafka, READINGS).items()]
    for future in admin.delete_records(gone).values():
        future.result(60)
    assert sum(begin_offsets(pipeline.kafka, READINGS).values()) == 48
    for since in (None, timedelta(minutes=10)):
        report = run(pipeline, since=since)
        assert report.balanced, report.to_dict()
        assert report.figures.received == 0
        assert "retention has deleted" in report.notes[0]
        assert sum(report.to_dict()["oldest"][READINGS].values()) == 48
        assert report.since > datetime.fromtimestamp(pipeline.at_us / 1e6, UTC)


def test_what_retention_deleted_before_the_window_does_not_shorten_it(pipeline: Pipeline) -> None:
    now_us = pipeline.at_us
    pipeline.at_us -= 3600 * 1_000_000
    pipeline.receive(0, 4)
    pipeline.at_us = now_us
    pipeline.receive(10, 2)
    pipeline.land()
    admin = AdminClient({"bootstrap.servers": pipeline.kafka.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(DEAD_LETTERS, 0, 4)]).values():
        future.result(60)
    report = run(pipeline, since=timedelta(minutes=10))
    assert report.balanced, report.to_dict()
    assert (report.figures.received, report.figures.dead_lettered, report.notes) == (12, 2, [])
