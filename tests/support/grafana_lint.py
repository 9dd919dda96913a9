"""The rules of Grafana's dashboard-linter (and some of ours), each a function that yields what breaks it.

Source: github.com/grafana/dashboard-linter, `lint/rule_*.go`. Where the linter looks away (unit with value mappings, kinds of
panels that it does not know, `increase` over fixed windows, counters called `_sum` or `_count`) we look too.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from monitoring.grafana.export_files import EXCLUSIONS

COLUMNS = 24
"""Width of Grafana's grid."""

UNITS = {
    "none", "short", "percent", "percentunit", "bytes", "decbytes", "Bps", "pps", "ns", "µs", "ms", "s", "m", "h", "d",
    "dtdurations", "cps", "ops", "reqps", "rps", "wps", "iops", "cpm", "opm", "bool", "bool_yes_no", "bool_on_off",
    "hertz", "string",
}  # fmt: skip
"""Of those that Grafana knows, the ones that a pipeline needs."""
RATES = {"rate", "irate", "increase"}
JSON = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    rule: str
    panel: str
    what: str


class Lint:
    """`lint(dashboard)` lists findings without those that are excused; `lint.used` holds the excuses that were needed."""

    def __init__(self, promql: Any) -> None:
        self._promql = promql
        self.used: set[tuple[str, str, str]] = set()

    def __call__(self, dashboard: JSON) -> list[Finding]:
        found = [Finding(rule, "", what) for rule, check in DASHBOARD_RULES.items() for what in check(dashboard)]
        for panel in dashboard["panels"]:
            if panel["type"] == "row":
                continue
            title = panel.get("title", "")
            found += [
                Finding(rule, title, what) for rule, check in PANEL_RULES.items() for what in check(dashboard, panel)
            ]
            for target in panel.get("targets") or ():
                found += [Finding(rule, title, what) for rule, what in self._target(target)]
        return [each for each in found if not self._excused(dashboard, each)]

    def _target(self, target: JSON) -> Iterator[tuple[str, str]]:
        try:
            selectors = self._promql.selectors(target.get("expr", ""))
        except ValueError as error:
            yield "target-promql-rule", f"{target.get('expr')}: {error}"
            return
        for rule, check in TARGET_RULES.items():
            yield from ((rule, f"{what} in {target['expr']}") for each in selectors for what in check(each))

    def _excused(self, dashboard: JSON, finding: Finding) -> bool:
        key = (finding.rule, dashboard["title"], finding.panel)
        if key in {(each.rule, each.dashboard, each.panel) for each in EXCLUSIONS}:
            self.used.add(key)
            return True
        return False


def _variables(dashboard: JSON, kind: str) -> list[JSON]:
    return [each for each in dashboard["templating"]["list"] if each["type"] == kind]


def _template_datasource(dashboard: JSON) -> Iterator[str]:
    found = [(each["name"], each.get("label"), each["query"]) for each in _variables(dashboard, "datasource")]
    if found != [("datasource", "Data source", "prometheus")]:
        yield f"wanted one variable `datasource` labelled `Data source` of type prometheus, got {found}"


def _template(name: str) -> Callable[[JSON], Iterator[str]]:
    def check(dashboard: JSON) -> Iterator[str]:
        one = next((each for each in dashboard["templating"]["list"] if each["name"] == name), None)
        wanted = {"type": "query", "label": name.capitalize(), "multi": True, "allValue": ".+", "includeAll": True}
        if one is None:
            yield f"no variable {name}"
            return
        got = {key: one.get(key) for key in wanted}
        if got != wanted:
            yield f"variable {name}: {got}"
        if one["datasource"]["uid"] not in ("$datasource", "${datasource}"):
            yield f"variable {name} asks {one['datasource']['uid']}"

    return check


def _template_reload(dashboard: JSON) -> Iterator[str]:
    yield from (
        f"{each['name']} is not asked for again" for each in _variables(dashboard, "query") if each["refresh"] != 2
    )


def _template_query(dashboard: JSON) -> Iterator[str]:
    from promql_parser import parse

    for each in _variables(dashboard, "query"):
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"])
        if match is None:
            yield f"variable {each['name']}: {each['query']} is no label_values(series, label)"
            continue
        try:
            parse(match[1])
        except ValueError as error:
            yield f"variable {each['name']}: {error}"


def _order(dashboard: JSON) -> Iterator[str]:
    names = [each["name"] for each in dashboard["templating"]["list"]]
    if names[:3] != ["datasource", "job", "instance"]:
        yield f"variables come as {names}"


def _uneditable(dashboard: JSON) -> Iterator[str]:
    if dashboard.get("editable", True):
        yield "is editable"


def _no_inputs(dashboard: JSON) -> Iterator[str]:
    if "__inputs" in dashboard or "DS_PROMETHEUS" in str(dashboard):
        yield "asks for an input at import, which breaks provisioning"


def _identity(dashboard: JSON) -> Iterator[str]:
    if not re.fullmatch(r"tidegate-[a-z]{1,31}", dashboard.get("uid", "")):
        yield f"uid {dashboard.get('uid')!r}"
    if "tidegate" not in dashboard["tags"] or dashboard["schemaVersion"] != 39 or dashboard["graphTooltip"] != 2:
        yield "tag, schemaVersion 39 or shared tooltips are missing"
    links = [
        each for each in dashboard["links"] if each["type"] == "dashboards" and each["includeVars"] and each["keepTime"]
    ]
    if [each["tags"] for each in links] != [["tidegate"]]:
        yield "no link to the dashboards of the same tag that takes the variables along"
    ids = [panel["id"] for panel in dashboard["panels"]]
    if sorted(ids) != sorted(set(ids)):
        yield "two panels have one id"
    titles = [panel.get("title") for panel in dashboard["panels"] if panel["type"] != "row"]
    yield from (f"two panels are called {title}" for title in sorted(set(map(str, titles))) if titles.count(title) > 1)


def _layout(dashboard: JSON) -> Iterator[str]:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        if not (place["x"] >= 0 and place["w"] > 0 and place["h"] > 0 and place["x"] + place["w"] <= COLUMNS):
            yield f"{panel['title']} lies outside of {COLUMNS} columns"
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                if (x, y) in taken:
                    yield f"{panel['title']} lies over {taken[x, y]}"
                    return
                taken[x, y] = str(panel.get("title"))


def _full_lines(dashboard: JSON) -> Iterator[str]:
    """No hole: panels of one line are as wide as the dashboard together, and equally high."""
    lines: dict[int, list[JSON]] = {}
    for panel in dashboard["panels"]:
        lines.setdefault(panel["gridPos"]["y"], []).append(panel)
    for line in lines.values():
        if (
            sum(panel["gridPos"]["w"] for panel in line) != COLUMNS
            or len({panel["gridPos"]["h"] for panel in line}) != 1
        ):
            yield f"a hole beside {line[0].get('title')}"


def _panel_datasource(_: JSON, panel: JSON) -> Iterator[str]:
    for each in (panel, *(panel.get("targets") or ())):
        if (each.get("datasource") or {}).get("uid") not in ("$datasource", "${datasource}"):
            yield f"asks {each.get('datasource')}"


def _panel_words(_: JSON, panel: JSON) -> Iterator[str]:
    if not panel.get("title") or not panel.get("description"):
        yield "has no title or no description"


def _panel_unit(_: JSON, panel: JSON) -> Iterator[str]:
    unit = panel["fieldConfig"]["defaults"].get("unit")
    if unit not in UNITS:
        yield f"has the unit {unit}"


def _panel_targets(_: JSON, panel: JSON) -> Iterator[str]:
    names = [each.get("refId") for each in panel.get("targets") or ()]
    if not names or len(set(names)) != len(names):
        yield f"has the targets {names}"


def _matcher(label: str) -> Callable[[Any], Iterator[str]]:
    def check(selector: Any) -> Iterator[str]:
        if (label, "=~", f"${label}") not in selector.matchers:
            yield f"{selector.metric} has no {label}=~`${label}`"

    return check


def _rate_interval(selector: Any) -> Iterator[str]:
    from datetime import timedelta

    if selector.function in RATES and selector.window != timedelta(seconds=61):
        yield f"{selector.function} of {selector.metric} over {selector.window}"


def _counter(selector: Any) -> Iterator[str]:
    if selector.metric.endswith(("_total", "_bucket", "_sum", "_count")) and selector.function not in RATES:
        yield f"counter {selector.metric} without rate or increase"


DASHBOARD_RULES: dict[str, Callable[[JSON], Iterator[str]]] = {
    "template-datasource-rule": _template_datasource,
    "template-job-rule": _template("job"),
    "template-instance-rule": _template("instance"),
    "template-label-promql-rule": _template_query,
    "template-on-time-change-reload-rule": _template_reload,
    "uneditable-dashboard": _uneditable,
    "variable-order": _order,
    "no-inputs": _no_inputs,
    "identity": _identity,
    "layout": _layout,
    "full-lines": _full_lines,
}
PANEL_RULES: dict[str, Callable[[JSON, JSON], Iterator[str]]] = {
    "panel-datasource-rule": _panel_datasource,
    "panel-title-description-rule": _panel_words,
    "panel-units-rule": _panel_unit,
    "panel-no-targets-rule": _panel_targets,
}
TARGET_RULES: dict[str, Callable[[Any], Iterator[str]]] = {
    "target-job-rule": _matcher("job"),
    "target-instance-rule": _matcher("instance"),
    "fixed-window": _rate_interval,
    "target-counter-agg-rule": _counter,
}
"""`fixed-window` is target-rate-interval-rule, for `increase` too, which the linter lets pass."""


@pytest.fixture(scope="session")
def lint(promql: Any) -> Lint:
    """Holds a dashboard to all rules."""
    return Lint(promql)
