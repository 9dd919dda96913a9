"""What the machine tells: only what its platform knows, and one series per disk."""

import os
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deploy.monitor import host_probe as host
from deploy.monitor.host_probe import HostProbe, mountpoint
from monitoring.metrics.monitor import HOST, MonitorMetrics
from monitoring.sample_history import History
from monitoring.scrape import Scrape
from monitoring.snapshot import figures as shown

GIB = 2**30
MacTimes = namedtuple("MacTimes", "user nice system idle")
LinuxTimes = namedtuple("LinuxTimes", "user idle iowait")


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """Mounted disks (free, size) that a test names; the rest of the machine is on `/`."""
    disks: dict[str, tuple[int, int]] = {"/": (GIB, 8 * GIB)}

    def usage(path: str) -> Any:
        if path not in disks:
            raise FileNotFoundError(path)
        free, total = disks[path]
        return SimpleNamespace(free=free, total=total)

    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) in disks)
    monkeypatch.setattr(psutil, "disk_usage", usage)
    return disks


def test_every_declared_family_is_told_here_and_can_be_served(tmp_path: Path) -> None:
    samples = HostProbe([tmp_path]).look()
    assert set(samples) == {family.name for family in HOST}
    registry = CollectorRegistry()
    MonitorMetrics(registry).families.replace("host", samples)
    served = list(text_string_to_metric_families(generate_latest(registry).decode()))
    values = {sample.name: sample.value for family in served for sample in family.samples}
    assert 0 < values["node_memory_MemAvailable_bytes"] <= values["node_memory_MemTotal_bytes"]
    assert 0 < values["node_filesystem_avail_bytes"] < values["node_filesystem_size_bytes"]


def test_the_sum_over_modes_is_the_time_of_all_processors() -> None:
    told = dict(HostProbe([]).look()["node_cpu_seconds_total"])
    times = psutil.cpu_times()
    assert ("guest",) not in told
    assert told["user",] == pytest.approx(times.user, abs=5)
    assert sum(told.values()) == pytest.approx(sum(psutil.cpu_times()[:8]), rel=0.01)


def test_where_the_platform_knows_no_io_wait_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_times", lambda: MacTimes(1.0, 2.0, 3.0, 4.0))
    told = HostProbe([]).look()["node_cpu_seconds_total"]
    assert told == [(("user",), 1.0), (("nice",), 2.0), (("system",), 3.0), (("idle",), 4.0)]


def test_a_mode_never_falls_though_the_kernel_takes_some_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fall reads as a restart, and the whole counter as what was spent since."""
    probe, history = HostProbe([]), History(shown.METRICS)
    told = []
    for step, waited in enumerate((5000.0, 5000.1, 5000.02, 5000.2)):
        times = LinuxTimes(user=100.0 + step, idle=9000.0 + 9 * step - (waited < 5000.1) * 0.5, iowait=waited)
        monkeypatch.setattr(psutil, "cpu_times", lambda times=times: times)
        samples = probe.look()["node_cpu_seconds_total"]
        told.append(dict(samples)["iowait",])
        values = {("node_cpu_seconds_total", (("mode", labels[0]),)): value for labels, value in samples}
        history.add(1000.0 + 5 * step, "tidegate-monitor", Scrape(0, values))
    assert told == [5000.0, 5000.1, 5000.1, 5000.2]
    assert (shown.host(history)["iowait_ratio"] or 0) < 0.1


def test_two_folders_on_one_disk_are_one_series(mounts: dict[str, tuple[int, int]], tmp_path: Path) -> None:
    samples = HostProbe([tmp_path / "kafka", tmp_path / "tables"]).look()
    assert samples["node_filesystem_avail_bytes"] == [(("/",), float(GIB))]
    assert samples["node_filesystem_size_bytes"] == [(("/",), float(8 * GIB))]


def test_folders_on_two_disks_are_two_series(mounts: dict[str, tuple[int, int]], tmp_path: Path) -> None:
    disk = tmp_path / "big disk"
    disk.mkdir()
    mounts[str(disk)] = (5 * GIB, 6 * GIB)
    samples = HostProbe([tmp_path / "kafka", disk / "not there yet" / "tables"]).look()
    assert samples["node_filesystem_avail_bytes"] == [(("/",), float(GIB)), ((str(disk),), float(5 * GIB))]


def test_a_link_counts_where_it_leads(mounts: dict[str, tuple[int, int]], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounts[str(disk)] = (1, 2)
    (tmp_path / "tables").symlink_to(disk)
    assert mountpoint(tmp_path / "tables" / "readings") == str(disk)


def test_a_disk_that_was_taken_away_takes_no_figure_of_another_along(
    mounts: dict[str, tuple[int, int]], tmp_path: Path
) -> None:
    mounts[str(tmp_path)] = (1, 2)
    probe = HostProbe([Path("/"), tmp_path])
    del mounts[str(tmp_path)]
    assert probe.look()["node_filesystem_avail_bytes"] == [(("/",), float(GIB))]


@pytest.mark.parametrize(
    ("counters", "real", "told"),
    [
        ({"sda": 4000, "sda1": 3000, "dm-0": 4000}, {"sda"}, [((), 4.0)]),
        ({"sda": 1000, "sdb": 500}, {"sda", "sdb"}, [((), 1.5)]),
        ({"disk": 1000}, set(), [((), 1.0)]),
        ({"disk0": None}, set(), []),
        (None, set(), []),
    ],
)
def test_the_busy_time_is_that_of_real_disks(
    counters: dict[str, int | None] | None,
    real: set[str],
    told: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in real:
        (tmp_path / name / "device").mkdir(parents=True)
    each = {
        name: SimpleNamespace() if busy is None else SimpleNamespace(busy_time=busy)
        for name, busy in (counters or {}).items()
    }
    monkeypatch.setattr(host, "_BLOCK_DEVICES", tmp_path)
    monkeypatch.setattr(psutil, "disk_io_counters", lambda perdisk: None if counters is None else each)
    assert HostProbe([]).look()["node_disk_io_time_seconds_total"] == told


def test_each_disk_has_its_own_forecast(mounts: dict[str, tuple[int, int]], tmp_path: Path) -> None:
    """Kafka's disk may fill up while the tables' does not; before some hours are known there is no figure."""
    disk, now = tmp_path / "kafka", 0.0
    disk.mkdir()
    mounts[str(disk)] = (480 * GIB, 500 * GIB)
    probe = HostProbe([tmp_path, disk], clock=lambda: now)
    assert probe.look()["tidegate_table_disk_full_days"] == []
    while now < 4 * 3600:
        now += 600
        mounts[str(disk)] = (mounts[str(disk)][0] - GIB, 500 * GIB)
        samples = probe.look()
    told = dict(samples["tidegate_table_disk_full_days"])
    assert told["/",] == float("inf")
    assert told[str(disk),] == pytest.approx(456 / 6 / 24)
