"""Build a gateway from settings: with a real broker, a real Kafka and the log writer on it."""

import logging
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.gateway_settings import GatewaySettings, MqttSettings, RouteSettings
from gateway.lease.gateway_lease import GatewayLease
from gateway.lease.kill_timer import KillTimer
from gateway.lease.lease_record import LeaseRecord, is_lease, machine_name, process_name
from gateway.policy import ReadingPolicy
from gateway.replies.rejection import ReceiptBuilder
from gateway.route_reload import ReadRoutes, no_route_update
from gateway.service import GatewayService
from gateway.topic_filters import subscription_filter
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.gateway_state import read_newer, read_outcomes
from ingest.kafka_settings import KafkaSettings
from ingest.log import LogWriter
from ingest.producer import open_writer
from ingest.record_limits import LearnedLimits
from ingest.state_follower import StateFollower
from ingest.topics.admin import wait_for_kafka
from ingest.topics.setup import ensure_topics
from monitoring.metrics.gateway import GatewayMetrics

__all__ = ["build_gateway", "open_kafka", "run"]

logger = logging.getLogger("tidegate.gateway")

REACH_SECONDS: Final = 2.0
PAIR_KEEPALIVE_SECONDS: Final = 10


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
        mqtt: settings of the broker and the session.
        gateway: limits.
        routes: routes of the settings.
        kafka: the cluster.
        metrics: metrics of the gateway.
        policy: checks of readings beyond their format; none by default.
        receipts: writer of receipts; none by default.
        read_routes: asked about once a second for changed routes.

    Raises:
        ConfigError: a route is wrong.
    """
    open_log = partial(open_kafka, kafka, used_topics=set(), learned=LearnedLimits())
    follower = StateFollower(kafka, is_lease)
    mqtt = _for_pair(mqtt) if gateway.standby else mqtt
    return GatewayService(
        mqtt,
        gateway,
        routes,
        open_log,
        metrics,
        policy=policy,
        receipts=receipts,
        read_state=partial(_take_state, follower),
        read_outcomes=partial(read_outcomes, kafka),
        read_newer=partial(read_newer, kafka),
        read_routes=read_routes,
        lease=_make_lease(mqtt, gateway, follower),
    )


def _for_pair(mqtt: MqttSettings) -> MqttSettings:
    """Return the settings of a session that another machine may take over."""
    if mqtt.keepalive_seconds > PAIR_KEEPALIVE_SECONDS:
        logger.warning(
            "mqtt.keepalive_seconds is %d: this gateway notices a half-open connection to the broker after up to %d s, and gives "
            "way to its standby only then. Set it to %d or less.",
            mqtt.keepalive_seconds,
            2 * mqtt.keepalive_seconds,
            PAIR_KEEPALIVE_SECONDS,
        )
    # The file of this machine does not know what the other one subscribed to; Kafka does.
    return mqtt.model_copy(update={"session_file": None})


def _make_lease(mqtt: MqttSettings, gateway: GatewaySettings, follower: StateFollower) -> GatewayLease:
    ours = LeaseRecord(
        gateway.gateway_id,
        process_name(),
        machine_name(),
        mqtt.client_id,
        f"{mqtt.host}:{mqtt.port}",
        tuple(subscription_filter(text) for text in mqtt.subscriptions),
        gateway.lease_seconds,
        standby=gateway.standby,
    )
    return GatewayLease(
        ours,
        follower,
        conflicts=gateway.conflicts,
        reach=partial(_reach, mqtt.host, mqtt.port),
        timer=KillTimer() if gateway.standby else None,
    )


def _reach(host: str, port: int) -> str:
    """Return why the broker cannot be reached; empty if it can."""
    try:
        socket.create_connection((host, port), timeout=REACH_SECONDS).close()
    except OSError as error:
        return f"standby: cannot reach the MQTT broker at {host}:{port} ({error.strerror or error})"
    return ""


def _take_state(follower: StateFollower) -> list[tuple[str, bytes]]:
    """Return the state as of now: a standby has read most of it before. The follower does not hold it any longer."""
    follower.catch_up()
    state = follower.state()
    follower.forget()
    return state


def open_kafka(
    kafka: KafkaSettings,
    stop: threading.Event,
    tell: Callable[[str], None],
    *,
    used_topics: set[str],
    learned: LearnedLimits,
) -> LogWriter | None:
    """Wait for Kafka, make sure its topics exist, and open a writer.

    `used_topics` and `learned` are the caller's memory between calls: a used topic that must be recreated was deleted
    meanwhile.

    Raises:
        RetryableError: Kafka stopped answering.
        FatalError: the topics cannot be created.
    """
    if not wait_for_kafka(kafka, stop, tell):
        return None
    made: list[str] = []
    for difference in ensure_topics(kafka, on_made=made.append):
        logger.warning("%s", difference)
    for name in sorted(used_topics.intersection(made)):
        logger.error(
            "Topic %s was deleted while in use and has been recreated. Its records that had not landed yet are lost. Find out "
            "who deleted it, and run `tidegate audit`.",
            name,
        )
    used_topics |= {READINGS, DEAD_LETTERS, OUTCOMES}
    return open_writer(kafka, learned=learned)
