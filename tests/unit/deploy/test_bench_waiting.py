"""Waits of a benchmark: a condition that never holds has a name, and arrivals are waited for as long as any comes."""

from itertools import chain, repeat

import pytest

from deploy.bench import waiting
from deploy.bench.waiting import await_arrivals, await_condition
from ingest.contract.errors import UnavailableError


def test_a_condition_is_waited_for_and_named_where_it_never_holds() -> None:
    answers = iter([False, False, True])
    await_condition(lambda: next(answers), "no answer came", seconds=60, look_seconds=0.0)
    assert next(answers, "all were asked for") == "all were asked for"
    with pytest.raises(UnavailableError, match=r"no answer came within 0\.01 s"):
        await_condition(lambda: False, "no answer came", seconds=0.01, look_seconds=0.001)


def test_arrivals_are_waited_for_until_all_are_there_or_none_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LOOK_SECONDS", 0.0)
    counts = iter([0, 1, 1, 2, 3, 9])
    await_arrivals(lambda: next(counts), 3, silent_seconds=60)
    assert next(counts) == 9
    looks = chain([1, 1, 1], repeat(2))
    await_arrivals(lambda: next(looks), 3, silent_seconds=0.01)
    assert next(looks) == 2, "it gave up after the last that came"
