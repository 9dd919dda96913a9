"""Closed lists of reasons for messages that were not stored; metric labels, dead letters and receipts use the same words."""

from enum import StrEnum

__all__ = ["IgnoredReason", "Reason", "Stage"]


class Reason(StrEnum):
    """Reason why a message, or a part of it, became a dead letter."""

    EMPTY_PAYLOAD = "empty_payload"
    TOO_LARGE = "too_large"
    BAD_ENCODING = "bad_encoding"
    BAD_JSON = "bad_json"
    TOO_DEEP = "too_deep"
    DUPLICATE_KEY = "duplicate_key"
    NOT_OBJECT = "not_object"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    BAD_NUMBER = "bad_number"
    OUT_OF_RANGE = "out_of_range"
    BAD_TIMESTAMP = "bad_timestamp"
    TS_TOO_FAR_FUTURE = "ts_too_far_future"
    TS_TOO_OLD = "ts_too_old"
    AMBIGUOUS_TIME = "ambiguous_time"
    IDENTITY_MISMATCH = "identity_mismatch"
    BAD_DEVICE_ID = "bad_device_id"
    UNKNOWN_DEVICE = "unknown_device"
    NO_ROUTE = "no_route"
    UNSUPPORTED_VERSION = "unsupported_version"
    CONFLICTING_DUPLICATE = "conflicting_duplicate"
    UNCHECKED_DUPLICATE = "unchecked_duplicate"
    KAFKA_TOO_LARGE = "kafka_too_large"
    SPARK_CORRUPT_RECORD = "spark_corrupt_record"
    SCHEMA_CONFLICT = "schema_conflict"
    RATE_LIMITED = "rate_limited"
    UNIT_MISMATCH = "unit_mismatch"
    UNKNOWN_METRIC = "unknown_metric"
    STEP_EXCEEDED = "step_exceeded"
    STUCK = "stuck"
    UNDECODED = "undecoded"
    NOTHING_KEPT = "nothing_kept"
    ALIAS_UNKNOWN = "alias_unknown"
    INTERNAL_ERROR = "internal_error"


class IgnoredReason(StrEnum):
    """Reason why a message without readings was acknowledged and counted, but not kept."""

    EMPTY_PAYLOAD = "empty_payload"
    """Zero bytes: how a retained message is deleted."""
    NO_VALUE = "no_value"
    """Well-formed, but it holds no value: `{}`, `[]`, nothing but nulls."""
    OWN_TOPIC = "own_topic"
    """One of the topics that this product itself publishes (receipts)."""
    STATUS = "status"
    """Births, last wills, availability, joins, events without a measurement, log lines."""
    METADATA = "metadata"
    """Descriptions of devices: inventories, discovery, configuration, attributes without a measurement."""
    COMMAND = "command"
    """Commands to devices and their answers."""
    ECHO = "echo"
    """A copy of a message from another topic."""


class Stage(StrEnum):
    """The hop that rejected it."""

    GATEWAY = "gateway"
    STREAM = "stream"
