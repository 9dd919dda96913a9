"""What the page says at a glance: objectives that are missed now, a machine that is busy, rows against readings."""

from collections.abc import Callable
from typing import Any

import pytest

Stories = dict[str, Callable[..., dict[str, Any]]]


def said(tab: Any, words: str) -> None:
    tab.wait(f"document.querySelector('#state').textContent.includes({words!r})")


def test_a_page_that_is_ready_says_so_of_an_objective_that_is_missed(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    snapshot = page_stories["normal"]()
    scripted_page.show(snapshot)
    tab = open_tab()
    said(tab, "Ready")
    assert "objective" not in tab.page.inner_text("#state")
    snapshot["slo"]["freshness"]["burns"] = True
    scripted_page.show(snapshot)
    said(tab, "Ready, freshness below its objective")
    assert tab.page.locator("#state .badge").get_attribute("data-state") == "warn"
    assert tab.page.title().startswith("▲ Ready, freshness below its objective")
    assert tab.page.locator("#state a").get_attribute("href") == "#slo"
    snapshot["slo"]["validity"]["burns"] = True
    scripted_page.show(snapshot)
    said(tab, "Ready, freshness and validity below their objectives")
    tab.assert_clean()


def test_what_an_alert_tells_already_is_not_said_twice(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    snapshot = page_stories["normal"]()
    snapshot["slo"]["freshness"]["burns"] = snapshot["slo"]["validity"]["burns"] = True
    snapshot["alerts"].append(page_stories["alert"](name="TidegateFreshnessBudgetBurns"))
    scripted_page.show(snapshot)
    tab = open_tab()
    said(tab, "1 alert")
    assert tab.page.locator("#state > *").all_text_contents() == ["1 alert", "validity below its objective"]


def test_what_an_audit_notes_stands_below_its_figures(open_tab: Any, scripted_page: Any, page_stories: Stories) -> None:
    snapshot = page_stories["normal"]()
    snapshot["audit"] |= {"unaccounted": 2, "notes": ["<b>It</b> stands until `tidegate audit --accept`."]}
    scripted_page.show(snapshot)
    tab = open_tab()
    tab.wait("document.querySelectorAll('[data-notes=audit] p').length === 1")
    assert "<b>It</b> stands until:" in tab.page.inner_text("[data-notes=audit]")
    assert "audit --accept" in tab.page.inner_text("[data-notes=audit] .command code")
    snapshot["audit"] |= {"notes": []}
    scripted_page.show(snapshot)
    tab.wait("document.querySelectorAll('[data-notes=audit] p').length === 0")
    tab.assert_clean()


@pytest.mark.parametrize(
    ("busy", "full_days", "words"),
    [
        (0.5, 40.0, "enough capacity"),
        (0.97, 40.0, "CPU is busy"),
        (0.97, 1.0, "disk full soon"),
        (None, 40.0, "enough capacity"),
    ],
)
def test_a_machine_without_anything_left_is_no_machine_with_enough(
    open_tab: Any, scripted_page: Any, page_stories: Stories, busy: float | None, full_days: float, words: str
) -> None:
    snapshot = page_stories["normal"]()
    snapshot["host"]["cpu_minute_ratio"] = busy
    snapshot["disk"]["full_days"] = full_days
    scripted_page.show(snapshot)
    tab = open_tab()
    tab.wait(f"document.querySelector('#host .badge').textContent === '{words}'")


def test_rows_are_drawn_against_the_readings_that_they_are_made_of(open_tab: Any) -> None:
    tab = open_tab()
    tab.page.wait_for_selector("#trends canvas")
    figure = tab.page.locator("#trends figure").first
    assert figure.locator(".chart-title").inner_text() == "Readings in, rows out"
    values = "nodes => nodes.map((node) => Number(node.dataset.value))"
    tab.wait("document.querySelector('#trends figure output').dataset.value !== ''")
    assert figure.locator("output").evaluate_all(values) == [2474.9, 2470.4]
    assert tab.page.get_attribute("[data-rate=readings]", "data-value") == "2474.9"


@pytest.mark.parametrize("how", ["Enter", "click"])
def test_what_was_looked_for_is_gone_once_it_is_found(open_tab: Any, how: str) -> None:
    tab = open_tab()
    tab.page.fill("#device-search", "pump-1")
    tab.page.wait_for_selector("#search li a")
    if how == "Enter":
        tab.page.press("#device-search", "Enter")
    else:
        tab.page.click("#search li a >> nth=1")
    tab.page.wait_for_selector("#device canvas")
    tab.wait("document.querySelector('#device-search').value === ''")
    assert tab.page.locator("#search ul").is_hidden()
