"""What every test gets: markers from its folder, UTC, unique names, a wait on a condition, a registry of its own."""

import importlib.util
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest
from prometheus_client import CollectorRegistry

TESTS = Path(__file__).parent
FOLDERS = ("guards", "unit", "contract", "integration", "spark", "e2e")
"""In the order they run: what is cheap fails first, and what starts a whole pipeline does not burden the rest."""
E2E_SECONDS = 1800
"""The first of them starts the whole pipeline within its time, and each waits for parts that start anew."""
SHARED_FIXTURES = (
    "fixtures_servers.py",
    "fixtures_scripted_broker.py",
    "fixtures_session.py",
    "fixtures_gateway.py",
    "fixtures_sparkplug.py",
    "fixtures_faults.py",
    "fixtures_page_stories.py",
    "fixtures_page_topics.py",
    "fixtures_page.py",
    "fixtures_page_tab.py",
    "fixtures_monitor.py",
    "fixtures_promql.py",
    "fixtures_grafana_lint.py",
    "fixtures_promtool.py",
    "fixtures_alerts_counters.py",
    "fixtures_alerts_kafka.py",
    "fixtures_alerts_parts.py",
    "fixtures_alerts_stream.py",
    "fixtures_alerts_tables.py",
    "fixtures_metrics_feed.py",
    "fixtures_fleet.py",
    "fixtures_naughty.py",
    "fixtures_balance.py",
    "fixtures_audit_history.py",
    "fixtures_ledger.py",
    "fixtures_mutants.py",
    "fixtures_mutants_gateway.py",
    "fixtures_mutants_stream.py",
    "fixtures_sql_streams.py",
    "fixtures_outcome.py",
    "fixtures_presets.py",
    "fixtures_mapping.py",
    "fixtures_counters.py",
    "fixtures_dead_letters.py",
    "fixtures_cut_log.py",
)
"""Modules beside this one whose fixtures all tests may use, and whose words as `tidegate_tests_<name>`; `tests` is no package."""

# Before anything else reads the zone: a test that passes only in its author's zone proves nothing.
os.environ["TZ"] = "UTC"
time.tzset()

# A busy machine is no failure; and what was found once is found again.
hypothesis.settings.register_profile("tidegate", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("tidegate")


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tidegate_tests_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # so that test modules may import the words of their tables from it
    spec.loader.exec_module(module)
    return module


def pytest_configure(config: pytest.Config) -> None:
    # As Ctrl-C: whoever ends the tests, the services that they started end with them.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for name in SHARED_FIXTURES:
        if (TESTS / name).exists():
            config.pluginmanager.register(_load(TESTS / name), name)


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
