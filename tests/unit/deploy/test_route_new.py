"""`tidegate route new`: a decoder with its test, from nothing to readings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.cli import run

Captured = pytest.CaptureFixture[str]


def test_a_new_decoder_passes_its_test_and_reads_a_message(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "decoders"
    assert run(["route", "new", "kiln_raw", "--folder", str(folder), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [Path(file).name for file in made["files"]] == ["kiln_raw.py", "test_kiln_raw.py"]
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder), "."],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    assert "2 passed" in tested.stdout, tested.stdout
    config = tmp_path / "settings.toml"
    config.write_text(made["settings"], "utf-8")
    payload = tmp_path / "payload.bin"
    payload.write_bytes(bytes.fromhex("00d70190"))
    assert run(["route", "test", "site/kiln_raw/k4", f"@{payload}", "--config", str(config), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["device"], one["metric"], one["value"], one["unit"]) for one in found["readings"]] == [
        ("k4", "temperature", 21.5, "°C"),
        ("k4", "humidity", 40.0, "%"),
    ]
    assert run(["route", "test", "site/kiln_raw/k4", "x", "--config", str(config)]) == 1
    assert "ValueError: 4 bytes wanted, got 1 (kiln_raw.py line 13)" in capsys.readouterr().out


def test_nothing_is_overwritten_and_names_are_checked(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "kiln.py"
    file.write_text("mine", "utf-8")
    assert run(["route", "new", "kiln", "--folder", str(tmp_path)]) == 78
    assert f"{file} exists and is not overwritten" in capsys.readouterr().err
    assert (file.read_text("utf-8"), (tmp_path / "test_kiln.py").exists()) == ("mine", False)
    for name in ("../kiln", "Kiln", "test_kiln", "1k", ""):
        assert run(["route", "new", name, "--folder", str(tmp_path)]) == 2
    assert run(["route", "new", "senml", "--folder", str(tmp_path)]) == 78
    assert run(["route", "new", "kiln2"]) == 78
    assert "--folder" in capsys.readouterr().err
