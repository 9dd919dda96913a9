"""A soak's arithmetic: slopes per hour, bounds, and what makes it fail."""

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from deploy.cli import app
from deploy.soak.figures import (
    BOUNDS,
    RestartSafeCounter,
    Slope,
    SoakSample,
    judge_soak,
    jvm_figures,
    slope_per_hour,
    slopes_of,
)
from deploy.soak.run import CALM_SECONDS, PARTS, SoakFault, kills_of, plan_faults
from monitoring.scrape import Scrape

CLEAN = {"received": 10, "unaccounted": 0, "duplicate_rows": 0, "order_violations": 0}


def samples(name: str, values: list[float], *, every: float = 10.0) -> list[SoakSample]:
    return [SoakSample(every * number, {name: value}) for number, value in enumerate(values)]


def verdict(slopes: list[Slope] | None = None, audit: dict[str, Any] = CLEAN, **more: Any) -> list[str]:
    usual = {
        "acknowledged": 10,
        "ceilings": {},
        "restarts": {"kafka": 0},
        "kills": {},
        "landing_failures": 0,
        "landing_faults": 0,
        "ready": True,
    }
    return list(judge_soak(slopes or [], audit, **{**usual, **more}).wrong)


@given(st.floats(-1000, 1000), st.floats(-1000, 1000), st.integers(2, 500))
def test_the_slope_of_a_line_is_its_own(per_hour: float, begin: float, count: int) -> None:
    points = [(10.0 * n, begin + per_hour * n / 360) for n in range(count)]
    found = slope_per_hour(points)
    assert found is not None
    assert math.isclose(found, per_hour, rel_tol=1e-6, abs_tol=1e-6)


def test_a_sawtooth_and_a_single_peak_have_no_slope() -> None:
    saw = [(10.0 * n, float(n % 30)) for n in range(720)]
    assert abs(slope_per_hour(saw) or 0.0) < 3
    assert slope_per_hour([(10.0 * n, 1e9 if n == 100 else 5.0) for n in range(720)]) == 0
    assert slope_per_hour([(0.0, 1.0)]) is None
    assert slope_per_hour([]) is None


def test_the_warm_up_does_not_count_and_a_short_soak_is_not_judged() -> None:
    warming = [min(n, 144) * 10.0 for n in range(720)]
    (slope,) = slopes_of(samples("memory_mb.gateway", warming))
    assert (slope.per_hour, slope.bound, slope.above) == (0, 60.0, False)
    assert (slope.first, slope.last, slope.most) == (0, 1440, 1440)
    (short,) = slopes_of(samples("memory_mb.gateway", [n * 100.0 for n in range(60)]))
    assert (short.per_hour, short.above) == (None, False)
    assert slopes_of([]) == []


def test_a_leak_is_above_its_bound_and_the_verdict_names_it() -> None:
    leak = samples("memory_mb.gateway", [100 + n * 0.5 for n in range(720)])
    slopes = slopes_of(leak)
    assert slopes[0].above
    assert verdict(slopes) == ["memory_mb.gateway grows by 180 an hour; the limit is 60"]
    # A figure without a bound is reported, not judged.
    assert verdict(slopes_of(samples("data_mb", [float(n) for n in range(720)]))) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"acknowledged": 11}, "the broker acknowledged 11 messages, but the audit found 10"),
        (
            {
                "slopes": [Slope("memory_mb.stream/java", 1.0, 4.0, 5.0, None, None)],
                "ceilings": {"memory_mb.stream/java": 4.5},
            },
            "memory_mb.stream/java reaches 5; the limit is 4.5",
        ),
        ({"audit": CLEAN | {"unaccounted": 2}}, "the audit found 2 unaccounted"),
        ({"audit": CLEAN | {"duplicate_rows": 1}}, "the audit found 1 duplicate rows"),
        ({"audit": CLEAN | {"order_violations": 1}}, "the audit found 1 order violations"),
        ({"restarts": {"stream": 1}}, "stream restarted 1 times, but the faults killed it 0 times"),
        (
            {"restarts": {"stream": 3}, "kills": {"stream": 2}},
            "stream restarted 3 times, but the faults killed it 2 times",
        ),
        ({"landing_failures": 1}, "the landing query failed 1 times, but the faults explain 0"),
        ({"ready": False}, "not all parts are ready at the end"),
    ],
)
def test_each_broken_promise_fails_the_soak(given: dict[str, Any], said: str) -> None:
    assert verdict() == []
    assert verdict(**given) == [said]


def test_every_bound_can_be_reached_by_a_name_that_is_sampled() -> None:
    assert list(BOUNDS).index("memory_mb.stream/java") < list(BOUNDS).index("memory_mb.*")
    assert all(bound is None or bound > 0 for bound in BOUNDS.values())


def test_faults_follow_from_the_seed_hit_every_part_and_leave_the_end_calm() -> None:
    planned = plan_faults(7, seconds=7200)
    assert planned == plan_faults(7, seconds=7200)
    assert planned != plan_faults(8, seconds=7200)
    assert {fault.part for fault in planned} == set(PARTS)
    assert {fault.way for fault in planned} == {"kill", "hang"}
    assert planned[0].at == CALM_SECONDS
    assert all(fault.at + fault.seconds <= 7200 - CALM_SECONDS for fault in planned)
    assert all(a.at + a.seconds < b.at for a, b in pairwise(planned))
    assert plan_faults(7, seconds=120) == []


def test_a_jvms_heap_counts_by_what_lives_after_a_full_collection() -> None:
    used = {("jvm_memory_used_bytes", (("area", "nonheap"),)): 2.0 * 1024**2}
    pools = {"PS Eden Space": 7.0, "PS Old Gen": 5.0}
    live = {("jvm_memory_pool_collection_used_bytes", (("pool", name),)): mb * 1024**2 for name, mb in pools.items()}
    assert jvm_figures("stream", Scrape(0.0, used | live)) == {"nonheap_mb.stream": 2.0, "heap_live_mb.stream": 5.0}
    assert jvm_figures("kafka", Scrape(0.0, used)) == {"nonheap_mb.kafka": 2.0}
    # Resident memory of a JVM fills up to the heap that it may have: it is held by its ceiling, not by its slope.
    (filling,) = slopes_of(samples("memory_mb.stream/java", [n * 10.0 for n in range(720)]))
    assert not filling.above


def test_only_a_kill_explains_a_restart() -> None:
    faults = [SoakFault(120, "gateway", "kill", 3.0), SoakFault(180, "stream", "hang", 30.0)]
    assert kills_of(faults) == Counter({"gateway": 5})


def test_a_counter_goes_on_over_a_restart_of_its_process() -> None:
    counted = RestartSafeCounter()
    for value in (1, 3, 0, 2):
        counted.add(value)
    assert counted.total == 5


def test_a_soak_is_refused_on_data_of_another_run(tmp_path: Any) -> None:
    (tmp_path / "tables").mkdir()
    result = CliRunner().invoke(app, ["soak", "--keep", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not empty" in result.output.replace("\n", " ")
