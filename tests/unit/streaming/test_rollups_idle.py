"""What a pass tells of the rollups when nothing comes in: without a JVM, by tables that only remember."""

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from monitoring.metrics.stream import StreamMetrics
from streaming.derive import rollups
from streaming.derive.rollups import RollupDerivation

SECOND = 1_000_000
READING_AT = 10_000


class Table:
    """A rollup table with some windows that are not final; their ends in seconds."""

    def __init__(self, watermark: int | None, *ends: int) -> None:
        self.seen, self.expired = 7, None
        self.watermark = None if watermark is None else watermark * SECOND
        self._ends = ends

    def closes(self, watermark: int | None) -> bool:
        return watermark is not None and any(end * SECOND <= watermark for end in self._ends)

    def take(self, news: Any) -> bool:
        self.watermark = news.watermark
        self._ends = tuple(end for end in self._ends if end * SECOND > news.watermark)
        return True


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a pass so many seconds after the last reading; returns what the gauge says."""
    registry, clock = CollectorRegistry(), [float(READING_AT)]
    metrics = StreamMetrics(registry, query="land", tables=(), topics=())
    settings = SimpleNamespace(watermark_delay_seconds=120, watermark_idle_seconds=60)
    writer = SimpleNamespace(settings=settings, metrics=metrics, root="nowhere")
    derivation = RollupDerivation(writer, clock=lambda: clock[0])  # type: ignore[arg-type]
    monkeypatch.setattr(rollups, "changes_since", lambda *_: None)

    def run(after: int, *tables: Table) -> float | None:
        clock[0] = READING_AT + after
        derivation._tables = list(tables)  # type: ignore[arg-type]
        derivation.run()
        return registry.get_sample_value("tidegate_rollup_watermark_timestamp_seconds")

    run.told = registry.get_sample_value  # type: ignore[attr-defined]
    return run


def test_the_watermark_goes_on_in_a_quiet_night_though_no_window_is_open(idle: Any) -> None:
    reached = READING_AT - 120
    assert idle(30, Table(reached), Table(reached)) == reached
    assert idle(1200, Table(reached), Table(reached)) == READING_AT + 1200 - 180
    assert idle(7200, Table(reached), Table(reached)) == READING_AT + 7200 - 180


def test_it_is_that_of_the_table_that_is_behind_not_of_the_one_that_closed_last(idle: Any) -> None:
    ahead, behind = Table(READING_AT + 500, READING_AT), Table(READING_AT - 120)
    assert idle(30, ahead, behind) == READING_AT - 120


def test_how_old_it_becomes_in_a_quiet_night_is_told_beside_it(idle: Any) -> None:
    """Alerts take off what somebody wanted."""
    now = READING_AT + 7200
    assert idle(7200, Table(READING_AT - 120)) == now - idle.told("tidegate_rollup_watermark_bound_seconds")


def test_before_any_reading_there_is_none(idle: Any) -> None:
    assert idle(1200, Table(None), Table(None)) == 0
