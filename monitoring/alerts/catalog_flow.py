"""Alerts on the first half of a reading's way: broker and gateway."""

from typing import Final

from monitoring.alerts.model import Alert, Severity
from monitoring.alerts.operands import Difference, Gain, Least, Less, Quotient, Sum, select
from monitoring.alerts.signals import Both, Compare, Either, Happened, Signal, Unless, young
from monitoring.indicators import ARRIVED, Count, validity

__all__ = ["BROKER", "GATEWAY", "HALF_QUEUE_BYTES", "HALF_QUEUE_MESSAGES"]

MONITOR: Final = "tidegate-monitor"
HALF_QUEUE_MESSAGES: Final = 500_000
HALF_QUEUE_BYTES: Final = 128 * 1024 * 1024
"""Half of what the embedded broker keeps for a session; a figure of all sessions together."""
_DROPPED: Final = select("broker_publish_messages_dropped", job=MONITOR)
_DROPS: Final = Either(
    Compare(Gain(_DROPPED, 300), ">", 0),
    Both(Compare(_DROPPED, ">", 0), Compare(select("broker_uptime", job=MONITOR), "<", 300), on=("job", "instance")),
)
_GAPS: Final = select("tidegate_ledger_gap_messages")
_OURS_HIT: Final = Either(
    Either(
        Compare(Least(select("tidegate_gateway_connected"), 600), "==", 0),
        Compare(Least(select("up", job="tidegate-gateway"), 600), "==", 0),
    ),
    Compare(Difference(_GAPS, Least(_GAPS, 600)), ">", 0),
)
"""The gateway was away, so that its queue filled up, or sequence numbers of devices began to be missing."""


def _gained(count: Count) -> Sum:
    return Sum(Gain(select(count.metric), 300), count.over)


_VALIDITY: Final = validity()
_REFUSED: Final = _gained(_VALIDITY.bad or _VALIDITY.events)
_MEANT: Final = Less(_gained(_VALIDITY.events), Gain(select(ARRIVED), 300))


def _broker_drops(severity: Severity, signal: Signal, summary: str, text: str) -> Alert:
    """The broker counts for all of its clients together: another subscriber's slow queue is nobody's night."""
    return Alert(
        name="TidegateBrokerDropsMessages",
        part="broker",
        severity=severity,
        signal=signal,
        summary=summary,
        text=text,
        impact="What was meant for the gateway is lost before Tidegate receives it; no audit finds it, only gaps in sequence "
        "numbers.",
        causes=(
            "The gateway was away for longer than the broker's queue is long.",
            "The gateway is slower than the devices, because Kafka is.",
            "`max_queued_messages` or `max_queued_bytes` of the broker is small.",
            "Another subscriber of the same broker is slow: then nothing of Tidegate's is missing.",
        ),
        actions=(
            "`tidegate status`: is the gateway connected, is Kafka ready?",
            '`tidegate sql "SELECT device, sum(gap) FROM ledger WHERE minute > now() - INTERVAL 1 HOUR GROUP BY device '
            'HAVING sum(gap) > 0"`: whose messages are missing.',
            "`tidegate logs broker -n 100`: which client's queue is full.",
            "Raise the broker's queue limits, or add a gateway whose topic filters do not overlap with this one's.",
        ),
    )


BROKER: Final = (
    Alert(
        name="TidegateBrokerUnreachable",
        part="broker",
        severity="critical",
        signal=Unless(
            Compare(select("tidegate_broker_reachable"), "==", 0), young(MONITOR, 60), on=("job", "instance")
        ),
        for_seconds=30,
        summary="The MQTT broker does not let the monitor in",
        text="The MQTT broker does not let the monitor in.",
        impact="Devices cannot deliver. What they send with QoS 0 is lost; with QoS 1 they must keep it themselves.",
        causes=(
            "The broker is down, hangs or restarts in a loop.",
            "Its disk is full, or its certificate or password file is wrong.",
            "A network rule between monitor and broker.",
        ),
        actions=(
            "`tidegate status`: is the part `broker` ready?",
            "`tidegate logs broker -n 100`: its last words.",
            "`tidegate doctor --config FILE`: does it answer with these settings, are ports and disk free?",
            "Start it again; the embedded one is restarted by itself. The gateway connects by itself.",
        ),
    ),
    Alert(
        name="TidegateBrokerQueueFills",
        part="broker",
        severity="warning",
        signal=Either(
            Compare(select("broker_messages_stored", job=MONITOR), ">", HALF_QUEUE_MESSAGES),
            Compare(select("broker_messages_stored_bytes", job=MONITOR), ">", HALF_QUEUE_BYTES),
        ),
        for_seconds=30,
        summary="The MQTT broker's queue is half full",
        text="The broker holds more than half of what the embedded broker keeps for a session ({value}).",
        impact="Nothing is lost yet. A full queue drops what devices send, and the broker acknowledges it all the same.",
        causes=(
            "The gateway is away, or Kafka does not take what it sends.",
            "Devices send more than the gateway takes.",
            "A session of another client, or of an old client id, collects messages that nobody reads.",
        ),
        actions=(
            "`tidegate status`: is the gateway connected, is Kafka ready?",
            "`tidegate logs gateway -n 100`: what it waits for.",
            "Bring back what is away: the queue drains by itself, in order.",
            "Ask devices with a memory of their own to send less until then.",
        ),
        follows=("TidegateGatewayDisconnected", "TidegateKafkaUnreachable"),
    ),
    _broker_drops(
        "critical",
        Both(_DROPS, _OURS_HIT, on=()),
        "The MQTT broker drops messages of the devices",
        "The broker dropped {value} messages in the last 5 minutes, while the gateway was away or sequence numbers went missing.",
    ),
    _broker_drops(
        "warning",
        _DROPS,
        "The MQTT broker drops messages",
        "The broker dropped {value} messages in the last 5 minutes, of this or another subscriber.",
    ),
)

GATEWAY: Final = (
    Alert(
        name="TidegateGatewayDisconnected",
        part="gateway",
        severity="critical",
        signal=Compare(select("tidegate_gateway_connected"), "==", 0),
        for_seconds=30,
        summary="The gateway has no MQTT session",
        text="The gateway has no MQTT session.",
        impact="Nothing is received. The broker queues for the gateway's session until its limit, then drops.",
        causes=(
            "The broker is down or refuses the gateway's credentials.",
            "Another client uses the gateway's client id and takes its session over.",
            "Kafka does not take what the last connection brought: the gateway connects again only then.",
        ),
        actions=(
            "`tidegate logs gateway -n 100`: the broker's reason stands there.",
            "`tidegate logs broker -n 100`: was it refused, or taken over?",
            "`tidegate doctor --config FILE`: do broker and Kafka answer with the gateway's settings?",
            "After it has connected: `tidegate audit --since 1h`.",
        ),
        follows=("TidegateBrokerUnreachable", "TidegateKafkaUnreachable"),
    ),
    Alert(
        name="TidegateSessionLost",
        part="gateway",
        severity="warning",
        signal=Happened(select("tidegate_gateway_sessions_lost_total"), 900),
        summary="The broker forgot the gateway's session",
        text="The broker forgot the gateway's session {value} times in the last 15 minutes.",
        impact="What the broker held for the gateway while it was away is gone.",
        causes=(
            "The broker was started without its persistence file, or from an empty disk.",
            "The session expired: the gateway was away longer than the broker keeps sessions.",
            "The gateway's client id was changed.",
        ),
        actions=(
            "`tidegate logs broker -n 200`: does it save and restore its state?",
            '`tidegate sql "SELECT device, sum(gap) FROM ledger WHERE minute > now() - INTERVAL 1 HOUR GROUP BY device '
            'HAVING sum(gap) > 0"`: what is missing.',
            "Turn the broker's persistence on; ask devices with a memory of their own to send again.",
        ),
    ),
    Alert(
        name="TidegateSessionContended",
        part="gateway",
        severity="critical",
        signal=Compare(select("tidegate_gateway_session_contended"), "==", 1),
        keep_firing_seconds=60,
        summary="Another client may use the gateway's client id",
        text="The gateway's connections end soon after they begin, again and again, and the broker gives no reason.",
        impact="While another client has the session, it gets the gateway's messages; what it acknowledges is lost.",
        causes=(
            "Another client connects with the same client id: a second gateway, a copy of the settings, a test.",
            "The network between gateway and broker is bad.",
        ),
        actions=(
            "`tidegate logs broker -n 100`: does a client of this id connect from another address?",
            "`tidegate logs gateway -n 100`: since when, and how long each connection lasted.",
            "Stop the other client, or give this gateway its own `mqtt.client_id`.",
            "`tidegate audit --since 1h`, and look for sequence gaps: whether anything is missing.",
        ),
        follows=("TidegateBrokerUnreachable",),
    ),
    Alert(
        name="TidegateGatewayIdShared",
        part="gateway",
        severity="warning",
        signal=Compare(select("tidegate_gateway_id_shared"), "==", 1),
        summary="Two gateways use one gateway_id",
        text="Another live gateway uses the same `gateway.gateway_id` as this one.",
        impact="The audit and the ledger take the messages of the two for one another's: a loss may look like none, and none "
        "like a loss. Gaps of devices and the filters of a session may be wrong after a restart.",
        causes=(
            "A copy of the settings with another `mqtt.client_id` or another broker, and the same `gateway.gateway_id`.",
            "A gateway that was to be replaced still runs.",
        ),
        actions=(
            "`tidegate status`: the host, process and MQTT session of the other gateway.",
            "Stop it, or give it a `gateway.gateway_id` of its own, and start it again.",
            "`tidegate audit --since 1h`: from a time at which each had its own id.",
        ),
    ),
    Alert(
        name="TidegateBrokerLimitsGateway",
        part="gateway",
        severity="warning",
        signal=Compare(select("tidegate_gateway_broker_inflight_limit"), ">", 0),
        for_seconds=60,
        summary="The broker's limit of unacknowledged messages slows the gateway",
        text="The broker sends at most {value} unacknowledged messages, and nearly always waits for the gateway.",
        impact="The gateway takes fewer messages than it could. Where devices send more, the broker's queue grows until it "
        "drops.",
        causes=(
            "The broker's limit is small: 20 or 32 by default for some brokers.",
            "Kafka is slow, so that each round of acknowledgements takes long.",
        ),
        actions=(
            "Raise the broker's limit to `gateway.window_messages`: DEVICES.md names the setting of each broker.",
            "Use MQTT 5 (`mqtt.protocol`) where the broker takes the limit from the client.",
            "`tidegate status`: is Kafka slow?",
        ),
    ),
    Alert(
        name="TidegateQosZeroDropped",
        part="gateway",
        severity="warning",
        signal=Happened(select("tidegate_gateway_messages_dropped_total"), 300),
        summary="QoS 0 messages were dropped while Kafka did not answer",
        text="{value} QoS 0 messages were dropped in the last 5 minutes: Kafka did not take them and the window was full.",
        impact="Readings that devices sent with QoS 0 are lost. QoS 1 is never dropped.",
        causes=("Kafka is away or slow.", "A burst of QoS 0 messages larger than `gateway.window_messages`."),
        actions=(
            "`tidegate status`: is Kafka ready, does lag grow?",
            "`tidegate logs gateway -n 100`: since when.",
            "Ask the devices to publish with QoS 1: then the broker keeps what the gateway cannot take.",
        ),
        follows=("TidegateKafkaUnreachable",),
    ),
    Alert(
        name="TidegateInternalErrors",
        part="gateway",
        severity="warning",
        signal=Either(
            Happened(select("tidegate_gateway_messages_rejected_total", reason="internal_error"), 600),
            Happened(select("tidegate_gateway_errors_total", stage="~receive|decode|tick"), 600),
        ),
        summary="The gateway met a fault of its own",
        text="The gateway survived {value} faults of its own in the last 10 minutes.",
        impact="The messages concerned are dead letters `internal_error`, whole and redrivable. Nothing else is touched.",
        causes=("A decoder met input that nobody foresaw.", "A decoder of your own (entry point) raised an exception."),
        actions=(
            "`tidegate dlq ls --where \"reason = 'internal_error'\"`: which topics and devices.",
            "`tidegate dlq show ID`: the message, byte by byte, and the error.",
            "`tidegate logs gateway -n 200`: the traceback.",
            "Mend the decoder or report it, then `tidegate dlq redrive --where \"reason = 'internal_error'\"`.",
        ),
    ),
    Alert(
        name="TidegateDeadLetterRatio",
        part="gateway",
        severity="warning",
        signal=Both(
            Compare(Quotient(_REFUSED, _MEANT, minimum=1), ">", 0.05), Compare(_REFUSED, ">=", 20), on=("job",)
        ),
        for_seconds=60,
        keep_firing_seconds=120,
        unit="ratio",
        summary="More than one message in twenty is refused",
        text="{value} of the devices' messages of the last 5 minutes are dead letters.",
        impact="Their readings are in no table until they are redriven. Nothing is lost: each dead letter holds its message.",
        causes=(
            "New firmware or a new kind of device sends what no route or profile expects.",
            "A profile was made stricter than the devices are.",
            "Clocks of devices are wrong after a power cut (`ts_too_far_future`, `ts_too_old`).",
        ),
        actions=(
            "`tidegate dlq ls`: which reason, device and topic make most of them.",
            "`tidegate dlq show ID`: what stood there, what was wanted, what to do.",
            "Mend device, route or profile; try it with `tidegate dlq redrive --dry-run --try FILE`.",
            "`tidegate dlq redrive`: store what passes now.",
        ),
    ),
)
