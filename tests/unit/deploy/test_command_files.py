"""Files that commands make are their user's alone, but those that other users and programs read."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from deploy import cli

FOR_OTHERS = {"bench", "certs", "export", "init"}


@pytest.fixture(autouse=True)
def _common_umask() -> None:
    os.umask(0o022)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def commands_of(group: Any, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, *before, name)
        else:
            yield (*before, name), command


def test_the_files_of_each_command_are_private_but_those_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command is called as a person calls it; in its place a file is made."""
    whole = typer.main.get_command(cli.app)
    monkeypatch.setattr("typer.main.get_command", lambda _app: whole)
    modes: dict[tuple[str, ...], int] = {}
    for words, command in commands_of(whole):
        file = tmp_path / " ".join(words)
        command.params, command.no_args_is_help, command.callback = [], False, file.touch
        os.umask(0o022)
        assert cli.run([*words]) == 0, words
        modes[words] = mode(file)
    assert len(modes) > 80
    assert {words[0] for words, found in modes.items() if found == 0o644} == FOR_OTHERS
    assert {found for words, found in modes.items() if words[0] not in FOR_OTHERS} == {0o600}


def test_a_group_that_may_share_the_files_of_a_service_may_share_those_of_a_command(tmp_path: Path) -> None:
    os.umask(0o027)
    assert cli.run(["config", "schema"]) == 0
    (tmp_path / "file").touch()
    assert mode(tmp_path / "file") == 0o640


def test_a_service_of_another_user_reads_first_settings_and_exports(tmp_path: Path) -> None:
    assert (
        cli.run(["init", "prod", str(tmp_path / "tidegate.toml"), "--mqtt-host", "m", "--kafka-servers", "k:9092"]) == 0
    )
    assert cli.run(["export", "grafana", str(tmp_path / "grafana")]) == 0
    assert mode(tmp_path / "tidegate.toml") == 0o644
    files = [path for path in (tmp_path / "grafana").rglob("*") if path.is_file()]
    assert files
    assert {mode(path) for path in files} == {0o644}
