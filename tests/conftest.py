"""What every test gets: markers from its folder, UTC, unique names, a wait on a condition, a registry of its own."""

import logging
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from prometheus_client import CollectorRegistry

TESTS = Path(__file__).parent
FOLDERS = ("guards", "unit", "contract", "integration", "spark", "e2e")
"""In the order they run: what is cheap fails first, and what starts a whole pipeline does not burden the rest."""
E2E_SECONDS = 1800
"""The first of them starts the whole pipeline within its time, and each waits for parts that start anew."""
pytest_plugins = [
    "tests.support.servers",
    "tests.support.bucket",
    "tests.support.scripted_broker",
    "tests.support.session",
    "tests.support.gateway",
    "tests.support.sparkplug",
    "tests.support.faults",
    "tests.support.page_stories",
    "tests.support.page_topics",
    "tests.support.page",
    "tests.support.page_tab",
    "tests.support.monitor",
    "tests.support.promql",
    "tests.support.grafana_lint",
    "tests.support.promtool",
    "tests.support.helm",
    "tests.support.kube",
    "tests.support.systemd",
    "tests.support.alerts_counters",
    "tests.support.alerts_kafka",
    "tests.support.alerts_parts",
    "tests.support.alerts_stream",
    "tests.support.alerts_tables",
    "tests.support.metrics_feed",
    "tests.support.fleet",
    "tests.support.naughty",
    "tests.support.balance",
    "tests.support.audit_history",
    "tests.support.ledger",
    "tests.support.mutants",
    "tests.support.mutants_gateway",
    "tests.support.mutants_stream",
    "tests.support.sql_streams",
    "tests.support.outcome",
    "tests.support.presets",
    "tests.support.mapping",
    "tests.support.counters",
    "tests.support.dead_letters",
    "tests.support.cut_log",
    "tests.support.brokers",
]
"""Modules whose fixtures all tests may use. Tests import other names from them as from any package."""

# Before anything else reads the zone: a test that passes only in its author's zone proves nothing.
os.environ["TZ"] = "UTC"
time.tzset()

# A busy machine is no failure; and what was found once is found again.
hypothesis.settings.register_profile("tidegate", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("tidegate")


def pytest_configure() -> None:
    # As Ctrl-C: whoever ends the tests, the services that they started end with them.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def folder(item: pytest.Item) -> str:
        return item.path.relative_to(TESTS).parts[0]

    items.sort(key=lambda item: FOLDERS.index(folder(item)))
    for item in items:
        item.add_marker(getattr(pytest.mark, folder(item)))
        if folder(item) == "e2e":
            item.add_marker(pytest.mark.timeout(E2E_SECONDS))  # a mark of its own comes first


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A test that sets up logging, as a process does at its start, leaves no handler to the next one."""
    loggers = [logging.getLogger(), logging.getLogger("tidegate")]
    before = [(logger, list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, handlers, level, propagate in before:
        for handler in list(logger.handlers):
            # pytest's own come and go with the phases of a test.
            if handler not in handlers and not type(handler).__module__.startswith("_pytest"):
                logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """A test that sets up a process's stop leaves none of it: Ctrl-C and SIGTERM end the tests as before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _own_umask() -> Iterator[None]:
    """A test that starts a process's work in this one leaves its umask to no other test."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def unique_name() -> str:
    """A name that no other test and no earlier run uses: topics, groups, client ids, tables."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def registry() -> CollectorRegistry:
    """A metrics registry of this test alone."""
    return CollectorRegistry()


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., Any]:
    """`wait_until(condition, seconds=60, what="…")` returns the first truthy answer or fails naming what it awaited."""

    def wait(condition: Callable[[], Any], *, seconds: float = 60.0, what: str = "the condition") -> Any:
        deadline = time.monotonic() + seconds
        while True:
            answer = condition()
            if answer:
                return answer
            if time.monotonic() > deadline:
                pytest.fail(f"{what} did not come true within {seconds:g} s (last answer: {answer!r})")
            time.sleep(0.02)

    return wait
