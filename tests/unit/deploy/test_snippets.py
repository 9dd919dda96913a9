"""What snippets write beside broker and device: a boot number that no other start has, whatever the clock says."""

import re
import subprocess

import pytest

from deploy.cli import run
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
