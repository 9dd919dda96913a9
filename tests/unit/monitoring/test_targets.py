"""Whom to ask: one answer for the monitor, for Prometheus, for links and for people."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from deploy.local.announce import metrics_urls
from deploy.local.monitor_client import page_address
from deploy.monitor.monitor_process import metrics_addresses, scrape_targets
from deploy.processes import serve_metrics
from deploy.settings import load_settings
from ingest.contract.errors import ConfigError, UnavailableError
from monitoring.addresses import parse_address, reached_at
from monitoring.alerts.catalog import ALERTS, alerts
from monitoring.alerts.evaluate import Evaluator, used_metrics
from monitoring.alerts.rules import runbook_url
from monitoring.exporter import Exporter
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.prometheus.scrape_config import scrape_config
from monitoring.sample_history import History
from monitoring.scrape import Scrape, healthz
from monitoring.targets import metrics_targets

REACHED = [
    ("127.0.0.1", "127.0.0.1"),
    ("0.0.0.0", "127.0.0.1"),  # noqa: S104 - nothing is bound
    ("", "127.0.0.1"),
    ("::", "[::1]"),
    ("::1", "[::1]"),
    ("fd00::7", "[fd00::7]"),
    ("ops.lan", "ops.lan"),
]


@pytest.mark.parametrize(("host", "reached"), REACHED)
def test_everybody_says_the_same_of_where_this_host_is_reached(host: str, reached: str) -> None:
    settings = load_settings(environ={}, overrides={"monitoring.host": host, "monitoring.metrics_host": host})
    monitoring = settings.monitoring
    assert reached_at(host, 1) == f"{reached}:1"
    assert page_address(monitoring) == f"http://{reached}:9470/"
    assert runbook_url(ALERTS[0], monitoring) == f"http://{reached}:9470{ALERTS[0].runbook}"
    assert metrics_urls(settings)["gateway"] == f"http://{reached}:9471/metrics"
    assert metrics_addresses(monitoring)["gateway"] == (f"http://{reached}:9471/metrics",)
    jobs = {job["job_name"]: job for job in scrape_config(monitoring)["scrape_configs"]}
    assert jobs["tidegate-gateway"]["static_configs"] == [{"targets": [f"{reached}:9471"]}]


def test_the_page_and_the_metrics_are_bound_apart() -> None:
    opened = load_settings(environ={}, overrides={"monitoring.metrics_host": "ops.lan", "monitoring.kafka_jmx_port": 9})
    assert page_address(opened.monitoring) == "http://127.0.0.1:9470/"
    found = {part: targets[0].instance for part, targets in metrics_targets(opened.monitoring).items()}
    assert found.pop("monitor") == "127.0.0.1:9470"
    assert found.pop("kafka") == "ops.lan:9"
    assert {instance.partition(":")[0] for instance in found.values()} == {"ops.lan"}
    shown = MonitoringSettings(host="ops.lan")
    assert page_address(shown) == "http://ops.lan:9470/"
    assert [targets[0].instance for part, targets in metrics_targets(shown).items() if part != "monitor"] == [
        "127.0.0.1:9471", "127.0.0.1:9472", "127.0.0.1:9473",
    ]  # fmt: skip


def test_prometheus_asks_whom_the_monitor_asks() -> None:
    settings = MonitoringSettings(
        targets={"gateway": ("a:1", "https://b/m"), "stream": ("c:2/x", "c:2/y", "c:2/x")}, canary_port=0
    )
    asked = {
        (job["job_name"], group.get("labels", {}).get("instance", target))
        for job in scrape_config(settings)["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    }
    assert asked == {
        ("tidegate-gateway", "a:1"),
        ("tidegate-gateway", "b:443"),
        ("tidegate-stream", "c:2/x"),
        ("tidegate-stream", "c:2/y"),
        ("tidegate-monitor", "127.0.0.1:9470"),
    }
    assert {(each.job, each.instance) for each in scrape_targets(settings)} == {
        (job, instance) for job, instance in asked if job != "tidegate-monitor"
    }


def test_what_is_not_run_is_not_watched() -> None:
    assert list(metrics_targets(MonitoringSettings())) == ["gateway", "stream", "canary", "monitor"]
    without = MonitoringSettings(canary_port=0, stream_port=9, targets={"stream": ()})
    assert list(metrics_targets(without)) == ["gateway", "monitor"]


def test_a_pipeline_without_a_canary_and_without_agents_is_calm() -> None:
    settings = MonitoringSettings(canary_port=0)
    catalog = alerts(settings)
    history, evaluator = History(used_metrics(catalog)), Evaluator(catalog)
    started = {("process_start_time_seconds", ()): 1e6}
    told: dict[Any, float] = {**started, ("tidegate_kafka_reachable", ()): 1.0}
    for now in range(1_000_000, 1_001_200, 10):
        history.add(now, "tidegate-monitor", Scrape(now, told))
        for target in scrape_targets(settings):
            # Only these two are run.
            history.add(now, target.job, Scrape(now, started) if target.job[9:] in ("gateway", "stream") else None)
        found = evaluator.step(history, now)
    assert [state.alert.name for state in found] == []


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("gw1:9471", "http://gw1:9471/metrics"),
        ("https://gw1", "https://gw1:443/metrics"),
        ("http://gw1:1/", "http://gw1:1/metrics"),
        ("[fd00::1]:9/p", "http://[fd00::1]:9/p"),
    ],
)
def test_an_address_is_read_as_prometheus_reads_it(text: str, url: str) -> None:
    assert parse_address(text).url == url


@pytest.mark.parametrize("text", ["", "http://", "a:x", "a:99999", "ftp://a", "http://me:secret@a", "a:1?x=1", " a:1"])
def test_what_is_no_address_is_refused_and_not_repeated(text: str) -> None:
    for field in ({"targets": {"gateway": (text,)}}, {"prometheus_url": text}):
        with pytest.raises(ValidationError) as caught:
            MonitoringSettings(**field)  # type: ignore[arg-type]
        assert "secret" not in caught.value.errors(include_input=False)[0]["msg"]


def test_an_unknown_part_is_met_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[monitoring.targets]\ngatway = ["x:1"]\n')
    with pytest.raises(
        ConfigError, match=r"unknown key monitoring\.targets\.gatway\. Did you mean gateway\? Known here: g"
    ):
        load_settings(file, environ={})


@pytest.mark.parametrize("host", ["::1", "::"])
def test_metrics_are_served_over_ipv6(host: str, registry: CollectorRegistry) -> None:
    exporter = Exporter(registry, host=host, healthy=lambda: (True, "well"))
    try:
        assert healthz(f"http://{reached_at(host, exporter.port)}/healthz") == (True, "well")
    finally:
        exporter.close()


def test_a_taken_port_and_a_foreign_address_are_different_faults(registry: CollectorRegistry) -> None:
    def refusal(host: str, port: int) -> str:
        with (
            pytest.raises(UnavailableError) as caught,
            serve_metrics(CollectorRegistry(), host=host, port=port, part="gateway", healthy=lambda: (True, "")),
        ):
            pass
        return str(caught.value)

    exporter = Exporter(registry, healthy=lambda: (True, ""))
    try:
        assert refusal("127.0.0.1", exporter.port).endswith("Set monitoring.gateway_port to a free port.")
    finally:
        exporter.close()
    for host in ("192.0.2.1", "2001:db8::1"):
        assert "Set monitoring.metrics_host to an address of this machine" in refusal(host, 0)


def test_prometheus_logs_in_to_the_page_and_to_nothing_else(tmp_path: Path) -> None:
    settings = MonitoringSettings(read_token_file=str(tmp_path / "read-token"), spark_jmx_port=9)
    jobs = {job["job_name"]: job for job in scrape_config(settings)["scrape_configs"]}
    login = {"type": "Bearer", "credentials_file": str(tmp_path / "read-token")}
    assert {name: job.get("authorization") for name, job in jobs.items() if "authorization" in job} == {
        "tidegate-monitor": login
    }
    assert not [job for job in scrape_config(MonitoringSettings())["scrape_configs"] if "authorization" in job]


def test_a_benchmark_is_asked_by_prometheus_alone_and_only_where_its_port_is_set() -> None:
    def job(settings: MonitoringSettings) -> list[dict[str, Any]]:
        return [each for each in scrape_config(settings)["scrape_configs"] if each["job_name"] == "tidegate-bench"]

    assert job(MonitoringSettings()) == []
    settings = MonitoringSettings(bench_port=9476)
    assert "9476" not in str(metrics_targets(settings))
    (found,) = job(settings)
    assert found["static_configs"] == [{"targets": ["127.0.0.1:9476"]}]
    assert found["scrape_interval"] == found["scrape_timeout"] == "2s"
