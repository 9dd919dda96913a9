"""`tidegate trace`: a device's last messages over real tables and their logs; Kafka is told by the test."""

import json
import socket
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from deploy.cli import run
from deploy.settings import Settings, load_settings
from deploy.settings_file import to_toml
from deploy.trace import records
from deploy.trace.messages import RecordOrigin, TracedMessage, find_messages
from deploy.trace.records import RecordLookup, look_up_records
from deploy.trace.trace_report import WIDTH, render_trace, trace_device
from ingest.contract.errors import RetryableError, UnavailableError
from ingest.contract.reading import Reading, ReadingRecord, encode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.log import LogRecord
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from streaming.landing_offsets import Mark

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HOSTILE = ["a'b", 'x"y; drop table readings', "\x1b[31mred\x1b[0m", "ünï\u202egnirts", "%s%n", "a\nb", "--", "d" * 300]


def no_kafka(kafka: object, messages: Iterable[TracedMessage]) -> Mapping[RecordOrigin, RecordLookup]:
    return {origin: RecordLookup("not asked", "Kafka is away") for each in messages for origin in each.origins}


class Lake:
    """The tables as the stream leaves them: each `land` is one batch of one record, committed with its mark."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.settings: Settings = load_settings(environ={}, overrides={"lake.root": self.root})
        self.offset = {READINGS: 0, DEAD_LETTERS: 0}
        self.now = datetime.now(UTC).replace(microsecond=0)
        ensure_tables(self.root, ALL_TABLES.values(), log_retention_hours=24)

    def land(self, device: str = "d1", *, number: int, table: str = "readings", **more: Any) -> None:
        topic = READINGS if table == "readings" else DEAD_LETTERS
        received = more.pop("received_at", self.now - timedelta(seconds=60 - number))
        offset = self.offset[topic]
        origin = {
            "device": device, "gateway": "gw", "gateway_epoch": 7, "message_number": number, "partition": 0,
            "offset": offset, "received_at": received, "mqtt_topic": f"tidegate/v1/{device}/readings",
            "date": received.date(), "landed_at": datetime.now(UTC),
        }  # fmt: skip
        own = {
            "readings": {
                "metric": "temperature", "value": 21.5, "unit": "°C", "event_time": received, "time_source": "device",
                "device_time": received - timedelta(milliseconds=40), "kafka_time": received + timedelta(milliseconds=3),
                "index": 0, "message_id": f"bs:1:{number}", "boot": 1, "seq": number,
            },
            "dead_letters": {
                "reason": "bad_json", "stage": "gateway", "path": "$", "got": "{", "wanted": "JSON", "attempt": 0,
                "source_topic": topic, "partial": False, "payload": b"{", "payload_bytes": 1,
            },
        }[table]  # fmt: skip
        mark = Mark("app", offset, {topic: {0: offset}}, {topic: {0: offset + 1}}).encode()
        self.append(table, [{**origin, **own, **more}], {"userMetadata": mark})
        self.offset[topic] += 1

    def append(self, table: str, rows: list[dict[str, Any]], metadata: dict[str, str] | None = None) -> None:
        schema = pa.schema(DeltaTable(f"{self.root}/{table}").schema().to_arrow())
        full = [{column: row.get(column) for column in schema.names} for row in rows]
        properties = CommitProperties(custom_metadata=metadata) if metadata else None
        rows_table = pa.Table.from_pylist(full, schema=schema)
        write_deltalake(f"{self.root}/{table}", rows_table, mode="append", commit_properties=properties)

    def heard(self, *devices: str) -> None:
        at = self.now
        rows = [{"device": d, "first_seen": at, "last_seen": at, "updated_at": at} for d in devices]
        self.append("devices", rows)

    def trace(self, device: str = "d1", last: int = 1) -> dict[str, Any]:
        return trace_device(self.settings, device, last, look=no_kafka)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "the tables")


def test_a_stored_message_has_its_clocks_its_hops_and_its_version(lake: Lake) -> None:
    lake.land(number=1)
    lake.land(number=2, trace=TRACE)
    lake.land("other", number=3)
    [message] = lake.trace()["messages"]

    assert (message["outcome"], message["gateway"], message["epoch"], message["number"]) == ("stored", "gw", 7, 2)
    assert message["trace"] == TRACE
    assert message["hops_ms"]["device_to_gateway"] == 40
    assert message["hops_ms"]["gateway_to_kafka"] == 3
    assert message["hops_ms"]["read_to_commit"] >= 0
    parts = [message["hops_ms"][hop] for hop in ("gateway_to_kafka", "kafka_to_read", "read_to_commit")]
    assert message["receive_to_commit_ms"] == pytest.approx(sum(parts), abs=0.2)
    [record] = message["records"]
    assert (record["topic"], record["partition"], record["offset"], record["version"]) == (READINGS, 0, 1, 2)
    assert record["in_kafka"] == "not asked"
    assert message["readings"][0]["value"] == 21.5
    assert message["minute"] is None


def test_stored_and_refused_messages_stand_in_the_order_received_newest_first(lake: Lake) -> None:
    lake.land(number=1)
    lake.land(number=2, table="dead_letters")
    lake.land(number=3)
    lake.land(number=4, table="dead_letters", partial=True)
    lake.land(number=4, metric="ok")
    messages = lake.trace(last=3)["messages"]

    assert [(each["number"], each["outcome"]) for each in messages] == [(4, "partial"), (3, "stored"), (2, "refused")]
    refused = messages[2]
    assert refused["refused"][0]["reason"] == "bad_json"
    assert refused["refused"][0]["id"] == "0-0"
    assert refused["records"][0]["version"] == 1
    assert refused["hops_ms"] == {
        "device_to_gateway": None,
        "gateway_to_kafka": None,
        "kafka_to_read": None,
        "read_to_commit": pytest.approx(refused["hops_ms"]["read_to_commit"]),
    }


def test_the_version_is_that_of_the_commit_also_after_files_were_joined(lake: Lake) -> None:
    for number in range(1, 6):
        lake.land(number=number)
    DeltaTable(f"{lake.root}/readings").optimize.compact()
    lake.land(number=6)

    assert [each["records"][0]["version"] for each in lake.trace(last=6)["messages"]] == [7, 5, 4, 3, 2, 1]


def test_a_log_that_was_cleaned_is_told(lake: Lake) -> None:
    for number in range(1, 4):
        lake.land(number=number)
    DeltaTable(f"{lake.root}/readings").create_checkpoint()
    for version in (0, 1, 2):
        (Path(lake.root) / "readings" / "_delta_log" / f"{version:020d}.json").unlink()
    newest, *older = lake.trace(last=3)["messages"]

    assert newest["records"][0]["version"] == 3
    assert [each["records"][0]["version"] for each in older] == [None, None]
    assert "no longer reaches back" in older[0]["records"][0]["version_why"]
    assert "no longer reaches back" in "\n".join(render_trace(lake.trace(last=3)))


def test_what_the_ledger_counts_of_the_minute_stands_beside(lake: Lake) -> None:
    lake.land(number=1)
    minute = (lake.now - timedelta(seconds=59)).replace(second=0)
    counts = {"received": 5, "stored": 3, "partial": 0, "dead_lettered": 1, "ignored": 0, "duplicate": 1}
    more = {"gap": 2, "reordered": 0, "late": 0, "updated_at": lake.now, "date": minute.date(), "settled": True}
    lake.append("ledger", [{"device": "d1", "minute": minute, **counts, **more}])
    found = lake.trace()

    assert found["messages"][0]["minute"]["duplicate"] == 1
    text = " ".join(" ".join(render_trace(found)).split())
    assert "received 5 = 3 stored + 1 dead-lettered + 0 ignored + 1 duplicate; 2 gap" in text


def test_a_message_of_long_ago_is_found_too(lake: Lake) -> None:
    lake.land(number=1, received_at=lake.now - timedelta(days=40))
    lake.land(number=2, received_at=lake.now - timedelta(hours=3))
    lake.land("other", number=3)

    assert [each["number"] for each in lake.trace(last=5)["messages"]] == [2, 1]


def test_a_device_that_was_never_heard_is_told_with_near_names(lake: Lake) -> None:
    lake.heard("greenhouse-1", "greenhouse-2", "attic")
    with pytest.raises(UnavailableError, match="Did you mean greenhouse-1, greenhouse-2") as never:
        lake.trace("greenhous-1")
    assert "No message of a device greenhous-1 is stored or rejected." in str(never.value)
    with pytest.raises(UnavailableError, match=r"device zzz is stored or rejected\. `tidegate sql"):
        lake.trace("zzz")


def test_a_device_of_which_nothing_was_kept_is_no_fault(lake: Lake) -> None:
    lake.heard("quiet")
    found = lake.trace("quiet")

    assert found["messages"] == []
    assert "a rule ignores its messages" in " ".join(render_trace(found))


@pytest.mark.parametrize("device", HOSTILE)
def test_no_device_id_breaks_the_query_or_steers_the_terminal(lake: Lake, device: str) -> None:
    lake.land(device, number=1, text=device, value=None, metric=device, message_id=device)
    lake.land(device, number=2, table="dead_letters", got=device, path=device)
    found = lake.trace(device, last=2)

    assert [each["number"] for each in found["messages"]] == [2, 1]
    assert found["device"] == device
    lines = render_trace(found)
    assert all(line.isprintable() for line in lines)
    with pytest.raises(UnavailableError) as never:
        Lake(Path(lake.root) / "other").trace(device)
    assert str(never.value).isprintable()


def test_lines_fit_a_terminal_of_80_columns(lake: Lake) -> None:
    lake.land(number=1, trace=TRACE, flags=["no_identity", "beyond_double"], text="a long text " * 20, value=None)
    lake.land(number=2, table="dead_letters", got="g" * 200, wanted="w" * 200, path="$.values" + ".x" * 50)
    lines = render_trace(lake.trace(last=2))

    assert max(map(len, lines)) <= WIDTH


def test_a_refusal_says_its_place_whole(lake: Lake) -> None:
    got = "Illegal trailing comma before the end of an object, at character 4711: ,}"
    lake.land(number=2, table="dead_letters", got=got)
    assert got in " ".join(" ".join(render_trace(lake.trace())).split())


def test_last_heard_is_not_older_than_the_newest_message(lake: Lake) -> None:
    lake.heard("d1")
    newest = lake.now + timedelta(minutes=7)
    lake.land(number=1)
    lake.land(number=2, received_at=newest)
    assert render_trace(lake.trace(last=2))[0] == f"Device d1, last heard {newest:%Y-%m-%d %H:%M:%S} UTC"


def test_many_readings_are_cut_for_people_and_whole_for_programs(lake: Lake) -> None:
    lake.land(number=1)
    [row] = DeltaTable(f"{lake.root}/readings").to_pyarrow_table().to_pylist()
    lake.append("readings", [{**row, "index": index} for index in range(1, 30)])
    found = lake.trace()

    assert len(found["messages"][0]["readings"]) == 30
    assert "and 18 more" in "\n".join(render_trace(found))


def test_tables_of_a_version_without_the_column_have_no_trace(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.land(number=1)
    rows = DeltaTable(f"{lake.root}/readings").to_pyarrow_table().drop_columns(["trace"])
    write_deltalake(f"{lake.root}/readings", rows, mode="overwrite", schema_mode="overwrite")

    assert lake.trace()["messages"][0]["trace"] is None


# What Kafka says


def message(number: int, offset: int, *, gateway: str | None = "gw") -> TracedMessage:
    at = datetime.now(UTC)
    epoch = 7 if gateway else None
    found = TracedMessage(gateway, epoch, number if gateway else None, at, "t", None, None)
    found.origins.append(RecordOrigin(READINGS, 0, offset, "readings", at))
    return found


def record(number: int, offset: int, *, qos: int = 1) -> LogRecord:
    value = encode_record(
        ReadingRecord(
            v=1,
            gateway="gw",
            epoch=7,
            number=number,
            received_us=1,
            topic="t",
            device="d",
            qos=qos,
            readings=[Reading("m", value=1.0)],
        )
    )
    return LogRecord(0, offset, 1_700_000_000_123, b"d", value)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> dict[int, LogRecord]:
    """What stands in the topic, whose oldest offset is 10 and which ends at 5000; `look_up_records` finds a server."""
    log: dict[int, LogRecord] = {}

    def read_range(settings: object, topic: str, start: Any, until: Any, **more: Any) -> Iterable[list[LogRecord]]:
        yield [log[offset] for offset in range(start[0], until[0]) if offset in log]

    monkeypatch.setattr(records, "_silent", lambda servers: None)
    monkeypatch.setattr(records, "begin_offsets", lambda settings, topic: {0: 10})
    monkeypatch.setattr(records, "end_offsets", lambda settings, topic: {0: 5000})
    monkeypatch.setattr(records, "read_range", read_range)
    return log


def look(*messages: TracedMessage) -> list[tuple[str, int | None]]:
    settings = load_settings(environ={}).kafka
    found = look_up_records(settings, messages)
    return [(found[each.origins[0]].found, found[each.origins[0]].facts.get("qos")) for each in messages]


def test_kafka_has_the_record_or_it_is_expired_or_another_one(kafka: dict[int, LogRecord]) -> None:
    kafka[50], kafka[60] = record(1, 50, qos=2), record(99, 60)
    kafka[4000] = LogRecord(0, 4000, 5, b"k", b"\x00 no record")
    asked = (
        message(1, 50),
        message(2, 60),
        message(3, 9),
        message(4, 6000),
        message(5, 70),
        message(6, 4000, gateway=None),
    )

    assert look(*asked) == [
        ("yes", 2), ("replaced", None), ("expired", None), ("replaced", None), ("expired", None), ("yes", None),
    ]  # fmt: skip


def test_kafka_that_stops_answering_leaves_the_rest_unasked(
    kafka: dict[int, LogRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*given: Any, **more: Any) -> Any:
        raise RetryableError("Kafka failed while reading")

    monkeypatch.setattr(records, "read_range", gone)
    assert look(message(1, 50), message(3, 9)) == [("not asked", None), ("not asked", None)]


def test_nobody_at_the_address_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    settings = load_settings(environ={}, overrides={"kafka.bootstrap_servers": f"127.0.0.1:{port}"}).kafka
    [found] = look_up_records(settings, [message(1, 5)]).values()

    assert (found.found, found.why) == ("not asked", f"Kafka at 127.0.0.1:{port} does not answer (Connection refused)")


# The command


def test_the_command_says_it_in_json_and_in_words_with_everything_stopped(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEGATE_DATA", raising=False)
    file = tmp_path / "settings.toml"
    stopped = lake.settings.kafka.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    file.write_text(to_toml(lake.settings.model_copy(update={"kafka": stopped})))
    lake.land(number=1)
    lake.heard("d1", "d2")
    options = ["--config", str(file)]

    assert run(["trace", "--device", "d1", "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["messages"][0]["records"][0]["in_kafka"] == "not asked"
    assert run(["trace", "-d", "d1", "-n", "5", *options]) == 0
    assert "offset 0: not asked: Kafka at 127.0.0.1:1" in capsys.readouterr().out
    assert run(["trace", "--device", "d3", *options]) == 69
    assert "Did you mean d1, d2?" in capsys.readouterr().err
    assert run(["trace", "--device", "d\udcff", *options]) == 69
    assert run(["trace", *options]) == 2
    assert run(["trace", "--device", "d1", "--last", "0", *options]) == 2
    empty = tmp_path / "nothing.toml"
    empty.write_text(f'[lake]\nroot = "{tmp_path / "none"}"\n')
    assert run(["trace", "--device", "d1", "--config", str(empty)]) == 69


def test_newest_messages_are_found_without_reading_older_ones(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 4):
        lake.land(number=number)
    lake.heard("d1")
    asked: list[str] = []
    from deploy.trace import messages

    def counting(root: str, sql: str, **more: Any) -> Any:
        asked.append(sql)
        return original(root, sql, **more)

    original = messages.run_sql
    monkeypatch.setattr(messages, "run_sql", counting)
    found = find_messages(lake.root, "d1", 2, heard_at=lake.now)

    assert [each.number for each in found] == [3, 2]
    assert len([sql for sql in asked if "FROM readings" in sql]) == 1
