# ruff: noqa: E501, RUF001 - the page writes dashes and minus signs as people do
"""How the page writes figures: three digits are enough, a rounded share never reaches its objective, the unknown is a dash."""

from typing import Any

import pytest

CALL = "async ([name, args]) => (await import('/assets/format.js'))[name](...args.map((a) => (a === 'inf' ? Infinity : a === 'nan' ? NaN : a)))"

CASES: list[tuple[str, list[Any], Any]] = [
    ("number", [None], "–"), ("number", ["nan"], "–"), ("number", ["inf"], "∞"), ("number", ["text"], "–"),
    ("number", [0], "0"), ("number", [0.00001], "<0.001"), ("number", [0.123], "0.12"), ("number", [1.234], "1.23"),
    ("number", [823.47], "823"), ("number", [99_999], "99,999"), ("number", [100_000], "100 k"), ("number", [999_999], "1 M"),
    ("number", [1_204_331], "1.20 M"), ("number", [-1_204_331], "−1.20 M"), ("number", [1e21], "1.00e+6 P"),
    ("millis", [4.2], "4.20 ms"), ("millis", [1204], "1.20 s"), ("millis", [90_000], "1 min 30 s"), ("millis", [-340], "−340 ms"),
    ("latency", [60_000], "> 60 s"), ("latency", [59_300], "59.3 s"), ("latency", [None], "–"),
    ("share", [0.99558, 0.98], "99.55 %"), ("share", [0.99921, 0.99], "99.92 %"), ("share", [0.999987, 0.999], "99.998 %"),
    ("share", [0.97999, 0.98], "97.99 %"), ("share", [1, 0.99], "100 %"), ("share", [0.57, 0.99], "57 %"), ("share", [None, 0.99], "–"),
    ("budgetLeft", [0.921], "92.1 %"), ("budgetLeft", [0], "none left"), ("budgetLeft", [-99], "none left (spent 100 times)"),
    ("budgetLeft", [-0.25], "none left (spent 1.3 times)"), ("budgetLeft", [None], "–"),
    ("duration", [0.83], "0.8 s"), ("duration", [59.7], "1 min"), ("duration", [3600], "1 h"), ("duration", [5230], "1 h 27 min"),
    ("duration", [200_000], "2 d 7 h"), ("duration", [-90], "−1 min 30 s"), ("duration", ["inf"], "∞"), ("duration", [1e12], "11.6 M d"),
    ("bytes", [0], "0 B"), ("bytes", [1536], "1.50 KiB"), ("bytes", [5_212_004_112], "4.85 GiB"), ("bytes", [None], "–"),
    ("percent", [0.99921], "99.921 %"), ("percent", [0.9999999], "99.999 %"), ("percent", [1], "100 %"), ("percent", [0.5], "50 %"),
    ("percent", [0], "0 %"), ("percent", [-0.25], "−25 %"), ("percent", [None], "–"),
    ("figure", [3, "/s"], "3 /s"), ("figure", [None, "/s"], "–"), ("figure", [840, "ms"], "840 ms"), ("figure", [7, ""], "7"),
    ("reading", [1018.3], "1018.3"), ("reading", [-0.5], "−0.5"), ("reading", [3.615], "3.615"), ("reading", [2e12], "2.000e+12"),
    ("ticks", [[3.61, 3.615, 3.62], 0.005], ["3.610", "3.615", "3.620"]), ("ticks", [[10, 20], 10], ["10", "20"]), ("ticks", [[20, 22.5], 2.5], ["20.0", "22.5"]),
    ("clock", [None], "–"), ("clock", ["no time"], "–"), ("utc", [0], "1970-01-01T00:00:00.000Z"), ("utc", [1e300], ""),
]  # fmt: skip


@pytest.fixture(scope="module")
def tab(chromium: Any, tmp_path_factory: pytest.TempPathFactory, serve_page: Any) -> Any:
    """One page for all: the modules are pure."""
    served = serve_page(tmp_path_factory.mktemp("page"))
    page = chromium.new_page()
    page.goto(served.url)
    yield page
    page.close()
    served.close()


def test_figures_are_written_for_people(tab: Any) -> None:
    shown = [(name, given, tab.evaluate(CALL, [name, given])) for name, given, _ in CASES]
    assert [each for each in shown if each not in CASES] == []
