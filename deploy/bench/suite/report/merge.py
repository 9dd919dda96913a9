"""Union of results of several calls of `bench run`: the newest of each cell, for the same scenario and machine."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from deploy.bench.suite.curves import curves_of
from deploy.bench.suite.library import scenario_order
from deploy.bench.suite.parameters import cell_identity
from deploy.bench.suite.scenario import Curve

__all__ = ["merge_results"]

_ABSENT: Final[Mapping[str, Any]] = {
    "title": "", "source": "", "note": "", "repeats": "?", "interrupted": False, "busy": "", "shows": [],
    "baselines": {}, "faults": [], "resources": [], "curves": [], "load_after_1m": "?", "versions": {}, "revision": "",
}  # fmt: skip
"""Defaults for keys that a result of an older version may lack."""
_JUDGED: Final[Mapping[str, Any]] = {"goal": "", "goals": [], "met": None, "why": "", "baselines": {}, "curves": {}}


def merge_results(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One result per scenario and machine: scenarios in the order of `bench ls`, then those that are not shipped, by name.

    So the order of the files counts only between machines, and for which measurement of a cell is the last.

    A cell that a later result measured again replaces the earlier one; a result of which no cell is left brings no fault along.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for result in results:
        machine = result["hardware"]
        key = (result["scenario"], machine["cpu"], machine["cores"], machine.get("memory_gb"))
        groups.setdefault(key, []).append(_whole(result))
    order = scenario_order()
    ordered = sorted(groups, key=lambda key: order(key[0]))
    return [_together(groups[key]) for key in ordered]


def _whole(result: Mapping[str, Any]) -> dict[str, Any]:
    machine = {"memory_gb": "?", "load_1m": 0, **result["hardware"]}
    return {**_ABSENT, **result, "hardware": machine, "cells": [{**_JUDGED, **cell} for cell in result["cells"]]}


def _together(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(results) == 1:
        return results[0]
    newest: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}
    for number, result in enumerate(results):
        for cell in result["cells"]:
            newest[cell_identity(cell)] = (number, cell)
    left = {number for number, _ in newest.values()}
    kept = [result for number, result in enumerate(results) if number in left] or [results[-1]]
    last = kept[-1]
    cells = [cell for _, cell in newest.values()]
    return {
        **last,
        "cells": cells,
        "repeats": " and ".join(dict.fromkeys(str(one["repeats"]) for one in kept)),
        "revision": ", ".join(dict.fromkeys(one["revision"] for one in kept if one["revision"])),
        "interrupted": any(one["interrupted"] for one in kept),
        # If only some runs were on a busy machine, each of their cells says so itself.
        "busy": last["busy"] if len({one["busy"] for one in kept}) == 1 else "",
        "shows": list(dict.fromkeys(name for one in kept for name in one["shows"])),
        "baselines": {name: each for one in kept for name, each in one["baselines"].items()},
        "faults": list(dict.fromkeys(fault for one in kept for fault in one["faults"])),
        "curves": curves_of(_curves(kept), cells),
        "resources": [each for one in kept for each in one["resources"]],
        "hardware": {**last["hardware"], "load_1m": max(one["hardware"]["load_1m"] for one in kept)},
    }


def _curves(results: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Return the curves that any of the results has, to be drawn through the remaining cells."""
    drawn = [each for one in results for each in one["curves"]]
    order = dict.fromkeys((each["axis"], each["figure"], tuple(each.get("follows", ()))) for each in drawn)
    return [Curve(axis=axis, figures=[figure], follows=list(follows)) for axis, figure, follows in order]
