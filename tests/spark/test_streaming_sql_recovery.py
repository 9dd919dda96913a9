"""SQL streams over what is lost: records that Kafka no longer has, checkpoints, topics, and clocks that run ahead."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ingest.contract.errors import TidegateError
from ingest.contract.topics import stream_topic
from ingest.topics.offsets import end_offsets
from streaming.sql.applied_streams import load_applied
from streaming.sql.sent_records import sent_after
from streaming.sql.stream_offsets import StreamCheckpoint, checkpoint_path
from streaming.sql.stream_status import read_status
from streaming.sql.stream_supervisor import StreamSupervisor
from tests.support.sql_streams import Scene


def _rewind_over_clocks_that_run_ahead(scene: Scene, text: str) -> None:
    """A gateway may allow any clock: a rewind reads back as far as that."""
    rows, now = len(scene.rows("past")), datetime.now(UTC)
    scene.send("ahead", "temperature", at=now + timedelta(minutes=50), value=4.0)
    scene.until(lambda: len(scene.rows("past")) > rows, "the row of a clock that runs ahead")
    half_an_hour_on = (now + timedelta(minutes=30)).isoformat()
    told = scene.ask("rewind", "past", text=text, since=half_an_hour_on, ahead_seconds=3600)
    assert (told["diff"]["same"], told["diff"]["only_live"], told["diff"]["only_shadow"]) == (1, 0, 0)


def test_what_kafka_no_longer_has_comes_from_delta_or_a_clock_that_runs_ahead(scene: Scene) -> None:
    for number in range(3):
        scene.send(f"d{number}", "temperature", value=float(number))
    scene.lander.land()
    admin = AdminClient({"bootstrap.servers": scene.lander.kafka.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(scene.lander.topics.readings, 0, 2)]).values():
        done.result(60)
    past = "-- sink: table\n-- backfill: delta\nSELECT device, value, event_time FROM readings"
    scene.apply("past", past)
    scene.until(lambda: len(scene.rows("past")) == 3, "history and what Kafka has")
    scene.restart()
    scene.send("d3", "temperature", value=3.0)
    scene.until(lambda: len(scene.rows("past")) > 3, "what comes after it")
    assert sorted(row["device"] for row in scene.rows("past")) == ["d0", "d1", "d2", "d3"]

    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    told = scene.ask("rewind", "past", text=past, since=hour_ago)
    assert told["from_delta"] == {scene.lander.topics.readings: {0: "offsets before 2"}}
    assert told["from_kafka"][scene.lander.topics.readings][0] == [2, 4]
    assert (told["diff"]["same"], told["diff"]["only_live"], told["diff"]["only_shadow"]) == (4, 0, 0)
    _rewind_over_clocks_that_run_ahead(scene, past)
    windows = "-- sink: table\n-- watermark: event_time 1 minute\n-- backfill: earliest\n" + (
        "SELECT window.start AS at, count(*) AS n FROM readings GROUP BY window(event_time, '1 minute')"
    )
    scene.apply("windows", windows)
    with pytest.raises(TidegateError, match="is rebuilt from Kafka alone: name a later --since"):
        scene.ask("rewind", "windows", text=windows, since=hour_ago)

    # What expires before the stream reads it comes from the table `readings` at the swap, of before `since` too.
    scene.until_read("past")
    scene.streams.close()
    scene.send("d4", "temperature", at=datetime.now(UTC) - timedelta(hours=2), value=4.0)
    scene.send("d5", "temperature", value=5.0)
    scene.lander.land()
    ends = end_offsets(scene.lander.kafka, scene.lander.topics.readings)
    expired = [TopicPartition(scene.lander.topics.readings, part, end) for part, end in ends.items()]
    for done in admin.delete_records(expired).values():
        done.result(60)
    scene.send("d6", "temperature", value=6.0)
    scene.streams = StreamSupervisor(scene.writer)
    scene.until(lambda: read_status(scene.lander.root)[1]["past"]["state"] == "failed", "the refusal")
    said = read_status(scene.lander.root)[1]["past"]["detail"]
    assert "Kafka no longer has the records that stream past reads next" in said
    assert "tidegate streams rewind past --since TIME" in said
    scene.ask("rewind", "past", text=past, since=hour_ago)
    assert scene.ask("swap", "past")["missing"] == {}
    scene.send("d7", "temperature", value=7.0)
    scene.until(lambda: "d7" in {row["device"] for row in scene.rows("past")}, "the swapped stream to go on")
    assert sorted(row["device"] for row in scene.rows("past")) == ["ahead", *(f"d{number}" for number in range(8))]


def newest_files(folder: Path) -> list[Path]:
    """The newest numbered file of a folder of a checkpoint or a log, with its checksum."""
    newest = max(
        (path for path in folder.iterdir() if path.name.split(".")[0].isdigit()), key=lambda path: int(path.stem)
    )
    return [newest, newest.with_name(f".{newest.name}.crc")]


def test_offsets_and_topics_decide_and_not_a_batchs_number(scene: Scene) -> None:
    scene.apply(
        "found", "-- sink: table, topic\n-- key: device\n-- backfill: earliest\nSELECT device, text FROM readings"
    )
    path = Path(checkpoint_path(scene.writer.settings.checkpoint, "found"))

    def checkpoint() -> Path:
        return max(path.iterdir(), key=lambda folder: folder.stat().st_mtime)

    def devices() -> list[str]:
        return sorted(row["device"] for row in scene.rows("found"))

    def lose(*folders: Path) -> None:
        """As after a power cut, with the stream stopped."""
        scene.until_read("found")
        scene.streams.close()
        for file in (file for folder in folders for file in newest_files(folder)):
            file.unlink(missing_ok=True)
        scene.lander.lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def refusal(words: str) -> str:
        scene.streams = StreamSupervisor(scene.writer)
        scene.until(lambda: read_status(scene.lander.root)[1]["found"]["state"] == "failed", "the refusal")
        said = str(read_status(scene.lander.root)[1]["found"])
        assert words in said
        assert f"move the folder {checkpoint()} away" in said
        scene.streams.close()
        return said

    def move_away() -> None:
        checkpoint().rename(scene.lander.checkpoint / f"away-{time.monotonic()}")
        scene.streams = StreamSupervisor(scene.writer)

    for name in ("a", "b"):
        scene.send(name, "event", text=name)
        scene.until(lambda name=name: name in devices(), f"the row of {name}")
    # The plan of the newest batch is lost, its rows are not: the number comes again with a later end.
    lose(checkpoint() / "commits", checkpoint() / "offsets")
    scene.send("c", "event", text="c")
    scene.streams = StreamSupervisor(scene.writer)
    scene.until(lambda: "c" in devices(), "the rest of the batch")
    assert devices() == ["a", "b", "c"]
    scene.until_read("found")
    sent = [(value["device"], headers["batch"]) for _, value, headers in scene.records("found")]
    again = [batch for device, batch in sent if device == "b"]
    assert len(again) == 1, "what was sent before is not sent again"
    (rest,) = [batch for device, batch in sent if device == "c"]
    assert rest.startswith(f"{again[0]}-rest-")
    topic, incarnation = stream_topic("found"), checkpoint().name
    after = sent_after(scene.lander.kafka, topic, incarnation=incarnation, offsets={})
    assert (after.records.total(), after.newest) == (3, int(again[0]))
    ends = end_offsets(scene.lander.kafka, topic)
    assert not sent_after(scene.lander.kafka, topic, incarnation=incarnation, offsets=ends).records

    # The newest commit of the table is lost, and the checkpoint says that its batch is done.
    scene.send("d", "event", text="d")
    scene.until(lambda: "d" in devices(), "the row of d")
    lose(Path(scene.lander.root) / "found" / "_delta_log")
    assert "d" not in devices()
    refusal("its newest commits are gone")
    move_away()
    scene.until(lambda: "d" in devices(), "the row of d again")
    assert devices() == ["a", "b", "c", "d"]

    # The topic is made again, and filled past what was read of the old one.
    lose()
    topic = scene.lander.topics.readings
    admin = AdminClient({"bootstrap.servers": scene.lander.kafka.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(60)
    scene.wait_until(lambda: topic not in admin.list_topics(timeout=5).topics, what="the topic being gone")
    scene.wait_until(
        lambda: admin.create_topics([NewTopic(topic, 2, 1)])[topic].exception(20) is None, what="the topic"
    )
    scene.lander.producer = Producer({"bootstrap.servers": scene.lander.kafka.bootstrap_servers})
    for number in range(10):
        scene.send(f"e{number}", "event", text="e")
    refusal(f"{topic} partition 0 was recreated or cut back")
    move_away()
    scene.until(lambda: "e9" in devices(), "the rows of the new topic")
    assert devices() == ["a", "b", "c", "d", *(f"e{number}" for number in range(10))]


def test_of_a_batch_that_was_sent_in_part_the_rest_is_sent_in_order(lake: Any) -> None:
    from collections import Counter

    from streaming.sql.sent_records import separate_unsent

    rows = [
        ("b", "2", "10"),
        ("a", "1", "0"),
        (None, "n", "9"),
        ("a", "1", "8589934592"),
        ("c", None, "2"),
        ("a", "3", "1"),
    ]
    records = lake.spark.createDataFrame(rows, "key string, value string, row string")
    sent = Counter({("a", "1"): 1, (None, "n"): 1, ("c", None): 1, ("z", "9"): 4})
    left, again = separate_unsent(records, sent)
    assert [(row["key"], row["value"], row["row"]) for row in left.collect()] == [
        ("a", "3", "1"), ("b", "2", "10"), ("a", "1", "8589934592"),
    ]  # fmt: skip
    assert again == Counter({("a", "1"): 1, (None, "n"): 1, ("c", None): 1})


def test_a_clock_that_runs_ahead_moves_no_watermark_further_than_kafkas_own(lake: Any) -> None:
    from streaming.sql.header import parse_definition
    from streaming.sql.output_frame import make_frame, new_session
    from streaming.sql.statement import StatementSources, StreamSource

    session = new_session(lake.spark, partitions=1)
    rows = session.sql(
        "SELECT timestamp'2026-05-01T12:00:00Z' AS _tidegate_at, event_time FROM "
        "VALUES (timestamp'2026-05-01T12:09:00Z'), (timestamp'2026-05-01T11:00:00Z') AS t(event_time)"
    )
    text = "-- sink: table\n-- watermark: event_time 1 minute\nSELECT CAST(event_time AS STRING) AS at FROM readings"
    sources = StatementSources((StreamSource("readings", "t"),), ())
    found = make_frame(session, parse_definition("x", text), sources, "/nowhere", lambda source: rows).collect()
    assert [row["at"] for row in found] == ["2026-05-01 12:00:10", "2026-05-01 11:00:00"]


def test_in_real_time_mode_a_start_sends_nothing_twice_and_leaves_nothing_out(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.sql.realtime.LEFT_CORES", 0)
    monkeypatch.setattr("streaming.sql.realtime.BATCH", "5 minutes")  # so none ends before the test wants it
    live = (
        "-- sink: topic\n-- key: device\n-- trigger: realtime\n-- backfill: earliest\nSELECT device, text FROM readings"
    )
    seen: list[str] = []

    def sent() -> list[str]:
        return sorted(value["device"] for _, value, _ in scene.records("live"))

    def arrives(*names: str) -> None:
        for name in names:
            scene.send(name, "event", text="same for all")
        seen.extend(names)
        scene.until(lambda: set(sent()) >= set(names), f"{names} in the topic")
        assert sent() == sorted(seen), "each once"

    def begun() -> str:
        return load_applied(scene.lander.root)["live"].incarnation

    def finished() -> int | None:
        path = checkpoint_path(scene.writer.settings.checkpoint, "live", begun())
        return StreamCheckpoint(scene.writer.spark, path).finished()

    scene.apply("live", live)
    arrives("a", "b")
    first = begun()
    scene.restart()  # in the middle of the first batch, which Spark would run again
    arrives("c")
    assert begun() != first
    assert not Path(checkpoint_path(scene.writer.settings.checkpoint, "live", first)).exists()

    # Equal records before and after the end of a batch: those after it alone are compared.
    monkeypatch.setattr("streaming.sql.realtime.BATCH", "5 seconds")
    scene.restart()
    scene.until(lambda: finished() is not None, "the end of a batch")
    arrives("a")
    scene.streams.close()
    scene.send("a", "event", text="same for all")  # while nothing runs
    seen.append("a")
    monkeypatch.setattr("streaming.sql.realtime.BATCH", "5 minutes")
    scene.streams = StreamSupervisor(scene.writer)
    arrives("d")

    # Batches go on where real-time mode was, and it goes on where batches were.
    batches = live.replace("realtime", "100 milliseconds")
    assert scene.apply("live", batches)["changed"]
    arrives("e")
    assert scene.apply("live", live)["changed"]
    arrives("f")
    # The records in hand are those of the statement that sent them.
    assert scene.apply("live", live.replace("text FROM", "upper(text) AS text FROM"))["changed"]
    arrives("g")
    texts = {value["device"]: value["text"] for _, value, _ in scene.records("live")}
    assert (texts["f"], texts["g"]) == ("same for all", "SAME FOR ALL")
    # A statement that fails on a record is replaced by one that does not.
    scene.apply("live", live.replace("text FROM", "if(device = 'bad', raise_error('no'), text) AS text FROM"))
    arrives("h")
    scene.send("bad", "event", text="same for all")
    scene.until(lambda: read_status(scene.lander.root)[1]["live"]["state"] == "failed", "the failure")
    scene.apply("live", live)
    seen.append("bad")
    arrives("i")
