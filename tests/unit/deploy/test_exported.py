"""An export loses nothing that a person changed, and says in one sentence what is in its way."""

import json
import os
from pathlib import Path

import pytest

from deploy.cli import run
from deploy.commands.export_folder import write_export
from ingest.contract.errors import ConfigError, UnavailableError

FILES = {"a.txt": "a\n", "sub/b.txt": "bü\n"}


def test_a_second_export_changes_nothing(tmp_path: Path) -> None:
    first = write_export(tmp_path / "out", FILES, force=False)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.txt")}
    second = write_export(tmp_path / "out", FILES, force=False)

    assert (first.written, first.unchanged) == (tuple(FILES), ())
    assert (second.written, second.unchanged) == ((), tuple(FILES))
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.txt")} == before


def test_a_file_that_differs_is_replaced_by_force_only_and_nothing_else_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "other").write_text("mine too", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"existing files differ: a\.txt.*--force"):
        write_export(tmp_path, FILES, force=False)
    assert not (tmp_path / "sub").exists()
    assert (tmp_path / "a.txt").read_text("utf-8") == "mine"

    done = write_export(tmp_path, FILES, force=True)
    assert done.written == tuple(FILES)
    assert (tmp_path / "a.txt").read_text("utf-8") == "a\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.txt", "other", "sub"]


def test_a_file_in_the_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("", encoding="utf-8")
    with pytest.raises(UnavailableError, match="cannot be written"):
        write_export(tmp_path / "out", FILES, force=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UnavailableError, match="may write"):
        write_export(tmp_path / "out", FILES, force=False)


def test_the_command_writes_the_dashboards_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "graf ana"
    assert run(["export", "grafana", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)

    assert {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} == set(told["written"])
    for name in ("overview", "pipeline", "kafka", "bench"):
        dashboard = json.loads((folder / f"dashboards/tidegate-{name}.json").read_text("utf-8"))
        assert dashboard["uid"] == f"tidegate-{name}"

    assert run(["export", "grafana", str(folder)]) == 0
    (folder / "README.md").write_text("mine", encoding="utf-8")
    assert run(["export", "grafana", str(folder)]) == 78
    assert run(["export", "grafana", str(folder), "--force"]) == 0


def test_the_objectives_of_the_settings_are_exported(tmp_path: Path) -> None:
    config = tmp_path / "tidegate.toml"
    config.write_text("[monitoring]\nfreshness_seconds = 1.5\n", encoding="utf-8")
    assert run(["export", "grafana", str(tmp_path / "out"), "--config", str(config)]) == 0
    assert 'le=\\"1.5\\"' in (tmp_path / "out/dashboards/tidegate-overview.json").read_text("utf-8")


@pytest.mark.parametrize(("url", "code"), [("127.0.0.1:9090", 78), ("http://127.0.0.1:1", 69)])
def test_a_prometheus_that_is_none_is_one_sentence(
    url: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", "grafana", str(tmp_path), "--check", url]) == code
    assert "Prometheus" in capsys.readouterr().err.splitlines()[-1]
