"""The whole monitor: with nothing to watch, with parts that answer, and with one that hangs."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deploy.local.ports import choose_port
from deploy.monitor.monitor_process import Monitor
from deploy.settings import Settings
from ingest.contract.errors import UnavailableError
from lakehouse.lock import WriterLock
from monitoring.exporter import Exporter
from monitoring.metrics.canary import CanaryMetrics
from monitoring.metrics.gateway import GatewayMetrics
from monitoring.metrics.stream import StreamMetrics
from monitoring.scrape import scrape
from monitoring.scrape_loop import TIMEOUT_SECONDS

ROOT = Path(__file__).parents[2]
Wait = Callable[..., Any]


def _free_port() -> int:
    return choose_port(0, "127.0.0.1")[0]


@pytest.fixture
def make_settings(tmp_path: Path) -> Callable[..., Settings]:
    """Settings that name only ports where nobody answers, but for what a test gives."""

    def make(*, kafka: int | None = None, **monitoring: Any) -> Settings:
        dead = {f"{part}_port": _free_port() for part in ("gateway", "stream", "canary", "kafka_jmx", "spark_jmx")}
        return Settings.model_validate(
            {
                "mqtt": {"port": _free_port()},
                "kafka": {"bootstrap_servers": f"127.0.0.1:{kafka or _free_port()}"},
                "lake": {"root": str(tmp_path / "tables")},
                "monitoring": {**dead, "page_port": 0, "look_seconds": 0.5, "audit_seconds": 0, **monitoring},
            }
        )

    return make


@contextmanager
def running(settings: Settings, folder: Path) -> Iterator[Monitor]:
    stop = threading.Event()
    with Monitor(settings, folder / "config.toml", stop) as monitor:
        thread = threading.Thread(target=monitor.look.run, args=(stop,))
        thread.start()
        try:
            yield monitor
        finally:
            stop.set()
            thread.join(20)


def get(port: int, target: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def snapshot(monitor: Monitor) -> dict[str, Any]:
    status, body = get(monitor.port, "/api/status")
    return dict(json.loads(body)) if status == 200 else {}


def wait_for_looks_after(moment: float, monitor: Monitor, wait_until: Wait) -> None:
    """Until a snapshot is there whose every figure was told after that moment: the first that follows may be half before."""
    looked_at = wait_until(lambda: (at := snapshot(monitor)["at"]) > moment and at, what="the next look")
    wait_until(lambda: snapshot(monitor)["at"] > looked_at, what="the look after it")


def answered(found: dict[str, Any]) -> bool:
    """Whether gateway, stream and canary answered in this look."""
    return states(found)["gateway"] == states(found)["stream"] == "ok" and found["parts"]["canary"]["state"] == "ready"


def states(found: dict[str, Any]) -> dict[str, str]:
    return {each["id"]: each["state"] for each in found.get("flow", [])}


def test_with_nothing_running_at_all_the_page_says_so(
    make_settings: Callable[..., Settings], tmp_path: Path, wait_until: Wait
) -> None:
    settings = make_settings(prometheus_url="http://127.0.0.1:1", alertmanager_url="http://127.0.0.1:1")
    with running(settings, tmp_path) as monitor:
        wanted = {
            "devices": "unknown", "broker": "bad", "gateway": "bad", "kafka": "bad", "stream": "bad", "tables": "unknown",
        }  # fmt: skip
        wait_until(lambda: states(snapshot(monitor)) == wanted, what="every station is shown as it is")
        wait_until(lambda: snapshot(monitor)["prometheus"]["up"] is False)
        found = snapshot(monitor)
        assert (found["ready"], found["burn_rate_alerts"], found["alertmanager"]["up"]) == (False, False, False)
        assert json.loads(get(monitor.port, "/api/devices")[1]) == {"devices": []}
        assert json.loads(get(monitor.port, "/api/dead-letters")[1]) == {"causes": [], "letters": []}
        assert get(monitor.port, "/healthz")[0] == 200
        assert b"up{job=" not in get(monitor.port, "/metrics")[1]
        assert b"tidegate_kafka_reachable 0.0" in get(monitor.port, "/metrics")[1]


def test_a_part_that_accepts_and_never_answers_delays_no_look(
    make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:
        settings = make_settings(gateway_port=hung.getsockname()[1])
        monitor = Monitor(settings, tmp_path / "config.toml", threading.Event())
        took = []
        for _ in range(3):
            began = time.monotonic()
            monitor.look.run_once()
            took.append(time.monotonic() - began)
    # A busy machine may hold up a look, but not each of them.
    assert min(took) < TIMEOUT_SECONDS + 0.7
    found = json.loads(monitor._board.encoded or b"{}")
    assert found["parts"]["gateway"]["state"] == "down"


class Parts:
    """Gateway, stream and canary as their exporters tell them."""

    def __init__(self, cleanup: ExitStack) -> None:
        registries = [CollectorRegistry() for _ in range(3)]
        self.gateway = GatewayMetrics(registries[0], reasons=("bad_json", "no_route"), ignored_reasons=("retained",))
        self.stream = StreamMetrics(registries[1], query="land", tables=("readings",), topics=("telemetry.readings",))
        self.canary = CanaryMetrics(registries[2])
        exporters = [Exporter(each, healthy=lambda: (True, "well")) for each in registries]
        for exporter in exporters:
            cleanup.callback(exporter.close)
        self.ports = dict(zip(("gateway", "stream", "canary"), (each.port for each in exporters), strict=True))
        self.gateway.connected.set(1)

    def publish(self, count: int, *, bad: int = 0) -> None:
        """What `count` messages of the fleet and one of the canary leave in the counters."""
        self.gateway.received.labels("1").inc(count + 1)
        self.gateway.accepted.inc(count - bad + 1)
        self.gateway.acknowledged.inc(count + 1)
        self.gateway.rejected.labels("bad_json").inc(bad)
        self.stream.rows.labels("readings").inc(count - bad + 1)
        self.canary.published.inc()
        self.canary.seen.inc()
        self.canary.last_seen.set(time.time())
        self.canary.end_to_end.observe(0.7)

    def told(self, part: str) -> Any:
        return scrape(f"http://127.0.0.1:{self.ports[part]}/metrics", timeout_seconds=30)


def test_the_figures_are_those_that_the_parts_tell(
    make_settings: Callable[..., Settings], tmp_path: Path, wait_until: Wait
) -> None:
    with ExitStack() as cleanup:
        parts = Parts(cleanup)
        settings = make_settings(**{f"{part}_port": port for part, port in parts.ports.items()})
        with running(settings, tmp_path) as monitor:
            wait_until(lambda: snapshot(monitor).get("rates", {}).get("received") is not None)
            parts.publish(1000, bad=40)
            wait_for_looks_after(time.time(), monitor, wait_until)
            # A part that took longer than a look waits has no figures in it.
            found = wait_until(
                lambda: (seen := snapshot(monitor)) and answered(seen) and seen, what="an answer of all parts"
            )
            assert found["canary"]["seen"] == 1
            rates = found["rates"]
            assert rates["accepted"] / rates["received"] == pytest.approx(0.96, rel=0.01)
            assert rates["rows"] / rates["received"] == pytest.approx(0.96, rel=0.05)
            rejected = parts.told("gateway").by_label("tidegate_gateway_messages_rejected_total", "reason")
            assert [(each["reason"], each["total"]) for each in found["errors"]] == [("bad_json", rejected["bad_json"])]
            assert found["canary"]["published"] == parts.told("canary").total("tidegate_canary_published_total")
            assert 500 <= found["latency_ms"]["p50"] <= 800
            assert found["slo"]["freshness"]["good_ratio"] == 1
            assert found["slo"]["validity"]["good_ratio"] == pytest.approx(1 - 40 / 1001, abs=1e-4)


def test_a_part_that_ends_is_red_at_once_and_heals(
    make_settings: Callable[..., Settings], tmp_path: Path, wait_until: Wait
) -> None:
    with ExitStack() as cleanup:
        parts = Parts(cleanup)
        settings = make_settings(**{f"{part}_port": port for part, port in parts.ports.items()})
        with running(settings, tmp_path) as monitor:
            wait_until(lambda: states(snapshot(monitor)).get("gateway") == "ok")
            parts.gateway.connected.set(0)
            wait_until(lambda: states(snapshot(monitor))["gateway"] == "bad")
            parts.gateway.connected.set(1)
            wait_until(lambda: states(snapshot(monitor))["gateway"] in ("ok", "warn"))
            cleanup.close()
            wait_until(lambda: states(snapshot(monitor))["stream"] == "bad")


def test_a_port_that_is_taken_is_one_sentence(make_settings: Callable[..., Settings], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = make_settings(page_port=port)
        with pytest.raises(UnavailableError, match=rf"127.0.0.1:{port} cannot serve the page .* monitoring.page_port"):
            Monitor(settings, tmp_path / "config.toml", threading.Event()).__enter__()


def test_it_never_holds_the_lock_of_the_tables_writer(
    make_settings: Callable[..., Settings], tmp_path: Path, small_lake: Any, wait_until: Wait
) -> None:
    settings = make_settings(tables_seconds=1)
    assert settings.lake.root == small_lake.root
    before = {path for path in Path(small_lake.root).rglob("*")}
    with running(settings, tmp_path) as monitor:
        wait_until(lambda: snapshot(monitor).get("devices", {}).get("known") == 0)
        for target in ("/api/device?device=x", "/api/devices?search=a", "/api/dead-letters"):
            assert get(monitor.port, target)[0] == 200
        WriterLock(Path(small_lake.root), what="tables", patience_seconds=0).close()
    written = {path.name for path in Path(small_lake.root).rglob("*")} - {path.name for path in before}
    assert written == {"_writer.lock"}, "it writes nothing; the lock's file is this test's"


def test_the_command_comes_up_quickly_and_ends_on_a_signal(
    make_settings: Callable[..., Settings], tmp_path: Path, wait_until: Wait
) -> None:
    from deploy.settings_file import to_toml

    port = _free_port()
    config = tmp_path / "config.toml"
    config.write_text(to_toml(make_settings(page_port=port)), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "deploy.cli", "monitor", "--config", str(config)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, cwd=tmp_path) as process:
        try:
            wait_until(lambda: _answers(port), what="the page is served")
            assert set(states(json.loads(get(port, "/api/status")[1]))) >= {"gateway", "kafka"}
            stream = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            stream.request("GET", "/api/stream")
            assert stream.getresponse().readline() == b"event: snapshot\n"
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert time.monotonic() - began < 15, "it does not wait for who follows the page"
        finally:
            process.kill()
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def _answers(port: int) -> bool:
    try:
        return get(port, "/api/status")[0] == 200
    except OSError:
        return False
