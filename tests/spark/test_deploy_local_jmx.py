"""What Spark's driver tells of itself by the JMX agent while the landing runs in it."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

from monitoring.metrics.jvm import AGENT, SPARK_JVM
from monitoring.scrape import Scrape, scrape

READINGS_OF_A_RECORD = 2


@pytest.fixture
def landing(lander: Any, record: Any, spark_metrics_port: int) -> Any:
    """`look()` while the landing query runs, after 100 records landed."""
    started = lander.start()
    before = look(spark_metrics_port)
    lander.send(*(record(number, seq=number) for number in range(1, 101)))
    started.query.processAllAvailable()
    yield before, lambda: look(spark_metrics_port)
    started.landing.stop()
    started.query.stop()
    started.landing.close()


def look(port: int) -> Scrape:
    found = scrape(f"http://127.0.0.1:{port}/metrics", timeout_seconds=30)
    assert found is not None
    return found


def test_every_declared_name_is_served_with_its_labels(landing: Any) -> None:
    served: dict[str, set[str]] = {}
    for name, labels in landing[1]().values:
        served.setdefault(name, set()).update(label for label, _ in labels)
    declared = {family.name: set(family.labels) for family in (*AGENT, *SPARK_JVM)}
    assert {name: labels for name, labels in declared.items() if served.get(name) != labels} == {}
    assert {name for name in served if name.startswith("spark")} <= set(declared)


def test_the_figures_follow_what_lands(landing: Any) -> None:
    before, now = landing[0], landing[1]()

    def grown(name: str) -> float:
        return now.total(name, executor_id="driver") - before.total(name, executor_id="driver")

    assert grown("spark_executor_recordsread_total") >= 100
    assert grown("spark_executor_recordswritten_total") >= 100 * READINGS_OF_A_RECORD
    assert grown("spark_executor_succeededtasks_total") >= 1
    assert grown("spark_executor_cputime_total") > 0
    assert now.total("spark_driver_structured_streaming_latency", query_name="land") > 0
    assert now.total("jvm_memory_used_bytes", area="heap") > 10 * 1024**2


def test_an_answer_is_quick_and_its_series_are_few(landing: Any, wait_until: Callable[..., Any]) -> None:
    def seconds() -> float:
        began = time.perf_counter()
        landing[1]()
        return time.perf_counter() - began

    # What else runs on this machine may slow eleven answers down, but not all that follow.
    wait_until(lambda: statistics.median(seconds() for _ in range(11)) < 0.2, what="quick answers")
    assert len(landing[1]().values) < 400
