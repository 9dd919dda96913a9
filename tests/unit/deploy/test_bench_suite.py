"""Scenarios as data: the form, the cells, the verdicts, and a whole run with a load that needs no Kafka."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from deploy.bench.kafka_load.workload import Workload
from deploy.bench.suite.cell_beds import CellBed, RunTopics, cluster_bed
from deploy.bench.suite.command import exit_code
from deploy.bench.suite.judge import MeasuredCell, judge_cells
from deploy.bench.suite.library import list_scenarios, load_scenario, scenario_names
from deploy.bench.suite.progress import SuiteProgress, duration_text
from deploy.bench.suite.resources import busy_before
from deploy.bench.suite.scenario import Parameters, Scenario, ScenarioTarget
from deploy.bench.suite.scenario_run import ScenarioPlan, run_plan
from deploy.bench.suite.spread import spread_of
from ingest.contract.errors import ConfigError, UnavailableError
from ingest.kafka_settings import KafkaSettings

SMALL = """
title = "two sizes"
repeats = 3
warmup_runs = 1
measures = ["produce_per_second"]
[workload]
messages = 100
[[matrix]]
message_bytes = [10, 20]
mode = ["split", "stream"]
[[goals]]
figure = "produce_per_second"
at_least = { times = 2, baseline = "paper" }
[[goals]]
figure = "produce_per_second"
at_least = { times = 0.7, cell = { mode = "split" } }
when = { mode = "stream" }
[baselines.paper]
title = "Paper"
source = "table 1"
columns = ["message_bytes", "produce_per_second"]
rows = [[10, 1000], [20, 2000]]
"""


@pytest.fixture
def own(tmp_path: Path) -> Callable[[str], Scenario]:
    def write(text: str) -> Scenario:
        file = tmp_path / "own.toml"
        file.write_text(text, "utf-8")
        return load_scenario(str(file))[1]

    return write


@pytest.fixture(autouse=True)
def no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunTopics, "sweep", lambda self: [])


def measure(scenario: Scenario, figures: Callable[[Parameters, str], Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    told: list[str] = []

    @contextmanager
    def open_bed(target: ScenarioTarget | None) -> Iterator[CellBed]:
        yield CellBed(KafkaSettings())

    plan = ScenarioPlan("own", scenario, scenario.cells(), scenario.repeats)
    progress = SuiteProgress(told.append, steps=plan.steps, seconds_per_step=1.0)
    given: dict[str, Any] = {"open_bed": open_bed, "run_cell": lambda work, topic, bed: figures(work, topic), **more}
    return {**run_plan(plan, progress=progress, **given), "told": told}


def test_a_measured_broker_runs_with_both_compilers_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded Kafka stops at the first one, which triples the CPU of each request."""
    seen: dict[str, Any] = {}

    def open_cluster(_folder: Path, **options: Any) -> Any:
        seen.update(options)
        raise UnavailableError("not here")

    monkeypatch.setattr("deploy.testbed.cluster.open_cluster", open_cluster)
    with pytest.raises(UnavailableError, match="not here"), cluster_bed(ScenarioTarget()):
        pass
    assert seen["java_options"] == ("-XX:TieredStopAtLevel=4",)


def test_every_shipped_scenario_is_valid_and_listed() -> None:
    assert {"dsbs", "table-ii", "secure", "segments"} <= set(scenario_names())
    for one in list_scenarios():
        assert one["title"]
        assert one["cells"] > 0
        assert 0 < one["short_minutes"] < one["minutes"]


def test_dsbs_has_28_cells_for_each_cluster_each_with_its_baselines() -> None:
    _, scenario = load_scenario("dsbs")
    everything = judge_cells(scenario, [MeasuredCell(cell.parameters) for cell in scenario.cells()])
    cells = [cell for cell in everything if cell["replication"] == 1]
    counts = Counter((cell["brokers"], cell["metadata"]) for cell in cells)
    assert counts == {(1, "zookeeper"): 28, (1, "kraft"): 28, (3, "zookeeper"): 28, (3, "kraft"): 28}
    copied = [cell for cell in everything if cell["replication"] == 3]
    assert Counter((cell["brokers"], cell["metadata"]) for cell in copied) == {(3, "zookeeper"): 8, (3, "kraft"): 8}
    assert {"0.25 x" in cell["goal"] for cell in copied if cell["measure"] == "produce_per_second"} == {True}
    assert not any("2 x" in cell["goal"] for cell in copied)
    for cell in cells:
        assert set(cell["baselines"]) == {"zookeeper", "dsbs"}
        assert "2 x" in cell["goal"]
        assert cell["met"] is None
    chosen = next(c for c in cells if (c["message_bytes"], c["batch_records"], c["mode"]) == (32, 50, "stream"))
    assert chosen["baselines"]["dsbs"] == {"produce_per_second": 184_901, "consume_per_second": 93_625}


def test_table_ii_has_the_four_topics_of_the_paper() -> None:
    _, scenario = load_scenario("table-ii")
    cells = judge_cells(scenario, [MeasuredCell(cell.parameters) for cell in scenario.cells()])
    one = [cell for cell in cells if cell["brokers"] == 1 and cell["security"] == "plaintext"]
    assert [(cell["ending"], cell["messages"]) for cell in one] == [
        ("Rvce", 100),
        ("Bangalore", 1000),
        ("Karnataka", 5000),
        ("India", 10_000),
    ]
    assert [cell["baselines"]["paper"]["errors_per_second"] for cell in one] == [0, 0, 0.2, 0.2]
    # The paper's total time, printed as ms, is read as seconds: Kafka knows whole milliseconds only.
    assert [goal["bound"] for cell in one for goal in cell["goals"] if goal["figure"] == "produce_total_ms_mean"] == [
        pytest.approx(each) for each in (4, 4.5, 15, 40)
    ]


def test_a_scenario_has_the_parameters_of_the_load_with_the_same_defaults() -> None:
    load = {field.name: field.default for field in fields(Workload)}
    ours = {name: field.default for name, field in Parameters.model_fields.items()}
    assert set(load) - {"topic"} <= set(ours)
    assert {name: default for name, default in load.items() if name in ours and default != ours[name]} == {
        "messages": MISSING,
        "properties": (),
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('title = "x"\nrepeat = 3', "Did you mean repeats?"),
        ('title = "x"\n[workload]\nmesages = 3', "unknown key mesages. Did you mean messages?"),
        ('title = "x"\n[[matrix]]\nmode = ["both"]', "mode"),
        ('title = "x"\n[[targets]]\nbrokers = 0', "targets.0.brokers"),
        ('title = "x"\n[[goals]]\nfigure = "lost"', "give either at_least or at_most"),
        ('title = "x"\n[[goals]]\nfigure = "lost"\nat_most = 0\nwhen = { size = 3 }', "not parameters"),
        ('title = "x"\n[[goals]]\nfigure = "a"\nat_least = { times = 2, baseline = "b" }', "baseline 'b'"),
        ('title = "x"\n[workload]\nconsumers = 2', "at most 1, the number of partitions"),
        ('title = "x"\n[workload]\nrate = inf', "rate"),
        ('title = "x"\n[[goals]]\nfigure = "lost"\nat_most = nan', "finite"),
        ('title = "x"\n[short]\nworkload = { mesages = 3 }', "Did you mean messages?"),
        (
            'title = "x"\n[baselines.b]\ntitle = "b"\nsource = "s"\ncolumns = ["messages", "lost"]\nrows = [[3, 1]]',
            "matches no cell",
        ),
        ('title = "x"\n[baselines.b]\ntitle = "b"\nsource = "s"\ncolumns = ["lost"]\nrows = [[3, 1]]', "row 1"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_the_nearest_name(
    own: Callable[[str], Scenario], text: str, wanted: str
) -> None:
    with pytest.raises(ConfigError, match=r"own\.toml") as fault:
        own(text)
    assert wanted in str(fault.value)
    assert fault.value.exit_code == 78


def test_an_unknown_scenario_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean table-ii") as fault:
        load_scenario("tableii")
    assert fault.value.exit_code == 78
    with pytest.raises(ConfigError, match=r"gone\.toml: no such file. .*bench ls.*table-ii"):
        load_scenario("gone.toml")


def test_a_run_measures_each_cell_by_its_repeats_in_topics_of_its_own(own: Callable[[str], Scenario]) -> None:
    topics: list[str] = []
    speeds = itertools.count(4000, 100)

    def figures(work: Parameters, topic: str) -> dict[str, Any]:
        topics.append(topic)
        return {"produce_per_second": float(next(speeds)), "curves": {"ack": [(50.0, 1.0), (99.0, 3.0)]}}

    result = measure(own(SMALL), figures)
    assert len(topics) == len(set(topics)) == 4 * 3 + 1
    assert all(topic.startswith("tidegate-bench-") for topic in topics)
    assert len(result["cells"]) == 4
    first = result["cells"][0]
    # The first run was the warm-up.
    assert first["spread"]["produce_per_second"]["runs"] == [4100, 4200, 4300]
    assert (first["value"], first["message_bytes"], first["brokers"]) == (4200, 10, 1)
    assert first["curves"] == {"ack": [[50.0, 1.0], [99.0, 3.0]]}
    assert {"scenario", "cells", "hardware", "versions", "revision", "load_after_1m"} <= set(result)
    assert sum(line.startswith("[") for line in result["told"]) == 12
    json.dumps(result)


def quiet(scenario: Scenario, speeds: Mapping[tuple[int, str], float], **more: Any) -> list[dict[str, Any]]:
    measured = [
        MeasuredCell(
            cell.parameters,
            {"produce_per_second": spread_of([speeds[cell.workload.message_bytes, cell.workload.mode]])},
            **more,
        )
        for cell in scenario.cells()
    ]
    return judge_cells(scenario, measured)


def test_goals_compare_with_a_baseline_and_with_another_cell(own: Callable[[str], Scenario]) -> None:
    speeds = {(10, "split"): 2500.0, (10, "stream"): 2000.0, (20, "split"): 3900.0, (20, "stream"): 4000.0}
    cells = quiet(own(SMALL), speeds, limits={"produce_per_second": "all cores were busy"})
    assert [cell["met"] for cell in cells] == [True, True, False, True]
    assert cells[2]["why"] == "produce_per_second is 3,900; all cores were busy"
    assert cells[1]["goal"] == (
        "produce_per_second >= 2,000 (2 x 1,000, Paper); produce_per_second >= 1,750 (0.7 x 2,500, mode=split)"
    )
    slow = quiet(own(SMALL), {**speeds, (20, "split"): 6000.0})
    assert [cell["met"] for cell in slow] == [True, True, True, False]


def test_a_bound_from_a_doubtful_cell_claims_nothing(own: Callable[[str], Scenario]) -> None:
    scenario = own(SMALL)
    spreads = {"produce_per_second": spread_of([5000.0])}
    doubts = {(10, "split"): "other programs used 1 cores during the run"}
    cells = judge_cells(
        scenario,
        [
            MeasuredCell(
                cell.parameters, spreads, doubt=doubts.get((cell.workload.message_bytes, cell.workload.mode), "")
            )
            for cell in scenario.cells()
        ],
    )
    assert [cell["met"] for cell in cells] == [None, None, True, True]
    assert cells[1]["why"] == "the bound from mode=split is doubtful: other programs used 1 cores during the run"


def test_a_load_that_reaches_its_rate_is_held_by_nothing_else(
    own: Callable[[str], Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.bench.suite.scenario_run.busy_during", lambda figures: "")
    scenario = own(SMALL.replace("messages = 100", "messages = 100\nrate = 500"))
    result = measure(scenario, lambda work, topic: {"produce_per_second": 490.0})
    assert result["cells"][0]["why"].endswith("; the load was held to 500 records a second")
    slow = measure(scenario, lambda work, topic: {"produce_per_second": 300.0})
    assert "held" not in slow["cells"][0]["why"]


def test_a_busy_machine_claims_nothing(own: Callable[[str], Scenario]) -> None:
    assert busy_before(1.1) == "the machine was busy before the start: 1.10 cores were used, wanted at most 0.25"
    assert busy_before(0.2) == ""
    result = measure(own(SMALL), lambda work, topic: {"produce_per_second": 1e6}, doubt=busy_before(3.0))
    assert {cell["met"] for cell in result["cells"]} == {None}
    assert all("3.00 cores were used" in cell["why"] for cell in result["cells"])


def test_a_loss_in_one_run_of_five_is_a_loss_also_on_a_busy_machine(own: Callable[[str], Scenario]) -> None:
    text = SMALL.replace('measures = ["produce_per_second"]', "").replace(
        "[baselines.paper]", '[[goals]]\nfigure = "lost"\nat_most = 0\n[baselines.paper]'
    )
    scenario = own(text)
    runs = {"lost": spread_of([0.0, 0.0, 7.0, 0.0, 0.0]), "produce_per_second": spread_of([1e6])}
    for doubt in ("", "the machine was busy"):
        cells = judge_cells(scenario, [MeasuredCell(cell.parameters, runs, doubt=doubt) for cell in scenario.cells()])
        assert {cell["met"] for cell in cells} == {False}
        assert all("lost is 7 in the worst of 5 runs" in cell["why"] for cell in cells)
    calls = itertools.count()
    # Of a scenario without a goal for lost records: its rates are not claimed.
    result = measure(own(SMALL), lambda work, topic: {"produce_per_second": 1e6, "lost": float(next(calls) % 3 == 0)})
    assert {cell["met"] for cell in result["cells"]} == {None}
    assert {cell["why"] for cell in result["cells"]} == {"a run lost 1 records"}
    # Of a run whose brokers' counts are not known the promise is not known either.
    calls = itertools.count()
    seen = measure(
        scenario, lambda work, topic: {"produce_per_second": 1e6} | ({"lost": 0.0} if next(calls) % 3 else {})
    )
    assert all("lost was measured in 2 of 3 runs" in cell["why"] and cell["met"] is None for cell in seen["cells"])


def test_an_interrupt_keeps_what_was_measured_and_ends_what_was_started(own: Callable[[str], Scenario]) -> None:
    calls, ended = itertools.count(), list[str]()

    @contextmanager
    def open_bed(target: ScenarioTarget | None) -> Iterator[CellBed]:
        try:
            yield CellBed(KafkaSettings())
        finally:
            ended.append("cluster")

    def figures(work: Parameters, topic: str, bed: CellBed) -> dict[str, float]:
        if next(calls) == 5:
            raise KeyboardInterrupt
        return {"produce_per_second": 1e6}

    result = measure(own(SMALL), lambda work, topic: {}, open_bed=open_bed, run_cell=figures)
    assert result["interrupted"]
    assert ended == ["cluster"]
    assert [len(cell["spread"]["produce_per_second"]["runs"]) for cell in result["cells"]] == [3, 1]
    assert result["cells"][1]["met"] is None
    assert "interrupted after 1 of 3 runs" in result["cells"][1]["why"]
    assert [cell["fault"] for cell in result["cells"]] == ["", "interrupted after 1 of 3 runs"]


def test_kafkas_own_tools_stand_next_to_the_figures_and_their_failure_leaves_those(
    own: Callable[[str], Scenario],
) -> None:
    @contextmanager
    def open_bed(target: ScenarioTarget | None) -> Iterator[CellBed]:
        yield CellBed(KafkaSettings(), tool=lambda *arguments: [])

    def peer(work: Parameters, topic: str, kafka: KafkaSettings, tool: object) -> dict[str, float]:
        if work.message_bytes == 20:
            message = "the tool failed"
            raise UnavailableError(message) if work.mode == "split" else KeyError(message)
        return {"peer_produce_per_second": 7.0} | ({"peer_c_lost": 1200.0} if work.mode == "stream" else {})

    result = measure(own(SMALL), lambda work, topic: {"produce_per_second": 1e6}, open_bed=open_bed, run_peer=peer)
    assert [cell.get("peer_produce_per_second") for cell in result["cells"]] == [7, 7, None, None]
    assert [(cell["value"], cell["fault"]) for cell in result["cells"]] == [(1e6, "")] * 4
    lost, failed, unforeseen = result["faults"]
    assert (
        lost == "own message_bytes=10 mode=stream, C client: it lost 1,200 records, so the rate of that run is left out"
    )
    assert failed == "own message_bytes=20 mode=split, Kafka's own tools: the tool failed"
    assert "mode=stream, Kafka's own tools: unexpected KeyError" in unforeseen


def test_a_cell_or_target_that_fails_says_why_and_the_others_run(own: Callable[[str], Scenario]) -> None:
    def figures(work: Parameters, topic: str) -> dict[str, float]:
        if work.message_bytes == 20 and work.mode == "split":
            message = "no right to create topics"
            raise UnavailableError(message)
        return {"produce_per_second": 1e6}

    result = measure(own(SMALL), figures)
    # The stream's second goal needs the split cell that failed.
    assert [cell["why"] for cell in result["cells"]][2] == "no right to create topics"
    assert [len(cell["spread"]) > 0 for cell in result["cells"]] == [True, True, False, True]
    assert result["faults"] == ["own message_bytes=20 mode=split: no right to create topics"]

    @contextmanager
    def open_bed(target: ScenarioTarget | None) -> Iterator[CellBed]:
        message = "too little memory"
        raise UnavailableError(message)
        yield

    result = measure(own(SMALL), figures, open_bed=open_bed)
    assert [cell["why"] for cell in result["cells"]] == ["too little memory"] * 4


def test_a_fault_that_nobody_foresaw_costs_its_cell_alone(own: Callable[[str], Scenario]) -> None:
    def figures(work: Parameters, topic: str) -> dict[str, float]:
        if work.message_bytes == 20 and work.mode == "split":
            raise KeyError("rate")
        return {"produce_per_second": 1e6}

    result = measure(own(SMALL), figures)
    assert [cell["value"] for cell in result["cells"]] == [1e6, 1e6, None, 1e6]
    assert "unexpected KeyError in test_bench_suite.py, line" in result["cells"][2]["why"]
    assert exit_code([result]) == 1


def test_a_cell_of_which_a_run_failed_was_not_measured(own: Callable[[str], Scenario]) -> None:
    calls = itertools.count()

    def figures(work: Parameters, topic: str) -> dict[str, float]:
        if next(calls) == 2:
            raise UnavailableError("Kafka is away")
        return {"produce_per_second": 1e6}

    text = SMALL.partition("[[goals]]")[0]
    result = measure(own(text), figures)
    first, *others = result["cells"]
    assert (first["fault"], len(first["spread"]["produce_per_second"]["runs"])) == ("Kafka is away", 1)
    assert not any(cell["fault"] for cell in others)
    assert exit_code([result]) == 1


def test_progress_estimates_the_time_left_from_what_was_done() -> None:
    now, told = [0.0], list[str]()
    progress = SuiteProgress(told.append, steps=4, seconds_per_step=10.0, clock=lambda: now[0])
    progress.step("a")
    now[0] = 60.0
    progress.step("b")
    assert told == ["[1/4] a, 40 s left", "[2/4] b, 3 min left"]
    assert [duration_text(seconds) for seconds in (0.2, 89, 600, 4800)] == ["1 s", "89 s", "10 min", "1 h 20 min"]


def test_the_time_left_weighs_each_run_by_its_scenario() -> None:
    """A run of `ksql` takes minutes, and one of `dsbs` a second: how many there are says nothing of the time."""
    now, told = [0.0], list[str]()
    progress = SuiteProgress(told.append, steps=4, seconds_per_step=305.0, clock=lambda: now[0])

    @contextmanager
    def open_bed(target: ScenarioTarget | None) -> Iterator[CellBed]:
        yield CellBed(KafkaSettings())

    for seconds in (10.0, 600.0):
        scenario = Scenario.model_validate(
            {"title": "x", "matrix": [{"message_bytes": [10, 20]}], "seconds_per_run": seconds, "repeats": 1}
        )

        def run_cell(work: Parameters, topic: str, bed: CellBed, seconds: float = seconds) -> Mapping[str, Any]:
            now[0] += 2 * seconds
            return {"lost": 0}

        plan = ScenarioPlan("x", scenario, scenario.cells(), 1)
        run_plan(plan, progress=progress, open_bed=open_bed, run_cell=run_cell)
    lefts = [line.rpartition(", ")[2] for line in told if line.startswith("[")]
    assert lefts == ["20 min left", "40 min left", "40 min left", "20 min left"]


def test_steps_that_failed_or_will_not_come_do_not_speed_up_the_others() -> None:
    now, told = [0.0], list[str]()
    progress = SuiteProgress(told.append, steps=5, seconds_per_step=60.0, clock=lambda: now[0])
    progress.step("a", 100.0)
    now[0] = 200.0
    progress.step("b", 100.0)
    assert told[-1] == "[2/5] b, 7 min left", "200 s were expected, and each takes twice as long"
    progress.end_step(failed=True)
    progress.skip(1, 40.0)
    progress.step("c", 60.0)
    assert told[-1] == "[3/4] c, 2 min left"
