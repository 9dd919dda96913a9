"""Bounds for CI: a file of bounds, and the cells of a result that miss one."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deploy.bench.suite.judge import count_kept_runs
from deploy.bench.suite.parameters import cell_text, differing_parameters
from deploy.bench.suite.scenario import Parameters, ScenarioTarget
from deploy.settings_faults import ValueOrigins, config_error, describe_faults
from deploy.settings_file import read_toml

__all__ = ["Bound", "BoundsFile", "gate_results", "read_bounds", "render_gate"]


class Bound(BaseModel):
    """A bound of one figure in the cells that `when` names; one of the two is given, or both."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    scenario: str
    figure: str
    at_least: float | None = None
    at_most: float | None = None
    when: dict[str, str | int | float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if self.at_least is None and self.at_most is None:
            msg = "give at_least or at_most"
            raise ValueError(msg)
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            msg = f"at_least ({self.at_least:g}) is above at_most ({self.at_most:g}), so no figure can meet both"
            raise ValueError(msg)
        known = [*Parameters.model_fields, *ScenarioTarget.model_fields]
        for name in self.when:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                msg = f"when names {name}, which is not a parameter{f'; the nearest is {close[0]}' if close else ''}"
                raise ValueError(msg)
        return self


class BoundsFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bounds: list[Bound] = Field(min_length=1)


def read_bounds(file: Path) -> list[Bound]:
    """The bounds of a file.

    Raises:
        ConfigError: unreadable, an unknown key or a bad value.
    """
    try:
        return BoundsFile.model_validate(read_toml(file)).bounds
    except ValidationError as error:
        raise config_error(describe_faults(error, BoundsFile, ValueOrigins(file))) from error


def gate_results(results: Sequence[Mapping[str, Any]], bounds: Sequence[Bound]) -> dict[str, Any]:
    """`{checked, missed: [{scenario, cell, figure, value, wanted, why}], busy}`; a bound that meets no cell is missed too."""
    checked, missed = 0, list[dict[str, Any]]()
    for bound in bounds:
        found, why = _figures(results, bound)
        if not found:
            missed.append(_miss(bound, "no cell", None, why))
        for text, (value, fault) in found.items():
            checked += 1
            if value is None or not _holds(bound, value):
                missed.append(_miss(bound, text, value, fault))
    return {
        "checked": checked,
        "missed": missed,
        "busy": list(dict.fromkeys(each["busy"] for each in results if each.get("busy"))),
    }


def render_gate(judged: Mapping[str, Any]) -> str:
    """Render the verdict for people and a CI's log."""
    lines = [f"{judged['checked']} figures checked, {len(judged['missed'])} bounds missed"]
    lines += [f"Measured on a busy machine: {busy}." for busy in judged["busy"]]
    for one in judged["missed"]:
        value = "not measured" if one["value"] is None else f"{one['value']:,.6g}"
        why = f" ({one['why']})" if one["why"] else ""
        lines.append(f"  {one['scenario']}, {one['cell']}: {one['figure']} is {value}, wanted {one['wanted']}{why}")
    return "\n".join(lines)


def _figures(results: Sequence[Mapping[str, Any]], bound: Bound) -> tuple[dict[str, tuple[float | None, str]], str]:
    """Return text and median by cell, or None with the fault of a cell that lacks a run; else why there is no cell.

    Where the bound is at most 0 it is the worst run: none may come at all.
    """
    mine = [result for result in results if result["scenario"] == bound.scenario]
    if not mine:
        held = [result["scenario"] for result in results]
        return {}, f"the result holds {', '.join(held)}.{_guess(bound.scenario, held)}"
    cells = [
        (cell_text(cell, differing_parameters(result["cells"])), cell)
        for result in mine
        for cell in result["cells"]
        if all(cell.get(name) == value for name, value in bound.when.items())
    ]
    if not cells:
        return {}, "no cell has these parameters"
    known = {name for _, cell in cells for name in ([cell["measure"]] if "measure" in cell else cell["spread"])}
    if known and bound.figure not in known:
        return {}, f"no cell has this figure.{_guess(bound.figure, known)}"
    found: dict[str, tuple[float | None, str]] = {}
    for text, cell in cells:
        if cell.get("measure", bound.figure) == bound.figure:
            spread = cell["spread"].get(bound.figure)
            if cell.get("fault"):
                found[text] = (None, cell["fault"])
            elif spread:
                is_promise = bound.at_most == 0
                value = spread["max"] if is_promise else spread["median"]
                few = count_kept_runs(len(spread["runs"]), cell.get("run_count", 0)) if is_promise and not value else ""
                found[text] = (None, few) if few else (value, "")
            else:
                found[text] = (None, "" if cell["spread"] else cell.get("why", ""))
    return found, ""


def _guess(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def _holds(bound: Bound, value: float) -> bool:
    return (bound.at_least is None or value >= bound.at_least) and (bound.at_most is None or value <= bound.at_most)


def _miss(bound: Bound, cell: str, value: float | None, why: str) -> dict[str, Any]:
    parts = [("at least", bound.at_least), ("at most", bound.at_most)]
    wanted = " and ".join(f"{word} {limit:,.6g}" for word, limit in parts if limit is not None)
    return {
        "scenario": bound.scenario,
        "cell": cell,
        "figure": bound.figure,
        "value": value,
        "wanted": wanted,
        "why": why,
    }
