"""Tables of the report as Markdown, for `BENCHMARKS.md`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deploy.bench.environment import hardware_line
from deploy.bench.suite.parameters import cell_identity, differing_parameters, shown_value
from deploy.bench.suite.report.growth import growth_rows
from deploy.bench.suite.report.html_tables import WORDS, figures_shown, number_text, peer_text, peers_of

__all__ = ["busy_note", "markdown_table", "peers_note", "render_markdown"]

ZOOKEEPER: Final = "ZooKeeper mode"
_TAG: Final = re.compile(r"<(?=[a-zA-Z/!])")
_OLD_RULE: Final = re.compile(r"load [\d.]+ on \d+ cores")


def render_markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """A section per scenario: title, source, note, a row per cell and figure."""
    return "\n\n".join(_section(result) for result in results) + "\n"


def _section(result: Mapping[str, Any]) -> str:
    verdicts = [cell["met"] for cell in result["cells"] if cell["goal"]]
    counts = f"{verdicts.count(True)} cells met, {verdicts.count(False)} missed, {verdicts.count(None)} undecided"
    machine = _text(hardware_line(result["hardware"]).strip())
    lines = [
        f"## {result['scenario']}: {_text(result['title'])}",
        "",
        f"{machine}; medians of {result['repeats']}; revision {result['revision'] or 'unknown'}. {counts}. "
        f"{_text(result['source'])}",
    ]
    busy = busy_note(result)
    cut = "The run was interrupted; cells that it did not reach are missing." if result["interrupted"] else ""
    for words in (result["note"], busy, cut, peers_note(result)):
        lines += ["", _text(words)] if words else []
    return "\n".join(
        [*lines, "", *_table(result), *_growth(result), *(f"\n- Failed: {_text(fault)}" for fault in result["faults"])]
    )


def busy_note(result: Mapping[str, Any]) -> str:
    """Why no cell is claimed as met, where the machine was busy; with the rule of a result that is older than today's."""
    if not result["busy"]:
        return ""
    rule = "This revision had that rule. The present rule allows other programs a quarter of a core."
    older = f" {rule}" if _OLD_RULE.search(result["busy"]) else ""
    return f"No goal is reported as met: {result['busy']}.{older}"


def peers_note(result: Mapping[str, Any]) -> str:
    """A sentence where other clients ran once, and the cells more often."""
    spreads = [(name, len(each["runs"])) for cell in result["cells"] for name, each in cell["spread"].items()]
    others = {runs for name, runs in spreads if name.startswith("peer_")}
    if others != {1} or all(runs == 1 for _, runs in spreads):
        return ""
    return "Other clients ran once in each cell, so the spread of their figures is unknown."


def _table(result: Mapping[str, Any]) -> list[str]:
    cells, bases = result["cells"], list(result["baselines"])
    older = _zookeeper_pairs(cells)
    names = differing_parameters(cells)
    rows = [cell for number, cell in enumerate(cells) if number not in {pair for pair, _ in older.values()}]
    if older and len(rows) == len(older):
        names = [name for name in names if name != "metadata"]
    shown = [(cell, figure) for cell in rows for figure in figures_shown(cell, rows, result.get("shows", ()))]
    peers = peers_of(shown)
    titles = [result["baselines"][base]["title"] for base in bases]
    columns = [*titles, *peers.values(), *([ZOOKEEPER] if older else [])]
    heads = [*names, "figure", *columns, "Tidegate", "range", "goal", "verdict"]
    lines = []
    for cell, figure in shown:
        _, pair = older.get(cell_identity(cell), (0, None))
        row = [shown_value(cell, name) for name in names] + [figure]
        row += [cell["baselines"].get(base, {}).get(figure) for base in bases]
        row += [peer_text(cell, peer, figure) for peer in peers]
        row += [_median(pair, figure)] if older else []
        goal, verdict = _verdict(cell, figure, result["busy"])
        if pair is not None and (other := _verdict(pair, figure, result["busy"])[1]) not in ("", verdict):
            verdict += f"; {ZOOKEEPER}: {other}"
        lines.append([*row, *_measured(cell, figure), goal, verdict])
    return markdown_table(heads, lines)


def _zookeeper_pairs(cells: Sequence[Mapping[str, Any]]) -> dict[Any, tuple[int, Mapping[str, Any]]]:
    """Cells of ZooKeeper mode with their number, by the KRaft cell that differs in nothing else: those are columns."""
    of_kraft = {cell_identity(cell) for cell in cells if cell.get("metadata") == "kraft"}
    found = {}
    for number, cell in enumerate(cells):
        other = cell_identity({**cell, "metadata": "kraft"})
        if cell.get("metadata") == "zookeeper" and other in of_kraft:
            found[other] = (number, cell)
    return found


def _median(cell: Mapping[str, Any] | None, figure: str) -> Any:
    return None if cell is None else cell["spread"].get(figure, {}).get("median")


def markdown_table(heads: Sequence[object], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines of a table; no value ends its cell or begins a tag."""
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(_text(value) for value in row) + " |" for row in lines]


def _growth(result: Mapping[str, Any]) -> list[str]:
    """Each curve with its slope and its bend."""
    rows = growth_rows(result)
    if not rows:
        return []
    return ["", "Growth:", "", *markdown_table(rows[0], rows[1:])]


def _measured(cell: Mapping[str, Any], figure: str) -> list[Any]:
    spread = cell["spread"].get(figure)
    if spread is None:
        return [None, None]
    span = f"{number_text(spread['min'])} to {number_text(spread['max'])}" if len(spread["runs"]) > 1 else "one run"
    return [spread["median"], span]


def _verdict(cell: Mapping[str, Any], figure: str, known: str) -> tuple[str, str]:
    """Goal, and the verdict with its reason; one that holds for the whole table is above it."""
    goals = [goal for goal in cell["goals"] if goal["figure"] == figure]
    if not goals:
        return "", "" if cell["goals"] or cell["why"] == known else cell["why"]
    verdicts = [goal["met"] for goal in goals]
    word = WORDS[False if False in verdicts else None if None in verdicts else True]
    why = "; ".join(dict.fromkeys(goal["why"] for goal in goals if goal["why"] not in ("", known)))
    return "; ".join(goal["goal"].removeprefix(f"{figure} ") for goal in goals), f"{word}: {why}" if why else word


def _text(value: object) -> str:
    """A cell: numbers with separators, and nothing that ends the cell or begins a tag."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number_text(value)
    return "" if value is None else _TAG.sub("&lt;", str(value)).replace("|", "\\|").replace("\n", " ")
