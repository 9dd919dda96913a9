# ruff: noqa: E501 - scripts are read by line
"""Dead letters on the page: counted by cause and by device, older ones page by page, and each one whole."""

from collections.abc import Callable
from typing import Any

Stories = dict[str, Callable[..., dict[str, Any]]]
ROWS = "#letters details tbody tr"


def shown(tab: Any) -> list[str]:
    found: list[str] = tab.page.locator(ROWS).evaluate_all(
        "rows => rows.map((row) => [...row.children].slice(0, 4).map((cell) => cell.textContent.trim()).join('|'))"
    )
    return found


def test_causes_are_counted_by_reason_and_a_click_tells_whose_they_are(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    letter = page_stories["letter"]
    hostile = "<img src=x onerror=alert(1)>"
    scripted_page.letters = [
        *(letter(n, device="boiler-0") for n in range(3)),
        letter(3, device="boiler-1", redriven_as="accepted"),
        letter(4, device=hostile),
        letter(5, reason="no_route", device=None, mqtt_topic="what/ever"),
    ]
    tab = open_tab()
    tab.page.wait_for_selector("[data-letter] >> nth=5")
    tab.page.click("#letters summary")
    assert shown(tab) == ["out_of_range|▸ 3 devices|5|1", "no_route|▸ 0 devices|1|0"]
    toggle = tab.page.locator("[data-cause=out_of_range]")
    assert toggle.get_attribute("aria-expanded") == "false"
    toggle.press("Enter")
    tab.wait(f"document.querySelectorAll('{ROWS}').length === 5")
    topic = "tidegate/v1/boiler-0/readings"
    assert shown(tab) == [
        "out_of_range|▾ 3 devices|5|1", f"boiler-0|{topic}|3|0", f"boiler-1|{topic}|1|1", f"{hostile}|{topic}|1|0", "no_route|▸ 0 devices|1|0",
    ]  # fmt: skip
    tab.page.click(f"{ROWS} >> button:has-text('boiler-1')")
    tab.wait("document.querySelectorAll('#letters [data-letter]').length === 1")
    assert (tab.page.input_value("#letters select"), tab.page.input_value("#letters input[name=device]")) == (
        "out_of_range",
        "boiler-1",
    )
    tab.page.locator("[data-cause=out_of_range]").click()
    tab.wait(f"document.querySelectorAll('{ROWS}').length === 1")
    tab.assert_clean()


def test_older_letters_are_one_page_further_and_the_newest_one_back(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    scripted_page.letters = [page_stories["letter"](n) for n in range(230)]
    tab = open_tab()

    def wait_for(first: int, last: int, words: str) -> None:
        ids = "[...document.querySelectorAll('#letters [data-letter]')].map((n) => n.dataset.letter)"
        tab.wait(
            f"(() => {{ const ids = {ids}; return ids[0] === '3-{1000 + first}' && ids.at(-1) === '3-{1000 + last}'; }})()"
        )
        assert tab.page.locator(f"#letters [role=status]:text-is('{words}')").is_visible()

    wait_for(0, 99, "1 to 100, newest first")
    assert tab.page.locator("text=← Newer").is_disabled()
    tab.page.check("[aria-label='Choose letter 3-1000']")
    tab.page.click("text=Older →")
    wait_for(100, 199, "101 to 200, newest first")
    assert tab.page.locator("#letters input:checked").count() == 0
    assert tab.page.locator("text=Redrive chosen …").is_disabled()
    tab.page.click("text=Older →")
    wait_for(200, 229, "201 to 230, newest first")
    assert tab.page.locator("text=Older →").is_disabled()
    tab.page.click("text=← Newer")
    wait_for(100, 199, "101 to 200, newest first")
    tab.page.click("#letters form button[type=submit]")
    wait_for(0, 99, "1 to 100, newest first")
    tab.assert_clean()


def test_a_list_that_is_whole_has_nothing_to_turn(open_tab: Any) -> None:
    tab = open_tab()
    tab.page.wait_for_selector("[data-letter]")
    assert tab.page.locator("text=Older →").is_hidden()
