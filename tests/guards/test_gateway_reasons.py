"""The closed lists of reasons and the table of bad inputs fit together: each reason is reached, each class declared."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.contract.reasons import IgnoredReason, Reason

ROOT = Path(__file__).parents[2]
TABLE = tomllib.loads((ROOT / "tests/unit/gateway/hostile/outcomes.toml").read_text("utf-8"))
ROWS = [row for section in TABLE.values() if isinstance(section, dict) for row in section.get("rows", [])]
REFUSED = {row["why"] for row in ROWS if row["is"] == "dead_letter" and "why" in row} | {
    part.rpartition(" ")[2] for row in ROWS for part in row.get("parts", [])
}
IGNORED = {row["why"] for row in ROWS if row["is"] == "ignored"}
HOPS = ("gateway", "ingest", "streaming", "lakehouse")
EXPLAINING = {"ingest/contract/reasons.py"}
"""Names every reason, and gives none."""


def given_reasons() -> Iterator[tuple[str, Reason]]:
    """Every `Reason.NAME` in the sources of the hops, with its file."""
    for hop in HOPS:
        for path in sorted((ROOT / hop).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name in EXPLAINING:
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason":
                    yield name, Reason[node.attr]


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_is_reached_by_a_row_or_has_a_test_of_its_own(reason: Reason) -> None:
    assert (reason in REFUSED) != (reason in TABLE["reasons"]), (
        f"{reason}: wanted either a row or an entry in [reasons]"
    )


@pytest.mark.parametrize("reason", IgnoredReason)
def test_each_reason_to_ignore_is_reached_by_a_row(reason: IgnoredReason) -> None:
    assert reason in IGNORED


def test_the_table_names_no_reason_that_is_none() -> None:
    assert {*REFUSED, *TABLE["reasons"]} <= {*map(str, Reason)}
    assert {*map(str, IgnoredReason)} >= IGNORED


def test_what_nobody_gives_stands_in_no_source() -> None:
    """Who begins to give it declares a row for it."""
    nobody = {name for name, entry in TABLE["reasons"].items() if entry["hop"] == "none"}
    assert [found for found in given_reasons() if found[1] in nobody] == []
    assert all(entry.get("why") for entry in TABLE["reasons"].values() if entry["hop"] == "none")


@pytest.mark.parametrize("number", range(1, 92))
def test_each_class_of_bad_input_has_a_row_or_a_test_elsewhere(number: int) -> None:
    rows = [row for row in ROWS if re.match(rf"B{number}\b", row["b"])]
    assert rows or f"B{number}" in TABLE["elsewhere"]


@pytest.mark.parametrize(
    ("name", "entry"),
    [pair for table in ("elsewhere", "reasons") for pair in TABLE[table].items() if "file" in pair[1]],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_tests_that_the_table_names_are_there(name: str, entry: dict[str, str]) -> None:
    assert f"def {entry['test']}(" in (ROOT / entry["file"]).read_text("utf-8"), name
