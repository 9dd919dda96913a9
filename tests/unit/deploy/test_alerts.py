"""`tidegate alerts`: the catalogue and the runbooks in a terminal, with nothing running."""

import json
from pathlib import Path

import pytest

from deploy.cli import run
from monitoring.alerts.catalog import ALERTS
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.page.runbooks import runbook_html
from monitoring.prometheus.export_files import prometheus_files

Captured = pytest.CaptureFixture[str]


def test_every_alert_is_listed(capsys: Captured) -> None:
    assert run(["alerts", "ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [alert.name for alert in ALERTS]
    assert run(["alerts", "ls", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["expr"]) for each in told] == [(alert.name, alert.signal.promql()) for alert in ALERTS]


@pytest.mark.parametrize("name", ["TidegateDiskFull", "diskfull", "TIDEGATEDISKFULL"])
def test_an_alert_is_explained_by_its_runbook_and_its_conditions(name: str, capsys: Captured) -> None:
    assert run(["alerts", "explain", name]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# TidegateDiskFull\n")
    assert "## Mitigation" in out
    assert '- critical for 30 s: `node_filesystem_avail_bytes{job="tidegate-monitor"} < 1073741824`' in out
    assert out.count("\n- warning for ") == 2


def test_commands_of_an_embedded_run_are_told_for_services_as_well(capsys: Captured) -> None:
    assert run(["alerts", "explain", "TargetDown"]) == 0
    out = capsys.readouterr().out
    diagnosis = out[out.index("## Diagnosis") : out.index("## Mitigation")]
    assert "add `--config FILE` to `tidegate status`" in diagnosis
    assert "journalctl -u UNIT" in diagnosis
    assert "monitoring.canary_port = 0" in out
    assert "journalctl -u UNIT" in runbook_html("TidegateTargetDown")
    assert "journalctl" in prometheus_files(MonitoringSettings())["README.md"]
    assert all(
        "its port in `monitoring` to 0" in alert.actions[-1] for alert in ALERTS if alert.name == "TidegateTargetDown"
    )


def test_conditions_follow_the_settings(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[monitoring]\naudit_seconds = 60\n")
    assert run(["alerts", "explain", "AuditOld", "--config", str(file), "--json"]) == 0
    (rule,) = json.loads(capsys.readouterr().out)["rules"]
    assert "> 780" in rule["expr"]


def test_an_alert_that_does_not_exist_is_met_with_the_nearest(capsys: Captured) -> None:
    assert run(["alerts", "explain", "KafkaUnreachabel"]) == 78
    assert "nearest: TidegateKafkaUnreachable" in capsys.readouterr().err
