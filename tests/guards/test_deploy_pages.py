"""Commands that pages and exported READMEs name exist, with the options that they name, and settings of examples are settings."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import BaseModel

from deploy.cli import app
from deploy.export.compose import compose_files
from deploy.export.systemd import systemd_files
from deploy.settings import Settings, load_settings

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted({path.name for path in ROOT.glob("*.md")} - {"FILES.md", "DECISIONS.md", "CHANGELOG.md"}),
    "deploy/helm/tidegate/README.md",
    "deploy/helm/tidegate/templates/NOTES.txt",
]
"""All pages of people who run Tidegate: what a changelog or a decision of the past names may be gone."""
BLOCK = re.compile(r"^( *)```.*?\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:\./)?tidegate [^`]+)`")
SETTING = re.compile(rf"`((?:{'|'.join(Settings.model_fields)})\.[a-z0-9_]+)`")
OTHERS = {"mqtt.max_inflight", "mqtt.max_mqueue_len", "mqtt.max_packet_size"}
"""Settings of other programs: of EMQX."""


@cache
def texts() -> dict[str, str]:
    settings = load_settings(environ={})
    made = {"systemd": systemd_files(settings), "compose": compose_files(settings, image="tidegate")}
    exported = {f"{name}/README.md": files["README.md"] for name, files in made.items()}
    return {name: (ROOT / name).read_text("utf-8") for name in PAGES} | exported


def commands(text: str) -> Iterator[list[str]]:
    """Words of the commands in code, without a prompt, what is piped into or out of them, and comments."""
    for block in BLOCK.finditer(text):
        yield from commands_in(block[2].splitlines())
    outside = BLOCK.sub("", text)
    yield from commands_in([line for line in outside.splitlines() if line.startswith(("    ", "  kubectl"))])
    yield from commands_in(INLINE.findall(outside))


def commands_in(lines: list[str]) -> Iterator[list[str]]:
    rest = list(lines)
    while rest:
        line = re.sub(r"\s+#.*", "", rest.pop(0))
        found = re.search(r"(?:^|[\s|(])(?:\./|/\S*/)?tidegate ([a-z].*)", line)
        if found is None or re.match(r"\s*(?:#|\w+ +tidegate\b|image:)", line):
            continue
        command = found[1]
        while command.endswith("\\") and rest:
            command = f"{command[:-1]} {rest.pop(0).strip()}"
        while command.count('"') % 2 and rest:  # a statement over several lines
            command += f" {rest.pop(0)}"
        if command.count('"') % 2 == 0:
            yield shlex.split(re.split(r" [|>] ", command.replace("'", ""))[0])


def expanded(words: list[str]) -> Iterator[list[str]]:
    """Words with each of their alternatives, such as `a|b`."""
    place = next((place for place, word in enumerate(words) if re.fullmatch(r"[a-z0-9-]+(\|[a-z0-9-]+)+", word)), None)
    if place is None:
        yield words
        return
    for word in words[place].split("|"):
        yield from expanded([*words[:place], word, *words[place + 1 :]])


def fault(words: list[str]) -> str:
    """Say what is wrong with a command; empty if nothing is."""
    found: Any = typer.main.get_command(app)
    words = [word for word in words if word != "…"]
    while words and hasattr(found, "commands") and not words[0].startswith("-"):
        if words[0] not in found.commands:
            return f"no command {words[0]}"
        found = found.commands[words.pop(0)]
    options = {name for each in found.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
    given = [word.split("=")[0] for word in words if re.match(r"-[^\d]", word)]
    unknown = [word for word in given if word not in options]
    return f"no option {unknown[0]}" if unknown else ""


@pytest.mark.parametrize("name", texts())
def test_each_command_of_a_page_exists_with_its_options(name: str) -> None:
    wrong = []
    for words in commands(texts()[name]):
        wrong += [f"tidegate {shlex.join(words)}: {found}" for one in expanded(words) if (found := fault(one))]
    assert not wrong, f"{name}:\n" + "\n".join(wrong)


def test_pages_name_many_commands_so_that_the_search_is_known_to_work() -> None:
    found = {name: len(list(commands(text))) for name, text in texts().items()}
    assert found["OPERATORS.md"] > 50
    assert found["systemd/README.md"] > 0
    assert found["compose/README.md"] > 0
    assert fault(["no-such"]) and fault(["status", "--no-such"])


@pytest.mark.parametrize("name", [name for name in texts() if "helm" not in name])
def test_each_setting_of_a_page_exists(name: str) -> None:
    sections = {section: field.annotation for section, field in Settings.model_fields.items()}
    for setting in set(SETTING.findall(texts()[name])) - OTHERS:
        section, field = setting.split(".")
        model = sections[section]
        if isinstance(model, type) and issubclass(model, BaseModel):
            assert field in model.model_fields, f"{name}: {setting}"


@pytest.mark.parametrize("name", PAGES)
def test_each_settings_example_of_a_page_is_valid(name: str, tmp_path: Path) -> None:
    text = (ROOT / name).read_text("utf-8")
    for number, example in enumerate(re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)):
        given = tomllib.loads(example)
        if given.keys() <= Settings.model_fields.keys():
            file = tmp_path / f"{number}.toml"
            file.write_text(re.sub(r'"file:[^"]*"', '"x"', example))
            load_settings(file, environ={})
