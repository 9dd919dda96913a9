"""`KAFKA.md`, run as a reader runs it: every command, in order, in one shell, against a real cluster of three brokers."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.testbed.cluster import KafkaCluster
from deploy.testbed.cluster_layout import LAYOUT_FILE
from tests.support.shell_page import ROOT, Reader, pattern, run_page


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    found = Reader(tmp_path)
    yield found
    found.close()
    if (tmp_path / "tidegate-cluster" / LAYOUT_FILE).exists():
        KafkaCluster.attach(tmp_path / "tidegate-cluster").stop(0)


def test_the_tutorial_does_what_it_shows(reader: Reader, wait_until: Callable[..., Any], tmp_path: Path) -> None:
    run_page((ROOT / "KAFKA.md").read_text("utf-8"), reader, wait_until)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["tidegate"], "the last commands clean up"


@pytest.mark.parametrize(
    ("shown", "text", "fits"),
    [
        ("a … c", "a b c\n", True), ("a … c", "a b d\n", False), ("a\n…\nb", "a\nb\n", True), ("a\n…", "a\nx\ny\n", True),
        ("a\n…\nb", "a\nx\nc\n", False), ("a", "a\nb\n", False), ("1.0", "120\n", False),
    ],
)  # fmt: skip
def test_what_the_file_shows_is_compared_line_by_line(shown: str, text: str, fits: bool) -> None:
    assert (re.fullmatch(pattern(shown), text) is not None) == fits
