# ruff: noqa: E501 - scripts are read by line
"""Dead letters on the page: counted by cause and by device, older ones page by page, and each one whole."""

import base64
import time
from collections.abc import Callable
from typing import Any

import pytest

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
    assert tab.page.locator("#letters >> text=← Newer").is_disabled()
    tab.page.check("[aria-label='Select dead letter 3-1000']")
    tab.page.click("#letters >> text=Older →")
    wait_for(100, 199, "101 to 200, newest first")
    assert tab.page.locator("#letters input:checked").count() == 0
    assert tab.page.locator("text=Redrive selected …").is_disabled()
    tab.page.click("#letters >> text=Older →")
    wait_for(200, 229, "201 to 230, newest first")
    assert tab.page.locator("#letters >> text=Older →").is_disabled()
    tab.page.click("#letters >> text=← Newer")
    wait_for(100, 199, "101 to 200, newest first")
    tab.page.click("#letters form button[type=submit]")
    wait_for(0, 99, "1 to 100, newest first")
    tab.assert_clean()


def test_a_list_that_is_whole_has_nothing_to_turn(open_tab: Any) -> None:
    tab = open_tab()
    tab.page.wait_for_selector("[data-letter]")
    assert tab.page.locator("#letters >> text=Older →").is_hidden()


def hold(tab: Any, address: str) -> list[Any]:
    """Requests for this address wait in the list."""
    held: list[Any] = []

    def keep(route: Any) -> None:
        held.append(route)

    tab.page.route(address, keep)
    return held


def test_a_late_answer_does_not_replace_a_newer_dead_letter(open_tab: Any) -> None:
    tab = open_tab()
    held = hold(tab, "**/api/dead-letter?id=3-1000")
    for number in (1000, 1001):
        tab.page.locator(f"#letters [data-letter='3-{number}']").evaluate("button => button.click()")
    newer = "#panel [aria-label='Copy command: tidegate dlq show 3-1001']"
    tab.page.wait_for_selector(newer)
    with tab.page.expect_response("**/api/dead-letter?id=3-1000"):
        held[0].continue_()
    tab.page.evaluate("fetch('/api/status').then((answer) => answer.text())")
    assert tab.page.locator(newer).count() == 1
    tab.assert_clean()


def test_a_request_that_fails_late_does_not_hide_newer_dead_letters(open_tab: Any) -> None:
    tab = open_tab()
    tab.page.wait_for_selector("#letters [data-letter]")
    held = hold(tab, "**/api/dead-letters?reason=out_of_range*")
    with tab.page.expect_request("**/api/dead-letters?reason=out_of_range*"):
        tab.page.select_option("#letters select", "out_of_range")
    with tab.page.expect_response("**/api/dead-letters?limit=*"):
        tab.page.select_option("#letters select", "")
    with tab.page.expect_response("**/api/dead-letters?reason=out_of_range*"):
        held[0].fulfill(status=200, body="no JSON")
    tab.page.evaluate("fetch('/api/status').then((answer) => answer.text())")
    assert tab.page.locator("#letters .failure").is_hidden()
    tab.assert_clean()


@pytest.fixture
def open_letter(open_tab: Any) -> Callable[..., Any]:
    """Opens the panel of a letter with these bytes."""

    def open_one(payload: bytes, *, length: int | None = None, **more: Any) -> Any:
        tab = open_tab(live=False, permissions=["clipboard-read", "clipboard-write"])
        facts = {
            "id": "3-1000", "reason": "bad_json", "device": "a", "mqtt_topic": "t", "received_at": time.time(), "partial": False,
            "source_topic": "telemetry.dead-letters", "partition": 3, "offset": 1000, "message_id": "m-7", "next": "Mend it.",
            "payload_lines": ["x"], "payload_base64": base64.b64encode(payload).decode(),
            "payload_bytes": len(payload) if length is None else length, **more,
        }  # fmt: skip
        tab.page.route("**/api/dead-letter?*", lambda route: route.fulfill(json=facts))
        tab.page.reload()
        tab.page.click("[data-letter]")
        tab.page.wait_for_selector("#panel .facts")
        return tab

    return open_one


def whole(tab: Any) -> str:
    tab.page.click("#panel summary")
    tab.page.wait_for_selector("[aria-label='Whole message']")
    found: str = tab.page.text_content("[aria-label='Whole message']")
    return found


def test_the_whole_message_is_shown_indented_and_copied_to_the_letter(open_letter: Callable[..., Any]) -> None:
    text = '{"values": {"n": 9007199254740993, "n": 1.0}, "far": [' + ", ".join(["[]"] * 100) + "]}"
    tab = open_letter(text.encode())
    facts = tab.page.inner_text("#panel .facts")
    assert "telemetry.dead-letters partition 3, offset 1000" in facts
    assert "m-7" in facts
    shown = whole(tab)
    assert shown.startswith('{\n  "values": {\n    "n": 9007199254740993,\n    "n": 1.0\n  },\n  "far": [\n    [],')
    tab.page.click("#panel button:text-is('Copy text')")
    tab.page.wait_for_selector("#panel button:text-is('Copied')")
    assert tab.page.evaluate("navigator.clipboard.readText()") == text
    tab.assert_clean()


@pytest.mark.parametrize(
    ("payload", "shown", "is_copied"),
    [
        (b"temperature=12\nnext", "temperature=12\nnext", True),
        (b"\xff\x00abc" + b"z" * 14, "00000000  ff 00 61 62 63 7a 7a 7a 7a 7a 7a 7a 7a 7a 7a 7a  ..abczzzzzzzzzzz\n00000010  7a 7a 7a", False),
        (b"<b>\x1b[31m</b>\xe2\x80\xae", "<b>\\u{1b}[31m</b>\\u{202e}", False),
        (b"[" * 4000 + b"]" * 4000, "[" * 4000 + "]" * 4000, True),
    ],
)  # fmt: skip
def test_what_is_no_json_is_shown_as_it_came(
    open_letter: Callable[..., Any], payload: bytes, shown: str, is_copied: bool
) -> None:
    """What cannot be seen is not handed to a terminal, and deep nesting does not make the page stand."""
    tab = open_letter(payload)
    assert whole(tab).startswith(shown)
    assert tab.page.locator("#panel button:text-is('Copy text')").count() == int(is_copied)
    assert tab.page.locator("#panel button:text-is('Copy as base64')").count() == 1
    tab.assert_clean()


def test_a_message_of_which_only_the_beginning_was_kept_says_so(open_letter: Callable[..., Any]) -> None:
    tab = open_letter(b"abc", length=5000)
    whole(tab)
    assert tab.page.inner_text("#panel details .note") == "Only the first 3 of 5,000 bytes are shown."


def test_got_has_the_room_beside_it_on_a_wide_page(open_tab: Any, scripted_page: Any, page_stories: Stories) -> None:
    got = "text 'this is what stood there, and it is as long as an error of a decoder is, which is longer than three hundred px'"
    scripted_page.letters = [page_stories["letter"](0, got=got)]
    tab = open_tab(width=1600)
    tab.page.wait_for_selector("#letters td.rest .name")
    place = tab.page.locator("#letters td.rest .name").bounding_box()
    assert place["width"] > 400
    fits = "(() => { const n = document.querySelector('#letters .scroll[tabindex], #letters form ~ div .scroll'); return n.scrollWidth <= n.clientWidth; })()"
    assert tab.page.evaluate(fits)
