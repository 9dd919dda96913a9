"""Bringing what tests need: done where it can be, said where it cannot, and no service is started by it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import apt

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt, "_is_here", lambda package: False)
    monkeypatch.setattr(apt.os, "geteuid", lambda: 0)


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "policy-rc.d"
    monkeypatch.setattr(apt, "POLICY", file)
    return file


def fake_apt(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    fake = folder / "apt-get"
    fake.write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_nothing_is_done_where_everything_is(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(apt, "_is_here", lambda package: True)
    monkeypatch.setattr(apt, "_install", lambda missing: pytest.fail("nothing is missing"))
    assert apt.install_missing() == 0
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("nothing_here")
def test_another_user_than_root_is_told_how(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(apt.os, "geteuid", lambda: 1000)
    assert apt.install_missing() == 0
    told = capsys.readouterr().err
    assert (
        "only root can install it (Debian and Ubuntu: apt-get install mosquitto mosquitto-clients prometheus " in told
    )
    assert told.count("Tests that need it are skipped") == len(apt.PACKAGES)


@pytest.mark.usefixtures("nothing_here")
def test_a_system_without_apt_is_told(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(apt.shutil, "which", lambda name: None)
    assert apt.install_missing(["mosquitto"]) == 0
    assert "this system has no apt-get" in capsys.readouterr().err


@pytest.mark.usefixtures("nothing_here", "policy")
def test_a_package_that_apt_refuses_is_told_and_the_others_are_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured
) -> None:
    log = tmp_path / "log"
    refuses = 'case "$*" in *chromium) echo "E: Unable to locate package"; exit 100;; esac'
    fake_apt(tmp_path, monkeypatch, f'echo "$@" >> "{log}"\n{refuses}\n')
    assert apt.install_missing(["chromium", "mosquitto"]) == 0
    told = capsys.readouterr().err
    assert "chromium is not installed: apt-get failed (E: Unable to locate package)" in told
    assert "mosquitto is not installed: apt did not install it" in told
    update, *installs = log.read_text("utf-8").splitlines()
    assert update.endswith("update")
    assert [line.split("install ")[1] for line in installs] == [
        "--no-install-recommends chromium",
        "--no-install-recommends mosquitto",
    ]


@pytest.mark.usefixtures("nothing_here")
def test_services_are_refused_while_a_package_is_installed_and_only_then(
    policy: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    fake_apt(tmp_path, monkeypatch, f'case "$*" in *install*) "{policy}" x start; echo $? >> "{log}";; esac\n')
    apt.install_missing(["mosquitto"])
    assert log.read_text("utf-8") == "101\n"
    assert not policy.exists()


def test_a_killed_installation_leaves_services_alone(policy: Path) -> None:
    with apt._no_services():
        gone = subprocess.Popen(["true"])
        gone.wait()
        policy.write_text(policy.read_text("utf-8").replace(str(os.getpid()), str(gone.pid)), encoding="utf-8")
        assert subprocess.run([str(policy)], check=False).returncode == 0


def test_a_policy_of_the_machine_stays_as_it_is(policy: Path) -> None:
    policy.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    with apt._no_services():
        assert policy.read_text("utf-8") == "#!/bin/sh\nexit 0\n"
    assert policy.exists()
