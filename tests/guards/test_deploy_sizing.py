"""SIZING.md is what `tidegate bench size` prints: for its three fleets, with the shipped costs and the default settings."""

import shlex
from pathlib import Path

import pytest

from deploy.bench.sizing.page import PAGE_FLEETS, render_page
from deploy.bench.sizing.render import command_line
from deploy.cli import run

PAGE = Path(__file__).parents[2] / "SIZING.md"


def test_the_page_is_what_the_command_writes() -> None:
    assert PAGE.read_text("utf-8") == render_page(), "run `./tidegate bench size --markdown SIZING.md`"


@pytest.mark.parametrize("fleet", PAGE_FLEETS, ids=lambda fleet: f"{fleet.devices:,} devices")
def test_each_section_is_what_its_command_prints(fleet: object, capsys: pytest.CaptureFixture[str]) -> None:
    line = command_line(fleet)  # type: ignore[arg-type]
    assert run(shlex.split(line)[1:]) == 0
    assert f"$ {line}\n{capsys.readouterr().out}```" in PAGE.read_text("utf-8")
