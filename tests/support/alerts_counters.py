"""What alerts that count are tried with: the first event fires, also after restarts."""

from collections.abc import Iterable

from monitoring.alerts.catalog import ALERTS
from monitoring.alerts.model import Alert
from monitoring.alerts.signals import IncreasedWithin
from tests.support.promtool import (
    OLD,
    Case,
    Key,
    Wave,
    always,
    key,
    steps,
    within,
)


def _happened() -> Iterable[tuple[Alert, IncreasedWithin]]:
    for alert in ALERTS:
        yield from ((alert, signal) for signal in within(alert.signal) if isinstance(signal, IncreasedWithin))


def counted(alert: Alert, signal: IncreasedWithin) -> list[Case]:
    """The first event is seen, also when it comes right after a start; a restart by itself is none."""
    job = {"tidegate_gat": "gateway", "tidegate_str": "stream", "tidegate_mon": "monitor"}[signal.select.metric[:12]]
    where = {name: value.lstrip("~").split("|")[0] for name, value in signal.select.where}
    labels = where or {"chore": {"chore": "derive"}, "sql": {"stream": "hot"}}.get(_kind(signal.select.metric), {})
    there, born = key(signal.select.metric, job, **labels), key("process_start_time_seconds", job)
    one, end = signal.more_than + 1, signal.seconds + 600
    say = signal.select.metric

    def told(count: Wave, start: Wave | None = None) -> dict[Key, Wave]:
        return {there: count, born: start or always(OLD)}

    return [
        Case(alert.name, f"{say}: the first", told(steps((0, 0.0), (300, one))), {285: 0, 330: 1, end: 0}),
        Case(alert.name, f"{say}: none", told(always(0.0)), {15: 0, 300: 0, 900: 0}),
        Case(alert.name, f"{say}: old ones only", told(always(7 * one)), {15: 0, 300: 0, 900: 0}),
        Case(
            alert.name,
            f"{say}: the first after a restart, before anybody asked",
            told(steps((0, one), (60, None), (90, one)), steps((0, OLD), (60, None), (90, 70.0))),
            {45: 0, 105: 1, signal.seconds + 120: 0},
        ),
        Case(
            alert.name,
            f"{say}: the first after the very first start",
            told(steps((60, one)), steps((60, 50.0))),
            {45: 0, 75: 1, signal.seconds + 120: 0},
        ),
        Case(
            alert.name,
            f"{say}: one after a restart that was at 0",
            told(steps((0, 5 * one), (60, None), (90, 0.0), (150, one)), steps((0, OLD), (60, None), (90, 70.0))),
            {45: 0, 120: 0, 180: 1},
        ),
        Case(
            alert.name,
            f"{say}: two restarts in a row",
            told(
                steps((0, 5 * one), (60, None), (90, 0.0), (150, None), (210, 0.0)),
                steps((0, OLD), (60, None), (90, 70.0), (150, None), (210, 200.0)),
            ),
            {45: 0, 105: 0, 225: 0, 600: 0},
        ),
    ]


def _kind(metric: str) -> str:
    return "chore" if "chore" in metric else "sql" if "_sql_" in metric else ""


CASES: list[Case] = [
    *(case for alert, signal in _happened() for case in counted(alert, signal)),
]
