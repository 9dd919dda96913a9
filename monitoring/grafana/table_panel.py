"""A panel of rows and columns."""

from collections.abc import Sequence

from monitoring.grafana.panel import Panel, PanelQuery, field, panel

__all__ = ["table"]


def table(
    title: str,
    description: str,
    unit: str,
    *queries: PanelQuery,
    by: Sequence[str],
    hide: Sequence[str] = (),
    width: int = 12,
    height: int = 8,
) -> Panel:
    """Return the newest values, one row per combination of the labels `by`, one column per query."""
    options = {"cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""}}
    made = panel("table", title, description, queries, field(unit, ()), options, width, height)
    for target in made["targets"]:
        target["format"] = "table"
    values = [f"Value #{target['refId']}" for target in made["targets"]] if len(queries) > 1 else ["Value"]
    made["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {name: True for name in ("Time", *hide)},
                "indexByName": {name: place for place, name in enumerate((*by, *values))},
                "renameByName": {value: query.legend for value, query in zip(values, queries, strict=True)},
            },
        },
    ]
    return made
