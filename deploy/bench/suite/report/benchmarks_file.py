"""Results in `BENCHMARKS.md`: the tables between its two marks; all other text is written by hand.

Each goal of a scenario has a row: cells met, missed and undecided, and the furthest miss. A section per scenario follows. All
scenarios together take many hours, so a call replaces only the rows and sections of the scenarios in its results.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from deploy.bench.suite.library import scenario_order
from deploy.bench.suite.parameters import cell_text, differing_parameters
from deploy.bench.suite.report.html_tables import number_text
from deploy.bench.suite.report.markdown import markdown_table, render_markdown
from ingest.contract.errors import ConfigError

__all__ = ["BEGIN", "END", "fill_file", "render_standing", "render_tables"]

BEGIN: Final = "<!-- results: `tidegate bench report` writes what follows -->"
END: Final = "<!-- end of results -->"
_SECTION: Final = re.compile(r"^(?=## [\w-]+: )", re.MULTILINE)
_HEADS: Final = ("scenario", "goal", "cells", "met", "missed", "undecided", "furthest miss")


def render_standing(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with a row per scenario and goal; a scenario without goals has one row."""
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
    """Return the cell without its measure, which the rule names already."""
    return {name: value for name, value in cell.items() if name != "measure"}


def _distance(goal: Mapping[str, Any]) -> float:
    """Return the factor between a miss and its bound, in either direction."""
    value, bound = float(goal["value"]), goal["bound"]
    if not bound:
        return value
    return max(value / bound, bound / value) if value else float("inf")


def render_tables(results: Sequence[Mapping[str, Any]]) -> str:
    """Render the results by goal, the versions, and a section per scenario."""
    versions = {name: value for result in results for name, value in result["versions"].items()}
    parts = ["## Results by goal", render_standing(results), _versions_line(versions), render_markdown(results)]
    return "\n\n".join(parts)


def _versions_line(versions: Mapping[str, Any]) -> str:
    return f"Versions: {', '.join(f'{name} {value}' for name, value in versions.items())}."


def _versions(lines: Sequence[str]) -> dict[str, str]:
    found = (
        next((line for line in lines if line.startswith("Versions: ")), "").removeprefix("Versions: ").removesuffix(".")
    )
    return {name: value for name, _, value in (each.rpartition(" ") for each in found.split(", ") if each)}


def fill_file(file: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Put the tables between the marks of a file; a missing file is created.

    All other text of the file stays, and so do rows and sections of scenarios without a result.

    Raises:
        ConfigError: the file does not have the marks, or cannot be read or written.
    """
    try:
        text = file.read_text("utf-8") if file.exists() else f"# Benchmarks\n\n{BEGIN}\n{END}\n"
        head, begin, rest = text.partition(BEGIN)
        old, end, tail = rest.partition(END)
        if not (begin and end):
            msg = f"{file}: has no line `{BEGIN}` followed by a line `{END}`. Add both where the tables belong."
            raise ConfigError(msg)
        file.write_text(f"{head}{begin}\n\n{_with_others(render_tables(results), old)}\n{end}{tail}", "utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{file}: cannot write tables ({error}). Name another file with --markdown."
        raise ConfigError(msg) from error


def _with_others(new: str, old: str) -> str:
    """Return the new tables with the old rows and sections of the scenarios that the new tables do not have."""
    (start, *sections), (old_start, *old_sections) = _SECTION.split(new), _SECTION.split(old)
    names = {_scenario(section) for section in sections}
    kept = [section for section in old_sections if _scenario(section) not in names]
    if not kept:
        return new
    order = scenario_order()
    (heads, rows, rest), (_, old_rows, old_rest) = _goal_table(start), _goal_table(old_start)
    rows = [*rows, *(row for row in old_rows if _row_scenario(row) not in names)]
    versions = _versions_line(_versions(old_rest) | _versions(rest))
    lines = [*heads, *sorted(rows, key=lambda row: order(_row_scenario(row))), "", versions, ""]
    ordered = sorted([*sections, *kept], key=lambda section: order(_scenario(section)))
    return "\n".join(lines) + "\n" + "\n\n".join(section.strip("\n") for section in ordered) + "\n"


def _goal_table(start: str) -> tuple[list[str], list[str], list[str]]:
    """Return the lines up to the rule below the goal table's head, its rows, and the lines below them."""
    lines = start.strip("\n").split("\n")
    first = next((number for number, line in enumerate(lines) if line.startswith("| --- ")), len(lines)) + 1
    rows = list(takewhile(lambda line: line.startswith("| "), lines[first:]))
    return lines[:first], rows, lines[first + len(rows) :]


def _scenario(section: str) -> str:
    return section.removeprefix("## ").partition(":")[0]


def _row_scenario(row: str) -> str:
    return row.removeprefix("| ").partition(" |")[0]
