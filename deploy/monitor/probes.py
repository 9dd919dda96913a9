"""Probes that this monitor runs, by the settings."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deploy.monitor.audit_probe import AuditProbe
from deploy.monitor.fleet_probe import FleetProbe
from deploy.settings import Settings
from ingest.contract.topics import LAND_GROUP, stream_group
from lakehouse.paths import is_local, to_path
from monitoring.probe import Probe
from monitoring.sample_history import History

__all__ = ["NEEDED", "groups_of", "is_flowing", "make_probes"]

HOST_SECONDS: Final = 5.0
BROKER_SECONDS: Final = 2.0
KAFKA_SECONDS: Final = 2.0
CERTIFICATE_LOOK_SECONDS: Final = 15.0
AUDIT_LOOK_SECONDS: Final = 5.0
MOST_LAG_SECONDS: Final = 30.0
_STREAMS: Final = "tidegate_stream_sql_offsets_behind"
_CONNECTED: Final = "tidegate_gateway_connected"
_LAG: Final = "tidegate_kafka_lag_seconds"

NEEDED: Final = frozenset({_STREAMS, _CONNECTED, _LAG})
"""Sample names that the memory must keep for the probes."""


def make_probes(
    settings: Settings, history: History, fleet: FleetProbe, audit: AuditProbe, *, data: Path
) -> Iterator[Probe]:
    """Yield the probes for the systems in the settings; `data` is the folder of an embedded run."""
    from deploy.monitor.certificate_probe import CertificateProbe, certificate_files, end_asker, tls_servers
    from deploy.monitor.host_probe import HostProbe
    from gateway.mqtt.broker_probe import BrokerProbe
    from ingest.lag.cluster_probe import ClusterProbe

    yield Probe("host", HOST_SECONDS, HostProbe(_folders(settings, data)).look)
    # The id is unique: two monitors with the same id would disconnect each other again and again.
    broker = BrokerProbe(settings.mqtt.with_login("monitor"), f"tidegate-monitor-{uuid.uuid4().hex[:12]}")
    yield Probe("broker", BROKER_SECONDS, broker.look, broker.close)
    kafka = ClusterProbe(settings.kafka, lambda: groups_of(history, settings))
    yield Probe("kafka", KAFKA_SECONDS, kafka.look, kafka.close)
    yield Probe("tables", settings.monitoring.tables_seconds, fleet.look)
    if servers := tls_servers(settings):
        certificates = CertificateProbe(servers, files=certificate_files(settings), end_of=end_asker(settings))
        yield Probe("certificates", CERTIFICATE_LOOK_SECONDS, certificates.look)
    if settings.monitoring.audit_seconds:
        yield Probe("audit", AUDIT_LOOK_SECONDS, audit.look, audit.close)


def _folders(settings: Settings, data: Path) -> list[Path]:
    """Return the folders that hold data: the tables' and, in an embedded run, Kafka's and the broker's."""
    root = settings.lake.root
    tables = [to_path(root)] if is_local(root) else []
    return [*tables, data] if (data / "run.json").exists() else tables


def groups_of(history: History, settings: Settings) -> list[str]:
    """Return the landing's group, one group per SQL-defined stream, and the groups of other programs in the settings.

    The streams are all applied ones, even while nothing runs them. Metrics of the stream add its rewound copies.
    """
    from streaming.sql.applied_streams import applied_names

    told = {text for labels in history.latest(_STREAMS) for name, text in labels if name == "stream"}
    streams = [stream_group(name) for name in sorted(told.union(applied_names(settings.lake.root)))]
    return [*dict.fromkeys((LAND_GROUP, *streams, *settings.monitoring.consumer_groups))]


def is_flowing(history: History) -> bool:
    """Return whether messages sent now would reach the tables within half a minute; only then is a device's silence known."""

    def all_at(metric: str, **labels: str) -> list[float]:
        return list(history.latest(metric, **labels).values())

    up = [*all_at("up", job="tidegate-gateway"), *all_at("up", job="tidegate-stream")]
    lags = all_at(_LAG, consumergroup=LAND_GROUP)
    return len(up) >= 2 and min(up) > 0 and 0 not in all_at(_CONNECTED) and bool(lags) and max(lags) < MOST_LAG_SECONDS
