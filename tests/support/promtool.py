"""Real promtool: one file of rules, one of tests, one run; and the same series through the monitor's own memory.

The words in which cases are written are imported from here: `from tests.support.promtool import Case`.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from monitoring.alerts.catalog import ALERTS
from monitoring.alerts.evaluate import Evaluator, used_metrics
from monitoring.alerts.model import Alert
from monitoring.alerts.rules import rule_file
from monitoring.alerts.signals import Either, Signal
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.sample_history import History
from monitoring.scrape import Scrape

STEP = 15
"""Seconds between two samples, and between two evaluations."""

HOUR, DAY = 3600, 86400
OLD = -1_000_000.0
"""Start of a process that has been running for days; promtool's clock begins at 0."""

Wave = Callable[[int], float | None]
Key = tuple[str, tuple[tuple[str, str], ...]]
Series = Mapping[Key, Sequence[float | None]]
"""(metric, labels with job and instance) -> a sample per step; None where the part did not tell it."""
Firing = list[tuple[str, tuple[tuple[str, str], ...]]]
"""(alert, labels without those that a rule adds)."""


def key(metric: str, job: str, **labels: str) -> Key:
    """A series of one part."""
    return metric, tuple(sorted({**labels, "job": f"tidegate-{job}", "instance": f"{job}:1"}.items()))


def steps(*parts: tuple[int, float | None]) -> Wave:
    """(from second, value) pairs in order; before the first there is nothing."""

    def wave(second: int) -> float | None:
        found = None
        for since, value in parts:
            if second >= since:
                found = value
        return found

    return wave


def always(value: float) -> Wave:
    return lambda _: value


def counter(per_second: float, start: float = 0.0, *, since: int = 0) -> Wave:
    return lambda second: start + per_second * max(0, second - since)


@dataclass(frozen=True)
class Case:
    """What is told, and how many alerts of the name fire at which second."""

    alert: str
    title: str
    told: Mapping[Key, Wave]
    firing: Mapping[int, int] = field(default_factory=dict)

    @property
    def seconds(self) -> int:
        return max(self.firing)

    def series(self) -> dict[Key, list[float | None]]:
        return {each: [wave(second) for second in range(0, self.seconds + 1, STEP)] for each, wave in self.told.items()}


def of(
    name: str, there: Key, *told: tuple[str, Wave, Mapping[int, int]], beside: Mapping[Key, Wave] | None = None
) -> list[Case]:
    """Cases of one series, each with its title, its course and what fires; beside it others that are alike in all."""
    return [Case(name, title, {there: wave, **(beside or {})}, firing) for title, wave, firing in told]


def gauge(name: str, metric: str, job: str, *, good: float, bad: float, seconds: int, **labels: str) -> list[Case]:
    """Good, then bad from 120 s on, then good again for long."""
    first = 120 + -(-seconds // STEP) * STEP
    there = key(metric, job, **labels)
    old = {key("process_start_time_seconds", job): always(OLD)}
    fired = next(alert for alert in ALERTS if alert.name == name and alert.for_seconds == seconds)
    end = first + 300 + fired.keep_firing_seconds
    return [
        Case(
            name,
            "bad",
            {there: steps((0, good), (120, bad), (first + 240, good)), **old},
            {105: 0, first + 30: 1, end: 0},
        ),
        Case(name, "good", {there: always(good), **old}, {60: 0, 600: 0, 1800: 0}),
    ]


def monitor_first(name: str, metric: str) -> Case:
    """What the monitor cannot reach yet, since it started first, is no failure."""
    return Case(
        name,
        "the monitor started before it",
        {
            key(metric, "monitor"): steps((0, 0.0), (60, 1.0)),
            key("process_start_time_seconds", "monitor"): always(1.0),
        },
        {30: 0, 45: 0, 75: 0, 300: 0},
    )


def shares(name: str, part: Callable[[float], Mapping[Key, Wave]], *, good: float, bad: float, at: int) -> list[Case]:
    return [
        Case(name, "bad", part(bad), {15: 0, at: 1}),
        Case(name, "good", part(good), {60: 0, 300: 0, at: 0, 2 * at: 0}),
    ]


def restarts(job: str, every: int, until: int) -> dict[Key, Wave]:
    """A part that is started anew so often, and answers most of the time."""
    born = key("process_start_time_seconds", job)
    return {born: lambda second: OLD if second < every else float(min(second, until) // every * every - 3)}


def rules_of(*words: str) -> dict[str, Any]:
    """The rules of our file that have one of the words in their name."""
    groups = [
        {
            **group,
            "rules": [
                rule
                for rule in group["rules"]
                if any(word in str(rule.get("alert", rule.get("record"))) for word in words)
            ],
        }
        for group in rule_file(MonitoringSettings())["groups"]
    ]
    return {"groups": groups}


def firing(name: str) -> str:
    return f'count(ALERTS{{alertname="{name}", alertstate="firing"}})'


def samples(count: int) -> list[dict[str, Any]]:
    return [{"labels": "{}", "value": count}] if count else []


def as_test(case: Case, as_input_series: Any) -> dict[str, Any]:
    return {
        "name": f"{case.alert}: {case.title}",
        "interval": f"{STEP}s",
        "input_series": as_input_series(case.series()),
        "promql_expr_test": [
            {"expr": firing(case.alert), "eval_time": f"{at}s", "exp_samples": samples(count)}
            for at, count in case.firing.items()
        ],
    }


def pairs(cases: Iterable[Case], as_input_series: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Rules and tests of each alert, for one run of promtool over all of them."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        by_name.setdefault(case.alert, []).append(as_test(case, as_input_series))
    return [
        (rules_of(name), {"evaluation_interval": f"{STEP}s", "tests": tests}) for name, tests in sorted(by_name.items())
    ]


def each_built_in(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """The cases of alerts that the monitor checks itself too, a test each."""
    known = [case for case in cases if next(a for a in ALERTS if a.name == case.alert).builtin]
    return pytest.mark.parametrize("case", known, ids=lambda case: f"{case.alert}: {case.title}")


def fired(case: Case, built_in: Any) -> dict[int, int]:
    """How many alerts the monitor's own check fires at the seconds of the case."""
    found = built_in([alert for alert in ALERTS if alert.name == case.alert], case.series(), case.firing)
    return {at: len(each) for at, each in found.items()}


def within(signal: Signal) -> tuple[Signal, ...]:
    return (*within(signal.one), *within(signal.other)) if isinstance(signal, Either) else (signal,)


def firing_and_quiet(cases: Sequence[Case]) -> tuple[set[str], set[str]]:
    """Alerts with a case in which they fire, and those with one in which they never do."""
    return (
        {case.alert for case in cases if any(case.firing.values())},
        {case.alert for case in cases if not any(case.firing.values())},
    )


@pytest.fixture(scope="session")
def promtool_test(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Runs `promtool test rules` once over pairs of rules and tests; fails with what promtool says."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")

    def run(*pairs: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
        folder = tmp_path_factory.mktemp("promtool")
        for number, (rules, tests) in enumerate(pairs):
            # JSON is YAML, and quick to write.
            (folder / f"rules{number}.yml").write_text(json.dumps(rules), "utf-8")
            content = {**tests, "rule_files": [f"rules{number}.yml"]}
            (folder / f"tests{number}.yml").write_text(json.dumps(content), "utf-8")
        files = [f"tests{number}.yml" for number in range(len(pairs))]
        done = subprocess.run(
            [program, "test", "rules", *files], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{folder}\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}"

    return run


@pytest.fixture(scope="session")
def as_input_series() -> Callable[[Series], list[dict[str, str]]]:
    """Series in promtool's words: a sample that is missing ends its series, as a scrape without it does."""

    def values(samples: Sequence[float | None]) -> str:
        words, before = [], None
        for value in samples:
            words.append(f"{value!r}" if value is not None else "stale" if before is not None else "_")
            before = value
        return " ".join(words).replace("inf", "Inf")

    def convert(series: Series) -> list[dict[str, str]]:
        return [
            {"series": written(metric, labels), "values": values(samples)}
            for (metric, labels), samples in series.items()
        ]

    return convert


def written(metric: str, labels: Iterable[tuple[str, str]]) -> str:
    return metric + "{" + ", ".join(f'{name}="{value}"' for name, value in labels) + "}"


@pytest.fixture(scope="session")
def built_in() -> Callable[[Sequence[Alert], Series, Iterable[int]], dict[int, Firing]]:
    """What the monitor's own evaluation fires at each of the given seconds, over the same series."""

    def run(alerts: Sequence[Alert], series: Series, at_seconds: Iterable[int]) -> dict[int, Firing]:
        wanted = set(at_seconds)
        history = History(used_metrics(alerts), seconds=3600)
        evaluator = Evaluator(alerts)
        found: dict[int, Firing] = {}
        for step in range(max(wanted) // STEP + 1):
            now = step * STEP
            _feed(history, series, step, now)
            states = evaluator.step(history, float(now))
            if now in wanted:
                found[now] = [(each.alert.name, each.labels) for each in states if each.state == "firing"]
        return found

    return run


def _feed(history: History, series: Series, step: int, now: int) -> None:
    told: dict[tuple[str, str], dict[Any, float]] = {}
    up: dict[tuple[str, str], float | None] = {}
    for (metric, labels), samples in series.items():
        own = dict(labels)
        target = own.pop("job"), own.pop("instance")
        value = samples[step] if step < len(samples) else None
        values = told.setdefault(target, {})
        if metric == "up":
            up[target] = value
        elif value is not None:
            values[metric, tuple(sorted(own.items()))] = value
    for (job, instance), values in told.items():
        silent = not values if (job, instance) not in up else not up[job, instance]
        history.add(float(now), job, None if silent else Scrape(0.0, values), instance=instance)
