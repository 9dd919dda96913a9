"""Parameters of cells in a result: their names, those that differ between cells, and the text of one cell."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from deploy.bench.suite.scenario import Parameters, ScenarioTarget

__all__ = ["cell_identity", "cell_text", "differing_parameters", "parameter_names", "shown_value"]

_NAMES = (*ScenarioTarget.model_fields, *Parameters.model_fields)
_KIND_OF: Final = {
    "members": "group", "event": "group", "protocol": "group", "partitioner": "partitioner", "networks": "partitioner",
    "rewind": "rewind", "retained_mb": "load", "cold": "load", "fetch_bytes": "load", "disturbance": "streams",
    "kill": "failover", "window": "mqtt", "settle_seconds": "pipeline",
    "profile": "pipeline",
}  # fmt: skip
"""Parameters that mean something for one kind of run alone; the cells of another only have their defaults."""


def parameter_names(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the parameter names that any of these has."""
    return [name for name in _NAMES if any(name in cell for cell in cells)]


def differing_parameters(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the parameters with more than one value among the cells for which they mean something."""
    return [
        name for name in parameter_names(cells) if len({cell.get(name) for cell in cells if _means(cell, name)}) > 1
    ]


def shown_value(cell: Mapping[str, Any], name: str) -> Any:
    """The parameter as tables show it: empty where the cell has none, or it means nothing there."""
    return cell.get(name, "") if _means(cell, name) else ""


def _means(cell: Mapping[str, Any], name: str) -> bool:
    return "kind" not in cell or _KIND_OF.get(name, cell["kind"]) == cell["kind"]


def cell_identity(cell: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """All parameters and the measure: the same in two results where both measured the same cell.

    A parameter that a result of an older version does not know has its default; a cell of an existing cluster has no target.
    """
    forms = (ScenarioTarget, Parameters) if any(name in cell for name in ScenarioTarget.model_fields) else (Parameters,)
    defaults = {name: field.default for form in forms for name, field in form.model_fields.items()}
    return tuple((name, value) for name, value in {**defaults, **_own(cell)}.items())


def _own(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {name: cell[name] for name in (*_NAMES, "measure") if name in cell}


def cell_text(cell: Mapping[str, Any], names: Sequence[str]) -> str:
    """Such as `brokers=3 message_bytes=8 produce_per_second`."""
    words = [f"{name}={_short(value)}" for name in names if (value := shown_value(cell, name)) != ""]
    return " ".join([*words, *([cell["measure"]] if "measure" in cell else [])]) or "the only cell"


def _short(value: object) -> str:
    """A rate of 2000.0 is 2000."""
    return f"{value:.10g}" if isinstance(value, float) else str(value)
