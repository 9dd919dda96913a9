"""The fleet as the monitor sees it: who is heard, who is silent and who cannot be, who talks most and who is refused."""

import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from deploy.monitor.device_page import show_device
from deploy.monitor.fleet_probe import FleetProbe
from deploy.monitor.silent_devices import HealthyFlowSpans
from ingest.contract.errors import UnavailableError
from lakehouse.query import run_sql
from monitoring.alerts.catalog_devices import FIRST_REFUSALS
from monitoring.silence import SILENT_DEVICES
from tests.support.fleet import ago, device, flowed, letter, minute

HOUR, DAY = 3600.0, 86_400.0


def fleet_of(lake: Any, flow: HealthyFlowSpans | None = None) -> tuple[FleetProbe, Mapping[str, Any]]:
    probe = FleetProbe(lake.root, flow or flowed((90_000, 0)))
    return probe, probe.look()


def test_the_fleet_without_the_canary(small_lake: Any) -> None:
    small_lake.put(
        "devices",
        device("tidegate-canary", seen=1, skew=900_000),
        device("well", seen=5),
        device("slow", seen=400, interval=100.0),
        device("silent", seen=400, interval=10.0),
        device("never learned", seen=3000, interval=None),
        device("gone for days", seen=300_000, first_seen=ago(500_000)),
        device("skewed", seen=5, skew=-61_000),
    )
    probe, samples = fleet_of(small_lake)
    counts = {
        name: samples[f"tidegate_devices_{name}"][0][1] for name in ("known", "heard", "active", "silent", "skewed")
    }
    assert counts == {"known": 6, "heard": 4, "active": 5, "silent": 1, "skewed": 1}
    (silent,) = probe.devices["silent"]
    assert (silent["device"], silent["interval_s"]) == ("silent", 10.0)
    assert 400 <= silent["silent_seconds"] < 430
    assert probe.devices["skewed"] == [{"device": "skewed", "clock_skew_ms": -61_000}]


@pytest.mark.parametrize(
    ("lived", "interval", "seen", "told"),
    [
        (300, 10.0, 3000, None), (300, 10.0, 4000, True), (0, None, 4000, True), (300, 2000.0, 4000, None),
        (300, 2000.0, 11_000, True), (300, 10.0, 260_000, None), (700, 10.0, 400, True),
    ],
)  # fmt: skip
def test_a_device_that_lived_for_a_few_minutes_is_silent_after_an_hour(
    small_lake: Any, lived: float, interval: float | None, seen: float, told: bool | None
) -> None:
    small_lake.put(
        "devices",
        device("one", seen=seen, interval=interval, first_seen=ago(seen + lived)),
        device("talks", seen=1),
    )
    assert show_device(small_lake.root, "one", flowed((300_000, 0)))["is_silent"] is told
    listed = [row["device"] for row in run_sql(small_lake.root, SILENT_DEVICES).to_pylist()]
    assert listed == (["one"] if told else []), "what people query says the same"


def test_the_first_refusal_of_a_device_or_for_a_reason_is_told(small_lake: Any) -> None:
    def refused(device: str | None, reason: str, *ages: float, **more: Any) -> list[dict[str, Any]]:
        return [
            letter(n, device=device, **{"reason": reason, "received_at": ago(age), "date": ago(age).date(), **more})
            for n, age in enumerate(ages)
        ]

    small_lake.put(
        "dead_letters",
        *refused("new", "bad_json", 60),
        *refused("worse", "bad_type", 50, 40), *refused("worse", "bad_json", 50, 2 * HOUR),
        *refused("always", "bad_json", 60, 2 * HOUR, 23 * HOUR),
        *refused("again", "bad_json", 30, 30 * HOUR),
        *refused("replayed", "bad_json", 60, retain=True),
        *refused("tidegate-canary", "bad_json", 60),
        *refused(None, "no_route", 10),
    )  # fmt: skip
    probe, samples = fleet_of(small_lake)
    told = [(each["device"], each["reason"], each["messages"]) for each in probe.devices["newly_refused"]]
    assert told == [(None, "no_route", 1), ("again", "bad_json", 1), ("worse", "bad_type", 2), ("new", "bad_json", 1)]
    assert samples["tidegate_devices_newly_refused"] == [((), 4.0)]
    rows = run_sql(small_lake.root, FIRST_REFUSALS).to_pylist()
    assert {(row["device"], row["reason"]) for row in rows} >= {(name, reason) for name, reason, _ in told}


def test_values_that_are_out_of_date_are_counted_and_told_of_their_device(small_lake: Any) -> None:
    values = [("one", "t", 500), ("one", "u", 500), ("well", "t", None), ("tidegate-canary", "sent", 9)]
    small_lake.put(
        "latest",
        *({"device": d, "metric": m, "stale_since": None if since is None else ago(since)} for d, m, since in values),
    )
    small_lake.put("devices", device("one", seen=600), device("well", seen=1))
    probe, _ = fleet_of(small_lake)
    assert (probe.devices["values_known"], probe.devices["values_stale"]) == (3, 2)
    stale = show_device(small_lake.root, "one", flowed((9000, 0)))["stale_since"]
    assert stale == pytest.approx(time.time() - 500, abs=60)
    assert show_device(small_lake.root, "well", flowed((9000, 0)))["stale_since"] is None


def test_nobody_is_silent_while_the_way_to_the_tables_is_shut(small_lake: Any) -> None:
    """Stream or gateway down: who was silent before stays silent, and nobody else falls so."""
    small_lake.put("devices", device("one", seen=400), device("two", seen=403), device("really", seen=700))
    assert silent_of(small_lake, flowed((9000, 0))) == ["really", "two", "one"]
    assert silent_of(small_lake, flowed((9000, 395), flowing=False)) == ["really"]


def silent_of(lake: Any, flow: HealthyFlowSpans) -> list[str]:
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
    assert silent_of(small_lake, HealthyFlowSpans()) == []
    assert silent_of(small_lake, flowed((30, 0))) == []
    assert silent_of(small_lake, flowed((65, 0))) == ["spoke before"]


def test_the_longest_silent_are_listed_and_all_are_counted(small_lake: Any) -> None:
    small_lake.put("devices", *(device(f"d{n}", seen=1000 + n) for n in range(50)))
    probe, samples = fleet_of(small_lake)
    assert [each["device"] for each in probe.devices["silent"]] == [f"d{n}" for n in range(49, 29, -1)]
    assert samples["tidegate_devices_silent"] == [((), 50.0)]


def test_time_in_which_the_way_was_well_is_remembered_in_spans() -> None:
    flow = HealthyFlowSpans()
    for now in (*range(0, 20, 2), 40, 42):
        flow.note(float(now), flowing=now not in (10, 12))
    assert flow.spans == ((0.0, 8.0), (14.0, 42.0))
    flow.note(9000.0, True)
    flow.note(9002.0, True)
    assert flow.spans[-1] == (9000.0, 9002.0), "nobody looked: a machine that slept"
    flow.note(110.0, True)
    assert flow.spans == ((0.0, 8.0), (14.0, 42.0), (110.0, 110.0)), "the clock was set back"
    flow.note(100_000.0, False)
    assert (flow.spans[0], flow.flowing) == ((0.0, 8.0), False), "for slow devices it is longer than a day"


def test_many_outages_of_the_way_take_no_more_room_and_lose_no_time_in_which_it_was_well() -> None:
    flow = HealthyFlowSpans()
    for number in range(1000):
        flow.note(60.0 * number, flowing=True)
        flow.note(60.0 * number + 40, flowing=True)
        flow.note(60.0 * number + 50, flowing=False)
    assert len(flow.spans) == 50
    assert sum(until - since for since, until in flow.spans) == 40_000
    since = [number * 60.0 for number in (0, 500, 949, 990)]
    true = [40_000 - 40 * number for number in (0, 500, 949, 990)]
    found = duckdb.sql(f"SELECT {flow.seconds_since('seen')} FROM unnest({since}) AS t(seen)").fetchall()
    for (seconds,), most in zip(found, true, strict=True):
        assert seconds <= most, "nobody is silent too early"
    assert (found[0][0], found[3][0]) == (40_000, 400)


def test_a_site_that_has_been_dark_for_longer_than_a_day_is_still_silent(small_lake: Any) -> None:
    """From Friday evening on: its devices count until after the weekend, and slow ones for as long as their silence needs."""
    fast = [device(f"d{n}", seen=30 * HOUR, first_seen=ago(30 * DAY)) for n in range(12)]
    slow = [
        device("each six hours", seen=31 * HOUR, interval=6 * HOUR, first_seen=ago(30 * DAY)),
        device("daily", seen=40 * HOUR, interval=DAY, first_seen=ago(30 * DAY)),
    ]
    small_lake.put("devices", *fast, *slow)
    probe, samples = fleet_of(small_lake, flowed((9 * DAY, 0)))
    assert samples["tidegate_devices_heard"] == [((), 14.0)]
    assert samples["tidegate_devices_silent"] == [((), 13.0)], "all but the daily one, which is not due five times yet"
    assert probe.devices["silent"][0]["device"] == "each six hours"


@pytest.mark.parametrize(
    ("days", "flowed_days", "told"),
    [(1.25, 9, False), (4.9, 9, False), (5.1, 9, True), (19, 30, True), (21, 30, None), (6, 2, False)],
    ids=["30 h", "not yet", "five intervals", "still", "switched off", "the way was well for two days of them only"],
)
def test_a_device_that_sends_once_a_day_is_silent_after_five(
    small_lake: Any, days: float, flowed_days: float, told: bool | None
) -> None:
    daily = device("daily", seen=days * DAY, interval=DAY, first_seen=ago(90 * DAY))
    small_lake.put("devices", device("talks", seen=1), daily)
    assert show_device(small_lake.root, "daily", flowed((flowed_days * DAY, 0)))["is_silent"] is told


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
    monkeypatch.setattr("deploy.monitor.fleet_probe.time.process_time", lambda: next(spent))
    probe, first = fleet_of(small_lake)
    small_lake.put("devices", device("new", seen=1))
    assert probe.look() is first
    assert probe._not_before - time.monotonic() == pytest.approx(40, abs=5)


def test_what_sends_a_few_messages_and_leaves_is_not_silent_at_once(small_lake: Any) -> None:
    once = [device(f"once-{n}", seen=400, interval=1.0, first_seen=ago(402)) for n in range(17)]
    short = device("nine intervals", seen=3500, interval=600.0, first_seen=ago(3500 + 5400))
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
        device("never learned", seen=3000, interval=None),
        device("gone for days", seen=300_000, first_seen=ago(500_000)),
        device("sent daily", seen=6 * DAY, interval=DAY, first_seen=ago(30 * DAY)),
        device("sends daily", seen=1.25 * DAY, interval=DAY, first_seen=ago(30 * DAY)),
        device("once", seen=400, interval=1.0, first_seen=ago(402)),
    )
    assert [row["device"] for row in run_sql(small_lake.root, SILENT_DEVICES).to_pylist()] == [
        "sent daily",
        "longer",
        "silent",
    ]
    runbook = Path("monitoring/runbooks/TidegateDevicesSilent.md")
    assert SILENT_DEVICES in (Path(__file__).parents[3] / runbook).read_text()
