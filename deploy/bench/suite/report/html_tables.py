"""Tables of the report: figures of each cell with baselines and goals, and heat maps of throughput by size and batch."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from deploy.bench.suite.parameters import differing_parameters, parameter_names, shown_value

__all__ = [
    "WORDS", "cells_table", "figures_shown", "heat_tables", "number_text", "peer_spread", "peer_text", "peers_of",
]  # fmt: skip

RATES: Final = ("produce_per_second", "consume_per_second", "publish_per_second", "receive_per_second")
SHOWN: Final = (
    *RATES,
    "ack_p50_ms",
    "ack_p99_ms",
    "puback_p50_ms",
    "puback_p99_ms",
    "end_to_end_p50_ms",
    "end_to_end_p99_ms",
    "client_cpu_us_per_message",
    "broker_cpu_us_per_message",
)
TOOLS: Final = "Kafka's tools"
PEERS: Final = {"peer_c_": "C client", "peer_": TOOLS}
"""Other clients that ran the same load, by how the names of their figures begin."""
WORDS: Final = {True: "met", False: "missed", None: "undecided"}


def cells_table(result: Mapping[str, Any]) -> str:
    """A row per cell and figure: the cell's parameters, then baselines, peer, Tidegate with its spread, goal, verdict."""
    cells = result["cells"]
    if not cells:
        return '<p class="notice">No cell was measured.</p>'
    names, bases = differing_parameters(cells), list(result["baselines"])
    figures = [figures_shown(cell, cells, result.get("shows", ())) for cell in cells]
    peers = peers_of([(cell, figure) for cell, own in zip(cells, figures, strict=True) for figure in own])
    heads = [
        *names,
        "figure",
        *(result["baselines"][base]["title"] for base in bases),
        *peers.values(),
    ]
    header = "".join(f"<th>{escape(head)}</th>" for head in [*heads, "Tidegate", "range", "goal", "verdict", "why"])
    rows = []
    for cell, own in zip(cells, figures, strict=True):
        span = f' rowspan="{max(1, len(own))}"'
        place = "".join(_td(shown_value(cell, name), span) for name in names)
        for number, figure in enumerate(own):
            row = [_td(figure), *(_td(cell["baselines"].get(base, {}).get(figure)) for base in bases)]
            row += [f'<td class="number">{peer_text(cell, peer, figure)}</td>' for peer in peers]
            row += [_measured(cell, figure), _verdict(cell, figure, result["busy"])]
            rows.append(f"<tr>{'' if number else place}{''.join(row)}</tr>")
    return f'<div class="wide"><table><thead><tr>{header}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def peers_of(shown: Sequence[tuple[Mapping[str, Any], str]]) -> dict[str, str]:
    """The other clients that have any of these figures."""
    return {
        peer: title for peer, title in PEERS.items() if any(peer_spread(cell, peer, figure) for cell, figure in shown)
    }


def peer_spread(cell: Mapping[str, Any], peer: str, figure: str) -> Mapping[str, Any] | None:
    """Return the spread of another client, if it ran the cell's load: Kafka's tools do not write and read at the same time."""
    if PEERS[peer] == TOOLS and cell.get("mode") == "stream":
        return None
    found: Mapping[str, Any] | None = cell["spread"].get(f"{peer}{figure}")
    return found


def peer_text(cell: Mapping[str, Any], peer: str, figure: str) -> str:
    """Return another client's median, with the lowest and the highest run if it has several."""
    spread = peer_spread(cell, peer, figure)
    if spread is None:
        return ""
    span = f" ({number_text(spread['min'])} to {number_text(spread['max'])})" if len(spread["runs"]) > 1 else ""
    return f"{number_text(spread['median'])}{span}"


def figures_shown(cell: Mapping[str, Any], cells: Sequence[Mapping[str, Any]], shows: Sequence[str]) -> list[str]:
    """The measure; else those that goals and baselines are about, and those that the scenario names, or the usual ones."""
    if "measure" in cell:
        return [cell["measure"]]
    named = [goal["figure"] for goal in cell["goals"]]
    named += [figure for figures in cell["baselines"].values() for figure in figures]
    # A consumer group has no figures of a load, and a warm cell none of cold files: a row without a value would say that they
    # are missing. Of a cell without any figure those of the others of its kind are.
    alike = {name for each in cells if each.get("kind") == cell.get("kind") for name in each["spread"]}
    measured = set(cell["spread"]) or alike
    return list(dict.fromkeys([*named, *(name for name in shows or SHOWN if name in measured)])) or [""]


def _measured(cell: Mapping[str, Any], figure: str) -> str:
    spread = cell["spread"].get(figure)
    if spread is None:
        return _td(None) + _td(None)
    span = f"{number_text(spread['min'])} to {number_text(spread['max'])}, middle half {spread['iqr_ratio']:.0%}"
    span = span if len(spread["runs"]) > 1 else "one run"
    return f'{_td(spread["median"])}<td class="quiet">{escape(span)}</td>'


def _verdict(cell: Mapping[str, Any], figure: str, known: str) -> str:
    """`known` is above the table already, and not repeated in each row."""
    goals = [goal for goal in cell["goals"] if goal["figure"] == figure]
    if not goals:
        return f"<td></td><td></td><td>{escape(cell['why']) if not cell['goals'] and cell['why'] != known else ''}</td>"
    verdicts = [goal["met"] for goal in goals]
    word = WORDS[False if False in verdicts else None if None in verdicts else True]
    texts = "; ".join(goal["goal"].removeprefix(f"{figure} ") for goal in goals)
    why = "; ".join(dict.fromkeys(goal["why"] for goal in goals if goal["why"] not in ("", known)))
    return f'<td class="goal">{escape(texts)}</td><td class="{word}">{word}</td><td>{escape(why)}</td>'


def heat_tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """Throughput over message size and batch, one table per target, mode and direction; where both are varied."""
    if not {"message_bytes", "batch_records"} <= set(differing_parameters(cells)):
        return ""
    others = [name for name in parameter_names(cells) if name in differing_parameters(cells)]
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
    """Return a number with separators, and as many digits as mean something."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.8f}".rstrip("0").rstrip(".") if 0 < abs(value) < 1e-4 else f"{value:.4g}"


def _td(value: object, span: str = "") -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="number"{span}>{number_text(value)}</td>'
    return f"<td{span}>{'' if value is None else escape(str(value))}</td>"
