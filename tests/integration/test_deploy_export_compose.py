"""The exported Compose file with real programs: its broker's command and configuration, and the file itself."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.export.compose import compose_files
from deploy.local.broker import connect_accepted, find_mosquitto
from deploy.local.ports import choose_port
from deploy.settings import Settings

PASSWORD = "a secret: with 'quotes' and $HOME"


def test_the_broker_starts_as_exported_and_accepts_only_its_user(
    tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    mosquitto = find_mosquitto()
    if mosquitto is None or shutil.which("mosquitto_passwd") is None:
        pytest.skip("mosquitto is not on this machine")
    files = compose_files(Settings(), image="tidegate:1")
    (tmp_path / "secret").write_text(PASSWORD + "\n", encoding="utf-8")
    port, _ = choose_port(0)
    paths = {
        "/run/secrets/mqtt.password": tmp_path / "secret",
        "/tmp/passwords": tmp_path / "passwords",
        "/mosquitto/config/mosquitto.conf": tmp_path / "mosquitto.conf",
        "/mosquitto/data/": f"{tmp_path}/",
        "exec mosquitto ": f"exec {mosquitto} ",
        "listener 1883": f"listener {port} 127.0.0.1",
        "$$": "$",
    }

    def here(text: str) -> str:
        for name, path in paths.items():
            text = text.replace(name, str(path))
        return text

    # As root it would change to a user that may not read this folder.
    own = "user root\n" if os.geteuid() == 0 else ""
    (tmp_path / "mosquitto.conf").write_text(here(files["mosquitto/mosquitto.conf"]) + own, encoding="utf-8")
    command = yaml.safe_load(files["compose.yaml"])["services"]["mosquitto"]["command"]
    with subprocess.Popen([here(word) for word in command], stderr=subprocess.DEVNULL) as process:
        try:

            def accepted(password: str) -> bool:
                return connect_accepted(
                    "127.0.0.1", port, level=5, name="tidegate", password=password, timeout=2
                )  # fmt: skip

            wait_until(lambda: accepted(PASSWORD), seconds=20, what="the broker's answer to its user")
            assert not accepted("another")
            assert PASSWORD not in (tmp_path / "passwords").read_text("utf-8")
            assert (tmp_path / "passwords").stat().st_mode & 0o077 == 0
            assert PASSWORD.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        finally:
            process.terminate()


def test_docker_compose_reads_the_file(tmp_path: Path) -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not on this machine")
    for name, text in compose_files(Settings(), image="tidegate:1").items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run([program, "config"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    read = yaml.safe_load(done.stdout)
    assert {"gateway", "stream", "monitor", "canary", "mosquitto", "kafka"} <= {*read["services"]}
    assert read["services"]["canary"]["depends_on"]["stream"]["condition"] == "service_healthy"
    assert read["services"]["gateway"]["image"] == "tidegate:1"
