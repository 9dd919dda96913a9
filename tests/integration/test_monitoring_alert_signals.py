"""Each kind of condition, over random series: the monitor's own check fires when Prometheus' rule does.

Series have restarts, gaps and ends. Prometheus stretches an increase to the edges of its window and the memory does not, so a
moment at which three times more or less would decide otherwise is left out; most are left in, which is asserted.
"""

import random
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any

from monitoring.alerts.model import Alert
from monitoring.alerts.operands import (
    Age,
    Changes,
    Difference,
    Increase,
    MinOverTime,
    Quotient,
    SubtractIfPresent,
    Sum,
    TimeUntil,
    select,
)
from monitoring.alerts.signals import Both, Compare, Either, Growing, IncreasedWithin, Signal, Unless, started_within

STRETCH = 3.3
STEPS = 60
SEEDS = 24
STEP = 15
MINUTES = range(60, STEPS * STEP, 60)
GAUGE, OTHER, MOMENT, COUNTER, TOTAL = "gauge", "other", "moment_seconds", "counter_total", "all_total"

Factory = Callable[[float], Signal]
KINDS: dict[str, Factory] = {
    "Value": lambda _: Compare(select(GAUGE), ">", 5),
    "ValueOfOne": lambda _: Compare(select(GAUGE, x="a"), "<=", 5),
    "ValueByPattern": lambda _: Compare(select(GAUGE, x="~b|c"), "==", 0),
    "ValueOfOthers": lambda _: Compare(select(GAUGE, x="!a"), "!=", 0),
    "SumOfGauges": lambda _: Compare(Sum(select(GAUGE), ("x",)), ">=", 9),
    "SumOfAll": lambda _: Compare(Sum(select(GAUGE), ("*",)), ">", 9),
    "Age": lambda _: Compare(Age(select(MOMENT)), ">", 200),
    "TimeUntil": lambda _: Compare(TimeUntil(select(MOMENT)), "<", -200),
    "Gained": lambda factor: Compare(Increase(select(COUNTER), 120), ">", 20 * factor),
    "GainedAnything": lambda _: Compare(Increase(select(COUNTER), 120), ">", 0),
    "GainedTogether": lambda factor: Compare(Sum(Increase(select(COUNTER), 120), ("x",)), ">", 40 * factor),
    "Share": lambda factor: Compare(
        Quotient(Sum(Increase(select(COUNTER), 120), ("x",)), Sum(Increase(select(TOTAL), 120), ("x",)), 10 * factor),
        ">",
        0.1 * factor,
    ),
    "SharePartOfRest": lambda factor: Compare(
        Quotient(
            Sum(Increase(select(COUNTER), 120), ("x",)),
            SubtractIfPresent(Sum(Increase(select(TOTAL), 120), ("x",)), select(OTHER, x="a")),
            10 * factor,
        ),
        ">",
        0.1 * factor,
    ),
    "RestOfGauges": lambda _: Compare(SubtractIfPresent(Sum(select(GAUGE), ("x",)), select(OTHER, x="a")), ">", 5),
    "LeastOfSome": lambda _: Compare(MinOverTime(select(GAUGE), 120), "==", 0),
    "Rose": lambda _: Compare(Difference(select(GAUGE), MinOverTime(select(GAUGE), 120)), ">", 2),
    "AgePastAnother": lambda _: Compare(Difference(Age(select(MOMENT)), select(OTHER)), ">", 200),
    "ChangedOften": lambda _: Compare(Changes(select(GAUGE), 120), ">", 4),
    "RestartedOften": lambda _: Compare(
        Changes(select("process_start_time_seconds", job="~tidegate-pa.*"), 300), ">", 1
    ),
    "ShareOfGauges": lambda _: Compare(Quotient(Sum(select(GAUGE), ("x",)), Sum(select(OTHER), ("x",)), 4), ">", 0.5),
    "HappenedOnce": lambda _: IncreasedWithin(select(COUNTER), 120),
    "HappenedOften": lambda factor: IncreasedWithin(select(COUNTER), 120, more_than=20 * factor),
    "Growing": lambda _: Growing(select(GAUGE), ("x",), step_seconds=30, floor=4),
    "GrowsEach": lambda _: Growing(select(GAUGE), (), step_seconds=60, floor=2),
    "Both": lambda _: Both(Compare(select(GAUGE), ">", 3), Compare(select(OTHER), ">", 3), on=("x",)),
    "BothOfAny": lambda _: Both(Compare(select(GAUGE), ">", 3), Compare(select(OTHER), "==", 0), on=()),
    "Unless": lambda _: Unless(Compare(select(GAUGE), ">", 3), Compare(select(OTHER), ">", 3), on=("job", "x")),
    "UnlessYoung": lambda _: Unless(
        Compare(select(GAUGE), ">", 3), started_within("tidegate-part", 120), on=("job", "instance")
    ),
    "Either": lambda _: Either(Compare(select(GAUGE), ">", 7), Compare(select(OTHER), "==", 0)),
}
"""Kind -> the condition with its bounds on gains times a factor."""


def as_alert(name: str, signal: Signal, *, seconds: int = 0, keep: int = 0) -> Alert:
    return Alert(name, "gateway", "warning", signal, "", "", "", (), (), for_seconds=seconds, keep_firing_seconds=keep)


def random_series(rng: random.Random) -> dict[Any, list[float | None]]:
    """One part with restarts; three series of each metric."""
    away = _spells(rng, 0.05)
    born = _births(rng)
    series: dict[Any, list[float | None]] = {}

    def put(metric: str, x: str | None, samples: Sequence[float]) -> None:
        labels = {"job": "tidegate-part", "instance": "p:1"} | ({} if x is None else {"x": x})
        gone = _spells(rng, 0.02)
        series[metric, tuple(sorted(labels.items()))] = [
            None if away[step] or gone[step] else value for step, value in enumerate(samples)
        ]

    put("process_start_time_seconds", None, [float(born[step]) for step in range(STEPS)])
    for x in ("a", "b", "c"):
        put(GAUGE, x, _walk(rng))
        put(OTHER, x, _walk(rng))
        put(MOMENT, x, [0.0 if step < 12 else max(0.0, (step - rng.randint(0, 30)) * 15.0) for step in range(STEPS)])
        counter, total = _counters(rng, born)
        put(COUNTER, x, counter)
        put(TOTAL, x, total)
    return series


def _spells(rng: random.Random, chance: float) -> list[bool]:
    found: list[bool] = []
    while len(found) < STEPS:
        found += [True] * rng.randint(1, 8) if rng.random() < chance else [False]
    return found[:STEPS]


def _births(rng: random.Random) -> list[int]:
    now, found = -100_000, []
    for step in range(STEPS):
        now = step * 15 - 5 if rng.random() < 0.04 else now
        found.append(now)
    return found


def _walk(rng: random.Random) -> list[float]:
    value, found = rng.randint(0, 8), []
    for _ in range(STEPS):
        if rng.random() < 0.5:
            value = max(0, value + rng.choice([-3, -1, 1, 1, 2]))
        found.append(float(value))
    return found


def _counters(rng: random.Random, born: Sequence[int]) -> tuple[list[float], list[float]]:
    part, whole, found = 1000.0, 5000.0, ([], [])
    pace = 0
    for step in range(STEPS):
        if step and born[step] != born[step - 1]:
            part, whole = float(rng.choice([0, 0, 1, 60])), 100.0
        if rng.random() < 0.15:
            pace = rng.choice([0, 0, 0, 1, 30])
        part, whole = part + pace, whole + 40
        found[0].append(part)
        found[1].append(whole)
    return found


def expected(found: set[Any]) -> list[dict[str, Any]]:
    return list(starmap(_sample, found))


def _sample(name: str, labels: Sequence[tuple[str, str]]) -> dict[str, Any]:
    pairs = [("alertname", name), ("alertstate", "firing"), *labels]
    return {"labels": "ALERTS{" + ", ".join(f'{key}="{value}"' for key, value in pairs) + "}", "value": 1}


def test_every_kind_of_condition_agrees_with_prometheus_at_each_minute(
    promtool_test: Any, as_input_series: Any, built_in: Any
) -> None:
    exact = {name: as_alert(name, make(1.0)) for name, make in KINDS.items()}
    loose = [as_alert(name, make(1 / STRETCH)) for name, make in KINDS.items()]
    strict = [as_alert(name, make(STRETCH)) for name, make in KINDS.items()]
    held = as_alert("Held", Compare(select(GAUGE), ">", 3), seconds=60, keep=75)
    tests, compared, fired = [], dict.fromkeys(exact, 0), dict.fromkeys(exact, 0)
    for seed in range(SEEDS):
        series = random_series(random.Random(seed))
        found, low, high = (built_in(alerts, series, MINUTES) for alerts in ([*exact.values(), held], loose, strict))
        checks = []
        for minute in MINUTES:
            for name in [*exact, "Held"]:
                here, more, less = ({each for each in of[minute] if each[0] == name} for of in (found, low, high))
                if name == "Held" or here == more == less:
                    checks.append((minute, name, here))
                    if name in compared:
                        compared[name] += 1
                        fired[name] += bool(here)
        tests.append(
            {
                "interval": f"{STEP}s",
                "input_series": as_input_series(series),
                "promql_expr_test": [
                    {
                        "expr": f'ALERTS{{alertname="{name}", alertstate="firing"}}',
                        "eval_time": f"{minute}s",
                        "exp_samples": expected(here),
                    }
                    for minute, name, here in checks
                ],
            }
        )
    rules = [{"alert": name, "expr": alert.signal.promql()} for name, alert in exact.items()]
    rules.append({"alert": "Held", "expr": held.signal.promql(), "for": "60s", "keep_firing_for": "75s"})
    promtool_test(
        ({"groups": [{"name": "kinds", "rules": rules}]}, {"evaluation_interval": f"{STEP}s", "tests": tests})
    )
    total = SEEDS * len(MINUTES)
    assert {name: count for name, count in compared.items() if count < total / 3} == {}
    assert {name: (fired[name], compared[name]) for name in fired if not 10 < fired[name] < compared[name] - 10} == {}
