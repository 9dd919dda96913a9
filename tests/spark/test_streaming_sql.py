"""SQL-defined streams on a real Kafka: from a file to topic and table, over restarts, crashes, changes and rewinds."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.contract.errors import ConfigError, TidegateError
from lakehouse.requests import Request
from streaming.background_tasks import handle_request
from streaming.sql.stream_offsets import checkpoint_path
from streaming.sql.stream_status import read_status
from streaming.sql.stream_supervisor import StreamSupervisor
from tests.support.sql_streams import Scene

EXAMPLES = files("streaming.sql") / "examples"


def events(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["event"] for row in rows)


def test_the_shipped_examples_survive_restarts_crashes_changes_and_a_rewind(scene: Scene) -> None:
    country, city = ((EXAMPLES / f"events_in_{name}.sql").read_text() for name in ("country", "city"))
    with pytest.raises(ConfigError, match="reads 'events_in_country', which is neither a table nor an applied stream"):
        scene.apply("events_in_city", city)
    scene.event("a", "in", "Bangalore")
    scene.event("b", "us", "Boston")
    planned = scene.ask("plan", "events_in_country", text=country)
    assert planned["checkpoint"] == "new"
    assert planned["state"] == []
    assert [column["name"] for column in planned["columns"]][:3] == ["device", "message_id", "event"]
    assert scene.apply("events_in_country", country)["changed"]
    assert scene.apply("events_in_city", city)["changed"]
    assert not scene.apply("events_in_city", city)["changed"]
    scene.event("c", "in", "Bengaluru")
    scene.event("d", "in", "Pune")
    scene.until(lambda: len(scene.rows("events_in_city")) == 2, "the city's events")
    assert events(scene.rows("events_in_country")) == ["a", "c", "d"]
    assert events(scene.rows("events_in_city")) == ["a", "c"]
    scene.until_read("events_in_country", "events_in_city")

    # Times keep their microseconds on the way through the topic; key and headers say whose and which row it is.
    key, value, headers = next(each for each in scene.records("events_in_city") if each[1]["event"] == "a")
    assert key == "event-a"
    assert value["city"] == "Bangalore"
    assert headers["stream"] == "events_in_city"
    row = next(row for row in scene.rows("events_in_city") if row["event"] == "a")
    assert row["received_at"] == next(r for r in scene.rows("events_in_country") if r["event"] == "a")["received_at"]

    # A new process finds them applied.
    scene.restart()
    scene.event("e", "in", "Bangalore")
    scene.until(lambda: len(scene.rows("events_in_city")) == 3, "the city's events after a restart")
    scene.until_read("events_in_country", "events_in_city")
    _, told = read_status(scene.lander.root)
    assert {name: each["state"] for name, each in told.items()} == {
        "events_in_country": "running",
        "events_in_city": "running",
    }
    assert scene.metric("rows_total", "events_in_city") == 3
    assert scene.metric("offsets_behind", "events_in_country") == 0

    # A batch that runs again doubles nothing: not in the table, not in the topic, not in the stream that reads the topic.
    scene.streams.close()
    scene.forget_commit("events_in_country")
    scene.streams = StreamSupervisor(scene.writer)
    scene.event("f", "in", "Bangalore")
    scene.until(lambda: "f" in events(scene.rows("events_in_city")), "the event after the replay")
    scene.until_read("events_in_country", "events_in_city")
    assert events(scene.rows("events_in_country")) == ["a", "c", "d", "e", "f"]
    assert events([value for _, value, _ in scene.records("events_in_country")]) == ["a", "c", "d", "e", "f"]
    assert events(scene.rows("events_in_city")) == ["a", "c", "e", "f"]

    # A projection may change on the same checkpoint; a column that is new is null in the old rows. The batch that runs again
    # after the change is not sent in its new form.
    scene.streams.close()
    scene.forget_commit("events_in_country")
    changed = country.replace("received_at\n", "received_at, upper(text) AS loud\n")
    planned = scene.ask("plan", "events_in_country", text=changed)
    assert planned["checkpoint"] == "survives"
    assert "column loud string is new" in [change["what"] for change in planned["changes"]]
    was = scene.apply("events_in_country", changed)["incarnation"]
    scene.streams = StreamSupervisor(scene.writer)
    scene.event("g", "in", "Pune")
    scene.until(lambda: any(row.get("loud") == "G" for row in scene.rows("events_in_country")), "the new column")
    assert events(scene.rows("events_in_country")) == ["a", "c", "d", "e", "f", "g"]
    assert events([value for _, value, _ in scene.records("events_in_country")]) == ["a", "c", "d", "e", "f", "g"]

    # A rewind with another filter: beside the live table, with the difference, then in its place.
    scene.until_read("events_in_country")
    wider = changed.replace("= 'in'", "IN ('in', 'us')")
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    told = scene.ask("rewind", "events_in_country", text=wider, since=since)
    assert {key: told["diff"][key] for key in ("same", "only_live", "only_shadow")} == {
        "same": 1,  # g; older rows have no `loud` yet
        "only_live": 5,
        "only_shadow": 6,
    }
    assert events(scene.rows("events_in_country__shadow")) == ["a", "b", "c", "d", "e", "f", "g"]
    scene.event("h", "us", "Boston")
    scene.event("i", "in", "Pune")
    scene.until(lambda: "i" in events(scene.rows("events_in_country")), "the live stream to go on")
    swapped = Request("streams.swap", {"name": "events_in_country"})
    assert handle_request(scene.writer, swapped)["incarnation"] != was
    assert events(scene.rows("events_in_country")) == ["a", "b", "c", "d", "e", "f", "g", "h", "i"]
    assert handle_request(scene.writer, swapped)["swapped"], "asked twice, it is found done"
    scene.event("j", "us", "Boston")
    scene.until(lambda: "j" in events(scene.rows("events_in_country")), "the swapped stream to go on")
    assert events(scene.rows("events_in_country")) == ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
    assert not scene.rows("events_in_country__shadow")

    with pytest.raises(TidegateError, match="read stream events_in_country: events_in_city"):
        scene.ask("drop", "events_in_country")
    assert scene.ask("drop", "events_in_city", keep_table=True)["dropped"]
    assert scene.ask("drop", "events_in_country")["dropped"]
    scene.streams.run()
    assert scene.metric("rows_total", "events_in_city") is None
    assert len(scene.rows("events_in_city")) > 0
    assert not Path(f"{scene.lander.root}/events_in_country").exists()


WINDOWS = """\
-- sink: table, topic
-- key: device
-- watermark: event_time 1 minute
-- backfill: earliest
-- partitions: 1
SELECT window.start AS window_start, r.device, d.site, count(*) AS n, max(value) AS top
FROM readings r JOIN sites d ON r.device = d.device
WHERE metric = 'temperature'
GROUP BY window(event_time, '1 minute'), r.device, d.site
"""


def test_a_window_joined_with_a_table_drops_and_counts_late_rows_and_is_rewound(scene: Scene) -> None:
    #  12:00      12:01      12:02      12:03      12:04
    #  | 1 2      | 3        |          | 4 (watermark 12:02:30: the first two windows close)
    #  ^ 5 is late
    noon = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)

    def at(seconds: float) -> datetime:
        return noon + timedelta(seconds=seconds)

    write_deltalake(f"{scene.lander.root}/sites", pa.table({"device": ["d1"], "site": ["north"]}))
    with pytest.raises(ConfigError, match="watermark: event_time 2 minutes"):
        scene.apply("by_minute", WINDOWS.replace("-- watermark: event_time 1 minute\n", ""))
    with pytest.raises(ConfigError, match="late=correct"):
        scene.apply("by_minute", "-- late: correct\n" + WINDOWS)
    assert scene.apply("by_minute", WINDOWS)["changed"]
    for seconds, value in ((5, 1.0), (20, 2.0), (70, 3.0), (210, 4.0)):
        scene.send("d1", "temperature", at=at(seconds), value=value)
    scene.until(lambda: len(scene.rows("by_minute")) == 2, "two windows")
    found = {row["window_start"]: (row["site"], row["n"], row["top"]) for row in scene.rows("by_minute")}
    assert found == {at(0): ("north", 2, 2.0), at(60): ("north", 1, 3.0)}
    assert scene.metric("late_rows_total", "by_minute") == 0
    scene.send("d1", "temperature", at=at(30), value=9.0)
    scene.until(lambda: scene.metric("late_rows_total", "by_minute"), "the late row")
    _, told = read_status(scene.lander.root)
    assert told["by_minute"]["late"] == 1

    # The static table is read anew in each batch, and what is remembered outlives a restart and a crash.
    write_deltalake(f"{scene.lander.root}/sites", pa.table({"device": ["d2"], "site": ["south"]}), mode="append")
    scene.send("d2", "temperature", at=at(215), value=5.0)
    scene.until_read("by_minute")
    scene.streams.close()
    scene.forget_commit("by_minute")
    scene.streams = StreamSupervisor(scene.writer)
    scene.send("d1", "temperature", at=at(400), value=6.0)
    scene.until(lambda: len(scene.rows("by_minute")) == 4, "the windows after a crash")
    found = {(row["window_start"], row["device"]): (row["site"], row["n"]) for row in scene.rows("by_minute")}
    assert found[at(180), "d2"] == ("south", 1)
    assert found[at(180), "d1"] == ("north", 1)

    def once(*starts: float) -> bool:
        """These windows are there, and each of them once in the table and in the topic."""
        stored = [(row["window_start"], row["device"]) for row in scene.rows("by_minute")]
        sent = [(value["window_start"], value["device"]) for _, value, _ in scene.records("by_minute")]
        assert len(stored) == len(set(stored))
        assert len(sent) == len(set(sent))
        wanted = {at(seconds) for seconds in starts}
        return wanted <= {begin for begin, _ in stored} & {datetime.fromisoformat(begin) for begin, _ in sent}

    # Windows that are still open would be lost by a swap. What closes while the stream is down, the swap sends.
    scene.until_read("by_minute")
    scene.streams.close()
    for seconds in (500, 700):
        scene.send("d1", "temperature", at=at(seconds), value=8.0)
    with pytest.raises(TidegateError, match=r"has not yet written all windows .* The newest possible --since is"):
        scene.ask("rewind", "by_minute", text=WINDOWS, since=at(600).isoformat())
    scene.ask("rewind", "by_minute", text=WINDOWS, since=at(180).isoformat())
    assert scene.ask("swap", "by_minute")["swapped"]
    scene.streams = StreamSupervisor(scene.writer)
    scene.send("d1", "temperature", at=at(900), value=8.0)
    scene.until(lambda: once(0, 60, 180, 360, 480, 660), "the windows of before the swap and after it")

    # What the live stream closes between a rewind and its swap is not sent again by the one that takes over.
    scene.ask("rewind", "by_minute", text=WINDOWS, since=at(180).isoformat())
    scene.send("d1", "temperature", at=at(1100), value=8.0)
    scene.until(lambda: once(900), "the window of after the rewind")
    assert scene.ask("swap", "by_minute")["swapped"]
    scene.send("d1", "temperature", at=at(1300), value=8.0)
    scene.until(lambda: once(900, 1080), "the windows of after the second swap")

    # Another window length can't go on from this state: it is refused, and rebuilt beside the live table.
    longer = WINDOWS.replace("'1 minute')", "'2 minutes')")
    planned = scene.ask("plan", "by_minute", text=longer)
    assert planned["checkpoint"] == "rewind"
    assert planned["state"]
    with pytest.raises(ConfigError, match="streams rewind by_minute"):
        scene.apply("by_minute", longer)
    scene.until_read("by_minute")
    told = scene.ask("rewind", "by_minute", text=longer, since=at(60).isoformat())
    assert told["diff"]["only_shadow"] > 0
    assert scene.ask("swap", "by_minute")["swapped"]
    found = {(row["window_start"], row["device"]): row["n"] for row in scene.rows("by_minute")}
    assert found[at(0), "d1"] == 2, "rows from before the rewind stay as they were"
    assert found[at(120), "d1"] == 1
    assert (at(60), "d1") not in found
    scene.send("d1", "temperature", at=at(1700), value=7.0)
    scene.until(lambda: len(scene.rows("by_minute")) == len(found) + 1, "the swapped stream to go on")
    assert scene.ask("drop", "by_minute")["dropped"]


def test_one_failing_stream_stops_no_other_and_says_why(scene: Scene) -> None:
    sound = "-- sink: table\n-- backfill: earliest\nSELECT device, value FROM readings"
    with pytest.raises(ConfigError, match=r"occupies 2 of 2 cores all the time.* local\[4\]"):
        scene.apply("hot", "-- sink: topic\n-- key: device\n-- trigger: realtime\nSELECT device, value FROM readings")
    scene.apply("sound", sound)
    scene.apply("broken", sound.replace("value", "double(raise_error(device)) AS value"))
    scene.send("d1", "temperature", value=1.0)
    scene.until(lambda: read_status(scene.lander.root)[1]["broken"]["state"] == "failed", "the failure")
    scene.until(lambda: scene.rows("sound"), "the sound one")
    _, told = read_status(scene.lander.root)
    assert told["sound"]["state"] == "running"
    assert "d1" in told["broken"]["detail"]
    assert scene.metric("errors_total", "broken") == 1
    # Without its checkpoint a stream that remembers nothing goes on from what its table says.
    scene.until_read("sound")
    scene.streams.close()
    for path in Path(checkpoint_path(scene.writer.settings.checkpoint, "sound")).iterdir():
        shutil.rmtree(path)
    scene.streams = StreamSupervisor(scene.writer)
    scene.send("d2", "temperature", value=2.0)
    scene.until(lambda: len(scene.rows("sound")) > 1, "the row after the checkpoint was lost")
    assert sorted(row["device"] for row in scene.rows("sound")) == ["d1", "d2"]
    # What mends it starts it again.
    scene.apply("broken", sound.replace("value", "value * 2 AS value"))
    scene.until(lambda: len(scene.rows("broken")) == 2, "the mended one")


def test_golden_data_of_the_shipped_examples_and_the_rows_that_differ(lake: Any, tmp_path: Path) -> None:
    from streaming.sql.golden import read_golden, run_golden
    from streaming.sql.stream_folder import list_streams

    window = WINDOWS.replace("window.start AS window_start", "window.start AS at")
    (tmp_path / "by_minute.sql").write_text(window)
    lines = [
        {"in": "sites", "row": {"device": "d1", "site": "north"}},
        {"in": "readings", "row": {"metric": "temperature", "value": 1.5, "event_time": "2026-05-01T12:00:05Z"}},
        {"in": "readings", "row": {"metric": "temperature", "value": 2.5, "event_time": "2026-05-01T12:00:20Z"}},
        {"out": {"at": "2026-05-01T12:00:00Z", "device": "d1", "site": "north", "n": 2, "top": 2.5}},
        {"out": {"at": "2026-05-01T12:01:00Z", "device": "d1", "site": "north", "n": 1, "top": 2.5}},
    ]
    streams = list_streams(tmp_path)
    for name in ("events_in_country", "events_in_city"):
        golden = read_golden(streams[name].golden or [], name)
        assert run_golden(lake.spark, name, golden, streams, name).same
    compared = run_golden(lake.spark, "by_minute", read_golden(map(json.dumps, lines), "g"), streams, "g")
    assert (compared.rows, compared.unexpected) == (1, [])
    assert [json.loads(row)["at"] for row in compared.missing] == ["2026-05-01T12:01:00.000000Z"]
    with pytest.raises(ConfigError, match="readings has no column 'tempo'"):
        run_golden(lake.spark, "by_minute", read_golden(['{"in": "readings", "row": {"tempo": 1}}'], "g"), streams, "g")
