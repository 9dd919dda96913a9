"""`BENCHMARKS.md`: text written by hand, and between two marks the tables of the newest results.

Each goal of each scenario as a row of Markdown: cells met, missed and undecided, and the furthest miss.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deploy.bench.suite.parameters import cell_text, differing_parameters
from deploy.bench.suite.report.html_tables import number_text
from deploy.bench.suite.report.markdown import markdown_table, render_markdown
from ingest.contract.errors import ConfigError

__all__ = ["BEGIN", "END", "fill_file", "render_standing", "render_tables"]

BEGIN: Final = "<!-- results: `tidegate bench report` writes what follows -->"
END: Final = "<!-- end of results -->"


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


def render_tables(results: Sequence[Mapping[str, Any]]) -> str:
    """Render the results by goal, the versions, and a section per scenario."""
    versions = {name: value for result in results for name, value in result["versions"].items()}
    listed = ", ".join(f"{name} {value}" for name, value in versions.items())
    parts = ["## Results by goal", render_standing(results), f"Versions: {listed}.", render_markdown(results)]
    return "\n\n".join(parts)


def fill_file(file: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Put the tables between the marks of a file; a missing file is made, other text of the file stays as it is.

    Raises:
        ConfigError: the file has no such marks, or cannot be read or written.
    """
    try:
        text = file.read_text("utf-8") if file.exists() else f"# Benchmarks\n\n{BEGIN}\n{END}\n"
        head, begin, rest = text.partition(BEGIN)
        _, end, tail = rest.partition(END)
        if not (begin and end):
            msg = f"{file}: has no line `{BEGIN}` followed by a line `{END}`. Add both where the tables belong."
            raise ConfigError(msg)
        file.write_text(f"{head}{begin}\n\n{render_tables(results)}\n{end}{tail}", "utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{file}: cannot write tables ({error}). Name another file with --markdown."
        raise ConfigError(msg) from error
