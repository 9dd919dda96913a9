"""The status in a terminal: 80 columns, nothing that steers it, the next step last."""

from types import SimpleNamespace
from typing import Any

import pytest

from deploy.local import status_text
from deploy.local.status_text import render_status, render_waterfall
from deploy.local.text_format import format_span, format_time_left

NOW = 1_800_000_000.0

ALERT = {
    "name": "TidegateKafkaUnreachable", "severity": "critical", "state": "firing", "part": "kafka",
    "text": "Kafka does not answer the monitor, so the gateway holds what devices send and takes no more when it is full.",
    "actions": ["Look whether it lives: `tidegate status`", "Restart it."], "runbook": "/runbooks/TidegateKafkaUnreachable",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_text, "time", SimpleNamespace(time=lambda: NOW))


def part(state: str, detail: str = "", *, age: float = 1.0, restarts: int = 0) -> dict[str, Any]:
    return {"state": state, "since": NOW - age, "detail": detail, "restarts": restarts}


def status(**changes: Any) -> dict[str, Any]:
    hops = {"device_to_gateway": 3, "gateway_to_kafka": 7, "kafka_to_read": 250, "read_to_commit": 160}
    return {
        "ready": True,
        "page": "http://127.0.0.1:9470/",
        "parts": {"broker": part("ready", "on 127.0.0.1:1883"), "kafka": part("ready", age=200)},
        "rates": {"received": 0.0, "accepted": 3.5, "dead_lettered": 0.2, "acknowledged": 1234.5, "rows": 12345.67},
        "latency_ms": {"p50": 420, "p95": 800, "p99": None},
        "hops": [{"hop": hop, "p50": p50, "p95": p50 * 2, "p99": None} for hop, p50 in hops.items()],
        "lag": {"telemetry.readings": 1200, "telemetry.dead-letters": 0},
        "lag_seconds": {"telemetry.readings": 59.0, "telemetry.dead-letters": 0},
        "time_to_data_loss_seconds": {"telemetry.readings": 93_600.0, "telemetry.dead-letters": None},
        "slo": {
            "freshness": {"objective": 0.99, "good_ratio": 0.9987, "budget_left": 0.87, "window_seconds": 3600},
            "validity": {"objective": 0.98, "good_ratio": None, "budget_left": None, "window_seconds": 3600},
        },
        "canary": {"oldest_wait_seconds": 0.4},
        "devices": {"known": 2000, "active": 19, "silent": []},
        "errors": [{"reason": "missing_field", "total": 12, "per_second": 0.1}],
        "audit": {"at": NOW - 400, "messages": 12034, "unaccounted": 0, "duplicate_rows": 0, "order_violations": 0},
        "alerts": [],
        **changes,
    }  # fmt: skip


def test_it_says_what_the_page_says() -> None:
    text = render_status(status())
    assert text.startswith("Ready.  Page http://127.0.0.1:9470/\n")
    for words in (
        "kafka        ready        3 min",
        "Rates      received 0/s  accepted 3.5/s  dead lettered 0.2/s",
        "           acknowledged 1,234/s  rows 12,346/s",
        "Latency    p50 420 ms  p95 800 ms  (canary: publish to row)",
        "Lag        telemetry.readings 1,200, oldest 59 s old, Kafka drops it in 26 h",
        "SLO        freshness 99.87 % of 60 min (wanted 99 %, 87 % of the budget left)",
        "validity not known yet (wanted 98 %)",
        "Devices    2,000 known, 19 active, none silent",
        "Rejected   missing_field 12 (now 0.1/s)",
        "Audit      12,034 messages 7 min ago: balanced",
    ):
        assert words in text
    assert text.endswith("Nothing to do.")
    assert "\x1b" not in text
    assert "\x1b[32m" in render_status(status(), colour=True)


def test_a_latency_past_the_last_bound_is_only_known_to_be() -> None:
    hops = [{"hop": "kafka_to_read", "p50": 60_000.0, "p95": 60_000.0, "p99": 60_000.0}]
    text = render_status(status(latency_ms={"p50": 59_000.0, "p95": 60_000.0, "p99": 60_000.0}, hops=hops))
    assert "p50 59,000 ms  p95 > 60 s  p99 > 60 s" in text
    assert " >60000 >60000 ms" in text


def test_an_audit_of_no_message_proves_nothing() -> None:
    audit = {"at": NOW - 20, "messages": 0, "unaccounted": 0, "duplicate_rows": 0, "order_violations": 0}
    text = render_status(status(audit=audit))
    assert "Audit      nothing to prove yet: no message in its window, 20 s" in text
    assert "balanced" not in text
    assert "NOT balanced, 2 stored twice" in render_status(status(audit={**audit, "duplicate_rows": 2}))


def test_commands_can_be_run_as_they_stand() -> None:
    own = {"part": "kafka", "text": "kafka: killed by SIGKILL. See `tidegate logs kafka`."}
    changes = {"alerts": [{**ALERT, "since": NOW}, own], "command": {"name": "./tidegate", "where": "--data /d"}}
    text = render_status(status(**changes))
    assert "! kafka: killed by SIGKILL. See `./tidegate logs kafka --data /d`." in text
    assert "  1. Look whether it lives: `./tidegate status --data /d`" in text
    late = {"ready": False, "parts": {"stream": part("starting")}, "pid": 7}
    last = render_status(status(**{**changes, **late, "alerts": []})).split("\n\n")[-1]
    assert " ".join(last.split()) == "Next: `./tidegate logs stream --data /d` says what stream is doing."


@pytest.mark.parametrize(("p50", "begins"), [(420.0, "           "), (None, "Latency    ")])
def test_a_reading_that_does_not_come_back_is_said_beside_those_that_did(p50: float | None, begins: str) -> None:
    latency = {"p50": p50, "p95": p50, "p99": p50}
    assert "waits" not in render_status(status(latency_ms=latency))
    text = render_status(status(latency_ms=latency, canary={"oldest_wait_seconds": 80.2}))
    assert f"\n{begins}the oldest reading not read back has waited 80 s\n" in text


def test_a_rate_of_nothing_is_said_while_something_comes_in() -> None:
    rates = {"received": 20.0, "accepted": 0.0, "acknowledged": 0.0, "rows": None}
    assert "Rates      received 20/s  accepted 0/s  acknowledged 0/s\n" in render_status(status(rates=rates))
    assert "Rates      received 0/s\n" in render_status(status(rates={**rates, "received": 0.0}))


def test_silent_devices_are_counted_and_the_longest_named() -> None:
    silent = [{"device": f"d{number}", "silent_seconds": 60.0 * number} for number in range(1, 6)]
    text = render_status(status(devices={"known": 9, "active": 4, "silent": silent}))
    assert (
        "Devices    9 known, 4 active, 5 silent\n           d5 for 5 min, d4 for 4 min, d3 for 3 min, 2 more\n" in text
    )


def test_a_fleet_that_nobody_counted_yet_is_not_one_without_silence() -> None:
    text = render_status(status(devices={"known": 0, "active": 0, "silent": []}))
    assert "Devices    none counted yet\n" in text
    assert "none silent" not in text


def test_all_that_are_silent_are_counted_though_few_are_listed() -> None:
    listed = [{"device": f"d{number}", "silent_seconds": 60.0 * number} for number in range(1, 21)]
    text = render_status(status(devices={"known": 3000, "active": 40, "silent_count": 1200, "silent": listed}))
    assert "3,000 known, 40 active, 1,200 silent\n" in text
    assert "d18 for 18 min, 1,197 more\n" in text


def test_an_alert_has_its_first_action_and_its_runbook_and_the_worst_comes_first() -> None:
    pending = {**ALERT, "name": "TidegateCanaryMissing", "state": "pending", "since": NOW}
    firing = {**ALERT, "since": NOW - 40}
    own = {"part": "kafka", "text": "kafka: killed by SIGKILL. See `tidegate logs kafka`."}
    lines = render_status(status(alerts=[pending, firing, own])).splitlines()
    told = lines[lines.index("! kafka: killed by SIGKILL. See `tidegate logs kafka`.") :]
    assert told[1] == "firing TidegateKafkaUnreachable (critical, 40 s)"
    assert "  1. Look whether it lives: `tidegate status`" in told
    assert "  http://127.0.0.1:9470/runbooks/TidegateKafkaUnreachable" in told
    assert told[-1] == "Next: step 1 of TidegateKafkaUnreachable above; all steps are in its runbook."
    assert not any("Restart it." in line for line in told)


def test_a_part_that_is_late_is_what_to_look_at_next() -> None:
    late = {"ready": False, "parts": {"stream": part("starting", "starting Spark", restarts=3)}}
    text = render_status(status(**late, pid=7))
    assert "starting Spark (3 restarts)" in text
    assert text.startswith("Not ready.")
    assert text.endswith("Next: `tidegate logs stream` says what stream is doing.")
    elsewhere = render_status(status(**late)).splitlines()[-1]
    assert elsewhere == "Next: the log of stream (journalctl, docker logs) says what stream is doing."


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lag_seconds": {"a": None, "b": 61.0}}, "Next: b is 61 s behind. Run `tidegate status --watch`"),
        ({"lag_seconds": {"b": 61.0}, "alerts": [{"part": "broker", "text": "Old."}]}, "Next: b is 61 s behind."),
        (
            {"slo": {"freshness": {"objective": 0.99, "good_ratio": 0.5, "budget_left": 0.0, "window_seconds": 60}}},
            "Next: look again in some minutes; freshness was below its objective in the first 60 s.",
        ),
        (
            {"slo": {"freshness": {"objective": 0.99, "good_ratio": 0.5, "budget_left": 0.0, "window_seconds": 3600}}},
            "Next: freshness has no budget left. `tidegate alerts explain FreshnessBudgetBurns`",
        ),
        ({"ready": False, "parts": {}}, "Next: look again"),
        ({"parts": {"kafka": part("unknown")}}, "Next: the log of kafka"),
    ],
)
def test_there_is_something_to_do_while_something_is_not_well(changes: dict[str, Any], words: str) -> None:
    lines = render_status(status(**changes)).splitlines()
    assert "Nothing to do." not in lines
    assert words in " ".join(line.strip() for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_an_audit_that_does_not_balance_says_what_is_wrong() -> None:
    audit = {"at": NOW, "messages": 9, "unaccounted": 2, "duplicate_rows": 0, "order_violations": 1}
    assert "NOT balanced, 2 unaccounted, 1 out of order" in render_status(status(audit=audit))


@pytest.mark.parametrize("evil", ["\x1b[2J\x1b[H", "a\r\nReady.", "\u202egnirts", "\x9b31m", "x" * 5000])
def test_nothing_foreign_steers_the_terminal_or_makes_it_wide(evil: str) -> None:
    silent = [{"device": evil, "silent_seconds": 60.0}]
    alert = {**ALERT, "since": NOW, "text": f"Device {evil} is silent.", "actions": [evil]}
    parts = {"kafka": part("restarting", evil, restarts=12)}
    text = render_status(status(parts=parts, devices={"known": 1, "active": 1, "silent": silent}, alerts=[alert]))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert all(character.isprintable() or character == "\n" for character in text)


def test_each_hop_begins_where_the_one_before_it_ends() -> None:
    hops = [{"hop": "kafka_to_read", "p50": 100, "p95": None}, {"hop": "read_to_commit", "p50": 300, "p95": 400}]
    head, first, second = render_waterfall([*hops, {"hop": "commit_to_queryable", "p50": None, "p95": None}], 34 + 40)
    assert head.split() == ["p50", "p95"]
    assert first.split() == ["Kafka", ">", "read", "100", "-", "ms", "#" * 10]
    assert second == f"read > commit       300    400 ms {' ' * 10}{'#' * 30}"
    assert list(render_waterfall([], 60)) == []


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (0.42, "0.4 s"), (90, "90 s"), (720, "12 min"), (10800, "3 h"), (400_000, "5 d")]
)
def test_spans_are_in_words(seconds: float, words: str) -> None:
    assert format_span(seconds) == words


def test_what_lasts_for_ever_is_not_counted() -> None:
    assert format_time_left(float("inf")) == "more than a year"
    assert format_time_left(7200) == "2 h"


def test_in_a_low_terminal_what_needs_a_person_stands_first_and_nothing_scrolls_away() -> None:
    parts = {name: part("ready") for name in ("broker", "gateway", "stream", "canary", "monitor", "prometheus")}
    shown = status(
        parts={**parts, "kafka": part("failed", "it ended")}, ready=False, alerts=[{**ALERT, "since": NOW - 40}]
    )
    whole = render_status(shown)
    assert render_status(shown, height=whole.count("\n") + 1) == whole
    lines = render_status(shown, height=20).split("\n")
    assert len(lines) == 20
    assert lines[0].startswith("Not ready.")
    assert lines[2].startswith("firing TidegateKafkaUnreachable")
    text = "\n".join(lines)
    assert text.index("Next: ") < text.index("kafka        failed") < text.index("Well       broker, gateway")
    assert lines[-1].startswith("… ")
    left = int(lines[-1].split()[1])
    assert left > 0
    tall = render_status(shown, height=20 + left).split("\n")
    assert tall[:19] == lines[:19]
    assert len(tall) <= 20 + left
    assert "more lines" not in tall[-1]


def test_an_objective_that_is_missed_now_stands_beside_ready() -> None:
    slo = {"objective": 0.99, "good_ratio": 0.5, "budget_left": 0.2, "window_seconds": 3600}
    assert render_status(status(slo={"freshness": {**slo, "burns": True}})).startswith(
        "Ready, below its objective: freshness."
    )
    assert render_status(status(slo={"freshness": {**slo, "burns": None}})).startswith("Ready.  Page")


def test_what_an_audit_notes_is_said_with_commands_that_can_be_run() -> None:
    audit = {"at": NOW - 400, "messages": 9, "unaccounted": 2, "duplicate_rows": 0, "order_violations": 0}
    noted = status(audit={**audit, "notes": ["It stands until `tidegate audit --accept`."]})
    text = render_status({**noted, "command": {"name": "./tidegate", "where": "--data /d"}})
    assert "NOT balanced, 2 unaccounted\n           It stands until `./tidegate audit --accept --data /d`." in text


def test_reasons_that_are_not_shown_are_counted() -> None:
    errors = [{"reason": f"r{n}", "total": 1, "per_second": 0} for n in range(6)]
    assert "r3 1, 2 more reasons" in render_status(status(errors=errors))
