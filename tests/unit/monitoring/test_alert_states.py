"""pending, firing, resolved: as Prometheus, and in words for the page."""

import random
from typing import Any

from monitoring.alerts.evaluate import RESOLVED_SECONDS, AlertState, Evaluator
from monitoring.alerts.model import Alert
from monitoring.alerts.operands import select
from monitoring.alerts.signals import Compare, Growing, PrometheusQuery
from monitoring.sample_history import History
from monitoring.scrape import Scrape


def alert(name: str = "Down", *, seconds: int = 10, keep: int = 0, **more: Any) -> Alert:
    given: dict[str, Any] = {
        "part": "gateway",
        "severity": "critical",
        "signal": Compare(select("n", job="g"), "==", 0),
        **more,
    }
    return Alert(
        name,
        summary="It is down",
        text="{x} is at {value}.",
        impact="Much.",
        causes=("A", "B"),
        actions=("Do.",),
        for_seconds=seconds,
        keep_firing_seconds=keep,
        **given,
    )


class Run:
    """One gauge of two label sets, and the states as they go."""

    def __init__(self, *alerts: Alert) -> None:
        self.history, self.evaluator = History({"n"}), Evaluator(alerts)

    def step(self, at: float, **values: float) -> list[AlertState]:
        self.history.add(at, "g", Scrape(0.0, {("n", (("x", x),)): value for x, value in values.items()}))
        return self.evaluator.step(self.history, at)


def seen(states: list[AlertState]) -> list[tuple[str, str, float]]:
    return [(dict(each.labels)["x"], each.state, each.since) for each in states]


def test_it_is_pending_then_fires_then_is_resolved_and_forgotten() -> None:
    run = Run(alert())
    assert seen(run.step(100, a=1)) == []
    assert seen(run.step(102, a=0)) == [("a", "pending", 102)]
    assert seen(run.step(111, a=0)) == [("a", "pending", 102)]
    assert seen(run.step(112, a=0)) == [("a", "firing", 112)]
    assert seen(run.step(114, a=1)) == [("a", "resolved", 114)]
    assert seen(run.step(113 + RESOLVED_SECONDS, a=1)) == [("a", "resolved", 114)]
    assert seen(run.step(114 + RESOLVED_SECONDS, a=1)) == []


def test_what_comes_and_goes_is_never_firing() -> None:
    run = Run(alert())
    for step in range(40):
        assert all(state != "firing" for _, state, _ in seen(run.step(100 + 2 * step, a=float(step % 4 == 3))))


def test_one_that_is_kept_fires_on_until_it_was_quiet_for_long_enough() -> None:
    run = Run(alert(keep=6))
    run.step(100, a=0)
    assert seen(run.step(110, a=0)) == [("a", "firing", 110)]
    assert seen(run.step(112, a=1)) == [("a", "firing", 110)]
    assert seen(run.step(114, a=0)) == [("a", "firing", 110)], "it begins anew"
    assert seen(run.step(116, a=1)) == [("a", "firing", 110)]
    assert seen(run.step(121, a=1)) == [("a", "firing", 110)]
    assert seen(run.step(122, a=1)) == [("a", "resolved", 122)]


def test_each_label_set_has_its_own_state() -> None:
    run = Run(alert())
    run.step(100, a=0, b=1)
    assert seen(run.step(110, a=0, b=0)) == [("a", "firing", 110), ("b", "pending", 110)]


def test_a_resolved_one_that_comes_back_begins_as_pending() -> None:
    run = Run(alert())
    for at, value in ((100, 0), (110, 0), (112, 1)):
        run.step(at, a=value)
    assert seen(run.step(120, a=0)) == [("a", "pending", 120)]


def test_a_clock_that_is_set_back_keeps_no_alert_waiting() -> None:
    run = Run(alert())
    run.step(5000, a=0)
    assert seen(run.step(100, a=0)) == [("a", "pending", 100)]
    assert seen(run.step(110, a=0)) == [("a", "firing", 110)]


def test_without_a_wait_the_first_look_fires() -> None:
    assert seen(Run(alert(seconds=0)).step(100, a=0)) == [("a", "firing", 100)]


def test_what_prometheus_alone_can_see_is_not_judged_here() -> None:
    assert Run(alert(signal=PrometheusQuery("vector(1)"))).step(100, a=0) == []


def test_the_worst_is_first_and_what_follows_names_its_cause() -> None:
    warning = alert("Late", seconds=0, severity="warning", follows=("Cause", "Target/g", "Target/other"))
    cause = alert("Cause", seconds=0, signal=Compare(select("n"), "==", 0))
    target = alert("Target", seconds=0)
    states = Run(warning, cause, target).step(100, a=0)
    assert [each.alert.name for each in states] == ["Cause", "Target", "Late"]
    assert [each.explained_by for each in states] == [(), (), ("Cause", "Target/g")]


def test_a_critical_one_stands_for_the_warning_of_the_same_thing() -> None:
    warning = alert(seconds=0, severity="warning", signal=Compare(select("n"), "<", 5))
    critical = alert(seconds=0, signal=Compare(select("n"), "<", 1))
    states = Run(warning, critical).step(100, a=0, b=3)
    assert [(each.alert.severity, dict(each.labels)["x"], each.explained_by) for each in states] == [
        ("critical", "a", ()),
        ("warning", "a", ("Down",)),
        ("warning", "b", ()),
    ]


def test_the_page_gets_all_that_it_shows() -> None:
    (state,) = Run(alert(seconds=0, labels=(("by", "space"),))).step(100, a=0)
    assert state.as_dict() == {
        "name": "Down",
        "severity": "critical",
        "state": "firing",
        "since": 100,
        "value": 0.0,
        "labels": {"job": "g", "x": "a", "by": "space"},
        "summary": "It is down",
        "impact": "Much.",
        "causes": ["A", "B"],
        "actions": ["Do."],
        "runbook": "/runbooks/Down",
        "source": "builtin",
        "part": "gateway",
        "text": "a is at 0.",
        "explained_by": [],
    }


def test_figures_read_as_people_write_them() -> None:
    def shown(value: float, unit: Any) -> str:
        return alert(unit=unit).sentence(value, {"x": "It"})

    assert shown(0.1234, "ratio") == "It is at 12.3%."
    assert shown(59, "seconds") == "It is at 59 s."
    assert shown(7300, "seconds") == "It is at 2.0 h."
    assert shown(3 * 2**30, "bytes") == "It is at 3 GiB."
    assert shown(2**20, "bytes") == "It is at 1 MiB."
    assert shown(1234567, "count") == "It is at 1,234,567."
    assert shown(0.25, "days") == "It is at 0.25."


def test_what_grows_stays_in_alarm_whatever_noise_was_before_and_upon_it() -> None:
    grows, noise = Growing(select("n"), (), step_seconds=120, floor=1000), random.Random(7)
    history, first, seen_at = History({"n"}), 1_000_000.0, []
    for second in range(0, 900, 2):
        now, lag = first + second, noise.uniform(0, 60) + 20.0 * max(0, second - 300)
        history.add(now, "k", Scrape(0.0, {("n", (("topic", "t"),)): lag}))
        if grows.value(history, now):
            seen_at.append(second)
    assert 300 + 50 < seen_at[0] <= 300 + 150
    assert seen_at == list(range(seen_at[0], 900, 2)), "without a pause"


def test_what_falls_is_no_longer_called_growing() -> None:
    grows, history = Growing(select("n"), (), step_seconds=120, floor=1000), History({"n"})
    for second in range(0, 900, 2):
        lag = 20.0 * second if second < 600 else 12_000.0 - 100 * (second - 600)
        history.add(1_000_000.0 + second, "k", Scrape(0.0, {("n", (("topic", "t"),)): lag}))
        if second in (598, 720):
            assert bool(grows.value(history, 1_000_000.0 + second)) is (second == 598)
