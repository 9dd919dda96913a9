"""`bench size`: sizes grow with the fleet, units agree, and limits are those of the code."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.day import write_day
from deploy.bench.sizing.cost_curve import CostCurve
from deploy.bench.sizing.costs import COSTS_FILE, Costs, costs_of_result, costs_of_tables, read_costs, save_costs
from deploy.bench.sizing.fleet import Fleet, Prices, Size
from deploy.bench.sizing.model import size_fleet
from deploy.cli import run
from deploy.settings import Settings, load_settings
from gateway.delivery.sequence import MAX_COUNTERS, SequenceTracker
from ingest.contract.errors import ConfigError
from streaming.dedup_index import RANGES_LIMIT
from streaming.point_store import POINTS_LIMIT

COSTS = read_costs()
SETTINGS = load_settings(environ={})
FLEETS = st.builds(
    Fleet,
    devices=st.integers(1, 10**9),
    every_seconds=st.sampled_from([1.0, 10.0, 60.0, 3600.0]),
    readings=st.integers(1, 100),
    numbered=st.booleans(),
    tls=st.booleans(),
    prices=st.just(Prices(core_hour=1.0, gb_month=2.0, thousand_puts=3.0)),
)
PER_PARTITION = "retention_bytes to set"
"""More partitions make each of them smaller."""


def sized(fleet: Fleet, settings: Settings = SETTINGS, costs: Costs = COSTS) -> Size:
    return size_fleet(fleet, costs, settings)


def values(size: Size) -> dict[str, float]:
    found = {f"{line.group}: {line.name}": line.value for line in size.lines if line.name != PER_PARTITION}
    for table in size.tables:
        found |= {f"{table.name} a day": table.bytes_per_day, f"{table.name} files": table.files_per_day}
        found[table.name] = table.bytes
    return found | {f"need of {one.name}": one.needed for one in size.ceilings}


@given(FLEETS, st.floats(1, 1000))
def test_more_devices_never_need_less(fleet: Fleet, times: float) -> None:
    larger = values(sized(replace(fleet, devices=int(fleet.devices * times))))
    for name, value in values(sized(fleet)).items():
        assert larger[name] >= value * (1 - 1e-9), name


@given(FLEETS)
def test_every_figure_is_above_zero_and_says_where_it_comes_from(fleet: Fleet) -> None:
    size = sized(fleet)
    assert all(line.value > 0 and line.source for line in size.lines if line.group != "money")
    assert all(one.limit > 0 and one.where and one.effect for one in size.ceilings)
    assert all(table.row_bytes > 0 and table.source for table in size.tables)


@given(FLEETS)
def test_a_fleet_of_the_size_at_which_a_limit_is_reached_needs_all_of_it(fleet: Fleet) -> None:
    for one in sized(fleet).ceilings:
        if 100 <= one.devices <= 1e12:
            there = sized(replace(fleet, devices=round(one.devices)))
            assert next(each for each in there.ceilings if each.name == one.name).share == pytest.approx(1, abs=0.02)


def test_the_limit_that_breaks_first_is_at_the_top() -> None:
    found = [one.devices for one in sized(Fleet(devices=1_000_000, every_seconds=60)).ceilings]
    assert found == sorted(found)


@given(FLEETS)
def test_half_as_many_messages_are_half_as_many_rows_and_bytes_of_readings(fleet: Fleet) -> None:
    usual, rare = sized(fleet), sized(replace(fleet, every_seconds=fleet.every_seconds * 2))
    assert usual.value("load", "rows") == pytest.approx(2 * rare.value("load", "rows"))
    assert usual.tables[0].bytes_per_day == pytest.approx(2 * rare.tables[0].bytes_per_day)
    assert usual.value("kafka", "disk of all copies") == pytest.approx(2 * rare.value("kafka", "disk of all copies"))


def test_a_known_fleet_has_the_rows_that_a_person_counts() -> None:
    size = sized(Fleet(devices=1000, every_seconds=10, readings=2, days=30))
    tables = {table.name: table for table in size.tables}
    assert size.value("load", "messages") == 100
    assert tables["readings"].rows_per_day == 1000 * 2 * 8640
    assert tables["readings"].rows == 1000 * 2 * 8640 * 30
    assert tables["rollups_1m"].rows_per_day == 1000 * 2 * 1440
    assert tables["rollups_1h"].rows_per_day == 1000 * 2 * 24
    assert tables["ledger"].rows_per_day == 1000 * 1440
    assert (tables["latest"].rows, tables["devices"].rows) == (2000, 1000)


def test_devices_that_send_rarely_have_a_window_for_each_reading_only() -> None:
    tables = {table.name: table for table in sized(Fleet(devices=10, every_seconds=3600)).tables}
    assert tables["rollups_1m"].rows_per_day == tables["ledger"].rows_per_day == 10 * 24
    assert tables["rolling_15m"].rows_per_day == 10 * 24 * 15


def test_settings_change_the_size() -> None:
    fleet = Fleet(devices=10_000, every_seconds=10)
    changed = {
        "lake.readings_days": 9,
        "kafka.retention_hours": 24,
        "kafka.partitions": 32,
        "stream.trigger_seconds": 10.0,
    }
    other = sized(fleet, load_settings(overrides=changed, environ={}))
    usual = sized(fleet)
    assert other.tables[0].bytes == pytest.approx(usual.tables[0].bytes / 10)
    assert other.value("kafka", "disk of all copies") == pytest.approx(usual.value("kafka", "disk of all copies") / 7)
    assert other.value("kafka", "partitions") == 32
    assert other.value("requests", "commits of readings a day") == 8640


def test_money_is_amounts_times_prices_and_is_missing_without_them() -> None:
    fleet = Fleet(devices=10_000, every_seconds=60)
    assert not any("cost" in line.name for line in sized(fleet).lines)
    size = sized(replace(fleet, prices=Prices(core_hour=2.0, thousand_puts=5.0)))
    cores, puts = size.value("money", "cores"), size.value("money", "writing requests")
    assert size.value("money", "sum of the given prices") == pytest.approx(cores * 2 + puts / 1000 * 5)


@pytest.mark.parametrize(
    ("numbered", "name", "limit"),
    [
        (True, "identities with a counter", RANGES_LIMIT),
        (True, "counters of one gateway", MAX_COUNTERS),
        (False, "identities without a counter", POINTS_LIMIT),
    ],
)
def test_limits_of_the_code_are_those_of_its_modules(numbered: bool, name: str, limit: int) -> None:
    size = sized(Fleet(devices=5, every_seconds=1, numbered=numbered))
    assert next(one.limit for one in size.ceilings if one.name == name) == limit


def test_a_gateway_follows_as_many_devices_as_the_size_says() -> None:
    tracker = SequenceTracker()
    tracker.follow((f"d{number}", 1, 1) for number in range(MAX_COUNTERS + 1))
    assert len(tracker) == MAX_COUNTERS
    assert tracker.high("d0", 1) is None


def test_a_curve_says_between_which_points_a_value_lies() -> None:
    curve = CostCurve([(100, 2.0), (10, 1.0)], unit="x", beyond="in proportion")
    assert (curve.at(10).value, curve.at(10).basis) == (1.0, "measured")
    assert (curve.at(1).value, curve.at(1).basis) == (1.0, "as at 10 x, the least measured")
    assert curve.at(10**1.5).value == pytest.approx(2**0.5)
    assert (curve.at(1000).value, curve.at(1000).basis) == (20.0, "beyond 100 x, the most measured")


POINTS = st.dictionaries(st.integers(1, 10**6), st.floats(0.01, 1e6), min_size=1, max_size=6)


@given(POINTS, st.lists(st.floats(1, 1e9), min_size=2), st.sampled_from(["flat", "in proportion", "as before"]))
def test_a_rising_curve_never_falls(points: dict[int, float], xs: list[float], beyond: Any) -> None:
    curve = CostCurve([(float(x), y) for x, y in points.items()], unit="x", beyond=beyond)
    found = [curve.at(x).value for x in sorted(xs)]
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in itertools.pairwise(found))


@given(POINTS, st.floats(0.01, 1e7))
def test_a_curve_stays_below_a_value_up_to_where_it_reaches(points: dict[int, float], value: float) -> None:
    curve = CostCurve([(float(x), y) for x, y in points.items()], unit="x", beyond="in proportion")
    reached = curve.reach(value)
    if reached:
        assert curve.at(reached).value <= value
        assert curve.at(reached * 1.01).value >= value * (1 - 1e-6)
    else:
        assert curve.at(0.5).value > value


def test_costs_survive_being_saved(tmp_path: Path) -> None:
    save_costs(COSTS, tmp_path / "costs.json")
    assert read_costs(tmp_path / "costs.json") == COSTS


def result_file(folder: Path, cells: list[dict[str, Any]], scenario: str = "pipeline") -> Path:
    held = {**COSTS.pipeline, "scenario": scenario, "cells": cells}
    (folder / "result.json").write_text(json.dumps(held))
    return folder / "result.json"


def cell(**changed: float) -> dict[str, Any]:
    figures = {f"{kind}_{part}": 10.0 for part in ("broker", "gateway", "kafka", "stream") for kind in (
        "cpu_us_per_message", "peak_rss_mb"
    )}  # fmt: skip
    work = {
        "rate": 1000,
        "devices": 100,
        "readings": 1,
        "partitions": 2,
        "table_rows": 0,
        "messages": 900,
        "warmup_messages": 100,
    }
    return {**work, "commits": 3.0, **figures, **changed, "spread": {"commits": {
        "median": 3.0, "min": 3.0, "max": 3.0, "iqr_ratio": 0.0, "runs": [3.0]
    }}}  # fmt: skip


def test_costs_come_from_the_cells_of_a_result(tmp_path: Path) -> None:
    file = result_file(
        tmp_path, [cell(), cell(rate=5000, cpu_us_per_message_gateway=4.0), {**cell(rate=1), "spread": {}}]
    )
    costs = costs_of_result(file, COSTS)
    assert costs.cores("gateway").at(5000).value == pytest.approx(0.02)
    assert costs.cores("gateway").last == 5000
    assert costs.commits().at(1000).value == pytest.approx(3.0)
    assert costs.figures == COSTS.figures
    assert sized(Fleet(devices=10, every_seconds=1), costs=costs).machine == costs.machine


@pytest.mark.parametrize(
    ("cells", "scenario"), [([cell()], "dsbs"), ([cell(partitions=7)], "pipeline"), ([cell(commits=0)], "pipeline")]
)
def test_a_result_without_usable_cells_is_rejected_with_the_next_step(
    tmp_path: Path, cells: list[dict[str, Any]], scenario: str
) -> None:
    with pytest.raises(ConfigError, match=r"result\.json: holds no measured cells .* bench run pipeline --report DIR"):
        costs_of_result(result_file(tmp_path, cells, scenario), COSTS)


def test_bytes_of_a_row_come_from_own_tables(tmp_path: Path) -> None:
    write_day(str(tmp_path), commits=10, rows_per_commit=2000, devices=10)
    costs = costs_of_tables(str(tmp_path), COSTS)
    stored = sum(file.stat().st_size for file in (tmp_path / "readings").rglob("*.parquet"))
    assert costs.tables["readings"].value == pytest.approx(stored / 20_000, rel=0.2)
    assert costs.tables["readings"].source == "20,000 rows in 10 files of your tables"
    assert costs.tables["ledger"] == COSTS.tables["ledger"]


def test_json_gives_each_figure_with_unit_and_source(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = tmp_path / "costs.json"
    assert (
        run(
            [
                "bench",
                "size",
                "--devices",
                "20000",
                "--every",
                "10",
                "--bytes",
                "300",
                "--save-costs",
                str(saved),
                "--json",
            ]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert printed["fleet"]["payload_bytes"] == 300
    assert {"group", "name", "value", "unit", "source"} == set(printed["figures"][0])
    assert printed["ceilings"][0]["share"] > 0
    assert printed["tables"][0]["bytes_per_day"] > 0
    assert read_costs(saved) == read_costs(COSTS_FILE)


def test_a_size_needs_devices_or_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "size"]) == 2
    assert "--devices N or --markdown FILE" in capsys.readouterr().err
