"""The two objectives, freshness and validity: what counts as bad, what was counted, and how fast the budget burns.

The windows are those of the SRE workbook: 14.4 times over an hour spends 2 % of a month's budget, 6 times over six hours
5 %, once over three days 10 %. A short window ends the alert soon after the cause has gone. Two guards keep a few bad events from
looking like a share: a minimum of events, and something that was counted when two thirds of the long window began.
"""

from dataclasses import dataclass
from typing import Final

from prometheus_client.utils import floatToGoString

from monitoring.alerts.model import Alert, Severity
from monitoring.alerts.signals import Query
from monitoring.settings import MonitoringSettings

__all__ = ["WINDOWS", "Objective", "burn_alerts", "objectives"]

WINDOWS: Final = ("5m", "30m", "1h", "6h", "3d")
"""Over these the share of bad events is recorded."""


@dataclass(frozen=True)
class Pair:
    """A long and a short window, and how many times faster than allowed the budget burns over both.

    `began` is a span and an offset within the long window in which something must have been counted: young windows lie.
    """

    factor: float
    long: str
    short: str
    began: str
    severity: Severity


PAIRS: Final = (
    Pair(14.4, "1h", "5m", "[20m] offset 40m", "critical"),
    Pair(6.0, "6h", "30m", "[2h] offset 4h", "critical"),
    Pair(1.0, "3d", "6h", "[1d] offset 2d", "warning"),
)


@dataclass(frozen=True)
class Objective:
    """One objective: the rate of bad events and of all, over a window that stands as `WINDOW` in both."""

    name: str
    target: float
    all: str
    bad: str
    minimum: int

    def errors(self, window: str) -> str:
        """The recorded share of bad events."""
        return f"job:tidegate_{self.name}_errors:ratio_rate{window}"

    def events(self, window: str) -> str:
        """The recorded number of events."""
        return f"job:tidegate_{self.name}_events:increase{window}"

    def burns(self, pair: Pair) -> str:
        """The condition of one pair of windows."""
        bound = f"({pair.factor:g} * {1 - self.target:.10g})"
        return (
            f"{self.errors(pair.long)} > {bound} and {self.errors(pair.short)} > {bound} "
            f"and {self.events(pair.long)} >= {self.minimum} "
            f"and last_over_time({self.events('5m')}{pair.began}) > 0"
        )


def objectives(settings: MonitoringSettings) -> tuple[Objective, Objective]:
    """Freshness: canary readings queryable in time, of those due. Validity: messages not refused, of those received."""
    bound = floatToGoString(settings.freshness_seconds)  # type: ignore[no-untyped-call]
    published = "sum without(instance) (rate(tidegate_canary_published_total[WINDOW]))"
    in_time = f'sum without(le, instance) (rate(tidegate_end_to_end_latency_seconds_bucket{{le="{bound}"}}[WINDOW]))'
    received = "sum without(qos, instance) (rate(tidegate_gateway_messages_received_total[WINDOW]))"
    refused = "sum without(reason, instance) (rate(tidegate_gateway_messages_rejected_total[WINDOW]))"
    return (
        Objective(
            "freshness",
            settings.freshness_objective,
            all=published,
            bad=f"clamp_min({published} - {in_time}, 0)",
            minimum=60,
        ),
        Objective(
            "validity",
            settings.validity_objective,
            all=received,
            bad=refused,
            minimum=500,
        ),
    )


def burn_alerts(settings: MonitoringSettings) -> tuple[Alert, ...]:
    """One per objective and pair of windows; only Prometheus remembers long enough for them."""
    freshness, validity = objectives(settings)
    fresh = (_freshness(settings, pair, freshness.burns(pair)) for pair in PAIRS)
    valid = (_validity(pair, validity.burns(pair)) for pair in PAIRS)
    return (*fresh, *valid)


def _freshness(settings: MonitoringSettings, pair: Pair, expression: str) -> Alert:
    return Alert(
        name="TidegateFreshnessBudgetBurns",
        part="stream",
        severity=pair.severity,
        labels=(("window", pair.long),),
        signal=Query(expression),
        unit="ratio",
        summary=f"Readings come late: the budget of freshness burns ({pair.long} and {pair.short})",
        text=f"{{value}} of the canary readings of {pair.long} were not queryable within {settings.freshness_seconds:g} s.",
        impact=f"Less than {settings.freshness_objective:.4g} of the readings will be in time if this goes on.",
        causes=(
            "A part was down: readings of an outage are late, or never come.",
            "Batches take too long: small files, a chore, a machine too small.",
            "More comes in than the stream takes.",
        ),
        actions=(
            "`tidegate status`: is a part down, does lag grow? Follow that alert first.",
            "`tidegate trace --device tidegate-canary`: in which hop the time goes.",
            "`tidegate logs stream -n 100`: how long batches take.",
            "`tidegate tables ls`: small files; `tidegate maintain` joins them.",
        ),
        follows=(
            "TidegateKafkaUnreachable",
            "TidegateBrokerUnreachable",
            "TidegateStreamStalled",
            "TidegateCanaryMissing",
        ),
    )


def _validity(pair: Pair, expression: str) -> Alert:
    return Alert(
        name="TidegateValidityBudgetBurns",
        part="gateway",
        severity=pair.severity,
        labels=(("window", pair.long),),
        signal=Query(expression),
        unit="ratio",
        summary=f"Too many messages are refused: the budget of validity burns ({pair.long} and {pair.short})",
        text=f"{{value}} of the messages of {pair.long} were refused.",
        impact="Their readings are in no table until they are redriven.",
        causes=(
            "Firmware, a route or a profile was changed.",
            "Some devices have been sending what nobody reads for days.",
            "Clocks of devices are wrong.",
        ),
        actions=(
            "`tidegate dlq ls`: which reason, device and topic make most of them.",
            "`tidegate dlq show ID`: what stood there, what was wanted, what to do.",
            "Mend device, route or profile; try it with `tidegate dlq redrive --dry-run --try FILE`.",
            "`tidegate dlq redrive`: store what passes now.",
        ),
    )
