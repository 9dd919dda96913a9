"""Exported units run by a real systemd: installed as their README says, confined, started again or not, and stopped cleanly.

It takes a minute and needs root and cgroups of version 1, so `make chaos` runs it:
`.venv/bin/python -m pytest -m chaos tests/integration/test_deploy_systemd.py`.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.chaos.numbered_load import NumberedLoad
from deploy.export.systemd import PROGRAM, SETTINGS, systemd_files
from deploy.local.ports import choose_port
from deploy.settings import Settings, load_settings
from deploy.settings_file import to_toml
from gateway.gateway_settings import MqttSettings
from monitoring.scrape import healthz
from tests.support.systemd import SystemdMachine

pytestmark = pytest.mark.chaos

PARTS = ("gateway", "stream", "canary", "monitor")
COUNT = "select count(distinct (device, boot, seq)) as n from readings where device like 'fleet-%'"


class Installed:
    """The units on their machine, and a fleet that sends to the same broker."""

    def __init__(self, machine: SystemdMachine, folder: Path, broker: Any, kafka: Any) -> None:
        self.machine, self.broker = machine, broker
        self.ports = {part: choose_port(0)[0] for part in PARTS}
        self.file = folder / "tidegate.toml"
        page, metrics = self.ports["monitor"], {part: port for part, port in self.ports.items() if part != "monitor"}
        given = {
            "mqtt": {"host": "127.0.0.1", "port": broker.port_v5, "username": broker.username},
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "replication": 1, "partitions": 2},
            "stream": {"warm_up": False},
            "monitoring": {
                "page_port": page,
                "targets": {part: [f"127.0.0.1:{port}"] for part, port in metrics.items()},
                **{f"{part}_port": port for part, port in metrics.items()},
            },
        }
        self.file.write_text(to_toml(Settings.model_validate(given), only_given=True), encoding="utf-8")
        self.settings = load_settings(self.file, environ={})
        self.files = systemd_files(self.settings)
        login = {"port": broker.port_v5, "username": broker.username, "password": broker.password}
        self.load = NumberedLoad(MqttSettings.model_validate(login), name="fleet", boot=1)

    def install(self) -> None:
        """Do what the README says, line by line."""
        place = self.machine.root / "root" / "units"
        place.mkdir()
        for name, text in {**self.files, "FILE.toml": self.file.read_text("utf-8")}.items():
            (place / name).write_text(text, encoding="utf-8")
        for title in ("Install", "Secrets", "Start"):
            section = re.split(r"^## ", self.files["README.md"], flags=re.MULTILINE)
            (text,) = (each for each in section if each.startswith(title))
            for line in re.findall(r"^    (.*)$", text, re.MULTILINE):
                if "make setup" in line or line.startswith(("cd ", "journalctl")):
                    continue  # The machine has this checkout already.
                stdin = f"{self.broker.password}\n" if "/dev/stdin" in line else ""
                as_user = line.replace("sudo -u tidegate", "runuser -u tidegate --")
                self.machine.run("sh", "-c", f"cd /root/units && {as_user}", stdin=stdin, check=True)

    def await_ready(self, part: str, seconds: float = 180.0) -> None:
        """Wait until the part does its work; a failure shows what its unit wrote."""
        unit, end = f"tidegate-{part}.service", time.monotonic() + seconds
        while not (answer := healthz(f"http://127.0.0.1:{self.ports[part]}/healthz"))[0]:
            if time.monotonic() > end:
                status = self.machine.systemctl("status", unit)
                pytest.fail(
                    f"{part} is not ready after {seconds:g} s: {answer}\n{status}\n{self.machine.journal(unit)[-4000:]}"
                )
            time.sleep(0.2)

    def tidegate(self, *words: str) -> str:
        """Standard output of the command, run as the user of the units."""
        command = [PROGRAM, *words, "--config", SETTINGS]
        variables = ("XDG_CACHE_HOME=/var/cache", "TIDEGATE_LOGS=/var/log/tidegate")
        return self.machine.run(
            "runuser", "-u", "tidegate", "--", "env", "--chdir=/var/lib/tidegate", *variables, *command, check=True
        ).stdout


@pytest.fixture
def installed(
    systemd_machine: SystemdMachine, tmp_path: Path, new_kafka: Callable[..., Any], mqtt_broker: Callable[..., Any]
) -> Iterator[Installed]:
    made = Installed(systemd_machine, tmp_path, mqtt_broker("mosquitto"), new_kafka())
    made.install()
    yield made
    made.load.close()


def process_status(machine: SystemdMachine, unit: str) -> dict[str, str]:
    text = (machine.root / f"proc/{machine.pid(unit)}/status").read_text("utf-8")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def test_units_run_confined_and_lose_nothing(installed: Installed, wait_until: Callable[..., Any]) -> None:
    machine, load = installed.machine, installed.load
    units = {part: f"tidegate-{part}.service" for part in PARTS}
    for part in ("monitor", "gateway", "stream", "canary"):
        installed.await_ready(part)
    load.start(200)

    for unit in units.values():
        assert machine.show(unit, "ActiveState") == "active"
        status = process_status(machine, unit)
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"
        assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}
        assert status["Uid"].split()[0] == machine.run("id", "-u", "tidegate").stdout.strip()
        limit = re.search(r"MemoryMax=(\d+)M", installed.files[unit])
        assert limit is not None
        enforced = (machine.group(unit, "memory") / "memory.limit_in_bytes").read_text()
        assert int(enforced) == int(limit[1]) * 1024**2
    # The password is in a file that only this unit's user can read, and in no environment.
    gateway = units["gateway"]
    environment = (machine.root / f"proc/{machine.pid(gateway)}/environ").read_bytes()
    assert b"TIDEGATE_MQTT__PASSWORD=file:/run/credentials/tidegate-gateway.service/mqtt.password" in environment
    assert installed.broker.password.encode() not in environment
    assert machine.run(
        "runuser", "-u", "nobody", "--", "cat", "/run/credentials/tidegate-gateway.service/mqtt.password"
    ).returncode
    assert machine.run("runuser", "-u", "nobody", "--", "ls", "/var/lib/tidegate").returncode

    # A kill: again within seconds, with all that was not acknowledged.
    before = machine.pid(gateway)
    machine.systemctl("kill", "--signal=KILL", gateway)
    wait_until(lambda: machine.pid(gateway) not in (0, before), what="the gateway after its kill")
    assert machine.show(gateway, "NRestarts") == "1"
    installed.await_ready("gateway")
    # Its memory is over: a stream that the kernel kills is started again too.
    before = machine.pid(units["stream"])
    machine.systemctl("kill", "--signal=KILL", units["stream"])
    wait_until(lambda: machine.pid(units["stream"]) not in (0, before), what="the stream after its kill")
    installed.await_ready("stream")

    # A stop amid the load.
    stop_cleanly(installed, gateway)
    machine.systemctl("start", gateway)
    installed.await_ready("gateway")
    assert load.finish(seconds=60)
    assert set(load.sent) == load.acknowledged
    wait_until(lambda: stored(installed) == len(load.sent), seconds=120, what=f"{len(load.sent)} messages in the table")
    audit = json.loads(installed.tidegate("audit", "--json"))
    assert (audit["unaccounted"], audit["duplicate_rows"], audit["order_violations"]) == (0, 0, 0)

    # The target stops all of them, and the README says how to wait for it.
    groups = {unit: machine.group(unit, "systemd") for unit in units.values()}
    machine.systemctl("stop", "tidegate.target")
    limit = max(int(each) for each in re.findall(r"TimeoutStopSec=(\d+)", "".join(installed.files.values())))
    for unit in units.values():
        wait_until(
            lambda unit=unit: machine.show(unit, "ActiveState") == "inactive", seconds=limit, what=f"the end of {unit}"
        )
        assert (machine.show(unit, "Result"), machine.show(unit, "ExecMainStatus")) == ("success", "0")
        assert not groups[unit].exists(), "a process is left"
    assert machine.show("tidegate-stream.service", "NRestarts") == "1"


def stop_cleanly(installed: Installed, unit: str) -> None:
    machine = installed.machine
    limit = re.search(r"TimeoutStopSec=(\d+)", installed.files[unit])
    assert limit is not None
    began = time.monotonic()
    machine.systemctl("stop", unit)
    assert time.monotonic() - began < int(limit[1])
    assert (machine.show(unit, "Result"), machine.show(unit, "ExecMainStatus")) == ("success", "0")


def stored(installed: Installed) -> int:
    return int(json.loads(installed.tidegate("sql", "--format", "json", COUNT))[0]["n"])


def test_a_wrong_setting_is_not_tried_again(installed: Installed, wait_until: Callable[..., Any]) -> None:
    machine, unit = installed.machine, "tidegate-gateway.service"
    machine.systemctl("stop", "tidegate.target", "tidegate-*.service")
    file = machine.root / SETTINGS.removeprefix("/")
    file.write_text(installed.file.read_text("utf-8") + "\n[gateway]\nwindow_mesages = 1\n", encoding="utf-8")
    machine.systemctl("start", unit)
    wait_until(lambda: machine.show(unit, "ActiveState") == "failed", what="the end of the gateway")
    assert (machine.show(unit, "ExecMainStatus"), machine.show(unit, "NRestarts")) == ("78", "0")
    assert "window_mesages" in machine.journal(unit)


def test_systemd_restarts_a_part_that_hangs_and_none_that_waits(
    installed: Installed, wait_until: Callable[..., Any]
) -> None:
    machine, unit = installed.machine, "tidegate-gateway.service"
    machine.systemctl("stop", "tidegate-stream", "tidegate-canary", "tidegate-monitor")
    shorter = machine.root / "run/systemd/system/tidegate-gateway.service.d"
    shorter.mkdir(parents=True)
    (shorter / "watchdog.conf").write_text("[Service]\nWatchdogSec=5\n", encoding="utf-8")
    machine.systemctl("daemon-reload")
    machine.systemctl("restart", unit)
    installed.await_ready("gateway")

    def signs() -> str:
        return machine.show(unit, "WatchdogTimestampMonotonic")

    installed.broker.kill()
    wait_until(lambda: "broker" in machine.show(unit, "StatusText"), what="a sentence about the broker")
    for _ in range(6):  # more than the time after which systemd would give up
        last = signs()
        wait_until(lambda last=last: signs() != last, what="a sign of life")
    assert machine.show(unit, "NRestarts") == "0"

    before = machine.pid(unit)
    machine.systemctl("kill", "--signal=STOP", unit)
    wait_until(lambda: machine.pid(unit) not in (0, before), what="another process")
    assert "Watchdog timeout" in machine.journal(unit)
    assert machine.show(unit, "NRestarts") == "1"
