"""Alerts on the first half of a reading's path: broker and gateway."""

from typing import Final

from monitoring.alerts.model import Alert, Severity
from monitoring.alerts.operands import (
    EVERYTHING,
    Difference,
    Increase,
    MinOverTime,
    Quotient,
    SubtractIfPresent,
    Sum,
    select,
)
from monitoring.alerts.signals import Both, Compare, Either, IncreasedWithin, Signal, Unless, started_within
from monitoring.indicators import ARRIVED, EventCount, validity

__all__ = ["BROKER", "GATEWAY", "HALF_QUEUE_BYTES", "HALF_QUEUE_MESSAGES"]

MONITOR: Final = "tidegate-monitor"
HALF_QUEUE_MESSAGES: Final = 500_000
HALF_QUEUE_BYTES: Final = 128 * 1024 * 1024
"""Half of what the embedded broker keeps for a session. The broker's figure covers all sessions together."""
_DROPPED: Final = select("broker_publish_messages_dropped", job=MONITOR)
_DROPS: Final = Either(
    Compare(Increase(_DROPPED, 300), ">", 0),
    Both(Compare(_DROPPED, ">", 0), Compare(select("broker_uptime", job=MONITOR), "<", 300), on=("job", "instance")),
)
_GAPS: Final = select("tidegate_ledger_gap_messages")
_OURS_HIT: Final = Either(
    Either(
        Compare(MinOverTime(select("tidegate_gateway_connected"), 600), "==", 0),
        Compare(MinOverTime(select("up", job="tidegate-gateway"), 600), "==", 0),
    ),
    Compare(Difference(_GAPS, MinOverTime(_GAPS, 600)), ">", 0),
)
"""The gateway was disconnected, so its queue filled up, or sequence numbers of devices went missing."""


def _gained(count: EventCount) -> Sum:
    return Sum(Increase(select(count.metric), 300), count.over)


_VALIDITY: Final = validity()
_REFUSED: Final = _gained(_VALIDITY.bad or _VALIDITY.events)
_MEANT: Final = SubtractIfPresent(_gained(_VALIDITY.events), Increase(select(ARRIVED), 300))


def _broker_drops(severity: Severity, signal: Signal, summary: str, text: str) -> Alert:
    """Return the alert for one severity. The broker counts for all clients, so a slow other subscriber is not critical."""
    return Alert(
        name="TidegateBrokerDropsMessages",
        part="broker",
        severity=severity,
        signal=signal,
        summary=summary,
        text=text,
        impact="Messages for the gateway are lost before Tidegate receives them. No audit finds this. Only gaps in sequence "
        "numbers show it.",
        causes=(
            "The gateway was disconnected for longer than the broker's queue lasts.",
            "The gateway is slower than the devices, because Kafka is slow.",
            "`max_queued_messages` or `max_queued_bytes` of the broker is too small.",
            "Another subscriber of the same broker is slow: then Tidegate misses nothing.",
        ),
        actions=(
            "`tidegate status`: check that the gateway is connected and Kafka is ready.",
            '`tidegate sql "SELECT device, sum(gap) FROM ledger WHERE minute > now() - INTERVAL 1 HOUR GROUP BY device '
            'HAVING sum(gap) > 0"`: list the devices with missing messages.',
            "`tidegate logs broker -n 100`: find the client whose queue is full.",
            "Raise the broker's queue limits, or add a gateway whose topic filters do not overlap with this one's.",
        ),
    )


BROKER: Final = (
    Alert(
        name="TidegateBrokerUnreachable",
        part="broker",
        severity="critical",
        signal=Unless(
            Compare(select("tidegate_broker_reachable"), "==", 0), started_within(MONITOR, 60), on=("job", "instance")
        ),
        for_seconds=30,
        summary="The monitor cannot connect to the MQTT broker",
        text="The monitor cannot connect to the MQTT broker.",
        impact="Devices cannot deliver. QoS 0 messages are lost. Devices must keep QoS 1 messages themselves.",
        causes=(
            "The broker is down, hangs or restarts in a loop.",
            "Its disk is full, or its certificate or password file is wrong.",
            "A network rule blocks the monitor.",
        ),
        actions=(
            "`tidegate status`: check whether the part `broker` is ready.",
            "`tidegate logs broker -n 100`: read its last lines.",
            "`tidegate doctor --config FILE`: check that it answers with these settings, and that ports and disk are free.",
            "Start it again. The embedded broker restarts automatically, and the gateway reconnects automatically.",
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
        impact="Nothing is lost yet. When the queue is full, the broker drops messages of devices, but still acknowledges them.",
        causes=(
            "The gateway is disconnected, or Kafka does not take its records.",
            "Devices send more than the gateway can take.",
            "A session of another client, or of an old client id, collects messages that nobody reads.",
        ),
        actions=(
            "`tidegate status`: check that the gateway is connected and Kafka is ready.",
            "`tidegate logs gateway -n 100`: find out what it waits for.",
            "Start the gateway or Kafka again. The queue then drains, in order.",
            "Let devices that keep their readings send less until then.",
        ),
        follows=("TidegateGatewayDisconnected", "TidegateKafkaUnreachable"),
    ),
    _broker_drops(
        "critical",
        Both(_DROPS, _OURS_HIT, on=()),
        "The MQTT broker drops messages of the devices",
        "The broker dropped {value} messages in the last 5 minutes, and the gateway was away or sequence numbers went missing.",
    ),
    _broker_drops(
        "warning",
        _DROPS,
        "The MQTT broker drops messages",
        "The broker dropped {value} messages in the last 5 minutes, for the gateway or another subscriber.",
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
        impact="Nothing is received. The broker queues messages for the gateway's session up to its limit, then drops them.",
        causes=(
            "The broker is down or refuses the gateway's credentials.",
            "Another client uses the gateway's client id and takes over its session.",
            "Kafka has not taken all messages of the last connection: the gateway connects again only after that.",
        ),
        actions=(
            "`tidegate logs gateway -n 100`: find the broker's reason.",
            "`tidegate logs broker -n 100`: check whether the gateway was refused, or its session taken over.",
            "`tidegate doctor --config FILE`: check that broker and Kafka answer with the gateway's settings.",
            "After the gateway has connected: `tidegate audit --since 1h`.",
        ),
        follows=("TidegateBrokerUnreachable", "TidegateKafkaUnreachable"),
    ),
    Alert(
        name="TidegateSessionLost",
        part="gateway",
        severity="warning",
        signal=IncreasedWithin(select("tidegate_gateway_sessions_lost_total"), 900),
        summary="The broker lost the gateway's session",
        text="The broker lost the gateway's session {value} times in the last 15 minutes.",
        impact="Messages that the broker held for the gateway while it was disconnected are gone.",
        causes=(
            "The broker was started without its persistence file, or from an empty disk.",
            "The session expired: the gateway was disconnected for longer than the broker keeps sessions.",
            "The gateway's client id was changed.",
        ),
        actions=(
            "`tidegate logs broker -n 200`: check that it saves and restores its state.",
            '`tidegate sql "SELECT device, sum(gap) FROM ledger WHERE minute > now() - INTERVAL 1 HOUR GROUP BY device '
            'HAVING sum(gap) > 0"`: list the missing messages by device.',
            "Turn the broker's persistence on. Ask devices that keep their readings to send them again.",
        ),
    ),
    Alert(
        name="TidegateSessionContended",
        part="gateway",
        severity="critical",
        signal=Compare(select("tidegate_gateway_session_contended"), "==", 1),
        keep_firing_seconds=60,
        summary="Another client may use the gateway's client id",
        text="The gateway's connections repeatedly end soon after they begin, and the broker gives no reason.",
        impact="While another client has the session, it gets the gateway's messages. What it acknowledges is lost.",
        causes=(
            "Another client connects with the same client id: a second gateway, a copy of the settings, a test.",
            "The network between gateway and broker is bad.",
        ),
        actions=(
            "`tidegate logs broker -n 100`: check whether a client with this id connects from another address.",
            "`tidegate logs gateway -n 100`: find out when it began, and how long each connection lasted.",
            "Stop the other client, or give this gateway its own `mqtt.client_id`.",
            "Run `tidegate audit --since 1h`, and check for sequence gaps, to see whether messages are missing.",
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
        impact="The audit and the ledger mix up the messages of the two gateways: they may miss a loss, or report one that "
        "did not happen. Gaps of devices and the filters of a session may be wrong after a restart.",
        causes=(
            "The settings were copied, with another `mqtt.client_id` or broker, but the same `gateway.gateway_id`.",
            "A gateway that should have been replaced still runs.",
        ),
        actions=(
            "`tidegate status`: find the host, process and MQTT session of the other gateway.",
            "Stop it, or give it a `gateway.gateway_id` of its own and restart it.",
            "`tidegate audit --since 1h`: choose a time since which each gateway has had its own id.",
        ),
    ),
    Alert(
        name="TidegateGatewayNoStandby",
        part="gateway",
        severity="warning",
        signal=Compare(
            Difference(
                Sum(select("tidegate_gateway_lease_held"), over=EVERYTHING),
                Sum(select("tidegate_gateway_standby_waiting"), over=EVERYTHING),
            ),
            ">",
            0,
        ),
        for_seconds=120,
        summary="A gateway has no standby",
        text="{value} gateways with `gateway.standby` have no standby that waits.",
        impact="If such a gateway dies, its devices wait until a person starts another process.",
        causes=(
            "A standby took over, and nobody has started the other process again.",
            "The standby is down, or ended with exit code 78 because its settings differ.",
            "`monitoring.targets` does not name the standby's address.",
        ),
        actions=(
            "`tidegate status`: find the gateways that answer and their states.",
            "`tidegate gateway --config FILE`: start the second process with the settings of the first, and read its last lines.",
        ),
    ),
    Alert(
        name="TidegateBrokerLimitsGateway",
        part="gateway",
        severity="warning",
        signal=Compare(select("tidegate_gateway_broker_inflight_limit"), ">", 0),
        for_seconds=60,
        summary="The broker's limit of unacknowledged messages slows the gateway",
        text="The broker sends at most {value} unacknowledged messages, then waits for the gateway most of the time.",
        impact="The gateway takes fewer messages than it could. If devices send more, the broker's queue grows until the broker "
        "drops messages.",
        causes=(
            "The broker's limit is small: 20 or 32 by default for some brokers.",
            "Kafka is slow, so each round of acknowledgements takes long.",
        ),
        actions=(
            "Raise the broker's limit to `gateway.window_messages`. DEVICES.md names the setting of each broker.",
            "Use MQTT 5 (`mqtt.protocol`) if the broker takes the limit from the client.",
            "`tidegate status`: check whether Kafka is slow.",
        ),
    ),
    Alert(
        name="TidegateQosZeroDropped",
        part="gateway",
        severity="warning",
        signal=IncreasedWithin(select("tidegate_gateway_messages_dropped_total"), 300),
        summary="QoS 0 messages were dropped while Kafka did not answer",
        text="The gateway dropped {value} QoS 0 messages in the last 5 minutes: Kafka did not take them and the window was full.",
        impact="Readings that devices sent with QoS 0 are lost. The gateway never drops QoS 1 messages.",
        causes=(
            "Kafka does not answer or is slow.",
            "A burst of QoS 0 messages was larger than `gateway.window_messages`.",
        ),
        actions=(
            "`tidegate status`: check whether Kafka is ready, and whether the lag grows.",
            "`tidegate logs gateway -n 100`: find out when it began.",
            "Let the devices publish with QoS 1. The broker then keeps what the gateway cannot take.",
        ),
        follows=("TidegateKafkaUnreachable",),
    ),
    Alert(
        name="TidegateInternalErrors",
        part="gateway",
        severity="warning",
        signal=Either(
            IncreasedWithin(select("tidegate_gateway_messages_rejected_total", reason="internal_error"), 600),
            IncreasedWithin(select("tidegate_gateway_errors_total", stage="~receive|decode|tick"), 600),
        ),
        summary="The gateway had internal errors",
        text="The gateway had {value} internal errors in the last 10 minutes, and continued.",
        impact="The messages concerned are dead letters `internal_error`, whole and redrivable. Nothing else is affected.",
        causes=(
            "A decoder cannot handle an unexpected input.",
            "A decoder of your own (entry point) raised an exception.",
        ),
        actions=(
            "`tidegate dlq ls --where \"reason = 'internal_error'\"`: list the topics and devices.",
            "`tidegate dlq show ID`: show the message, byte by byte, and the error.",
            "`tidegate logs gateway -n 200`: find the traceback.",
            "Fix the decoder or report the bug, then `tidegate dlq redrive --where \"reason = 'internal_error'\"`.",
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
        summary="More than one message in twenty is rejected",
        text="{value} of the devices' messages in the last 5 minutes became dead letters.",
        impact="Their readings are in no table until they are redriven. Nothing is lost: each dead letter holds its message.",
        causes=(
            "New firmware or a new kind of device sends messages that no route or profile expects.",
            "A profile is now too strict for the devices.",
            "Clocks of devices are wrong after a power cut (`ts_too_far_future`, `ts_too_old`).",
        ),
        actions=(
            "`tidegate dlq ls`: find the reason, device and topic with the most dead letters.",
            "`tidegate dlq show ID`: show what the message held, what was expected, and what to do.",
            "Fix the device, route or profile. Test it with `tidegate dlq redrive --dry-run --try FILE`.",
            "`tidegate dlq redrive`: store the messages that are valid now.",
        ),
    ),
)
