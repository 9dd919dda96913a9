"""The two objectives, freshness and validity: bad events, all events, and how fast the budget burns.

The windows are those of the SRE workbook: 14.4 times over an hour spends 2 % of a month's budget, 6 times over six hours
5 %, once over three days 10 %. A short window ends the alert soon after the cause is gone. Two guards keep a few bad events from
counting as a large share: a minimum of events, and events that were counted in the first third of the long window.
"""

from dataclasses import dataclass
from typing import Final

from monitoring.alerts.model import Alert, Severity
from monitoring.alerts.signals import PrometheusQuery
from monitoring.indicators import EventCount, Indicator, freshness, validity
from monitoring.monitoring_settings import MonitoringSettings

__all__ = ["GUARDED", "PAIRS", "WINDOWS", "Objective", "burn_alerts", "objectives"]

WINDOWS: Final = ("5m", "30m", "1h", "6h", "3d")
"""Windows over which the share of bad events is recorded."""
GUARDED: Final = frozenset({"5m", "1h", "6h", "3d"})
"""Windows over which the number of events is recorded too, for the guards against few events."""


@dataclass(frozen=True)
class BurnWindows:
    """A long and a short window, and how many times faster than allowed the budget burns over both.

    `began` is a span and an offset within the long window in which events must have been counted: the figures of a window that
    has only just begun are wrong.
    """

    factor: float
    long: str
    short: str
    began: str
    severity: Severity


PAIRS: Final = (
    BurnWindows(14.4, "1h", "5m", "[20m] offset 40m", "critical"),
    BurnWindows(6.0, "6h", "30m", "[2h] offset 4h", "critical"),
    BurnWindows(1.0, "3d", "6h", "[1d] offset 2d", "warning"),
)


@dataclass(frozen=True)
class Objective:
    """One objective: the rates of bad events and of all events; both contain `WINDOW` in place of the window."""

    name: str
    target: float
    all: str
    bad: str
    minimum: int

    def errors(self, window: str) -> str:
        """Return the name of the recorded share of bad events."""
        return f"job:tidegate_{self.name}_errors:ratio_rate{window}"

    def events(self, window: str) -> str:
        """Return the name of the recorded number of events."""
        return f"job:tidegate_{self.name}_events:increase{window}"

    def burns(self, pair: BurnWindows) -> str:
        """Return the condition of one pair of windows."""
        bound = f"({pair.factor:g} * {1 - self.target:.10g})"
        return (
            f"{self.errors(pair.long)} > {bound} and {self.errors(pair.short)} > {bound} "
            f"and {self.events(pair.long)} >= {self.minimum} "
            f"and last_over_time({self.events('5m')}{pair.began}) > 0"
        )


def objectives(settings: MonitoringSettings) -> tuple[Objective, Objective]:
    """Return freshness (canary readings queryable in time) and validity (received messages that were not rejected)."""
    return (
        _objective("freshness", settings.freshness_objective, freshness(settings.freshness_seconds), minimum=60),
        _objective("validity", settings.validity_objective, validity(), minimum=500),
    )


def _objective(name: str, target: float, indicator: Indicator, *, minimum: int) -> Objective:
    return Objective(name, target, indicator.all_promql(_rate), indicator.bad_promql(_rate), minimum)


def _rate(count: EventCount) -> str:
    """Return the rate per job, all its addresses together."""
    where = f"{{{count.where}}}" if count.where else ""
    return f"sum without({', '.join((*count.over, 'instance'))}) (rate({count.metric}{where}[WINDOW]))"


def burn_alerts(settings: MonitoringSettings) -> tuple[Alert, ...]:
    """Return one alert per objective and pair of windows. Only Prometheus keeps a history that is long enough for them."""
    fresh, valid = objectives(settings)
    return (
        *(_freshness(settings, pair, fresh.burns(pair)) for pair in PAIRS),
        *(_validity(pair, valid.burns(pair)) for pair in PAIRS),
    )


def _freshness(settings: MonitoringSettings, pair: BurnWindows, expression: str) -> Alert:
    return Alert(
        name="TidegateFreshnessBudgetBurns",
        part="stream",
        severity=pair.severity,
        labels=(("window", pair.long),),
        signal=PrometheusQuery(expression),
        unit="ratio",
        summary=f"Too many readings are late: the freshness budget burns ({pair.long} and {pair.short})",
        text=f"{{value}} of the canary readings in the last {pair.long} were not queryable "
        f"within {settings.freshness_seconds:g} s.",
        impact=f"If this goes on, less than {settings.freshness_objective:.4g} of the readings will be in time.",
        causes=(
            "A part was down: readings are late after an outage, or never arrive.",
            "Batches take too long: small files, a background task, a machine that is too small.",
            "More comes in than the stream can process.",
        ),
        actions=(
            "`tidegate status`: if a part is down or lag grows, follow that alert first.",
            "`tidegate trace --device tidegate-canary`: find the hop that takes the time.",
            "`tidegate logs stream -n 100`: check how long batches take.",
            "`tidegate tables ls`: look for small files. `tidegate maintain` joins them.",
        ),
        follows=(
            "TidegateKafkaUnreachable",
            "TidegateBrokerUnreachable",
            "TidegateStreamStalled",
            "TidegateCanaryMissing",
        ),
    )


def _validity(pair: BurnWindows, expression: str) -> Alert:
    return Alert(
        name="TidegateValidityBudgetBurns",
        part="gateway",
        severity=pair.severity,
        labels=(("window", pair.long),),
        signal=PrometheusQuery(expression),
        unit="ratio",
        summary=f"Too many messages are rejected: the validity budget burns ({pair.long} and {pair.short})",
        text=f"{{value}} of the messages in the last {pair.long} were rejected.",
        impact="Their readings are in no table until they are redriven.",
        causes=(
            "Firmware, a route or a profile was changed.",
            "Some devices have been sending invalid messages for days.",
            "Clocks of devices are wrong.",
        ),
        actions=(
            "`tidegate dlq ls`: find the reason, device and topic with the most dead letters.",
            "`tidegate dlq show ID`: show what the message held, what was expected, and what to do.",
            "Fix the device, route or profile. Test it with `tidegate dlq redrive --dry-run --try FILE`.",
            "`tidegate dlq redrive`: store the messages that are valid now.",
        ),
    )
