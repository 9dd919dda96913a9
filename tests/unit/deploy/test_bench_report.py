"""`bench report`: several results become one, and fill the tables of a file whose other text a person wrote."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.bench.suite.judge import MeasuredCell, judge_cells
from deploy.bench.suite.library import list_scenarios
from deploy.bench.suite.report.benchmarks_file import BEGIN, END, fill_file, render_standing, render_tables
from deploy.bench.suite.report.html_report import render_report
from deploy.bench.suite.report.markdown import render_markdown
from deploy.bench.suite.report.merge import merge_results
from deploy.bench.suite.scenario import Scenario, ScenarioTarget
from deploy.bench.suite.spread import spread_of
from deploy.commands.bench import app
from ingest.contract.errors import ConfigError

SCENARIO = Scenario.model_validate(
    {
        "title": "both modes",
        "matrix": [{"message_bytes": [10, 100]}],
        "targets": [{"metadata": "zookeeper"}, {"metadata": "kraft"}],
        "goals": [
            {"figure": "produce_per_second", "at_least": {"times": 2, "baseline": "paper"}},
            {"figure": "lost", "at_most": 0},
        ],
        "baselines": {
            "paper": {
                "title": "Paper", "source": "table 1", "columns": ["message_bytes", "produce_per_second"],
                "rows": [[10, 100], [100, 1000]],
            }
        },
    }
)  # fmt: skip


def result(speed: float, **more: Any) -> dict[str, Any]:
    brokers = more.pop("brokers", 1)
    scenario = SCENARIO.model_copy(
        update={"targets": [ScenarioTarget(brokers=brokers, metadata=one.metadata) for one in SCENARIO.targets]}
    )
    measured = [
        MeasuredCell(
            cell.parameters,
            {
                "produce_per_second": spread_of([speed * (2 if cell.parameters["metadata"] == "kraft" else 1)]),
                "peer_produce_per_second": spread_of([5000.0]),
                "peer_c_produce_per_second": spread_of([6000.0]),
                "lost": spread_of([0.0]),
            },
            limit="the clients used a whole core",
        )
        for cell in scenario.cells()
    ]
    return {
        "scenario": "modes", "title": SCENARIO.title, "source": "the paper", "note": "", "repeats": 5, "busy": "",
        "interrupted": False, "cells": judge_cells(scenario, measured), "faults": [], "load_after_1m": 0.2, "shows": [],
        "baselines": {"paper": {"title": "Paper", "source": "table 1"}}, "resources": [], "revision": "1a2b3c",
        "hardware": {"cpu": "a processor", "cores": 2, "memory_gb": 24.0, "load_1m": 0.1}, "versions": {"python": "3"},
        **more,
    }  # fmt: skip


def rows_of(text: str, start: str) -> list[list[str]]:
    lines = text[text.index(start) :].split("\n\n", maxsplit=1)[0].splitlines()
    return [[part.strip() for part in line.strip("|").split("|")] for line in lines if not line.startswith("| ---")]


def test_paper_peer_zookeeper_mode_and_tidegate_stand_in_one_row() -> None:
    text = render_markdown([result(700)])
    heads, *rows = rows_of(text, "| message_bytes")
    assert heads == [
        "message_bytes", "figure", "Paper", "C client", "Kafka's tools", "ZooKeeper mode", "Tidegate", "range", "goal",
        "verdict",
    ]  # fmt: skip
    speeds = [row for row in rows if row[1] == "produce_per_second"]
    assert [row[:7] for row in speeds] == [
        ["10", "produce_per_second", "100", "6,000", "5,000", "700", "1,400"],
        ["100", "produce_per_second", "1,000", "6,000", "5,000", "700", "1,400"],
    ]
    assert speeds[0][-1] == "met"
    assert speeds[1][-1] == (
        "missed: produce_per_second is 1,400; the clients used a whole core; "
        "ZooKeeper mode: missed: produce_per_second is 700; the clients used a whole core"
    )


def test_another_client_has_a_range_like_tidegate_and_one_run_of_it_is_named() -> None:
    single = result(700)
    note = "Other clients ran once in each cell, so the spread of their figures is unknown."
    for cell in single["cells"]:
        cell["spread"]["produce_per_second"] = spread_of([690.0, 700.0, 710.0]).as_dict()
    assert note in render_markdown([single]) and note in render_report([single])
    for cell in single["cells"]:
        cell["spread"]["peer_produce_per_second"] = spread_of([4000.0, 5000.0, 9000.0]).as_dict()
        cell["spread"]["peer_c_produce_per_second"] = spread_of([6000.0, 6000.0, 6100.0]).as_dict()
    text, page = render_markdown([single]), render_report([single])
    assert note not in text + page
    for words in ("5,000 (4,000 to 9,000)", "6,000 (6,000 to 6,100)"):
        assert f" | {words} | " in text and f">{words}<" in page


def test_a_cell_that_streams_shows_no_figure_of_kafkas_tools() -> None:
    """Those of an older result too: they wrote and read one after the other."""
    one = result(700)
    for cell in one["cells"]:
        cell["mode"] = "stream" if cell["message_bytes"] == 100 else "split"
    rows = rows_of(render_markdown([one]), "| message_bytes")
    place = rows[0].index("Kafka's tools")
    speeds = {(row[1], row[place - 1], row[place]) for row in rows[1:] if "produce_per_second" in row}
    assert speeds == {("split", "6,000", "5,000"), ("stream", "6,000", "")}
    for cell in one["cells"]:
        cell["mode"] = "stream"
    assert "Kafka's tools" not in render_markdown([one]) + render_report([one]).replace("&#x27;", "'")


def test_a_result_of_the_older_rule_for_a_busy_machine_says_so() -> None:
    older = result(700, busy="the machine was busy before the start: load 2.1 on 2 cores, wanted at most 1")
    today = result(700, busy="the machine was busy before the start: 1.10 cores were used, wanted at most 0.25")
    words = "wanted at most 1. This revision had that rule. The present rule allows other programs a quarter of a core"
    for text in (render_markdown([older]), render_report([older])):
        assert words in text
    for text in (render_markdown([today]), render_report([today])):
        assert "wanted at most 0.25." in text and "This revision had that rule" not in text


def test_an_interrupted_run_says_that_cells_are_missing() -> None:
    assert "cells that it did not reach are missing" in render_markdown([result(700, interrupted=True)])
    assert "did not reach" not in render_markdown([result(700)])


def test_a_cell_of_zookeeper_mode_without_its_twin_keeps_a_row() -> None:
    one = result(700)
    one["cells"] = [cell for cell in one["cells"] if (cell["metadata"], cell["message_bytes"]) != ("kraft", 100)]
    heads, *rows = rows_of(render_markdown([one]), "| metadata")
    assert "ZooKeeper mode" in heads
    assert [row[:2] for row in rows if row[2] == "produce_per_second"] == [["zookeeper", "100"], ["kraft", "10"]]


def test_the_standing_counts_the_cells_of_each_goal_and_names_the_furthest_miss() -> None:
    _, *rows = rows_of(render_standing([result(700), result(700, scenario="bare", cells=[])]), "| scenario")
    assert rows == [
        ["modes", "produce_per_second >= 2 x Paper", "4", "2", "2", "0", "700 (metadata=zookeeper message_bytes=100)"],
        ["modes", "lost <= 0", "4", "4", "0", "0", ""],
        ["bare", "none", "0", "", "", "", ""],
    ]


def test_results_merge_by_scenario_machine_and_cell_the_last_one_counts() -> None:
    first = result(700, faults=["old"], revision="a")
    again = result(900, revision="b", busy="load 9")
    more = result(800, brokers=3, faults=["new"], revision="b")
    elsewhere = result(100, hardware={"cpu": "another", "cores": 8, "memory_gb": 24.0, "load_1m": 0.1})
    merged = merge_results([first, again, more, elsewhere])
    assert [(one["scenario"], one["hardware"]["cpu"], len(one["cells"])) for one in merged] == [
        ("modes", "a processor", 8),
        ("modes", "another", 4),
    ]
    speeds = {(cell["brokers"], cell["metadata"]): cell["produce_per_second"] for cell in merged[0]["cells"]}
    assert speeds == {(1, "zookeeper"): 900, (1, "kraft"): 1800, (3, "zookeeper"): 800, (3, "kraft"): 1600}
    assert (merged[0]["faults"], merged[0]["revision"], merged[0]["repeats"]) == (["new"], "b", "5")
    assert merged[0]["busy"] == "", "its cells say it where it holds for some only"


def test_sections_come_in_the_order_of_the_list_however_the_files_are_named() -> None:
    listed = [one["name"] for one in list_scenarios()]
    names = [*reversed(listed), "of-my-own", "another"]
    results = [result(700, scenario=name, versions={name: "1"}) for name in names]
    wanted = [*listed, "another", "of-my-own"]
    for given in (results, sorted(results, key=lambda one: str(one["scenario"]))):
        merged = merge_results(given)
        assert [one["scenario"] for one in merged] == wanted
        assert render_tables(merged) == render_tables(merge_results(results))
    text = render_tables(merge_results(results))
    assert [line[3:].partition(":")[0] for line in text.splitlines() if line.startswith("## ")][1:] == wanted


def test_a_file_keeps_the_text_around_its_tables(tmp_path: Path) -> None:
    file = tmp_path / "BENCHMARKS.md"
    file.write_text(f"# Head\n\n{BEGIN}\nold table\n{END}\nfoot\n")
    fill_file(file, [result(700)])
    fill_file(file, [result(900)])
    text = file.read_text()
    assert text.startswith("# Head\n") and text.endswith(f"{END}\nfoot\n")
    assert "old table" not in text and "1,400" not in text and "1,800" in text
    file.write_text("# Head\n")
    with pytest.raises(ConfigError, match="has no line"):
        fill_file(file, [result(700)])
    assert file.read_text() == "# Head\n"
    with pytest.raises(ConfigError, match="cannot write tables"):
        fill_file(tmp_path / "no" / "folder.md", [])


def test_a_call_replaces_the_tables_of_its_own_scenarios_only(tmp_path: Path) -> None:
    names = ["dsbs", "ksql", "secure", "of-my-own"]
    new = [result(900, scenario=name, versions={"python": "3", f"tool of {name}": "1.0"}) for name in names]
    whole, step_by_step = tmp_path / "whole.md", tmp_path / "steps.md"
    fill_file(whole, new)
    fill_file(step_by_step, [result(700, scenario=name, versions={"python": "2"}) for name in names])
    for one in reversed(new):
        fill_file(step_by_step, [one])
        assert [line for line in step_by_step.read_text().splitlines() if line.startswith("## ")] == [
            line for line in whole.read_text().splitlines() if line.startswith("## ")
        ]

    def order(file: Path) -> list[str]:
        """The lines, with the tools of the line of versions in one order."""
        return [
            "".join(sorted(line)) if line.startswith("Versions: ") else line for line in file.read_text().splitlines()
        ]

    assert order(step_by_step) == order(whole)


def test_the_command_reports_files_of_several_runs(tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    one.write_text(json.dumps(result(700)))
    two.write_text(
        json.dumps([result(800, brokers=3), {"scenario": "older", "cells": [], "hardware": {"cpu": "c", "cores": 1}}])
    )

    def run(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["report", *map(str, arguments)])

    assert run(one).stdout == render_tables([result(700)])
    assert [len(each["cells"]) for each in json.loads(run(one, two, "--json").stdout)] == [8, 0]
    file, folder = tmp_path / "B.md", tmp_path / "report"
    done = run(one, two, "--markdown", file, "--report", folder)
    assert done.exit_code == 0 and done.stdout == ""
    assert "## older" in file.read_text() and (folder / "report.html").exists()
    assert run(one, "--markdown", folder).exit_code != 0
    assert run(tmp_path / "none.json").exit_code == 2
