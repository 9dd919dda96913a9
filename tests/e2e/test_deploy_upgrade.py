"""A pipeline of an earlier version is upgraded under load, stream first, and goes back, gateway first: nothing is lost."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from deploy.chaos.numbered_load import NumberedLoad
from deploy.cli import run
from deploy.local.ports import choose_port
from gateway.gateway_settings import MqttSettings
from monitoring.scrape import healthz

pytestmark = [pytest.mark.chaos, pytest.mark.promise("P1"), pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
EARLIER = "3aaed6bf9fba4906c14265b0992345b8752251c8"
"""A commit of the day before the first release candidate: another form of the ledger, of leases and of identities."""
PACKAGES = ("gateway", "ingest", "streaming", "lakehouse", "monitoring", "deploy")
RATE = 100.0


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the earlier version."""
    folder = tmp_path_factory.mktemp("earlier")
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", EARLIER, *PACKAGES], capture_output=True, check=False, timeout=120
    )
    if archive.returncode:
        pytest.skip(f"this checkout does not have the commit {EARLIER[:8]} of the earlier version")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True, timeout=120)
    return folder


class Site:
    """A real broker, a real Kafka, and processes of either version on one settings file."""

    def __init__(self, folder: Path, broker: Any, kafka: Any) -> None:
        self.folder, self.config, self.root = folder, folder / "tidegate.toml", folder / "tables"
        login = {"username": broker.username, "password": broker.password}
        self.mqtt = MqttSettings.model_validate({"host": broker.host, "port": broker.port, **login})
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        port, _ = choose_port(0)
        self.health = f"http://127.0.0.1:{port}/healthz"
        self.config.write_text(
            f'[mqtt]\nhost = "{broker.host}"\nport = {broker.port_v5}\nusername = "{broker.username}"\n'
            f'password = "{broker.password}"\nclient_id = "upgraded"\nsession_file = "{folder}/session.json"\n'
            f'[gateway]\ngateway_id = "upgraded"\n'
            f'[kafka]\nbootstrap_servers = "{kafka.bootstrap_servers}"\npartitions = 2\n'
            f'[lake]\nroot = "{self.root}"\n[stream]\ncheckpoint = "{folder}/checkpoints/land"\nwarm_up = false\n'
            f"[monitoring]\ngateway_port = {port}\nstream_port = 0\n",
            encoding="utf-8",
        )

    def start(self, part: str, sources: Path) -> None:
        assert part not in self.running
        more = ["--log-dir", str(self.folder / "logs")] if part == "stream" else []
        command = [
            sys.executable,
            "-P",
            "-c",
            "from deploy.cli import main; main()",
            part,
            "--config",
            str(self.config),
        ]
        with self.log(part).open("ab") as out:
            self.running[part] = subprocess.Popen(
                [*command, *more],
                stdout=out,
                stderr=out,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(sources)},
            )

    def stop(self, part: str) -> None:
        process = self.running.pop(part)
        process.terminate()
        assert process.wait(120) == 0, self.log(part).read_text("utf-8")[-3000:]

    def log(self, part: str) -> Path:
        return self.folder / f"{part}.log"

    def newest(self) -> int:
        """The highest sequence number in the table; all devices send in turns. The earlier version has no statistics of it."""
        if not DeltaTable.is_deltatable(str(self.root / "readings")):
            return 0
        numbers = DeltaTable(str(self.root / "readings")).to_pyarrow_dataset().to_table(columns=["seq"]).column("seq")
        return pc.max(numbers).as_py() or 0

    def stored(self) -> set[tuple[str, int]]:
        if not DeltaTable.is_deltatable(str(self.root / "readings")):
            return set()
        rows = DeltaTable(str(self.root / "readings")).to_pyarrow_dataset()
        found = rows.to_table(columns=["device", "seq"], filter=pc.field("metric") == "temperature")
        pairs = list(zip(found.column("device").to_pylist(), found.column("seq").to_pylist(), strict=True))
        assert len(pairs) == len(set(pairs)), "each message is stored once"
        return set(pairs)


@pytest.fixture
def site(mqtt_broker: Callable[..., Any], new_kafka: Callable[..., Any], tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, mqtt_broker("mosquitto"), new_kafka())
    yield made
    for process in made.running.values():
        process.kill()
        process.wait()


def test_an_upgrade_under_load_and_the_way_back_lose_and_double_nothing(
    site: Site, earlier: Path, wait_until: Callable[..., Any], capfd: Any
) -> None:
    site.start("gateway", earlier)
    site.start("stream", earlier)
    wait_until(lambda: healthz(site.health)[0], seconds=60, what="the gateway")
    load = NumberedLoad(site.mqtt, name="up", devices=10)

    def grows(what: str) -> None:
        assert all(process.poll() is None for process in site.running.values()), what
        newest = list(load.sent)[-1].seq
        wait_until(lambda: site.newest() > newest, seconds=300, what=f"rows after: {what}")

    try:
        load.start(RATE)
        wait_until(lambda: load.sent, what="the load")
        grows("the start of the earlier version")
        for part, sources in (("stream", ROOT), ("gateway", ROOT), ("gateway", earlier), ("stream", earlier)):
            site.stop(part)
            site.start(part, sources)
            grows(f"{part} from {sources}")
        site.stop("stream")
        site.start("stream", ROOT)
        assert load.finish(seconds=120)
        acknowledged = {(key.device, key.seq) for key in load.acknowledged}
        wait_until(lambda: acknowledged <= site.stored(), seconds=300, what="all rows")
    finally:
        load.close()
    assert run(["audit", "--config", str(site.config), "--wait", "60"]) == 0, capfd.readouterr().out
