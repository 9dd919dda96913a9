"""A first start of a gateway with shared inputs while Kafka is away: its probes answer meanwhile, and say why it waits."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.ports import choose_port
from monitoring.scrape import healthz

ROOT = Path(__file__).parents[2]


class FirstStart:
    """A gateway that never had its profiles and devices, and the Kafka that it asks for them."""

    def __init__(self, folder: Path, kafka_port: int) -> None:
        folder.mkdir()
        self.kafka, self.port = f"127.0.0.1:{kafka_port}", choose_port(0)[0]
        places = (
            f"profiles = {json.dumps(str(folder / 'p'))}\ndevice_registry = {json.dumps(str(folder / 'd.jsonl'))}\n"
        )
        self._profiles = folder / "p"
        file = folder / "tidegate.toml"
        file.write_text(
            f'[kafka]\nbootstrap_servers = "{self.kafka}"\n[gateway]\nshared_inputs = true\n{places}'
            f"[monitoring]\ngateway_port = {self.port}\n"
        )
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "deploy.cli", "gateway", "--config", str(file)],
                env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=folder, stderr=log,
            )  # fmt: skip

    def probe(self, path: str) -> tuple[bool, str]:
        return healthz(f"http://127.0.0.1:{self.port}{path}")

    def lives(self, reason: str) -> bool:
        """Whether it answers, is alive and not ready, and gives this reason."""
        assert self.process.poll() is None, self.log
        alive, words = self.probe("/livez")
        ready, _ = self.probe("/healthz")
        assert not ready and not self._profiles.exists()
        return alive and reason in words

    @property
    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[list[FirstStart]]:
    """A port of Kafka that refuses, and one that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ports = {"refused": choose_port(0)[0], "hanging": silent.getsockname()[1]}
        made = [FirstStart(tmp_path / name, port) for name, port in ports.items()]
        yield made
        for each in made:
            each.process.kill()
            each.process.wait()


def test_a_gateway_that_waits_for_its_first_inputs_lives_and_is_not_ready(
    starts: list[FirstStart], wait_until: Callable[..., Any]
) -> None:
    for each in starts:
        reason = f"waiting for the shared profiles and devices in Kafka at {each.kafka}"
        wait_until(lambda each=each, reason=reason: each.lives(reason), what="the probes")
    for each in starts:
        wait_until(
            lambda each=each: each.lives("The gateway waits for the shared profiles and devices."), what="the cause"
        )
        assert each.kafka in each.probe("/livez")[1]
    for each in starts:
        each.process.send_signal(signal.SIGTERM)
    for each in starts:
        assert each.process.wait(60) == 0, each.log
        assert "Traceback" not in each.log
        assert not each.probe("/livez")[0], "the port is free again"
