# ruff: noqa: E501, RUF001 - scripts are read by line; the page writes minus signs as people do
"""What an operator does on the ops page: goes through it by keyboard, looks a device up, redrives dead letters with a token."""

import json
from collections.abc import Callable
from typing import Any

import pytest

Stories = dict[str, Callable[..., dict[str, Any]]]
TOKEN, READ_TOKEN = "a-token-of-tests", "a-token-of-readers"


def active(tab: Any) -> str:
    found: str = tab.page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")
    return found


def test_the_page_can_be_gone_through_by_keyboard_alone(open_tab: Any) -> None:
    tab = open_tab()
    tab.page.wait_for_selector("[data-letter]")
    tab.page.keyboard.press("Tab")
    assert active(tab) == "Skip to the figures"
    assert tab.page.locator(".skip").bounding_box()["y"] >= 0
    tab.page.keyboard.press("Enter")
    assert active(tab) == "main"
    reached, outlined = set(), []
    for _ in range(120):
        tab.page.keyboard.press("Tab")
        where = tab.page.evaluate(
            "(() => { const n = document.activeElement; n.dataset.reached = '1';"
            " return [n === document.body, n.closest('section[id]')?.id ?? '', getComputedStyle(n).outlineStyle]; })()"
        )
        if where[0]:
            break
        reached.add(where[1])
        outlined.append(where[2])
    assert reached >= {"flow", "errors", "kafka", "devices", "letters"}
    assert set(outlined) <= {"solid", "auto"}
    left = "nodes => nodes.filter((n) => n.checkVisibility() && !n.disabled && !n.dataset.reached).map((n) => n.outerHTML.slice(0, 80))"
    assert tab.page.locator("main a[href], main button, main input, main select, main summary").evaluate_all(left) == []
    tab.assert_clean()


def test_slash_finds_a_device_and_escape_goes_back(open_tab: Any) -> None:
    tab = open_tab()
    tab.page.keyboard.press("/")
    assert active(tab) == "device-search"
    tab.page.keyboard.type("pump-1")
    # Slow typing is answered for its first letters, too.
    tab.page.wait_for_selector("#search [role=status]:text-is('11 found')")
    assert tab.page.locator("#search li a").all_inner_texts() == ["pump-1", *(f"pump-1{n}" for n in range(10))]
    tab.page.keyboard.press("ArrowDown")
    tab.page.keyboard.press("ArrowDown")
    assert active(tab) == "pump-10"
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("#device canvas")
    assert tab.page.text_content("#device h2") == "Device pump-10"
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("pump-2")
    tab.page.keyboard.press("Enter")
    tab.wait("document.querySelector('#device h2')?.textContent === 'Device pump-2'")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("/x")
    tab.page.wait_for_selector("text=No device name contains this text.")
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_selector("#search ul", state="hidden")
    tab.page.go_back()
    tab.page.go_back()
    tab.page.wait_for_selector("#overview:not([hidden])")
    tab.assert_clean()


def test_enter_goes_by_the_words_that_stand_there_and_not_by_an_older_answer(open_tab: Any, scripted_page: Any) -> None:
    scripted_page.devices.append({**scripted_page.devices[0], "device": "pump-100"})
    tab = open_tab()
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("pump-1")
    tab.page.wait_for_selector("#search [role=status]:text-is('12 found')")
    tab.page.keyboard.type("00")
    tab.page.keyboard.press("Enter")
    tab.wait("document.querySelector('#device h2')?.textContent === 'Device pump-100'")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("boiler")
    tab.page.wait_for_selector("#search [role=status]:text-is('1 found')")
    # No device is found by more words of a name; another one is not meant.
    tab.page.evaluate(
        "(() => { const input = document.querySelector('#device-search'); input.value = 'boiler-9';"
        " input.form.requestSubmit(); })()"
    )
    tab.wait("document.querySelector('#device h2')?.textContent === 'Device boiler-9'")
    tab.assert_clean()


def test_what_is_found_and_the_panel_stay_within_a_phone(open_tab: Any) -> None:
    tab = open_tab(width=360, height=740)
    tab.page.fill("#device-search", "pump-1")
    tab.page.wait_for_selector("#search li a")
    place = tab.page.locator("#search ul").bounding_box()
    assert 0 <= place["x"] <= place["x"] + place["width"] <= 360
    tab.page.keyboard.press("Escape")
    tab.page.click("[data-letter]")
    tab.page.wait_for_selector("#panel mark")
    assert tab.page.locator("#panel").bounding_box() == {"x": 0, "y": 0, "width": 360, "height": 740}
    assert tab.page.evaluate("document.querySelector('#panel').matches(':modal')")
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_selector("#panel", state="hidden")
    tab.assert_clean()


def test_the_device_page_shows_plots_ledger_clock_and_letters(open_tab: Any) -> None:
    tab = open_tab("/#/device/boiler-0")
    tab.page.wait_for_selector("#device canvas >> nth=3")
    figures = tab.page.locator("[data-ledger]").evaluate_all(
        "all => all.map((n) => [n.dataset.ledger, n.dataset.value])"
    )
    assert dict(figures) == {
        "received": "8640", "stored": "8421", "dead_lettered": "207", "ignored": "12", "duplicate": "0", "gap": "4", "late": "31",
    }  # fmt: skip
    assert "Clock offset\n−120 ms" in tab.page.inner_text("#device")
    assert "not silent" in tab.page.inner_text("#device")
    assert tab.page.locator("#device [data-letter]").count() == 6
    fields = tab.page.locator("#device section[aria-label^=Fields] tbody tr")
    assert fields.locator("th").all_text_contents() == ["conn", "<img src=x onerror=window.hit=1>"]
    assert tab.page.evaluate("window.hit") is None
    first = fields.first.text_content()
    assert ("412" in first, "preset owntracks number 2" in first, "out of skip of its case 1" in first) == (True,) * 3
    assert fields.first.locator(".command code").all_inner_texts() == ["tidegate route show owntracks"]
    tab.page.click("#device [data-letter]")
    tab.page.wait_for_selector("#panel mark")
    tab.page.click("text=← All devices")
    tab.page.wait_for_selector("#panel", state="hidden")
    tab.page.wait_for_selector("#latency canvas")
    tab.assert_clean()


@pytest.mark.parametrize("known", [True, False])
def test_a_device_whose_mappings_leave_nothing_out_says_so_where_it_is_known(
    open_tab: Any, scripted_page: Any, *, known: bool
) -> None:
    scripted_page.left_out = [] if known else None
    tab = open_tab("/#/device/boiler-0")
    wanted = "No mapping on this device's routes leaves out a field." if known else "Not known yet."
    tab.page.wait_for_selector(f'#device section[aria-label^=Fields] p:text-is("{wanted}")')
    tab.assert_clean()


def test_a_reason_leads_to_its_letters(open_tab: Any, scripted_page: Any, page_stories: Stories) -> None:
    scripted_page.letters.append(page_stories["letter"](9, reason="bad_json", device=None, got="character 7"))
    scripted_page.letters[-1]["draft"] = '[[routes]]\nfilter = "a/<b>"\n'
    tab = open_tab()
    tab.page.wait_for_selector("[data-letter] >> nth=6")
    tab.page.click("#errors button:text-is('bad_json')")
    tab.wait("document.querySelectorAll('#letters [data-letter]').length === 1")
    assert tab.page.input_value("#letters select") == "bad_json"
    tab.page.click("[data-letter]")
    tab.page.wait_for_selector("#panel .payload")
    assert "unknown" in tab.page.inner_text("#panel .facts")
    assert tab.page.inner_text("#panel [aria-label='Draft route']").strip() == '[[routes]]\nfilter = "a/<b>"'
    tab.assert_clean()


def test_a_redrive_is_tried_first_and_then_done_with_the_token_of_the_address(
    open_tab: Any, scripted_page: Any
) -> None:
    scripted_page.report = {"letters": 2, "accepted": 1, "readings": 3, "partial": 0, "stored": 0, "refused": {"out_of_range": 1},
                            "examples": [{"id": "3-1001", "device": "b", "topic": "t", "ending": "refused", "reason": "out_of_range",
                                          "path": "$.v", "got": "1", "wanted": "<b>at most 0</b>"}]}  # fmt: skip
    tab = open_tab(f"/#token={TOKEN}")
    assert TOKEN not in tab.page.url
    assert_only_a_cookie_is_kept(tab)
    tab.page.check("[aria-label='Select dead letter 3-1000']")
    tab.page.check("[aria-label='Select dead letter 3-1001']")
    tab.page.click("text=Redrive 2 selected …")
    tab.page.wait_for_selector("text=Nothing was written.")
    assert scripted_page.redrives == [(["3-1000", "3-1001"], True)]
    report = tab.page.inner_text("#panel table")
    assert "accepted\t1" in report
    assert "rejected again: out_of_range\t1" in report
    assert "<b>at most 0</b>" in tab.page.text_content("#panel ul")
    tab.page.click("text=Redrive 2 dead letters now")
    tab.page.wait_for_selector("text=Done.")
    assert scripted_page.redrives[1:] == [(["3-1000", "3-1001"], False)]
    tab.wait("document.querySelector('#letters form ~ div tbody tr')?.lastChild?.textContent === 'accepted'")
    assert tab.page.locator("#letters input:checked").count() == 0
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_selector("#panel", state="hidden")
    tab.assert_clean()


def test_a_dry_run_that_accepts_nothing_offers_no_redrive(open_tab: Any, scripted_page: Any) -> None:
    scripted_page.report = {
        "letters": 1,
        "accepted": 0,
        "readings": 0,
        "partial": 0,
        "stored": 0,
        "refused": {"out_of_range": 1},
    }
    tab = open_tab(f"/#token={TOKEN}")
    tab.page.click("[data-letter]")
    tab.page.click("text=Redrive this dead letter …")
    tab.page.wait_for_selector("text=Nothing would be accepted")
    assert tab.page.locator("text=Redrive 1 dead letter now").is_disabled()


def test_without_a_token_one_is_asked_for_and_a_wrong_one_is_refused(open_tab: Any, scripted_page: Any) -> None:
    tab = open_tab()
    tab.page.click("[data-letter]")
    tab.page.click("text=Redrive this dead letter …")
    tab.page.fill("#panel input[name=token]", "wrong")
    tab.page.click("text=Use this token")
    tab.page.wait_for_selector("#panel [role=alert]")
    assert "token is missing or wrong" in tab.page.inner_text("#panel [role=alert]")
    assert scripted_page.redrives == []
    tab.page.fill("#panel input[name=token]", TOKEN)
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("text=Nothing was written.")
    assert scripted_page.redrives == [(["3-1000"], True)]
    assert_only_a_cookie_is_kept(tab)
    tab.page.reload()
    tab.page.click("[data-letter]")
    tab.page.click("text=Redrive this dead letter …")
    tab.page.wait_for_selector("text=Nothing was written.")
    assert [line for line in tab.complaints if "401" not in line] == []


def assert_only_a_cookie_is_kept(tab: Any) -> None:
    """The browser keeps a session that no script reads, and the token nowhere."""
    (cookie,) = tab.page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Strict", False)
    assert TOKEN not in cookie["value"]
    assert tab.page.evaluate("[document.cookie, sessionStorage.length, localStorage.length]")[:2] == ["", 0]


def test_a_page_that_needs_a_login_shows_nothing_before_it_and_asks_again_after_a_logout(
    open_tab: Any, scripted_page: Any
) -> None:
    scripted_page.need_login()
    tab = open_tab(live=False)
    tab.page.wait_for_selector("#login input[name=token]")
    assert not tab.page.locator("#overview").is_visible()
    tab.page.fill("#login input[name=token]", "wrong")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("#login [role=alert]")
    tab.page.fill("#login input[name=token]", READ_TOKEN)
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector('html[data-live="live"]', state="attached")
    tab.page.click("[data-letter]")
    tab.page.click("text=Redrive this dead letter …")
    tab.page.wait_for_selector("#panel input[name=token]")
    assert scripted_page.redrives == []
    tab.page.keyboard.press("Escape")
    tab.page.click("text=Log out")
    tab.page.wait_for_selector("#login input[name=token]")
    assert tab.page.context.cookies() == []
    assert [line for line in tab.complaints if "401" not in line] == []


def test_a_token_in_the_address_logs_in_and_a_new_token_logs_out(open_tab: Any, scripted_page: Any) -> None:
    scripted_page.need_login()
    tab = open_tab(f"/#token={READ_TOKEN}")
    assert READ_TOKEN not in tab.page.url
    assert_only_a_cookie_is_kept(tab)
    scripted_page.need_login("a-new-token-of-readers")
    tab.page.wait_for_selector("#login input[name=token]")
    assert [line for line in tab.complaints if "401" not in line] == []


def test_where_the_monitor_has_no_token_the_page_only_shows(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    scripted_page.show(page_stories["normal"]() | {"redrive": False})
    tab = open_tab()
    tab.page.click("[data-letter]")
    tab.page.click("text=Redrive this dead letter …")
    tab.page.wait_for_selector("text=This page is read-only")
    assert scripted_page.redrives == []
    tab.assert_clean()


@pytest.mark.parametrize(
    ("status", "body"), [(503, json.dumps({"error": "The tables cannot be read."})), (500, "<h1>oops</h1>")]
)
def test_a_question_that_fails_says_why_in_its_place(open_tab: Any, status: int, body: str) -> None:
    tab = open_tab(live=False)
    tab.page.route("**/api/dead-letters*", lambda route: route.fulfill(status=status, body=body))
    tab.page.reload()
    tab.page.wait_for_selector("#letters [role=alert]:not([hidden])")
    said = "The tables cannot be read." if status == 503 else "The monitor answered 500"
    assert said in tab.page.inner_text("#letters [role=alert]")
    tab.page.unroute("**/api/dead-letters*")
    tab.page.click("#letters form button[type=submit]")
    tab.page.wait_for_selector("[data-letter]")
    assert tab.page.locator("#letters [role=alert]").is_hidden()
