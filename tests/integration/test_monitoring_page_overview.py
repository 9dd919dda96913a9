# ruff: noqa: E501, RUF001 - scripts are read by line; the page writes dashes as people do
"""The ops page in headless Chromium: its figures are the snapshot's, alerts come with what to do, stale is never live."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from monitoring.page.runbooks import RUNBOOKS

STORIES = ("normal", "alerting", "empty")
STATE_OF = {"normal": "ok", "alerting": "bad", "empty": "warn"}
Stories = dict[str, Callable[..., dict[str, Any]]]

CONTRAST = """() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length === 3 ? [...n, 1] : n; };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const light = (c) => { const l = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * l[0] + 0.7152 * l[1] + 0.0722 * l[2]; };
  const ground = (node) => { const chain = []; for (let at = node; at; at = at.parentElement) chain.unshift(parse(getComputedStyle(at).backgroundColor));
    return chain.reduce((under, top) => over(top, under), [255, 255, 255, 1]); };
  const found = [], seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || seen.has(node) || !node.checkVisibility({ visibilityProperty: true }) || node.closest(".hidden, :disabled, script, noscript")) continue;
    seen.add(node);
    const style = getComputedStyle(node), back = ground(node), front = over(parse(style.color), back);
    const [a, b] = [light(front), light(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${node.tagName}.${node.className} "${node.textContent.slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return { checked: seen.size, found };
}"""

NAMELESS = """() => {
  const name = (n) => n.getAttribute("aria-label") || (n.getAttribute("aria-labelledby") && document.getElementById(n.getAttribute("aria-labelledby"))?.textContent)
    || n.labels?.[0]?.textContent || n.textContent.trim() || n.title;
  const needs = "button, a[href], input, select, textarea, dialog, section, form[role], [role=img], [role=region], [role=meter]";
  const nameless = [...document.querySelectorAll(needs)].filter((n) => !name(n)).map((n) => n.outerHTML.slice(0, 120));
  const levels = [...document.querySelectorAll("h1, h2, h3, h4")].filter((n) => n.checkVisibility()).map((n) => Number(n.localName[1]));
  const jumps = levels.filter((level, i) => i && level > levels[i - 1] + 1);
  const ids = [...document.querySelectorAll("[id]")].map((n) => n.id);
  const unheaded = [...document.querySelectorAll("table")].filter((t) => !t.caption && !t.closest(".report")).length;
  return { nameless, first: levels[0], jumps, twice: ids.filter((id, i) => ids.indexOf(id) !== i), unheaded, mains: document.querySelectorAll("main").length, lang: document.documentElement.lang };
}"""


def values(tab: Any, selector: str) -> list[str]:
    """The exact figures of these elements, in order."""
    found: list[str] = tab.page.locator(selector).evaluate_all("nodes => nodes.map((node) => node.dataset.value)")
    return found


def exact(*figures: Any) -> list[str]:
    """As the page keeps them: a whole float has no fraction in JavaScript."""
    return ["" if f is None else str(int(f)) if float(f).is_integer() else repr(f) for f in figures]


def test_the_figures_on_the_page_are_those_of_the_snapshot(open_tab: Any, scripted_page: Any) -> None:
    snapshot, tab = scripted_page.snapshot, open_tab()
    tab.page.wait_for_selector("#tables tbody tr")
    flow, groups, tables = snapshot["flow"], snapshot["kafka"]["groups"], snapshot["tables"]
    assert values(tab, ".box-main") == exact(*(box["figures"][0]["value"] for box in flow))
    assert values(tab, ".box-figures dd") == exact(*(f["value"] for box in flow for f in box["figures"][1:]))
    for name, rate in snapshot["rates"].items():
        assert values(tab, f'#trends [data-rate="{name}"]') == exact(rate)
    assert values(tab, ".quantiles dd") == exact(
        *snapshot["latency_ms"].values(), *snapshot["readings_latency_ms"].values()
    )
    assert values(tab, ".falls td.figure") == exact(
        *(hop[q] for hop in snapshot["hops"] for q in ("p50", "p95", "p99"))
    )
    assert values(tab, "#errors tbody td") == exact(
        *(v for e in snapshot["errors"] for v in (e["per_second"], e["total"]))
    )
    wanted = [g[k] for g in groups for k in ("lag", "lag_seconds", "per_second", "time_to_data_loss_seconds")]
    assert values(tab, "#kafka .content > div tbody td.figure") == exact(*wanted)
    assert values(tab, "#tables tbody td:nth-child(6)") == exact(*(table["bytes"] for table in tables))
    assert values(tab, "#canary dd") == exact(*snapshot["canary"].values())
    budgets = [slo[k] for slo in snapshot["slo"].values() for k in ("good_ratio", "objective", "budget_left")]
    assert values(tab, "#slo dd") == exact(*budgets)
    assert values(tab, "#latency .legend output") == exact(*snapshot["latency_ms"].values())
    assert tab.page.text_content(".box-main >> nth=1") == "823 /s"
    assert tab.page.text_content("#latency .quantiles dd >> nth=1") == "1.20 s"
    assert values(tab, "#errors output") == [repr(snapshot["rates"]["dead_lettered"] / snapshot["rates"]["received"])]
    assert tab.page.title() == "✓ Ready – Tidegate"
    assert tab.page.locator("#latency canvas").count() == 1
    tab.assert_clean()


def test_an_alert_comes_with_its_impact_causes_and_numbered_actions_and_is_read_out(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    tab = open_tab()
    tab.page.wait_for_selector("text=No alerts")
    assert tab.page.inner_text("#announce") == ""
    scripted_page.show(page_stories["alerting"]())
    alert = tab.page.locator('[data-alert="TidegateKafkaUnreachable"]')
    alert.wait_for()
    assert tab.page.title() == "● Not ready: kafka · 1 alert – Tidegate"
    assert tab.page.inner_text("#announce") == "Alert: TidegateKafkaUnreachable."
    assert alert.locator("ol > li").count() == 3
    assert alert.locator("ol code").all_inner_texts() == [
        "tidegate status",
        "tidegate up --only kafka",
        "tidegate audit",
    ]
    assert "Nothing is stored." in alert.inner_text()
    assert alert.locator(".badge").inner_text() == "critical, firing"
    assert tab.page.locator(".alert").evaluate_all("all => all.map((a) => a.dataset.state)") == [
        "firing",
        "pending",
        "resolved",
    ]
    assert tab.page.locator('[data-hop="kafka"] .badge').inner_text() == "bad"
    assert "need Prometheus" in tab.page.inner_text("#alerts")
    assert "Clocks differ" in tab.page.inner_text("#latency")
    scripted_page.show(page_stories["normal"]())
    tab.wait("document.getElementById('announce').textContent.includes('Resolved: ')")
    assert tab.page.title() == "✓ Ready – Tidegate"
    tab.assert_clean()


def test_a_command_is_copied(open_tab: Any, scripted_page: Any, page_stories: Stories) -> None:
    scripted_page.show(page_stories["alerting"]())
    tab = open_tab(permissions=["clipboard-read", "clipboard-write"])
    tab.page.click('[data-alert="TidegateKafkaUnreachable"] .copy >> nth=1')
    tab.page.wait_for_selector("text=Copied")
    assert tab.page.evaluate("navigator.clipboard.readText()") == "tidegate up --only kafka"


def test_a_runbook_opens_beside_the_page_and_escape_gives_the_focus_back(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    names = sorted(file.stem for file in RUNBOOKS.glob("*.md"))
    if not names:
        pytest.skip("no runbook was written yet")
    name = "TidegateKafkaUnreachable" if "TidegateKafkaUnreachable" in names else names[0]
    snapshot = page_stories["normal"]()
    snapshot["alerts"] = [page_stories["alert"](name=name, runbook=f"/runbooks/{name}")]
    scripted_page.show(snapshot)
    tab = open_tab()
    tab.page.focus("text=Runbook")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("#panel .prose h2, #panel .prose h3")
    assert tab.page.inner_text("#panel-title") == f"Runbook: {name}"
    assert "Mitigation" in tab.page.inner_text("#panel")
    assert tab.page.evaluate("document.activeElement.id") == "panel-title"
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_selector("#panel", state="hidden")
    assert tab.page.evaluate("document.activeElement.textContent") == "Runbook"
    tab.assert_clean()


def test_what_a_server_might_send_as_a_runbook_loses_all_that_runs(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    hostile = (
        "<h1>TidegateKafkaUnreachable</h1><h2 onclick='window.hit=1'>Meaning</h2><script>window.hit=2</script><p>kept "
        "<img src=x onerror='window.hit=3'><svg onload='window.hit=4'><b>bold</b></svg>"
        "<a href='javascript:window.hit=5'>one</a><a href='https://example.org/x'>two</a>"
        "<iframe srcdoc='<script>parent.hit=6</script>'></iframe><style>*{display:none}</style></p>"
        "<pre><code>tidegate status\n</code></pre>"
    )
    scripted_page.show(page_stories["alerting"]())
    tab = open_tab()
    answer = json.dumps({"name": "TidegateKafkaUnreachable", "html": hostile})
    tab.page.route(
        "**/api/runbook*", lambda route: route.fulfill(status=200, content_type="application/json", body=answer)
    )
    tab.page.click("text=Runbook >> nth=0")
    tab.page.wait_for_selector("#panel .command")
    shown = tab.page.locator("#panel .prose").evaluate("node => node.innerHTML")
    assert not re.search(r"<(script|img|svg|iframe|style)|onclick|onerror|javascript:", shown)
    assert tab.page.locator("#panel a").evaluate_all("all => all.map((a) => a.getAttribute('href'))") == [
        None,
        "https://example.org/x",
    ]
    assert tab.page.evaluate("window.hit") is None
    assert not re.search(r"window\.hit|display", tab.page.inner_text("#panel"))
    assert tab.foreign == []
    # The parser's document runs nothing; that the policy would not let it either is what the browser says.
    assert all("Content Security Policy" in line for line in tab.complaints)


@pytest.mark.parametrize("way", ["the server is gone", "the server hangs"])
def test_a_lost_connection_greys_the_page_within_ten_seconds_and_heals(
    open_tab: Any, scripted_page: Any, page_stories: Stories, way: str
) -> None:
    tab = open_tab()
    if way == "the server is gone":
        scripted_page.stop()
    else:
        scripted_page.beating.clear()
    tab.page.wait_for_selector("#lost:not([hidden])", timeout=10_000)
    assert re.match(r"No live data since \d\d:\d\d:\d\d\.", tab.page.inner_text("#lost"))
    assert tab.page.title() == "✕ no data – Tidegate"
    assert "stale" in tab.page.inner_text("#fresh")
    assert float(tab.page.evaluate("getComputedStyle(document.querySelector('main')).opacity")) < 1
    scripted_page.snapshot = page_stories["alerting"]()
    if way == "the server is gone":
        scripted_page.start()
    else:
        scripted_page.beating.set()
    tab.page.wait_for_selector("#lost", state="hidden")
    tab.page.wait_for_selector('[data-alert="TidegateKafkaUnreachable"]')
    assert tab.page.title() == "● Not ready: kafka · 1 alert – Tidegate"
    assert [line for line in tab.complaints if "ERR_" not in line] == []


PATHS = {
    "/": "[data-letter]:visible",
    "/#/device/boiler-0": "[data-letter]:visible",
    "/#/topics": "#topics tbody tr",
    "/#/topic/telemetry.readings": "[data-record]",
}
"""The views, and what is on each when it has come."""


@pytest.mark.parametrize("path", PATHS)
def test_no_width_scrolls_sideways_and_every_text_can_be_read_in_both_themes(
    open_tab: Any, scripted_page: Any, page_stories: Stories, path: str
) -> None:
    tab = open_tab(path)
    tab.page.wait_for_selector(PATHS[path])
    for story in STORIES:
        scripted_page.show(page_stories[story]())
        tab.page.wait_for_selector(f'#state [data-state="{STATE_OF[story]}"]')
        for scheme, width in (("light", 360), ("dark", 1024), ("light", 1440), ("dark", 320)):
            tab.page.set_viewport_size({"width": width, "height": 800})
            tab.page.emulate_media(color_scheme=scheme)
            tab.page.wait_for_selector(f'html[data-theme="{scheme}"]', state="attached")
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= width, (story, width)
            contrast = tab.page.evaluate(CONTRAST)
            assert contrast["checked"] > (50 if path != "/#/topics" else 25)
            assert contrast["found"] == [], (story, scheme)
    tab.assert_clean()


@pytest.mark.parametrize("path", PATHS)
def test_everything_has_a_name_and_headings_are_in_order(
    open_tab: Any, scripted_page: Any, page_stories: Stories, path: str
) -> None:
    scripted_page.show(page_stories["alerting"]())
    tab = open_tab(path)
    tab.page.wait_for_selector(PATHS[path])
    assert tab.page.evaluate(NAMELESS) == {
        "nameless": [], "first": 1, "jumps": [], "twice": [], "unheaded": 0, "mains": 1, "lang": "en",
    }  # fmt: skip


def test_what_is_not_ready_is_named(open_tab: Any, scripted_page: Any, page_stories: Stories) -> None:
    story = page_stories["empty"]()
    starting = {"state": "starting", "since": None, "detail": ""}
    scripted_page.show(
        story
        | {
            "parts": {
                "kafka": {**starting, "state": "ready"},
                "topics": {**starting, "state": "done"},
                "stream": starting,
            }
        }
    )
    tab = open_tab()
    tab.page.wait_for_selector("text=Not ready: stream")
    scripted_page.show(story | {"parts": dict.fromkeys("abcd", starting)})
    tab.page.wait_for_selector("text=Not ready: a, b and 2 more")
    scripted_page.show(story | {"parts": {}})
    tab.wait("document.title === '▲ Not ready – Tidegate'")


def test_states_are_told_by_shape_and_word_not_by_colour_alone(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    scripted_page.show(page_stories["alerting"]())
    tab = open_tab()
    tab.page.wait_for_selector(".alert")
    told = tab.page.locator(".badge[data-state]").evaluate_all(
        "all => all.map((b) => [b.dataset.state, b.querySelector('path').getAttribute('d'), b.textContent])"
    )
    assert {state for state, _, _ in told} >= {"ok", "warn", "bad"}
    assert all(word for _, _, word in told)
    shapes = {state: {d for s, d, _ in told if s == state} for state, _, _ in told}
    assert all(len(each) == 1 for each in shapes.values())
    assert len({next(iter(each)) for each in shapes.values()}) == len(shapes)


def test_thousands_of_entries_are_capped_and_shown_within_50_ms(
    open_tab: Any, scripted_page: Any, page_stories: Stories, wait_until: Any
) -> None:
    snapshot = page_stories["normal"]()
    one = snapshot["kafka"]["partitions"][0]
    snapshot["kafka"]["partitions"] = [one | {"partition": n, "lag": n} for n in range(3000)]
    snapshot["errors"] = [{"reason": f"reason_{n}", "per_second": 1.0, "total": n} for n in range(1000)]
    snapshot["alerts"] = [page_stories["alert"](name=f"TidegateNumber{n}", labels={"n": str(n)}) for n in range(1000)]
    snapshot["devices"]["talkers"] = [{"device": f"device-{n}", "received": n} for n in range(5000)]
    snapshot["devices"]["silent"] = [
        {"device": f"device-{n}", "last_seen": 1.0, "silent_seconds": 9.0, "interval_s": 1.0} for n in range(5000)
    ]
    scripted_page.show(snapshot)
    tab = open_tab()
    tab.page.wait_for_selector(".alert")
    took: set[str] = set()

    def enough() -> bool:
        took.add(tab.page.evaluate("document.documentElement.dataset.renderMs"))
        return len(took) >= 3 and min(map(float, took)) < 50

    wait_until(enough, what="a look within 50 ms")
    assert tab.page.locator("#alerts .alert").count() == 30
    assert "970 more alerts are not shown" in tab.page.inner_text("#alerts")
    assert tab.page.locator("#kafka details tbody tr").count() == 64
    assert tab.page.title() == "● 1000 alerts – Tidegate"


def test_an_update_keeps_the_scroll_the_focus_and_what_was_folded_open(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    scripted_page.show(page_stories["alerting"]())
    tab = open_tab(height=500)
    second = tab.page.locator('[data-alert="TidegateStreamStalled"]')
    second.locator("summary").click()
    second.locator(".button").focus()
    tab.page.evaluate("scrollTo({ top: 600, behavior: 'instant' })")
    where = "document.activeElement.getBoundingClientRect().top"
    before = tab.page.evaluate(where)
    changed = page_stories["alerting"]()
    changed["alerts"].insert(0, page_stories["alert"](name="TidegateUnaccounted"))
    changed["rates"]["received"] = 9.5
    scripted_page.show(changed)
    tab.page.wait_for_selector('[data-rate="received"][data-value="9.5"]')
    assert tab.page.locator(".alert").count() == 4
    assert second.locator("details").get_attribute("open") is not None
    assert tab.page.evaluate("document.activeElement.closest('.alert').dataset.alert") == "TidegateStreamStalled"
    assert tab.page.evaluate(where) == pytest.approx(before, abs=40)  # the new alert is far taller


def test_the_theme_can_be_chosen_and_stays(open_tab: Any) -> None:
    tab = open_tab(color_scheme="light")
    tab.page.click("#theme")
    assert tab.page.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.page.reload()
    tab.page.wait_for_selector('html[data-live="live"]', state="attached")
    assert tab.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert tab.page.get_attribute("#theme", "aria-label") == "Light colours"
    tab.assert_clean()


def test_one_broken_figure_takes_no_other_part_away(open_tab: Any, scripted_page: Any, page_stories: Stories) -> None:
    snapshot = page_stories["normal"]()
    snapshot["errors"] = [None]
    scripted_page.show(snapshot)
    tab = open_tab()
    tab.page.wait_for_selector("#tables tbody tr")
    assert values(tab, "#canary dd") == exact(*snapshot["canary"].values())
    assert tab.complaints  # and the console says which
