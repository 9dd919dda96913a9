"""Build a gateway between a real broker and a real Kafka from settings."""

import threading
from functools import partial

from gateway.delivery.open_log import open_kafka
from gateway.gateway_settings import GatewaySettings, MqttSettings, RouteSettings
from gateway.policy import ReadingPolicy
from gateway.replies.rejection import ReceiptBuilder
from gateway.route_reload import ReadRoutes, no_route_update
from gateway.service import GatewayService
from ingest.gateway_state import read_newer, read_outcomes, read_state
from ingest.kafka_settings import KafkaSettings
from ingest.record_limits import LearnedLimits
from monitoring.metrics.gateway import GatewayMetrics

__all__ = ["build_gateway", "run"]


def run(
    *,
    mqtt: MqttSettings,
    gateway: GatewaySettings,
    routes: tuple[RouteSettings, ...],
    kafka: KafkaSettings,
    metrics: GatewayMetrics,
    stop: threading.Event,
    policy: ReadingPolicy | None = None,
    receipts: ReceiptBuilder | None = None,
) -> None:
    """Run a gateway until `stop` is set. Returns when its messages are acknowledged or left to the broker."""
    service = build_gateway(
        mqtt=mqtt, gateway=gateway, routes=routes, kafka=kafka, metrics=metrics, policy=policy, receipts=receipts
    )
    service.run(stop)


def build_gateway(
    *,
    mqtt: MqttSettings,
    gateway: GatewaySettings,
    routes: tuple[RouteSettings, ...],
    kafka: KafkaSettings,
    metrics: GatewayMetrics,
    policy: ReadingPolicy | None = None,
    receipts: ReceiptBuilder | None = None,
    read_routes: ReadRoutes = no_route_update,
) -> GatewayService:
    """Build a gateway on a real Kafka without running it, for callers that also serve its health.

    Args:
        mqtt: the broker and the session.
        gateway: limits.
        routes: which decoder reads which topic.
        kafka: the cluster.
        metrics: where it counts.
        policy: checks of readings beyond their format; none by default.
        receipts: writer of receipts; none by default.
        read_routes: asked about once a second for changed routes.

    Raises:
        ConfigError: a route is wrong.
    """
    open_log = partial(open_kafka, kafka, used_topics=set(), learned=LearnedLimits())
    return GatewayService(
        mqtt,
        gateway,
        routes,
        open_log,
        metrics,
        policy=policy,
        receipts=receipts,
        read_state=partial(read_state, kafka),
        read_outcomes=partial(read_outcomes, kafka),
        read_newer=partial(read_newer, kafka),
        read_routes=read_routes,
    )
