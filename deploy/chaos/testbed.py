"""Test bed of a fault: a broker, a Kafka and gateways as separate processes on loopback, with all files in one folder."""

import contextlib
import math
import secrets
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from deploy.local.broker import Mosquitto, find_mosquitto
from deploy.local.ports import choose_port
from deploy.settings import Settings
from deploy.settings_file import to_toml, write_private
from deploy.testbed.cluster import open_cluster
from deploy.testbed.node import KafkaNode
from deploy.testbed.server_process import ServerProcess, SingleServer
from ingest.contract.errors import UnavailableError

__all__ = ["ChaosTestbed", "GatewayProcess", "new_broker", "open_kafka"]

ROOT: Final = Path(__file__).parents[2]
USER: Final = "chaos"
MARK: Final = "chaos"
KAFKA_HEAP: Final = "512m"


class GatewayProcess(ServerProcess):
    """`tidegate gateway --config` with settings of its own in a folder of its own."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder / "gateway.log", mark=MARK, environment={"PYTHONPATH": str(ROOT)})
        self.settings, self._config = settings, folder / "gateway.toml"
        write_private(self._config, to_toml(settings))

    @property
    def name(self) -> str:
        """The gateway id."""
        return self.settings.gateway.gateway_id

    def start(self, *runner: str) -> None:
        """Start the gateway; with `runner`, Python code that replaces the command line's module."""
        code = ["-c", *runner] if runner else ["-m", "deploy.cli"]
        self.spawn([sys.executable, *code, "gateway", "--config", str(self._config)])

    def healthy(self) -> bool:
        """Return whether the gateway says that messages flow."""
        with contextlib.suppress(OSError):
            return bool(self._get("healthz", 2.0))
        return False

    def metric(self, name: str) -> float:
        """A metric's sum over its labels; 0 where it has none, NaN, which equals no number, where it does not answer."""
        with contextlib.suppress(OSError):
            lines = self._get("metrics", 20.0).splitlines()
            return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name)
        return math.nan

    def _get(self, path: str, seconds: float) -> str:
        url = f"http://127.0.0.1:{self.settings.monitoring.gateway_port}/{path}"
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return str(answer.read().decode())


class ChaosTestbed:
    """The servers and how to make gateways for them."""

    def __init__(
        self, folder: Path, broker: SingleServer, kafka: SingleServer | KafkaNode, *, username: str, password: str
    ) -> None:
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
            # Several gateways take the same messages, each with a session of its own.
            "gateway": {"gateway_id": name, "conflicts": "warn"},
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
def open_kafka(folder: Path) -> Iterator[KafkaNode]:
    """A Kafka in `folder`, ended at last."""
    with open_cluster(folder / "kafka", heap=KAFKA_HEAP, jmx=False) as cluster:
        yield cluster.nodes[0]


@contextlib.contextmanager
def new_broker(folder: Path) -> Iterator[tuple[SingleServer, dict[str, str]]]:
    """A broker in `folder`, ended at last, and its login as keywords of `ChaosTestbed`.

    Raises:
        UnavailableError: mosquitto is not here. The other broker keeps no queue over a kill, and serves no fault.
    """
    if find_mosquitto() is None:
        message = "chaos needs mosquitto, whose queue survives the faults. Install it: apt-get install mosquitto."
        raise UnavailableError(message)
    folder.mkdir(parents=True, exist_ok=True)
    login = {"username": USER, "password": secrets.token_urlsafe(12)}
    part = Mosquitto(folder / "broker", choose_port(0)[0], users={USER: login["password"]})
    broker = SingleServer(part, folder / "broker.log", mark=MARK)
    try:
        yield broker, login
    finally:
        broker.kill()
