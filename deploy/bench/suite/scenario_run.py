"""Run of a scenario, target by target and cell by cell, with repeats. Errors and interrupts keep what was measured before.

The result names its source: the git revision of the checkout, and whether it had changes.
"""

import os
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from deploy.bench.environment import hardware, versions
from deploy.bench.suite.cell_beds import CellBed, RunTopics
from deploy.bench.suite.curves import curves_of
from deploy.bench.suite.judge import MeasuredCell, judge_cells
from deploy.bench.suite.limiting_resource import join_limits, limit_of
from deploy.bench.suite.live_figures import LiveFigures
from deploy.bench.suite.parameters import cell_text, differing_parameters
from deploy.bench.suite.progress import SuiteProgress
from deploy.bench.suite.resources import ResourceSample, ResourceSampler, busy_during
from deploy.bench.suite.scenario import Cell, Parameters, Scenario, ScenarioTarget
from deploy.bench.suite.spread import Spread, median_curves, middle_run, spreads_of
from deploy.local.artifacts import read_lock
from deploy.testbed.mosquitto import mosquitto_version
from ingest.contract.errors import TidegateError, UnavailableError
from ingest.kafka_settings import KafkaSettings

__all__ = ["RunCell", "ScenarioPlan", "run_plan", "target_text"]

_HELD: Final = 0.95
"""Share of the wanted rate from which the rate itself is the limit: the load could have done more."""
_NO_FIGURES: Final = ("curves", "limit", "over_time")


class RunCell(Protocol):
    """Load generator: it sends and reads the messages of a cell once, with a topic of this name that it makes and removes.

    It returns figures by name. Optional entries are `curves`, lists of (percentile, milliseconds) by name; `over_time`, columns
    `seconds`, `p50`, `p99` (milliseconds) by the same names; and `limit`, a text about what limited the figures.
    """

    def __call__(self, workload: Parameters, topic: str, bed: CellBed) -> Mapping[str, Any]:
        """Run the workload once."""


class RunPeer(Protocol):
    """Load generator with Kafka's own tools, for the same load; the names of its figures begin with `peer_`."""

    def __call__(
        self, workload: Parameters, topic: str, kafka: KafkaSettings, tool: Callable[..., list[str]]
    ) -> Mapping[str, float]:
        """Run the workload once."""


@dataclass(frozen=True)
class ScenarioPlan:
    """One scenario, its cells and the number of repeats."""

    name: str
    scenario: Scenario
    cells: Sequence[Cell]
    repeats: int

    @property
    def steps(self) -> int:
        """Number of measured runs."""
        return len(self.cells) * self.repeats

    def by_target(self) -> Iterator[tuple[ScenarioTarget | None, list[Cell]]]:
        """Yield the targets in the order of the file, each with its cells."""
        for target in dict.fromkeys(cell.target for cell in self.cells):
            yield target, [cell for cell in self.cells if cell.target == target]


def run_plan(
    plan: ScenarioPlan,
    *,
    open_bed: Callable[[ScenarioTarget | None], AbstractContextManager[CellBed]],
    run_cell: RunCell,
    progress: SuiteProgress,
    run_peer: RunPeer | None = None,
    live: LiveFigures | None = None,
    doubt: str = "",
) -> dict[str, Any]:
    """Measure one scenario; return its result as `bench run --json` prints it.

    An interrupt ends the run; the result has what was measured until then, and `interrupted`. If a cell or a target fails, the
    result has the error, and the others run.

    Args:
        plan: scenario, cells and repeats.
        open_bed: opens the bed of a target; the end of the block stops what was started.
        run_cell: the load generator.
        progress: gets a step for each run.
        run_peer: Kafka's own tools, if the scenario compares them.
        live: gets the figures during the run.
        doubt: why the figures are not valid (see `resources.busy_before`); empty if they are.
    """
    machine, interrupted = hardware(), False
    course = _Course(plan, run_cell, run_peer, progress, live or LiveFigures(), doubt)
    try:
        for target, cells in plan.by_target():
            course.run_target(target, cells, open_bed)
    except KeyboardInterrupt:
        interrupted = True
        progress.tell("Interrupted: reporting the results so far.")
    progress.end_step()
    rows = judge_cells(plan.scenario, course.measured)
    return {
        "scenario": plan.name,
        "title": plan.scenario.title,
        "source": plan.scenario.source,
        "note": plan.scenario.note,
        "repeats": plan.repeats,
        "interrupted": interrupted,
        "busy": doubt,
        "cells": rows,
        "curves": curves_of(plan.scenario.curves, rows),
        "shows": list(plan.scenario.shows),
        "baselines": {
            name: {"title": each.title, "source": each.source} for name, each in plan.scenario.baselines.items()
        },
        "faults": course.faults,
        "resources": course.resources,
        "hardware": machine,
        "load_after_1m": round(os.getloadavg()[0], 2),
        "versions": {**versions(), **_server_versions(plan)},
        "revision": revision(),
    }


class _Course:
    """One scenario while it runs, and its figures so far."""

    def __init__(
        self,
        plan: ScenarioPlan,
        run_cell: RunCell,
        run_peer: RunPeer | None,
        progress: SuiteProgress,
        live: LiveFigures,
        doubt: str,
    ) -> None:
        self._plan, self._run_cell, self._run_peer = plan, run_cell, run_peer
        self._seconds = plan.scenario.seconds_per_run
        self._progress, self._live, self._doubt = progress, live, doubt
        self.measured: list[MeasuredCell] = []
        self.resources: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self._marks: list[tuple[float, str]] = []
        """Time at which each cell of a target began (monotonic)."""

    def run_target(
        self,
        target: ScenarioTarget | None,
        cells: Sequence[Cell],
        open_bed: Callable[[ScenarioTarget | None], AbstractContextManager[CellBed]],
    ) -> None:
        """Run a target's cells one after the other. If the target does not start, each cell gets the error."""
        before = len(self.measured)
        self._progress.tell(f"{self._plan.name}: {target_text(target)}")
        try:
            with open_bed(target) as bed:
                self._run_cells(target, cells, bed)
        except Exception as error:  # hours of other cells are worth more than this one's traceback
            missing = cells[len(self.measured) - before :]
            self._progress.skip(len(missing) * self._plan.repeats, self._seconds)
            self._fault(target_text(target), error)
            self.measured += [MeasuredCell(cell.parameters, fault=_text(error)) for cell in missing]

    def _run_cells(self, target: ScenarioTarget | None, cells: Sequence[Cell], bed: CellBed) -> None:
        topics = RunTopics(bed.kafka)
        self._live.target()
        sampler = ResourceSampler(brokers=bed.brokers, jmx_urls=bed.jmx_urls, folder=bed.folder, on_sample=self._look)

        def fit(work: Parameters) -> None:
            if bed.fit is not None:
                bed.fit(work)

        def run_once(work: Parameters) -> Mapping[str, Any]:
            return self._run_cell(work, topics.name(work.ending), bed)

        def run_peer(work: Parameters) -> Mapping[str, float]:
            if self._run_peer is None or bed.tool is None:
                return {}
            return self._run_peer(work, topics.name(work.ending), bed.kafka, bed.tool)

        try:
            with sampler.running():
                for _ in range(self._plan.scenario.warmup_runs):
                    self._progress.tell("Warming up.")
                    fit(cells[0].workload)
                    run_once(cells[0].workload)
                for cell in cells:
                    self._measure(cell, fit, run_once, run_peer, sampler)
        finally:
            marks = [[round(at - sampler.began, 1), text] for at, text in self._marks if at >= sampler.began]
            self.resources.append({"target": target_text(target), "series": sampler.series(), "cells": marks})
            self._marks.clear()
            if bed.makes_topics and (kept := topics.sweep()):
                self._progress.tell(f"Kafka did not delete {', '.join(kept)}; delete them by hand.")

    def _look(self, sample: ResourceSample) -> None:
        progress = self._progress
        self._live.progress(planned=progress.steps, done=progress.done, left_seconds=progress.left_seconds())
        self._live.sample(sample)

    def _measure(
        self,
        cell: Cell,
        fit: Callable[[Parameters], None],
        run_once: Callable[[Parameters], Mapping[str, Any]],
        run_peer: Callable[[Parameters], Mapping[str, float]],
        sampler: ResourceSampler,
    ) -> None:
        """Run all repeats of one cell; an interrupted cell keeps its finished repeats."""
        own: list[dict[str, float]] = []
        runs: list[dict[str, float]] = []
        plots: list[Mapping[str, Any]] = []
        limits: list[str] = []
        peers: list[Mapping[str, float]] = []
        fault, wanted = "", self._plan.repeats
        self._marks.append((time.monotonic(), _cell_text(self._plan, cell).partition(" ")[2]))
        try:
            for number in range(1, wanted + 1):
                self._progress.step(f"{_cell_text(self._plan, cell)}, run {number} of {wanted}", self._seconds)
                fit(cell.workload)
                words = _differing_text(self._plan, cell) or "the only cell"
                self._live.begin(self._plan.name, target_text(cell.target), words, number)
                figures, used = sampler.measure(lambda: run_once(cell.workload))
                plots.append(figures)
                limits.append(figures.get("limit", ""))
                own.append({name: value for name, value in figures.items() if name not in _NO_FIGURES})
                runs.append({**used, **own[-1]})
                self._progress.end_step()
                self._live.measured(own)
            peers = self._peers(cell, run_peer)
        except Exception as error:
            fault = _text(error)
            self._fault(_cell_text(self._plan, cell), error)
            self._progress.end_step(failed=True)
            self._progress.skip(max(0, wanted - len(runs) - 1), self._seconds)
        finally:
            if runs or fault:
                short = f"interrupted after {len(runs)} of {wanted} runs" if len(runs) < wanted else ""
                given = [*runs, *peers]
                self.measured.append(self._measured(cell, given, plots, limits, fault=fault or short, short=short))

    def _peers(self, cell: Cell, run_peer: Callable[[Parameters], Mapping[str, float]]) -> list[Mapping[str, float]]:
        """Measure other clients; if they fail, the cell's own figures still count."""
        found, where = list[Mapping[str, float]](), _cell_text(self._plan, cell)
        try:
            for _ in range(self._plan.scenario.peer_runs):
                found.append(run_peer(cell.workload))
                if lost := found[-1].get("peer_c_lost", 0):
                    loss = UnavailableError(f"it lost {lost:,.6g} records, so the rate of that run is left out")
                    self._fault(f"{where}, C client", loss)
        except Exception as error:  # an error of the tools is not an error of the cell
            self._fault(f"{where}, Kafka's own tools", error)
        return found

    def _measured(
        self,
        cell: Cell,
        runs: Sequence[Mapping[str, float]],
        plots: Sequence[Mapping[str, Any]],
        limits: Sequence[str],
        *,
        fault: str,
        short: str,
    ) -> MeasuredCell:
        spreads = spreads_of(runs)
        medians = {name: spread.median for name, spread in spreads.items()}
        own_limit = join_limits(limits)
        return MeasuredCell(
            cell.parameters,
            spreads,
            doubt=short or _lost_in_any(spreads) or self._doubt or busy_during(medians),
            fault=fault,
            limit=own_limit or limit_of(medians, int(hardware()["cores"] or 1)),
            limits={} if own_limit else self._limits(cell, medians),
            curves=median_curves([figures.get("curves", {}) for figures in plots]),
            over_time=middle_run([figures.get("over_time", {}) for figures in plots]),
            runs=len(plots),
        )

    def _limits(self, cell: Cell, medians: Mapping[str, float]) -> dict[str, str]:
        """Return the limits of the producers' and consumers' rates, by what was busy meanwhile."""
        cores, rate = int(hardware()["cores"] or 1), cell.workload.rate
        sides = {"produce_per_second": cell.workload.producers, "consume_per_second": cell.workload.consumers}
        sides["publish_per_second"] = cell.workload.producers
        streams = cell.workload.mode == "stream"
        return {
            name: f"the load was held to {rate:,.6g} records a second"
            if rate and medians[name] >= _HELD * rate
            else limit_of(medians, cores, name, processes=count, streams=streams)
            for name, count in sides.items()
            if name in medians
        }

    def _fault(self, where: str, error: Exception) -> None:
        self.faults.append(f"{where}: {_text(error)}")
        self._live.fault()
        self._progress.tell(self.faults[-1])


def _text(error: Exception) -> str:
    """Return an error as its own sentence; an unexpected one with the place where it happened."""
    if isinstance(error, TidegateError):
        return str(error)
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"unexpected {type(error).__name__} in {Path(last.filename).name}, line {last.lineno}: {error}"


def _server_versions(plan: ScenarioPlan) -> dict[str, str]:
    """Return the versions of the servers that a scenario starts; the version of an existing cluster is unknown."""
    targets = [cell.target for cell in plan.cells if cell.target is not None]
    modes = {target.metadata for target in targets if target.runs != "mosquitto"}
    jars = {"kraft": ("kafka", "kafka_2.13"), "zookeeper": ("zookeeper", "kafka-clients")}
    found = {(jar.part, jar.name): jar.version for jar in read_lock()}
    versions = {f"kafka ({mode})": found[jars[mode]] for mode in sorted(modes)}
    if any(target.runs == "mosquitto" for target in targets):
        versions["mosquitto"] = mosquitto_version()
    return versions


def _lost_in_any(spreads: Mapping[str, Spread]) -> str:
    """Return the doubt of a rate with missing records."""
    lost = spreads["lost"].high if "lost" in spreads else 0
    return f"a run lost {lost:,.6g} records" if lost > 0 else ""


def target_text(target: ScenarioTarget | None) -> str:
    """Return a target in words."""
    if target is None:
        return "the given cluster"
    if target.runs == "pipeline":
        return "a whole pipeline"
    if target.runs == "streams":
        disk = f" on a disk of {target.disk_mb} MB" if target.disk_mb else ""
        return f"the SQL streams{' in real-time mode' if target.realtime else ''}{disk}"
    if target.runs == "own":
        return "its own parts"
    if target.runs == "mosquitto":
        return f"mosquitto, {target.security}"
    brokers = "1 broker" if target.brokers == 1 else f"{target.brokers} brokers"
    return f"{brokers}, {'KRaft' if target.metadata == 'kraft' else 'ZooKeeper'}, {target.security}"


def _cell_text(plan: ScenarioPlan, cell: Cell) -> str:
    return f"{plan.name} {_differing_text(plan, cell)}".strip()


def _differing_text(plan: ScenarioPlan, cell: Cell) -> str:
    """Return the parameters in which this scenario's cells differ; empty if it has only one cell."""
    names = differing_parameters([one.workload.model_dump() for one in plan.cells])
    return cell_text(cell.workload.model_dump(), names) if names else ""


def revision(folder: Path = Path(__file__).parent) -> str:
    """Return the revision, such as `1a2b3c4d5e6f`, with `-dirty` if files differ from it; empty for an installed wheel."""
    try:
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        return f"{commit}-dirty" if _git(folder, "status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()
