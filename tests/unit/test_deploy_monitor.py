"""What the monitor knows beside metrics: fleet, tables, parts, audit, Prometheus; and what it is asked on the page."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.local.runfile import RunFile
from deploy.monitor.answers import make_answers
from deploy.monitor.device import show_device
from deploy.monitor.fleet import FleetProbe
from deploy.monitor.flowing import FlowTime
from deploy.monitor.parts import supervised
from deploy.monitor.probes import groups_of, is_flowing
from deploy.monitor.prometheus import burning
from deploy.monitor.run import _command_line
from deploy.monitor.tables import TablesOnDisk
from deploy.monitor.targets import targets_of
from deploy.settings import Settings
from ingest.contract.errors import UnavailableError
from ingest.contract.topics import DEAD_LETTERS
from lakehouse.query import run_sql
from monitoring.alerts.catalog import ALERTS
from monitoring.history import History
from monitoring.page.answers import Answers, PageError
from monitoring.scrape import Scrape
from monitoring.settings import MonitoringSettings
from monitoring.silence import SILENT_DEVICES

NAUGHTY = json.loads((Path(__file__).parents[3] / "shared/data/naughty-strings.json").read_text("utf-8"))
HOSTILE = sorted(
    {
        text
        for text in [
            *(NAUGHTY if isinstance(NAUGHTY, list) else [each for group in NAUGHTY.values() for each in group]),
            "'; DROP TABLE devices; --", "x' OR '1'='1", "decode(unhex('27'))", "\\' OR 1=1", '"devices"', "devices ledger",
            "<script>alert(1)</script>", "</script>", "\u2028\u2029", "a\x00b", "%00", "${jndi:ldap://x}", "*/ SELECT 1 /*",
        ]
        if isinstance(text, str) and text and len(text) <= 1024
    }
)  # fmt: skip


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def device(
    name: str, *, seen: float, interval: float | None = 10.0, skew: int | None = 0, **more: Any
) -> dict[str, Any]:
    times = {"first_seen": ago(90_000), "last_seen": ago(seen)}
    return {"device": name, **times, "interval_learned_s": interval, "clock_skew_ms": skew, **more}


def minute(name: str, *, received: int, at: float = 120, settled: bool = True, **more: int) -> dict[str, Any]:
    stored = received - sum(more.get(each, 0) for each in ("dead_lettered", "ignored", "duplicate"))
    moment = ago(at).replace(second=0, microsecond=0)
    return {
        "device": name, "minute": moment, "date": moment.date(), "received": received, "stored": stored,
        "settled": settled, **more,
    }  # fmt: skip


def flowed(*spans: tuple[float, float], flowing: bool = True) -> FlowTime:
    """Spans in which all was well, in seconds ago."""
    flow = FlowTime()
    flow.spans, flow.flowing = tuple((time.time() - since, time.time() - until) for since, until in spans), flowing
    return flow


def fleet_of(lake: Any, flow: FlowTime | None = None) -> tuple[FleetProbe, Mapping[str, Any]]:
    probe = FleetProbe(lake.root, flow or flowed((90_000, 0)))
    return probe, probe.look()


def test_the_fleet_without_the_canary(small_lake: Any) -> None:
    small_lake.put(
        "devices",
        device("tidegate-canary", seen=1, skew=900_000),
        device("well", seen=5),
        device("slow", seen=400, interval=100.0),
        device("silent", seen=400, interval=10.0),
        device("never learned", seen=4000, interval=None),
        device("gone for days", seen=200_000),
        device("skewed", seen=5, skew=-61_000),
    )
    probe, samples = fleet_of(small_lake)
    counts = {
        name: samples[f"tidegate_devices_{name}"][0][1] for name in ("known", "heard", "active", "silent", "skewed")
    }
    assert counts == {"known": 6, "heard": 4, "active": 4, "silent": 1, "skewed": 1}
    (silent,) = probe.devices["silent"]
    assert (silent["device"], silent["interval_s"]) == ("silent", 10.0)
    assert 400 <= silent["silent_seconds"] < 430
    assert probe.devices["skewed"] == [{"device": "skewed", "clock_skew_ms": -61_000}]


def test_nobody_is_silent_while_the_way_to_the_tables_is_shut(small_lake: Any) -> None:
    """Stream or gateway down: who was silent before stays silent, and nobody else falls so."""
    small_lake.put("devices", device("one", seen=400), device("two", seen=403), device("really", seen=700))
    assert silent_of(small_lake, flowed((9000, 0))) == ["really", "two", "one"]
    assert silent_of(small_lake, flowed((9000, 395), flowing=False)) == ["really"]


def silent_of(lake: Any, flow: FlowTime) -> list[str]:
    return [each["device"] for each in fleet_of(lake, flow)[0].devices["silent"]]


def test_nobody_is_silent_for_the_time_of_an_outage(small_lake: Any) -> None:
    """62 minutes that ended a minute ago, and devices that send every ten minutes: a tenth of them have sent since."""
    fleet = [device(f"d{n}", seen=30 if n < 10 else 3720 + 6 * n, interval=600.0) for n in range(100)]
    gone = device("gone before", seen=3720 + 3500, interval=600.0)
    small_lake.put("devices", *fleet, gone)
    outage = flowed((90_000, 3780), (60, 0))
    assert silent_of(small_lake, outage) == ["gone before"]
    assert fleet_of(small_lake, outage)[1]["tidegate_devices_silent"] == [((), 1.0)]


def test_a_monitor_that_just_started_calls_nobody_silent_yet(small_lake: Any) -> None:
    small_lake.put("devices", device("spoke before", seen=3600, interval=10.0))
    assert silent_of(small_lake, FlowTime()) == []
    assert silent_of(small_lake, flowed((30, 0))) == []
    assert silent_of(small_lake, flowed((65, 0))) == ["spoke before"]


def test_the_longest_silent_are_listed_and_all_are_counted(small_lake: Any) -> None:
    small_lake.put("devices", *(device(f"d{n}", seen=1000 + n) for n in range(50)))
    probe, samples = fleet_of(small_lake)
    assert [each["device"] for each in probe.devices["silent"]] == [f"d{n}" for n in range(49, 29, -1)]
    assert samples["tidegate_devices_silent"] == [((), 50.0)]


def test_time_in_which_the_way_was_well_is_remembered_in_spans() -> None:
    flow = FlowTime()
    for now in (*range(0, 20, 2), 40, 42):
        flow.note(float(now), flowing=now not in (10, 12))
    assert flow.spans == ((0.0, 8.0), (14.0, 42.0))
    flow.note(9000.0, True)
    flow.note(9002.0, True)
    assert flow.spans[-1] == (9000.0, 9002.0), "nobody looked: a machine that slept"
    flow.note(110.0, True)
    assert flow.spans == ((0.0, 8.0), (14.0, 42.0), (110.0, 110.0)), "the clock was set back"
    flow.note(100_000.0, False)
    assert (flow.spans, flow.flowing) == ((), False)
    for now in range(100_000, 100_400):
        flow.note(float(now), flowing=now % 2 == 0)
    assert len(flow.spans) == 50


def test_talkers_offenders_and_outcomes_of_the_last_hour(small_lake: Any) -> None:
    small_lake.put("devices", device("b", seen=5, last_rejected_because="bad_json"))
    small_lake.put(
        "ledger",
        minute("tidegate-canary", received=999),
        minute("a", received=10, gap=2, late=1),
        minute("a", received=30, at=240),
        minute("b", received=20, dead_lettered=5, duplicate=1),
        minute("b", received=7, settled=False, late=7),
        minute("", received=3, dead_lettered=3),
        minute("old", received=500, at=7200),
    )
    probe, samples = fleet_of(small_lake)
    assert probe.devices["talkers"] == [{"device": "a", "received": 40}, {"device": "b", "received": 27}]
    assert probe.devices["offenders"] == [{"device": "b", "dead_lettered": 5, "reason": "bad_json"}]
    outcomes = {labels[0]: value for labels, value in samples["tidegate_ledger_messages"]}
    assert outcomes == {"stored": 54, "dead_lettered": 8, "ignored": 0, "duplicate": 1}
    assert samples["tidegate_ledger_gap_messages"] == [((), 2.0)]
    assert samples["tidegate_ledger_late_messages"] == [((), 1.0)]


def test_without_tables_nothing_is_known_and_nothing_fails(tmp_path: Path) -> None:
    probe, samples = fleet_of(SimpleNamespace(root=str(tmp_path / "none")))
    assert (samples, dict(probe.devices)) == ({}, {})


def test_a_table_that_cannot_be_read_is_a_fault_of_the_probe(small_lake: Any) -> None:
    log = Path(small_lake.root) / "devices" / "_delta_log" / f"{0:020d}.json"
    log.write_text("{torn")
    with pytest.raises(UnavailableError, match="devices cannot be read"):
        fleet_of(small_lake)


def test_an_expensive_look_is_followed_by_a_pause(small_lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([0.0, 2.0])
    monkeypatch.setattr("deploy.monitor.fleet.time.process_time", lambda: next(spent))
    probe, first = fleet_of(small_lake)
    small_lake.put("devices", device("new", seen=1))
    assert probe.look() is first
    assert probe._not_before - time.monotonic() == pytest.approx(40, abs=5)


@pytest.fixture
def answers(small_lake: Any, monkeypatch: pytest.MonkeyPatch) -> Answers:
    monkeypatch.setattr("ingest.state.read_state", lambda _kafka: [])
    settings = Settings.model_validate({"lake": {"root": small_lake.root}})
    return make_answers(settings, threading.Event(), flowed((90_000, 0)))


def test_hostile_device_ids_come_back_as_they_are_and_find_themselves_alone(small_lake: Any, answers: Answers) -> None:
    """All naughty strings as ids, as metrics and as topics: through SQL and JSON unchanged, and none is any other."""
    small_lake.put("devices", *(device(text, seen=10 + n) for n, text in enumerate(HOSTILE)))
    small_lake.put(
        "readings",
        *(
            {"device": text, "metric": text, "value": 1.5, "received_at": ago(10), "event_time": ago(10)}
            for text in HOSTILE
        ),
    )
    small_lake.put("ledger", *(minute(text, received=1) for text in HOSTILE))
    small_lake.put("dead_letters", *(letter(n, device=text, topic=text) for n, text in enumerate(HOSTILE)))
    for text in HOSTILE[::71]:
        found = json.loads(json.dumps(answers.device(text)))
        assert found["device"]["device"] == text
        assert [each["metric"] for each in found["metrics"]] == [text]
        assert found["ledger"]["received"] == 1
        assert [each["mqtt_topic"] for each in found["dead_letters"]] == [text]
        listed = answers.dead_letters(None, text, 10)
        assert [(each["device"], each["count"]) for each in listed["summary"]] == [(text, 1)]
        assert answers.dead_letters(text, None, 10)["letters"] == []
        assert text in {each["device"] for each in answers.devices(text, 500)["devices"]}
    probe = FleetProbe(small_lake.root, FlowTime())
    probe.look()
    assert {each["device"] for each in probe.devices["talkers"]} <= set(HOSTILE)


def letter(
    number: int, *, device: str | None = None, topic: str = "t", payload: bytes = b"x", **more: Any
) -> dict[str, Any]:
    return {
        "reason": "bad_json", "stage": "gateway", "device": device, "mqtt_topic": topic, "payload": payload,
        "received_at": ago(60), "partition": 0, "offset": number, "source_topic": DEAD_LETTERS, "partial": False,
        "payload_bytes": len(payload), "attempt": 0, "landed_at": ago(50), **more,
    }  # fmt: skip


def test_hostile_payloads_are_text_of_an_answer(small_lake: Any, answers: Answers) -> None:
    payloads = [text.encode("utf-8", "surrogatepass") for text in HOSTILE[::41]] + [b"\xff\xfe\x00\x1b[31m", b""]
    small_lake.put("dead_letters", *(letter(n, payload=payload, got="<b>") for n, payload in enumerate(payloads)))
    for number, payload in enumerate(payloads):
        found = json.loads(json.dumps(answers.dead_letter(f"0-{number}")))
        import base64

        assert base64.b64decode(found["payload_base64"]) == payload
        assert found["got"] == "<b>"
        assert all(isinstance(line, str) and line.isprintable() for line in found["payload_lines"])
        assert found["next"]
        assert isinstance(found["received_at"], float)


def test_one_device_with_its_last_readings(small_lake: Any, answers: Answers) -> None:
    rows = [
        {"device": "a", "metric": metric, "value": float(n), "unit": "Cel", "event_time": at, "received_at": at}
        for metric in ("temperature", "humidity")
        for n, at in enumerate(ago(1000 - n) for n in range(250))
    ]
    small_lake.put("devices", device("a", seen=700, skew=12, last_rejected_because="stuck", last_rejected_at=ago(800)))
    small_lake.put(
        "readings", *rows, {"device": "b", "metric": "other", "value": 1.0}, {**rows[0], "value": float("nan")}
    )
    found = answers.device("a")
    assert [each["metric"] for each in found["metrics"]] == ["humidity", "temperature"]
    for each in found["metrics"]:
        assert len(each["at"]) == len(each["value"]) == 200
        assert each["at"] == sorted(each["at"])
        assert each["value"][-1] == 249
        assert each["unit"] == "Cel"
    assert found["device"]["last_rejected_because"] == "stuck"
    assert 700 <= found["silent_seconds"] < 730
    assert found["is_silent"] is True
    nobody = answers.device("nobody")
    assert (nobody["device"], nobody["metrics"], nobody["dead_letters"]) == (None, [], [])
    assert nobody["is_silent"] is None


def test_a_device_is_silent_on_its_page_where_the_list_says_so(small_lake: Any) -> None:
    small_lake.put(
        "devices",
        device("silent", seen=400),
        device("slow", seen=400, interval=100.0),
        device("never learned", seen=400, interval=None),
        device("gone for days", seen=200_000, first_seen=ago(300_000)),
        device("came and went", seen=400, interval=1.0, first_seen=ago(402)),
    )

    def told(flow: FlowTime) -> list[bool | None]:
        names = ("silent", "slow", "never learned", "gone for days", "came and went")
        return [show_device(small_lake.root, name, flow)["is_silent"] for name in names]

    assert told(flowed((90_000, 0))) == [True, False, None, None, None]
    assert told(flowed((90_000, 395), flowing=False)) == [False, False, None, None, None]


def test_what_sends_a_few_messages_and_leaves_is_no_silent_device(small_lake: Any) -> None:
    once = [device(f"once-{n}", seen=400, interval=1.0, first_seen=ago(402)) for n in range(17)]
    short = device("nine intervals", seen=4000, interval=600.0, first_seen=ago(4000 + 5400))
    small_lake.put("devices", device("talks", seen=2), device("silent", seen=400), short, *once)
    probe, samples = fleet_of(small_lake)
    assert [each["device"] for each in probe.devices["silent"]] == ["silent"]
    assert samples["tidegate_devices_silent"] == [((), 1.0)]
    assert samples["tidegate_devices_heard"] == [((), 2.0)], "those that cannot be silent thin out nothing"


def test_the_query_for_people_finds_those_that_the_alert_counts(small_lake: Any) -> None:
    small_lake.put(
        "devices",
        device("silent", seen=400),
        device("longer", seen=900),
        device("talks", seen=2),
        device("never learned", seen=4000, interval=None),
        device("gone for days", seen=200_000, first_seen=ago(300_000)),
        device("once", seen=400, interval=1.0, first_seen=ago(402)),
    )
    assert [row["device"] for row in run_sql(small_lake.root, SILENT_DEVICES).to_pylist()] == ["longer", "silent"]
    runbook = Path("monitoring/runbooks/TidegateDevicesSilent.md")
    assert SILENT_DEVICES in (Path(__file__).parents[2] / runbook).read_text()


def test_many_metrics_and_lone_numbers_are_bounded_and_json(small_lake: Any, answers: Answers) -> None:
    values = [float("nan"), float("inf"), 1.0]
    small_lake.put("devices", device("a", seen=1))
    small_lake.put(
        "readings",
        *({"device": "a", "metric": f"m{n}", "value": v, "received_at": ago(5)} for n in range(30) for v in values),
    )
    found = answers.device("a")
    json.dumps(found, allow_nan=False)
    assert len(found["metrics"]) == 12


@pytest.mark.parametrize("wrong", ["0-1' OR true --", "", "a b", "0-1\n", "é", "x" * 301, "0-1;"])
def test_an_id_that_is_none_is_refused_before_it_is_sql(answers: Answers, wrong: str) -> None:
    with pytest.raises(PageError) as told:
        answers.dead_letter(wrong)
    assert told.value.status == 400
    with pytest.raises(PageError) as told:
        answers.redrive([wrong], True)
    assert told.value.status == 400


def test_a_letter_that_is_not_there_is_told(answers: Answers) -> None:
    with pytest.raises(PageError, match="no dead letter 0-9") as told:
        answers.dead_letter("0-9")
    assert told.value.status == 404


def test_redrives_are_made_of_the_letters_asked_for_one_at_a_time(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    running, go = threading.Event(), threading.Event()

    def run(_settings: Any, **options: Any) -> Any:
        asked.append(options)
        running.set()
        assert go.wait(30)
        return SimpleNamespace(to_dict=lambda: {"letters": 2})

    monkeypatch.setattr("deploy.dlq.run.run_redrive", run)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(answers.redrive(["0-1", "topic.x-0-2"], True)))
    thread.start()
    assert running.wait(30)
    with pytest.raises(PageError, match="Another redrive runs"):
        answers.redrive(["0-1"], False)
    go.set()
    thread.join(30)
    assert found == [{"letters": 2, "unknown": ["0-1", "topic.x-0-2"]}]
    assert asked[0]["where"] == "id IN ('0-1', 'topic.x-0-2')"
    assert (asked[0]["dry_run"], asked[0]["again"]) == (True, False)
    assert answers.redrive(["0-1"], False) == {"letters": 2, "unknown": ["0-1"]}


def test_commands_name_the_embedded_run_or_the_settings_that_are_watched(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    assert _command_line(config).where == f"--config {config}"
    RunFile("r", 1, 0.0).write(tmp_path)
    assert _command_line(config).where == f"--data {tmp_path}"
    assert _command_line(tmp_path / "mine.toml").where == f"--config {tmp_path / 'mine.toml'}"


def test_a_dry_run_over_real_tables(small_lake: Any, answers: Answers) -> None:
    named = {"gateway": "g", "gateway_epoch": 1, "message_number": 1}
    payload = b'{"values": {"t": 1}}'
    small_lake.put("dead_letters", letter(1, topic="tidegate/v1/a/readings", payload=payload, **named))
    found = answers.redrive(["0-7", "0-1", "0-8"], True)
    assert (found["letters"], found["accepted"], found["dry_run"]) == (1, 1, True)
    assert found["unknown"] == ["0-7", "0-8"], "an id that no letter has must not look like one that was judged"


def test_tables_by_the_names_of_their_logs(small_lake: Any, tmp_path: Path) -> None:
    tables = TablesOnDisk(small_lake.root)
    for version in (0, 1, 2):
        found = {each["name"]: each for each in tables.look()}
        assert found["devices"]["version"] == version
        assert found["readings"]["version"] == 0
        assert time.time() - found["devices"]["committed_at"] < 60
        small_lake.put("devices", device("a", seen=1))
    assert [each["name"] for each in TablesOnDisk(f"file://{small_lake.root}").look()] == sorted(found)
    assert TablesOnDisk(str(tmp_path / "none")).look() == []
    assert TablesOnDisk("s3://bucket/tables").look() == []


def test_a_table_that_is_dropped_or_made_anew_is_looked_at_anew(small_lake: Any) -> None:
    tables, log = TablesOnDisk(small_lake.root), Path(small_lake.root) / "devices" / "_delta_log"
    small_lake.put("devices", device("a", seen=1))
    assert {each["name"]: each["version"] for each in tables.look()}["devices"] == 1
    (log / f"{1:020d}.json").unlink()
    assert {each["name"]: each["version"] for each in tables.look()}["devices"] == 0
    shutil.rmtree(log.parent)
    assert "devices" not in {each["name"] for each in tables.look()}


def test_a_long_log_is_listed_once(small_lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = TablesOnDisk(small_lake.root)
    tables.look()
    monkeypatch.setattr("deploy.monitor.tables._newest", lambda log: pytest.fail(f"{log} was listed again"))
    small_lake.put("devices", device("a", seen=1))
    assert {each["name"]: each["version"] for each in tables.look()}["devices"] == 1


def test_the_supervisors_word_counts_while_it_is_fresh(tmp_path: Path) -> None:
    assert supervised(tmp_path) is None
    state = {"at": time.time(), "ready": True, "parts": {"kafka": {"state": "ready", "detail": ""}}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    found = supervised(tmp_path)
    assert found is not None
    assert (found.ready, found.parts["kafka"]["state"]) == (True, "ready")
    (tmp_path / "state.json").write_text(json.dumps({**state, "at": time.time() - 60}))
    assert supervised(tmp_path) is None
    for text in ("{", "[]", "null", '{"at": "x"}', json.dumps({"at": time.time(), "parts": [1]})):
        (tmp_path / "state.json").write_text(text)
        assert supervised(tmp_path) is None


def test_targets_are_the_ports_or_the_addresses_given() -> None:
    settings = MonitoringSettings(targets={"gateway": ("a:1", "http://b:2/metrics/"), "canary": ()})
    found = [(each.job, each.url, each.instance) for each in targets_of(settings)]
    assert found == [
        ("tidegate-gateway", "http://a:1/metrics", "a:1"),
        ("tidegate-gateway", "http://b:2/metrics/", "b:2"),
        ("tidegate-stream", "http://127.0.0.1:9472/metrics", None),
    ], "an empty list is a part that nobody runs, and the monitor does not ask itself"
    everywhere = MonitoringSettings(host="::")
    assert next(iter(targets_of(everywhere))).url == "http://[::1]:9471/metrics"


def test_devices_can_be_called_silent_only_while_their_messages_would_arrive() -> None:
    lag = ("tidegate_kafka_lag_seconds", (("consumergroup", "tidegate-land"), ("topic", "t")))
    connected = ("tidegate_gateway_connected", ())

    def flowing(gateway: Any, stream: Any, lag_seconds: float | None) -> bool:
        history = History([lag[0], connected[0]])
        history.add(1.0, "tidegate-gateway", gateway if gateway is None else Scrape(0, {connected: gateway}))
        history.add(1.0, "tidegate-stream", None if stream is None else Scrape(0, {}))
        history.add(1.0, "tidegate-monitor", Scrape(0, {} if lag_seconds is None else {lag: lag_seconds}))
        return is_flowing(history)

    assert flowing(1.0, True, 0.5)
    assert not flowing(0.0, True, 0.5)
    assert not flowing(None, True, 0.5)
    assert not flowing(1.0, None, 0.5)
    assert not flowing(1.0, True, 60)
    assert not flowing(1.0, True, None)


def test_prometheus_is_asked_for_what_no_built_in_check_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    burn = next(alert for alert in ALERTS if not alert.builtin and "Budget" in alert.name)
    built_in = next(alert for alert in ALERTS if alert.builtin)

    def told(name: str, **more: Any) -> dict[str, Any]:
        return {
            "labels": {"alertname": name, "severity": "critical", "window": "1h"}, "state": "firing", "value": "1.5e+01",
            "activeAt": "2026-11-28T12:00:00.5Z", "annotations": {"description": "The budget burns.\n\nImpact"}, **more,
        }  # fmt: skip

    answer = {
        "status": "success",
        "data": {"alerts": [told(burn.name), *map(told, (built_in.name, "TidegateWatchdog", "Other"))]},
    }
    ask = burning("http://127.0.0.1:9090/", ALERTS)
    monkeypatch.setattr("deploy.monitor.prometheus.OPENER", Opener(json.dumps(answer)))
    up, found = ask()
    assert up
    assert [(each["name"], each["value"], each["labels"], each["text"]) for each in found] == [
        (burn.name, 15.0, {"window": "1h"}, "The budget burns.")
    ]
    assert found[0]["since"] == datetime(2026, 11, 28, 12, 0, 0, 500_000, tzinfo=UTC).timestamp()
    for text in (
        "",
        "[]",
        "{}",
        '{"data": null}',
        '{"data": {"alerts": [1]}}',
        '{"data": {"alerts": [{"labels": 1}]}}',
    ):
        monkeypatch.setattr("deploy.monitor.prometheus.OPENER", Opener(text))
        assert ask() == (False, [])


def test_groups_of_applied_streams_are_known_before_the_stream_tells_of_them(tmp_path: Path) -> None:
    """A monitor that starts while nothing runs the streams must see their lag all the same."""
    history = History(["tidegate_stream_sql_offsets_behind"])
    assert groups_of(history, str(tmp_path / "none")) == ["tidegate-land"]
    for name in ("hot.json", "torn.json", "status.json", ".hot.json", "cold.shadow"):
        folder = tmp_path / "_streams"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("{")
    wanted = ["tidegate-land", "tidegate-stream-hot", "tidegate-stream-torn"]
    assert groups_of(history, str(tmp_path)) == groups_of(history, f"file://{tmp_path}") == wanted
    told = {("tidegate_stream_sql_offsets_behind", (("stream", name),)): 1.0 for name in ("hot", "hot__shadow")}
    history.add(1.0, "tidegate-stream", Scrape(0, told))
    assert groups_of(history, "s3://bucket/tables") == [
        "tidegate-land", "tidegate-stream-hot", "tidegate-stream-hot__shadow",
    ]  # fmt: skip


class Opener:
    """Answers every address with one text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def open(self, _url: str, timeout: float) -> Any:
        import io

        assert timeout <= 1
        return io.BytesIO(self._text.encode())


def test_no_secret_stands_in_any_answer(
    small_lake: Any, tmp_path: Path, make_page_stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings full of secrets: neither a snapshot nor any answer, refusal or metric holds one of them."""
    from deploy.monitor.run import Monitor

    secrets = {name: f"S3CR3T-{name}" for name in ("mqtt", "kafka", "page", "extra")}
    (tmp_path / "token").write_text(secrets["page"])
    settings = Settings.model_validate(
        {
            "mqtt": {"username": "u", "password": secrets["mqtt"], "port": 1},
            "kafka": {
                "bootstrap_servers": "127.0.0.1:1", "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_username": "u", "sasl_password": secrets["kafka"], "extra": {"client.rack": secrets["extra"]},
            },
            "lake": {"root": small_lake.root},
            "monitoring": {"page_token_file": str(tmp_path / "token"), "page_port": 0},
        }
    )  # fmt: skip
    monitor = Monitor(settings, tmp_path / "config.toml", threading.Event())
    monitor.look.turn()
    monkeypatch.setattr("ingest.state.read_state", lambda _kafka: [])
    stage = make_page_stage(
        page_token_file=str(tmp_path / "token"),
        answers=_as_mapping(make_answers(settings, threading.Event(), FlowTime())),
    )
    snapshot = monitor._board.encoded or b""
    assert b'"redrive":true' in snapshot
    told = [snapshot]
    for target in (
        "/api/device?device=x",
        "/api/devices",
        "/api/dead-letters",
        "/api/dead-letter?id=0-1",
        "/metrics",
        "/nowhere",
    ):
        told.append(stage.ask(target).body)
    for given in ("x", secrets["page"]):
        body = [b'{"ids": ["0-1"], "dry_run": false}' if given == "x" else b'{"ids": ["0-1"], "dry_run": true}']
        told.append(
            stage.ask("/api/redrive", method="POST", headers=[("authorization", f"Bearer {given}")], chunks=body).body
        )
    for text in secrets.values():
        assert not [answer for answer in told if text.encode() in answer]


def _as_mapping(answers: Answers) -> dict[str, Any]:
    return {name: getattr(answers, name) for name in ("device", "devices", "dead_letters", "dead_letter", "redrive")}
