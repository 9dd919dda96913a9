"""How long a table waits for its maintenance: from its first pass on, and no longer than it is there."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from lakehouse.derived_tables import ALL_TABLES
from lakehouse.maintenance import TableState
from monitoring.metrics.stream import StreamMetrics
from streaming.maintain import table_maintainer as gauges
from streaming.maintain.table_maintainer import MaintenanceGauges


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def made(registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> MaintenanceGauges:
    monkeypatch.setattr(gauges, "time", SimpleNamespace(time=iter(range(1000, 2000)).__next__))
    return MaintenanceGauges(StreamMetrics(registry, query="land", tables=ALL_TABLES, topics=("a", "b")))


def told(registry: CollectorRegistry, metric: str) -> dict[str, float]:
    return {
        sample.labels["table"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == metric
    }


MAINTAINED = "tidegate_table_maintained_timestamp_seconds"


def test_the_clock_of_a_table_runs_from_its_first_pass_on(made: MaintenanceGauges, registry: CollectorRegistry) -> None:
    made.keep(["readings"])
    made.keep(["readings", "hot"])
    assert told(registry, MAINTAINED) == {"readings": 1000, "hot": 1001}
    made.keep(["readings", "hot"])
    made.done("hot")
    assert told(registry, MAINTAINED) == {"readings": 1000, "hot": 1002}


def test_a_table_that_was_dropped_waits_for_nothing(made: MaintenanceGauges, registry: CollectorRegistry) -> None:
    made.keep(["readings"])
    made.keep(["readings", "hot"])
    made.table(TableState("hot", "id", 7, (), pa.table({"size_bytes": [1, 2, 3]}), 0.1))
    assert told(registry, "tidegate_table_files")["hot"] == 3
    made.keep(["readings"])
    assert told(registry, MAINTAINED) == {"readings": 1000}
    assert "hot" not in told(registry, "tidegate_table_files")
    assert "hot" not in told(registry, "tidegate_table_snapshot_load_seconds")
    made.keep(["readings", "hot"])
    assert told(registry, MAINTAINED)["hot"] == 1002, "made anew, it is another table"
