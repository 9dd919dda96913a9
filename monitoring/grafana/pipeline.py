"""The pipeline, hop by hop: what came in, where it waits, how long each step takes, what became of it."""

from typing import Any, Final

from monitoring.grafana.dashboard import Row, dashboard
from monitoring.grafana.fleet import fleet_rate
from monitoring.grafana.heatmap import heatmap
from monitoring.grafana.panel import Panel, Query, timeseries
from monitoring.grafana.pipeline_stream import derived_panels, sql_panels, stream_panels
from monitoring.grafana.pipeline_tables import device_panels, monitor_panels, table_panels
from monitoring.grafana.promql import growth, quantile, rate, select, total
from monitoring.grafana.spark import spark_panels
from monitoring.grafana.variables import label_variable, selection

__all__ = ["pipeline"]

_SHARES: Final = (0.5, 0.95, 0.99)
_STAGES: Final = "tidegate_stage_latency_seconds"
_WHOLE: Final = 'stage="receive_to_commit"'


def pipeline() -> dict[str, Any]:
    """The dashboard for whoever asks why."""
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
        Row("Rollups and chores", derived_panels()),
        Row("Devices and ledger", device_panels()),
        Row("SQL streams", sql_panels()),
        Row("Spark", spark_panels()),
        Row("Monitoring itself", monitor_panels()),
    ]
    return dashboard(
        "tidegate-pipeline",
        "Tidegate / Pipeline",
        "From MQTT to tables, hop by hop: counts, waiting, durations, refusals, devices, SQL streams.",
        variables,
        rows,
        span="1h",
    )


def _flow() -> list[Panel]:
    return [
        timeseries(
            "Messages of the fleet",
            "Received, and accepted: at least one of its readings is in Kafka. The canary's are taken off.",
            "cps",
            Query(fleet_rate("tidegate_gateway_messages_received_total"), "received"),
            Query(fleet_rate("tidegate_gateway_messages_accepted_total"), "accepted"),
        ),
        timeseries(
            "Rejected by reason",
            "Messages that became dead letters; `tidegate dlq ls --reason` shows them.",
            "cps",
            Query(rate("tidegate_gateway_messages_rejected_total", "reason"), "{{reason}}"),
            stacked=True,
        ),
        timeseries(
            "Parts rejected by reason",
            "Readings refused in messages of which the rest was accepted.",
            "cps",
            Query(rate("tidegate_gateway_parts_rejected_total", "reason"), "{{reason}}"),
            stacked=True,
        ),
        timeseries(
            "Partly accepted, ignored, dropped",
            "Accepted messages of which a part was refused; messages that hold no reading by rule; "
            "QoS 0 messages dropped while Kafka did not answer.",
            "cps",
            Query(rate("tidegate_gateway_messages_partial_total"), "partly accepted"),
            Query(rate("tidegate_gateway_messages_ignored_total", "reason"), "ignored: {{reason}}"),
            Query(rate("tidegate_gateway_messages_dropped_total"), "dropped"),
        ),
        timeseries(
            "By quality of service",
            "All messages received, the canary's included, by the QoS at which the broker delivered them.",
            "cps",
            Query(rate("tidegate_gateway_messages_received_total", "qos"), "QoS {{qos}}"),
        ),
        timeseries(
            "Acknowledged and produced",
            "PUBACKs sent, only after Kafka has the records; and readings produced, of which a message may hold many.",
            "cps",
            Query(rate("tidegate_gateway_messages_acknowledged_total"), "acknowledged"),
            Query(rate("tidegate_gateway_readings_total"), "readings produced"),
        ),
    ]


def _gateway() -> list[Panel]:
    produce = "tidegate_gateway_produce_duration_seconds"
    return [
        timeseries(
            "In flight",
            "Messages received and not yet acknowledged. At the window's size the broker holds the rest back.",
            "short",
            Query(total("tidegate_gateway_inflight_messages", "instance"), "{{instance}}"),
        ),
        timeseries(
            "Produce duration",
            "From receipt to Kafka's report, oldest message of each acknowledged batch.",
            "s",
            *(Query(quantile(share, produce), f"p{share * 100:g}") for share in _SHARES),
        ),
        timeseries(
            "Connections",
            "MQTT connections made, sessions that the broker had forgotten, devices that count again under one "
            "boot, reports too late to acknowledge, gateways whose id another one uses.",
            "short",
            Query(growth("tidegate_gateway_connections_total"), "connections"),
            Query(growth("tidegate_gateway_sessions_lost_total"), "sessions lost"),
            Query(growth("tidegate_gateway_sequence_restarts_total"), "devices that count again"),
            Query(growth("tidegate_gateway_stale_acks_total"), "stale reports"),
            Query(total("tidegate_gateway_id_shared"), "ids shared"),
        ),
        timeseries(
            "Memory of devices",
            "Share in use of what the gateway remembers of devices. When one is full, the device that was silent for "
            "longest is forgotten.",
            "percentunit",
            Query(f"max by (memory) ({select('tidegate_gateway_memory_fill_ratio')})", "{{memory}}"),
        ),
        timeseries(
            "Faults survived",
            "By the gateway's stage; each is a line in its log.",
            "ops",
            Query(rate("tidegate_gateway_errors_total", "stage"), "{{stage}}"),
        ),
        timeseries(
            "Receipts and replies",
            "Answers to devices: refusals told, rows confirmed, answers held back and why, messages to the device side.",
            "cps",
            Query(rate("tidegate_gateway_receipts_sent_total"), "refusals told"),
            Query(rate("tidegate_gateway_stored_receipts_sent_total"), "rows confirmed"),
            Query(rate("tidegate_gateway_receipts_held_back_total", "why"), "held back: {{why}}"),
            Query(rate("tidegate_gateway_replies_total", "result"), "replies {{result}}"),
        ),
        timeseries(
            "Profiles",
            "Changes of profiles or registered devices taken in, and files that are wrong now.",
            "short",
            Query(growth("tidegate_gateway_profile_reloads_total"), "changes"),
            Query(total("tidegate_gateway_profile_files_refused"), "files refused"),
        ),
    ]


def _latency() -> list[Panel]:
    hops = "tidegate_canary_hop_seconds"
    return [
        heatmap(
            "Receive to commit, all readings",
            "Every reading of every batch, not a sample: age at its commit, counted from its receipt by the gateway.",
            "s",
            Query(growth(f"{_STAGES}_bucket", "le", _WHOLE), "{{le}}"),
        ),
        timeseries(
            "All readings, quantiles",
            "The same in lines: receipt by the gateway to commit.",
            "s",
            *(Query(quantile(share, _STAGES, where=_WHOLE), f"p{share * 100:g}") for share in _SHARES),
            width=6,
        ),
        timeseries(
            "By stage (p95)",
            "Where the time goes: kafka_to_batch is backlog, batch_to_commit is processing.",
            "s",
            Query(quantile(0.95, _STAGES, "stage"), "{{stage}}"),
            width=6,
        ),
        timeseries(
            "Canary, hop by hop (p50)",
            "Where the time of a reading goes: half of the canary's readings took less.",
            "s",
            Query(quantile(0.5, hops, "hop"), "{{hop}}"),
            stacked=True,
        ),
        timeseries(
            "Canary, hop by hop (p95)",
            "The slow ones: 5 of 100 canary readings took longer at this hop.",
            "s",
            Query(quantile(0.95, hops, "hop"), "{{hop}}"),
        ),
        timeseries(
            "Clock skew between hops",
            "How negative a hop was at worst among the last 100 canary readings: its two clocks differ at least so much.",
            "s",
            Query(f"max by (hop) ({select('tidegate_canary_clock_skew_seconds')})", "{{hop}}"),
        ),
    ]
