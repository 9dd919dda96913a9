"""Records of Kafka become rows; what is no record becomes a dead letter beside them."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from pyspark.sql.types import ArrayType, BooleanType, DoubleType, IntegerType, LongType, MapType, StringType, StructType

from ingest.contract.dead_letter import DeadLetterRecord
from ingest.contract.reading import Reading, ReadingRecord, encode_record
from lakehouse.tables import DEAD_LETTERS, READINGS, Table
from streaming.decode import DEAD_LETTER_SCHEMA, RECORD_SCHEMA, dead_letter_rows, landed_at, reading_rows

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SPARK_OF = {"int": (IntegerType, LongType), "float": (DoubleType,), "bool": (BooleanType,), "str": (StringType,)}


@pytest.mark.parametrize(("kind", "ddl"), [(ReadingRecord, RECORD_SCHEMA), (DeadLetterRecord, DEAD_LETTER_SCHEMA)])
def test_the_contract_and_sparks_schema_are_one(lake: Any, kind: type, ddl: str) -> None:
    fields = StructType.fromDDL(ddl).fields
    assert [field.name for field in fields] == [field.name for field in msgspec.structs.fields(kind)]
    if kind is ReadingRecord:
        (readings,) = (field.dataType for field in fields if field.name == "readings")
        assert isinstance(readings, ArrayType)
        assert readings.elementType.names == [field.name for field in msgspec.structs.fields(Reading)]


def ddl_of(table: Table, *, without: tuple[str, ...] = ()) -> dict[str, str]:
    return {column.name: column.type for column in table.columns if column.name not in without}


def test_rows_and_tables_have_the_same_columns_and_types(decode_values: Any) -> None:
    frame = decode_values()
    for table, rows in (
        (READINGS, reading_rows(frame, landed_at(NOW)).drop("position")),
        (DEAD_LETTERS, dead_letter_rows(frame, landed_at(NOW))),
    ):
        found = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
        assert found == ddl_of(table)
    assert isinstance(StructType.fromDDL(f"t {ddl_of(READINGS)['tags']}").fields[0].dataType, MapType)


def test_a_reading_keeps_everything(decode_values: Any, record: Any) -> None:
    us = 1_777_000_000_123_456
    item = Reading(
        "t",
        value=1.5,
        text="x",
        unit="C",
        time_us=us,
        claimed_us=us + 1,
        index=2,
        message_id="bs:3:4",
        boot=3,
        seq=4,
        flags=["b", "a"],
    )
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    sent = record(
        7,
        seq=9,
        readings=[Reading("bare", value=2.0), item],
        flags=["a"],
        tags={"site": "x"},
        trace=trace,
        payload_hash=-(2**63),
    )
    first, second = reading_rows(decode_values(encode_record(sent)), landed_at(NOW)).collect()
    assert (first.metric, first.value, first.time_source, first.device_time) == ("bare", 2.0, "gateway", None)
    assert first.event_time == first.received_at
    assert (first.message_id, first.boot, first.seq, first["index"], first.flags) == ("bs:1:9", 1, 9, 0, ["a"])
    assert (second.message_id, second.boot, second.seq, second["index"]) == ("bs:3:4", 3, 4, 2)
    assert (second.time_source, second.text, second.unit, second.flags, second.tags) == (
        "device",
        "x",
        "C",
        ["a", "b"],
        {"site": "x"},
    )
    assert (second.event_time.microsecond, second.device_time.microsecond) == (123_456, 123_457)
    assert (second.gateway, second.gateway_epoch, second.message_number, second.mqtt_topic) == ("g", 5, 7, "t")
    assert (first.position, second.position) == (0, 1)
    assert (first.trace, second.trace) == (trace, trace)
    assert (first.payload_hash, second.payload_hash) == (-(2**63), -(2**63))


POISON = {
    "no JSON": b"\x00\xff not json",
    "nothing": b"",
    "a list": b"[1]",
    "torn": b'{"v":1,"gateway":"g"',
    "trailing": b"{} {}",
}


def dead(frame: Any) -> list[Any]:
    assert reading_rows(frame, landed_at(NOW)).count() == 0
    return list(dead_letter_rows(frame, landed_at(NOW)).collect())


def test_poison_becomes_dead_letters_with_its_bytes(decode_values: Any) -> None:
    values = list(POISON.values())
    rows = sorted(dead(decode_values(*values)), key=lambda row: row.offset)
    assert [bytes(row.payload) for row in rows] == values
    assert {(row.reason, row.stage, row.device, row.source_topic) for row in rows} == {
        ("spark_corrupt_record", "stream", "key", "telemetry.readings")
    }
    assert [row.payload_bytes for row in rows] == [len(value) for value in values]
    assert rows[0].payload_text is None
    assert rows[3].payload_text == values[3].decode()


CHANGED: dict[str, dict[str, Any]] = {
    "another version": {"v": 2},
    "no device": {"device": None},
    "no readings": {"readings": []},
    "a reading without value": {"readings": [{"metric": "t"}]},
    "text for a number": {"readings": [{"metric": "t", "value": "x"}]},
    "a number past 64 bits": {"number": 2**70},
    "a receive time of year 36812": {"received_us": 2**60},
    "a time of year 300000": {"readings": [{"metric": "t", "value": 1, "time_us": 2**63 - 1}]},
    "a NaN": {"readings": [{"metric": "t", "value": float("nan")}]},
    "no reading in the list": {"readings": [None]},
    "a second reading without metric": {"readings": [{"metric": "t", "value": 1}, {"value": 2}]},
    "an empty one between number and text": {
        "readings": [{"metric": "t", "value": 1}, {"metric": "u"}, {"metric": "v", "text": "on"}]
    },
    "a claim before year 1": {
        "readings": [{"metric": "t", "value": 1}, {"metric": "u", "value": 1, "time_us": 1, "claimed_us": -(2**62)}]
    },
}


def test_records_that_break_the_contract_are_poison(decode_values: Any, as_json: Any) -> None:
    values = [as_json(**fields) for fields in CHANGED.values()]
    found = {row.offset for row in dead(decode_values(*values))}
    assert found == set(range(len(values))), [list(CHANGED)[i] for i in set(range(len(values))) - found]


def test_numbers_and_texts_with_and_without_times_share_a_record(decode_values: Any, as_json: Any) -> None:
    readings = [{"metric": "t", "value": 1}, {"metric": "u", "text": "on"}, {"metric": "v", "value": 0, "time_us": 1}]
    rows = reading_rows(decode_values(as_json(readings=readings)), landed_at(NOW)).collect()
    assert [(row.metric, row.value, row.text, row.position) for row in rows] == [
        ("t", 1.0, None, 0),
        ("u", None, "on", 1),
        ("v", 0.0, None, 2),
    ]


def test_a_dead_letter_keeps_its_bytes_and_poison_in_its_topic_is_one_too(decode_values: Any, dead_letter: Any) -> None:
    from ingest.contract.dead_letter import encode_dead_letter

    sent = encode_dead_letter(dead_letter(3, b"\xff\x00"))
    broken = sent.replace(b'"payload_base64":"/wA="', b'"payload_base64":"%%%"')
    rows = dead(decode_values(sent, broken, topic="telemetry.dead-letters"))
    kept, poison = sorted(rows, key=lambda row: row.offset)
    assert (kept.reason, kept.stage, bytes(kept.payload), kept.payload_bytes) == ("bad_json", "gateway", b"\xff\x00", 2)
    assert (kept.message_number, kept.partial, kept.attempt) == (3, False, 0)
    assert (poison.reason, bytes(poison.payload)) == ("spark_corrupt_record", broken)


def test_a_dead_letter_says_since_when_its_message_may_have_waited(decode_values: Any, dead_letter: Any) -> None:
    from ingest.contract.dead_letter import encode_dead_letter

    waits = (None, 0, 1_777_000_000_123_456)
    letters = [msgspec.structs.replace(dead_letter(number), waited_since_us=us) for number, us in enumerate(waits)]
    rows = dead(decode_values(*map(encode_dead_letter, letters), topic="telemetry.dead-letters"))
    found = [(row.may_have_waited, row.waited_since) for row in sorted(rows, key=lambda row: row.offset)]
    assert [waited for waited, _ in found] == [False, True, True]
    assert [None if since is None else since.microsecond for _, since in found] == [None, None, 123456]
