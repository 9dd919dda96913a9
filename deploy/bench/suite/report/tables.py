"""Tables of the report: cells next to their baselines and goals, and heat maps of throughput over size and batch."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from deploy.bench.suite.parameters import differing, parameter_names
from deploy.bench.suite.spread import better

__all__ = ["cells_table", "heat_tables"]

RATES: Final = ("produce_per_second", "consume_per_second")
PEER: Final = "peer_"
_WORDS: Final = {True: "met", False: "missed", None: "undecided"}


def cells_table(result: Mapping[str, Any]) -> str:
    """One row per cell: parameters in which cells differ, the measured figure, baselines, peer, goal."""
    cells = result["cells"]
    if not cells:
        return '<p class="notice">No cell was measured.</p>'
    names = differing(cells)
    figures = ["value"] if any("measure" in cell for cell in cells) else _shown_figures(cells)
    baselines = [
        (base, figure)
        for base in result["baselines"]
        for figure in figures
        if any(_baseline(cell, base, figure) is not None for cell in cells)
    ]
    peers = [figure for figure in figures if any(_peer(cell, figure) is not None for cell in cells)]
    heads = [*names, *(["measure"] if figures == ["value"] else [])]
    heads += [f"{result['baselines'][base]['title']}{_of(figure)}" for base, figure in baselines]
    heads += [f"peer{_of(figure)}" for figure in peers] + [f"Tidegate{_of(figure)}" for figure in figures]
    rows = []
    for cell in cells:
        row = [_td(cell.get(name, "")) for name in names]
        row += [_td(cell["measure"])] if figures == ["value"] else []
        row += [_td(_baseline(cell, base, figure)) for base, figure in baselines]
        row += [_td(_peer(cell, figure)) for figure in peers]
        row += [_measured(cell, figure) for figure in figures]
        word = _WORDS[cell["met"]] if cell["goal"] else ""
        row += [
            f"<td>{escape(cell['goal'])}</td>",
            f'<td class="{word}">{word}</td>',
            f"<td>{escape(cell['why'])}</td>",
        ]
        rows.append(f"<tr>{''.join(row)}</tr>")
    header = "".join(f"<th>{escape(head)}</th>" for head in [*heads, "goal", "met", "why"])
    return f'<div class="wide"><table><thead><tr>{header}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _shown_figures(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those that goals and baselines are about, then those that say better or worse by themselves."""
    named = [goal["figure"] for cell in cells for goal in cell["goals"]]
    named += [figure for cell in cells for figures in cell["baselines"].values() for figure in figures]
    named += [name for cell in cells for name in cell["spread"] if better(name) and not name.startswith(PEER)]
    return list(dict.fromkeys(named))


def _of(figure: str) -> str:
    return "" if figure == "value" else f" {figure}"


def _figure_of(cell: Mapping[str, Any], figure: str) -> str:
    return str(cell["measure"]) if figure == "value" else figure


def _baseline(cell: Mapping[str, Any], base: str, figure: str) -> float | None:
    found: float | None = cell["baselines"].get(base, {}).get(_figure_of(cell, figure))
    return found


def _peer(cell: Mapping[str, Any], figure: str) -> float | None:
    found: float | None = cell.get(f"{PEER}{_figure_of(cell, figure)}")
    return found


def _measured(cell: Mapping[str, Any], figure: str) -> str:
    spread = cell["spread"].get(_figure_of(cell, figure))
    if spread is None:
        return _td(None)
    title = f"{number_text(spread['min'])} to {number_text(spread['max'])}, middle half {spread['iqr_ratio']:.0%}"
    return (
        f'<td class="number" title="{escape(title)}">{number_text(spread["median"])}<small>{escape(title)}</small></td>'
    )


def heat_tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """Throughput over message size and batch, one table per target, mode and direction; where both are varied."""
    if not {"message_bytes", "batch_records"} <= set(differing(cells)):
        return ""
    others = [name for name in parameter_names(cells) if name in differing(cells)]
    others = [name for name in others if name not in ("message_bytes", "batch_records")]
    groups: dict[str, dict[tuple[Any, Any], float]] = {}
    for cell in cells:
        for figure in RATES:
            if figure in cell["spread"] and cell.get("measure", figure) == figure:
                group = " ".join([figure, *(f"{name}={cell[name]}" for name in others if name in cell)])
                place = (cell["message_bytes"], cell["batch_records"])
                groups.setdefault(group, {})[place] = cell["spread"][figure]["median"]
    tables = [_heat_table(name, values) for name, values in groups.items()]
    return f'<h3>Throughput over message size and batch</h3><div class="heat">{"".join(tables)}</div>' if tables else ""


def _heat_table(name: str, values: Mapping[tuple[Any, Any], float]) -> str:
    batches = sorted({batch for _, batch in values})
    highest = max(values.values()) or 1.0
    head = "".join(f"<th>batch {batch}</th>" for batch in batches)
    rows = ""
    for size in sorted({size for size, _ in values}):
        row = "".join(_heat_cell(values.get((size, batch)), highest) for batch in batches)
        rows += f"<tr><th>{size} B</th>{row}</tr>"
    return (
        f"<table><caption>{escape(name)}</caption><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _heat_cell(value: float | None, highest: float) -> str:
    if value is None:
        return "<td></td>"
    return f'<td class="number" style="--heat:{value / highest:.3f}">{number_text(value)}</td>'


def number_text(value: float) -> str:
    """With separators, and as many digits as say something."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _td(value: object) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="number">{number_text(value)}</td>'
    return f"<td>{escape(str(value))}</td>"
