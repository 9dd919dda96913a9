"""Commands in sentences are whole: the program, and which run or settings they mean; the tables say what each command takes."""

from pathlib import Path
from typing import Any

import pytest
import typer

from deploy.cli import app
from deploy.command_line import TAKES_CONFIG, TAKES_DATA, CommandLine, commands_for_data

EMBEDDED = {("route", "apply"), ("device", "login")}
"""Commands that change an embedded run alone."""
OTHERS = {"--data": {"cluster"}, "--config": {"up"}}
"""First words whose option means something else: the folder of a cluster, and the settings of a new embedded run."""
DATA = CommandLine("./tidegate", "--data '/srv/a b'")
CONFIG = CommandLine("tidegate", "--config /etc/tidegate.toml")


@pytest.mark.parametrize(
    ("text", "embedded", "production"),
    [
        (
            "See `tidegate logs canary`.",
            "See `./tidegate logs canary --data '/srv/a b'`.",
            "See `tidegate logs canary`.",
        ),
        (
            "`tidegate doctor --config FILE`: does it answer?",
            "`./tidegate doctor --data '/srv/a b'`: does it answer?",
            "`tidegate doctor --config /etc/tidegate.toml`: does it answer?",
        ),
        (
            '`tidegate sql "SELECT 1"`, then `tidegate audit --since 1h`.',
            "`./tidegate sql \"SELECT 1\" --data '/srv/a b'`, then `./tidegate audit --since 1h --data '/srv/a b'`.",
            '`tidegate sql "SELECT 1" --config /etc/tidegate.toml`, then '
            "`tidegate audit --since 1h --config /etc/tidegate.toml`.",
        ),
        (
            "`tidegate alerts explain X`",
            "`./tidegate alerts explain X`",
            "`tidegate alerts explain X --config /etc/tidegate.toml`",
        ),
        ("`kafka-topics.sh` and tidegate status", "`kafka-topics.sh` and tidegate status",
         "`kafka-topics.sh` and tidegate status"),
    ],
)  # fmt: skip
def test_a_command_can_be_run_as_it_stands(text: str, embedded: str, production: str) -> None:
    assert DATA.fill(text) == embedded
    assert CONFIG.fill(text) == production
    assert DATA.fill(embedded) == embedded, "twice is once"
    assert CONFIG.fill(production) == production, "twice is once"
    assert CommandLine("./tidegate").fill("See `tidegate status`.") == "See `./tidegate status`."


def test_alerts_are_filled_and_others_words_kept() -> None:
    alerts = [{"text": "See `tidegate logs gateway`.", "actions": ["`tidegate status`: look."], "state": "firing"}, {}]
    filled = CommandLine("./tidegate", "--data /d").fill_alerts(alerts)
    assert filled[0]["text"] == "See `./tidegate logs gateway --data /d`."
    assert filled[0]["actions"] == ["`./tidegate status --data /d`: look."]
    assert (filled[0]["state"], filled[1]) == ("firing", {})


def test_the_default_folder_need_not_be_named() -> None:
    assert commands_for_data(Path("/x"), is_default=True).where == ""
    assert commands_for_data(Path("/x y")).where == "--data '/x y'"


def _commands(command: Any, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], set[str]]]:
    if subcommands := getattr(command, "commands", None):
        return [found for name, each in subcommands.items() for found in _commands(each, (*words, name))]
    return [(words, {option for parameter in command.params for option in parameter.opts})]


def test_every_command_takes_what_it_is_given() -> None:
    found = _commands(typer.main.get_command(app))
    assert {words[0] for words, _ in found} >= TAKES_DATA | TAKES_CONFIG
    for words, options in found:
        assert words[0] not in TAKES_DATA or "--data" in options, words
        assert words[0] not in TAKES_CONFIG or "--config" in options or words in EMBEDDED, words


@pytest.mark.parametrize(("option", "listed"), [("--data", TAKES_DATA), ("--config", TAKES_CONFIG)])
def test_every_command_with_such_an_option_is_listed(option: str, listed: frozenset[str]) -> None:
    taking: dict[str, bool] = {}
    for words, options in _commands(typer.main.get_command(app)):
        if words not in EMBEDDED:
            taking[words[0]] = taking.get(words[0], True) and option in options
    missing = {word for word, all_take in taking.items() if all_take} - listed - OTHERS[option]
    assert missing == set(), "add the first word to deploy/command_line.py"
