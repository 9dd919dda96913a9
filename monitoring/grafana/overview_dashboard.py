"""Dashboard Overview: objectives, current state, and the three signals latency, errors and throughput."""

from typing import Any, Final

from monitoring.grafana.alert_panels import alert_panels, loss_panels
from monitoring.grafana.dashboard import Row, dashboard
from monitoring.grafana.fleet_rate import fleet_rate
from monitoring.grafana.objective_panels import objective_panels, objectives
from monitoring.grafana.panel import Panel, PanelQuery, stat, timeseries
from monitoring.grafana.promql import OURS, age, quantile, rate, total
from monitoring.grafana.variables import selection
from monitoring.monitoring_settings import MonitoringSettings

__all__ = ["overview"]

_UP_DOWN: Final = {"0": ("down", "red"), "1": ("up", "green")}
_NO_YES: Final = {"0": ("no", "red"), "1": ("yes", "green")}
_LATE: Final = [(None, "green"), (0.8, "yellow"), (2.5, "red")]


def overview(settings: MonitoringSettings) -> dict[str, Any]:
    """Return the dashboard to keep open."""
    freshness, validity = objectives(settings)
    rows = [
        Row("Current state", [*_now(), *loss_panels()]),
        Row("Objectives", [*objective_panels(freshness), *objective_panels(validity)]),
        Row("Latency, errors, throughput", [*_signals(), *_canary(settings)]),
        Row("Alerts", alert_panels()),
    ]
    return dashboard(
        "tidegate-overview",
        "Tidegate / Overview",
        "Objectives, alerts, latency, errors and throughput of the pipeline.",
        selection('up{job=~"tidegate-.+"}'),
        rows,
        span="1h",
    )


def _now() -> list[Panel]:
    return [
        stat(
            "Parts",
            "A part is up if all of its instances answer Prometheus. A benchmark is not a part.",
            "none",
            PanelQuery(total("up", "job", f'{OURS}, job!="tidegate-bench"', how="min"), "{{job}}"),
            width=12,
            words=_UP_DOWN,
        ),
        stat(
            "Gateway connected",
            "Yes if every gateway has its MQTT session. Without a session the broker keeps QoS 1 messages.",
            "none",
            PanelQuery(total("tidegate_gateway_connected", how="min")),
            width=3,
            words=_NO_YES,
        ),
        stat(
            "Broker reachable",
            "Yes if the monitor can connect to the MQTT broker.",
            "none",
            PanelQuery(total("tidegate_broker_reachable", how="min")),
            width=3,
            words=_NO_YES,
        ),
        stat(
            "Kafka reachable",
            "Yes if Kafka answers the monitor. Without Kafka the gateway acknowledges nothing.",
            "none",
            PanelQuery(total("tidegate_kafka_reachable", how="min")),
            width=3,
            words=_NO_YES,
        ),
        stat(
            "Last canary",
            "Time since a canary reading was last read back from the table. A few seconds mean that the whole pipeline works.",
            "s",
            PanelQuery(age("tidegate_canary_last_seen_timestamp_seconds")),
            width=3,
            steps=[(None, "green"), (15, "yellow"), (60, "red")],
        ),
    ]


def _signals() -> list[Panel]:
    whole = "tidegate_end_to_end_latency_seconds"
    return [
        timeseries(
            "End-to-end latency",
            "Measured by the canary, from MQTT publish to a row that a query returns. The canary reads with another library than "
            "the writer. Percentiles include only readings that arrived: `waits` is the age of the oldest missing one.",
            "s",
            *(PanelQuery(quantile(share, whole), f"p{share * 100:g}") for share in (0.5, 0.95, 0.99)),
            PanelQuery(total("tidegate_canary_oldest_wait_seconds", how="max"), "waits"),
            steps=_LATE,
        ),
        timeseries(
            "Rejected messages",
            "Messages that became dead letters, by reason. `tidegate dlq ls` shows them.",
            "reqps",
            PanelQuery(f"{rate('tidegate_gateway_messages_rejected_total', 'reason')} > 0", "{{reason}}"),
            stacked=True,
        ),
        timeseries(
            "Throughput of the fleet",
            "Messages received, messages accepted and rows committed, without the canary's.",
            "cps",
            PanelQuery(fleet_rate("tidegate_gateway_messages_received_total"), "messages received"),
            PanelQuery(fleet_rate("tidegate_gateway_messages_accepted_total"), "messages accepted"),
            PanelQuery(
                fleet_rate("tidegate_stream_rows_total", 'table="readings"', canary="tidegate_canary_seen_total"),
                "rows committed",
            ),
        ),
    ]


def _canary(settings: MonitoringSettings) -> list[Panel]:
    late = f"{settings.freshness_seconds:g} s"
    return [
        timeseries(
            "Canary",
            f"Readings due and readings read back. A gap between the two is an outage or a delay of more than {late}.",
            "cps",
            PanelQuery(rate("tidegate_canary_published_total"), "due"),
            PanelQuery(rate("tidegate_canary_acknowledged_total"), "accepted by the broker"),
            PanelQuery(rate("tidegate_canary_seen_total"), "read back"),
        ),
        timeseries(
            "Share rejected",
            "Rejected messages as a share of the messages received from devices, and rejected parts of accepted messages as a "
            "share of readings.",
            "percentunit",
            PanelQuery(objectives(settings)[1].bad_ratio("$__rate_interval"), "messages"),
            PanelQuery(
                f"{rate('tidegate_gateway_parts_rejected_total')} / ({rate('tidegate_gateway_readings_total')} > 0)",
                "parts",
            ),
        ),
        timeseries(
            "Unread in Kafka",
            "Records that the stream has not committed yet, by topic. The number grows while the stream is down.",
            "short",
            PanelQuery(total("kafka_consumergroup_lag", "consumergroup, topic"), "{{consumergroup}} {{topic}}"),
        ),
    ]
