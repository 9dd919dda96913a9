"""The types of the page's JavaScript name what the monitor sends, and the pins of their checker name no host."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from monitoring.monitoring_settings import MonitoringSettings
from monitoring.page.assets import FOLDER
from monitoring.sample_history import History
from monitoring.snapshot.build import METRICS, build_snapshot
from monitoring.snapshot.snapshot_inputs import KafkaNames, SnapshotInputs
from tests import page_types

TYPES = (FOLDER / "types.js").read_text("utf-8")


def properties(name: str) -> set[str]:
    """Names of a typedef in types.js."""
    block = re.search(rf"@typedef {{object}} {name}\b(.*?)\*/", TYPES, re.DOTALL)
    line = re.search(rf"@typedef {{{{ (.*) }}}} {name}\b", TYPES)
    if block:
        return set(re.findall(r"@property {.*} \[?(\w+)", block[1]))
    assert line, f"types.js has no type {name}"
    return set(re.findall(r"(?:^|, )(\w+)\??: ", line[1]))


@pytest.fixture(scope="module")
def snapshot() -> dict[str, Any]:
    side = SnapshotInputs(version="1", started_at=0.0)
    names = KafkaNames(readings="telemetry.readings", group="tidegate-land")
    return build_snapshot(History(METRICS), side, names, MonitoringSettings(), now=1000.0)


def test_the_type_of_a_snapshot_names_each_section(snapshot: dict[str, Any]) -> None:
    assert properties("Snapshot") == set(snapshot)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("Rates", ("rates",)), ("Quantiles", ("latency_ms",)), ("Kafka", ("kafka",)), ("Canary", ("canary",)),
        ("Disk", ("disk",)), ("Host", ("host",)), ("Server", ("prometheus",)), ("Objective", ("slo", "freshness")),
        ("PartState", ("parts", "kafka")), ("Station", ("flow", 0)), ("StationFigure", ("flow", 0, "figures", 0)),
    ],
)  # fmt: skip
def test_the_type_of_a_section_names_its_fields(snapshot: dict[str, Any], name: str, path: tuple[Any, ...]) -> None:
    section: Any = snapshot
    for step in path:
        section = section[step]
    assert properties(name) == set(section)


def test_the_pins_have_hashes_and_name_no_host() -> None:
    text = (page_types.PROJECT / "package-lock.json").read_text("utf-8")
    packages = json.loads(text)["packages"]
    wanted = json.loads((page_types.PROJECT / "package.json").read_text("utf-8"))["devDependencies"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert all(package["integrity"].startswith("sha512-") for place, package in packages.items() if place)
    assert "resolved" not in text
    assert "//" not in re.sub(r'"integrity": "[^"]*"', "", text)


def test_the_pinned_types_of_uplot_are_those_of_the_vendored_version() -> None:
    pinned = json.loads((page_types.PROJECT / "package.json").read_text("utf-8"))["devDependencies"]["uplot"]
    assert f"uPlot {pinned} " in (FOLDER / "uplot" / "README.md").read_text("utf-8")


def test_without_npm_the_check_says_so_and_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert page_types.main() == 0
    assert "npm is not installed" in capsys.readouterr().out


def test_an_install_that_fails_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    npm.chmod(0o755)
    cache = tmp_path / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setattr(shutil, "which", lambda _name: str(npm))
        assert page_types.main() == page_types.UNAVAILABLE
    assert "no network" in capsys.readouterr().err
    assert list((cache / "tidegate" / "typescript").iterdir()) == []
