"""The end of a stream is bounded: jobs that nobody will finish are cancelled, and no others."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.drain_deadline import DrainDeadline


class Spark:
    """Counts how often all jobs are cancelled; `freed` is set by the first time, or by the `frees`-th."""

    def __init__(self, frees: int = 1) -> None:
        self.freed, self.cancels, self._frees = threading.Event(), 0, frees
        self.session: Any = SimpleNamespace(sparkContext=SimpleNamespace(cancelAllJobs=self._cancel))

    def _cancel(self) -> None:
        self.cancels += 1
        if self.cancels >= self._frees:
            self.freed.set()
        message = "the gateway is gone"
        raise ConnectionError(message)


@pytest.mark.parametrize("begin", [False, True], ids=["stop", "a query that ended"])
def test_what_waits_for_jobs_is_freed(begin: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.drain_deadline.LOOK_SECONDS", 0.01)
    spark, stop = Spark(frees=3), threading.Event()
    with DrainDeadline(spark.session, stop, seconds=0.01) as deadline:
        (deadline.begin if begin else stop.set)()
        assert spark.freed.wait(30), "it also cancels the job that comes after a cancelled one"
    assert deadline.expired


def test_a_block_that_ends_in_time_cancels_nothing(wait_until: Callable[..., Any]) -> None:
    spark, stop = Spark(), threading.Event()
    before = threading.active_count()
    with DrainDeadline(spark.session, stop, seconds=3600) as deadline:
        stop.set()
    assert (spark.cancels, deadline.expired) == (0, False)
    wait_until(lambda: threading.active_count() <= before, what="the end of its thread")


def test_without_a_stop_nothing_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.drain_deadline.LOOK_SECONDS", 0.001)
    spark = Spark()
    with DrainDeadline(spark.session, threading.Event(), seconds=0.0) as deadline:
        assert not spark.freed.wait(0.1)
    assert (spark.cancels, deadline.expired) == (0, False)
