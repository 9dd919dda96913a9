"""Files of `tidegate export helm`: the shipped chart, filled from the settings, with the exported rules and dashboards in it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.helm.chart_values import chart_values, fill_values
from deploy.helm.values_schema import values_schema
from deploy.settings import Settings
from monitoring.grafana.export_files import grafana_files
from monitoring.prometheus.export_files import prometheus_files

__all__ = ["CHART", "ChartExport", "chart_files"]

CHART: Final = Path(__file__).with_name("tidegate")
"""Source of the chart. It lacks the files that depend on settings, so only an exported chart has rules and dashboards."""
VALUES: Final = "values.yaml"
SCHEMA: Final = "values.schema.json"
RULES: Final = "tidegate-rules.yml"
DASHBOARDS: Final = "dashboards/"


@dataclass(frozen=True, slots=True)
class ChartExport:
    """An exported chart: path below its folder -> content; `notes` are sentences about settings that need a person."""

    files: Mapping[str, str]
    notes: tuple[str, ...]


def chart_files(settings: Settings, given: Mapping[str, Any] | None = None) -> ChartExport:
    """Return the chart for these settings. The same settings give the same bytes.

    Args:
        settings: the settings of the pipeline.
        given: content of the settings file, from which routes, mappings and vendors are copied unchanged.
    """
    source = {
        str(file.relative_to(CHART)): file.read_text("utf-8") for file in sorted(CHART.rglob("*")) if file.is_file()
    }
    values = chart_values(settings, given or {})
    rules = prometheus_files(settings.monitoring)[RULES]
    dashboards = {
        name: text
        for name, text in grafana_files(settings.monitoring).items()
        if name.startswith(DASHBOARDS) and name.endswith(".json")
    }
    files = source | {
        VALUES: fill_values(source[VALUES], values.filled),
        SCHEMA: json.dumps(values_schema(json.loads(source[SCHEMA])), indent=1, ensure_ascii=False) + "\n",
        f"files/{RULES}": rules,
        **{f"files/{name}": text for name, text in dashboards.items()},
    }
    return ChartExport(files, values.notes)
