"""Bringing mosquitto: done where it can be, said where it cannot."""

import subprocess
from pathlib import Path

import pytest

from deploy.local import apt


def test_nothing_is_done_where_mosquitto_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert apt.provide_mosquitto(lambda: Path("/usr/sbin/mosquitto")) == 0
    assert capsys.readouterr().err == ""


def test_another_user_than_root_is_told_how(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(apt.os, "geteuid", lambda: 1000)
    assert apt.provide_mosquitto(lambda: None) == 0
    told = capsys.readouterr().err
    assert "only root may install it" in told
    assert "tests that need it are skipped" in told


def test_a_system_without_apt_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(apt.os, "geteuid", lambda: 0)
    monkeypatch.setattr(apt.shutil, "which", lambda name: None)
    assert apt.provide_mosquitto(lambda: None) == 0
    assert "there is no apt-get" in capsys.readouterr().err


def test_the_last_words_of_apt_are_told_when_it_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = tmp_path / "apt-get"
    fake.write_text("#!/bin/sh\necho Reading\necho 'E: Unable to locate package'\nexit 100\n", encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setattr(apt.os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert apt.provide_mosquitto(lambda: None) == 0
    assert "apt-get failed (E: Unable to locate package)" in capsys.readouterr().err


def test_apt_is_asked_to_bring_only_mosquitto(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log, fake = tmp_path / "log", tmp_path / "apt-get"
    fake.write_text(f'#!/bin/sh\necho "$@" >> "{log}"\n', encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setattr(apt.os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    apt.provide_mosquitto(lambda: None)
    steps = log.read_text(encoding="utf-8").splitlines()
    assert steps[0].endswith("update")
    assert steps[1].endswith("install --no-install-recommends mosquitto")
    assert subprocess.check_output(["sh", "-c", "command -v apt-get"], text=True).strip() == str(fake)
