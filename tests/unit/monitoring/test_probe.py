"""Probes that hang, fail and come back; and a look at parts that do the same."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from monitoring.metrics.monitor import MonitorMetrics
from monitoring.periodic_query import IncompleteError
from monitoring.probe import Probe, ProbeSet
from monitoring.sample_history import History
from monitoring.scrape import Scrape
from monitoring.scrape_loop import ScrapeLoop, ScrapeTarget, scrape_self

Wait = Callable[..., Any]


@pytest.fixture
def metrics(registry: CollectorRegistry) -> MonitorMetrics:
    return MonitorMetrics(registry)


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What a look that hangs waits for; released at the end."""
    event = threading.Event()
    yield event
    event.set()


def test_what_a_probe_says_is_served(metrics: MonitorMetrics, registry: CollectorRegistry, wait_until: Wait) -> None:
    closed = threading.Event()
    running = ProbeSet([Probe("tables", 0.1, lambda: {"tidegate_devices_known": [((), 7.0)]}, closed.set)], metrics)
    running.start()
    wait_until(lambda: registry.get_sample_value("tidegate_devices_known") == 7)
    assert running.faults() == {"tables": ""}
    running.close()
    assert closed.is_set()


def test_one_that_hangs_holds_neither_the_others_nor_the_end(
    metrics: MonitorMetrics, registry: CollectorRegistry, wait_until: Wait, never: threading.Event
) -> None:
    looks: list[int] = []

    def other() -> dict[str, Any]:
        looks.append(1)
        return {"tidegate_devices_known": [((), float(len(looks)))]}

    hung = threading.Event()

    def hang() -> dict[str, Any]:
        hung.set()
        never.wait()
        return {}

    running = ProbeSet([Probe("kafka", 0.1, hang), Probe("tables", 0.1, other)], metrics)
    running.start()
    wait_until(lambda: hung.is_set() and len(looks) > 3)
    running.close(seconds=0.1)
    assert not never.is_set()


def test_one_that_is_silent_is_forgotten_and_its_system_called_unreachable(
    metrics: MonitorMetrics,
    registry: CollectorRegistry,
    wait_until: Wait,
    never: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("monitoring.periodic_query.LEAST_PATIENCE_SECONDS", 0.3)
    hang = threading.Event()

    def look() -> dict[str, Any]:
        if hang.is_set():
            never.wait()
        return {"tidegate_kafka_reachable": [((), 1.0)], "kafka_brokers": [((), 3.0)]}

    running = ProbeSet([Probe("kafka", 0.05, look)], metrics)
    running.start()
    wait_until(lambda: running.check() or registry.get_sample_value("kafka_brokers") == 3)
    hang.set()
    wait_until(lambda: running.check() or registry.get_sample_value("kafka_brokers") is None)
    assert registry.get_sample_value("tidegate_kafka_reachable") == 0
    assert "no answer for" in running.faults()["kafka"]
    hang.clear()
    never.set()
    wait_until(lambda: registry.get_sample_value("kafka_brokers") == 3)
    assert registry.get_sample_value("tidegate_kafka_reachable") == 1
    wait_until(lambda: running.faults() == {"kafka": ""})
    running.close()


def test_a_fault_is_counted_and_told_and_the_next_look_follows(
    metrics: MonitorMetrics, registry: CollectorRegistry, wait_until: Wait
) -> None:
    wrong = threading.Event()
    wrong.set()

    def look() -> dict[str, Any]:
        if wrong.is_set():
            raise OSError("the table is gone")
        return {"tidegate_devices_known": [((), 1.0)]}

    running = ProbeSet([Probe("tables", 0.05, look)], metrics)
    running.start()
    failures = lambda: registry.get_sample_value("tidegate_monitor_probe_failures_total", {"probe": "tables"})  # noqa: E731
    wait_until(lambda: failures() > 2)
    assert running.faults() == {"tables": "the table is gone"}
    wrong.clear()
    wait_until(lambda: registry.get_sample_value("tidegate_devices_known") == 1)
    wait_until(lambda: running.faults() == {"tables": ""})
    running.close()


def test_a_look_that_saw_a_part_is_served_and_counts_as_failed(
    metrics: MonitorMetrics, registry: CollectorRegistry, wait_until: Wait, caplog: pytest.LogCaptureFixture
) -> None:
    def look() -> dict[str, Any]:
        raise IncompleteError("b cannot be seen", {name: [(("mqtt",), 7.0)]})

    name = "tidegate_certificate_expiry_timestamp_seconds"
    running = ProbeSet([Probe("certificates", 0.05, look)], metrics)
    running.start()
    failures = {"probe": "certificates"}
    wait_until(lambda: (registry.get_sample_value("tidegate_monitor_probe_failures_total", failures) or 0) > 2)
    running.check()
    assert registry.get_sample_value(name, {"server": "mqtt"}) == 7
    assert running.faults() == {"certificates": "b cannot be seen"}
    assert caplog.text.count("b cannot be seen") == 1
    running.close()


def test_the_end_of_the_last_complete_look_is_told(
    metrics: MonitorMetrics, registry: CollectorRegistry, wait_until: Wait, never: threading.Event
) -> None:
    """One that fails, sees a part only, or hangs leaves it where it is; so does one that has never seen anything."""
    looks, course = list[str](), "whole"

    def look() -> dict[str, Any]:
        looks.append(course)
        if course == "hangs":
            never.wait()
        if course == "fails":
            raise OSError("the table is gone")
        if course == "part":
            raise IncompleteError("b cannot be seen", {})
        return {}

    def complete(probe: str = "tables") -> float | None:
        return registry.get_sample_value("tidegate_monitor_probe_complete_timestamp_seconds", {"probe": probe})

    before = time.time()
    running = ProbeSet([Probe("tables", 0.02, look), Probe("kafka", 0.02, never.wait)], metrics)
    started = complete("kafka")
    assert before <= started <= time.time()
    assert complete("certificates") == 0, "one that does not run is not missed: 0 has no age"
    running.start()
    for words in ("part", "fails", "hangs"):
        course = "whole"
        seen = complete()
        wait_until(lambda seen=seen: complete() > seen)
        course = words
        wait_until(lambda words=words: looks[-1] == words)
        stood, count = complete(), len(looks)
        wait_until(lambda words=words, count=count: words == "hangs" or len(looks) > count + 3)
        assert complete() == stood
    running.check()
    assert (complete(), complete("kafka")) == (stood, started)
    running.close(seconds=0.1)


def test_what_is_not_declared_is_a_fault_and_not_served(
    metrics: MonitorMetrics, registry: CollectorRegistry, wait_until: Wait
) -> None:
    running = ProbeSet([Probe("tables", 0.05, lambda: {"tidegate_made_up": [((), 1.0)]})], metrics)
    running.start()
    wait_until(lambda: running.faults()["tables"])
    assert registry.get_sample_value("tidegate_made_up") is None
    running.close()


class Scripted(ScrapeTarget):
    """A target whose answers a test gives; `block` makes it hang."""

    def __init__(self, job: str, *, every_seconds: float = 0.0) -> None:
        super().__init__(job, "http://127.0.0.1:1/metrics", every_seconds=every_seconds)
        self.told: Scrape | None = Scrape(0.0, {("tidegate_devices_known", ()): 1.0})
        self.block: threading.Event | None = None
        self.asked = 0

    def _ask(self) -> None:
        self.asked += 1
        if self.block is not None:
            self.block.wait()
        self._answer = self.told
        self._done.set()


def _look(targets: list[Scripted], seen: list[float]) -> tuple[ScrapeLoop, History]:
    history = History(["tidegate_devices_known", "tidegate_kafka_reachable"])
    own = Scrape(0.0, {("tidegate_kafka_reachable", ()): 1.0})
    return ScrapeLoop(
        targets, history, own=("tidegate-monitor", lambda: own), publish=seen.append, every_seconds=0.1
    ), history


def test_a_part_that_hangs_counts_as_silent_and_is_not_asked_twice(
    never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitoring.scrape_loop.TIMEOUT_SECONDS", 0.8)
    well, hung = Scripted("well"), Scripted("hung")
    hung.block = never
    seen: list[float] = []
    look, history = _look([well, hung], seen)
    for _ in range(3):
        look.run_once()
    assert len(seen) == 3
    assert (well.asked, hung.asked) == (3, 1)
    assert history.latest("up") == {
        (("job", "well"),): 1.0,
        (("job", "hung"),): 0.0,
        (("job", "tidegate-monitor"),): 1.0,
    }
    never.set()
    hung._done.wait()
    look.run_once()
    assert history.latest("up", job="hung") == {(("job", "hung"),): 1.0}


def test_those_that_cost_more_are_asked_more_rarely() -> None:
    often, rarely = Scripted("often"), Scripted("rarely", every_seconds=3600)
    look, history = _look([often, rarely], [])
    for _ in range(3):
        look.run_once()
    assert (often.asked, rarely.asked) == (3, 1)
    assert history.latest("up", job="rarely") == {(("job", "rarely"),): 1.0}


def test_one_missed_answer_of_those_ends_none_of_their_series(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm, now = Scripted("jvm", every_seconds=10), 1000.0
    look, history = _look([jvm], [])
    monkeypatch.setattr("monitoring.scrape_loop.time.time", lambda: now)
    monkeypatch.setattr("monitoring.scrape_loop.time.monotonic", lambda: now)
    told = jvm.told
    for now in (1000.0, 1010.1, 1020.2):
        jvm.told = told if now < 1005 else None
        look.run_once()
        assert len(history.latest("tidegate_devices_known", job="jvm")) == 1
    now = 1030.3
    look.run_once()
    assert history.latest("tidegate_devices_known", job="jvm") == {}


def test_a_look_that_fails_is_followed_by_the_next_and_health_tells(
    wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitoring.scrape_loop.STUCK_SECONDS", 0.2)
    well = threading.Event()

    def publish(_now: float) -> None:
        if not well.is_set():
            raise ValueError("cannot be judged")

    look = ScrapeLoop([], History([]), own=("me", lambda: Scrape(0.0, {})), publish=publish, every_seconds=0.05)
    stop = threading.Event()
    thread = threading.Thread(target=look.run, args=(stop,))
    thread.start()
    wait_until(lambda: not look.healthy()[0])
    assert "has not turned" in look.healthy()[1]
    wait_until(lambda: "cannot be judged" in look.healthy()[1])
    well.set()
    wait_until(lambda: look.healthy()[0])
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


def test_a_look_does_not_wait_for_its_turn_where_there_is_news(wait_until: Wait) -> None:
    turns: list[float] = []
    states = {"kafka": "ready"}

    def news() -> dict[str, str]:
        if states["kafka"] == "unreadable":
            raise ValueError("no state")
        return dict(states)

    look = ScrapeLoop(
        [], History([]), own=("me", lambda: Scrape(0.0, {})), publish=turns.append, every_seconds=3600, news=news
    )
    stop = threading.Event()
    thread = threading.Thread(target=look.run, args=(stop,))
    thread.start()
    for count, state in enumerate(("restarting", "unreadable", "ready"), 2):
        wait_until(lambda count=count: len(turns) == count - 1)
        states["kafka"] = state
        wait_until(lambda count=count: len(turns) == count)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert len(turns) == 4


def test_what_the_process_tells_of_itself_is_what_it_serves(
    metrics: MonitorMetrics, registry: CollectorRegistry
) -> None:
    metrics.families.replace("kafka", {"kafka_topic_partitions": [(("a",), 2.0)]})
    metrics.alerts.labels("firing").set(3)
    found = scrape_self(registry, {"kafka_topic_partitions", "tidegate_monitor_alerts"})
    assert found.values == {
        ("kafka_topic_partitions", (("topic", "a"),)): 2.0,
        ("tidegate_monitor_alerts", (("state", "firing"),)): 3.0,
        ("tidegate_monitor_alerts", (("state", "pending"),)): 0.0,
    }
