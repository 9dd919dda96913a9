"""Prometheus and Alertmanager as `tidegate up` starts them: they take our files, answer, and end when asked."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.ports import choose_port
from deploy.local.prometheus_servers import WATCHERS, Watcher, make_watchers, watcher_obstacle
from deploy.local.run_logins import RunLogins
from deploy.local.run_plan import embedded_settings
from deploy.settings import load_settings
from monitoring.scrape import OPENER

PARTS = (
    "mqtt",
    "mqtt_v5",
    "kafka",
    "kafka_controller",
    "page",
    "gateway",
    "stream",
    "canary",
    "kafka_jmx",
    "spark_jmx",
)


@pytest.fixture
def watchers(tmp_path: Path) -> list[Watcher]:
    for name in WATCHERS:
        if obstacle := watcher_obstacle(name):
            pytest.skip(obstacle)
    ports = {name: choose_port(0)[0] for name in (*PARTS, *WATCHERS)}
    logins = RunLogins(dict.fromkeys(("gateway", "canary", "monitor", "tidegate"), "x"), client_id="gate")
    settings = embedded_settings(load_settings(environ={}), tmp_path, ports, logins)
    return make_watchers(settings, tmp_path, ports)


@pytest.fixture
def started(watchers: list[Watcher], wait_until: Callable[..., Any]) -> Iterator[dict[str, Watcher]]:
    running = []
    for watcher in watchers:
        watcher.prepare()
        running.append(subprocess.Popen(watcher.command(), cwd=watcher.folder, stderr=subprocess.DEVNULL))
    for watcher in watchers:
        wait_until(lambda watcher=watcher: watcher.ready()[0], what=f"{watcher.name} answering")
    yield {watcher.name: watcher for watcher in watchers}
    for process in running:
        process.terminate()
        assert process.wait(20) == 0


def ask(url: str) -> Any:
    with OPENER.open(url, timeout=5) as answer:
        return json.loads(answer.read())


def test_they_take_our_files_and_find_each_other(started: dict[str, Watcher], wait_until: Callable[..., Any]) -> None:
    prometheus, alertmanager = started["prometheus"], started["alertmanager"]
    assert prometheus.ready() == (True, f"on 127.0.0.1:{prometheus.port}")
    rules = ask(f"{prometheus.url}/api/v1/rules")["data"]["groups"]
    assert "TidegateWatchdog" in {rule["name"] for group in rules for rule in group["rules"]}
    found = wait_until(
        lambda: ask(f"{prometheus.url}/api/v1/alertmanagers")["data"]["activeAlertmanagers"], what="an Alertmanager"
    )
    assert found[0]["url"].startswith(alertmanager.url)
    receivers = {receiver["name"] for receiver in ask(f"{alertmanager.url}/api/v2/receivers")}
    assert {"critical", "warning", "watchdog"} <= receivers


def test_what_is_kept_is_bounded_and_nobody_may_stop_it_over_http(started: dict[str, Watcher]) -> None:
    flags = ask(f"{started['prometheus'].url}/api/v1/status/flags")["data"]
    # Prometheus writes sizes and times in its own way.
    assert (flags["storage.tsdb.retention.time"], flags["storage.tsdb.retention.size"]) == ("3d", "512MiB")
    assert (flags["web.enable-lifecycle"], flags["web.enable-admin-api"]) == ("false", "false")
    assert flags["web.listen-address"].startswith("127.0.0.1:")
