"""Real promtool: one file of rules, one of tests, one run; and the same series through the monitor's own memory."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from monitoring.alerts.evaluate import Evaluator, used_metrics
from monitoring.alerts.model import Alert
from monitoring.history import History
from monitoring.scrape import Scrape

STEP = 15
"""Seconds between two samples, and between two evaluations."""

Series = Mapping[tuple[str, tuple[tuple[str, str], ...]], Sequence[float | None]]
"""(metric, labels with job and instance) -> a sample per step; None where the part did not tell it."""
Firing = list[tuple[str, tuple[tuple[str, str], ...]]]
"""(alert, labels without those that a rule adds)."""


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
