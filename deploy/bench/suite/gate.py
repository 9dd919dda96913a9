"""Bounds for CI: a file of them, and which cells of a result miss one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deploy.bench.suite.parameters import cell_text, parameter_names
from deploy.settings_faults import Origins, config_error, describe_faults
from deploy.settings_file import read_toml

__all__ = ["Bound", "Bounds", "gate_results", "read_bounds", "render_gate"]


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
        return self


class Bounds(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bounds: list[Bound] = Field(min_length=1)


def read_bounds(file: Path) -> list[Bound]:
    """The bounds of a file.

    Raises:
        ConfigError: unreadable, an unknown key or a bad value.
    """
    try:
        return Bounds.model_validate(read_toml(file)).bounds
    except ValidationError as error:
        raise config_error(describe_faults(error, Bounds, Origins(file))) from error


def gate_results(results: Sequence[Mapping[str, Any]], bounds: Sequence[Bound]) -> dict[str, Any]:
    """`{checked, missed: [{scenario, cell, figure, value, wanted}]}`; a bound that meets no cell is missed too."""
    checked, missed = 0, list[dict[str, Any]]()
    for bound in bounds:
        found = _figures(results, bound)
        if not found:
            missed.append(_miss(bound, "no such cell in the result", None))
        for text, value in found.items():
            checked += 1
            if value is None or not _holds(bound, value):
                missed.append(_miss(bound, text, value))
    return {"checked": checked, "missed": missed}


def render_gate(judged: Mapping[str, Any]) -> str:
    """For people and a CI's log."""
    lines = [f"{judged['checked']} figures checked, {len(judged['missed'])} bounds missed"]
    for one in judged["missed"]:
        value = "not measured" if one["value"] is None else f"{one['value']:,.6g}"
        lines.append(f"  {one['scenario']} {one['cell']}: {one['figure']} is {value}, wanted {one['wanted']}")
    return "\n".join(lines)


def _figures(results: Sequence[Mapping[str, Any]], bound: Bound) -> dict[str, float | None]:
    """By cell: its text, and its median; the worst run where the bound is at most 0."""
    found: dict[str, float | None] = {}
    for result in results:
        if result["scenario"] != bound.scenario:
            continue
        names = parameter_names(result["cells"])
        for cell in result["cells"]:
            if all(cell.get(name) == value for name, value in bound.when.items()) and (
                cell.get("measure", bound.figure) == bound.figure
            ):
                spread = cell["spread"].get(bound.figure)
                text = cell_text({name: cell[name] for name in names if name in cell}, names)
                # None may come at all: the worst run counts, not the middle one.
                found[text] = None if not spread else spread["max"] if bound.at_most == 0 else spread["median"]
    return found


def _holds(bound: Bound, value: float) -> bool:
    return (bound.at_least is None or value >= bound.at_least) and (bound.at_most is None or value <= bound.at_most)


def _miss(bound: Bound, cell: str, value: float | None) -> dict[str, Any]:
    parts = [("at least", bound.at_least), ("at most", bound.at_most)]
    wanted = " and ".join(f"{word} {limit:,.6g}" for word, limit in parts if limit is not None)
    return {"scenario": bound.scenario, "cell": cell, "figure": bound.figure, "value": value, "wanted": wanted}
