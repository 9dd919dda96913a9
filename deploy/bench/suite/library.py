"""Scenario files: the shipped ones, how to read one with all its errors, and how long one takes."""

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from deploy.bench.suite.scenario import Parameters, Scenario, ScenarioTarget
from deploy.settings_faults import ValueOrigins, config_error, describe_faults
from deploy.settings_file import read_toml
from ingest.contract.errors import ConfigError

__all__ = [
    "estimated_seconds",
    "list_scenarios",
    "load_scenario",
    "names_by_length",
    "scenario_names",
    "scenario_order",
    "set_parameters",
]

FOLDER: Final = Path(__file__).parents[1] / "scenarios"
START_SECONDS: Final = 15.0
"""About what a cluster takes to start and to end."""
PEER_SECONDS: Final = 6.0
"""About what Kafka's own tools take, which start a JVM each."""


def scenario_names(folder: Path = FOLDER) -> list[str]:
    """Return the names of the shipped scenarios."""
    return sorted(file.stem for file in folder.glob("*.toml"))


def scenario_order() -> Callable[[str], tuple[int, str]]:
    """Return a sort key for names: shipped scenarios in the order of `bench ls`, then the others by name."""
    places = {name: place for place, name in enumerate(scenario_names())}
    return lambda name: (places.get(name, len(places)), name)


def names_by_length(*, usual: bool, long: bool, folder: Path = FOLDER) -> tuple[str, ...]:
    """Return shipped names: the usual ones, those so long that only their name or `--long` runs them, or both."""
    wanted = {False: usual, True: long}
    return tuple(name for name in scenario_names(folder) if wanted[load_scenario(name, folder)[1].long])


def load_scenario(name: str, folder: Path = FOLDER) -> tuple[str, Scenario]:
    """Name and content: of a shipped one by its name, or of a file of one's own (ends in `.toml`).

    Raises:
        ConfigError: there is none, or it has an unknown key or a bad value; names the nearest.
    """
    known = scenario_names(folder)
    if name.endswith(".toml") and not Path(name).is_file():
        msg = f"{name}: no such file. Give a scenario file, or a name of `tidegate bench ls`: {', '.join(known)}."
        raise ConfigError(msg)
    if name.endswith(".toml"):
        return Path(name).stem, _read(Path(name))
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        guess = f"Did you mean {close[0]}? " if close else ""
        msg = f"There is no scenario {name!r}. {guess}Known: {', '.join(known)}; or give a file that ends in .toml."
        raise ConfigError(msg)
    return name, _read(folder / f"{name}.toml")


def _read(file: Path) -> Scenario:
    values = read_toml(file)
    try:
        scenario = Scenario.model_validate(values)
    except ValidationError as error:
        raise config_error(describe_faults(error, Scenario, ValueOrigins(file))) from error
    for variant, place in ((scenario, "matrix"), (scenario.shortened(), "short")):
        try:
            cells = variant.cells()
        except ValidationError as error:
            faults = describe_faults(error, Parameters, ValueOrigins(None))
            raise config_error([f"{file}: in {place}, {fault.partition(': ')[2]}" for fault in faults]) from error
        if variant is scenario:
            _check_baselines(file, scenario, [cell.parameters for cell in cells])
    return scenario


def _check_baselines(file: Path, scenario: Scenario, cells: list[dict[str, Any]]) -> None:
    """Refuse a row that matches no cell; it would be left out silently."""
    for name, baseline in scenario.baselines.items():
        for number, row in enumerate(baseline.rows, start=1):
            one = baseline.model_copy(update={"rows": [row]})
            if not any(one.figures_of(cell) for cell in cells):
                msg = f"{file}: baselines.{name}: row {number} {row} matches no cell of this scenario. Correct its parameters."
                raise ConfigError(msg)


def set_parameters(scenario: Scenario, settings: Sequence[str]) -> Scenario:
    """A scenario with `NAME=VALUE` in all cells.

    Raises:
        ConfigError: no such parameter, or a value that it does not take; names the nearest.
    """
    values: dict[str, Any] = {}
    known = [*Parameters.model_fields, *ScenarioTarget.model_fields]
    for text in settings:
        name, equals, value = text.partition("=")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            guess = f" Did you mean {close[0]}?" if close else ""
            msg = f"--set {text}: wanted NAME=VALUE with a parameter.{guess} Known: {', '.join(known)}."
            raise ConfigError(msg)
        if not equals:
            msg = f"--set {text}: wanted NAME=VALUE, such as {name}=3."
            raise ConfigError(msg)
        values[name] = value
    try:
        changed = scenario.with_parameters(values)
        changed.cells()
    except ValidationError as error:
        faults = describe_faults(error, Parameters, ValueOrigins(None))
        raise config_error([f"--set: {fault.partition(': ')[2]}" for fault in faults]) from error
    return changed


def estimated_seconds(scenario: Scenario, *, repeats: int | None = None) -> float:
    """About how long it takes, the start of its clusters included."""
    cells = scenario.cells()
    peers = PEER_SECONDS * scenario.peer_runs * sum(cell.workload.kind == "load" for cell in cells)
    runs = len(cells) * (repeats or scenario.repeats) + scenario.warmup_runs * len(scenario.targets)
    starts = sum(START_SECONDS * target.brokers for target in scenario.targets)
    return starts + runs * scenario.seconds_per_run + peers


def list_scenarios(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Return the entries of `bench ls`."""
    found = []
    for name in scenario_names(folder):
        _, scenario = load_scenario(name, folder)
        short = scenario.shortened()
        found.append(
            {
                "name": name,
                "title": scenario.title,
                "source": scenario.source,
                "long": scenario.long,
                "cells": len(scenario.cells()) * max(1, len(scenario.measures)),
                "minutes": round(estimated_seconds(scenario) / 60, 1),
                "short_minutes": round(estimated_seconds(short) / 60, 1),
            }
        )
    return found
