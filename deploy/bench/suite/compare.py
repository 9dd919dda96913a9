"""Comparison of two results: cells that differ by more than the spread of both, with the direction."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from deploy.bench.suite.parameters import cell_identity, cell_text, differing_parameters
from deploy.bench.suite.resources import busy_during
from deploy.bench.suite.spread import LEAST_SPREAD, Spread, better, differs
from ingest.contract.errors import ConfigError

__all__ = ["compare_results", "read_results", "render_comparison"]

_SHOWN: Final = 5


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
    if not results or not all(map(_is_result, results)):
        msg = f"{file}: holds no result of a scenario. Give a file that `tidegate bench run --json` wrote."
        raise ConfigError(msg)
    return results


def _is_result(value: Any) -> bool:
    """Return whether the result has all keys that are read later."""
    try:
        for cell in value["cells"]:
            hash(cell_identity(cell))
            for spread in cell["spread"].values():
                _spread(spread)
        return isinstance(value["scenario"], str) and {"cpu", "cores"} <= set(value["hardware"])
    except (TypeError, KeyError, AttributeError):
        return False


def compare_results(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Cells of both that differ beyond the spread; a figure without a good direction is never worse.

    Returns:
        `compared`, `only_before`, `only_after`: numbers of cells; `differences`, each with its verdict; `worse`: their number;
        `unmatched`: cells that one of the two lacks; `unmeasured`: cells of which a run is missing in the second; `gone`: figures
        of the first alone; `same_machine`; `doubts`: why figures of either prove little.

    Raises:
        ConfigError: they have no cell in common.
    """
    old, new = _cells(before), _cells(after)
    both = [key for key in new if key in old]
    if not both:
        msg = (
            f"The two results have no cell in common: the first holds {_holds(before)}, the second {_holds(after)}. "
            "Give two results of the same scenario, with the same --set and --short."
        )
        raise ConfigError(msg)
    whole = [key for key in both if _is_whole(old[key]) and _is_whole(new[key])]
    differences = [one for key in whole for one in _differences(key[0], old[key], new[key], new)]
    unmeasured = [key for key in both if _is_whole(old[key]) and not _is_whole(new[key])]
    return {
        "compared": len(both),
        "differences": differences,
        "worse": sum(one["verdict"] == "worse" for one in differences),
        "only_before": len(old) - len(both),
        "only_after": len(new) - len(both),
        "unmatched": [
            {**_place(key, cells), "only": side}
            for side, cells, others in (("before", old, new), ("after", new, old))
            for key in cells
            if key not in others
        ],
        "unmeasured": [
            {**_place(key, new), "why": new[key].get("fault") or new[key].get("why", "")} for key in unmeasured
        ],
        "gone": [
            {**_place(key, new), "figure": figure}
            for key in both
            if key not in unmeasured
            for figure in old[key]["spread"]
            if better(figure) and figure not in new[key]["spread"]
        ],
        "same_machine": _machine(before) == _machine(after),
        "doubts": {"before": _doubts(before), "after": _doubts(after)},
    }


def render_comparison(compared: Mapping[str, Any]) -> str:
    """Render the comparison for people."""
    lines = [f"{compared['compared']} cells in both; {compared['worse']} figures are worse by more than the spread"]
    if not compared["same_machine"]:
        lines.append("The two were measured on different machines, which may explain a difference.")
    for side, name in (("before", "first"), ("after", "second")):
        lines += [f"In the {name}, {doubt}." for doubt in compared["doubts"][side]]
        lines += _listed(f"Only in the {name}", [_words(one) for one in compared["unmatched"] if one["only"] == side])
    for one in compared["unmeasured"]:
        lines.append(f"  failed   {_words(one)}: {one['why'] or 'not measured'}")
    for one in compared["differences"]:
        change = f"{one['before']:,.6g} -> {one['after']:,.6g} ({one['change']:+.1%})"
        lines.append(f"  {one['verdict']:8} {_words(one)}: {one['figure']} {change}")
    gone = [f"{_words(one)}: {one['figure']}" for one in compared["gone"]]
    return "\n".join([*lines, *_listed("Not measured in the second", gone)])


def _words(place: Mapping[str, Any]) -> str:
    return f"{place['scenario']} {place['cell']}"


def _listed(title: str, found: Sequence[str]) -> list[str]:
    """Return as many lines as a person reads."""
    if not found:
        return []
    more = [f"  and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return [f"{title}:", *(f"  {one}" for one in found[:_SHOWN]), *more]


def _place(key: tuple[Any, ...], cells: Mapping[tuple[Any, ...], Mapping[str, Any]]) -> dict[str, str]:
    names = differing_parameters([cell for other, cell in cells.items() if other[0] == key[0]])
    return {"scenario": key[0], "cell": cell_text(cells[key], names)}


def _holds(results: Sequence[Mapping[str, Any]]) -> str:
    return " and ".join(f"{len(each['cells'])} cells of {each['scenario']}" for each in results)


def _doubts(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the facts that make figures of a result weak."""
    found = [each["busy"] for each in results if each.get("busy")]
    if any(each.get("interrupted") for each in results):
        found.append("the run was interrupted")
    measured = [cell["spread"] for each in results for cell in each["cells"] if cell["spread"]]
    cut = sum(bool(cell["spread"]) and not _is_whole(cell) for each in results for cell in each["cells"])
    if cut:
        found.append(f"{cut} of {len(measured)} cells lack some of their runs, and are not compared")
    disturbed = sum(
        bool(busy_during({name: spread["median"] for name, spread in figures.items()})) for figures in measured
    )
    if disturbed:
        found.append(f"other programs used the processors during {disturbed} of {len(measured)} cells")
    single = sum(max(len(spread["runs"]) for spread in figures.values()) == 1 for figures in measured)
    if single:
        found.append(
            f"{single} of {len(measured)} cells have one run, so the spread is unknown and {LEAST_SPREAD:.0%} is assumed"
        )
    return list(dict.fromkeys(found))


def _is_whole(cell: Mapping[str, Any]) -> bool:
    """Return whether the cell has figures of all its runs."""
    return bool(cell["spread"]) and not cell.get("fault")


def _cells(results: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    return {(result["scenario"], cell_identity(cell)): cell for result in results for cell in result["cells"]}


def _machine(results: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Any]]:
    return sorted({(each["hardware"]["cpu"], each["hardware"]["cores"]) for each in results if "hardware" in each})


def _differences(
    scenario: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    everything: Mapping[tuple[Any, ...], Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    names = differing_parameters([cell for key, cell in everything.items() if key[0] == scenario])
    figures = [after["measure"]] if "measure" in after else list(after["spread"])
    for figure in figures:
        if figure not in before["spread"] or figure not in after["spread"]:
            continue
        old, new = _spread(before["spread"][figure]), _spread(after["spread"][figure])
        good = better(figure)
        if good < 0 and 0 in (old.high, new.high):
            # One run in five with errors or lost records is a difference, which medians hide.
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
