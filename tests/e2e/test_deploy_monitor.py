"""The monitor in the whole pipeline: it answers, costs little, sees a killed Kafka at once, and Prometheus agrees."""

import json
import os
import signal
import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

from deploy.local.monitor_client import page_address, page_token
from deploy.monitor.monitor_process import metrics_addresses
from monitoring.scrape import OPENER, scrape

SERIES = 2_000
SCRAPE_SECONDS = 0.2
RED_SECONDS = 10.0
SHARED = ("slo", "devices", "hops", "rates", "latency_ms")
"""Figures that the status has as the page does."""
SNAPSHOT = {
    "at", "version", "ready", "read_only", "redrive", "prometheus", "alertmanager", "parts", "flow", "kafka", "rates",
    "latency_ms", "hops", "readings_latency_ms", "clock_skew_ms", "lag", "errors", "slo", "alerts", "burn_rate_alerts",
    "canary", "devices", "tables", "disk", "host", "audit", "point",
}  # fmt: skip


def get(url: str) -> bytes:
    with OPENER.open(url, timeout=30) as answer:
        return bytes(answer.read())


def snapshot(pipeline: Any) -> Any:
    return json.loads(get(pipeline.url("page", "api/status")))


def exporters(pipeline: Any) -> dict[str, str]:
    found = {part: urls[0] for part, urls in metrics_addresses(pipeline.settings.monitoring).items()}
    return {**found, "monitor": pipeline.url("page")}


def test_the_monitor_is_a_part_and_its_page_answers(pipeline: Any, wait_until: Callable[..., Any]) -> None:
    wait_until(pipeline.ready, seconds=300, what="the run being ready")
    wait_until(lambda: pipeline.status()["parts"]["monitor"]["state"] == "ready", what="the monitor being ready")
    assert b"<html" in get(pipeline.url("page", ""))
    assert b"Mitigation" in get(pipeline.url("page", "runbooks/TidegateKafkaUnreachable"))
    # A busy machine makes one look or another late.
    told = wait_until(
        lambda: (seen := snapshot(pipeline))["ready"] is True and seen, what="a look at a run that is ready"
    )
    assert set(told) >= SNAPSHOT
    assert [station["id"] for station in told["flow"]] == ["devices", "broker", "gateway", "kafka", "stream", "tables"]
    assert set(told["parts"]) == set(pipeline.status()["parts"])


def test_status_and_page_say_the_same(pipeline: Any, wait_until: Callable[..., Any]) -> None:
    wait_until(lambda: pipeline.status()["rates"].get("received"), seconds=120, what="a rate")
    status = pipeline.status()

    def says_the_same() -> bool:
        """Between two looks a figure may become known, and an alert may end."""
        nonlocal status
        status, told = pipeline.status(), snapshot(pipeline)
        shapes = [[(type(each[name]), len(each[name])) for name in SHARED] for each in (status, told)]
        named, listed = ({one["name"] for one in each["alerts"] if "name" in one} for each in (status, told))
        return shapes[0] == shapes[1] and named <= listed

    wait_until(says_the_same, what="the same figures and alerts")
    assert status["page"] == page_address(pipeline.settings.monitoring)
    text = pipeline.tidegate("status", ok=(0, 1)).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    asked = pipeline.json("status", "--config", str(pipeline.data / "config.toml"), ok=(0, 1))
    assert set(asked["parts"]) == set(status["parts"])


def test_the_pages_token_is_in_no_answer_and_no_log(pipeline: Any) -> None:
    token = page_token(pipeline.settings.monitoring)
    assert token
    files = [*(pipeline.data / "logs").glob("*.log"), pipeline.data / "config.toml", pipeline.data / "run.json"]
    assert not [file.name for file in files if token in file.read_text("utf-8", "replace")]
    assert token.encode() not in get(pipeline.url("page", "api/status"))


def test_all_series_together_stay_few_and_each_scrape_quick(pipeline: Any, wait_until: Callable[..., Any]) -> None:
    for part, url in exporters(pipeline).items():

        def median(url: str = url) -> float:
            return statistics.median(seconds_of(url) for _ in range(5))

        # What else runs on this machine may slow five scrapes down, but not all that follow.
        assert wait_until(lambda: (took := median()) < SCRAPE_SECONDS and took, what=f"a quick scrape of {part}")
    told = {part: scrape(url, timeout_seconds=30) for part, url in exporters(pipeline).items()}
    counts = {part: len(scraped.values) for part, scraped in told.items() if scraped}
    assert set(counts) == set(exporters(pipeline))
    assert sum(counts.values()) < SERIES, counts


def seconds_of(url: str) -> float:
    began = time.perf_counter()
    get(url)
    return time.perf_counter() - began


def test_prometheus_scrapes_every_part_and_no_rule_fails(pipeline: Any, wait_until: Callable[..., Any]) -> None:
    if "prometheus" not in pipeline.run.ports:
        pytest.skip("Prometheus is not installed here (apt-get install prometheus)")

    def ask(path: str) -> Any:
        return json.loads(get(pipeline.url("prometheus", f"api/v1/{path}")))["data"]

    def all_up() -> Any:
        targets = {target["labels"]["job"]: target["health"] for target in ask("targets")["activeTargets"]}
        return targets if set(targets.values()) == {"up"} else None

    targets = wait_until(all_up, seconds=120, what="every target being up")
    wanted = {f"tidegate-{part}" for part in exporters(pipeline)}
    assert wanted <= set(targets)

    def judged() -> Any:
        rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
        return rules if all(rule["health"] != "unknown" for rule in rules) else None

    rules = wait_until(judged, seconds=120, what="every rule being evaluated")
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert {"TidegateWatchdog", "TidegateFreshnessBudgetBurns"} <= {rule["name"] for rule in rules}
    wait_until(lambda: snapshot(pipeline)["prometheus"]["up"] is True, what="the monitor seeing Prometheus")


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.chaos)])
def test_a_killed_kafka_turns_the_page_red_within_seconds_and_it_heals(
    pipeline: Any, wait_until: Callable[..., Any], kills: int
) -> None:
    def kafka() -> tuple[str, float]:
        shown = snapshot(pipeline)
        return next(str(station["state"]) for station in shown["flow"] if station["id"] == "kafka"), shown["at"]

    def red() -> float | None:
        state, at = kafka()
        return at if state == "bad" else None

    def seconds_to_red() -> float:
        wait_until(pipeline.ready, seconds=300, what="the run being ready")
        wait_until(lambda: kafka()[0] == "ok", seconds=180, what="Kafka being shown as well")
        killed_at = time.time()
        os.kill(pipeline.run.parts["kafka"], signal.SIGKILL)
        # By the monitor's clock: when it said so, not when this test asked.
        red_at = wait_until(red, what="Kafka being shown as down")
        wait_until(lambda: kafka()[0] in ("ok", "warn"), seconds=180, what="Kafka being shown as back")
        return red_at - killed_at

    took = [seconds_to_red() for _ in range(kills)]
    assert max(took) < RED_SECONDS, took
    wait_until(pipeline.ready, seconds=300, what="the run being ready again")
