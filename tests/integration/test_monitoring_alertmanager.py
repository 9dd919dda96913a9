"""The configurations are taken by the real tools, and Alertmanager tells of causes before what follows from them."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from deploy.cli import run
from deploy.local.ports import choose_port
from monitoring.alerts.alertmanager import RECEIVERS, alertmanager_config
from monitoring.alerts.catalog import ALERTS
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.prometheus.scrape_config import scrape_config
from monitoring.scrape import healthz

JOBS = [f"tidegate-{part}" for part in ("gateway", "stream", "canary", "monitor", "kafka", "spark")]


def program(*names: str) -> str:
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"{names[0]} is not installed: apt-get install prometheus prometheus-alertmanager")
    return found


def output(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_exported_files_are_taken_by_promtool_and_amtool(tmp_path: Path, capsys: Any) -> None:
    assert run(["export", "prometheus", str(tmp_path)]) == 0
    written = {Path(line).name for line in capsys.readouterr().out.splitlines()}
    assert written >= {"prometheus.yml", "tidegate-rules.yml", "alertmanager.yml", "README.md"}
    assert "SUCCESS" in output(program("promtool"), "check", "config", "prometheus.yml", cwd=tmp_path)
    assert "SUCCESS" in output(
        program("promtool"), "check", "rules", "--lint-fatal", "tidegate-rules.yml", cwd=tmp_path
    )
    assert "3 receivers" in output(program("amtool"), "check-config", "alertmanager.yml", cwd=tmp_path)


def test_an_exported_prometheus_has_an_alertmanager_to_tell(
    tmp_path: Path, start_prometheus: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    """Without a setting: the one that the README beside it starts."""
    assert run(["export", "prometheus", str(tmp_path)]) == 0
    exported = yaml.safe_load((tmp_path / "prometheus.yml").read_text("utf-8"))
    asked = f"{start_prometheus(tmp_path, exported).url}/api/v1/alertmanagers"

    def active() -> list[str]:
        with suppress(OSError), urlopen(asked) as answer:  # noqa: S310 - of this machine
            return [each["url"] for each in json.load(answer)["data"]["activeAlertmanagers"]]
        return []

    assert wait_until(active, seconds=60) == ["http://127.0.0.1:9093/api/v2/alerts"]
    assert [job["job_name"] for job in exported["scrape_configs"]] == [*JOBS[:4], "alertmanager"]


def test_an_export_replaces_nothing_that_differs_unless_forced(tmp_path: Path, capsys: Any) -> None:
    assert run(["export", "prometheus", str(tmp_path)]) == 0
    (tmp_path / "alertmanager.yml").write_text("mine")
    assert run(["export", "prometheus", str(tmp_path)]) == 78
    assert "alertmanager.yml" in capsys.readouterr().err
    assert (tmp_path / "alertmanager.yml").read_text() == "mine"
    assert run(["export", "prometheus", str(tmp_path), "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == ["alertmanager.yml"]


def test_the_embedded_configuration_asks_every_part_and_tells_alertmanager(tmp_path: Path) -> None:
    settings = MonitoringSettings(
        alertmanager_url="http://127.0.0.1:9093",
        prometheus_url="https://prometheus.example",
        targets={"gateway": ("gw1:9471", "gw2:9471")},
        host="0.0.0.0",  # noqa: S104 - nothing is bound
        kafka_jmx_port=9474,
        spark_jmx_port=9475,
    )
    made = scrape_config(settings)
    jobs = {job["job_name"]: job for job in made["scrape_configs"]}
    assert list(jobs) == [*JOBS, "prometheus", "alertmanager"]
    assert jobs["tidegate-gateway"]["static_configs"][0]["targets"] == ["gw1:9471", "gw2:9471"]
    assert jobs["tidegate-stream"]["static_configs"][0]["targets"] == ["127.0.0.1:9472"]
    assert jobs["prometheus"]["static_configs"][0]["targets"] == ["prometheus.example:443"]
    assert (made["global"]["scrape_interval"], jobs["tidegate-kafka"]["scrape_interval"]) == ("5s", "15s")
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(made))
    (tmp_path / "rules.yml").write_text("groups: []")
    output(program("promtool"), "check", "config", "prometheus.yml", cwd=tmp_path)


def test_a_port_of_0_is_no_target_and_a_run_without_alertmanager_tells_nobody() -> None:
    made = scrape_config(MonitoringSettings(canary_port=0))
    assert [job["job_name"] for job in made["scrape_configs"]] == [JOBS[0], JOBS[1], JOBS[3]]
    assert "alerting" not in made


def test_urls_of_every_kind_are_taken_by_promtool(tmp_path: Path) -> None:
    settings = MonitoringSettings(
        targets={
            "gateway": ("https://gw1/metrics", "https://gw2:8443/metrics"),
            "stream": ("http://proxy:80/stream/metrics",),
            "canary": ("http://proxy/canary/a", "https://proxy/canary/b", "http://proxy/canary/c", "plain:9473"),
            "monitor": ("[fd00::1]:9470",),
            "kafka": (),
        },
        prometheus_url="http://127.0.0.1:9090/prometheus/",
        alertmanager_url="https://alerts.example/am",
    )
    made = scrape_config(settings)
    jobs = {job.pop("job_name"): job for job in made["scrape_configs"]}
    assert jobs["tidegate-gateway"] == {
        "scheme": "https",
        "static_configs": [{"targets": ["gw1:443", "gw2:8443"]}],
    }
    assert jobs["tidegate-stream"] == {
        "metrics_path": "/stream/metrics",
        "static_configs": [{"targets": ["proxy:80"]}],
    }
    assert [
        (
            each["targets"],
            each["labels"]["__scheme__"],
            each["labels"]["__metrics_path__"],
            each["labels"].get("instance"),
        )
        for each in jobs["tidegate-canary"]["static_configs"]
    ] == [
        (["proxy:80"], "http", "/canary/a", "proxy:80/canary/a"),
        (["proxy:443"], "https", "/canary/b", None),
        (["proxy:80"], "http", "/canary/c", "proxy:80/canary/c"),
        (["plain:9473"], "http", "/metrics", None),
    ]
    assert jobs["tidegate-monitor"]["static_configs"] == [{"targets": ["[fd00::1]:9470"]}]
    assert "tidegate-kafka" not in jobs
    assert jobs["prometheus"]["metrics_path"] == "/prometheus/metrics"
    assert made["alerting"]["alertmanagers"] == [
        {"scheme": "https", "path_prefix": "/am", "static_configs": [{"targets": ["alerts.example:443"]}]}
    ]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(scrape_config(settings)))
    (tmp_path / "rules.yml").write_text("groups: []")
    assert "SUCCESS" in output(program("promtool"), "check", "config", "prometheus.yml", cwd=tmp_path)


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"alertname": "TidegateWatchdog", "severity": "info"}, "watchdog"),
        ({"alertname": "TidegateKafkaUnreachable", "severity": "critical"}, "critical"),
        ({"alertname": "TidegateLateRatio", "severity": "warning"}, "warning"),
    ],
)
def test_an_alert_goes_to_its_receiver(labels: dict[str, str], receiver: str, tmp_path: Path) -> None:
    file = tmp_path / "alertmanager.yml"
    file.write_text(yaml.safe_dump(alertmanager_config(MonitoringSettings())))
    given = [f"{name}={value}" for name, value in labels.items()]
    assert output(program("amtool"), "config", "routes", "test", f"--config.file={file}", *given).strip() == receiver
    assert receiver in RECEIVERS


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real one with our configuration, on a free port."""
    server, folder = program("prometheus-alertmanager", "alertmanager"), tmp_path_factory.mktemp("alertmanager")
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(alertmanager_config(MonitoringSettings())))
    port, _ = choose_port(0)
    flags = ("--config.file=alertmanager.yml", f"--storage.path={folder}", "--cluster.listen-address=")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [server, *flags, f"--web.listen-address=127.0.0.1:{port}"], cwd=folder, stdout=log, stderr=log
        )
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        process.wait(20)


def fire(url: str, *alerts: dict[str, str]) -> None:
    """As Prometheus sends them."""
    known = {alert.name: alert for alert in ALERTS}
    for labels in alerts:
        given = {"service": known[labels["alertname"]].part, "cluster": "tidegate", **labels}
        ends = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        pairs = [f"{name}={value}" for name, value in given.items()]
        output(program("amtool"), "alert", "add", f"--alertmanager.url={url}", f"--end={ends}", *pairs)


def told(url: str, *, inhibited: bool) -> set[tuple[str, str]]:
    flag = "--inhibited" if inhibited else "--active"
    found = json.loads(output(program("amtool"), "alert", "query", f"--alertmanager.url={url}", flag, "-o", "json"))
    return {(each["labels"]["alertname"], each["labels"].get("job", "")) for each in found}


def test_what_follows_from_a_cause_is_not_told_while_the_cause_fires(
    alertmanager: str, wait_until: Callable[..., Any]
) -> None:
    wait_until(lambda: healthz(f"{alertmanager}/-/ready")[0])
    fire(
        alertmanager,
        {"alertname": "TidegateKafkaUnreachable", "severity": "critical", "job": "tidegate-monitor"},
        {"alertname": "TidegateStreamStalled", "severity": "critical", "job": "tidegate-monitor"},
        {"alertname": "TidegateCanaryMissing", "severity": "critical", "job": "tidegate-canary"},
        {"alertname": "KafkaLagKeepsIncreasing", "severity": "warning", "job": "tidegate-monitor", "topic": "t"},
        {"alertname": "TidegateTargetDown", "severity": "warning", "job": "tidegate-kafka"},
        {"alertname": "TidegateTargetDown", "severity": "critical", "job": "tidegate-gateway", "instance": "gw1:9471"},
        {"alertname": "TidegateSessionLost", "severity": "warning", "job": "tidegate-gateway", "instance": "gw1:9471"},
        {
            "alertname": "TidegateInternalErrors",
            "severity": "warning",
            "job": "tidegate-gateway",
            "instance": "gw2:9471",
        },
        {"alertname": "TidegateDeadLetterRatio", "severity": "warning", "job": "tidegate-gateway"},
        {"alertname": "TidegateDiskFull", "severity": "critical", "job": "tidegate-monitor", "mountpoint": "/"},
        {"alertname": "TidegateDiskFull", "severity": "warning", "job": "tidegate-monitor", "mountpoint": "/"},
        {"alertname": "TidegateCertificateExpires", "severity": "warning", "job": "tidegate-monitor", "server": "mqtt"},
        {
            "alertname": "TidegateCertificateExpires",
            "severity": "critical",
            "job": "tidegate-monitor",
            "server": "kafka",
        },
        {"alertname": "TidegateWatchdog", "severity": "info"},
    )
    silent = {
        ("TidegateStreamStalled", "tidegate-monitor"),
        ("TidegateCanaryMissing", "tidegate-canary"),
        ("KafkaLagKeepsIncreasing", "tidegate-monitor"),
        ("TidegateTargetDown", "tidegate-kafka"),
        ("TidegateSessionLost", "tidegate-gateway"),
        ("TidegateDiskFull", "tidegate-monitor"),
    }
    wait_until(lambda: told(alertmanager, inhibited=True) == silent)
    assert told(alertmanager, inhibited=False) == {
        ("TidegateKafkaUnreachable", "tidegate-monitor"),
        ("TidegateTargetDown", "tidegate-gateway"),
        # The gateway that answers, and all of them together: a gateway that is down hides neither.
        ("TidegateInternalErrors", "tidegate-gateway"),
        ("TidegateDeadLetterRatio", "tidegate-gateway"),
        ("TidegateDiskFull", "tidegate-monitor"),
        ("TidegateCertificateExpires", "tidegate-monitor"),
        ("TidegateWatchdog", ""),
    }
