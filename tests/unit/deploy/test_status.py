"""What `status` takes from the supervisor and from the monitor, and what it says when one of them is silent."""

import json
import re
import shutil
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deploy.local.runfile import DataLock, RunFile
from deploy.local.status import monitored_status, read_status
from deploy.local.status_text import render_status
from deploy.settings import Settings, load_settings
from deploy.settings_file import to_toml, write_private
from ingest.contract.errors import UnavailableError

Usage = namedtuple("Usage", "total used free")

ALERT = {
    "name": "TidegateKafkaUnreachable", "severity": "critical", "state": "firing", "since": 0.0, "part": "kafka",
    "text": "Kafka does not answer.", "actions": ["tidegate logs kafka"], "runbook": "/runbooks/TidegateKafkaUnreachable",
}  # fmt: skip


def snapshot(**changes: Any) -> dict[str, Any]:
    """As the monitor answers, with what `status` reads of it."""
    return {
        "at": time.time(),
        "ready": True,
        "parts": {"gateway": {"state": "ready", "since": time.time() - 5, "detail": "connected"}},
        "rates": {"received": 20.0, "rows": 40.0},
        "latency_ms": {"p50": 400.0, "p95": 800.0, "p99": 900.0},
        "hops": [{"hop": "device_to_gateway", "p50": 3.0, "p95": 8.0, "p99": 9.0}],
        "lag": {"telemetry.readings": 12},
        "kafka": {
            "groups": [
                {"group": "other", "topic": "telemetry.readings", "lag_seconds": 99, "time_to_data_loss_seconds": 9},
                {"group": "tidegate-land", "topic": "telemetry.readings", "lag_seconds": 3.5,
                 "time_to_data_loss_seconds": None},
            ]
        },
        "slo": {}, "devices": {}, "errors": [], "audit": None,
        "alerts": [ALERT, {**ALERT, "name": "TidegateBrokerUnreachable", "state": "resolved"}],
        **changes,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    lock = DataLock(tmp_path)
    RunFile(run_id="r", pid=7, started_at=time.time() - 60).write(tmp_path)
    yield tmp_path
    lock.release()


def told(data: Path, *, at: float, free: int, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, str]:
    (data / "state.json").write_text(json.dumps({"ready": True, "at": at, "parts": {}, "alerts": []}))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9 - free, free))
    found = read_status(data)
    return found["ready"], " ".join(alert["text"] for alert in found["alerts"])


def test_an_old_state_on_a_full_disk_is_told_as_what_it_is(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, text = told(run, at=time.time() - 60, free=3 * 1024**2, monkeypatch=monkeypatch)
    assert not ready
    assert text == (
        f"The disk of {run} is full (3 MB free), and the gateway stops accepting messages. Free some space; the run then "
        "resumes by itself."
    )


def test_an_old_state_with_space_left_is_the_supervisors_silence(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, text = told(run, at=time.time() - 60, free=10**9, monkeypatch=monkeypatch)
    assert not ready
    assert "The supervisor (pid 7) has not checked the parts for" in text


def test_a_fresh_state_is_believed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(run, at=time.time(), free=0, monkeypatch=monkeypatch) == (True, "")


def test_a_run_that_fetches_its_parts_first_says_so(run: Path) -> None:
    found = read_status(run)
    assert not found["ready"]
    assert "has not started a part yet" in found["alerts"][0]["text"]
    assert "Not ready." in render_status(found)


@pytest.fixture
def monitor() -> Iterator[Callable[[Any], Settings]]:
    """`monitor(answer)` serves a snapshot, or raw bytes, and gives the settings that lead to it."""
    servers = []

    def serve(answer: Any) -> Settings:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if self.path == "/api/status" else 404)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return load_settings(environ={}, overrides={"monitoring.page_port": servers[-1].server_port})

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def with_state(data: Path, settings: Settings, **parts: Any) -> None:
    """A run that is ready, and the settings that it was started with."""
    write_private(data / "config.toml", to_toml(settings))
    RunFile(run_id="r", pid=7, started_at=0.0, ports={"page": settings.monitoring.page_port}).write(data)
    part = {"state": "ready", "since": 0.0, "detail": "", "pid": 1, "restarts": 0, "seconds": 1.0}
    named = {name: {**part, **fields} for name, fields in {"monitor": {}, **parts}.items()}
    state = {"ready": True, "at": time.time(), "parts": named, "alerts": [{"part": "disk", "text": "Low."}]}
    (data / "state.json").write_text(json.dumps(state))


def test_figures_come_from_the_monitor_and_parts_from_the_supervisor(
    run: Path, monitor: Callable[[Any], Settings]
) -> None:
    with_state(run, monitor(snapshot(ready=False)), kafka={})
    found = read_status(run)
    assert found["ready"] is True
    assert set(found["parts"]) == {"monitor", "kafka"}
    assert (found["rates"]["received"], found["latency_ms"]["p50"]) == (20.0, 400.0)
    assert (found["lag"], found["lag_seconds"]) == ({"telemetry.readings": 12}, {"telemetry.readings": 3.5})
    assert found["page"].startswith("http://127.0.0.1:")
    # What the supervisor says comes first; what is over is no alert any more.
    assert [alert["text"] for alert in found["alerts"]] == ["Low.", "Kafka does not answer."]
    json.dumps(found, allow_nan=False)


def test_a_silent_monitor_leaves_figures_unknown_and_is_an_alert_itself(
    run: Path, monitor: Callable[[Any], Settings]
) -> None:
    for answer in (b"<html>", b"[]", b"", b"{}"):
        with_state(run, monitor(answer))
        found = read_status(run)
        assert found["ready"] is True
        assert (found["rates"], found["latency_ms"]["p50"], found["slo"]) == ({}, None, {})
        assert "The monitor does not answer" in found["alerts"][1]["text"]
        assert "not known yet" in render_status(found)


def test_a_monitor_that_starts_is_no_alert(run: Path, monitor: Callable[[Any], Settings]) -> None:
    with_state(run, monitor(b""), monitor={"state": "starting"})
    assert [alert["text"] for alert in read_status(run)["alerts"]] == ["Low."]


def test_figures_that_are_old_are_told_as_old(run: Path, monitor: Callable[[Any], Settings]) -> None:
    with_state(run, monitor(snapshot(at=time.time() - 300)))
    assert re.match(r"The monitor's figures are 30\d s old", read_status(run)["alerts"][1]["text"])


def test_a_pipeline_in_production_is_told_by_its_own_monitor(monitor: Callable[[Any], Settings]) -> None:
    found = monitored_status(monitor(snapshot()))
    assert (found["ready"], found["parts"]["gateway"]["detail"]) == (True, "connected")
    assert re.search(r"^gateway +ready +\d.* s  connected$", render_status(found), re.MULTILINE)
    nobody = load_settings(environ={}, overrides={"monitoring.page_port": 1})
    with pytest.raises(UnavailableError, match=r"does not answer at http://127.0.0.1:1/.*tidegate monitor"):
        monitored_status(nobody)
