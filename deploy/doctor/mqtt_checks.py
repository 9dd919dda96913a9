"""Findings about the MQTT broker: login, limits, the session's life, and the gateway's topic filters."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from deploy.local.preflight import PreflightCheck
from deploy.local.text_format import format_time_left
from deploy.settings import Settings
from gateway.filter_overlap import find_overlap
from gateway.gateway_settings import MqttSettings
from gateway.mqtt.broker_check import BrokerAnswer
from gateway.topic_filters import is_shared
from monitoring.addresses import is_loopback

__all__ = ["check_broker", "check_filters"]

RECEIPTS: Final = "tidegate/receipts/#"
NO_LIMIT: Final = 65_535
"""Receive Maximum of MQTT 5 where CONNACK names none."""
PACKET_OVERHEAD_BYTES: Final = 1024
_DAY: Final = 86_400
_DROPPED: Final = "broker_publish_messages_dropped"
_NAMES: Final = "DEVICES.md names the setting of each broker."


def check_broker(settings: Settings, answer: BrokerAnswer) -> Iterator[PreflightCheck]:
    """Yield the findings that follow from the broker's answer."""
    mqtt = settings.mqtt
    if answer.refused:
        fix = "Check address, TLS and user in [mqtt], and the password in the environment variable TIDEGATE_MQTT__PASSWORD."
        yield PreflightCheck("mqtt login", "fail", answer.refused, fix)
        return
    software = f", {answer.version}" if answer.version else ""
    user = f"user {mqtt.username}" if mqtt.username else "no user"
    yield PreflightCheck("mqtt login", "ok", f"connected with {user} (MQTT {mqtt.protocol}{software})")
    if mqtt.username and not mqtt.tls and not is_loopback(mqtt.host):
        text = f"the password of user {mqtt.username} goes over the network unencrypted"
        yield PreflightCheck("mqtt tls", "warn", text, "Set mqtt.tls = true, and mqtt.port to the broker's TLS port.")
    if mqtt.protocol == "5":
        yield _in_flight(settings, answer)
        yield _packet(settings, answer)
        yield _session(settings, answer)
    else:
        yield _unseen(settings)
    yield _horizon(settings)
    yield _queue(answer.figures)
    yield from _granted(mqtt, answer)


def _unseen(settings: Settings) -> PreflightCheck:
    text = "MQTT 3.1.1 shows no limit of the broker: in flight, packet size and the life of the session cannot be seen"
    fix = (
        f'Set mqtt.protocol = "5" if the broker speaks it. Else set its in-flight limit to {settings.gateway.window_messages}, '
        f"and let it keep sessions for {settings.mqtt.session_expiry_seconds} s. {_NAMES}"
    )
    return PreflightCheck("mqtt limit", "warn", text, fix)


def _in_flight(settings: Settings, answer: BrokerAnswer) -> PreflightCheck:
    """Judge by what the broker takes: MQTT does not report what it sends, and brokers use one setting for both."""
    window = settings.gateway.window_messages
    limit = answer.receive_maximum
    if limit is None or limit >= NO_LIMIT:
        text = "the broker names no limit of unacknowledged messages; if it has one that slows the gateway, `status` reports it"
        return PreflightCheck("mqtt limit", "ok", text)
    text = f"the broker takes {limit:,} unacknowledged messages of a client, and probably sends no more; the gateway takes "
    text += f"{window:,}"
    if limit >= window:
        return PreflightCheck("mqtt limit", "ok", text)
    fix = f"Raise the broker's in-flight limit to {window}: it bounds the messages per second. {_NAMES}"
    return PreflightCheck("mqtt limit", "warn", text, fix)


def _packet(settings: Settings, answer: BrokerAnswer) -> PreflightCheck:
    wanted = settings.gateway.max_payload_bytes
    limit = answer.max_packet_bytes
    if limit is None:
        text = (
            "the broker names no largest packet: one message of up to 256 MB takes three times its size in the gateway"
        )
        fix = f"Set the broker's largest packet to somewhat above gateway.max_payload_bytes ({wanted}). {_NAMES}"
        return PreflightCheck("mqtt size", "warn", text, fix)
    text = f"the broker takes packets of up to {limit:,} bytes, the gateway payloads of up to {wanted:,}"
    if limit >= wanted + PACKET_OVERHEAD_BYTES:
        return PreflightCheck("mqtt size", "ok", text)
    fix = (
        "Raise the broker's largest packet above gateway.max_payload_bytes. The broker disconnects a device with a larger "
        "message, and the device sends it again for ever."
    )
    return PreflightCheck("mqtt size", "warn", text, fix)


def _session(settings: Settings, answer: BrokerAnswer) -> PreflightCheck:
    wanted = settings.mqtt.session_expiry_seconds
    kept = wanted if answer.session_seconds is None else answer.session_seconds
    has, asked = format_time_left(kept), format_time_left(wanted)
    text = f"the broker keeps the gateway's session for {has} of absence, mqtt.session_expiry_seconds is {asked}"
    if kept >= wanted:
        return PreflightCheck("mqtt expiry", "ok", text)
    fix = (
        "Raise the broker's limit for sessions, or set mqtt.session_expiry_seconds to it. After a longer absence the messages "
        "that wait for the gateway are lost."
    )
    return PreflightCheck("mqtt expiry", "warn" if kept else "fail", text, fix)


def _horizon(settings: Settings) -> PreflightCheck:
    """Compare how long the stream knows a message with how long the broker can send it again."""
    needed = settings.mqtt.session_expiry_seconds / _DAY + 1
    has = settings.stream.horizon_days
    text = f"the stream knows a message without boot and seq for {has:g} days, the broker may repeat one for {needed - 1:g} days"
    if has >= needed:
        return PreflightCheck("horizon", "ok", text)
    return PreflightCheck("horizon", "warn", text, f"Set stream.horizon_days = {needed:g}.")


def _queue(figures: Mapping[str, float]) -> PreflightCheck:
    dropped = figures.get(_DROPPED)
    if dropped:
        text = f"the broker has dropped {dropped:,.0f} messages since its start"
        fix = f"Raise its queue limits: messages per second times the longest outage of the gateway. {_NAMES}"
        return PreflightCheck("mqtt queue", "warn", text, fix)
    seen = (
        "the broker has dropped no message since its start"
        if dropped is not None
        else "the broker does not publish $SYS"
    )
    text = f"{seen}. MQTT does not show the limit of a session's queue: messages per second times the longest outage must fit"
    return PreflightCheck("mqtt queue", "ok", text)


def _granted(mqtt: MqttSettings, answer: BrokerAnswer) -> Iterator[PreflightCheck]:
    user = mqtt.username or "this client"
    if answer.denied:
        text = f"the broker rejects the subscription to {', '.join(answer.denied)}"
        yield PreflightCheck(
            "filters", "fail", text, f"Allow {user} to read these topics in the broker's access rules."
        )
    if answer.at_most_once or answer.max_qos == 0:
        text = f"the broker grants {', '.join(answer.at_most_once or mqtt.subscriptions)} at QoS 0 only"
        fix = f"Allow QoS 1 for {user}: else a message in transit during a failure is lost."
        yield PreflightCheck("filters", "fail", text, fix)
    if not answer.takes_wildcards and (
        wild := [text for text in mqtt.subscriptions if "#" in text or "+" in text or "{" in text]
    ):
        text = f"the broker takes no wildcards, which {', '.join(wild)} has"
        yield PreflightCheck("filters", "fail", text, "Name the topics in mqtt.subscriptions without wildcards.")
    if not answer.takes_shared and (shared := [text for text in mqtt.subscriptions if is_shared(text)]):
        text = f"the broker takes no shared subscriptions such as {shared[0]}"
        yield PreflightCheck("filters", "fail", text, "Give each gateway filters of its own in mqtt.subscriptions.")


def check_filters(settings: Settings, others: Mapping[str, Iterable[str]]) -> Iterator[PreflightCheck]:
    """Yield the findings about the gateway's filters that follow from settings and from other gateways.

    Args:
        settings: with the gateway's filters.
        others: name of another running gateway to the filters of its session.
    """
    filters = settings.mqtt.subscriptions
    found = [*_shared(filters), *_twice(filters), *_own_receipts(settings), *_of_others(filters, others)]
    yield from found
    if not found:
        receipts = settings.receipts.enabled and find_overlap(filters, [RECEIPTS])
        more = "; receipts of other gateways come too, which the gateway ignores" if receipts else ""
        yield PreflightCheck("filters", "ok", f"{', '.join(filters)}: no overlap{more}")


def _shared(filters: Iterable[str]) -> Iterator[PreflightCheck]:
    if shared := [text for text in filters if is_shared(text)]:
        text = f"{', '.join(shared)} spreads the messages of a device over several gateways, so their order is lost"
        fix = "Give each gateway filters of its own in mqtt.subscriptions, unless the broker keeps a device with one member."
        yield PreflightCheck("filters", "warn", text, fix)


def _twice(filters: tuple[str, ...]) -> Iterator[PreflightCheck]:
    for at, one in enumerate(filters):
        if both := find_overlap([one], [other for other in filters[at + 1 :] if other != one]):
            text = f"{both[0]} and {both[1]} both take {both[2]}, so a broker may send such a message twice"
            yield PreflightCheck("filters", "warn", text, "Leave the narrower one out of mqtt.subscriptions.")


def _own_receipts(settings: Settings) -> Iterator[PreflightCheck]:
    """Compare with topics on which gateways publish. The gateway ignores receipts, but each of them costs it a message."""
    receipts = settings.receipts
    named = [text for text in settings.mqtt.subscriptions if text.startswith("tidegate/receipts")]
    if receipts.enabled and named:
        text = f"{', '.join(named)} takes receipts, which the gateway ignores"
        yield PreflightCheck("filters", "warn", text, "Leave tidegate/receipts out of mqtt.subscriptions.")
    if receipts.enabled and (both := find_overlap(settings.mqtt.subscriptions, receipts.response_topics)):
        text = f"{both[0]} takes {both[2]}, on which receipts.response_topics ({both[1]}) lets devices ask for receipts"
        fix = (
            "Choose response topics outside of mqtt.subscriptions: else the receipts of other gateways become messages."
        )
        yield PreflightCheck("filters", "warn", text, fix)


def _of_others(filters: Iterable[str], others: Mapping[str, Iterable[str]]) -> Iterator[PreflightCheck]:
    for name, theirs in others.items():
        if both := find_overlap(filters, theirs):
            text = f"{both[0]} overlaps {both[1]} of the running gateway {name}: both receive {both[2]}"
            fix = "Give each gateway filters that do not overlap in mqtt.subscriptions."
            yield PreflightCheck("filters", "fail", text, fix)
