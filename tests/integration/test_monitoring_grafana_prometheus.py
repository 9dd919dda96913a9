"""Every query of the dashboards against a real Prometheus, and the figures of the fleet against promtool."""

import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitoring.grafana.dashboard_files import dashboards
from monitoring.grafana.query_check import ask_prometheus, empty_queries
from monitoring.monitoring_settings import MonitoringSettings

ALL = dashboards(MonitoringSettings())


def test_every_query_gives_numbers_where_everything_is_served(
    fed_prometheus: Any, wait_until: Callable[..., Any]
) -> None:
    """No query is excused here: what a run may lack, this feed has."""
    ask = ask_prometheus(fed_prometheus.url)
    wait_until(lambda: _answers(ask), seconds=60, what="Prometheus answers")
    missing: list[str] = []

    def look() -> bool:
        missing[:] = [f"{each.panel}: {each.why}: {each.expr}" for each in empty_queries(ALL, ask)]
        return not missing

    with suppress(pytest.fail.Exception):
        wait_until(look, seconds=45)
    assert missing == []


def test_a_query_of_a_metric_that_nobody_serves_is_found(fed_prometheus: Any, wait_until: Callable[..., Any]) -> None:
    ask = ask_prometheus(fed_prometheus.url)
    wait_until(lambda: _answers(ask), seconds=60, what="Prometheus answers")
    panel = {"title": "Wrong", "targets": [{"expr": "sum(tidegate_gone)"}, {"expr": "sum(up"}]}
    found = empty_queries(({"uid": "x", "templating": {"list": []}, "panels": [panel]},), ask)

    assert [each.why.split(":")[0] for each in found] == ["no series", "refused"]
    assert not any(each.expected for each in found)


def _answers(ask: Any) -> bool:
    try:
        return bool(ask("up == 1"))
    except OSError:
        return False


SENT, CANARY = 1000, 250
"""Messages of the fleet and of the canary within as many seconds as the fleet sends messages."""
COUNTERS = {
    'tidegate_gateway_messages_received_total{qos="1"': SENT + CANARY,
    "tidegate_gateway_messages_accepted_total{": SENT + CANARY,
    'tidegate_stream_rows_total{table="readings"': SENT + CANARY,
    "tidegate_canary_published_total{": 2 * CANARY,
    "tidegate_canary_acknowledged_total{": CANARY,
    "tidegate_canary_seen_total{": CANARY,
}


def test_a_thousand_messages_are_a_thousand_on_every_panel_of_the_fleet(tmp_path: Path) -> None:
    """The canary's 250 stand in the counters and on no panel of the fleet."""
    if shutil.which("promtool") is None:
        pytest.skip("no promtool on this machine: apt-get install prometheus")
    fleet = [
        target["expr"]
        for each in ALL
        for panel in each["panels"]
        if "fleet" in panel["title"]
        for target in panel["targets"]
    ]
    assert len(fleet) >= 5
    checks = [
        {
            "expr": f"{re.sub(r'[$](cluster|job|instance)', '.*', expr).replace('$__rate_interval', f'{SENT}s')} * {SENT}",
            "eval_time": f"{SENT}s",
            "exp_samples": [{"labels": "{}", "value": SENT}],
        }
        for expr in fleet
    ]
    series = [
        {
            "series": f'{name}{"" if name.endswith("{") else ","}job="j",instance="i"}}',
            "values": f"0+{grown / SENT}x{SENT}",
        }
        for name, grown in COUNTERS.items()
    ]
    file = tmp_path / "fleet.yml"
    tests = [{"interval": "1s", "input_series": series, "promql_expr_test": checks}]
    file.write_text(yaml.safe_dump({"evaluation_interval": "1s", "tests": tests}), encoding="utf-8")
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


KNOWN_ELSEWHERE = {
    "node_memory_MemAvailable_bytes": "node_exporter's name",
    "node_memory_MemTotal_bytes": "node_exporter's name",
    "tidegate_table_disk_full_days": "people plan disks in days",
}


@pytest.mark.parametrize("part", ["gateway", "stream", "canary", "monitor", "bench"])
def test_promtool_finds_nothing_wrong_with_our_metrics(part: str, metrics_feed: Any) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool on this machine: apt-get install prometheus")
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=metrics_feed.text(part), capture_output=True, check=False
    )
    found = [line for line in done.stderr.decode().splitlines() if line.split(" ", 1)[0] not in KNOWN_ELSEWHERE]

    assert found == []
