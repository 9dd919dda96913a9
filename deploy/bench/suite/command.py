"""`bench run` from flags to results: plans, the confirmation for an existing cluster, the rate limit, and output for people."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from deploy.bench.environment import hardware_line
from deploy.bench.kafka_load.workload import AWAITED_MB
from deploy.bench.suite.cell_beds import CellBed, cluster_bed, existing_bed, mosquitto_bed
from deploy.bench.suite.cell_kinds import run_cell as run_kind
from deploy.bench.suite.cell_kinds import run_peer
from deploy.bench.suite.library import estimated_seconds, load_scenario, set_parameters
from deploy.bench.suite.live_figures import serve_live
from deploy.bench.suite.parameters import cell_text, differing_parameters
from deploy.bench.suite.progress import SuiteProgress, duration_text
from deploy.bench.suite.report.html_tables import number_text
from deploy.bench.suite.resources import busy_before
from deploy.bench.suite.scenario import Cell, Parameters, ScenarioTarget
from deploy.bench.suite.scenario_run import RunCell, ScenarioPlan, run_plan, target_text
from deploy.bench.temporary import PREFIX, clear_orphans
from deploy.settings import Settings, load_settings
from deploy.testbed.budget import check_budget
from deploy.testbed.cluster_layout import ClusterRequest
from ingest.contract.errors import ConfigError, FatalError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from monitoring.targets import metrics_targets

__all__ = [
    "RunRequest",
    "check_disk",
    "clusters_too_large",
    "exit_code",
    "plan_of",
    "render_result",
    "run_scenarios",
]

KEPT_RUNS: Final = 4
"""Kafka deletes a removed topic's files later: so many runs are on the disk at once, but of large ones each is waited for."""
SHOWN: Final = 6
"""Number of a scenario's figures in the terminal; the report has all."""
_QUIET_SECONDS: Final = 1.0
"""Time for which the processors are watched before the first start."""
RECORD_BYTES: Final = 20
"""Bytes of a record besides its value."""
_EXISTING: Final = (
    "An existing cluster was measured. Processors, memory, IO wait and context switches are those of the machine that ran the "
    "load; figures of the brokers come from their JMX agents (`monitoring.targets` in the target's file)."
)


@dataclass(frozen=True)
class RunRequest:
    """The flags of `bench run`."""

    names: tuple[str, ...]
    target: Path | None = None
    agreed: bool = False
    max_rate: float = 10_000.0
    repeats: int | None = None
    short: bool = False
    parameters: tuple[str, ...] = ()
    metrics_port: int | None = None


def run_scenarios(
    request: RunRequest,
    *,
    say: Callable[[str], object],
    ask: Callable[[str], bool],
    run_cell: RunCell | None = None,
) -> list[dict[str, Any]]:
    """Measure all scenarios that are named, one after the other; an interrupt ends the run with what there is.

    Raises:
        ConfigError: a scenario or a target's file that cannot be read; nothing was started then.
        FatalError: the question before an existing cluster was answered with no.
        UnavailableError: a scenario writes more than the disk holds, or the port of the metrics cannot be had.
    """
    existing = _existing(request.target) if request.target is not None else None
    kafka = None if existing is None else existing.kafka
    plans = [plan_of(name, request, kafka) for name in dict.fromkeys(request.names)]
    if kafka is not None and not request.agreed and not ask(_question(plans, kafka)):
        msg = "Nothing was written. Give --yes to start without the question."
        raise FatalError(msg)
    for folder in clear_orphans(Path(tempfile.gettempdir())):
        say(f"Removed the files of a benchmark that was killed: {folder}.")
    if kafka is None:
        check_disk(plans, shutil.disk_usage(tempfile.gettempdir()).free // 10**6)
        for line in clusters_too_large(plans):
            say(line)
    doubt = busy_before(psutil.cpu_percent(_QUIET_SECONDS) / 100 * (psutil.cpu_count() or 1))
    if doubt:
        say(f"No goal will be reported as met: {doubt}.")
    seconds = sum(estimated_seconds(plan.scenario, repeats=plan.repeats) for plan in plans)
    say(f"{len(plans)} scenarios, {sum(len(plan.cells) for plan in plans)} workloads, about {duration_text(seconds)}.")
    steps = sum(plan.steps for plan in plans)
    runs = sum(plan.steps * plan.scenario.seconds_per_run for plan in plans)
    progress = SuiteProgress(say, steps=steps, seconds_per_step=runs / steps)
    results: list[dict[str, Any]] = []

    def open_bed(target: ScenarioTarget | None) -> AbstractContextManager[CellBed]:
        return _bed(target, existing)

    with serve_live(request.metrics_port) as live:
        for plan in plans:
            one = run_plan(
                plan,
                open_bed=open_bed,
                run_cell=run_cell or run_kind,
                run_peer=run_peer,
                progress=progress,
                live=live,
                doubt=doubt,
            )
            results.append(one)
            if one["interrupted"]:
                break
    return results


def plan_of(name: str, request: RunRequest, kafka: KafkaSettings | None) -> ScenarioPlan:
    """One scenario by the flags; against an existing cluster once, and within the rate cap.

    Raises:
        ConfigError: there is no such scenario, its file is wrong, or none of its clusters can run any of its workloads.
    """
    name, scenario = load_scenario(name)
    scenario = set_parameters(scenario.shortened() if request.short else scenario, request.parameters)
    cells = scenario.cells()
    if kafka is not None and all(one.runs != "kafka" for one in scenario.targets):
        msg = (
            f"The scenario {name} measures a pipeline, not a Kafka cluster. Use `bench e2e --config` with its settings"
        )
        raise ConfigError(msg)
    if kafka is not None and any(work.kind == "failover" for work in scenario.workloads):
        msg = f"The scenario {name} kills servers, so it starts its own clusters. Leave --target out"
        raise ConfigError(msg)
    if kafka is not None:
        cells = [
            Cell(workload=_capped(work, request.max_rate), target=None)
            for work in scenario.workloads
            if work.kind != "mqtt"
        ]
        scenario = scenario.model_copy(update={"note": f"{scenario.note} {_EXISTING}".strip()})
    if not cells:
        why = " ".join(scenario.obstacles()) or "no block fits one of its targets."
        msg = f"The scenario {name} has no cell: {why}"
        raise ConfigError(msg)
    return ScenarioPlan(name, scenario, cells, request.repeats or scenario.repeats)


def check_disk(plans: Sequence[ScenarioPlan], free_mb: int) -> None:
    """Compare what scenarios write with the free disk, before anything starts.

    Raises:
        UnavailableError: the first that does not fit; with what it needs, what is free, and the next step.
    """
    for plan in plans:
        most = max((cell.workload for cell in plan.cells), key=_megabytes)
        needed = _needed_mb(_megabytes(most))
        if needed > free_mb:
            msg = (
                f"The scenario {plan.name} needs about {needed:,.0f} MB of disk in {tempfile.gettempdir()}, and {free_mb:,} MB "
                f"are free; {_fitting(most, free_mb)} would fit. Set TMPDIR to a larger disk, or give --short."
            )
            raise UnavailableError(msg)


def clusters_too_large(plans: Sequence[ScenarioPlan]) -> Iterator[str]:
    """A line for each cluster that memory or disk cannot hold now: its cells will have no figures, and the others run."""
    targets = dict.fromkeys(cell.target for plan in plans for cell in plan.cells)
    for target in targets:
        if target is None or target.runs != "kafka":
            continue
        try:
            check_budget(ClusterRequest(target.brokers, target.metadata), Path(tempfile.gettempdir()))
        except UnavailableError as error:
            yield f"Cannot measure {target_text(target)}: {error}"


def exit_code(results: Sequence[Mapping[str, Any]]) -> int:
    """0 where no goal was missed and each run of each cell was measured, 130 after an interrupt, else 1."""
    if any(result["interrupted"] for result in results):
        return 130
    cells = [cell for result in results for cell in result["cells"]]
    return 1 if any(cell["met"] is False or not cell["spread"] or cell["fault"] for cell in cells) else 0


def render_result(result: Mapping[str, Any]) -> str:
    """One scenario for people: a line per cell."""
    cells = result["cells"]
    lines = [f"{result['scenario']}: {result['title']}; medians of {result['repeats']}"]
    names = differing_parameters(cells)
    for cell in cells:
        lines.append(f"  {cell_text(cell, names)}: {_figures_text(cell, result['shows'][:SHOWN])}")
        lines += _verdict_lines(cell["goals"])
        if not cell["goals"] and cell["why"]:
            lines.append(f"    {cell['why']}")
    for curve in result["curves"]:
        where = f" ({curve['where']})" if curve["where"] else ""
        lines.append(f"  {curve['figure']} over {curve['axis']}{where}: {curve['says']}")
    return "\n".join([*lines, hardware_line(result["hardware"])])


def _verdict_lines(goals: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line per verdict, so that a goal that was met is not read as missed because another one was."""
    for met, verdict in ((False, "MISSED"), (None, "undecided"), (True, "met")):
        same = [goal for goal in goals if goal["met"] is met]
        if same:
            whys = "; ".join(dict.fromkeys(goal["why"] for goal in same if goal["why"]))
            yield f"    {verdict}: {'; '.join(goal['goal'] for goal in same)}{f' ({whys})' if whys else ''}"


def _figures_text(cell: Mapping[str, Any], shows: Sequence[str]) -> str:
    if "measure" in cell:
        shown = [cell["measure"]]
    else:
        known = (
            "produce_per_second", "consume_per_second", "publish_per_second", "ack_p99_ms", "puback_p99_ms", "end_to_end_p99_ms",
            "broker_cpu_us_per_message", "errors", "lost",
        )  # fmt: skip
        shown = list(dict.fromkeys([*(goal["figure"] for goal in cell["goals"]), *shows, *known]))
    found = {name: cell["spread"][name] for name in shown if name in cell["spread"]}
    texts = []
    for name, spread in found.items():
        spans = f" ({number_text(spread['min'])} to {number_text(spread['max'])})" if len(spread["runs"]) > 1 else ""
        texts.append(f"{name} {number_text(spread['median'])}{spans}")
    return ", ".join(texts) or "not measured"


def _existing(file: Path) -> Settings:
    settings = load_settings(file)
    if "kafka" not in settings.model_fields_set:
        msg = f"{file}: has no section [kafka]. --target needs the settings of the cluster to measure."
        raise ConfigError(msg)
    return settings


def _capped(workload: Parameters, rate: float) -> Parameters:
    return workload.model_copy(update={"rate": min(workload.rate or rate, rate)})


def _megabytes(work: Parameters) -> float:
    return _written(work) * (work.message_bytes + RECORD_BYTES) * work.replication / 1e6


def _written(work: Parameters) -> int:
    return work.messages * work.sessions + work.warmup_messages + work.retained_mb * 1_000_000 // work.message_bytes


def _needed_mb(run_mb: float) -> float:
    """Return the MB of disk that a scenario needs whose largest run writes this much."""
    return run_mb + (KEPT_RUNS - 1) * min(run_mb, AWAITED_MB)


def _fitting(most: Parameters, free_mb: int) -> str:
    """The largest run that this disk would hold, in words."""
    share = max(free_mb / KEPT_RUNS, free_mb - (KEPT_RUNS - 1) * AWAITED_MB) / _megabytes(most)
    if most.retained_mb:
        fits = max(0, int(most.retained_mb - (1 - share) * _megabytes(most) / most.replication))
        return f"retained_mb = {fits} in a copy of its file"
    return f"{int(most.messages * share):,} messages of {most.message_bytes} B"


def _question(plans: Sequence[ScenarioPlan], kafka: KafkaSettings) -> str:
    works = [(cell.workload, plan.repeats) for plan in plans for cell in plan.cells]
    # The first cell runs without being counted too, and each run has its own warm-up: both are written like the others.
    works += [(plan.cells[0].workload, plan.scenario.warmup_runs) for plan in plans]
    messages = sum(_written(work) * repeats for work, repeats in works)
    megabytes = sum(_megabytes(work) * repeats for work, repeats in works)
    return (
        f"Write {messages:,} messages ({megabytes:,.0f} MB) to topics {PREFIX}* of {kafka.bootstrap_servers}, at most "
        f"{max(work.rate for work, _ in works):,.0f} a second? Each topic is deleted after its run; other topics stay."
    )


def _bed(target: ScenarioTarget | None, existing: Settings | None) -> AbstractContextManager[CellBed]:
    if existing is not None:
        agents = metrics_targets(existing.monitoring).get("kafka", ())
        return existing_bed(existing.kafka, {each.instance: each.address.url for each in agents})
    if target is None:
        raise AssertionError
    if target.runs == "pipeline":
        from deploy.bench.suite.pipeline_bed import pipeline_bed

        return pipeline_bed()
    if target.runs == "streams":
        from deploy.bench.suite.sql_streams import streams_bed

        return streams_bed(target)
    if target.runs == "own":
        from deploy.bench.suite.own_parts import own_bed

        return own_bed()
    return mosquitto_bed(target) if target.runs == "mosquitto" else cluster_bed(target)
