"""One embedded run for all end-to-end tests, started as a person starts it, in a path with spaces."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from deploy.local.guard import find_marked_processes
from deploy.local.runfile import RunFile, is_locked, read_run
from deploy.settings import Settings, load_settings
from gateway.devtools.fleet_publisher import FleetTotals, PublishJournal, run_fleet
from gateway.devtools.simulator import FleetScript
from tests.support.processes import name_of, runs

ROOT = Path(__file__).parents[2]

EMBEDDED = """
[mqtt]
# The wildcard does not match topics that begin with a dollar sign.
subscriptions = ["#", "$aws/#"]

[embedded]
ready_timeout_seconds = 900
canary_seconds = 1
"""


@dataclass
class Pipeline:
    """An embedded run and the command line on it."""

    data: Path
    config: Path

    def tidegate(
        self, *arguments: str, ok: Sequence[int] = (0,), seconds: float = 300
    ) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TIDEGATE_DATA": str(self.data)}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "deploy.cli", *arguments],
            capture_output=True,
            text=True,
            timeout=seconds,
            env=environment,
            cwd=self.data.parent,
            check=False,
        )
        assert done.returncode in ok, (
            f"tidegate {' '.join(arguments)} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def json(self, *arguments: str, ok: Sequence[int] = (0,), seconds: float = 300) -> Any:
        return json.loads(self.tidegate(*arguments, "--json", ok=ok, seconds=seconds).stdout)

    def up(self, *arguments: str, seconds: float = 900) -> "subprocess.CompletedProcess[str]":
        # All ports below those that the system gives to connections: Kafka listens seconds after its port was chosen.
        offset = str(random.randrange(10_000, 23_000, 50))
        flags = ["--detach", "--data", str(self.data), "--port-offset", offset, "--config", str(self.config)]
        return self.tidegate("up", *flags, *arguments, seconds=seconds)

    def status(self) -> Any:
        return self.json("status", ok=(0, 1))

    def ready(self) -> bool:
        return bool(self.status()["ready"])

    @property
    def run(self) -> RunFile:
        run = read_run(self.data)
        assert run is not None
        return run

    @property
    def settings(self) -> Settings:
        return load_settings(self.data / "config.toml", environ={})

    def url(self, part: str, path: str = "metrics") -> str:
        return f"http://127.0.0.1:{self.run.ports[part]}/{path}"

    def audit(self, since: str = "10m") -> Any:
        return self.json("audit", "--since", since, "--wait", "120", ok=(0, 1))

    def stored_messages(self, boot: int) -> set[tuple[str, int]]:
        """(device, seq) of what is stored of one fleet."""
        rows = DeltaTable(f"{self.settings.lake.root}/readings").to_pyarrow_dataset()
        found = rows.to_table(columns=["device", "seq"], filter=pc.field("boot") == boot)
        return set(zip(found.column("device").to_pylist(), found.column("seq").to_pylist(), strict=True))

    def left_behind(self, run: RunFile) -> list[str]:
        """What a stopped run must not leave: processes, listening ports, the lock, the run file."""
        found = [f"process {one.pid} {name_of(one)}" for one in find_marked_processes(run.run_id) if runs(one)]
        listening = {entry.laddr.port for entry in psutil.net_connections("tcp") if entry.status == psutil.CONN_LISTEN}
        found += [f"port {port} of {name}" for name, port in run.ports.items() if port in listening]
        found += ["lock"] if is_locked(self.data) else []
        return found + (["run.json"] if (self.data / "run.json").exists() else [])


@pytest.fixture(scope="session")
def new_pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Pipeline]]:
    """Makes a data folder for one run; whatever still runs there at the end is stopped by force."""
    made: list[tuple[Pipeline, list[str]]] = []

    def make() -> Pipeline:
        folder = tmp_path_factory.mktemp("tide gate rün")
        config = folder / "tide gate.toml"
        config.write_text((ROOT / "tests" / "payloads.toml").read_text("utf-8") + EMBEDDED, encoding="utf-8")
        made.append((Pipeline(folder / "data dir", config), []))
        return made[-1][0]

    yield make
    for pipeline, _ in made:
        if (run := read_run(pipeline.data)) is not None:
            pipeline.tidegate("down", ok=(0, 69))
            assert pipeline.left_behind(run) == []


@pytest.fixture(scope="session")
def pipeline(new_pipeline: Callable[[], Pipeline]) -> Pipeline:
    """A run that is ready, with its small fleet; tests share it and leave it ready."""
    run = new_pipeline()
    run.up("--wait")
    return run


@pytest.fixture
def start_fleet(tmp_path: Path, unique_name: str) -> Iterator[Callable[..., "Fleet"]]:
    """`start_fleet(pipeline, devices=…, rate=…)` publishes in the background until `finish()`, or so many `messages`."""
    started: list[Fleet] = []

    def start(pipeline: Pipeline, *, devices: int, rate: float, metrics: int = 2, messages: int | None = None) -> Fleet:
        journal, name = tmp_path / "journal.txt", unique_name
        fleet = Fleet(pipeline.settings, name, journal, devices=devices, rate=rate, metrics=metrics, messages=messages)
        started.append(fleet)
        return fleet

    yield start
    for fleet in started:
        fleet.finish()


class Fleet:
    """A good native fleet that writes down what it tried and what was acknowledged."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        journal: Path,
        *,
        devices: int,
        rate: float,
        metrics: int,
        messages: int | None = None,
    ) -> None:
        self.name = name
        self.boot = int(time.time() * 1000)
        self.totals: FleetTotals | None = None
        self._file = journal
        self._stop = threading.Event()
        self._left = messages
        self._settings = settings.mqtt.with_login("devices")
        script = FleetScript(devices, seed=11, boot=self.boot, prefix=name, metrics=metrics)
        self._thread = threading.Thread(target=self._publish, args=(script, rate), daemon=True)
        self._thread.start()

    def _publish(self, script: FleetScript, rate: float) -> None:
        journal = PublishJournal(self._file)
        try:
            self.totals = run_fleet(
                self._settings,
                script,
                rate=rate,
                stop=self._stop,
                journal=journal,
                on_sent=self._count,
                client_prefix=self.name,
                drain_seconds=60.0,
            )
        finally:
            journal.close()

    def _count(self, message: object) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._stop.set()

    def acknowledged(self) -> dict[tuple[str, int], int]:
        """(device, seq) -> epoch ms of the PUBACK, of every message that has one so far."""
        lines = self._file.read_text("utf-8").splitlines() if self._file.exists() else []
        parts = [line.split(" ") for line in lines if line.startswith("P ")]
        return {(device, int(seq)): int(at) for _, device, _, seq, at in parts}

    def finish(self) -> FleetTotals:
        """Stop publishing and wait for the last PUBACKs."""
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the fleet did not end"
        assert self.totals is not None
        return self.totals
