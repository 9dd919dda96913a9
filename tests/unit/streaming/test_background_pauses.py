"""Pauses between the runs of a background task: long runs leave the machine to the landing in between."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from monitoring.metrics.stream import StreamMetrics
from streaming.background_tasks import BackgroundTask, BackgroundTasks


@pytest.mark.parametrize(
    ("took", "rest", "pause"), [(1.0, 1.0, 7.0), (30.0, 1.0, 30.0), (30.0, 0.0, 7.0), (30.0, 2.0, 60.0)]
)
def test_a_long_run_is_followed_by_a_pause_of_its_length(
    took: float, rest: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)

    def run() -> None:
        clock.now += took

    metrics = StreamMetrics(CollectorRegistry(), query="land", tables=("readings",), topics=("t",))
    task = BackgroundTask("derive", 7.0, run, rest=rest)
    writer: Any = SimpleNamespace(metrics=metrics)
    BackgroundTasks(writer, [task])._do(task)
    assert task.due_at == pytest.approx(1000.0 + took + pause)


def test_a_task_that_is_due_waits_until_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.background_tasks.TICK_SECONDS", 0.001)
    asked, ran, wanted = threading.Event(), threading.Event(), threading.Event()

    def look() -> bool:
        asked.set()
        return wanted.is_set()

    context = SimpleNamespace(setLocalProperty=lambda *_: None)
    metrics = StreamMetrics(CollectorRegistry(), query="land", tables=("readings",), topics=("t",))
    writer: Any = SimpleNamespace(metrics=metrics, spark=SimpleNamespace(sparkContext=context))
    tasks = BackgroundTasks(writer, [BackgroundTask("derive", 7.0, ran.set, wanted=look)])
    tasks.start()
    try:
        assert asked.wait(30)
        assert not ran.is_set()
        wanted.set()
        assert ran.wait(30)
    finally:
        tasks.stop()
