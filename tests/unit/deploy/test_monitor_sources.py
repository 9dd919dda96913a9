"""Whom the monitor asks, and what it makes of their word: targets, groups, the supervisor, Prometheus."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deploy.monitor.monitor_process import read_supervised_parts, scrape_targets
from deploy.monitor.probes import groups_of, is_flowing
from deploy.monitor.prometheus_alerts import burning
from deploy.settings import Settings
from lakehouse.lake_settings import LakeSettings
from monitoring.alerts.catalog import ALERTS
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.sample_history import History
from monitoring.scrape import Scrape


def test_the_supervisors_word_counts_while_it_is_fresh(tmp_path: Path) -> None:
    assert read_supervised_parts(tmp_path) is None
    state = {"at": time.time(), "ready": True, "parts": {"kafka": {"state": "ready", "detail": ""}}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    found = read_supervised_parts(tmp_path)
    assert found is not None
    assert (found.ready, found.parts["kafka"]["state"]) == (True, "ready")
    (tmp_path / "state.json").write_text(json.dumps({**state, "at": time.time() - 60}))
    assert read_supervised_parts(tmp_path) is None
    for text in ("{", "[]", "null", '{"at": "x"}', json.dumps({"at": time.time(), "parts": [1]})):
        (tmp_path / "state.json").write_text(text)
        assert read_supervised_parts(tmp_path) is None


def test_targets_are_the_ports_or_the_addresses_given() -> None:
    settings = MonitoringSettings(targets={"gateway": ("a:1", "http://b:2/metrics/"), "canary": ()})
    found = [(each.job, each.url, each.instance) for each in scrape_targets(settings)]
    assert found == [
        ("tidegate-gateway", "http://a:1/metrics", "a:1"),
        ("tidegate-gateway", "http://b:2/metrics/", "b:2"),
        ("tidegate-stream", "http://127.0.0.1:9472/metrics", None),
    ], "an empty list is a part that nobody runs, and the monitor does not ask itself"
    everywhere = MonitoringSettings(metrics_host="::")
    assert next(iter(scrape_targets(everywhere))).url == "http://[::1]:9471/metrics"


def test_devices_can_be_called_silent_only_while_their_messages_would_arrive() -> None:
    lag = ("tidegate_kafka_lag_seconds", (("consumergroup", "tidegate-land"), ("topic", "t")))
    connected = ("tidegate_gateway_connected", ())

    def flowing(gateway: Any, stream: Any, lag_seconds: float | None) -> bool:
        history = History([lag[0], connected[0]])
        history.add(1.0, "tidegate-gateway", gateway if gateway is None else Scrape(0, {connected: gateway}))
        history.add(1.0, "tidegate-stream", None if stream is None else Scrape(0, {}))
        history.add(1.0, "tidegate-monitor", Scrape(0, {} if lag_seconds is None else {lag: lag_seconds}))
        return is_flowing(history)

    assert flowing(1.0, True, 0.5)
    assert not flowing(0.0, True, 0.5)
    assert not flowing(None, True, 0.5)
    assert not flowing(1.0, None, 0.5)
    assert not flowing(1.0, True, 60)
    assert not flowing(1.0, True, None)


def test_prometheus_is_asked_for_what_no_built_in_check_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    burn = next(alert for alert in ALERTS if not alert.builtin and "Budget" in alert.name)
    built_in = next(alert for alert in ALERTS if alert.builtin)

    def told(name: str, **more: Any) -> dict[str, Any]:
        return {
            "labels": {"alertname": name, "severity": "critical", "window": "1h"}, "state": "firing", "value": "1.5e+01",
            "activeAt": "2026-11-28T12:00:00.5Z", "annotations": {"description": "The budget burns.\n\nImpact"}, **more,
        }  # fmt: skip

    answer = {
        "status": "success",
        "data": {"alerts": [told(burn.name), *map(told, (built_in.name, "TidegateWatchdog", "Other"))]},
    }
    ask = burning("http://127.0.0.1:9090/", ALERTS)
    monkeypatch.setattr("deploy.monitor.prometheus_alerts.OPENER", Opener(json.dumps(answer)))
    up, found = ask()
    assert up
    assert [(each["name"], each["value"], each["labels"], each["text"]) for each in found] == [
        (burn.name, 15.0, {"window": "1h"}, "The budget burns.")
    ]
    assert found[0]["since"] == datetime(2026, 11, 28, 12, 0, 0, 500_000, tzinfo=UTC).timestamp()
    for text in (
        "",
        "[]",
        "{}",
        '{"data": null}',
        '{"data": {"alerts": [1]}}',
        '{"data": {"alerts": [{"labels": 1}]}}',
    ):
        monkeypatch.setattr("deploy.monitor.prometheus_alerts.OPENER", Opener(text))
        assert ask() == (False, [])


def settings(root: str, *groups: str) -> Settings:
    return Settings(lake=LakeSettings(root=root), monitoring=MonitoringSettings(consumer_groups=groups))


def test_groups_of_applied_streams_are_known_before_the_stream_tells_of_them(tmp_path: Path) -> None:
    """A monitor that starts while nothing runs the streams must see their lag all the same."""
    history = History(["tidegate_stream_sql_offsets_behind"])
    assert groups_of(history, settings(str(tmp_path / "none"))) == ["tidegate-land"]
    for name in ("hot.json", "torn.json", "status.json", ".hot.json", "cold.shadow"):
        folder = tmp_path / "_streams"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("{")
    wanted = ["tidegate-land", "tidegate-stream-hot", "tidegate-stream-torn"]
    for root in (str(tmp_path), f"file://{tmp_path}"):
        assert groups_of(history, settings(root)) == wanted
    told = {("tidegate_stream_sql_offsets_behind", (("stream", name),)): 1.0 for name in ("hot", "hot__shadow")}
    history.add(1.0, "tidegate-stream", Scrape(0, told))
    assert groups_of(history, settings("s3://bucket/tables")) == [
        "tidegate-land", "tidegate-stream-hot", "tidegate-stream-hot__shadow",
    ]  # fmt: skip


def test_groups_of_programs_are_those_that_the_settings_name(tmp_path: Path) -> None:
    history = History(["tidegate_stream_sql_offsets_behind"])
    named = settings(str(tmp_path), "my-app", "tidegate-land", "billing", "my-app")
    assert groups_of(history, named) == ["tidegate-land", "my-app", "billing"], "each has one reader"


class Opener:
    """Answers every address with one text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def open(self, _url: str, timeout: float) -> Any:
        import io

        assert timeout <= 1
        return io.BytesIO(self._text.encode())
