"""All alerts, as data."""

from typing import Final

from monitoring.alerts.catalog_clocks import CLOCKS
from monitoring.alerts.catalog_devices import DEVICES
from monitoring.alerts.catalog_flow import BROKER, GATEWAY
from monitoring.alerts.catalog_kafka import KAFKA
from monitoring.alerts.catalog_monitoring import monitoring_alerts
from monitoring.alerts.catalog_proof import proof_alerts
from monitoring.alerts.catalog_stream import CANARY, STREAM
from monitoring.alerts.catalog_tables import TABLES, disk_alerts
from monitoring.alerts.model import Alert
from monitoring.alerts.objectives import burn_alerts
from monitoring.monitoring_settings import MonitoringSettings

__all__ = ["ALERTS", "alerts"]


def alerts(settings: MonitoringSettings) -> tuple[Alert, ...]:
    """Return all alerts with the bounds of these settings. One name may have several severities or windows."""
    return (
        *monitoring_alerts(settings.tables_seconds),
        *burn_alerts(settings),
        *BROKER,
        *GATEWAY,
        *KAFKA,
        *STREAM,
        *CANARY,
        *proof_alerts(settings.audit_seconds),
        *TABLES,
        *disk_alerts(),
        *CLOCKS,
        *DEVICES,
    )


ALERTS: Final = alerts(MonitoringSettings())
"""All alerts with the default settings."""
