"""The whole `up --secure`: readings reach the tables, nothing shows a password, and a later `up` stays secured."""

from collections.abc import Callable
from typing import Any

import psutil
import pytest

from deploy.local.guard import find_marked_processes
from deploy.local.run_logins import load_logins
from gateway.gateway_settings import MqttSettings

pytestmark = pytest.mark.chaos

KEPT = ("certificates/ca.pem", "certificates/node.pem", "certificates/server-mqtt.pem", "credentials.json")


def test_a_secured_run_works_whole_and_stays_secured(
    new_pipeline: Callable[[], Any], start_fleet: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    run = new_pipeline()
    told = run.up("--wait", "--secure").stdout
    assert "mqtts://127.0.0.1:" in told and "SASL_SSL  user operator" in told
    logins = load_logins(run.data / "credentials.json", MqttSettings(), has_session=True, secure=True)
    secrets = {*logins.passwords.values(), *logins.kafka.values(), logins.client_id}
    words = [word for one in find_marked_processes(run.run.run_id) for word in _command_line(one)]
    assert words and not [secret for secret in secrets if any(secret in word for word in words)]

    fleet = start_fleet(run, devices=10, rate=20, messages=400)
    wait_until(lambda: len(fleet.acknowledged()) >= 400, seconds=120, what="the load")
    fleet.finish()
    report = run.audit()
    assert (report["unaccounted"], report["duplicate_rows"], report["order_violations"]) == (0, 0, 0), report
    assert set(fleet.acknowledged()) <= run.stored_messages(fleet.boot)

    status = wait_until(lambda: (seen := run.status())["ready"] and seen, seconds=300, what="the run being ready")
    assert set(status["parts"]) >= {"gateway", "stream", "canary", "monitor", "fleet"}
    assert not [alert for alert in status["alerts"] if alert["part"] in ("kafka", "broker")], status["alerts"]
    for command in (("topics", "ls"), ("groups", "ls"), ("dlq", "ls")):
        run.tidegate(*command)
    assert "telemetry.readings" in run.tidegate("topics", "ls").stdout
    assert run.tidegate("tail", "telemetry.readings", "-c", "1", "-e").stdout
    _check_logs(run, secrets)

    kept = {name: (run.data / name).read_bytes() for name in KEPT}
    before = run.run
    run.tidegate("down")
    assert run.left_behind(before) == []
    run.up("--wait", "--no-fleet")
    assert {name: (run.data / name).read_bytes() for name in KEPT} == kept
    assert (run.settings.kafka.security_protocol, run.settings.mqtt.tls) == ("SASL_SSL", True)
    assert "this folder was secured" in (run.data / "logs" / "supervisor.log").read_text("utf-8")
    assert set(fleet.acknowledged()) <= run.stored_messages(fleet.boot)
    _check_logs(run, secrets)
    run.tidegate("down")


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _check_logs(run: Any, secrets: set[str]) -> None:
    # mosquitto names the client ids of its clients; the folder of its log is private for that reason.
    logs = {file.name: file.read_text("utf-8", "replace") for file in (run.data / "logs").iterdir() if file.is_file()}
    found = [
        (name, len(secret))
        for name, text in logs.items()
        for secret in secrets
        if secret in text and not (name.startswith("broker") and secret.startswith("tidegate-gateway-"))
    ]
    assert found == []
