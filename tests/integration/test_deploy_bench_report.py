"""The report in a browser: opened as a file, each chart drawn once it comes near, all of them on paper, nothing fetched."""

from pathlib import Path
from typing import Any

from deploy.bench.suite.judge import MeasuredCell, judge_cells
from deploy.bench.suite.report.charts import charts_of
from deploy.bench.suite.report.html_report import write_report
from deploy.bench.suite.scenario import Scenario
from deploy.bench.suite.spread import spread_of

SCENARIO = Scenario.model_validate(
    {
        "title": "sizes and batches",
        "matrix": [{"message_bytes": [10, 100, 1000], "batch_records": [1, 20, 50]}],
        "goals": [{"figure": "produce_per_second", "at_least": {"times": 2, "baseline": "paper"}}],
        "baselines": {
            "paper": {
                "title": "Paper", "source": "table 1", "columns": ["batch_records", "produce_per_second"],
                "rows": [[1, 100], [20, 1000]],
            }
        },
    }
)  # fmt: skip


def result(name: str) -> dict[str, Any]:
    measured = []
    for number, cell in enumerate(SCENARIO.cells()):
        course = {
            "seconds": [0.1, 0.2, 0.4],
            "p50": [1.0, None, 2.0],
            "p99": [2.0, 80.0, None],
            "max": [3.0, 90.0, 4.0],
        }
        figures = {"produce_per_second": spread_of([900.0 + number]), "peer_produce_per_second": spread_of([5000.0])}
        curves = {"ack": [[50.0, 1.0], [99.0, 2.0 + number], [100.0, 900.0]]}
        measured.append(MeasuredCell(cell.parameters, figures, curves=curves, over_time={"ack": course}))
    series = {
        "seconds": [1.0, 2.0],
        "broker_cpu_cores": [0.1, 0.2],
        "io_wait_ratio": [0, 0],
        "purgatory_fetch": [1, None],
    }
    curve = {
        "axis": "message_bytes", "figure": "produce_per_second", "where": "", "says": "slope 1; no bend",
        "points": [[10, 900, 890, 910], [100, 905, 900, 910], [1000, 990, 980, 1000]],
    }  # fmt: skip
    return {
        "scenario": name, "title": SCENARIO.title, "source": "", "note": "", "repeats": 1, "interrupted": False, "busy": "",
        "cells": judge_cells(SCENARIO, measured), "faults": [], "load_after_1m": 0.2, "curves": [curve],
        "baselines": {"paper": {"title": "Paper", "source": "table 1"}},
        "resources": [{"target": "1 broker", "series": series, "cells": [[0.0, "message_bytes=10"], [1.5, "message_bytes=100"]]}],
        "hardware": {"cpu": "a processor", "cores": 2, "memory_gb": 24.0, "load_1m": 0.1}, "versions": {"python": "3"},
        "revision": "1a2b3c",
    }  # fmt: skip


def test_the_report_draws_what_is_near_and_all_of_it_on_paper(chromium: Any, tmp_path: Path, wait_until: Any) -> None:
    results = [result("one"), result("two"), result("three")]
    count = sum(len(charts_of(one)) for one in results)
    report = write_report(results, tmp_path)
    page = chromium.new_page(viewport={"width": 1300, "height": 900}, color_scheme="dark")
    words: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: words.append(message.text))
    page.on("pageerror", lambda error: words.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())

    def drawn() -> int:
        return int(page.evaluate("document.querySelectorAll('.uplot canvas').length"))

    page.locator("details").first.scroll_into_view_if_needed()
    wait_until(lambda: drawn() > 0, what="the first chart")
    assert drawn() < count, "hundreds of charts are too many at once"
    assert page.locator("a[href='#three']").count() == 1
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert drawn() == count
    assert page.locator("details:not([open])").count() == 0
    ink = "getComputedStyle(document.documentElement).getPropertyValue('--text').trim()"
    assert page.evaluate(ink) == "#1c2430", "paper is white"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(ink) == "#e3e8ef"
    assert page.locator("details:not([open])").count() > 0
    assert words == []
    assert asked == [report.as_uri()]
    page.close()
