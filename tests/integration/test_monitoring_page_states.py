# ruff: noqa: RUF001 - the page writes dashes and arrows as people do
"""What the ops page says of a fault and of what is not known: which part, since when, and never an old figure as a live one."""

import json
from collections.abc import Callable
from typing import Any

import pytest

Stories = dict[str, Callable[..., dict[str, Any]]]
TOKEN = "a-token-of-tests"


def test_what_is_not_ready_is_named_beside_the_alerts_and_led_to(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    snapshot = page_stories["normal"]() | {"ready": False}
    snapshot["parts"]["stream"] = {"state": "starting", "since": snapshot["at"] - 30, "detail": "Spark starts"}
    scripted_page.show(snapshot)
    tab = open_tab()
    tab.page.wait_for_selector('#state [data-state="warn"]')
    assert tab.page.title() == "▲ Not ready: stream – Tidegate"
    assert "Spark starts" in tab.page.inner_text('[data-part="stream"]')
    snapshot["alerts"].append(page_stories["alert"](severity="warning"))
    snapshot["flow"][4]["state"] = "bad"
    scripted_page.show(snapshot)
    tab.page.wait_for_selector('#state [data-state="bad"]')
    assert tab.page.locator("#state a").all_inner_texts() == ["Not ready: stream", "1 alert"]
    assert tab.page.title() == "● Not ready: stream · 1 alert – Tidegate"
    tab.page.goto(scripted_page.url + "/#/device/boiler-0")
    tab.page.click("text=Not ready: stream")
    tab.page.wait_for_selector("#overview:not([hidden])")
    tab.wait("document.activeElement.id === 'parts-title'")
    tab.assert_clean()


def test_while_the_canary_is_missing_old_percentiles_are_no_live_ones(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    tab = open_tab()
    tab.page.wait_for_selector('#canary .badge[data-state="ok"]')
    assert tab.page.locator("#latency .note.bad").is_hidden()
    snapshot = page_stories["normal"]()
    snapshot["parts"]["canary"] |= {"state": "starting", "detail": "no reading read back for 23 s"}
    snapshot["canary"] |= {"last_seen_seconds_ago": 23.0, "oldest_wait_seconds": 25.2}
    snapshot["latency_ms"] = {"p50": 20_000.0, "p95": 60_000.0, "p99": 60_000.0}
    snapshot["point"] |= {"latency_p95": 60_000.0, "latency_p99": 60_000.0}
    scripted_page.show(snapshot)
    tab.page.wait_for_selector('#canary .badge[data-state="bad"]')
    assert tab.page.inner_text("#canary .badge") == "missing for 23 s"
    assert "oldest reading has waited 25 s." in tab.page.inner_text("#latency .note.bad")
    assert tab.page.locator("#latency .quantiles dd").all_inner_texts()[:3] == ["20 s", "> 60 s", "> 60 s"]
    assert tab.page.locator("#latency .legend output").all_inner_texts()[1:] == ["> 60 s", "> 60 s"]
    assert tab.page.locator("#latency [data-old]").count() == 2
    snapshot["parts"]["canary"] |= {"state": "ready"}
    snapshot["canary"] = {"last_seen_seconds_ago": 60.0}
    scripted_page.show(snapshot)
    tab.wait("document.querySelector('#canary .badge')?.textContent === 'missing for 1 min'")
    assert "oldest reading has waited 1 min or longer." in tab.page.inner_text("#latency .note.bad")
    tab.assert_clean()


def test_readings_that_come_back_in_slow_batches_are_not_missing(open_tab: Any) -> None:
    tab = open_tab()
    found = tab.page.evaluate(
        """async () => {
          const { CanaryWatch } = await import("/assets/canary.js");
          const watch = new CanaryWatch();
          const said = (at, seenAt, state = "ready") => watch.look(
            { at, canary: { last_seen_seconds_ago: seenAt === null ? null : at - seenAt }, parts: { canary: { state } } });
          const slow = [];
          for (let at = 0; at <= 60; at += 2) slow.push(said(at, Math.floor(at / 10) * 10));
          return { slow: slow.every((each) => each === null), at29: said(89, 60), at31: said(91, 60)?.word,
            never: said(92, null, "starting"), failed: said(93, null, "failed").state };
        }"""
    )
    assert found == {
        "slow": True,
        "at29": None,
        "at31": "missing for 31 s",
        "never": {"state": "warn", "word": "starting", "waits": None},
        "failed": "bad",
    }


@pytest.mark.parametrize(
    ("is_silent", "listed", "said"),
    [
        (False, True, "not silent"),
        (True, False, "silent"),
        (None, True, "silence unknown: seen too briefly or too long ago"),
    ],
)
def test_a_device_is_silent_where_the_server_says_so(
    open_tab: Any, scripted_page: Any, page_stories: Stories, is_silent: bool | None, listed: bool, said: str
) -> None:
    snapshot = page_stories["normal"]()
    if listed:
        snapshot["devices"]["silent"].append({"device": "boiler-0", "last_seen": 1.0, "silent_seconds": 40.0})
    scripted_page.show(snapshot)
    row = {"device": "boiler-0", "last_seen": snapshot["at"] - 40, "interval_s": 1.0}
    found = {
        "device": row,
        "metrics": [],
        "ledger": {},
        "dead_letters": [],
        "silent_seconds": 40.0,
        "is_silent": is_silent,
    }
    tab = open_tab()
    tab.page.route("**/api/device?*", lambda route: route.fulfill(body=json.dumps(found)))
    tab.page.goto(scripted_page.url + "/#/device/boiler-0")
    tab.page.wait_for_selector("#device .facts")
    assert tab.page.inner_text("#device .card .badge") == said


def test_an_alert_opens_itself_when_it_begins_and_is_told_in_the_past_when_it_is_over(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    snapshot = page_stories["normal"]()
    snapshot["alerts"] = [page_stories["alert"](state="pending")]
    scripted_page.show(snapshot)
    tab = open_tab()
    alert = tab.page.locator(".alert")
    tab.page.wait_for_selector(".alert details:not([open])")
    snapshot["alerts"] = [page_stories["alert"](value=12.0), page_stories["alert"](name="Other", severity="info")]
    scripted_page.show(snapshot)
    tab.page.wait_for_selector(".alert details[open]")
    assert tab.page.locator(".alert details[open]").count() == 1
    assert "value 12" in alert.first.inner_text()
    alert.first.locator("summary").click()
    snapshot["rates"]["received"] = 9.5
    scripted_page.show(snapshot)
    tab.page.wait_for_selector('[data-rate="received"][data-value="9.5"]')
    assert alert.locator("details[open]").count() == 0
    snapshot["alerts"] = [page_stories["alert"](state="resolved", value=12.0)]
    scripted_page.show(snapshot)
    tab.page.wait_for_selector('.alert[data-state="resolved"]')
    assert alert.locator(".alert-text").inner_text() == "Was: Kafka has not answered for 95 s."
    assert "resolved at" in alert.inner_text()
    assert "value" not in alert.inner_text()
    tab.assert_clean()


def test_what_nobody_knows_yet_is_not_told_as_nothing(open_tab: Any, scripted_page: Any, page_stories: Stories) -> None:
    snapshot = page_stories["normal"]()
    snapshot["devices"] |= {"known": 0, "silent": [], "talkers": [], "skewed": []}
    snapshot["devices"]["offenders"] = [{"device": "boiler-0", "dead_lettered": 3, "reason": None}]
    snapshot["audit"] |= {"messages": 0}
    scripted_page.show(snapshot)
    tab = open_tab()
    tab.page.wait_for_selector("#tables tbody tr")
    for name in ("silent", "talkers", "skewed"):
        assert tab.page.locator(f"[data-list={name}] p.muted >> visible=true").all_inner_texts() == ["Not known yet."]
    assert "not known yet" in tab.page.inner_text("[data-list=offenders] tbody")
    assert tab.page.inner_text("#audit .badge") == "no messages yet"
    assert "last hour" in tab.page.inner_text("[data-list=talkers] h3")
    assert "current minute is incomplete" in tab.page.inner_text("#devices")
    nobody = {"device": None, "metrics": [], "ledger": {"received": 0, "stored": 0}, "dead_letters": []}
    tab.page.route("**/api/device?*", lambda route: route.fulfill(body=json.dumps(nobody)))
    tab.page.goto(scripted_page.url + "/#/device/nobody")
    tab.page.wait_for_selector("#device [data-ledger=received]")
    assert tab.page.inner_text("#device [data-ledger=received]") == "–"
    assert "last 24 hours (current minute incomplete)" in tab.page.inner_text("#device")


def test_a_spent_budget_is_told_in_words_with_a_next_step(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    snapshot = page_stories["normal"]()
    snapshot["slo"]["freshness"] |= {"good_ratio": 0.0, "budget_left": -99.0}
    snapshot["slo"]["validity"] |= {"good_ratio": 0.99558, "budget_left": 0.779}
    scripted_page.show(snapshot)
    tab = open_tab()
    tab.page.wait_for_selector('[data-slo="freshness"] .badge[data-state="bad"]')
    spent = tab.page.inner_text('[data-slo="freshness"]')
    assert "none left (spent 100 times)" in spent
    assert "need Prometheus and at least 40 min of data" in spent
    fine = tab.page.inner_text('[data-slo="validity"]')
    assert "99.55 %" in fine
    assert "Prometheus" not in fine
    tab.page.click('[data-slo="freshness"] a')
    assert tab.page.evaluate("document.activeElement.id") == "latency"
    tab.assert_clean()


def test_a_text_that_ends_too_early_is_marked_where_it_ends(open_tab: Any, scripted_page: Any) -> None:
    scripted_page.payload_lines = ['…"v": [1, 2', " " * 11 + "^"]
    tab = open_tab()
    tab.page.click("[data-letter]")
    tab.page.wait_for_selector("#panel mark")
    assert tab.page.inner_text("#panel .payload") == '…"v": [1, 2◀ the text ends here'
    assert tab.page.locator("#panel mark").bounding_box()["width"] > 20


def test_a_redrive_that_accepts_nothing_repeats_the_next_step_and_leads_back(open_tab: Any, scripted_page: Any) -> None:
    scripted_page.report = {"letters": 0, "accepted": 0, "unknown": ["9-1", "<b>9-2</b>"]}
    tab = open_tab(f"/#token={TOKEN}")
    tab.page.click("[data-letter]")
    tab.page.click("text=Redrive this dead letter …")
    tab.page.wait_for_selector("text=Nothing would be accepted")
    assert "Check the sensor" in tab.page.inner_text("#panel")
    assert "No dead letter has these 2 ids: 9-1, <b>9-2</b>" in tab.page.text_content("#panel .note")
    tab.page.click("text=Back to dead letter 3-1000")
    tab.page.wait_for_selector("#panel .payload")
    tab.assert_clean()


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 800), (360, 740)])
def test_words_stay_whole_and_nothing_leaves_its_place(
    open_tab: Any, scripted_page: Any, page_stories: Stories, width: int, height: int
) -> None:
    got = "Expecting ',' delimiter at character 216:"
    scripted_page.letters[:] = [
        page_stories["letter"](n, reason="ts_too_far_future", device="sim-01", path=None, got=got) for n in range(3)
    ]
    snapshot = page_stories["normal"]()
    snapshot["flow"][2]["figures"][1] = {"name": "dead letters", "value": 0.3, "unit": "/s"}
    snapshot["flow"][2]["figures"][2] = {"name": "unacknowledged", "value": 12_345, "unit": ""}
    snapshot["alerts"] = [page_stories["alert"]()]
    scripted_page.show(snapshot)
    tab = open_tab(width=width, height=height)
    tab.page.wait_for_selector("#letters [data-letter]")
    lines = """all => all.map((n) => { const range = document.createRange(); range.selectNodeContents(n);
      return range.getClientRects().length; })"""
    assert set(tab.page.locator("#letters [data-letter]").evaluate_all(lines)) == {1}
    outside = """all => all.flatMap((box) => [...box.querySelectorAll("*")]
      .filter((n) => n.getBoundingClientRect().right > box.getBoundingClientRect().right + 0.5).map((n) => n.outerHTML))"""
    assert tab.page.locator("#flow .box").evaluate_all(outside) == []
    more = tab.page.locator("#letters form ~ div .scroll").get_attribute("data-more")
    assert (more is not None) == (width == 360)
    assert tab.page.locator("#kafka .content > div .scroll").get_attribute("data-more") is None
    assert tab.page.locator("#kafka .content > div tbody td.figure >> nth=3").is_visible()
    command = "tidegate sql 'SELECT device, last_seen, interval_learned_s, last_rejected_because FROM devices'"
    html = f"<pre><code>{command}</code></pre>"
    answer = json.dumps({"name": "TidegateKafkaUnreachable", "html": html})
    tab.page.route("**/api/runbook*", lambda route: route.fulfill(body=answer))
    tab.page.click(".alert .button:text-is('Runbook')")
    code, button = (tab.page.locator(f"#panel .command {part}").bounding_box() for part in ("code", "button"))
    apart = code["x"] + code["width"] <= button["x"] or button["x"] + button["width"] <= code["x"]
    assert apart or button["y"] + button["height"] <= code["y"]
    assert tab.page.locator("#panel .command code").evaluate("n => n.scrollWidth <= n.clientWidth")
    tab.assert_clean()
