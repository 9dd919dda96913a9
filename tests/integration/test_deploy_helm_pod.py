"""A gateway that starts as its rendered pod says, with its file and its variables, and answers the pod's probes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deploy.local.ports import choose_port
from monitoring.scrape import healthz
from tests.support.helm import Document, Render

ROOT = Path(__file__).parents[2]
STATE = "/var/lib/tidegate-state"
Secrets = Mapping[tuple[str, str], str]


def start_pod(
    documents: list[Document], pod: str, secrets: Secrets, folder: Path
) -> "tuple[subprocess.Popen[bytes], Document]":
    """Start the container of a pod as a process, with its volumes as folders here."""
    workload = pod.rpartition("-")[0]
    (template,) = (
        each["spec"]["template"]["spec"]
        for each in documents
        if each["kind"] == "StatefulSet" and each["metadata"]["name"] == workload
    )
    (container,) = template["containers"]
    (files,) = (
        each["data"] for each in documents if each["kind"] == "ConfigMap" and each["metadata"]["name"] == workload
    )
    settings, state = folder / "settings", folder / "state"
    for place in (settings, state):
        place.mkdir()
    for name, text in files.items():
        (settings / name).write_text(text.replace(STATE, str(state)), encoding="utf-8")
    variables = {"POD_NAME": pod}
    for each in container["env"]:
        if "secretKeyRef" in each.get("valueFrom", {}):
            reference = each["valueFrom"]["secretKeyRef"]
            variables[each["name"]] = secrets[reference["name"], reference["key"]]
    arguments = [
        text.replace("$(POD_NAME)", pod).replace("/etc/tidegate/settings", str(settings)) for text in container["args"]
    ]
    assert container["command"] == ["tidegate"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "deploy.cli", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **variables},
        cwd=folder,
    )
    return process, template


def probe(template: Document, kind: str) -> tuple[bool, str]:
    """Ask as the kubelet does."""
    (container,) = template["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    asked = container[kind]["httpGet"]
    return healthz(f"http://127.0.0.1:{ports[asked['port']]}{asked['path']}")


def test_a_gateway_is_ready_and_lives_on_while_its_broker_is_away(
    render: Render,
    mqtt_broker: Callable[..., Any],
    new_kafka: Callable[..., Any],
    wait_until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    broker, kafka, port = mqtt_broker("mosquitto"), new_kafka(), choose_port(0)[0]
    values = {
        "settings": {
            "mqtt": {"host": broker.host, "port": broker.port_v5, "username": broker.username},
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "replication": 1},
            "monitoring": {"gateway_port": port},
        },
        "secrets": {"mqtt": {"password": {"name": "broker", "key": "password"}}},
        "gateway": {
            "members": [
                {"id": "east", "clientId": "tidegate-east", "subscriptions": ["site/east/#"]},
                {"id": "west", "clientId": "tidegate-west", "subscriptions": ["site/west/#"]},
            ]
        },
    }
    secrets = {("broker", "password"): broker.password}
    process, template = start_pod(render(values), "tidegate-gateway-1", secrets, tmp_path)
    try:
        wait_until(lambda: probe(template, "readinessProbe")[0], what="the gateway being ready")
        assert probe(template, "livenessProbe")[0]
        broker.kill()
        wait_until(lambda: not probe(template, "readinessProbe")[0], what="the gateway not being ready")
        assert probe(template, "livenessProbe")[0], "a restart would not help it"
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(template["terminationGracePeriodSeconds"]) == 0
        assert time.monotonic() - began < template["terminationGracePeriodSeconds"]
    finally:
        process.kill()
        process.wait()
