"""Measured costs of a pipeline: the cells of the scenario `pipeline`, and figures of other measurements with their sources.

The shipped ones are in `costs.json` next to this module. `tidegate bench size --result` takes the cells of another run, and
`--data` or `--config` with `--own-tables` the bytes of a row in tables of your own.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from deploy.bench.sizing.cost_curve import Beyond, CostCurve
from deploy.bench.suite.compare import read_results
from ingest.contract.errors import ConfigError
from lakehouse.atomic_file import write_text

__all__ = ["COSTS_FILE", "Costs", "Figure", "costs_of_result", "costs_of_tables", "read_costs", "save_costs"]

COSTS_FILE: Final = Path(__file__).with_name("costs.json")
SCENARIO: Final = "pipeline"
BASE: Final = {"rate": 1000, "devices": 100, "readings": 1, "partitions": 2, "table_rows": 0}
"""Workload of which the cells of a curve differ in one parameter."""
LOAD: Final = ("messages", "warmup_messages")
FIGURES: Final = ("commits", "p50_ms")
PREFIXES: Final = ("cpu_us_per_message_", "peak_rss_mb_")
LEAST_ROWS: Final = 10_000
"""Rows from which the size of a table says something about a row: each file has a footer of some KB."""

Part = Literal["broker", "gateway", "kafka", "stream"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure, and where it comes from."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs from one machine.

    Attributes:
        pipeline: result of the scenario, reduced to what the curves need: `hardware`, `versions`, `revision`, `repeats`, `cells`.
        figures: figures of other measurements by name.
        tables: bytes of a stored row after maintenance, by table.
    """

    pipeline: Mapping[str, Any]
    figures: Mapping[str, Figure]
    tables: Mapping[str, Figure]

    @property
    def machine(self) -> str:
        """Machine, versions and revision of the cells, in one line."""
        hardware, versions = self.pipeline["hardware"], self.pipeline["versions"]
        named = ", ".join(f"{name} {version}" for name, version in versions.items())
        return (
            f"{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gb']} GB; {named}; revision "
            f"{self.pipeline['revision'] or 'unknown'}; medians of {self.pipeline['repeats']}"
        )

    def cores(self, part: Part) -> CostCurve:
        """Return the cores that a part uses over messages/s."""
        name = f"cpu_us_per_message_{part}"
        points = [(x, x * y / 1e6) for x, y in self._points("rate", name)]
        return CostCurve(points, unit="messages/s", beyond="in proportion")

    def factor(self, part: Part, axis: Literal["devices", "readings"]) -> CostCurve:
        """Return the factor by which more devices or readings make a message dearer than in the base workload."""
        points = self._points(axis, f"cpu_us_per_message_{part}")
        base = dict(points)[BASE[axis]]
        beyond: Beyond = "flat" if axis == "devices" else "in proportion"
        return CostCurve([(x, max(1.0, y / base)) for x, y in points if x >= BASE[axis]], unit=axis, beyond=beyond)

    def memory_mb(self, part: Part) -> CostCurve:
        """Return the most resident memory of a part over devices."""
        return CostCurve(self._points("devices", f"peak_rss_mb_{part}"), unit="devices", beyond="as before")

    def commits(self) -> CostCurve:
        """Return the commits of `readings` a second over messages/s."""
        points = [
            (float(cell["rate"]), cell["commits"] * cell["rate"] / sum(cell[name] for name in LOAD))
            for cell in self._cells("rate")
            if cell.get("commits")
        ]
        return CostCurve(points, unit="messages/s")

    def most(self, axis: str) -> float:
        """Return the largest value of a parameter in a measured cell."""
        return max(float(cell[axis]) for cell in self.pipeline["cells"])

    def most_per_partition(self) -> float:
        """Return the highest measured rate of one partition, in messages/s."""
        return max(float(cell["rate"]) / float(cell["partitions"]) for cell in self.pipeline["cells"])

    def _cells(self, axis: str) -> list[Mapping[str, Any]]:
        others = {name: value for name, value in BASE.items() if name != axis}
        return [
            cell for cell in self.pipeline["cells"] if all(cell.get(name) == value for name, value in others.items())
        ]

    def _points(self, axis: str, figure: str) -> list[tuple[float, float]]:
        return [(float(cell[axis]), float(cell[figure])) for cell in self._cells(axis) if cell.get(figure)]


def read_costs(file: Path = COSTS_FILE) -> Costs:
    """Return the costs in a file that `save_costs` wrote.

    Raises:
        ConfigError: the file holds something else.
    """
    try:
        held = json.loads(file.read_text("utf-8"))
        costs = Costs(held["pipeline"], _figures(held["figures"]), _figures(held["tables"]))
        _check(costs)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = (
            f"{file}: cannot be read as costs ({type(error).__name__}: {error}). Give a file that "
            "`tidegate bench size --save-costs` wrote."
        )
        raise ConfigError(message) from error
    return costs


def costs_of_result(file: Path, others: Costs) -> Costs:
    """Return the costs of a result of `bench run pipeline`, with the other figures of `others`.

    Raises:
        ConfigError: the file has no cells of that scenario from which a curve over the rate follows.
    """
    cells: list[dict[str, Any]] = []
    last: dict[str, Any] | None = None
    for result in read_results(file):
        if result["scenario"] == SCENARIO:
            last = result
            cells += [_reduced(cell) for cell in result["cells"] if cell["spread"] and not cell.get("fault")]
    if last is not None:
        kept = {name: last.get(name) for name in ("scenario", "repeats", "hardware", "versions", "revision")}
        costs = replace(others, pipeline={**kept, "cells": cells})
        try:
            _check(costs)
        except (KeyError, ValueError, TypeError):
            last = None
    if last is None:
        message = (
            f"{file}: holds no measured cells of the scenario {SCENARIO} with its usual workload. Give the result.json of "
            f"`tidegate bench run {SCENARIO} --report DIR`."
        )
        raise ConfigError(message)
    return costs


def costs_of_tables(root: str, costs: Costs) -> Costs:
    """Return the costs with the bytes of a row in the tables under a root, for the tables that have enough rows.

    Raises:
        UnavailableError: a table cannot be opened.
    """
    import pyarrow.compute as pc

    from lakehouse.catalog import table_names
    from lakehouse.maintenance import table_state

    found = dict(costs.tables)
    for name in table_names(root):
        state = table_state(root, name) if name in costs.tables else None
        rows = int(pc.sum(state.files["num_records"]).as_py() or 0) if state is not None else 0
        if state is not None and rows >= LEAST_ROWS:
            found[name] = Figure(
                round(state.bytes / rows, 2), f"{rows:,} rows in {state.file_count:,} files of your tables"
            )
    return replace(costs, tables=found)


def save_costs(costs: Costs, file: Path) -> None:
    """Write the costs to a file that `read_costs` reads."""
    held = {
        "pipeline": dict(costs.pipeline),
        "figures": {name: {"value": each.value, "source": each.source} for name, each in costs.figures.items()},
        "tables": {name: {"value": each.value, "source": each.source} for name, each in costs.tables.items()},
    }
    write_text(file, json.dumps(held, indent=1, ensure_ascii=False) + "\n")


def _reduced(cell: Mapping[str, Any]) -> dict[str, Any]:
    names = [*BASE, *LOAD, *(name for name in cell if name in FIGURES or name.startswith(PREFIXES))]
    return {name: cell[name] for name in names if name in cell}


def _figures(held: Mapping[str, Mapping[str, Any]]) -> dict[str, Figure]:
    return {name: Figure(float(each["value"]), str(each["source"])) for name, each in held.items()}


def _check(costs: Costs) -> None:
    """Read what every size needs: curves of all parts over the rate, with the base workload, and the line of the machine."""
    for part in ("broker", "gateway", "kafka", "stream"):
        costs.cores(part).at(1.0)
        costs.memory_mb(part).at(1.0)
        costs.factor(part, "devices").at(1.0)
        costs.factor(part, "readings").at(1.0)
    costs.commits().at(1.0)
    if not costs.machine:
        raise ValueError
