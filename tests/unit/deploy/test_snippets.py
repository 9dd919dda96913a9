"""What snippets write beside broker and device: a boot number that no other start has, whatever the clock says."""

import re
import subprocess
from pathlib import Path

import pytest

from deploy.cli import run
from deploy.local.runfile import DataLock, RunFile
from deploy.settings import load_settings
from deploy.settings_file import to_toml
from deploy.snippets import PublishTarget, render_snippet

TARGET = PublishTarget("127.0.0.1", 1883, None, None)
STARTS = 50


def test_each_start_of_the_python_snippet_has_a_boot_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 0.0)
    monkeypatch.setattr("time.time_ns", lambda: 0)
    (line,) = re.findall(r"^BOOT = .*$", render_snippet("python", "attic", TARGET), re.MULTILINE)
    boots = set()
    for _ in range(STARTS):
        names: dict[str, int] = {}
        exec(f"import secrets, time\n{line}", names)  # noqa: S102 - what is printed is what is tried
        boots.add(names["BOOT"])
    assert len(boots) == STARTS
    assert all(0 <= boot < 2**53 for boot in boots), "every JSON reader keeps it"


def test_each_run_of_the_mosquitto_snippet_has_a_boot_of_its_own() -> None:
    (command,) = re.findall(r"^boot=\$\((.*)\)$", render_snippet("mosquitto", "attic", TARGET), re.MULTILINE)
    printed = {
        subprocess.run(["sh", "-c", f'printf %s "$({command})"'], capture_output=True, text=True, check=True).stdout
        for _ in range(10)
    }
    assert len(printed) == 10
    assert all(re.fullmatch(r"0|[1-9]\d{0,15}", boot) for boot in printed)


def test_the_arduino_snippet_asks_the_radio_and_not_the_flash() -> None:
    text = render_snippet("arduino", "attic", TARGET)
    assert text.index("WL_CONNECTED") < text.index("esp_random()") < text.index("client.begin")
    assert "Preferences" not in text


def test_a_device_id_that_cannot_be_is_said_before_that_nothing_runs(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["device", "snippet", "a/b", "--data", str(tmp_path)]) == 78
    assert "'a/b' cannot be the device of a native topic" in capsys.readouterr().err


def test_a_device_on_a_port_that_asks_for_certificates_shows_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {f"embedded.mqtt_{name}_file": "x.pem" for name in ("cert", "key", "client_ca")}
    open_run = load_settings(environ={}, overrides={**files, "embedded.mqtt_listen": "192.0.2.7"})
    (tmp_path / "config.toml").write_text(to_toml(open_run))
    lock = DataLock(tmp_path)
    try:
        RunFile("r", 1, 0.0, ports={"mqtt": 1883, "mqtt_tls": 8883}).write(tmp_path)
        assert run(["device", "snippet", "attic", "--data", str(tmp_path)]) == 0
    finally:
        lock.release()
    shown = capsys.readouterr().out
    assert 'certfile="device.pem", keyfile="device.pem"' in shown
    assert "device.pem holds the device's key and certificate, as a file of `tidegate certs issue` does." in shown
