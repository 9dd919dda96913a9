"""Files of `tidegate export grafana`: dashboards, provisioning, a README, and exclusions for Grafana's dashboard-linter.

The exclusions name the rules that panels break on purpose, with the reason. The linter reads them from `.lint`. The tests allow
these exclusions and no others.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

import yaml

from monitoring.grafana.dashboard_files import dashboards
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.prometheus.export_files import EVERY_SECONDS

__all__ = ["EXCLUSIONS", "grafana_files"]

PROMETHEUS_URL: Final = "TIDEGATE_PROMETHEUS_URL"
FOLDER: Final = "TIDEGATE_GRAFANA"

README: Final = f"""# Tidegate's dashboards for Grafana

| file | content |
|---|---|
| dashboards/tidegate-overview.json | objectives and their budgets, alerts, latency, errors, throughput, the canary |
| dashboards/tidegate-pipeline.json | each hop from MQTT to tables, devices, SQL streams, Spark |
| dashboards/tidegate-kafka.json | brokers, requests, lag and time to data loss, JVMs, the machine, the MQTT broker |
| dashboards/tidegate-bench.json | a benchmark (`bench run --metrics-port`): progress, throughput, latency, errors, resources |
| dashboards/.lint | rules of Grafana's dashboard-linter that a panel breaks on purpose, with the reason |

The dashboards need a Prometheus that scrapes Tidegate. `tidegate export prometheus DIR` writes its configuration and rules.

This command sends every query of the dashboards to that Prometheus, and names the queries without a result:

    tidegate export grafana DIR --check http://127.0.0.1:9090

## Run a new Grafana

    export {FOLDER}="$PWD" {PROMETHEUS_URL}=http://127.0.0.1:9090
    GF_PATHS_PROVISIONING="$PWD/provisioning" grafana server --homepath /usr/share/grafana

The files under `provisioning/` read both variables when Grafana starts.

## Use a Grafana that you already run

Copy the files of `provisioning/dashboards` and `provisioning/datasources` into its provisioning folder, and set both variables
for its service. Or import each dashboard by hand (Dashboards, New, Import), and choose the data source at the top of it.

You cannot edit the dashboards in place. Save a copy under another name, or change `monitoring/grafana/dashboards/` and
export again.
"""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """One rule that does not apply to one panel; `rule` is the linter's own name, or one of this project (`fixed-window`)."""

    rule: str
    dashboard: str
    panel: str
    reason: str


_OVERVIEW: Final = "Tidegate / Overview"
_PIPELINE: Final = "Tidegate / Pipeline"
_SHOWN: Final = "It counts over the whole time range shown."
_BURN: Final = "A burn rate has the window of its alert, whatever time range is shown."
_BUDGET: Final = "A budget has its own window, whatever time range is shown."
_ALERTS: Final = "ALERTS has the labels of the rule's result, and most rules remove job and instance."
EXCLUSIONS: Final = (
    Exclusion("target-job-rule", _OVERVIEW, "Alerts", _ALERTS),
    Exclusion("target-instance-rule", _OVERVIEW, "Alerts", _ALERTS),
    *(Exclusion("fixed-window", _OVERVIEW, f"{name} burn rate", _BURN) for name in ("Freshness", "Validity")),
    *(Exclusion("fixed-window", _OVERVIEW, f"{name} budget left", _BUDGET) for name in ("Freshness", "Validity")),
    *(Exclusion("fixed-window", _OVERVIEW, f"{name} compliance", _SHOWN) for name in ("Freshness", "Validity")),
    Exclusion("fixed-window", _PIPELINE, "Audit duration", _SHOWN),
)


def lint_file() -> dict[str, Any]:
    """Return the exclusions for Grafana's linter: its own rules only."""
    rules: dict[str, Any] = {}
    for each in EXCLUSIONS:
        if each.rule.endswith("-rule"):
            entries = rules.setdefault(each.rule, {"entries": []})["entries"]
            entries.append({"reason": each.reason, "dashboard": each.dashboard, "panel": each.panel})
    return {"exclusions": rules}


def grafana_files(settings: MonitoringSettings) -> dict[str, str]:
    """Return path below the folder -> content. The same settings give the same bytes."""
    made = {f"dashboards/{each['uid']}.json": _as_json(each) for each in dashboards(settings)}
    return made | {
        "dashboards/.lint": _as_yaml(lint_file()),
        "provisioning/dashboards/tidegate.yaml": _as_yaml(_provider()),
        "provisioning/datasources/tidegate.yaml": _as_yaml(_datasource()),
        "README.md": README,
    }


def _provider() -> dict[str, Any]:
    provider = {
        "name": "tidegate",
        "folder": "Tidegate",
        "type": "file",
        "disableDeletion": True,
        "allowUiUpdates": False,
        "updateIntervalSeconds": 30,
        "options": {"path": f"${{{FOLDER}}}/dashboards"},
    }
    return {"apiVersion": 1, "providers": [provider]}


def _datasource() -> dict[str, Any]:
    source = {
        "name": "Tidegate Prometheus",
        "type": "prometheus",
        "uid": "tidegate-prometheus",
        "access": "proxy",
        "url": f"${{{PROMETHEUS_URL}}}",
        "isDefault": False,
        "editable": False,
        "jsonData": {"httpMethod": "POST", "timeInterval": f"{EVERY_SECONDS}s"},
    }
    return {"apiVersion": 1, "datasources": [source]}


def _as_json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _as_yaml(content: dict[str, Any]) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
