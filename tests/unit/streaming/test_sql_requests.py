"""Requests about streams without a JVM: what is refused before anything is stopped or written."""

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from ingest.contract.errors import ConfigError, MissingRightError, TidegateError
from ingest.kafka_settings import KafkaSettings
from lakehouse.requests import Request
from monitoring.metrics.stream import StreamMetrics
from streaming.sql import handlers, rewind, swap
from streaming.sql import stream_supervisor as supervisor
from streaming.sql.applied_streams import AppliedStream, ShadowStream, load_applied
from streaming.sql.definition_changes import CheckpointShape
from streaming.sql.header import parse_definition
from streaming.sql.output_table import ensure_table
from streaming.sql.prepare_stream import PreparedStream
from streaming.sql.statement import StatementSources

TEXT = "-- sink: table\nSELECT device, n FROM readings\n"
OTHER = TEXT.replace(" n ", " CAST(n AS STRING) AS n ")
SHAPE = CheckpointShape(
    body="SELECT device, n FROM readings", sources=("readings",), tables=(), state=(),
    columns=(("device", "string"), ("n", "bigint")), sinks=("table",), key=None, watermark=None, late="drop",
    trigger_seconds=1.0, partitions=2,
)  # fmt: skip


def schema(**kinds: Any) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return json.dumps({"type": "struct", "fields": fields})


LONG, TEXTUAL = schema(device="string", n="long"), schema(device="string", n="string")


def applied(name: str = "x", **other: Any) -> AppliedStream:
    return AppliedStream(name, TEXT, "i1", LONG, replace(SHAPE, **other), {})


@pytest.fixture
def writer(tmp_path: Path) -> Any:
    return SimpleNamespace(
        root=str(tmp_path), lake=SimpleNamespace(log_retention_hours=24), kafka=None, jvm_runs=lambda: True
    )


def prepares(monkeypatch: pytest.MonkeyPatch, text: str, columns: Any, found: str) -> Request:
    """A request whose text would be planned to this."""
    shape = replace(SHAPE, body=text, columns=columns)
    prepared = PreparedStream(parse_definition("x", text), StatementSources((), ()), shape, found)
    for module in (handlers, rewind):
        monkeypatch.setattr(module, "prepare_stream", lambda *_: prepared)
    return Request("streams.any", {"name": "x", "text": text, "since": "2026-11-28T00:00:00+00:00"})


def test_a_table_takes_new_columns_but_no_other_type_however_it_is_nested(tmp_path: Path) -> None:
    root = str(tmp_path)
    ensure_table(root, "x", LONG, log_retention_hours=24)
    array = {"type": "array", "elementType": "double", "containsNull": False}
    ensure_table(root, "x", schema(n="long", more=array), log_retention_hours=24)
    ensure_table(root, "x", schema(n="long", more={**array, "containsNull": True}), log_retention_hours=24)
    with pytest.raises(
        ConfigError, match=r"Column n of the table x is bigint.* gives string.*CAST it back to bigint, or"
    ):
        ensure_table(root, "x", TEXTUAL, log_retention_hours=24)
    with pytest.raises(ConfigError, match="Column more of the table x"):
        ensure_table(root, "x", schema(more={**array, "elementType": "string"}), log_retention_hours=24)


def test_a_rewind_into_another_type_is_refused(writer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    applied().save(writer.root)
    ensure_table(writer.root, "x", LONG, log_retention_hours=24)
    request = prepares(monkeypatch, OTHER, (("device", "string"), ("n", "string")), TEXTUAL)
    with pytest.raises(ConfigError, match="rewind of stream x is not possible: column n bigint -> string"):
        rewind.rewind_stream(writer, request)


@pytest.mark.parametrize("ask", [handlers.apply_stream, handlers.plan_stream, rewind.rewind_stream])
def test_a_column_that_went_and_comes_back_with_another_type_is_refused(
    ask: Any, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied(columns=SHAPE.columns[:1]).save(writer.root)
    ensure_table(writer.root, "x", LONG, log_retention_hours=24)
    request = prepares(monkeypatch, OTHER, (("device", "string"), ("n", "string")), TEXTUAL)
    with pytest.raises(ConfigError, match="Column n of the table x is bigint"):
        ask(writer, request)


@pytest.mark.parametrize("ask", [handlers.apply_stream, handlers.plan_stream])
def test_a_table_that_a_drop_kept_is_not_written_with_another_type(
    ask: Any, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_table(writer.root, "x", LONG, log_retention_hours=24)
    request = prepares(monkeypatch, OTHER, (("device", "string"), ("n", "string")), TEXTUAL)
    with pytest.raises(ConfigError, match=r"n of the table x is bigint.*move that table away"):
        ask(writer, request)


def test_an_apply_of_the_same_file_starts_a_failed_stream_again(writer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[str] = []

    def start(_: Any, stream: AppliedStream, __: Any) -> Any:
        starts.append(stream.name)
        if len(starts) == 1:
            message = "the table that it joins is gone"
            raise ConfigError(message)
        return SimpleNamespace(failure=lambda: None, query=None, sink=None, stop=lambda: None)

    monkeypatch.setattr(supervisor, "resolve_incarnation", lambda _, stream: stream)
    monkeypatch.setattr(supervisor, "start_stream", start)
    monkeypatch.setattr(supervisor, "progress_of", lambda *_: [])
    monkeypatch.setattr(supervisor, "_pool", lambda *_: nullcontext())
    writer.metrics = StreamMetrics(CollectorRegistry(), query="land", tables=(), topics=())
    writer.spark = SimpleNamespace(sparkContext=None)
    writer.kafka = SimpleNamespace(bootstrap_servers="kafka:9092")
    applied().save(writer.root)
    streams = supervisor.StreamSupervisor(
        writer, make_mirror=lambda _: SimpleNamespace(mirror=None, close=lambda: None)
    )
    request = prepares(monkeypatch, TEXT, SHAPE.columns, LONG)
    try:
        streams.run()
        streams.run()
        assert starts == ["x"]
        assert handlers.apply_stream(writer, request)["restarted"]
        streams.run()
        assert starts == ["x", "x"]
        assert not handlers.apply_stream(writer, request)["restarted"]
    finally:
        streams.close()


def test_a_stream_whose_table_another_one_joins_is_dropped_without_its_table_only(
    writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[str] = []
    monkeypatch.setattr(handlers, "StreamCheckpoint", lambda *_: SimpleNamespace(delete=lambda: None))
    monkeypatch.setattr(handlers, "delete_group", lambda *_: None)
    monkeypatch.setattr(handlers, "delete_table", lambda _, table: gone.append(table))
    writer.spark, writer.settings = None, SimpleNamespace(checkpoint=f"{writer.root}/checkpoint")
    applied().save(writer.root)
    applied("y", tables=("x",)).save(writer.root)
    with pytest.raises(TidegateError, match=r"Other streams join the table x, .*: y\..*--keep-table"):
        handlers.drop_stream(writer, Request("streams.drop", {"name": "x"}))
    assert handlers.drop_stream(writer, Request("streams.drop", {"name": "x", "keep_table": True}))["dropped"]
    assert gone == []
    applied().save(writer.root)
    assert handlers.drop_stream(writer, Request("streams.drop", {"name": "y"}))["dropped"]
    assert handlers.drop_stream(writer, Request("streams.drop", {"name": "x"}))["gone"] == ["table x"]


@pytest.mark.parametrize("missing", [["READ"], ["WRITE", "READ"], ["DELETE"], []])
def test_a_right_that_is_needed_after_a_crash_only_is_asked_for_before_anything_is_stopped(
    writer: Any, monkeypatch: pytest.MonkeyPatch, missing: list[str]
) -> None:
    text = TEXT.replace("table", "topic\n-- key: device")
    request = prepares(monkeypatch, text, SHAPE.columns, LONG)
    done: list[str] = []
    writer.kafka = KafkaSettings(sasl_username="guest")
    monkeypatch.setattr(handlers, "create_topic", lambda *_, **__: done.append("made"))
    monkeypatch.setattr(handlers, "starts_of", lambda *_: {})
    monkeypatch.setattr("ingest.topics.rights.missing_rights", lambda *_: missing)
    stop = SimpleNamespace(stop_stream=lambda name: done.append("stopped"))
    monkeypatch.setattr(handlers, "supervisor_of", lambda root: stop)
    lacking = [right for right in ("WRITE", "READ") if right in missing]
    words = rf"guest may not {' and '.join(lacking).lower()} topic telemetry.stream.x, which .* reads after a crash: grant it "
    with pytest.raises(MissingRightError, match=words + " and ".join(lacking)) if lacking else nullcontext():
        handlers.apply_stream(writer, request)
    assert done == (["made"] if lacking else ["made", "stopped"])
    assert list(load_applied(writer.root)) == ([] if lacking else ["x"])


def test_a_rewind_that_would_lose_open_windows_is_refused_and_names_the_newest_since(
    writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = int(datetime(2026, 11, 28, 12, tzinfo=UTC).timestamp())
    found: dict[str, Any] = {"row": None, "watermark_ms": 0}
    rows = SimpleNamespace(selectExpr=lambda _: SimpleNamespace(first=lambda: [found["row"]]))
    writer.spark = SimpleNamespace(read=SimpleNamespace(format=lambda _: SimpleNamespace(load=lambda _: rows)))
    writer.settings, writer.topics = SimpleNamespace(checkpoint="checkpoints/land"), None
    checkpoint = SimpleNamespace(watermark_ms=lambda: found["watermark_ms"])
    monkeypatch.setattr(rewind, "StreamCheckpoint", lambda *_: checkpoint)
    monkeypatch.setattr(rewind, "load_shadow", lambda *_: 1 / 0)  # what follows the checks
    state = ("aggregate by window struct<start:timestamp,end:timestamp> (3600000000 INTERVAL '10' SECOND), device: n",)
    schema_at = schema(window_start="timestamp", n="long")
    replace(applied(state=state), schema=schema_at).save(writer.root)
    request = prepares(monkeypatch, TEXT, (("window_start", "timestamp"), ("n", "bigint")), schema_at)

    def ask(minute: int) -> None:
        request.arguments["since"] = datetime.fromtimestamp(noon + 60 * minute, UTC).isoformat()
        rewind.rewind_stream(writer, request)

    with pytest.raises(TidegateError, match="Wait for its first window, or drop the stream"):
        ask(-600)
    found["row"] = (noon - 3600) * 1_000_000
    with pytest.raises(
        TidegateError, match=r"would lose them\. The newest possible --since is 2026-11-28T11:00:00\+00:00"
    ):
        ask(30)
    with pytest.raises(ZeroDivisionError):
        ask(-60)
    # A stream whose windows give no row says by its watermark what is closed: a window that began by then may last an hour.
    found["watermark_ms"] = (noon + 4000) * 1000
    with pytest.raises(ZeroDivisionError):
        ask(6)
    with pytest.raises(TidegateError, match=r"The newest possible --since is 2026-11-28T12:06:40\+00:00"):
        ask(30)


@pytest.mark.parametrize(
    ("state", "closed"),
    [
        ("aggregate by event_time timestamp: count(1) bigint", [5_000_000_000]),
        ("aggregate by window struct<start:timestamp,end:timestamp> (60000000 120000000): n", [4_880_000_000]),
        ("aggregate by window struct<start:timestamp,end:timestamp> (): n", [0]),
        ("aggregate by session_window struct<start:timestamp,end:timestamp> (60000000): n", []),
    ],
)
def test_the_watermark_says_which_windows_are_closed(state: str, closed: list[int]) -> None:
    assert rewind.closed_before((state,), 5_000_000) == closed
    assert rewind.closed_before((state,), 0) == []


def test_what_neither_kafka_nor_a_table_has_is_named() -> None:
    oldest = {"t": {0: 10, 1: 4, 2: 7}}
    assert swap.find_expired_offsets(({"t": {0: 12, 1: 2}}, {"t": {0: 8, 1: 3}}), oldest) == {
        "t": {0: [8, 10], 1: [2, 4]}
    }


def test_a_swap_leaves_out_no_row_that_the_live_table_alone_has() -> None:
    shadow = ShadowStream(applied(), "2026-11-28", {"t": {0: 8, 1: 3}}, "at")
    for done, oldest in (({0: 8, 1: 3}, {0: 10, 1: 0}), ({0: 20, 1: 9}, {0: 8, 1: 3}), ({0: 8, 1: 9}, {0: 10, 1: 3})):
        swap.refuse_rows_lost(shadow, {"t": done}, {"t": oldest})
    with pytest.raises(TidegateError, match=r"offsets 8 to 9 of t partition 0.*Build the shadow again"):
        swap.refuse_rows_lost(shadow, {"t": {0: 9, 1: 3}}, {"t": {0: 10, 1: 0}})
