"""One device leaves every table and everything beside them, while the landing goes on; the receipt says when the rest forgets."""

import hashlib
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from deltalake import DeltaTable, write_deltalake
from pyarrow.parquet import ParquetFile, read_table

from ingest.contract.errors import TidegateError
from lakehouse.append import Appender
from lakehouse.derived_tables import LATEST
from lakehouse.lake_settings import LakeSettings
from lakehouse.maintenance_log import last_checkpoint
from lakehouse.requests import Request, run_pending, submit_request
from streaming.background_tasks import handle_request
from streaming.dedup_index import DedupIndex
from streaming.derive.cursor import encode_cursor
from streaming.derive.deriver import Deriver, derivations
from streaming.history import erase as erase_module
from streaming.history.erase import erase
from streaming.history.journal import CorrectionJournal
from streaming.history.row_correction import RowCorrection
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

SECRET = "pump-secret-7"
NOW = datetime(2026, 5, 1, tzinfo=UTC)


def make_writer(lander: Any, seen: DedupIndex | None = None) -> WriterContext:
    settings = StreamSettings(checkpoint=str(lander.checkpoint))
    made = WriterContext(
        lander.lake.spark, lander.kafka, settings, LakeSettings(root=lander.root), lander.metrics, lander.topics, seen
    )
    made.background_tasks["derive"] = lambda: False
    return made


def add_latest(lander: Any, *devices: str) -> None:
    rows = [(device, "temperature", 1.0, None, None, NOW, NOW, [], NOW, None) for device in devices]
    schema = ", ".join(f"`{column.name}` {column.type}" for column in LATEST.columns)
    with Appender(lander.lake.spark, lander.root, LATEST).begin() as append:
        append.write(lander.lake.spark.createDataFrame(rows, schema).coalesce(1))
        append.commit(encode_cursor({"readings": 1, "more": "kept"}))


def add_stream_tables(root: str) -> None:
    """As a stream of SQL may write them: columns of its own, partitioned by another one, and one without a device."""
    days = [date(2026, 5, 1), date(2026, 5, 2)] * 2
    held = {
        "city": ["Ulm", "Ulm", "Bonn", "Bonn"],
        "device": [SECRET, "d2", SECRET, "d3"],
        "day": days,
        "n": [1, 2, 3, 4],
    }
    write_deltalake(f"{root}/by_city", pa.table(held), partition_by=["city"])
    # A stream that gives the device another name: its texts tell.
    labels = [None, f"{SECRET}2", SECRET, f"DE/{SECRET}", f"{SECRET}.temp", f"a{SECRET}"]
    write_deltalake(f"{root}/per_country", pa.table({"country": ["DE"] * 6, "label": labels, "n": [4, 5, 6, 7, 8, 9]}))


def devices(lander: Any, table: str) -> list[str | None]:
    rows = pa.table(DeltaTable(f"{lander.root}/{table}").to_pyarrow_table(columns=["device"]))
    return sorted(rows["device"].to_pylist(), key=str)


def naming(root: str) -> list[str]:
    """Files under the root that name the device and are no part of a table."""
    tables = [log.parent for log in Path(root).rglob("_delta_log")]
    files = [path for path in Path(root).rglob("*") if path.is_file() and not set(tables) & set(path.parents)]
    return [path.name for path in files if SECRET in str(_content(path))]


def _content(path: Path) -> object:
    # By its own schema: what is in a folder named key=value must not add columns.
    return ParquetFile(path).read().to_pylist() if path.suffix == ".parquet" else path.read_bytes()


def test_a_device_leaves_every_table_and_what_is_beside_them(
    lander: Any, record: Any, dead_letter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase_module, "STALLED_SECONDS", 120.0)  # a busy machine is no failure
    refused, unnamed = dead_letter(4), dead_letter(5, f'{{"who": "{SECRET}"'.encode())
    refused.device = SECRET
    lander.land(record(1, seq=1, device=SECRET), record(2, seq=1, device="d2"), dead_letter(3), refused, unnamed)
    add_latest(lander, SECRET, "d2")
    add_stream_tables(lander.root)
    submit_request(lander.root, Request("correct", {"device": SECRET}))
    assert run_pending(lander.root, lambda request: {"id": request.id}) == 1
    CorrectionJournal(lander.root).add({"id": "1", "state": "done", "device": SECRET, "rows": 3})
    assert len(naming(lander.root)) >= 2, "the journal and the answer"

    started = lander.start()
    try:
        started.query.processAllAvailable()
        # In Kafka when the erasure begins, and not landed.
        lander.send(*(record(n, seq=n, device=SECRET) for n in range(2, 300)), record(9, seq=9, device="d2"))
        writer = make_writer(lander, started.landing._check._seen)
        request = Request("erase", {"device": SECRET}, author="ada", reason="asked to", private=True)
        with monkeypatch.context() as killed:
            killed.setattr(erase_module, "_derive", crash)
            submit_request(lander.root, request)
            with pytest.raises(RuntimeError):
                run_pending(lander.root, lambda each: handle_request(writer, each))
        with monkeypatch.context() as killed:
            killed.setattr(erase_module, "_note", crash)
            with pytest.raises(RuntimeError):
                erase(writer, request)
        assert run_pending(lander.root, lambda each: handle_request(writer, each)) == 1
        receipt = json.loads((Path(lander.root) / "_erasures" / f"{request.id}.json").read_text())
        assert erase(writer, request) == receipt
        rows = {name: entry["rows"] for name, entry in receipt["tables"].items() if entry["rows"]}
        assert rows == {"readings": 2 * 299, "dead_letters": 1, "latest": 1, "by_city": 2, "per_country": 3}
        for name in ({*rows} - {"per_country"}) | {"devices"}:
            assert SECRET not in devices(lander, name), name
        assert devices(lander, "readings") == ["d2"] * 4
        assert devices(lander, "by_city") == ["d2", "d3"]
        (newest,) = DeltaTable(f"{lander.root}/latest").history(1)
        assert json.loads(newest["userMetadata"])["derived"] == {"readings": 1, "more": "kept"}, "the cursor goes on"
        assert last_checkpoint(lander.root, "latest") == newest["version"]
        assert naming(lander.root) == []
        check_receipt(lander, receipt)

        # Known no more: what was delivered before is new; another device's copy is still a copy.
        lander.send(record(1, seq=1, device=SECRET), record(2, seq=1, device="d2"))
        started.query.processAllAvailable()
        assert devices(lander, "readings") == ["d2"] * 4 + [SECRET] * 2
    finally:
        started.landing.stop()
        started.query.stop()
        started.landing.close()


def crash(*_arguments: object, **_more: object) -> None:
    message = "killed here"
    raise RuntimeError(message)


def check_receipt(lander: Any, receipt: dict[str, Any]) -> None:
    assert SECRET not in json.dumps(receipt)
    assert receipt["device_sha256"] == hashlib.sha256(SECRET.encode()).hexdigest()
    assert (receipt["author"], receipt["reason"], receipt["not_landed"]) == ("ada", "asked to", 0)
    assert receipt["without_device_column"] == ["per_country"]
    assert receipt["tables"]["per_country"]["rows"] == 3
    left = pa.table(DeltaTable(f"{lander.root}/per_country").to_pyarrow_table())
    assert sorted(left["n"].to_pylist()) == [4, 5, 9]
    assert receipt["letters_cut"] == 1
    at = datetime.fromisoformat(receipt["at"])
    for name, hours in (("readings", 168), ("latest", 24), ("by_city", 720)):
        forgotten = datetime.fromisoformat(receipt["tables"][name]["forgotten_at"])
        assert abs(forgotten - at - timedelta(hours=hours + 4)) < timedelta(minutes=5)
    # No file that is left after the time the receipt gives holds a row of it.
    for name in ("readings", "dead_letters", "latest"):
        table = DeltaTable(f"{lander.root}/{name}")
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        for path in Path(f"{lander.root}/{name}").rglob("*.parquet"):
            if "_delta_log" not in path.parts:
                assert SECRET not in read_table(path, columns=["device"], partitioning=None)["device"].to_pylist()


def keep_a_week(lander: Any) -> None:
    """As Kafka does by default; topics of the tests' shared one keep their records for ever."""
    entry = ConfigEntry("retention.ms", str(7 * 86_400_000), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, lander.topics.readings, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": lander.kafka.bootstrap_servers})
    for future in admin.incremental_alter_configs([topic]).values():
        future.result(60)


def test_what_is_not_landed_and_kafka_s_dates_are_said(lander: Any, record: Any) -> None:
    lander.land(record(1, seq=1, device=SECRET))
    keep_a_week(lander)
    lander.send(record(2, seq=2, device=SECRET), record(3, seq=3, device=SECRET))
    writer = make_writer(lander)  # nothing lands beside
    with pytest.raises(
        TidegateError, match=f"No table has a device pump; the tables have 1 devices. Did you mean {SECRET}|lists them"
    ):
        erase(writer, Request("erase", {"device": "pump"}))
    receipt = erase(writer, Request("erase", {"device": SECRET}))
    assert receipt["not_landed"] == 2
    assert "holds 2 records that have not landed yet" in receipt["remarks"][0]
    topic = receipt["kafka"][lander.topics.readings]
    assert topic["forgotten_at"], topic["why"]
    kept = datetime.fromisoformat(topic["forgotten_at"]) - datetime.fromisoformat(receipt["at"])
    assert timedelta(days=14) <= kept < timedelta(days=14, hours=1), "seven days to keep, and up to seven for a segment"
    lander.land(record(1, seq=1, device=SECRET))
    assert devices(lander, "readings") == [SECRET] * 6, "what was not landed comes, and no identity is known any more"


DERIVED = ("rollups_1m", "rollups_5m", "rollups_1h", "rolling_15m", "latest", "devices")


def total(lander: Any, table: str, column: str, device: str) -> float:
    rows = pa.table(DeltaTable(f"{lander.root}/{table}").to_pyarrow_table()).to_pylist()
    return sum(row[column] for row in rows if row["device"] == device and row["metric"] == "temperature")


def test_what_is_derived_follows_a_correction_and_an_erasure(
    lander: Any, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.derive.deriver.ARRIVAL_SECONDS", 0.0)  # a quick machine corrects within it
    lander.land(*(record(n, seq=n, device=device) for n in (1, 2) for device in (SECRET, "d2")))
    writer = make_writer(lander)
    derive = writer.background_tasks["derive"] = Deriver(derivations(writer)).run_pass
    derive()
    assert [total(lander, "rollups_1h", "sum", device) for device in (SECRET, "d2")] == [43.0, 43.0]

    arguments = {"device": SECRET, "metric": "temperature", **RowCorrection(offset=100.0).arguments()}
    handle_request(writer, Request("correct", arguments))
    derive()
    for table, windows in (("rollups_1h", 1), ("rollups_5m", 1), ("rolling_15m", 15)):
        assert [total(lander, table, "sum", device) for device in (SECRET, "d2")] == [243.0 * windows, 43.0 * windows]
    assert [total(lander, "latest", "value", device) for device in (SECRET, "d2")] == [122.0, 22.0]

    # Landed, and not derived yet when the device is erased.
    lander.land(record(3, seq=3, device=SECRET))
    receipt = handle_request(writer, Request("erase", {"device": SECRET}, private=True))
    assert receipt["derived_tables"] == "up to date"
    for _ in range(2):
        assert [table for table in DERIVED if SECRET in devices(lander, table)] == []
        lander.land(record(3, seq=3, device="d2"))
        derive()
    assert total(lander, "rollups_1h", "sum", "d2") == 66.0
