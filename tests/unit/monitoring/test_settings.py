"""Settings of the monitor: what is read too rarely to be judged is refused where it is written."""

from typing import Any

import pytest
from pydantic import ValidationError

from deploy.local.embedded_settings import EmbeddedSettings
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.sample_history import History
from monitoring.scrape import Scrape
from monitoring.scrape_loop import STUCK_SECONDS, TIMEOUT_SECONDS
from monitoring.snapshot import figures


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("look_seconds", (0.5, 5), (0.4, 5.1, 60)),
        ("jmx_seconds", (1, 60), (0.5, 61)),
        ("tables_seconds", (1, 300), (0.5, 301)),
        ("audit_seconds", (0, 30, 600, 7200), (-1, 0.5, 29, 7201)),
    ],
)
def test_how_often_is_bounded(name: str, good: tuple[float, ...], bad: tuple[float, ...]) -> None:
    for seconds in good:
        assert getattr(MonitoringSettings.model_validate({name: seconds}), name) == seconds
    for seconds in (*bad, float("nan"), float("inf")):
        with pytest.raises(ValidationError, match=name):
            MonitoringSettings.model_validate({name: seconds})


def test_groups_are_named_as_their_programs_name_them() -> None:
    groups = ("my-app", "Abrechnung (neu)", "x" * 255)
    assert MonitoringSettings(consumer_groups=groups).consumer_groups == groups
    for name in ("", " my-app", "my-app ", "my\napp", "x" * 256):
        with pytest.raises(ValidationError, match=r"is not a name of a consumer group; write the `group\.id`"):
            MonitoringSettings(consumer_groups=("good", name))


def test_groups_are_few_since_each_has_a_client_and_series() -> None:
    twenty = tuple(f"app-{number}" for number in range(20))
    assert MonitoringSettings(consumer_groups=twenty).consumer_groups == twenty
    with pytest.raises(ValidationError, match="at most 20"):
        MonitoringSettings(consumer_groups=(*twenty, "one more"))


def test_the_canary_speaks_twice_within_the_minute_that_alerts_look_at() -> None:
    assert EmbeddedSettings(canary_seconds=20).canary_seconds == 20
    with pytest.raises(ValidationError, match="canary_seconds"):
        EmbeddedSettings(canary_seconds=21)


def _most(name: str) -> Any:
    (bound,) = (each.le for each in MonitoringSettings.model_fields[name].metadata if hasattr(each, "le"))
    return bound


def test_the_rarest_look_still_has_rates_and_health() -> None:
    """A turn comes a little late each time, as it does on a busy machine."""
    every = _most("look_seconds")
    received = ("tidegate_gateway_messages_received_total", (("qos", "1"),))
    history = History(figures.METRICS)
    for step in range(10):
        history.add(1000 + 1.02 * every * step, "tidegate-gateway", Scrape(0, {received: 100.0 * step}))
    assert figures.fleet_rates(history)["received"] is not None
    assert every + 2 * TIMEOUT_SECONDS < STUCK_SECONDS
