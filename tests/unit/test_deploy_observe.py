"""Rates, latency and alerts from two looks at the exporters."""

from deploy.local.observe import alerts_of, lag_of, latency_ms, rates
from monitoring.scrape import Scrape

RECEIVED = "tidegate_gateway_messages_received_total"
LATENCY = "tidegate_end_to_end_latency_seconds"
PLENTY = 10 * 1024**3


def look(at: float, **totals: float) -> Scrape:
    return Scrape(at, {(name, ()): value for name, value in totals.items()})


def canary(at: float, counts: dict[str, float]) -> Scrape:
    buckets = {(f"{LATENCY}_bucket", (("le", bound),)): count for bound, count in counts.items()}
    return Scrape(at, {**buckets, (f"{LATENCY}_count", ()): counts["+Inf"]})


def test_rates_are_per_second_and_never_negative_after_a_restart() -> None:
    before, now = {"gateway": look(10.0, **{RECEIVED: 100})}, {"gateway": look(14.0, **{RECEIVED: 180})}
    assert rates(now, before)["received"] == 20.0
    assert rates({"gateway": look(14.0, **{RECEIVED: 5})}, before)["received"] == 0.0
    assert rates({}, before)["received"] == 0.0


def test_latency_is_of_the_window_and_none_before_the_first_reading() -> None:
    before = {"canary": canary(0.0, {"0.5": 100, "1.0": 100, "+Inf": 100})}
    now = {"canary": canary(9.0, {"0.5": 100, "1.0": 110, "+Inf": 110})}
    assert latency_ms(now, before) == {"p50": 750, "p95": 975, "p99": 995}
    assert latency_ms(now, now)["p50"] == 275
    assert latency_ms({}, {}) == {"p50": None, "p95": None, "p99": None}


def test_lag_is_per_topic() -> None:
    name = "tidegate_stream_offsets_behind"
    stream = Scrape(0.0, {(name, (("query", "land"), ("topic", "telemetry.readings"))): 7.0})
    assert lag_of({"stream": stream}) == {"telemetry.readings": 7.0}
    assert lag_of({}) == {}


def test_alerts_name_the_part_and_the_next_step() -> None:
    parts = {"kafka": {"state": "restarting", "detail": "killed by SIGKILL; starts again in 1 s"}}
    down = {"gateway": look(1.0, tidegate_gateway_connected=0.0, tidegate_gateway_sessions_lost_total=2.0)}
    texts = [alert["text"] for alert in alerts_of(parts, down, disk_free_bytes=5 * 1024**2)]
    assert any("tidegate logs kafka" in text for text in texts)
    assert any("No MQTT session" in text for text in texts)
    assert any("forgot the gateway's session (2 times)" in text for text in texts)
    assert any("5 MB of disk" in text for text in texts)
    fine = {"gateway": look(1.0, tidegate_gateway_connected=1.0, tidegate_gateway_sessions_lost_total=0.0)}
    assert alerts_of({"kafka": {"state": "ready", "detail": ""}}, fine, disk_free_bytes=PLENTY) == []


def test_a_part_that_was_ready_and_is_not_now_is_an_alert() -> None:
    parts = {
        "gateway": {"state": "starting", "detail": "waiting for Kafka", "seconds": 3.0},
        "stream": {"state": "starting", "detail": "starting Spark", "seconds": None},
        "topics": {"state": "failed", "detail": "ended with exit code 78", "seconds": None},
        "fleet": {"state": "stopping", "detail": "", "seconds": 1.0},
        "broker": {"state": "ready", "detail": "", "seconds": 1.0},
    }
    found = {alert["part"]: alert["text"] for alert in alerts_of(parts, {}, disk_free_bytes=PLENTY)}
    assert set(found) == {"gateway", "topics"}
    assert found["gateway"] == "gateway: waiting for Kafka. See `tidegate logs gateway`."
