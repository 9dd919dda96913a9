"""Cells of the result: medians next to the baselines, and each goal with its bound: met, missed, or undecided with the reason."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.bench.suite.scenario import Factor, Goal, Scenario
from deploy.bench.suite.spread import Spread

__all__ = ["MeasuredCell", "count_kept_runs", "judge_cells"]


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """One cell after its repeats.

    `fault` says why runs are missing, all or some, `doubt` why the figures prove nothing, `limit` which resource was full,
    `limits` the same for the figures of which more is known. `runs` is how many there were, where that is known.
    """

    parameters: Mapping[str, Any]
    figures: Mapping[str, Spread] = field(default_factory=dict)
    doubt: str = ""
    fault: str = ""
    limit: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, Any] = field(default_factory=dict)
    over_time: Mapping[str, Any] = field(default_factory=dict)
    runs: int = 0


def judge_cells(scenario: Scenario, measured: Sequence[MeasuredCell]) -> list[dict[str, Any]]:
    """One row per cell, or per cell and measure where the scenario names measures."""
    return [_row(scenario, one, measure, measured) for one in measured for measure in (scenario.measures or [""])]


def _row(scenario: Scenario, one: MeasuredCell, measure: str, everything: Sequence[MeasuredCell]) -> dict[str, Any]:
    goals = [
        _verdict(scenario, goal, one, everything)
        for goal in scenario.goals
        if (not measure or goal.figure == measure) and _meets(one.parameters, goal.when)
    ]
    head: dict[str, Any] = dict(one.parameters)
    if measure:
        value = one.figures.get(measure)
        head |= {"measure": measure, "value": value.median if value else None}
    figures = {name: spread.median for name, spread in one.figures.items()}
    baselines = {name: each.figures_of(one.parameters) for name, each in scenario.baselines.items()}
    # A figure that is named like a parameter (such as the rate) would hide it.
    return {
        **{name: value for name, value in figures.items() if name not in head},
        **head,
        "spread": {name: spread.as_dict() for name, spread in one.figures.items()},
        "curves": dict(one.curves),
        "over_time": dict(one.over_time),
        "baselines": {name: figures for name, figures in baselines.items() if figures},
        "goal": "; ".join(goal["goal"] for goal in goals),
        "goals": goals,
        "met": _together([goal["met"] for goal in goals]),
        "fault": one.fault,
        "run_count": one.runs,
        "why": "; ".join(dict.fromkeys(goal["why"] for goal in goals if goal["why"])) or one.fault or one.doubt,
    }


def _meets(parameters: Mapping[str, Any], when: Mapping[str, Any]) -> bool:
    return all(parameters.get(name) == value for name, value in when.items())


def _together(verdicts: Sequence[bool | None]) -> bool | None:
    if False in verdicts:
        return False
    return None if None in verdicts or not verdicts else True


def _verdict(scenario: Scenario, goal: Goal, one: MeasuredCell, everything: Sequence[MeasuredCell]) -> dict[str, Any]:
    bound, meaning, base_doubt = _bound(scenario, goal, one, everything)
    spread = one.figures.get(goal.figure)
    value = None if spread is None else spread.high if goal.at_most == 0 else spread.median
    sign = ">=" if goal.at_least is not None else "<="
    shown = f"{bound:,.6g}" if bound is not None else "?"
    verdict = {
        "figure": goal.figure, "goal": f"{goal.figure} {sign} {shown}{meaning}", "bound": bound, "value": value,
        "rule": f"{goal.figure} {sign} {_rule(scenario, goal.bound)}",
    }  # fmt: skip
    if spread is not None and goal.at_most == 0 and spread.high > 0:
        # At most 0 holds for every run: a median would hide one loss in five, and a busy machine does not explain a loss.
        count = len(spread.runs)
        worst = f" in the worst of {count} runs" if count > 1 else ""
        limit = _limit_text(one, goal.figure)
        return {**verdict, "met": False, "why": f"{goal.figure} is {spread.high:,.6g}{worst}{limit}"}
    missing = one.fault or _missing(goal, spread, one.runs)
    if missing or value is None:
        return {**verdict, "met": None, "why": missing}
    if bound is None:
        return {**verdict, "met": None, "why": f"nothing to compare {goal.figure} with{meaning}"}
    if doubt := one.doubt or base_doubt:
        return {**verdict, "met": None, "why": doubt}
    if value >= bound if goal.at_least is not None else value <= bound:
        return {**verdict, "met": True, "why": ""}
    limit = _limit_text(one, goal.figure)
    return {**verdict, "met": False, "why": f"{goal.figure} is {value:,.6g}{limit}"}


def _missing(goal: Goal, spread: Spread | None, runs: int) -> str:
    if spread is None:
        return f"{goal.figure} was not measured"
    few = count_kept_runs(len(spread.runs), runs) if goal.at_most == 0 else ""
    return f"{goal.figure} was {few}" if few else ""


def count_kept_runs(measured: int, runs: int) -> str:
    """Return how many runs measured a promise that holds for every run; empty if all did, or their number is not known."""
    return f"measured in {measured} of {runs} runs" if measured < runs else ""


def _limit_text(one: MeasuredCell, figure: str) -> str:
    limit = one.limits.get(figure, one.limit)
    return f"; {limit}" if limit else ""


def _bound(
    scenario: Scenario, goal: Goal, one: MeasuredCell, everything: Sequence[MeasuredCell]
) -> tuple[float | None, str, str]:
    """The number, where it comes from in brackets, and why another cell that it comes from proves nothing."""
    bound, doubt = goal.bound, ""
    if not isinstance(bound, Factor):
        return bound, "", ""
    if bound.baseline is not None:
        baseline = scenario.baselines[bound.baseline]
        base, name = baseline.figures_of(one.parameters).get(goal.figure), baseline.title
    else:
        name = " ".join(f"{key}={value}" for key, value in (bound.cell or {}).items())
        other = next(_with_figure({**one.parameters, **(bound.cell or {})}, goal.figure, everything), None)
        base = None if other is None else other.figures[goal.figure].median
        doubt = f"the bound from {name} is doubtful: {other.doubt}" if other is not None and other.doubt else ""
    if base is None:
        return None, f" ({bound.times:g} x {name}, which has none)", ""
    return base * bound.times, f" ({bound.times:g} x {base:,.6g}, {name})", doubt


def _rule(scenario: Scenario, bound: float | Factor) -> str:
    """The bound as the scenario has it: the same for all cells of a goal."""
    if not isinstance(bound, Factor):
        return f"{bound:,.6g}"
    if bound.baseline is not None:
        return f"{bound.times:g} x {scenario.baselines[bound.baseline].title}"
    return f"{bound.times:g} x {' '.join(f'{name}={value}' for name, value in (bound.cell or {}).items())}"


def _with_figure(
    parameters: Mapping[str, Any], figure: str, everything: Sequence[MeasuredCell]
) -> Iterator[MeasuredCell]:
    for other in everything:
        if dict(other.parameters) == parameters and figure in other.figures:
            yield other
