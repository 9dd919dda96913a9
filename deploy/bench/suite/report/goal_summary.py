"""Each goal of each scenario as a row of Markdown: cells met, missed and undecided, and the furthest miss."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deploy.bench.suite.parameters import cell_text, differing_parameters
from deploy.bench.suite.report.html_tables import number_text
from deploy.bench.suite.report.markdown import markdown_table

__all__ = ["render_standing"]

_HEADS = ("scenario", "goal", "cells", "met", "missed", "undecided", "furthest miss")


def render_standing(results: Sequence[Mapping[str, Any]]) -> str:
    """A row per scenario and goal; a scenario without goals has one row."""
    return "\n".join(markdown_table(_HEADS, [row for result in results for row in _rows(result)]))


def _rows(result: Mapping[str, Any]) -> Iterator[list[object]]:
    names = differing_parameters(result["cells"])
    rules: dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for cell in result["cells"]:
        for goal in cell["goals"]:
            rules.setdefault(goal.get("rule", goal["goal"]), []).append((cell, goal))
    if not rules:
        yield [result["scenario"], "none", len(result["cells"]), "", "", "", ""]
    for rule, judged in rules.items():
        verdicts = [goal["met"] for _, goal in judged]
        missed = [(cell, goal) for cell, goal in judged if goal["met"] is False]
        furthest = max(missed, key=lambda one: _distance(one[1]), default=None)
        yield [
            result["scenario"], rule, len(judged), verdicts.count(True), verdicts.count(False), verdicts.count(None),
            "" if furthest is None else f"{number_text(furthest[1]['value'])} ({cell_text(_place(furthest[0]), names)})",
        ]  # fmt: skip


def _place(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The rule names the measure already."""
    return {name: value for name, value in cell.items() if name != "measure"}


def _distance(goal: Mapping[str, Any]) -> float:
    """Return the factor between a miss and its bound, in either direction."""
    value, bound = float(goal["value"]), goal["bound"]
    if not bound:
        return value
    return max(value / bound, bound / value) if value else float("inf")
