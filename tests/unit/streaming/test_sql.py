"""SQL-defined streams without a JVM: headers, what a statement reads, which changes a checkpoint survives, the files."""

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ingest.contract.errors import ConfigError, UnavailableError
from streaming.sql.applied_streams import AppliedStream, ShadowStream, load_applied, load_shadow
from streaming.sql.definition_changes import CheckpointShape, compare, survives
from streaming.sql.golden import read_golden
from streaming.sql.header import WatermarkClause, parse_definition
from streaming.sql.output_table import table_schema
from streaming.sql.stream_folder import find_stream, list_streams
from streaming.sql.stream_offsets import behind_count, checkpoint_path, end_of, merge_offsets

BODY = "SELECT device FROM readings"


def test_a_header_is_read_with_its_defaults_and_people_may_comment() -> None:
    text = (
        "-- What it is for.\n-- sink: topic, table\n--\n-- key: device\n-- watermark: event_time 2 minutes\n\n"
        + BODY
        + ";\n"
    )
    found = parse_definition("by_device", text)
    assert (found.sinks, found.key, found.body) == (("topic", "table"), "device", BODY)
    assert found.watermark == WatermarkClause("event_time", "2 minutes")
    assert (found.late, found.backfill, found.trigger_seconds, found.partitions) == ("drop", "latest", 1.0, None)
    fast = parse_definition("a", f"-- sink: table\n-- trigger: 250 milliseconds\n-- partitions: 3\n{BODY}")
    assert (fast.trigger_seconds, fast.partitions) == (0.25, 3)
    assert parse_definition("a", f"-- sink: topic\n-- key: d\n-- trigger: realtime\n{BODY}").trigger_seconds is None


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("", "line 1: the header has no sink"),
        ("-- sink: kafka", "line 1: sink is 'kafka'; wanted topic, table"),
        ("-- sink: table, table", "sink is 'table, table'"),
        ("-- sink: table\n-- sinks: topic", r"line 2: unknown setting 'sinks' \(did you mean sink\?\)"),
        ("-- sink: table\n-- sink: topic", "line 2: sink is already in line 1"),
        ("-- sink:", "line 1: sink has no value"),
        ("-- sink: topic", "line 1: a topic needs a key"),
        ("-- sink: topic\n-- key: a b", "line 2: key is 'a b'"),
        ("-- sink: table\n-- watermark: 2 minutes", "line 2: watermark is '2 minutes'"),
        ("-- sink: table\n-- watermark: event_time soon", "line 2: watermark is"),
        ("-- sink: table\n-- late: never", "line 2: late is 'never'; wanted one of drop, correct"),
        ("-- sink: table\n-- backfill: all", "line 2: backfill is 'all'"),
        ("-- sink: topic\n-- key: device\n-- backfill: delta", "line 3: backfill=delta needs a table"),
        ("-- sink: table\n-- trigger: fast", "line 2: trigger is 'fast'"),
        ("-- sink: table\n-- trigger: 0 seconds", "line 2: trigger is '0 seconds'"),
        ("-- sink: table\n-- trigger: realtime", "line 2: `realtime` writes to topics only"),
        ("-- sink: table\n-- partitions: 0", "line 2: partitions is '0'"),
    ],
)
def test_what_a_header_gets_wrong_is_told_with_its_line(header: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^x.sql, {says}" if says.startswith("line") else says):
        parse_definition("x", f"{header}\n{BODY}")


def test_no_statement_settings_behind_it_and_names_that_are_taken() -> None:
    with pytest.raises(ConfigError, match="line 1: there is no statement"):
        parse_definition("x", "-- sink: table")
    with pytest.raises(ConfigError, match="line 3: the setting late comes after the SELECT"):
        parse_definition("x", f"-- sink: table\n{BODY}\n-- late: drop")
    for name in (
        "Upper",
        "1st",
        "readings",
        "a-b",
        "x__shadow",
        "",
        "counter_deltas",
        "readings_wide_boiler",
        "status",
    ):
        with pytest.raises(ConfigError, match="can't be the name of a stream"):
            parse_definition(name, f"-- sink: table\n{BODY}")


SHAPE = CheckpointShape(
    body=BODY, sources=("readings",), tables=(), state=(), columns=(("device", "string"), ("n", "bigint")),
    sinks=("table",), key=None, watermark=None, late="drop", trigger_seconds=1.0, partitions=2,
)  # fmt: skip
WINDOWED = replace(
    SHAPE, state=("aggregate by window (60000000), device: count(1)",), watermark=("event_time", "1 minute")
)


@pytest.mark.parametrize(
    ("old", "change", "verdicts"),
    [
        (SHAPE, {}, []),
        (SHAPE, {"body": "SELECT device FROM readings WHERE value > 1"}, ["keeps"]),
        (WINDOWED, {"body": "other"}, ["keeps"]),
        (SHAPE, {"sources": ("other",)}, ["rewind"]),
        (SHAPE, {"tables": ("devices",)}, ["keeps"]),
        (SHAPE, {"columns": (*SHAPE.columns, ("more", "int"))}, ["keeps"]),
        (SHAPE, {"columns": SHAPE.columns[:1]}, ["keeps"]),
        (SHAPE, {"columns": (("device", "string"), ("n", "string"))}, ["refused"]),
        (replace(SHAPE, sinks=("topic",)), {"columns": (("device", "string"), ("n", "string"))}, ["keeps"]),
        (SHAPE, {"sinks": ("topic", "table"), "key": "device"}, ["keeps", "keeps"]),
        (SHAPE, {"trigger_seconds": None}, ["keeps"]),
        (SHAPE, {"partitions": 4}, ["keeps"]),
        (WINDOWED, {"partitions": 4}, ["rewind"]),
        (WINDOWED, {"watermark": ("event_time", "5 minutes")}, ["keeps"]),
        (WINDOWED, {"watermark": ("received_at", "1 minute")}, ["rewind"]),
        (WINDOWED, {"state": ("aggregate by window (120000000), device: count(1)",)}, ["rewind"]),
        (SHAPE, {"state": WINDOWED.state, "watermark": WINDOWED.watermark}, ["rewind", "keeps"]),
        (WINDOWED, {"state": (), "watermark": None}, ["rewind", "rewind"]),
    ],
)  # fmt: skip
def test_which_changes_a_checkpoint_survives(old: CheckpointShape, change: dict[str, Any], verdicts: list[str]) -> None:
    changes = compare(old, replace(old, **change))
    assert [each.verdict for each in changes] == verdicts
    assert survives(changes) == (not set(verdicts) - {"keeps"})


def test_what_is_applied_is_found_again_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    root = str(tmp_path)
    text = f"-- sink: table\n-- watermark: event_time 1 minute\n{BODY}"
    applied = AppliedStream("x", text, "i1", "{}", WINDOWED, {"t": {0: 5, 1: 0}}, author="me", floor="2026-01-01")
    assert load_applied(root) == {}
    applied.save(root)
    ShadowStream(applied, "2026-01-01", {"t": {0: 9}}, "event_time").save(root)
    assert load_applied(root) == {"x": applied}
    shadow = load_shadow(root, "x")
    assert shadow is not None
    assert (shadow.applied, shadow.ends) == (applied, {"t": {0: 9}})
    assert json.loads((tmp_path / "_streams" / "x.json").read_text())["sha256"] == applied.definition.sha256
    (tmp_path / "_streams" / "y.json").write_text("{")
    with pytest.raises(Exception, match=r"y.json is not an applied stream"):
        load_applied(root)


def test_the_folder_wins_over_what_is_shipped(tmp_path: Path) -> None:
    assert {"events_in_country", "events_in_city"} <= set(list_streams(tmp_path))
    assert find_stream(tmp_path, "events_in_city").shipped
    (tmp_path / "events_in_city.sql").write_text(f"-- sink: table\n{BODY}")
    assert not find_stream(tmp_path, "events_in_city").shipped
    with pytest.raises(UnavailableError, match="events_in_city, events_in_country"):
        find_stream(tmp_path, "nothing")


def test_golden_lines_are_rows_in_or_out() -> None:
    found = read_golden(['{"in": "readings", "row": {"a": 1}}', "", '{"out": {"b": 2}}'], "g")
    assert (found.given, found.expected) == ({"readings": [{"a": 1}]}, [{"b": 2}])
    for line in ("{", '{"in": "readings"}', '{"out": 1}', "[]"):
        with pytest.raises(ConfigError, match="g, line 1"):
            read_golden([line], "g")


def test_offsets_of_several_sources_and_what_waits() -> None:
    assert merge_offsets([{"a": {0: 5}}, {"a": {0: 3, 1: 1}, "b": {0: 2}}]) == {"a": {0: 3, 1: 1}, "b": {0: 2}}
    report = {"sources": [{"endOffset": {"a": {"0": 3}}, "latestOffset": {"a": {"0": 5, "1": 2}}}, {"endOffset": None}]}
    assert behind_count(report) == 4
    assert end_of(report) == {"a": {0: 3}}
    assert checkpoint_path("/d/checkpoints/land/", "x", "i1") == "/d/checkpoints/streams/x/i1"
    assert checkpoint_path("land", "x") == "./streams/x"


def test_a_tables_schema_is_free_of_what_spark_keeps_for_itself() -> None:
    inner = {"type": "struct", "fields": [{"name": "s", "type": "string", "nullable": False, "metadata": {"x": 1}}]}
    field = {
        "name": "w",
        "type": {"type": "array", "elementType": inner, "containsNull": False},
        "nullable": False,
        "metadata": {"y": 1},
    }
    found = json.loads(table_schema(json.dumps({"type": "struct", "fields": [field]})))["fields"][0]
    assert (found["nullable"], found["metadata"], found["type"]["containsNull"]) == (True, {}, True)
    assert found["type"]["elementType"]["fields"] == [{"name": "s", "type": "string", "nullable": True, "metadata": {}}]


def test_the_shipped_mapping_turns_meetup_events_into_such_readings(tmp_path: Path) -> None:
    from deploy.settings import load_settings
    from gateway.devtools.decode_file import decode_lines
    from gateway.message_processor import Message, MessageProcessor
    from gateway.routes import compile_routes
    from ingest.contract.reading import decode_record

    file = tmp_path / "meetup.toml"
    file.write_text((files("streaming.sql") / "examples" / "meetup.toml").read_text())
    settings = load_settings(file, environ={})
    event = {"event_id": "e1", "event_name": "Kafka evening", "time": 1669640400000, "yes_rsvp_count": 3,
             "group": {"name": "Streams", "country": "in", "city": "Bengaluru"}}  # fmt: skip
    line = json.dumps({"id": 1, "topic": "meetup/events/1", "payload": json.dumps(event)})
    (found,) = decode_lines([line], settings.routes, settings.gateway, received_us=1669640401_000_000)
    assert found["outcome"] == "reading"
    assert [(row["device"], row["metric"], row["text"]) for row in found["readings"]] == [
        ("e1", "event_name", "Kafka evening")
    ]
    gate = MessageProcessor(compile_routes(settings.routes, settings.gateway), settings.gateway)
    outcome = gate.decide(Message(1, 0, 1669640401_000_000, b"meetup/events/1", json.dumps(event).encode()))
    (record,) = [decode_record(each.value) for each in outcome.records if each.topic == "telemetry.readings"]
    assert record.tags == {"country": "in", "city": "Bengaluru"}
