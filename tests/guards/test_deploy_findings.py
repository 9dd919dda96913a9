"""The findings of the review in tests/findings.toml: each names tests that exist, or a reason why it has none yet."""

import ast
import re
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
NUMBERS += [f"S{number}" for number in range(1, 28)]
FINDINGS: dict[str, dict[str, Any]] = tomllib.loads((TESTS / "findings.toml").read_text("utf-8"))


def functions_of(file: Path) -> list[str]:
    """Names of the tests that pytest finds in a module and runs: of functions, and of methods of its Test classes."""
    tree = ast.parse(file.read_text("utf-8"), str(file))
    groups = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test")]
    functions = [
        node
        for group in (tree, *groups)
        for node in group.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [node.name for node in functions if node.name.startswith("test_") and not is_skipped(node)]


def is_skipped(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a mark says that the test does not run, or may fail."""
    return any(re.search(r"mark\.(skip|xfail)\b", ast.unparse(decorator)) for decorator in node.decorator_list)


def unclear(names: list[str], folder: Path = TESTS) -> list[str]:
    """Those of the names `folder/file.py::beginning of a test` that are not the beginning of one test, and of no other.

    A beginning of two tests would hide that one of them has gone.
    """
    found = []
    for name in names:
        path, _, beginning = name.partition("::")
        wanted, file = beginning.split("[")[0], folder / path
        meant = [test for test in functions_of(file) if test.startswith(wanted)] if file.is_file() else []
        if not wanted.startswith("test_") or (len(meant) != 1 and wanted not in meant):
            found.append(name)
    return found


def test_every_finding_is_listed_once() -> None:
    assert list(FINDINGS) == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_a_finding_names_tests_that_exist(number: str) -> None:
    finding = FINDINGS[number]
    assert set(finding) <= {"finding", "tests", "later"}
    assert finding["finding"].strip()
    assert not unclear(finding["tests"])
    assert finding["tests"] or finding.get("later", "").strip()


def test_a_name_without_a_test_of_its_own_is_found(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_x.py").write_text(
        "class TestGroup:\n    def test_in_a_class(self): ...\n"
        "class Helper:\n    def test_in_no_group(self): ...\n"
        "def test_a(): ...\ndef test_a_b(): ...\ndef test_c_d(): ...\ndef test_c_e(): ...\n"
        "@pytest.mark.skip\ndef test_skipped(): ...\n@pytest.mark.xfail(reason='x')\ndef test_may_fail(): ...\n"
        "def helper():\n    def test_inside(): ...\n"
    )
    good = ["test_a", "test_a_b[one]", "test_a_", "test_in_a_class", "test_c_d", "test_c_e"]
    bad = ["test_c", "test_", "test_f", "test_in_no", "test_skipped", "test_may_fail", "test_inside", "a_b", ""]
    named = [f"unit/test_x.py::{name}" for name in (*good, *bad)]
    others = ["unit/test_y.py::test_a", "unit/test_x.py"]
    assert unclear([*named, *others], tmp_path) == [*named[len(good) :], *others]
