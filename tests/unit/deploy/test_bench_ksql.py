"""`bench run ksql`: the events, what the derived streams must hold of them, and the figures of what came out."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from deploy.bench.kafka_load.derived import DerivedReader, DerivedRecord
from deploy.bench.load_publisher import LoadPlan
from deploy.bench.meetup import CITIES, COUNTRY, ExpectedEvent, MeetupEvents, follow_kafka, packets_of, payload_of
from deploy.bench.suite import sql_streams
from deploy.bench.suite.cell_beds import CellBed
from deploy.bench.suite.cell_kinds import run_cell
from deploy.bench.suite.derived_figures import DerivedOutput, derived_figures
from deploy.bench.suite.library import load_scenario
from deploy.bench.suite.scenario import Parameters
from deploy.bench.suite.sql_streams import full_disk, mapping_text
from deploy.settings import load_settings
from ingest.contract.errors import FatalError, RetryableError
from ingest.contract.topics import stream_topic
from ingest.kafka_settings import KafkaSettings
from streaming.sql.header import parse_definition

BEGIN = 1_800_000_000.0
SMALL = MeetupEvents(2_000, 900, "r1")
NAMES = ("events_in_country", "events_in_city")


def due_at(number: int) -> float:
    return BEGIN + number / 100


def test_the_events_have_the_papers_sizes_and_shares() -> None:
    paper = MeetupEvents(142_502, 3_158, "r1")
    country, city = list(paper.of_country()), list(paper.of_city())
    assert paper.count * paper.event_bytes == pytest.approx(450_000_000, rel=0.001)
    assert len(country) * paper.event_bytes == pytest.approx(3_840_000, rel=0.001)
    assert len(city) * paper.event_bytes == pytest.approx(545_000, rel=0.005)
    assert {one.city for one in city} == set(CITIES)
    halves = [one for one in country if one.number < paper.count // 2]
    assert abs(len(halves) - len(country) / 2) <= 1
    for number in (0, 1, country[0].number, city[-1].number, paper.count - 1):
        event = paper.payload(number, 1_669_640_400_000)
        assert len(event) == 3_158
        assert event == paper.payload(number, 1_669_640_400_000)
        told = json.loads(event)
        assert (told["event_id"], told["time"]) == (paper.event_id(number), 1_669_640_400_000)
        assert paper.number(told["event_id"]) == number


def test_the_shipped_streams_pick_exactly_the_events_that_are_expected() -> None:
    places = [SMALL.place(number) for number in range(SMALL.count)]
    assert [one.number for one in SMALL.of_country()] == [
        n for n, (country, _) in enumerate(places) if country == COUNTRY
    ]
    of_city = [n for n, (country, city) in enumerate(places) if country == COUNTRY and city in CITIES]
    assert [one.number for one in SMALL.of_city()] == of_city
    assert any(country != COUNTRY and city in CITIES for country, city in places), "a city of that name elsewhere"


def test_an_event_of_another_run_or_too_small_a_size_is_noticed() -> None:
    assert SMALL.number("r2-0000001") is None
    assert SMALL.number("tidegate-canary") is None
    with pytest.raises(ValueError, match="wanted 100"):
        MeetupEvents(10, 100, "r1").payload(0, 0)


def test_packets_are_made_when_they_are_sent_and_each_event_once() -> None:
    meetup = MeetupEvents(10, 600, "r1")
    plan = LoadPlan(
        host="", port=0, username="", password="", messages=10, rate=100, devices=10, connections=3, begin_at=BEGIN
    )
    sent = [packet for own in packets_of(plan, payload_of(meetup, plan)) for packet in own[0 : len(own)]]
    events = [json.loads(packet[packet.index(b"{") :]) for packet in sent]
    assert sorted(event["event_id"] for event in events) == [meetup.event_id(number) for number in range(10)]
    assert {event["event_id"]: event["time"] for event in events} == {
        meetup.event_id(number): int(plan.due_at(number) * 1000) for number in range(10)
    }


def test_at_no_rate_events_go_out_as_far_as_kafka_has_those_before(wait_until: Callable[..., None]) -> None:
    in_kafka, answers = [70], [True]

    def count() -> int:
        if not answers[0]:
            raise RetryableError("no leader")
        return in_kafka[0]

    with follow_kafka(count, 10) as most_sent:
        assert most_sent() == 10
        in_kafka[0] = 75
        wait_until(lambda: most_sent() == 15)
        answers[0] = False
        in_kafka[0] = 90
        assert most_sent() == 15
        answers[0] = True
        wait_until(lambda: most_sent() == 30)


def test_the_mapping_of_the_run_keeps_whole_events(tmp_path: Path) -> None:
    from gateway.devtools.decode_file import decode_lines

    file = tmp_path / "meetup.toml"
    file.write_text(mapping_text())
    settings = load_settings(file, environ={})
    number = next(SMALL.of_city()).number
    payload = SMALL.payload(number, 1_669_640_400_000).decode()
    line = json.dumps({"id": 1, "topic": "meetup/events/1", "payload": payload})
    (found,) = decode_lines([line], settings.routes, settings.gateway, received_us=1_669_640_401_000_000)
    texts = {row["metric"]: row["text"] for row in found["readings"]}
    assert set(texts) == {"event_name", "description"}
    assert texts["description"] == json.loads(payload)["description"]


def record(one: ExpectedEvent, *, batch: int, row: int, late: float = 0.2, **changes: Any) -> DerivedRecord:
    key = SMALL.event_id(one.number)
    at = datetime.fromtimestamp(int(due_at(one.number) * 1000) / 1000, UTC)
    value = {
        "device": key, "message_id": f"fm:meetup:{key}", "event": one.event, "country": COUNTRY, "city": one.city,
        "event_time": at.isoformat(), "received_at": at.isoformat(), **changes,
    }  # fmt: skip
    return DerivedRecord(key, value, 240, ("s", "i", str(batch), str(row)), due_at(one.number) + late)


def outcome(country: Sequence[DerivedRecord], city: Sequence[DerivedRecord], **more: Any) -> DerivedOutput:
    rows = {name: [one.key for one in records] for name, records in zip(NAMES, (country, city), strict=True)}
    return DerivedOutput(dict(zip(NAMES, (country, city), strict=True)), more.pop("rows", rows), due_at, **more)


def whole(late: float = 0.2) -> tuple[list[DerivedRecord], list[DerivedRecord]]:
    country = [record(one, batch=1, row=n, late=late) for n, one in enumerate(SMALL.of_country())]
    city = [record(one, batch=1, row=n, late=2 * late) for n, one in enumerate(SMALL.of_city())]
    return country, city


def test_a_whole_run_has_latencies_sizes_and_no_fault() -> None:
    country, city = whole()
    found = derived_figures(SMALL, outcome(country, city))
    assert {name: found[name] for name in ("lost", "doubled", "replayed", "wrong")} == dict.fromkeys(
        ("lost", "doubled", "replayed", "wrong"), 0
    )
    assert (found["country_mean_ms"], found["city_mean_ms"]) == (
        pytest.approx(200, abs=1.1),
        pytest.approx(400, abs=1.1),
    )
    everything = (200 * len(country) + 400 * len(city)) / (len(country) + len(city))
    assert found["mean_ms"] == pytest.approx(everything, abs=1.1)
    assert (found["gateway_ms"], found["country_step_ms"]) == (0, pytest.approx(200, abs=1.1))
    assert found["city_step_ms"] == pytest.approx(200, abs=1.1)
    assert (found["country_records"], found["city_records"]) == (len(country), len(city))
    assert found["country_megabytes"] == len(country) * 900 / 1e6
    assert found["city_topic_bytes"] == len(city) * 240
    assert "recovered_ms" not in found


def test_a_p99_of_few_records_is_left_out() -> None:
    country, city = whole()
    assert 0 < len(city) < 100
    found = derived_figures(SMALL, outcome(country, city))
    assert "city_p50_ms" in found and "city_p99_ms" not in found
    assert ("p99_ms" in found) == (len(country) + len(city) >= 100)


def test_what_is_lost_doubled_replayed_or_wrong_is_counted_in_topics_and_tables() -> None:
    country, city = whole()
    again = replace(country[0], seen_at=country[0].seen_at + 9)  # the same headers: a replay
    twice = replace(country[1], batch=("s", "i", "7", "0"), seen_at=country[1].seen_at + 9)
    other = record(next(SMALL.of_country()), batch=9, row=9, city="Nowhere")
    rows = {NAMES[0]: [one.key for one in country[1:]], NAMES[1]: [one.key for one in city] + [city[0].key]}
    found = derived_figures(SMALL, outcome([*country[:-1], again, twice, other], city, rows=rows))
    assert (found["lost"], found["doubled"], found["replayed"], found["wrong"]) == (2, 3, 1, 1)
    assert found["country_mean_ms"] == pytest.approx(200, abs=1.1), "the first sight of an event counts"
    foreign = record(ExpectedEvent(3, "x", "Bengaluru"), batch=3, row=3)
    assert derived_figures(SMALL, outcome([*country, foreign], city, rows=rows))["wrong"] == 1


def test_a_run_that_was_disturbed_says_how_long_nothing_newer_came() -> None:
    country, city = whole()
    middle = BEGIN + 10.0
    held = [replace(one, seen_at=max(one.seen_at, middle + 5)) if one.seen_at > middle else one for one in country]
    found = derived_figures(SMALL, outcome(held, city, disturbed_at=middle))
    assert found["recovered_ms"] == pytest.approx(5000, abs=1)
    # A disk takes a second to be full: what is due until then comes as always.
    late = [replace(one, seen_at=max(one.seen_at, middle + 6)) if one.seen_at > middle + 1 else one for one in country]
    found = derived_figures(SMALL, outcome(late, city, disturbed_at=middle))
    assert found["recovered_ms"] == pytest.approx(6000, abs=1)


def test_a_stream_without_a_table_loses_nothing_there() -> None:
    country, city = whole()
    found = derived_figures(SMALL, outcome(country, city[1:], rows={}))
    assert (found["lost"], found["doubled"]) == (1, 0), "of the topics alone"


def test_in_real_time_mode_the_shipped_streams_write_their_topics_alone() -> None:
    for name in NAMES:
        shipped = files("streaming.sql").joinpath("examples", f"{name}.sql").read_text("utf-8")
        told, was = (parse_definition(name, text) for text in (sql_streams.in_realtime(shipped), shipped))
        assert (told.sinks, told.trigger_seconds) == (("topic",), None)
        assert (told.body, told.key, told.backfill) == (was.body, was.key, was.backfill)


def test_nothing_at_all_is_a_fault_and_no_zero() -> None:
    with pytest.raises(FatalError, match="none of 2000 events"):
        derived_figures(SMALL, outcome([], []))
    with pytest.raises(FatalError, match='Give the target `runs = "streams"`'):
        run_cell(Parameters(kind="streams"), "t", CellBed(KafkaSettings()))


def test_what_a_stream_has_not_read_yet_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SETTLE_SECONDS", "GIVE_UP_SECONDS", "_LOOK_SECONDS"):
        monkeypatch.setattr(sql_streams, name, 0.01)
    monkeypatch.setattr(sql_streams, "_reads_all", lambda _settings, name: name == NAMES[1])
    monkeypatch.setattr(sql_streams, "_state", lambda *_: "applied")
    reader = DerivedReader({stream_topic(name): [] for name in NAMES})
    with pytest.raises(
        FatalError, match=r"events_in_country \(applied\). The missing records are therefore not proof of a loss"
    ):
        sql_streams._settle(load_settings(environ={}), reader, SMALL, followed=NAMES)


def test_a_stream_has_read_all_though_its_topic_grows() -> None:
    ends = {"a": {0: 5, 1: 0}}
    assert sql_streams.has_read({"a": {0: (5, 9), 1: (-1001, 0)}}, {"a": {0: 5}})
    assert sql_streams.has_read({"a": {0: (7, 9)}}, ends)
    assert not sql_streams.has_read({"a": {0: (4, 4)}}, ends)
    assert not sql_streams.has_read({}, ends)


def test_only_a_small_disk_is_filled_and_only_for_the_cells_that_want_it() -> None:
    _, scenario = load_scenario("ksql")
    disks = {
        (cell.workload.disturbance, cell.target.disk_mb > 0) for cell in scenario.cells() if cell.target is not None
    }
    assert disks == {("none", False), ("stream_killed", False), ("disk_full", True)}
    in_realtime = {cell.workload.disturbance for cell in scenario.cells() if cell.target and cell.target.realtime}
    assert in_realtime == {"none", "stream_killed"}, "real-time mode on a small disk is no cell"
    assert {goal.figure for goal in scenario.goals} >= {"mean_ms", "lost", "doubled", "wrong"}
    means = [goal.when for goal in scenario.goals if goal.figure == "mean_ms"]
    assert all(when["disturbance"] == "none" for when in means), "a run that is disturbed has a pause in its mean"


def test_a_run_without_a_pace_has_no_middle_to_be_disturbed_in() -> None:
    with pytest.raises(ValueError, match="wanted a rate"):
        Parameters(kind="streams", disturbance="stream_killed")


def test_a_full_disk_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self) -> None:
            self.left = 3 * 1024 * 1024 + 4096

        def write(self, block: bytes) -> None:
            if len(block) > self.left:
                raise OSError(28, "No space left on device")
            self.left -= len(block)

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *fault: object) -> None: ...

    disk = Full()
    monkeypatch.setattr(Path, "open", lambda path, *_args, **_more: path.touch() or disk)
    with full_disk(tmp_path):
        assert disk.left == 0
        assert (tmp_path / "filler").exists()
    assert not (tmp_path / "filler").exists()
