# ruff: noqa: E501 - scripts are read by line
"""What an alert tells people to do: a sentence, then its commands, each as it can be run here; its runbook and its silence."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from monitoring.alerts.catalog import ALERTS
from monitoring.page.runbooks import RUNBOOKS

Stories = dict[str, Callable[..., dict[str, Any]]]
WHERE = {"name": "./tidegate", "where": "--data /x", "takes": "audit logs status"}
SHOWN = """steps => steps.map((step) => [
  [...step.childNodes].filter((n) => !n.classList?.contains("command")).map((n) => n.textContent).join(""),
  ...[...step.querySelectorAll(".command")].map((n) => n.querySelector("code").textContent + " " + n.querySelectorAll("button").length),
])"""
STEPS = [
    ("`./tidegate logs broker -n 100 --data /x`: its last words.", ["Its last words.", "./tidegate logs broker -n 100 --data /x 1"]),
    ("Look what runs: `tidegate status`.", ["Look what runs:", "./tidegate status --data /x 1"]),
    ("Bring it back. Then `tidegate audit --since 1h`.", ["Bring it back. Then:", "./tidegate audit --since 1h --data /x 1"]),
    (
        "`tidegate logs gateway -n 100`, or `kafka`, `docker`: its last words.",
        ["./tidegate logs gateway -n 100, or kafka, docker: its last words.", "./tidegate logs gateway -n 100 --data /x 1"],
    ),
    (
        "`tidegate demo stop`: ends it; `tidegate status --data /y` tells.",
        ["Ends it; ./tidegate status --data /y tells.", "./tidegate demo stop 1", "./tidegate status --data /y 1"],
    ),
    ("`tidegate status`", ["", "./tidegate status --data /x 1"]),
    ("Set `stream.master` or `kafka`.", ["Set stream.master or kafka."]),
    ("A `<b>`, and one ` left open <img src=x>", ["A <b>, and one  left open <img src=x>"]),
]  # fmt: skip


def alerting(stories: Stories, **changes: Any) -> dict[str, Any]:
    snapshot = stories["normal"]()
    snapshot["command"] = WHERE
    snapshot["alerts"].append(stories["alert"](**changes))
    return snapshot


def test_a_step_is_a_sentence_with_its_commands_below(open_tab: Any, scripted_page: Any, page_stories: Stories) -> None:
    scripted_page.show(alerting(page_stories, actions=[given for given, _ in STEPS]))
    tab = open_tab()
    tab.page.wait_for_selector(".alert ol li")
    shown = tab.page.locator(".alert ol li").evaluate_all(SHOWN)
    assert shown == [told for _, told in STEPS]
    code, copy = (
        tab.page.locator(f".alert ol li:first-child .command {tag}").bounding_box() for tag in ("code", "button")
    )
    assert abs(code["y"] - copy["y"]) < 8
    assert copy["x"] >= code["x"] + code["width"]
    tab.assert_clean()


def test_a_runbook_has_the_same_commands_and_leads_to_others(
    open_tab: Any, scripted_page: Any, page_stories: Stories
) -> None:
    scripted_page.show(alerting(page_stories))
    tab = open_tab()
    tab.page.click(".alert .button:text-is('Runbook')")
    tab.page.wait_for_selector("#panel .command")
    commands = tab.page.locator("#panel .command code").all_text_contents()
    assert commands[:2] == ["./tidegate status --data /x", "./tidegate logs kafka -n 100 --data /x"]
    assert tab.page.locator("#panel .command button").count() == len(commands)
    assert "./tidegate audit --since 1h --data /x" in tab.page.locator("#panel li code").all_text_contents()
    tab.page.click("#panel a:text-is('TidegateDiskFull')")
    tab.page.wait_for_selector("#panel h2:text-is('Runbook: TidegateDiskFull')")
    tab.assert_clean()


def test_each_alert_that_a_text_names_has_a_runbook() -> None:
    """As the page finds them; a name that leads nowhere would be worse than none."""
    text = (RUNBOOKS.parent / "page" / "assets" / "runbook.js").read_text("utf-8")
    found = re.search(r"const ALERT = /(.+)/;", text)
    assert found
    known = {file.stem for file in RUNBOOKS.glob("*.md")}
    texts = [file.read_text("utf-8") for file in RUNBOOKS.glob("*.md")]
    texts += [each for alert in ALERTS for each in (alert.impact, *alert.causes, *alert.actions)]
    named = {name for each in texts for name in re.findall(found[1], each)}
    assert named >= {"TidegateDiskFull", "KafkaLagKeepsIncreasing"}
    assert named <= known
    assert {name for name in known if not re.fullmatch(found[1], name)} == set()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9093", "http://a.example/am/", "http://a.example/am/#/alerts"])
def test_an_alert_can_be_silenced_where_alertmanager_is(
    open_tab: Any, scripted_page: Any, page_stories: Stories, url: str
) -> None:
    snapshot = alerting(page_stories)
    snapshot["alertmanager"] = {"url": url, "up": True}
    scripted_page.show(snapshot)
    tab = open_tab()
    tab.page.wait_for_selector(".alert .button:text-is('Silence')")
    base = url.split("#", maxsplit=1)[0].rstrip("/")
    link = tab.page.locator(".alert .button:text-is('Silence')")
    assert (
        link.get_attribute("href") == f"{base}/#/silences/new?filter=%7Balertname%3D%22TidegateKafkaUnreachable%22%7D"
    )
    assert (link.get_attribute("target"), link.get_attribute("rel")) == ("_blank", "noopener noreferrer")


@pytest.mark.parametrize("url", [None, "javascript:alert(1)"])
def test_without_alertmanager_nothing_can_be_silenced(
    open_tab: Any, scripted_page: Any, page_stories: Stories, url: str | None
) -> None:
    snapshot = alerting(page_stories)
    snapshot["alertmanager"] = {"url": url, "up": None}
    scripted_page.show(snapshot)
    tab = open_tab()
    tab.page.wait_for_selector(".alert .button:text-is('Runbook')")
    assert tab.page.locator(".alert .button:text-is('Silence')").count() == 0
