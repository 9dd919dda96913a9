"""`init prod` on a terminal: it asks on stderr, takes answers and defaults, and reads the number of brokers from a real Kafka."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.settings import load_settings

ROOT = Path(__file__).parents[2]


@pytest.fixture
def on_terminal() -> Any:
    """Runs `init prod` with a terminal for its stdin, on which somebody types these lines."""

    def run(file: Path, *lines: str) -> subprocess.CompletedProcess[str]:
        person, terminal = os.openpty()
        try:
            os.write(person, "".join(f"{line}\n" for line in lines).encode())
            command = [sys.executable, "-m", "deploy.cli", "init", "prod", str(file)]
            return subprocess.run(
                command, stdin=terminal, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT
            )
        finally:
            os.close(person)
            os.close(terminal)

    return run


def test_a_person_is_asked_and_the_copies_fit_the_cluster(on_terminal: Any, kafka_server: Any, tmp_path: Path) -> None:
    file = tmp_path / "prod.toml"
    answers = ("mqtt.example.org", "maybe", "yes", "", "/etc/ca.pem", "gw", kafka_server.bootstrap_servers)
    done = on_terminal(file, *answers, "", "", "/srv/tables", "", "hall-1", "")
    assert done.returncode == 0, done.stderr
    assert "Host of the MQTT broker" in done.stderr
    assert "Answer yes or no." in done.stderr
    settings = load_settings(file, environ={})
    assert (settings.mqtt.port, settings.mqtt.tls, settings.mqtt.ca_file) == (8883, True, "/etc/ca.pem")
    assert (settings.kafka.security_protocol, settings.kafka.replication) == ("PLAINTEXT", 1), "one broker"
    assert (settings.lake.root, settings.gateway.gateway_id) == ("/srv/tables", "hall-1")
    assert "TIDEGATE_MQTT__PASSWORD" in done.stdout
