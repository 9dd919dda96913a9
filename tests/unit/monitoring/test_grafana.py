"""The dashboards obey Grafana's linter, name declared metrics only, and say what they mean."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from monitoring.alerts.objectives import PAIRS
from monitoring.grafana.dashboard_files import dashboards
from monitoring.grafana.export_files import EXCLUSIONS, grafana_files
from monitoring.indicators import INSTALLATION, EventCount, freshness, validity
from monitoring.metrics.names import declared_samples
from monitoring.monitoring_settings import MonitoringSettings

DASHBOARDS = {each["uid"]: each for each in dashboards(MonitoringSettings())}
ADDED = {"job", "instance", INSTALLATION}
"""Labels that Prometheus puts on every series; the last where somebody told it to."""
OF_PROMETHEUS = {"ALERTS": ("alertname", "alertstate", "severity")}


@pytest.fixture(params=DASHBOARDS)
def dashboard(request: pytest.FixtureRequest) -> Any:
    return DASHBOARDS[request.param]


def test_every_dashboard_passes_the_linter(dashboard: Any, lint: Any) -> None:
    assert lint(dashboard) == []


def test_every_excuse_is_needed_and_has_a_reason(lint: Any) -> None:
    for each in DASHBOARDS.values():
        lint(each)
    assert {(each.rule, each.dashboard, each.panel) for each in EXCLUSIONS} == lint.used
    assert all(each.reason.endswith(".") for each in EXCLUSIONS)


def test_every_metric_is_declared_and_has_the_labels_asked_for(dashboard: Any, promql: Any, every_query: Any) -> None:
    known = {**declared_samples(), **OF_PROMETHEUS}
    for title, expr in every_query(dashboard):
        for metric, labels in promql.labels(expr).items():
            assert metric in known, f"{title}: nothing serves {metric}"
            assert labels - ADDED <= set(known[metric]), (
                f"{title}: {metric} has no {labels - ADDED - set(known[metric])}"
            )


def test_names_of_others_are_asked_by_job_and_all_by_installation(
    dashboard: Any, promql: Any, every_query: Any
) -> None:
    """A Prometheus that watches other things too, or several installations, shows none of theirs as ours."""
    for title, expr in every_query(dashboard):
        for each in promql.selectors(expr):
            assert ("cluster", "=~", "$cluster") in each.matchers, f"{title}: {expr}"
            jobs = [value for name, operator, value in each.matchers if name == "job" and operator == "=~"]
            is_ours = each.metric.startswith(("tidegate_", *OF_PROMETHEUS))
            assert is_ours or any(job.startswith("tidegate-") for job in jobs), f"{title}: {expr}"


def test_an_installation_without_a_label_is_chosen_too(dashboard: Any) -> None:
    (found,) = (each for each in dashboard["templating"]["list"] if each["name"] == INSTALLATION)
    assert re.fullmatch(found["allValue"], "")


def test_variables_ask_for_declared_metrics_and_labels(dashboard: Any, promql: Any) -> None:
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            series, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            ((metric, labels),) = promql.labels(series).items()
            assert {label, *labels} - ADDED <= set(declared_samples()[metric])


def test_every_variable_is_used(dashboard: Any, every_query: Any) -> None:
    asked = " ".join(expr for _, expr in every_query(dashboard))
    for variable in dashboard["templating"]["list"][1:]:
        assert f"${variable['name']}" in asked


def test_legends_name_labels_that_the_query_keeps(dashboard: Any, promql: Any) -> None:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            kept = [each.grouped or set(declared_samples()[each.metric]) | ADDED for each in _first(promql, target)]
            assert all(wanted <= labels for labels in kept), (panel["title"], target["legendFormat"])


def _first(promql: Any, target: Any) -> Any:
    """The first selector decides which labels a result has."""
    found = promql.selectors(target["expr"])
    return [] if found[0].metric in OF_PROMETHEUS else found[:1]


def test_several_series_of_a_panel_have_names(dashboard: Any) -> None:
    for panel in dashboard["panels"]:
        legends = [target["legendFormat"] for target in panel.get("targets", ())]
        if len(legends) > 1:
            assert len(set(legends)) == len(legends), panel["title"]
            assert "__auto" not in legends, panel["title"]


UNIT_OF = {
    "_seconds": {"s", "percentunit"}, "_timestamp_seconds": {"s"}, "_bytes": {"bytes", "Bps", "percentunit"}, "_days": {"d"},
}  # fmt: skip


def test_units_agree_with_what_the_metrics_count(dashboard: Any, promql: Any) -> None:
    """Seconds are shown as seconds, bytes as bytes; a rate of bytes is Bps, of seconds a share, of events no bytes."""
    for panel in dashboard["panels"]:
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit")
        for target in panel.get("targets", ()):
            first = promql.selectors(target["expr"])[0]
            base = re.sub(r"_(bucket|sum|total)$", "", first.metric)
            ending = next((end for end in sorted(UNIT_OF, key=len, reverse=True) if base.endswith(end)), None)
            if (
                ending
                and not first.metric.endswith("_count")
                and not base.endswith(("process_cpu_seconds", "bench_io_wait_seconds"))
                and panel["title"] not in RATIOS
            ):
                assert unit in UNIT_OF[ending], (panel["title"], target["expr"])
            if ending is None and not any(word in base for word in ("bytes", "size", "memused")):
                assert unit not in ("bytes", "Bps"), (panel["title"], target["expr"])


RATIOS = {f"{name} {what}" for name in ("Freshness", "Validity") for what in ("compliance", "budget left", "burn rate")}


def test_descriptions_are_sentences(dashboard: Any) -> None:
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            text = panel["description"]
            assert text[0].isupper() or text[0] == "1", text
            assert text.endswith("."), text
            assert not panel["title"].endswith("."), panel["title"]


def test_long_windows_are_asked_for_few_moments(dashboard: Any, promql: Any) -> None:
    """A day's samples for each point of a line, every 10 s, would be Prometheus' main occupation."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            assert target["instant"] == (panel["type"] in ("stat", "gauge", "table")) != target["range"], panel["title"]
            windows = [each.window for each in promql.selectors(target["expr"]) if each.window]
            if target["range"] and max(windows, default=timedelta()) >= timedelta(hours=1):
                assert panel["maxDataPoints"] <= 60, panel["title"]


def test_the_objective_of_the_settings_is_what_is_drawn() -> None:
    strict = MonitoringSettings(freshness_seconds=1.0, freshness_objective=0.999, validity_objective=0.9)
    text = json.dumps(dashboards(strict)[0])
    assert 'le=\\"1.0\\"' in text
    assert 'le=\\"2.5\\"' not in text
    assert "/ 0.001" in text
    assert "/ 0.1" in text
    assert "0.999 of the canary's readings" in text


def test_the_same_settings_give_the_same_bytes() -> None:
    assert grafana_files(MonitoringSettings()) == grafana_files(MonitoringSettings())


def test_a_reading_fleet_never_counts_the_canary(promql: Any, every_query: Any) -> None:
    """Panels that are called `fleet` take the canary off, by a counter of the canary."""
    fleet = [expr for each in DASHBOARDS.values() for title, expr in every_query(each) if "fleet" in title.lower()]
    assert len(fleet) >= 5
    for expr in fleet:
        first, second = promql.selectors(expr)
        assert not first.metric.startswith("tidegate_canary")
        assert second.metric.startswith("tidegate_canary")


def _increase(count: EventCount, window: str) -> str:
    labels = ", ".join(filter(None, ('cluster=~"$cluster", job=~"$job", instance=~"$instance"', count.where)))
    return f"sum(increase({count.metric}{{{labels}}}[{window}]))"


@pytest.mark.parametrize(
    "settings",
    [
        MonitoringSettings(),
        MonitoringSettings(freshness_seconds=5, freshness_objective=0.9731, validity_objective=0.95),
    ],
)
def test_objectives_count_what_the_alerts_count_over_their_windows(settings: MonitoringSettings) -> None:
    overview = dashboards(settings)[0]
    panels = {panel["title"]: panel for panel in overview["panels"]}
    objectives = (
        ("Freshness", freshness(settings.freshness_seconds), settings.freshness_objective),
        ("Validity", validity(), settings.validity_objective),
    )
    for name, indicator, share in objectives:

        def bad(window: str, indicator: Any = indicator) -> str:
            def count(each: EventCount) -> str:
                return _increase(each, window)

            return f"({indicator.bad_promql(count)} / ({indicator.all_promql(count)} > 0))"

        burn = [target["expr"] for target in panels[f"{name} burn rate"]["targets"]]
        assert burn == [f"{bad(pair.long)} / {1 - share:.6g}" for pair in PAIRS]
        assert [t["expr"] for t in panels[f"{name} budget left"]["targets"]] == [f"1 - {bad('30d')} / {1 - share:.6g}"]
        compliance = panels[f"{name} compliance"]
        assert [t["expr"] for t in compliance["targets"]] == [f"1 - {bad('$__range')}"]
        steps = [step["value"] for step in compliance["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        assert steps == [None, share, (1 + share) / 2]
        assert all(f"{pair.factor:g} over {pair.long}" in panels[f"{name} burn rate"]["description"] for pair in PAIRS)


def test_no_placeholder_is_left() -> None:
    assert "<<" not in json.dumps(list(DASHBOARDS.values()))
