"""What a fault happens to: a broker, a Kafka and gateways as processes of their own, in one folder, on loopback."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from deploy.local import artifacts
from deploy.local.broker import Mosquitto, find_mosquitto
from deploy.local.java import find_java
from deploy.local.kafka import EmbeddedKafka
from deploy.local.ports import choose_port
from deploy.settings import Settings, child_environment
from deploy.settings_file import to_toml, write_private
from ingest.contract.errors import UnavailableError

__all__ = ["GatewayProcess", "Process", "Server", "Stage", "new_broker", "open_kafka", "stop_child"]

ROOT: Final = Path(__file__).parents[2]
USER: Final = "chaos"


def stop_child(pid: int) -> None:
    """SIGSTOP to a child of this process; back when all of its threads stand still, or when it has ended.

    A thread stops at its own next turn: until then it may still answer, on a busy machine for a while.
    """
    os.kill(pid, signal.SIGSTOP)
    # Left to whoever waits for the child: only looked at.
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


class Process:
    """One started process; it may be killed, held, and started again on the same data."""

    def __init__(self, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log_file = log
        self._environment = dict(environment or child_environment("chaos"))
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self, command: list[str]) -> "subprocess.Popen[bytes]":
        """Start it; its words are added to its log."""
        with self.log_file.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=self._environment, cwd=self.log_file.parent, start_new_session=True,
            )  # fmt: skip
        return self._process

    @property
    def pid(self) -> int:
        """Of the process started last."""
        assert self._process is not None  # noqa: S101 - a caller's mistake
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        return None if self._process is None else self._process.poll()

    def wait(self, seconds: float = 30.0) -> int:
        """Its exit code, once it ends."""
        assert self._process is not None  # noqa: S101 - a caller's mistake
        return self._process.wait(seconds)

    def kill(self) -> None:
        """As a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def hold(self) -> None:
        """It stands still (SIGSTOP), each of its threads: its connections stay open, and nothing answers."""
        stop_child(self.pid)

    def let_go(self) -> None:
        """It goes on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self, seconds: float = 30.0) -> int:
        """Ask it to end; its exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait(seconds)

    def log(self) -> str:
        """All it said so far."""
        return self.log_file.read_text("utf-8", "replace") if self.log_file.exists() else ""


class Server(Process):
    """A broker or a Kafka: `part` of deploy/local says how it is started."""

    def __init__(self, part: Any, log: Path) -> None:
        super().__init__(log)
        self.part = part
        self.start()

    def start(self) -> None:
        """Start it on the data that it has, and wait until it answers."""
        self.part.prepare()
        self.part.wait_ready(self.spawn(self.part.command()))


class GatewayProcess(Process):
    """`tidegate gateway --config` with settings of its own in a folder of its own."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder / "gateway.log", child_environment("chaos") | {"PYTHONPATH": str(ROOT)})
        self.settings, self._config = settings, folder / "gateway.toml"
        write_private(self._config, to_toml(settings))

    @property
    def name(self) -> str:
        """The gateway id."""
        return self.settings.gateway.gateway_id

    def start(self, *runner: str) -> None:
        """Start it; with `runner`, Python code that stands in for the command line's module."""
        code = ["-c", *runner] if runner else ["-m", "deploy.cli"]
        self.spawn([sys.executable, *code, "gateway", "--config", str(self._config)])

    def healthy(self) -> bool:
        """Whether it says that messages flow."""
        with contextlib.suppress(OSError):
            return bool(self._get("healthz", 2.0))
        return False

    def metric(self, name: str) -> float:
        """A metric's sum over its labels; 0 where it does not answer or has none."""
        with contextlib.suppress(OSError):
            lines = self._get("metrics", 20.0).splitlines()
            return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name)
        return 0.0

    def rss_mb(self) -> float:
        """Its resident memory now."""
        with contextlib.suppress(psutil.Error, AssertionError):
            return float(psutil.Process(self.pid).memory_info().rss) / 1024**2
        return 0.0

    def _get(self, path: str, seconds: float) -> str:
        url = f"http://127.0.0.1:{self.settings.monitoring.gateway_port}/{path}"
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return str(answer.read().decode())


class Stage:
    """The servers and how to make gateways for them."""

    def __init__(self, folder: Path, broker: Server, kafka: Server, *, username: str, password: str) -> None:
        self.folder, self.broker, self.kafka = folder, broker, kafka
        self._login = {"username": username, "password": password}
        self._gateways: list[GatewayProcess] = []

    def settings(self, name: str, *, mqtt: Mapping[str, Any] | None = None, **sections: Any) -> Settings:
        """Settings of one gateway on this stage; `mqtt` and the sections overlay the defaults."""
        port, _ = choose_port(0)
        base: dict[str, Any] = {
            "mqtt": {
                "host": self.broker.part.host,
                "port": self.broker.part.port,
                **self._login,
                "client_id": name,
                "session_file": str(self.folder / name / "session.json"),
                "subscriptions": ["tidegate/v1/+/readings"],
                "reconnect_max_seconds": 2.0,
            },
            "gateway": {"gateway_id": name},
            "kafka": {"bootstrap_servers": self.kafka.part.bootstrap_servers, "partitions": 2},
            "monitoring": {"gateway_port": port},
        }
        for section, values in {"mqtt": dict(mqtt or {}), **sections}.items():
            base[section] = {**base.get(section, {}), **values} if isinstance(values, Mapping) else values
        return Settings.model_validate(base)

    def gateway(self, settings: Settings, *, folder: str | None = None) -> GatewayProcess:
        """A gateway, not started yet, in a folder of its name; the stage ends it at last."""
        made = GatewayProcess(self.folder / (folder or settings.gateway.gateway_id), settings)
        self._gateways.append(made)
        return made

    def close(self) -> None:
        """End the gateways."""
        for process in self._gateways:
            process.kill()


@contextlib.contextmanager
def open_kafka(folder: Path) -> Iterator[Server]:
    """A Kafka in `folder`, ended at last."""
    artifacts.ensure("kafka", lambda text: None)
    folder.mkdir(parents=True, exist_ok=True)
    kafka = Server(
        EmbeddedKafka(folder / "kafka", find_java(), choose_port(0)[0], choose_port(0)[0]), folder / "kafka.log"
    )
    try:
        yield kafka
    finally:
        kafka.kill()


@contextlib.contextmanager
def new_broker(folder: Path) -> Iterator[tuple[Server, dict[str, str]]]:
    """A broker in `folder`, ended at last, and its login as keywords of `Stage`.

    Raises:
        UnavailableError: mosquitto is not here. The other broker keeps no queue over a kill, and serves no fault.
    """
    if find_mosquitto() is None:
        message = "chaos needs mosquitto on this machine (apt-get install mosquitto): its queue outlives the faults."
        raise UnavailableError(message)
    folder.mkdir(parents=True, exist_ok=True)
    login = {"username": USER, "password": secrets.token_urlsafe(12)}
    part = Mosquitto(folder / "broker", choose_port(0)[0], users={USER: login["password"]})
    broker = Server(part, folder / "broker.log")
    try:
        yield broker, login
    finally:
        broker.kill()
