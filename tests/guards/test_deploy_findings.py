"""The findings of the review in tests/findings.toml: each names tests that exist, or a reason why it has none yet."""

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
NUMBERS = [
    name for number in range(1, 28) for name in ([f"K5{part}" for part in "abcde"] if number == 5 else [f"K{number}"])
]
NUMBERS += [f"B{number:02}" for number in (4, 12, 27, 29, 36, 66, 70)]
NUMBERS += [f"F{number:02}" for number in (1, 2, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 23, 24)]
NUMBERS += [f"X{number:02}" for number in range(1, 9)]
FINDINGS: dict[str, dict[str, Any]] = tomllib.loads((TESTS / "findings.toml").read_text("utf-8"))


def functions_of(file: Path) -> set[str]:
    """Names of the test functions of a module, those in its classes included."""
    tree = ast.parse(file.read_text("utf-8"), str(file))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


def missing(names: list[str], folder: Path = TESTS) -> list[str]:
    """Those of the names `folder/file.py::beginning of a test` that no test has."""
    found = []
    for name in names:
        path, _, beginning = name.partition("::")
        wanted, file = beginning.split("[")[0], folder / path
        known = functions_of(file) if file.is_file() else set()
        if not wanted.startswith("test_") or not any(test.startswith(wanted) for test in known):
            found.append(name)
    return found


def test_every_finding_is_listed_once() -> None:
    assert list(FINDINGS) == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_a_finding_names_tests_that_exist(number: str) -> None:
    finding = FINDINGS[number]
    assert set(finding) <= {"finding", "tests", "later"}
    assert finding["finding"].strip()
    assert not missing(finding["tests"])
    assert finding["tests"] or finding.get("later", "").strip()


def test_a_name_without_a_test_is_found(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_x.py").write_text(
        "class TestGroup:\n    def test_in_a_class(self): ...\ndef test_a_b(): ...\n"
    )
    good = ["unit/test_x.py::test_a", "unit/test_x.py::test_a_b[one]", "unit/test_x.py::test_in_a_class"]
    bad = ["unit/test_x.py::test_c", "unit/test_y.py::test_a", "unit/test_x.py", "unit/test_x.py::a_b"]
    assert missing([*good, *bad], tmp_path) == bad
