# ruff: noqa: E501 - scripts are read by line
"""The ops page and what devices send: names, payloads and reasons are text to the letter and never run, wherever they stand."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.naughty import NAUGHTY

OWN = [
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg/onload=window.hit=1>',
    "javascript:window.hit=1",
    "{{constructor.constructor('window.hit=1')()}}",
    "' onmouseover='window.hit=1",
    "../../api/redrive?x=1#/device/y",
    "%",
    "%zz",
    "a\u202egnp.exe",
    "pump\u200b-1",
    "\u05e9\u05dc\u05d5\u05dd-pump-\u05e2\u05d5\u05dc\u05dd-1234567890",
    "👩‍👩‍👧‍👦 family 🏳️‍🌈",
    "\u0000",
    "line\nbreak",
    "x" * 65_536,
    "\u0430\u0301" * 400,
    "\udc00 half",
    "__proto__",
    "constructor",
    "",
]
Stories = dict[str, Callable[..., dict[str, Any]]]
VISIBLE = "async (texts) => { const { visible } = await import('/assets/name.js'); return texts.map((text) => visible(text)); }"
WHOLE = """async (texts) => { const { visible } = await import('/assets/name.js');
  return texts.map((text) => (text.length <= 160 ? visible(text || "(empty)") : null)); }"""
SHOWN = "nodes => nodes.map((node) => node.textContent)"


def strings() -> list[str]:
    return OWN + NAUGHTY


def everywhere(stories: Stories, texts: list[str]) -> dict[str, Any]:
    """A snapshot in which every text that somebody else may choose is one of these."""
    snapshot = stories["normal"]()
    snapshot["devices"] |= {
        "silent": [{"device": t, "last_seen": 1.0, "silent_seconds": 9.0, "interval_s": 1.0} for t in texts],
        "talkers": [{"device": t, "received": 1} for t in texts],
        "offenders": [{"device": t, "dead_lettered": 1, "reason": t} for t in texts],
        "skewed": [{"device": t, "clock_skew_ms": 70_000.0} for t in texts],
    }
    snapshot["errors"] = [{"reason": t, "per_second": 1.0, "total": 1} for t in texts]
    group = snapshot["kafka"]["groups"][0]
    snapshot["kafka"]["groups"] = [group | {"group": t, "topic": t} for t in texts]
    snapshot["tables"] = [snapshot["tables"][0] | {"name": t} for t in texts]
    snapshot["parts"] = {t: {"state": t, "since": None, "detail": t} for t in texts}
    snapshot["prometheus"] = {"url": "javascript:window.hit=1", "up": True}
    snapshot["alerts"] = [
        stories["alert"](name=t, text=t, summary=t, impact=t, causes=[t], actions=[f"`{t}`"], labels={t: t}, runbook=t, source=t, state=t)
        for t in texts
    ]  # fmt: skip
    for box in snapshot["flow"]:
        box |= {"label": texts[0], "detail": texts[-1]}
    return snapshot


def assert_harmless(tab: Any) -> None:
    assert tab.page.evaluate("window.hit") is None
    assert tab.page.locator("img, iframe, object, embed, main script, main style, main form[action]").count() == 0
    hrefs = tab.page.locator("a[href]").evaluate_all("all => all.map((a) => a.protocol)")
    assert set(hrefs) == {"http:"}
    tab.assert_clean()


def test_no_string_runs_and_each_is_shown_to_the_letter(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    tab, texts = open_tab(), strings()
    for first in range(0, len(texts), 99):
        # One that the batch before did not have: the update is there when it is.
        batch = [*texts[first : first + 99], f"batch {first}"]
        scripted_page.letters = [
            page_stories["letter"](n, device=t, reason=t, path=t, got=t, wanted=t, mqtt_topic=t, redriven_as=t)
            for n, t in enumerate(batch)
        ]
        some = [*batch[:9], f"batch {first}"]
        scripted_page.show(everywhere(page_stories, some))
        tab.wait(f"document.querySelector('[data-list=skewed]')?.textContent?.includes('batch {first}')")
        tab.page.click("#letters form button[type=submit]")
        rows = "#letters form ~ div tbody"
        tab.wait(f"document.querySelector('{rows}')?.lastChild?.textContent?.includes('batch {first}')")
        places = (
            ("#letters form ~ div tbody td:nth-child(5)", batch),
            ("[data-list=silent] tbody th", some),
            ("#tables tbody th", some),
        )
        for place, given in places:
            wanted, shown = tab.page.evaluate(WHOLE, given), tab.page.locator(place).evaluate_all(SHOWN)
            assert [text if whole else None for text, whole in zip(shown, wanted, strict=True)] == wanted
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 1440
    assert_harmless(tab)


def test_plain_text_is_not_altered_and_what_cannot_be_seen_is_written_out(open_tab: Any) -> None:
    tab = open_tab()
    plain = ["<b>&amp;</b>", "pump-1", "שלום", "日本", "👩‍👩‍👧‍👦", "é"]
    assert tab.page.evaluate(VISIBLE, plain) == plain
    hidden = ["a\u202eb", "a\u200bb", "\u0000", "a\nb", "\ufeff", "a\u200db"]
    assert tab.page.evaluate(VISIBLE, hidden) == [
        "a\\u{202e}b", "a\\u{200b}b", "\\u{0}", "a\\u{a}b", "\\u{feff}", "a\\u{200d}b",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [360, 1440])
def test_names_of_any_length_stay_in_their_place_and_are_whole_in_the_title(
    open_tab: Any, scripted_page: Any, page_stories: Stories, width: int
) -> None:
    name = "plant/" + "x" * 65_000 + "/pump-17"
    snapshot = page_stories["alerting"]()
    snapshot["devices"]["talkers"] = [{"device": name, "received": 1}, {"device": "W" * 250, "received": 2}]
    snapshot["alerts"].append(page_stories["alert"](name="W" * 300, text="W" * 5000, labels={"W" * 900: "W" * 900}))
    snapshot["flow"][3] |= {"detail": "W" * 5000, "label": "W" * 300}
    scripted_page.show(snapshot)
    scripted_page.letters = [page_stories["letter"](0, device=name, got="W" * 9000, path="W" * 9000)]
    tab = open_tab(width=width)
    first = tab.page.locator("[data-list=talkers] tbody th .name").first
    first.wait_for()
    assert first.text_content().endswith("pump-17")
    assert len(first.text_content()) < 300
    assert first.get_attribute("title") == name
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    tab.page.click("[data-letter]")
    tab.page.wait_for_selector("#panel .payload")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.page.locator(".panel-body").evaluate("n => n.scrollWidth <= n.clientWidth")
    assert_harmless(tab)


def test_a_payload_is_text_with_the_failing_place_marked(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    scripted_page.letters = [page_stories["letter"](0, got="<img src=x onerror=window.hit=1>", wanted="</pre><script>")]
    scripted_page.payload_lines = ['👩 {"v": "<script>window.hit=1</script>"}', " " * 8 + "^" * 31]
    tab = open_tab()
    tab.page.click("[data-letter]")
    tab.page.wait_for_selector("#panel mark")
    assert tab.page.inner_text("#panel mark") == '"<script>window.hit=1</script>"'
    assert tab.page.inner_text("#panel .payload") == scripted_page.payload_lines[0]
    assert "<img src=x onerror=window.hit=1>" in tab.page.inner_text("#panel .facts")
    scripted_page.payload_lines = ["00000000  ff 00   ..", "00000010  41      A   <- here"]
    tab.page.click("text=Close")
    tab.page.click("[data-letter]")
    tab.wait("document.querySelector('#panel .payload')?.textContent.includes('<- here')")
    assert tab.page.inner_text("#panel .payload").split("\n") == scripted_page.payload_lines
    assert_harmless(tab)


def test_a_hostile_device_has_its_own_page(open_tab: Any, scripted_page: Any, page_stories: Stories) -> None:
    names = ["<img src=x onerror=window.hit=1>", "a/b?c#d%20e", "%zz", "\u05e9\u05dc\u05d5\u05dd", "it's; rm -rf /"]
    scripted_page.devices = [page_stories["device"](name, profile=name, last_rejected_because=name) for name in names]
    scripted_page.letters = [page_stories["letter"](n, device=name) for n, name in enumerate(names)]
    scripted_page.left_out = []
    snapshot = page_stories["normal"]()
    silent = [{"device": name, "last_seen": 1.0, "silent_seconds": 9.0, "interval_s": 1.0} for name in names]
    snapshot["devices"]["silent"] = silent
    snapshot["command"] = {"name": "./tidegate", "where": "--data 'my data'"}
    scripted_page.show(snapshot)
    tab = open_tab()
    for number, name in enumerate(names):
        tab.page.click(f"[data-list=silent] tbody a >> nth={number}")
        tab.page.wait_for_selector("#device .facts")
        assert tab.page.text_content("#device h2") == f"Device {name}"
        commands = tab.page.locator("#device .command code").all_text_contents()
        quoted = "'" + name.replace("'", "'\\''") + "'"
        words = [f"device watch {quoted}", f"trace --device {quoted}"]
        assert commands == [f"./tidegate {each} --data 'my data'" for each in words]
        if number % 2:
            tab.page.reload()
            tab.page.wait_for_selector("#device .facts")
            assert tab.page.text_content("#device h2") == f"Device {name}"
        tab.page.click("text=← All devices")
    assert_harmless(tab)
