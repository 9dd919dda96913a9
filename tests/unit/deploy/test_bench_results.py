"""Results of `bench run`: compared, gated, reported; and the resources that a run used."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.bench.suite.compare import compare_results, read_results, render_comparison
from deploy.bench.suite.gate import gate_results, read_bounds, render_gate
from deploy.bench.suite.judge import MeasuredCell, judge_cells
from deploy.bench.suite.limiting_resource import join_limits, limit_of
from deploy.bench.suite.report.charts import charts_of, latency_charts
from deploy.bench.suite.report.html_report import check_folder, render_report, write_report
from deploy.bench.suite.report.html_tables import number_text
from deploy.bench.suite.scenario import Scenario
from deploy.bench.suite.spread import better, differs, median_curves, spread_of
from deploy.commands.bench import app
from ingest.contract.errors import ConfigError

SCENARIO = Scenario.model_validate(
    {
        "title": "sizes <b>",
        "matrix": [{"message_bytes": [10, 100], "batch_records": [1, 20]}],
        "goals": [{"figure": "produce_per_second", "at_least": {"times": 2, "baseline": "paper"}}],
        "baselines": {
            "paper": {
                "title": "Paper",
                "source": "table 1",
                "columns": ["batch_records", "produce_per_second"],
                "rows": [[1, 100], [20, 1000]],
            }
        },
    }
)


def result(factor: float = 1.0, **more: Any) -> dict[str, Any]:
    measured = []
    for number, cell in enumerate(SCENARIO.cells()):
        speed = (number + 1) * 900 * factor
        figures = {
            "produce_per_second": spread_of([speed, speed * 1.02, speed * 0.98]),
            "ack_p99_ms": spread_of([2.0, 2.0, 2.1]),
            "client_cpu_cores": spread_of([0.5]),
            "peer_produce_per_second": spread_of([5000.0]),
        }
        measured.append(
            MeasuredCell(cell.parameters, figures, curves={"ack": [[50.0, 1.0], [99.0, 2.0], [100.0, 9.0]]})
        )
    series = {"seconds": [1.0, 2.0], "broker_cpu_cores": [0.1, 0.2], "bytes_in_per_second": [5.0, None]}
    return {
        "scenario": "sizes", "title": SCENARIO.title, "source": "", "note": "", "repeats": 3, "interrupted": False,
        "busy": "", "cells": judge_cells(SCENARIO, measured), "faults": [], "load_after_1m": 0.2,
        "baselines": {"paper": {"title": "Paper", "source": "table 1"}},
        "resources": [{"target": "1 broker", "series": series}],
        "hardware": {"cpu": "a processor", "cores": 2, "memory_gb": 24.0, "load_1m": 0.1}, "versions": {"python": "3"},
        "revision": "1a2b3c", **more,
    }  # fmt: skip


def test_spread_is_median_range_and_middle_half() -> None:
    spread = spread_of([10.0, 12.0, 11.0, 30.0, 9.0])
    assert (spread.median, spread.low, spread.high) == (11, 9, 30)
    assert spread.iqr_ratio == pytest.approx(2 / 11, abs=1e-4)
    assert spread_of([5.0]).iqr_ratio == 0
    assert median_curves([{"ack": [(50.0, 1.0)]}, {"ack": [(50.0, 3.0)]}, {}]) == {"ack": [[50.0, 2.0]]}


def test_figures_differ_only_beyond_the_spread_of_both() -> None:
    steady, noisy, higher = spread_of([100, 101]), spread_of([80, 130]), spread_of([120, 121])
    assert differs(steady, higher) == 1
    assert differs(higher, steady) == -1
    assert differs(noisy, higher) == 0
    assert differs(spread_of([100.0]), spread_of([104.0])) == 0
    ways = {"produce_per_second": 1, "ack_p99_ms": -1, "errors": -1, "lost": -1, "client_cpu_us_per_message": -1}
    ways |= {"broker_rss_mb": 0, "produced": 0, "bytes_in_per_second": 0, "errors_per_second": -1, "late_ms": -1}
    assert {figure: better(figure) for figure in ways} == ways


def test_compare_names_the_cells_that_got_worse_and_no_other() -> None:
    same = compare_results([result()], [result(1.01)])
    assert (same["compared"], same["differences"], same["worse"]) == (4, [], 0)
    worse = compare_results([result()], [result(0.5)])
    assert worse["worse"] == 4
    assert worse["differences"][0]["cell"] == "message_bytes=10 batch_records=1"
    assert "-50.0%" in render_comparison(worse)
    faster = compare_results([result(0.5)], [result()])
    assert {one["verdict"] for one in faster["differences"]} == {"better"}
    assert not compare_results([result(hardware={"cpu": "x", "cores": 8})], [result()])["same_machine"]


def test_compare_names_cells_that_failed_or_are_gone_and_says_what_disturbed_either() -> None:
    before, after = result(), result(busy="the machine was busy before the start: load 3.0 on 2 cores")
    after["cells"][0] |= {"spread": {}, "why": "Kafka does not answer"}
    del after["cells"][1]["spread"]["ack_p99_ms"]
    del after["cells"][2]
    after["cells"][2]["spread"] = {
        name: spread_of(values["runs"][:1]).as_dict() for name, values in after["cells"][2]["spread"].items()
    }
    after["cells"][2]["spread"]["other_cpu_cores"] = spread_of([1.0]).as_dict()
    after["interrupted"] = True
    compared = compare_results([before], [after])
    assert (compared["compared"], compared["worse"], compared["only_before"], compared["only_after"]) == (3, 0, 1, 0)
    words = render_comparison(compared).splitlines()
    for line in (
        "  failed   sizes message_bytes=10 batch_records=1: Kafka does not answer",
        "  sizes message_bytes=100 batch_records=1",
        "In the second, the machine was busy before the start: load 3.0 on 2 cores.",
        "In the second, the run was interrupted.",
        "In the second, other programs used the processors during 1 of 2 cells.",
        "In the second, 1 of 2 cells have one run, so the spread is unknown and 5% is assumed.",
        "  sizes message_bytes=10 batch_records=20: ack_p99_ms",
    ):
        assert line in words
    with pytest.raises(
        ConfigError, match="no cell in common: the first holds 4 cells of sizes, the second 4 cells of o"
    ):
        compare_results([before], [result(scenario="other")])


def test_a_result_of_before_a_parameter_came_still_compares() -> None:
    before = result()
    for cell in before["cells"]:
        del cell["kind"], cell["compression"]
    assert compare_results([before], [result()])["compared"] == 4


def test_a_loss_in_one_run_is_worse_than_none() -> None:
    before, after = result(), result()
    for one, runs in ((before, [0, 0, 0]), (after, [0, 2, 0])):
        one["cells"][0]["spread"]["lost"] = spread_of(runs).as_dict()
    worse = compare_results([before], [after])
    assert [(one["figure"], one["before"], one["after"], one["verdict"]) for one in worse["differences"]] == [
        ("lost", 0, 2, "worse")
    ]
    assert compare_results([after], [before])["differences"][0]["verdict"] == "better"
    assert compare_results([before], [before])["differences"] == []


def test_gate_names_the_cells_that_miss_and_bounds_that_meet_none(tmp_path: Path) -> None:
    file = tmp_path / "bounds.toml"
    file.write_text(
        '[[bounds]]\nscenario = "sizes"\nfigure = "produce_per_second"\nat_least = 1000\nwhen = { message_bytes = 10 }\n'
        '[[bounds]]\nscenario = "sizes"\nfigure = "ack_p99_ms"\nat_most = 5\n'
        '[[bounds]]\nscenario = "other"\nfigure = "lost"\nat_most = 0\n'
    )
    judged = gate_results([result()], read_bounds(file))
    assert judged["checked"] == 6
    assert [(one["scenario"], one["value"]) for one in judged["missed"]] == [("sizes", 900), ("other", None)]
    assert "batch_records=1" in judged["missed"][0]["cell"]
    assert "produce_per_second is 900, wanted at least 1,000" in render_gate(judged)
    for text, words in (
        ('figur = "lost"\nat_most = 0', "unknown key bounds"),
        ('figure = "lost"\nat_most = 0\nwhen = { mesages = 3 }', "when names mesages.* nearest is messages"),
        ('figure = "lost"\nat_most = 0\nat_least = 1', r"at_least \(1\) is above at_most \(0\)"),
    ):
        file.write_text(f'[[bounds]]\nscenario = "sizes"\n{text}\n')
        with pytest.raises(ConfigError, match=words):
            read_bounds(file)


def test_gate_says_why_a_bound_meets_nothing(tmp_path: Path) -> None:
    failed = result(busy="load 3")
    failed["cells"][0] |= {"spread": {}, "why": "Kafka does not answer"}
    file = tmp_path / "bounds.toml"

    def misses(text: str) -> list[tuple[str, str]]:
        file.write_text(f"[[bounds]]\n{text}\n")
        judged = gate_results([failed], read_bounds(file))
        assert "Measured on a busy machine: load 3." in render_gate(judged)
        return [(one["cell"], one["why"]) for one in judged["missed"]]

    assert misses('scenario = "size"\nfigure = "lost"\nat_most = 0') == [
        ("no cell", "the result holds sizes. Did you mean sizes?")
    ]
    assert misses('scenario = "sizes"\nfigure = "ack_p9_ms"\nat_most = 0') == [
        ("no cell", "no cell has this figure. Did you mean ack_p99_ms?")
    ]
    assert misses('scenario = "sizes"\nfigure = "ack_p99_ms"\nat_most = 5') == [
        ("message_bytes=10 batch_records=1", "Kafka does not answer")
    ]


def test_gate_takes_the_worst_run_where_none_may_come(tmp_path: Path) -> None:
    one = result()
    one["cells"][0]["spread"]["lost"] = spread_of([0, 3, 0]).as_dict()
    file = tmp_path / "bounds.toml"
    file.write_text(
        '[[bounds]]\nscenario = "sizes"\nfigure = "lost"\nat_most = 0\nwhen = { message_bytes = 10, batch_records = 1 }\n'
    )
    assert [miss["value"] for miss in gate_results([one], read_bounds(file))["missed"]] == [3]


def test_the_commands_read_files_and_exit_by_their_finding(tmp_path: Path) -> None:
    before, after, bounds = (tmp_path / name for name in ("a.json", "b.json", "bounds.toml"))
    before.write_text(json.dumps(result()))
    after.write_text(json.dumps([result(0.5)]))
    bounds.write_text('[[bounds]]\nscenario = "sizes"\nfigure = "produce_per_second"\nat_least = 800\n')

    def code(*arguments: object) -> int:
        return CliRunner().invoke(app, [str(argument) for argument in arguments]).exit_code

    assert code("compare", before, before) == 0
    assert code("compare", before, after, "--json") == 1
    assert code("gate", before, "--bounds", bounds) == 0
    assert code("gate", after, "--bounds", bounds, "--json") == 1
    assert code("ls", "--json") == 0
    assert code("run") == 2


@pytest.mark.parametrize(
    "text",
    [
        "[]", '{"cells": 3}', '{"scenario": "s", "cells": 3}', '{"scenario": "s", "cells": [3]}', "[3]", "{", "",
        '{"scenario": "s", "cells": [{"spread": {"lost": 3}}]}', '{"scenario": "s", "cells": [{"spread": {"lost": {}}}]}',
        '{"scenario": "s", "cells": [{"spread": {}}], "hardware": {}}', "\xff",
        '{"scenario": "s", "cells": [{"spread": {}, "acks": []}], "hardware": {"cpu": "c", "cores": 2}}',
    ],
)  # fmt: skip
def test_a_file_that_is_no_result_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match="bench run --json"):
        read_results(tmp_path / "c.json")


def test_the_report_is_one_file_without_any_address(tmp_path: Path) -> None:
    report = write_report([result(busy="load 9", faults=["</script><script>alert(1)"])], tmp_path / "report")
    text = report.read_text("utf-8")
    assert read_results(tmp_path / "report" / "result.json")[0]["scenario"] == "sizes"
    assert not re.findall(r"""(?:src|href)=|url\(|@import|fetch\(""", text)
    assert "sizes &lt;b&gt;" in text
    assert "<script>alert(1)" not in text
    assert "No goal is reported as met: load 9." in text
    for words in (
        "<th>Paper</th>",
        "<th>Kafka&#x27;s tools</th>",
        "<th>Tidegate</th>",
        "882 to 918, middle half 2%",
        "batch 20",
    ):
        assert words in text
    assert text.count('class="missed"') == 1
    assert render_report([result(0.1)]).count('class="missed"') == 3
    assert "No cell was measured" in render_report([result(cells=[])])


def test_numbers_are_written_without_exponents() -> None:
    shown = {0.0: "0", 0.000065: "0.000065", 0.0123456: "0.01235", 12.5: "12.5", 999.96: "1000", 12345.6: "12,346"}
    assert {value: number_text(value) for value in shown} == shown


def test_a_report_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match="cannot write the report"):
            app(["run", "dsbs", "--report", str(folder)], standalone_mode=False)
    check_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_charts_have_a_line_per_cell_and_a_panel_per_kind_of_resource() -> None:
    beside, latency, *used = charts_of(result())
    assert (beside["kind"], beside["names"]) == ("bars", ["Paper", "Kafka's tools", "Tidegate"])
    assert beside["labels"] == ["10 1", "10 20", "100 1", "100 20"]
    assert [[value for value in column if value] for column in beside["data"][1:]] == [
        [100, 1000, 100, 1000], [5000] * 4, [900, 1800, 2700, 3600],
    ]  # fmt: skip
    for places in zip(*beside["data"][1:], strict=True):
        assert sum(value is not None for value in places) <= 1, "bars lie over each other"
    assert (latency["kind"], len(latency["names"])) == ("percentile", 4)
    assert latency["data"][:2] == [[0.301, 2.0, 5.0], [1.0, 2.0, 9.0]]
    assert [chart["names"] for chart in used] == [["broker_cpu_cores"], ["bytes_in_per_second"]]


def test_latency_over_time_has_a_line_per_cell_where_it_was_recorded() -> None:
    one = result()
    courses = [
        {"seconds": [0.1, 0.2], "p50": [1.0, 2.0], "p99": [None, 90.0], "max": [3.0, 95.0]},
        {"seconds": [0.2, 0.4], "p50": [1.0, 1.0], "p99": [2.0, 2.0], "max": [3.0, 3.0]},
    ]
    for cell, course in zip(one["cells"], courses, strict=False):
        cell["over_time"] = {"ack": course}
    (chart,) = (chart for chart in charts_of(one) if chart["group"].startswith("Latency over time"))
    assert chart["title"] == "P99 and p50 over time (ms), due to acknowledged"
    assert [name.partition(" ")[0] for name in chart["names"]] == ["p99", "p99", "p50", "p50"]
    assert chart["data"][:3] == [[0.1, 0.2, 0.4], [None, 90.0, None], [None, 2.0, 2.0]]
    assert chart["logarithmic"], "a stall would hide all other values"


def test_many_cells_make_few_charts_of_few_lines() -> None:
    """Eight at most together; more by target or by workload, whatever makes fewer charts."""

    def charts(targets: int, workloads: int) -> list[list[str]]:
        cells = [
            {"brokers": 1 + target, "message_bytes": 10 + work, "curves": {"ack": [[50.0, 1.0]]}, "over_time": {}}
            for target in range(targets)
            for work in range(workloads)
        ]
        return [chart["names"] for chart in latency_charts([*cells, *cells])]

    assert [len(names) for names in charts(2, 4)] == [8]
    assert [len(names) for names in charts(3, 14)] == [14] * 3
    assert charts(3, 14)[0][0] == "message_bytes=10"
    assert [len(names) for names in charts(6, 2)] == [6] * 2
    assert charts(6, 2)[0][0] == "brokers=1"
    assert charts(1, 20) == [[f"message_bytes={10 + work}" for work in range(20)]]


def test_a_missed_goal_names_what_was_full() -> None:
    assert limit_of({"machine_cpu_cores": 1.9, "broker_cpu_cores": 0.4, "client_cpu_cores": 1.4}, 2) == (
        "all 2 cores were busy, mostly with the clients (1.4 cores)"
    )
    assert limit_of({"io_wait_ratio": 0.4}, 2) == "the processors waited for the disk"
    assert limit_of({"machine_cpu_cores": 1.2, "client_cpu_cores": 0.95}, 2) == "the clients used a whole core"
    assert limit_of({}, 2) == ""


@pytest.mark.parametrize(
    ("broker", "clients", "python", "says"),
    [
        (1.3, 0.6, 0.1, "the cores are the limit: all 2 were busy (Kafka 1.30, clients 0.60, of it Python 0.10)"),
        (0.2, 1.1, 0.95, "Python is the limit (Kafka 0.20, clients 1.10, of it Python 0.95 cores)"),
        (0.5, 0.4, 0.1, "the cores were not full: 0.90 of 2 were busy (Kafka 0.50, clients 0.40, of it Python 0.10)"),
        (None, 0.95, 0.1, "the clients are the limit: clients 0.95, of it Python 0.10 cores"),
        (None, 0.3, 0.1, "the clients were not full: clients 0.30, of it Python 0.10 cores"),
    ],
)
def test_a_slow_rate_names_what_was_full_while_it_was_measured(
    broker: float | None, clients: float, python: float, says: str
) -> None:
    """Between its sessions a run waits and starts processes: the cores of the whole run look idle."""
    figures = {"produce_client_cores": clients, "produce_python_cores": python, "machine_cpu_cores": 0.3}
    figures |= {} if broker is None else {"produce_broker_cores": broker}
    peers = {"peer_produce_per_second": 22_000.0, "peer_c_produce_per_second": 41_000.0}
    assert limit_of(figures, 2, "produce_per_second").startswith(says)
    assert limit_of(figures | peers, 2, "produce_per_second").endswith(
        "; a C client (librdkafka) reached 41,000; Kafka's own tools reached 22,000"
    )
    assert "Python" not in limit_of({"consume_client_cores": 1.0, "produce_python_cores": 0.9}, 2, "consume_per_second")
    rates = {"produce_per_second": 200_000.0, "consume_per_second": 190_000.0}
    assert limit_of(rates, 2, "consume_per_second", streams=True) == "the consumers kept up with the producers"
    assert limit_of(rates, 2, "consume_per_second") == limit_of(rates, 2, "produce_per_second", streams=True) == ""
    assert limit_of(figures | {"io_wait_ratio": 0.4}, 2, "produce_per_second") == "the processors waited for the disk"


def test_the_report_in_markdown_has_paper_figure_and_verdict_in_a_row(tmp_path: Path) -> None:
    write_report([result(faults=["a | b <script>"])], tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert rows[0][2:] == ["figure", "Paper", "Kafka's tools", "Tidegate", "range", "goal", "verdict |"]
    assert {len(row) for row in rows} == {len(rows[0])}
    assert "a \\| b &lt;script>" in text and "sizes &lt;b>" in text
    met = [row for row in rows if row[-1].startswith("met")]
    assert met and all(">=" in row[-2] for row in met)


def test_a_cell_that_lacks_a_run_is_neither_within_a_bound_nor_compared(tmp_path: Path) -> None:
    """Its first runs have figures: as good as those of the others, and no proof."""
    file = tmp_path / "bounds.toml"
    file.write_text('[[bounds]]\nscenario = "sizes"\nfigure = "produce_per_second"\nat_least = 1\n')
    before, cut = result(), result()
    faults = ["Kafka is away", "interrupted after 1 of 5 runs"]
    for cell, fault in zip(cut["cells"], faults, strict=False):
        cell |= {"fault": fault, "why": "produce_per_second is 900"}
        cell["spread"]["produce_per_second"] = spread_of([1.0]).as_dict()
    judged = gate_results([cut], read_bounds(file))
    assert [(one["value"], one["why"]) for one in judged["missed"]] == [(None, fault) for fault in faults]
    assert "produce_per_second is not measured, wanted at least 1 (Kafka is away)" in render_gate(judged)

    compared = compare_results([before], [cut])
    assert [one["why"] for one in compared["unmeasured"]] == faults
    assert (compared["differences"], compared["gone"]) == ([], [])
    assert "  failed   sizes message_bytes=10 batch_records=1: Kafka is away" in render_comparison(compared)
    turned = compare_results([cut], [before])
    assert (turned["differences"], turned["unmeasured"]) == ([], [])
    assert "2 of 4 cells lack some of their runs, and are not compared" in turned["doubts"]["before"]


def test_a_promise_of_every_run_is_not_met_by_the_runs_that_have_the_figure(tmp_path: Path) -> None:
    goals = [{"figure": "lost", "at_most": 0}, {"figure": "pause_ms", "at_most": 9}]
    scenario = Scenario.model_validate({"title": "t", "goals": goals})
    file = tmp_path / "bounds.toml"
    file.write_text('[[bounds]]\nscenario = "t"\nfigure = "lost"\nat_most = 0\n')

    def judged(*lost: float) -> tuple[list[bool | None], str, list[tuple[Any, str]]]:
        figures = {"lost": spread_of(lost), "pause_ms": spread_of([3.0])}
        rows = judge_cells(scenario, [MeasuredCell(scenario.cells()[0].parameters, figures, runs=5)])
        missed = gate_results([{"scenario": "t", "cells": rows}], read_bounds(file))["missed"]
        return (
            [goal["met"] for goal in rows[0]["goals"]],
            rows[0]["why"],
            [(one["value"], one["why"]) for one in missed],
        )

    # A figure that may be absent, such as a pause, has a median of the runs that have it.
    assert judged(*[0.0] * 5) == ([True, True], "", [])
    assert judged(0.0) == ([None, True], "lost was measured in 1 of 5 runs", [(None, "measured in 1 of 5 runs")])
    assert judged(0.0, 2.0) == ([False, True], "lost is 2 in the worst of 2 runs", [(2, "")])


def test_limits_of_runs_that_differ_in_numbers_alone_are_one_sentence() -> None:
    runs = [
        f"the parts used {cores} of 2 cores, stream {stream}" for cores, stream in ((1.8, 1.4), (1.45, 1.4), (1.7, 1.1))
    ]
    assert join_limits([*runs, "", "{the disk} was full"]) == (
        "the parts used 1.45 to 1.8 of 2 cores, stream 1.1 to 1.4; {the disk} was full"
    )
    assert join_limits(["", ""]) == ""
