"""A process of a benchmark: its plan goes through its input, and its failure has words."""

import pytest

from deploy.bench.plan_process import run_child
from ingest.contract.errors import FatalError


def test_a_process_gets_its_plan_and_gives_its_lines() -> None:
    assert run_child("json.tool", {"messages": 3}, "no plan came") == ["{", '    "messages": 3', "}"]


def test_a_process_that_fails_is_a_fault_with_its_words_above() -> None:
    with pytest.raises(FatalError, match="the publisher did not start; see its output above"):
        run_child("deploy.bench.load_publisher", {"no_such_option": 1}, "the publisher did not start")
