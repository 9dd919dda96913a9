"""The page's files: nothing that would turn text into HTML or code, nothing from elsewhere, the vendored library as published."""

import re
from hashlib import sha256
from pathlib import Path

import pytest

from monitoring.page.assets import FOLDER, TYPES

OURS = sorted(file for file in FOLDER.iterdir() if file.is_file())
UNSAFE = re.compile(
    r"\.(?:innerHTML|outerHTML|srcdoc)\b|insertAdjacentHTML|document\.write|\beval\("
    r"|new Function|createContextualFragment|setHTMLUnsafe"
    r"|<[a-z][^>]*\s(?:style|on[a-z]+)=|<(?:style|script)>|javascript:"
)
ELSEWHERE = re.compile(r"(?:https?:)?//(?!www\.w3\.org/)[a-z0-9-]+\.[a-z]{2,}", re.IGNORECASE)


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.name)
def test_no_file_of_the_page_makes_html_of_text_or_asks_anybody_else(file: Path) -> None:
    text = file.read_text("utf-8")
    assert UNSAFE.findall(text) == []
    assert ELSEWHERE.findall(text) == []
    assert file.suffix in TYPES


def test_every_module_is_imported_by_another_or_by_the_page() -> None:
    texts = {file.name: file.read_text("utf-8") for file in OURS}
    unused = [
        name
        for name in texts
        if name not in ("index.html", "icon-bad.svg")
        and not any(f'/{name}"' in text for other, text in texts.items() if other != name)
    ]
    assert unused == []


def test_every_function_that_is_exported_is_used_elsewhere() -> None:
    texts = {file.name: file.read_text("utf-8") for file in OURS if file.suffix == ".js"}
    exported = [
        (name, found)
        for name, text in texts.items()
        for found in re.findall(r"export (?:async )?(?:function|const|class) (\w+)", text)
    ]
    assert exported
    unused = [
        (name, found)
        for name, found in exported
        if not any(re.search(rf"\b{found}\b", text) for other, text in texts.items() if other != name)
    ]
    assert unused == []


def test_the_vendored_library_is_as_its_author_published_it() -> None:
    sums = dict(re.findall(r"\| (\S+) \| ([0-9a-f]{64}) \|", (FOLDER / "uplot" / "README.md").read_text("utf-8")))
    files = {
        name: sha256((FOLDER / "uplot" / name).read_bytes()).hexdigest()
        for name in ("uPlot.iife.min.js", "uPlot.min.css")
    }
    assert {name: sums[name] for name in files} == files
    assert "MIT" in (FOLDER / "uplot" / "LICENSE").read_text("utf-8")
