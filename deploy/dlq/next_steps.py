"""Next steps after a rejection: one sentence per reason, for `dlq show` and `device watch`."""

import shlex
from typing import Final

from ingest.contract.reasons import Reason

__all__ = ["NEXT_STEPS", "next_step"]

NEXT_STEPS: Final[dict[Reason, str]] = {
    Reason.EMPTY_PAYLOAD: "Send at least one reading; in MQTT, zero bytes delete a retained message.",
    Reason.TOO_LARGE: "Send fewer readings per message, or raise gateway.max_payload_bytes or "
    "gateway.max_readings_per_message.",
    Reason.BAD_ENCODING: "Send UTF-8; convert Latin-1 or UTF-16 on the device.",
    Reason.BAD_JSON: "Fix the JSON at the marked place; the usual cause is a truncated buffer or printf without escaping.",
    Reason.TOO_DEEP: "Flatten the object, or raise gateway.max_json_depth.",
    Reason.DUPLICATE_KEY: "Send each key once per object.",
    Reason.NOT_OBJECT: 'Send an object such as {"values": {"temperature": 21.5}}, or an array of these.',
    Reason.MISSING_FIELD: "Add the field that the path names, or make it optional in the profile.",
    Reason.WRONG_TYPE: "Send the wanted type, or change the metric's type in the profile; then redrive.",
    Reason.BAD_NUMBER: "If the sensor has no value, leave the metric out or send null; NaN and Infinity are not JSON. If a "
    "sensor's code is a real value here, name it under `accept` in a profile, then redrive.",
    Reason.OUT_OF_RANGE: "Check the sensor. If the value is right, widen the range in the profile, or name the entry in "
    "brackets under its `accept`; then redrive.",
    Reason.BAD_TIMESTAMP: "Send `ts` as epoch milliseconds or RFC 3339, or leave it out; the receive time is then used.",
    Reason.TS_TOO_FAR_FUTURE: "Set the device's clock (NTP), or leave `ts` out until it is set; "
    "gateway.max_future_seconds sets the tolerance.",
    Reason.TS_TOO_OLD: "Set the device's clock (NTP), or leave `ts` out until it is set.",
    Reason.AMBIGUOUS_TIME: "Send epoch milliseconds or RFC 3339 with an offset, or name the route's zone; then redrive.",
    Reason.IDENTITY_MISMATCH: "Publish under the topic of the device that the payload names. A profile or route can also "
    "set which of the two counts.",
    Reason.BAD_DEVICE_ID: "Use a device id of printable characters within gateway.max_device_id_bytes.",
    Reason.UNKNOWN_DEVICE: "Register it with `tidegate device add ID`, then redrive.",
    Reason.NO_ROUTE: "Publish to tidegate/v1/<device>/readings, or give this topic a route and redrive; "
    "`tidegate route suggest --from-dlq TOPIC` drafts one from the dead letters.",
    Reason.UNSUPPORTED_VERSION: "Send a version that this gateway reads, or update the gateway, then redrive.",
    Reason.CONFLICTING_DUPLICATE: "Increase `boot` at each start and `seq` with each message, so that no two share both.",
    Reason.UNCHECKED_DUPLICATE: "Redrive it to compare it again with the stored row of its identity. If that row is "
    "deleted, it stays a dead letter.",
    Reason.KAFKA_TOO_LARGE: "Send fewer readings per message, or raise kafka.max_record_bytes and the topic's "
    "max.message.bytes, then redrive.",
    Reason.SPARK_CORRUPT_RECORD: "Find the other program that writes to the Kafka topic; this record cannot be redriven.",
    Reason.SCHEMA_CONFLICT: "Send the type that the metric had before, or use another metric name.",
    Reason.RATE_LIMITED: "Publish more slowly or in batches, or raise the device's rate. Messages kept whole can be redriven.",
    Reason.UNIT_MISMATCH: "Send the unit that the profile names, or let the profile convert yours; then redrive.",
    Reason.UNKNOWN_METRIC: "Check the metric's name, or add it to the profile; then redrive.",
    Reason.STEP_EXCEEDED: "Check the sensor. If such a jump is real, raise the profile's maximum step, then redrive.",
    Reason.STUCK: "Check whether the sensor still measures. If its value may stay constant, raise the profile's stuck limit.",
    Reason.NOTHING_KEPT: "Let the mapping keep one of the fields that the dead letter names (`keep`, `skip`, `text`), or "
    "ignore such messages by a case with `ignore`; then redrive.",
    Reason.UNDECODED: "Give the topic a route with the decoder that reads this format, then redrive; "
    "`tidegate route suggest --from-dlq TOPIC` drafts one from the dead letters.",
    Reason.ALIAS_UNKNOWN: "Have the edge node publish its birth again (a rebirth), so that the alias has a name; then "
    "redrive.",
    Reason.INTERNAL_ERROR: "This is a bug in the gateway: report it with this dead letter, and redrive after the update.",
}


def next_step(reason: str, topic: str | None = None) -> str:
    """The sentence for a reason; for one that only another version knows, where to read about it.

    Args:
        reason: of the dead letter.
        topic: where the message came, filled into the commands that take it.
    """
    try:
        text = NEXT_STEPS[Reason(reason)]
    except (ValueError, KeyError):
        return "This reason comes from another version of Tidegate: read its release notes."
    # A topic that a shell, a sentence or an option would split is left out: the command then takes all topics.
    plain = topic is not None and topic.isprintable() and "`" not in topic and not topic.startswith("-")
    return text.replace(" TOPIC`", f" {shlex.quote(topic)}`" if topic and plain else "`")
