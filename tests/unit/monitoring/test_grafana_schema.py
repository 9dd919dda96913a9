"""The dashboards against the models of Grafana's foundation SDK.

What it checks: that every key we write is one that the model of its place knows (dashboard, panel, options and field
configuration of timeseries, stat, gauge, heatmap, table; Prometheus query; variable), and comes back with the value that we gave.
What it does not: types and allowed values (the models are plain classes), what a panel looks like, and what Grafana's own
migration to its newest schema makes of it.
"""

import copy
import json
from typing import Any

import pytest

from monitoring.grafana.dashboard_files import dashboards
from monitoring.monitoring_settings import MonitoringSettings

DASHBOARDS = {each["uid"]: each for each in dashboards(MonitoringSettings())}
NOT_MODELLED = {"$.templating.list[].definition"}
"""Grafana writes it itself into every query variable; the SDK's model does not name it."""


def read_back(dashboard: Any) -> Any:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard, Panel, RowPanel, VariableModel

    register_default_plugins()
    model = Dashboard.from_json(copy.deepcopy(dashboard))
    model.panels = [
        (RowPanel if each["type"] == "row" else Panel).from_json(copy.deepcopy(each)) for each in dashboard["panels"]
    ]
    model.templating.list_val = [VariableModel.from_json(each) for each in dashboard["templating"]["list"]]
    return json.loads(JSONEncoder(sort_keys=True).encode(model))


def lost(wrote: Any, read: Any, at: str = "$") -> set[str]:
    """Places of what was written and did not come back the same."""
    if isinstance(wrote, dict) and isinstance(read, dict):
        return {place for key, value in wrote.items() for place in lost(value, read.get(key, KeyError), f"{at}.{key}")}
    if isinstance(wrote, list) and isinstance(read, list) and len(wrote) == len(read):
        return {place for one, other in zip(wrote, read, strict=True) for place in lost(one, other, f"{at}[]")}
    return set() if wrote == read else {at}


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_the_sdk_reads_back_all_that_was_written(uid: str) -> None:
    pytest.importorskip("grafana_foundation_sdk", reason="needs the dependency group `readers`")
    assert lost(DASHBOARDS[uid], read_back(DASHBOARDS[uid])) - NOT_MODELLED == set()


@pytest.mark.parametrize("place", ["dashboard", "panel", "options", "custom", "target", "variable"])
def test_a_key_that_no_model_knows_is_found(place: str) -> None:
    pytest.importorskip("grafana_foundation_sdk", reason="needs the dependency group `readers`")
    wrong = copy.deepcopy(DASHBOARDS["tidegate-kafka"])
    panel = next(each for each in wrong["panels"] if each["type"] == "timeseries")
    {
        "dashboard": wrong,
        "panel": panel,
        "options": panel["options"],
        "custom": panel["fieldConfig"]["defaults"]["custom"],
        "target": panel["targets"][0],
        "variable": wrong["templating"]["list"][1],
    }[place]["invented"] = 1

    assert any(found.endswith(".invented") for found in lost(wrong, read_back(wrong)))
