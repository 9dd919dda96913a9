"""Two results side by side: which cells differ beyond the spread of both, for better or worse."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deploy.bench.suite.parameters import cell_text, differing, identity
from deploy.bench.suite.spread import Spread, better, differs
from ingest.contract.errors import ConfigError

__all__ = ["compare_results", "read_results", "render_comparison"]


def read_results(file: Path) -> list[dict[str, Any]]:
    """The results in a file of `bench run --json` or of `--report`: one object or a list of them.

    Raises:
        ConfigError: it holds something else.
    """
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{file}: cannot be read as JSON ({error}). Give a file that `tidegate bench run --json` wrote."
        raise ConfigError(msg) from error
    results = found if isinstance(found, list) else [found]
    if not all(map(_is_result, results)):
        msg = f"{file}: holds no result of a scenario. Give a file that `tidegate bench run --json` wrote."
        raise ConfigError(msg)
    return results


def _is_result(value: Any) -> bool:
    """All that is read of it later is there."""
    try:
        for cell in value["cells"]:
            hash(identity(cell))
            for spread in cell["spread"].values():
                _spread(spread)
        return isinstance(value["scenario"], str) and {"cpu", "cores"} <= set(value["hardware"])
    except (TypeError, KeyError, AttributeError):
        return False


def compare_results(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`{compared, differences, worse, only_before, only_after}`; a figure without a good direction is never worse."""
    old, new = _cells(before), _cells(after)
    both = [key for key in new if key in old]
    differences = [one for key in both for one in _differences(key[0], old[key], new[key], new)]
    return {
        "compared": len(both),
        "differences": differences,
        "worse": sum(one["verdict"] == "worse" for one in differences),
        "only_before": len(old) - len(both),
        "only_after": len(new) - len(both),
        "same_machine": _machine(before) == _machine(after),
    }


def render_comparison(compared: Mapping[str, Any]) -> str:
    """For people."""
    lines = [f"{compared['compared']} cells in both, {compared['worse']} figures worse beyond the spread"]
    if not compared["same_machine"]:
        lines.append("The two were measured on different machines: a difference may come from those.")
    if compared["only_before"] or compared["only_after"]:
        lines.append(
            f"Only in the first: {compared['only_before']} cells; only in the second: {compared['only_after']}."
        )
    for one in compared["differences"]:
        change = f"{one['before']:,.6g} -> {one['after']:,.6g} ({one['change']:+.1%})"
        lines.append(f"  {one['verdict']:8} {one['scenario']} {one['cell']}: {one['figure']} {change}")
    return "\n".join(lines)


def _cells(results: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    return {(result["scenario"], identity(cell)): cell for result in results for cell in result["cells"]}


def _machine(results: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Any]]:
    return sorted({(each["hardware"]["cpu"], each["hardware"]["cores"]) for each in results if "hardware" in each})


def _differences(
    scenario: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    everything: Mapping[tuple[Any, ...], Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    names = differing([cell for key, cell in everything.items() if key[0] == scenario])
    figures = [after["measure"]] if "measure" in after else list(after["spread"])
    for figure in figures:
        if figure not in before["spread"] or figure not in after["spread"]:
            continue
        old, new = _spread(before["spread"][figure]), _spread(after["spread"][figure])
        good = better(figure)
        if good < 0 and 0 in (old.high, new.high):
            # Of errors and lost records one in five runs is a difference, which medians hide.
            old, new = (replace(one, median=one.high, low=one.high) for one in (old, new))
        if way := differs(old, new):
            verdict = "changed" if not good else "better" if way == good else "worse"
            change = (new.median - old.median) / abs(old.median) if old.median else float(way)
            yield {
                "scenario": scenario, "cell": cell_text(after, names), "figure": figure, "before": old.median,
                "after": new.median, "change": round(change, 4), "verdict": verdict,
            }  # fmt: skip


def _spread(values: Mapping[str, Any]) -> Spread:
    return Spread(values["median"], values["min"], values["max"], values["iqr_ratio"], tuple(values["runs"]))
