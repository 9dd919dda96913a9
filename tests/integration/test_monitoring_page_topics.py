"""The page's view of Kafka: topics, records of one, what it asks for, follows and opens, and a Kafka that does not answer."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from monitoring.page.page_api import PageError
from tests.support.naughty import NAUGHTY
from tests.support.page_topics import a_piece, a_record, a_topic

TOPIC = "/#/topic/telemetry.readings"
HOSTILE = [
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg/onload=window.hit=1>',
    "javascript:window.hit=1",
    "a\u202egnp.exe",
    "\u0000\u200b",
    "W" * 5000,
    "",
    *NAUGHTY[:80],
]
OLDER = "#topic .records button >> text=Older"
NEWER = "#topic .records button >> text=Newer"


def asked(page: Any) -> Any:
    """The newest question for records."""
    return page.kafka.asked[-1]


def record_places(tab: Any) -> list[str]:
    found: list[str] = tab.page.locator("[data-record]").evaluate_all("all => all.map((each) => each.dataset.record)")
    return found


def envelope_of(text: str) -> dict[str, Any]:
    return {"device": text, "reason": text, "readings": [text, None, {"metric": text, "unit": text}], text: text}


def of(records: list[dict[str, Any]]) -> list[str]:
    return [f"{each['partition']}:{each['offset']}" for each in records]


@pytest.fixture
def open_topic(open_tab: Callable[..., Any]) -> Callable[..., Any]:
    """`open_topic(**options)` opens a tab at the topic and waits for its records."""

    def open_one(**options: Any) -> Any:
        tab = open_tab(TOPIC, **options)
        tab.page.wait_for_selector("[data-record]")
        return tab

    return open_one


def test_the_overview_leads_to_topics_and_from_there_to_records(open_tab: Any, scripted_page: Any) -> None:
    tab = open_tab()
    tab.page.click("text=Topics and their records")
    tab.page.wait_for_selector("#topics tbody tr")
    assert tab.page.evaluate("document.activeElement.textContent") == "Topics"
    names = tab.page.locator("#topics tbody a").all_text_contents()
    assert names == [each["topic"] for each in scripted_page.kafka.topics]
    assert "3.60 M" in tab.page.text_content("#topics tbody tr >> nth=3")
    assert "newest record per key" in tab.page.text_content("#topics tbody tr >> nth=1")
    tab.page.click("#topics tbody a >> nth=3")
    tab.page.wait_for_selector("[data-record]")
    assert tab.page.text_content("#topic h2") == "Topic telemetry.readings"
    tab.wait("document.querySelectorAll('#topic details tbody tr').length === 5")  # three partitions, two groups
    assert "Retention: 7 d or 10 GiB per partition. Record times are by Kafka's clock." in tab.page.inner_text("#topic")
    tab.page.click("text=← All topics")
    tab.page.wait_for_selector("#topics tbody tr")
    tab.page.click("text=← Overview")
    tab.page.click("#kafka .content > div tbody td a >> nth=1")
    tab.page.wait_for_selector("text=Topic telemetry.dead-letters")
    tab.assert_clean()


def test_records_are_shown_newest_first_and_pages_go_older_and_newer(open_topic: Any, scripted_page: Any) -> None:
    tab, records = open_topic(), scripted_page.kafka.records
    assert record_places(tab) == of(records[:50])
    assert tab.page.inner_text("#topic [role=status]") == "50 records."
    tab.page.click(OLDER)
    tab.wait(f"document.querySelector('[data-record]').dataset.record === '{of(records[50:])[0]}'")
    tab.page.click(OLDER)
    tab.wait("document.querySelectorAll('[data-record]').length === 20")
    assert tab.page.is_disabled(OLDER)
    assert asked(scripted_page).places == {0: 100}
    tab.page.click(NEWER)
    tab.wait(f"document.querySelector('[data-record]').dataset.record === '{of(records[50:])[0]}'")
    assert (asked(scripted_page).begin, asked(scripted_page).places) == ("after", {0: 100})
    tab.assert_clean()


def test_what_the_form_says_is_asked_for(open_topic: Any, scripted_page: Any, wait_until: Any) -> None:
    tab = open_topic(timezone_id="Asia/Kolkata")
    tab.page.wait_for_selector("#topic select[name=partition] option:nth-child(4)", state="attached")
    tab.page.select_option("[name=partition]", "2")
    tab.wait("document.querySelectorAll('[data-record]').length === 40")
    assert asked(scripted_page).partition == 2
    tab.page.fill("[name=key]", "pump-5")
    tab.page.keyboard.press("Enter")
    tab.wait("document.querySelectorAll('[data-record]').length === 4")
    assert "4 records with this key. Searched 120 records." in tab.page.inner_text("#topic [role=status]")
    tab.page.select_option("[name=from]", "offset")
    tab.page.fill("[name=offset]", "117")
    tab.page.click("#topic form button")
    wanted = ("offset", 117, 2, "pump-5")
    wait_until(lambda: asked(scripted_page).begin == "offset", what="the page's request")
    tab.wait("document.querySelector('#topic .records').getAttribute('aria-busy') === null")
    found = asked(scripted_page)
    assert (found.begin, found.at, found.partition, found.key) == wanted
    tab.page.select_option("[name=partition]", "")
    tab.page.wait_for_selector("text=Choose a partition")
    tab.page.select_option("[name=from]", "time")
    tab.page.fill("[name=time]", "2026-01-31T17:30:00")
    tab.page.click("#topic form button")
    tab.page.wait_for_selector("text=Choose a partition", state="detached")
    wait_until(lambda: asked(scripted_page).begin == "time", what="the page's request")
    assert (asked(scripted_page).begin, asked(scripted_page).at) == ("time", 1769860800000)
    tab.assert_clean()


def test_an_address_says_what_to_show_and_a_devices_page_has_it(open_tab: Any, scripted_page: Any) -> None:
    scripted_page.kafka.records[7]["key"] = a_piece("boiler-0")
    tab = open_tab("/#/device/boiler-0")
    tab.page.click("text=Records in Kafka")
    tab.page.wait_for_selector("[data-record]")
    assert (asked(scripted_page).key, tab.page.input_value("[name=key]")) == ("boiler-0", "boiler-0")
    assert record_places(tab) == of([scripted_page.kafka.records[7]])
    tab.page.goto(scripted_page.url + TOPIC + "?partition=1&from=offset&offset=9")
    tab.wait("document.querySelector('[name=offset]').value === '9'")
    tab.page.wait_for_selector("[data-record]")
    assert (asked(scripted_page).begin, asked(scripted_page).at, asked(scripted_page).partition) == ("offset", 9, 1)
    tab.assert_clean()


def test_a_record_opens_with_its_value_indented_to_the_letter_and_its_envelope_told(
    open_topic: Any, scripted_page: Any
) -> None:
    value = '{"device":"pump-1","received_us":1764000000123456,"big":12345678901234567890,"e":1.0,"a":[],"o":{},"s":"a,\\"{b"}'
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    headers = [{"name": "traceparent", "value": a_piece(trace)}, {"name": "empty", "value": None}]
    scripted_page.kafka.records[1] |= {"value": a_piece(value), "headers": headers}
    tab = open_topic(permissions=["clipboard-read", "clipboard-write"])
    tab.page.focus("[data-record] >> nth=0")
    tab.page.keyboard.press("ArrowDown")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("#panel .payload")
    assert tab.page.inner_text("#panel .payload").split("\n") == [
        "{", '  "device": "pump-1",', '  "received_us": 1764000000123456,', '  "big": 12345678901234567890,', '  "e": 1.0,',
        '  "a": [],', '  "o": {},', '  "s": "a,\\"{b"', "}",
    ]  # fmt: skip
    panel = tab.page.inner_text("#panel")
    assert "2025-11-24 16:00:00.123456" in panel
    assert "by Kafka's clock" in panel
    assert trace in panel
    assert "tidegate trace --device pump-1" in panel
    assert tab.page.get_attribute("#panel dd a", "href") == "#/device/pump-1"
    tab.page.click("text=Copy value")
    tab.page.wait_for_selector("text=Copied")
    assert tab.page.evaluate("navigator.clipboard.readText()") == value
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_selector("#panel", state="hidden")
    assert tab.page.evaluate("document.activeElement.dataset.record") == of(scripted_page.kafka.records)[1]
    tab.assert_clean()


def test_no_text_of_a_record_runs_or_breaks_the_page(open_topic: Any, scripted_page: Any) -> None:
    for first in range(0, len(HOSTILE), 40):
        batch = HOSTILE[first : first + 40]
        scripted_page.kafka.records = [
            a_record(
                number,
                key=a_piece(text),
                value=a_piece(text if number % 2 else json.dumps(envelope_of(text))),
                headers=[{"name": text, "value": a_piece(text)}],
            )
            for number, text in enumerate(batch)
        ]  # fmt: skip
        tab = open_topic(width=320)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 320
        for number in (0, 1, 6, 7):
            tab.page.click(f"[data-record] >> nth={number}")
            tab.page.wait_for_selector("#panel .payload")
            assert tab.page.locator(".panel-body").evaluate("n => n.scrollWidth <= n.clientWidth")
            tab.page.keyboard.press("Escape")
        assert tab.page.evaluate("window.hit") is None
        assert tab.page.locator("img, iframe, object, embed, main script, main style").count() == 0
        assert set(tab.page.locator("a[href]").evaluate_all("all => all.map((a) => a.protocol)")) == {"http:"}
        tab.assert_clean()


def test_bytes_tombstones_and_what_was_cut_are_said_to_be(open_topic: Any, scripted_page: Any) -> None:
    binary = {"base64": "//79", "bytes": 3, "cut": False}
    scripted_page.kafka.records[:3] = [
        a_record(0, value=None, headers=None),
        a_record(1, key=binary, value=binary),
        a_record(2, key=None, value=a_piece('{"a": "bc', cut=True) | {"bytes": 70_000}),
    ]
    tab = open_topic()
    wanted = (
        "this record deletes its key",
        "shown as base64",
        "Only the beginning is shown; the total is 70,000 bytes.",
    )
    for number, sentence in enumerate(wanted):
        tab.page.click(f"[data-record] >> nth={number}")
        tab.page.wait_for_selector(f"#panel >> text={sentence}")
    assert '{"a": "bc' in tab.page.inner_text("#panel .payload")
    tab.assert_clean()


def test_a_look_that_was_broken_off_says_how_far_it_came(open_tab: Any, scripted_page: Any) -> None:
    scripted_page.kafka.changes = {
        "records": [], "looked": 20_000, "spent": "records", "back_to_ms": 1764000000123, "only_partition": 2, "older": "0:7",
    }  # fmt: skip
    tab = open_tab(TOPIC + "?key=rare")
    tab.page.wait_for_selector("text=No records with this key.")
    assert tab.page.inner_text("#topic .records [role=status]") == (
        "No records with this key. Searched 20,000 records of partition 2 (the key's partition) back to 2025-11-24 16:00:00.123. "
        "The search stopped at its limit of 20,000 records. Press Older to continue."
    )
    assert tab.page.is_enabled(OLDER)
    scripted_page.kafka.changes |= {"gone": True, "spent": None, "silent": [1, 4]}
    tab.page.click("#topic form button")
    tab.page.wait_for_selector("text=▲ No answer for partitions 1, 4.")
    assert "This offset does not exist" in tab.page.inner_text("#topic .records [role=status]")
    tab.assert_clean()


def test_follow_looks_again_until_somebody_pages(open_topic: Any, scripted_page: Any) -> None:
    tab = open_topic()
    tab.page.check("[name=follow]")
    newest = a_record(0, offset=7_000_000)
    scripted_page.kafka.records.insert(0, newest)
    tab.page.wait_for_selector('[data-record="0:7000000"]')
    tab.page.click(OLDER)
    tab.page.wait_for_selector('[data-record="0:7000000"]', state="detached")
    assert not tab.page.is_checked("[name=follow]")
    tab.assert_clean()


def test_a_kafka_that_is_slow_or_silent_is_said_and_what_is_shown_stays(open_tab: Any, scripted_page: Any) -> None:
    kafka, sentence = scripted_page.kafka, "Kafka at 127.0.0.1:9092 does not answer in time: check that it is up"
    kafka.gate.clear()
    tab = open_tab(TOPIC)
    tab.page.wait_for_selector("text=Reading records …")
    assert tab.page.get_attribute("#topic section >> nth=1", "aria-busy") == "true"
    tab.page.select_option("[name=from]", "oldest")  # a second question overtakes the first
    kafka.gate.set()
    tab.wait(f"document.querySelector('[data-record]')?.dataset.record === '{of(kafka.records[-50:])[0]}'")
    kafka.fault = PageError(503, sentence)
    tab.page.click("#topic form button")
    tab.page.wait_for_selector(f"#topic .records [role=alert] >> text={sentence}")
    assert len(record_places(tab)) == 50
    kafka.fault = None
    tab.page.click("#topic form button")
    tab.page.wait_for_selector("#topic .records [role=alert]", state="detached")
    assert [line for line in tab.complaints if "503" not in line] == []


def test_partitions_that_lack_a_copy_or_a_leader_are_marked_by_a_sign(open_topic: Any, scripted_page: Any) -> None:
    topic = a_topic()
    topic["partitions"][1] |= {"in_sync": 1, "replicas": 3}
    topic["partitions"][2] |= {"leader": None, "first": None, "next": None, "records": None}
    scripted_page.kafka.topics = [topic]
    tab = open_topic()
    tab.page.wait_for_selector("text=▲ 1 of 3")
    tab.page.wait_for_selector("text=▲ none")
    scripted_page.kafka.topics = []
    tab.page.reload()
    tab.page.wait_for_selector("text=This topic does not exist in Kafka.")
    tab.assert_clean()
