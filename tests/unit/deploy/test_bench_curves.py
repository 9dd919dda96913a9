"""Curves of `bench run`: slope, bend and noise; cells that lie on one curve; their place in the report. And long scenarios."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.suite.curves import TrendPoint, curves_of, trend_of, trend_text
from deploy.bench.suite.judge import MeasuredCell, judge_cells
from deploy.bench.suite.library import names_by_length
from deploy.bench.suite.report.charts import charts_of
from deploy.bench.suite.report.growth import growth_rows, growth_table
from deploy.bench.suite.report.merge import merge_results
from deploy.bench.suite.scenario import Curve, Scenario
from deploy.bench.suite.spread import spread_of

XS = (10.0, 100.0, 1_000.0, 10_000.0, 100_000.0)


def points(*ys: float, xs: tuple[float, ...] = XS, width: float = 0.0) -> list[TrendPoint]:
    return [TrendPoint(x, y, y * (1 - width), y * (1 + width)) for x, y in zip(xs, ys, strict=False)]


@given(
    slope=st.floats(-2, 2),
    factor=st.floats(0.01, 1000),
    count=st.integers(3, 8),
    base=st.sampled_from([2.0, 4.0, 10.0]),
)
def test_a_power_of_x_has_its_slope_and_no_bend(slope: float, factor: float, count: int, base: float) -> None:
    xs = tuple(base**place for place in range(count))
    trend = trend_of(points(*(factor * x**slope for x in xs), xs=xs))
    assert trend is not None
    assert trend.slope == pytest.approx(slope, abs=1e-4)
    assert trend.bend is None and trend.slope_after is None


def test_a_figure_that_does_not_grow_is_flat() -> None:
    trend = trend_of(points(100, 103, 99, 101, 98))
    assert trend is not None and trend.is_flat
    assert trend_text(trend).endswith(": flat); no bend")


@pytest.mark.parametrize("place", [2, 3, 4])
def test_a_line_bends_at_the_first_point_beyond_it(place: int) -> None:
    ys = [80.0 if number < place else 80.0 * 3 ** (number - place + 1) for number in range(5)]
    trend = trend_of(list(reversed(points(*ys))))
    assert trend is not None
    assert trend.bend == XS[place]
    assert trend.slope == pytest.approx(0, abs=1e-6)
    assert trend.slope_after == pytest.approx(0.4771, abs=1e-3)
    assert f"bends at {XS[place]:,.0f}, from there x 1.39 per doubling" in trend_text(trend)


def test_a_cost_of_a_fixed_and_a_growing_part_bends_where_the_second_counts() -> None:
    trend = trend_of(points(*(100 + 0.01 * x for x in XS)))
    assert trend is not None
    assert trend.bend == 10_000
    assert trend.slope_after == pytest.approx(0.5, abs=0.01)


def test_a_bend_counts_only_beyond_the_spread_of_the_repeats() -> None:
    steady = trend_of(points(100, 100, 100, 130))
    noisy = trend_of(points(100, 100, 100, 130, width=0.3))
    assert steady is not None and steady.bend == 10_000
    assert noisy is not None and noisy.bend is None


def test_noise_as_large_as_the_spread_hardly_bends_a_line() -> None:
    chance, bent = random.Random(7), 0
    for _ in range(300):
        runs = [[50 * x**0.5 * chance.lognormvariate(0, 0.1) for _ in range(3)] for x in XS]
        spreads = [spread_of(run) for run in runs]
        trend = trend_of([TrendPoint(x, one.median, one.low, one.high) for x, one in zip(XS, spreads, strict=True)])
        assert trend is not None and abs(trend.slope - 0.5) < 0.5
        bent += trend.bend is not None
    assert bent < 60


@pytest.mark.parametrize("few", [[], points(1), points(1, 2), points(0, 1, 2), points(1, 2, 3, xs=(0.0, 1.0, 2.0))])
def test_there_is_no_slope_without_logarithms_or_points(few: list[TrendPoint]) -> None:
    assert trend_of(few) is None


SCENARIO = Scenario.model_validate(
    {
        "title": "growth",
        "matrix": [
            {"kind": "pipeline", "devices": [10, 1000], "rate": [100, 200]},
            {"kind": "pipeline", "devices": 100_000, "rate": [100, 200], "messages": 500},
            {"kind": "pipeline", "devices": 10, "rate": 300},
        ],
        "curves": [{"axis": "devices", "figures": ["p50_ms", "lost"], "follows": ["messages"]}],
    }
)


def rows() -> list[dict[str, Any]]:
    measured = [
        MeasuredCell(cell.parameters, {"p50_ms": spread_of([cell.workload.devices**0.5]), "lost": spread_of([0.0])})
        for cell in SCENARIO.cells()
    ]
    return judge_cells(SCENARIO, measured)


def test_cells_that_differ_in_the_axis_alone_are_one_curve() -> None:
    found = curves_of(SCENARIO.curves, rows())
    assert [(one["figure"], one["where"]) for one in found] == [
        ("p50_ms", "rate=100"), ("p50_ms", "rate=200"), ("lost", "rate=100"), ("lost", "rate=200"),
    ]  # fmt: skip
    assert [x for x, *_ in found[0]["points"]] == [10, 1000, 100_000]
    assert found[0]["slope"] == pytest.approx(0.5)
    assert found[2]["slope"] is None and "not always above 0" in found[2]["says"]
    assert curves_of([Curve(axis="devices", figures=["p50_ms", "unknown"])], rows()) == []


def test_curves_of_joined_results_go_through_the_cells_that_are_left() -> None:
    whole = {"scenario": "growth", "hardware": {"cpu": "a", "cores": 2, "memory_gb": 4}}
    again = [
        {**cell, "spread": {**cell["spread"], "p50_ms": spread_of([9.0]).as_dict()}}
        for cell in rows()
        if (cell["devices"], cell["rate"]) == (1000, 200)
    ]
    first = {**whole, "cells": rows(), "curves": curves_of(SCENARIO.curves, rows())}
    (merged,) = merge_results([first, {**whole, "cells": again, "curves": curves_of(SCENARIO.curves, again)}])
    drawn = {(one["figure"], one["where"]): [y for _, y, *_ in one["points"]] for one in merged["curves"]}
    assert drawn["p50_ms", "rate=200"] == [pytest.approx(10**0.5, rel=1e-4), 9, pytest.approx(100_000**0.5, rel=1e-4)]
    assert len(drawn) == 4


def test_the_report_has_a_row_and_a_line_per_curve() -> None:
    result = {"curves": curves_of(SCENARIO.curves, rows()), "cells": [], "resources": []}
    head, first, *_ = growth_rows(result)
    assert head == ("over", "figure", "points", "slope", "bend")
    assert first[:3] == ("devices (rate=100)", "p50_ms", "10: 3.162, 1,000: 31.62, 100,000: 316.2")
    assert "no bend" in first[4]
    assert "<td>devices (rate=200)</td>" in growth_table(result)
    (chart,) = charts_of(result)
    assert (chart["kind"], chart["names"]) == ("growth", ["rate=100", "rate=200"])
    assert growth_table({}) == "" and growth_rows({"curves": []}) == []


def test_a_curve_over_no_parameter_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the curve over device names \['device'\]"):
        Scenario.model_validate({"title": "x", "curves": [{"axis": "device", "figures": ["p50_ms"]}]})


def test_a_long_scenario_runs_by_its_name_or_with_the_other_long_ones(tmp_path: Path) -> None:
    (tmp_path / "day.toml").write_text('title = "a day"\nlong = true\n')
    (tmp_path / "usual.toml").write_text('title = "as usual"\n')
    assert names_by_length(usual=True, long=False, folder=tmp_path) == ("usual",)
    assert names_by_length(usual=False, long=True, folder=tmp_path) == ("day",)
    assert names_by_length(usual=True, long=True, folder=tmp_path) == ("day", "usual")
