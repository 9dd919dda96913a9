"""The page as a person sees it, in Chromium, on the whole pipeline: its figures are the metrics', a killed Kafka turns it red."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from monitoring.scrape import scrape

pytestmark = pytest.mark.promise("P8")

RED_SECONDS = 10.0
ERRORS = (
    "all => Object.fromEntries(all.map((row) => [row.children[0].textContent, Number(row.children[2].dataset.value)]))"
)


@pytest.fixture(scope="module")
def tab(pipeline: Any, chromium: Any) -> Iterator[Any]:
    """The page, live; what the browser complains about is in `tab.complaints`."""
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    page.complaints = []
    page.on("console", lambda line: line.type == "error" and page.complaints.append(line.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(pipeline.url("page", ""))
    page.wait_for_selector('html[data-live="live"]', state="attached", timeout=60_000)
    yield page
    page.close()


def refused(pipeline: Any) -> dict[str, float]:
    """Messages refused so far, by reason, as the gateway itself counts them."""
    found = scrape(pipeline.url("gateway"), timeout_seconds=10)
    counts = found.by_label("tidegate_gateway_messages_rejected_total", "reason") if found else {}
    return {reason: count for reason, count in counts.items() if count}


def test_figures_on_the_page_are_those_of_the_metrics(pipeline: Any, tab: Any, wait_until: Callable[..., Any]) -> None:
    wait_until(pipeline.ready, seconds=300, what="the run being ready")
    before = wait_until(lambda: refused(pipeline), seconds=120, what="a refusal")

    def shown() -> Any:
        rows = tab.locator("#errors tbody tr").evaluate_all(ERRORS)
        return rows if all(rows.get(reason, 0.0) >= count for reason, count in before.items()) else None

    rows = wait_until(shown, seconds=60, what="the page counting as far")
    after = refused(pipeline)
    assert {reason: count for reason, count in rows.items() if count > after.get(reason, 0.0)} == {}
    wait_until(
        lambda: tab.get_attribute("#latency .quantiles dd", "data-value"), seconds=120, what="the canary's latency"
    )
    assert tab.complaints == []


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.chaos)])
def test_a_killed_kafka_is_red_in_the_browser_within_seconds_and_heals(
    pipeline: Any, tab: Any, wait_until: Callable[..., Any], kills: int
) -> None:
    def seconds_to_red() -> float:
        wait_until(pipeline.ready, seconds=300, what="the run being ready")
        tab.wait_for_selector('[data-hop="kafka"] .badge[data-state="ok"]', timeout=180_000)
        os.kill(pipeline.run.parts["kafka"], signal.SIGKILL)
        killed_at = time.monotonic()
        tab.wait_for_selector('[data-hop="kafka"] .badge[data-state="bad"]', timeout=60_000)
        took = time.monotonic() - killed_at
        assert "Ready" not in tab.inner_text("#state")
        tab.wait_for_selector('[data-hop="kafka"] .badge[data-state="ok"]', timeout=180_000)
        return took

    took = [seconds_to_red() for _ in range(kills)]
    assert max(took) < RED_SECONDS, took
    wait_until(pipeline.ready, seconds=300, what="the run being ready again")
    assert tab.get_attribute("html", "data-live") == "live"
    assert tab.complaints == []
