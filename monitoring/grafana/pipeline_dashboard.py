"""Dashboard Pipeline, hop by hop: input, queues, durations of each step, outcomes.

A panel that shows how the buckets of a histogram fill over time.
"""

from typing import Any, Final

from monitoring.grafana.dashboard import Row, dashboard
from monitoring.grafana.fleet_rate import fleet_rate
from monitoring.grafana.panel import Panel, PanelQuery, field, panel, timeseries
from monitoring.grafana.pipeline_stream import derived_panels, sql_panels, stream_panels
from monitoring.grafana.pipeline_tables import device_panels, monitor_panels, table_panels
from monitoring.grafana.promql import growth, quantile, rate, select, total
from monitoring.grafana.spark import spark_panels
from monitoring.grafana.variables import label_variable, selection

__all__ = ["pipeline"]

_SHARES: Final = (0.5, 0.95, 0.99)
_STAGES: Final = "tidegate_stage_latency_seconds"
_WHOLE: Final = 'stage="receive_to_commit"'


def heatmap(title: str, description: str, unit: str, query: PanelQuery, *, width: int = 12, height: int = 8) -> Panel:
    """Return a panel of a histogram's buckets over time; the query must give growth by `le`."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Viridis", "steps": 64, "exponent": 0.5, "fill": "dark-orange"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"show": True, "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    made = panel("heatmap", title, description, (query,), field(unit, ()), options, width, height)
    made["targets"][0]["format"] = "heatmap"
    return made


def pipeline() -> dict[str, Any]:
    """Return the dashboard for finding the cause of a problem."""
    variables = [
        *selection('up{job=~"tidegate-.+"}'),
        label_variable("table", select("tidegate_table_last_commit_timestamp_seconds")),
        label_variable("stream", select("tidegate_stream_sql_rows_total"), title="SQL stream"),
    ]
    rows = [
        Row("Gateway", [*_flow(), *_gateway()]),
        Row("Latency", _latency()),
        Row("Stream", stream_panels()),
        Row("Tables", table_panels()),
        Row("Rollups and background tasks", derived_panels()),
        Row("Devices and ledger", device_panels()),
        Row("SQL streams", sql_panels()),
        Row("Spark", spark_panels()),
        Row("Monitoring", monitor_panels()),
    ]
    return dashboard(
        "tidegate-pipeline",
        "Tidegate / Pipeline",
        "From MQTT to tables, hop by hop: counts, queues, durations, rejections, devices, SQL streams.",
        variables,
        rows,
        span="1h",
    )


def _flow() -> list[Panel]:
    return [
        timeseries(
            "Messages of the fleet",
            "Messages received, and messages accepted (at least one reading is in Kafka), without the canary's.",
            "cps",
            PanelQuery(fleet_rate("tidegate_gateway_messages_received_total"), "received"),
            PanelQuery(fleet_rate("tidegate_gateway_messages_accepted_total"), "accepted"),
        ),
        timeseries(
            "Rejected by reason",
            "Messages that became dead letters. `tidegate dlq ls --reason` shows them.",
            "cps",
            PanelQuery(rate("tidegate_gateway_messages_rejected_total", "reason"), "{{reason}}"),
            stacked=True,
        ),
        timeseries(
            "Parts rejected by reason",
            "Rejected readings of messages whose other readings were accepted.",
            "cps",
            PanelQuery(rate("tidegate_gateway_parts_rejected_total", "reason"), "{{reason}}"),
            stacked=True,
        ),
        timeseries(
            "Partly accepted, ignored, dropped",
            "Accepted messages with a rejected part; messages that a rule ignores; QoS 0 messages dropped while Kafka did not "
            "answer.",
            "cps",
            PanelQuery(rate("tidegate_gateway_messages_partial_total"), "partly accepted"),
            PanelQuery(rate("tidegate_gateway_messages_ignored_total", "reason"), "ignored: {{reason}}"),
            PanelQuery(rate("tidegate_gateway_messages_dropped_total"), "dropped"),
        ),
        timeseries(
            "Messages by QoS",
            "All received messages, including the canary's, by the QoS at which the broker delivered them.",
            "cps",
            PanelQuery(rate("tidegate_gateway_messages_received_total", "qos"), "QoS {{qos}}"),
        ),
        timeseries(
            "Acknowledged and produced",
            "PUBACKs sent (only after Kafka has the records), and readings produced (a message may hold many).",
            "cps",
            PanelQuery(rate("tidegate_gateway_messages_acknowledged_total"), "acknowledged"),
            PanelQuery(rate("tidegate_gateway_readings_total"), "readings produced"),
        ),
    ]


def _gateway() -> list[Panel]:
    produce = "tidegate_gateway_produce_duration_seconds"
    return [
        timeseries(
            "In flight",
            "Messages received and not yet acknowledged. When this reaches the size of the window, the broker holds the rest.",
            "short",
            PanelQuery(total("tidegate_gateway_inflight_messages", "instance"), "{{instance}}"),
        ),
        timeseries(
            "Produce duration",
            "Time from receipt to Kafka's delivery report, for the oldest message of each acknowledged batch.",
            "s",
            *(PanelQuery(quantile(share, produce), f"p{share * 100:g}") for share in _SHARES),
        ),
        timeseries(
            "Connections",
            "MQTT connections, sessions that the broker had lost, devices that count again under the same boot, delivery reports "
            "that came too late to acknowledge, gateways whose id another gateway uses.",
            "short",
            PanelQuery(growth("tidegate_gateway_connections_total"), "connections"),
            PanelQuery(growth("tidegate_gateway_sessions_lost_total"), "sessions lost"),
            PanelQuery(growth("tidegate_gateway_sequence_restarts_total"), "sequence restarts"),
            PanelQuery(growth("tidegate_gateway_stale_acks_total"), "stale reports"),
            PanelQuery(total("tidegate_gateway_id_shared"), "ids shared"),
        ),
        timeseries(
            "Memory of devices",
            "Share in use of each memory of devices in the gateway. When a memory is full, the gateway forgets the device that "
            "was silent for longest.",
            "percentunit",
            PanelQuery(f"max by (memory) ({select('tidegate_gateway_memory_fill_ratio')})", "{{memory}}"),
        ),
        timeseries(
            "Internal errors",
            "Errors after which the gateway continued, by stage. Each one is in its log.",
            "ops",
            PanelQuery(rate("tidegate_gateway_errors_total", "stage"), "{{stage}}"),
        ),
        timeseries(
            "Receipts and replies",
            "Receipts for rejections, receipts for stored rows, receipts held back with the cause, and messages to devices.",
            "cps",
            PanelQuery(rate("tidegate_gateway_receipts_sent_total"), "rejections reported"),
            PanelQuery(rate("tidegate_gateway_stored_receipts_sent_total"), "rows confirmed"),
            PanelQuery(rate("tidegate_gateway_receipts_held_back_total", "why"), "held back: {{why}}"),
            PanelQuery(rate("tidegate_gateway_replies_total", "result"), "replies {{result}}"),
        ),
        timeseries(
            "Profiles",
            "Loaded changes of profiles or registered devices, and files that are invalid now.",
            "short",
            PanelQuery(growth("tidegate_gateway_profile_reloads_total"), "changes"),
            PanelQuery(total("tidegate_gateway_profile_files_refused"), "invalid files"),
        ),
    ]


def _latency() -> list[Panel]:
    hops = "tidegate_canary_hop_seconds"
    return [
        heatmap(
            "Receive to commit, all readings",
            "Every reading of every batch, not a sample: time from its receipt by the gateway to its commit.",
            "s",
            PanelQuery(growth(f"{_STAGES}_bucket", "le", _WHOLE), "{{le}}"),
        ),
        timeseries(
            "All readings, quantiles",
            "The same as lines: time from receipt by the gateway to commit.",
            "s",
            *(PanelQuery(quantile(share, _STAGES, where=_WHOLE), f"p{share * 100:g}") for share in _SHARES),
            width=6,
        ),
        timeseries(
            "By stage (p95)",
            "Time by stage: kafka_to_batch is backlog, batch_to_commit is processing.",
            "s",
            PanelQuery(quantile(0.95, _STAGES, "stage"), "{{stage}}"),
            width=6,
        ),
        timeseries(
            "Canary, hop by hop (p50)",
            "Time by hop: half of the canary's readings took less.",
            "s",
            PanelQuery(quantile(0.5, hops, "hop"), "{{hop}}"),
            stacked=True,
        ),
        timeseries(
            "Canary, hop by hop (p95)",
            "Time by hop: 5 of 100 canary readings took longer.",
            "s",
            PanelQuery(quantile(0.95, hops, "hop"), "{{hop}}"),
        ),
        timeseries(
            "Clock skew between hops",
            "Most negative time of a hop among the last 100 canary readings. Its two clocks differ by at least this much.",
            "s",
            PanelQuery(f"max by (hop) ({select('tidegate_canary_clock_skew_seconds')})", "{{hop}}"),
        ),
    ]
