"""SECURITY.md names each check that tests/findings.toml has, no code runs data, and no pinned part has a known fault."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supply_chain import ACCEPTED, SNAPSHOT, Finding, Part, accepted_of, advisories_of, findings_of, parts_of

ROOT = Path(__file__).parents[2]
HOPS = ("gateway", "ingest", "streaming", "lakehouse", "monitoring", "deploy")
FORBIDDEN = {
    "eval",
    "exec",
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
}
OWN_DECODERS = {("gateway/decoders/python_worker.py", "exec")}
"""The user's own decoders are code, and run in a process of their own."""


def test_each_check_has_one_row_with_its_control() -> None:
    rows = re.findall(r"^\| (S\d+) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "SECURITY.md").read_text("utf-8"), re.MULTILINE)
    assert [name for name, _, _ in rows] == [f"S{number}" for number in range(1, 28)]
    assert all(risk.strip() and control.strip() for _, risk, control in rows)


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module imports or calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_nothing_is_unpickled_or_evaluated() -> None:
    found = {
        (str(file.relative_to(ROOT)), name)
        for hop in HOPS
        for file in (ROOT / hop).rglob("*.py")
        for name in names_in(ast.parse(file.read_text("utf-8")))
        if name in FORBIDDEN
    }
    assert found == OWN_DECODERS


def test_no_pinned_part_has_a_known_fault() -> None:
    findings = findings_of(parts_of(jars=False), advisories_of(SNAPSHOT), accepted_of(ACCEPTED))
    assert [each for each in findings if not each.accepted] == []


SHAPE = {"id": "PYSEC-1", "aliases": ["CVE-1"], "summary": "a fault"}


def affected(ecosystem: str, name: str, *events: dict[str, str], versions: tuple[str, ...] = ()) -> dict[str, object]:
    """Return an advisory for one package."""
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}] if events else []
    each = {"package": {"ecosystem": ecosystem, "name": name}, "ranges": ranges, "versions": list(versions)}
    return {**SHAPE, "affected": [each]}


@pytest.mark.parametrize(
    ("version", "events", "applies"),
    [
        ("1.10.0", ({"introduced": "0"}, {"fixed": "1.10.1"}), True),
        ("1.10.1", ({"introduced": "0"}, {"fixed": "1.10.1"}), False),
        ("1.9", ({"introduced": "1.10"}, {"fixed": "1.11"}), False),
        ("1.10", ({"introduced": "1.2"}, {"last_affected": "1.10"}), True),
        ("1.11", ({"introduced": "1.2"}, {"last_affected": "1.10"}), False),
        ("3.0", ({"introduced": "1"}, {"fixed": "2"}, {"introduced": "3"}), True),
        ("2.5", ({"introduced": "1"}, {"fixed": "2"}, {"introduced": "3"}), False),
        ("2.0rc1", ({"introduced": "0"}, {"fixed": "2.0"}), True),
    ],
)
def test_a_range_of_versions_applies(version: str, events: tuple[dict[str, str], ...], applies: bool) -> None:
    part = Part("PyPI", "some-package", version)
    expected = [Finding(part, "CVE-1", "a fault", "")] if applies else []
    assert findings_of([part], [affected("PyPI", "Some_Package", *events)], {}) == expected


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("1.0-alpha-1", "1.0-beta-1"),
        ("1.0-rc1", "1.0"),
        ("1.0", "1.0.1"),
        ("1.9", "1.10"),
        ("4.1.0.Beta1", "4.1.0.Final"),
    ],
)
def test_versions_of_jars_are_in_mavens_order(lower: str, higher: str) -> None:
    fixed = affected("Maven", "group:name", {"introduced": "0"}, {"fixed": higher})
    assert findings_of([Part("Maven", "group:name", lower)], [fixed], {})
    assert not findings_of([Part("Maven", "group:name", higher)], [fixed], {})


def test_listed_versions_apply_and_an_accepted_advisory_says_why() -> None:
    part = Part("Maven", "group:name", "1.0.RELEASE")
    advisory = affected("Maven", "group:name", versions=("1.0.RELEASE",))
    assert findings_of([part], [advisory], {"PYSEC-1": "not used"}) == [Finding(part, "CVE-1", "a fault", "not used")]
    assert findings_of([part], [advisory | {"withdrawn": "2026-01-01T00:00:00Z"}], {}) == []
