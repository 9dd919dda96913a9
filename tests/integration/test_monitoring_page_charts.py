# ruff: noqa: E501 - scripts are read by line
"""The plots of a device's page on little data: one reading, seconds, an outage, on and off; and its texts."""

import json
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

WORDS = """
window.words = [];
const paint = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const half = this.textAlign === "center" ? this.measureText(text).width / 2 : 0;
  window.words.push({ text, y, right: x + half, room: this.canvas.width });
  return paint.apply(this, arguments);
};"""
"""Writes down what is written on a canvas, and where."""
COLUMNS = """(chart) => {
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--series-1").trim();
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(probe.fillStyle.slice(at, at + 2), 16));
  const canvas = document.querySelectorAll("#device .plot canvas")[chart];
  const { width, height } = canvas;
  const copy = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, width, height);
  return Array.from({ length: width }, (_, x) => {
    const rows = [];
    for (let y = 0; y < height; y += 1) {
      const at = 4 * (y * width + x);
      const far = Math.abs(data[at] - red) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - blue);
      if (data[at + 3] > 100 && far < 60) rows.push(y);
    }
    return rows;
  });
}"""
"""The rows of a chart's canvas, column by column, that have the line's colour."""


@pytest.fixture
def open_device(open_tab: Any) -> Callable[..., Any]:
    """Opens the page of a device that told this."""

    def open_one(metrics: list[dict[str, Any]], *, width: int = 1440, **more: Any) -> Any:
        tab = open_tab(live=False, width=width)
        found = {"device": None, "metrics": metrics, "texts": [], "ledger": {}, "dead_letters": [], **more}
        tab.page.add_init_script(WORDS)
        tab.page.route("**/api/device?*", lambda route: route.fulfill(json=json.loads(json.dumps(found))))
        tab.page.goto(tab.page.url.split("#")[0] + "?own#/device/a")
        tab.page.wait_for_selector("#device h3:text-is('Last readings')")
        if metrics:
            tab.page.wait_for_selector(f"#device canvas >> nth={len(metrics) - 1}")
        return tab

    return open_one


def metric(at: list[float], value: list[float | None], name: str = "m") -> dict[str, Any]:
    return {"metric": name, "unit": "bar", "at": at, "value": value}


def painted(tab: Any, chart: int = 0) -> list[list[int]]:
    """The columns, once there is something in one of them."""
    tab.wait(f"({COLUMNS})({chart}).some((rows) => rows.length)")
    found: list[list[int]] = tab.page.evaluate(COLUMNS, chart)
    return found


def times(tab: Any) -> list[dict[str, Any]]:
    """Words of the axis of time that was written last: those furthest down."""
    tab.wait("window.words.some(({ text }) => text.includes(':'))")
    words: list[dict[str, Any]] = tab.page.evaluate("window.words.filter(({ text }) => /^\\d\\d:\\d\\d/.test(text))")
    first = words[-1]["text"]
    begin = next((n for n in range(len(words) - 2, -1, -1) if words[n]["right"] > words[n + 1]["right"]), -1)
    assert first
    return words[begin + 1 :]


def test_one_reading_is_a_point_on_an_axis_of_a_minute(open_device: Callable[..., Any]) -> None:
    tab = open_device([metric([time.time() - 5], [4.2])])
    columns = painted(tab)
    there = [x for x, rows in enumerate(columns) if rows]
    assert 2 <= there[-1] - there[0] <= 16
    words = [word["text"] for word in times(tab)]
    assert 2 <= len(words) == len(set(words)), words
    assert tab.page.inner_text("#device .chart output") == "4.2 bar"
    tab.assert_clean()


@pytest.mark.parametrize("span", [3, 20, 61, 400, 90_000, 3_000_000, 400_000_000])
def test_no_two_ticks_say_the_same_and_the_last_one_is_whole(open_device: Callable[..., Any], span: int) -> None:
    now = time.time() // 3600 * 3600  # a tick stands at the very end
    tab = open_device([metric([now - span + span * n / 50 for n in range(51)], [float(n) for n in range(51)])])
    painted(tab)
    tab.wait("window.words.length > 4")
    words = tab.page.evaluate(
        "(() => { const low = Math.max(...window.words.map(({ y }) => y)); return window.words.filter(({ y }) => y === low); })()"
    )
    begin = next((n for n in range(len(words) - 2, -1, -1) if words[n]["right"] >= words[n + 1]["right"]), -1)
    shown = words[begin + 1 :]
    assert len(shown) >= 2
    assert len({word["text"] for word in shown}) == len(shown), shown
    assert all(word["right"] <= word["room"] for word in shown), shown
    tab.assert_clean()


def test_an_outage_is_a_gap_and_no_line(open_device: Callable[..., Any]) -> None:
    now = time.time()
    at = [now - 600 + 2 * n for n in range(100)] + [now - 200 + 2 * n for n in range(100)]
    tab = open_device([metric(at, [1.0 + n % 3 for n in range(200)])])
    there = [x for x, rows in enumerate(painted(tab)) if rows]
    holes = [after - before for before, after in pairwise(there) if after - before > 1]
    assert len(holes) == 1
    assert 0.25 < holes[0] / (there[-1] - there[0]) < 0.45


def test_a_sample_between_two_gaps_is_seen(open_device: Callable[..., Any]) -> None:
    now = time.time()
    at = [now - 900 + 2 * n for n in range(100)] + [now - 400] + [now - 100 + n for n in range(90)]
    tab = open_device([metric(at, [1.0 + n % 2 for n in range(len(at))])])
    there = [x for x, rows in enumerate(painted(tab)) if rows]
    holes = [after - before for before, after in pairwise(there) if after - before > 1]
    assert len(holes) == 2


def test_on_and_off_is_drawn_in_steps(open_device: Callable[..., Any]) -> None:
    now = time.time()
    tab = open_device(
        [metric([now - 100 + 10 * n for n in range(10)], [0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0])]
    )
    columns = painted(tab)
    rows = [row for column in columns for row in column]
    low, high = max(rows), min(rows)
    middle = [c for c in columns if c and any(abs(row - (low + high) / 2) < (low - high) / 4 for row in c)]
    assert len(middle) <= 4 * 4  # only where it changes, a line's width each
    marks = tab.page.evaluate("window.words.filter(({ text }) => !text.includes(':')).map(({ text }) => text)")
    assert set(marks) == {"0", "1"}


def test_texts_are_listed_and_stay_text(open_device: Callable[..., Any]) -> None:
    now = time.time()
    hostile = "<img src=x onerror=alert(1)>\u202e\x1b[31m"
    texts = [
        {"metric": "state", "text": "run", "first_at": now - 50, "last_at": now, "count": 51},
        {"metric": hostile, "text": hostile, "first_at": now - 9, "last_at": now - 9, "count": 1},
    ]
    tab = open_device([], texts=texts)
    tab.page.wait_for_selector("h4:text-is('Text readings')")
    rows = tab.page.locator("#device tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.children].map((cell) => cell.textContent))"
    )
    assert (rows[0][:2], rows[0][4]) == (["state", "run"], "51")
    assert rows[1][:2] == ["<img src=x onerror=alert(1)>\\u{202e}\\u{1b}[31m"] * 2
    assert tab.page.locator("#device img").count() == 0
    tab.assert_clean()


def test_a_device_without_any_reading_says_so(open_device: Callable[..., Any]) -> None:
    tab = open_device([])
    tab.page.wait_for_selector("text=No readings yet.")
    assert tab.page.locator("h4:text-is('Text readings')").is_hidden()


@pytest.mark.parametrize(
    ("gap", "unread", "words"),
    [
        (2, 2, "Missing in sequence: 2. Up to 2 of them arrived and were rejected without a readable number."),
        (
            5,
            2,
            "Missing in sequence: 5. Up to 2 of them arrived and were rejected without a readable number. At least 3 did not arrive.",
        ),
        (2, 0, ""),
        (0, 7, ""),
        (2, None, ""),
    ],
)
def test_a_gap_says_how_much_of_it_may_have_been_refused(
    open_device: Callable[..., Any], gap: int, unread: int | None, words: str
) -> None:
    tab = open_device([], ledger={"received": 8, "gap": gap}, refused_unread=unread)
    tab.wait(f"document.querySelector('[data-ledger=gap]').dataset.value === '{gap}'")
    assert tab.page.inner_text("[data-ledger=gap] >> xpath=ancestor::section >> p") == words
