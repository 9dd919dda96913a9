"""Kafka topics: names, partitions, limits. Tidegate creates all of them explicitly; none is auto-created."""

from dataclasses import dataclass
from typing import Final

__all__ = [
    "DEAD_LETTERS",
    "GATEWAY_STATE",
    "LAND_GROUP",
    "OUTCOMES",
    "READINGS",
    "TopicSpec",
    "stream_group",
    "stream_topic",
    "topic_specs",
]

READINGS: Final = "telemetry.readings"
DEAD_LETTERS: Final = "telemetry.dead-letters"
OUTCOMES: Final = "telemetry.outcomes"
GATEWAY_STATE: Final = "telemetry.gateway-state"

LAND_GROUP: Final = "tidegate-land"
"""Consumer group to which the landing query mirrors its offsets, so that Kafka's own tools show its lag."""


def stream_topic(name: str) -> str:
    """Return the topic of an SQL-defined stream."""
    return f"telemetry.stream.{name}"


def stream_group(name: str) -> str:
    """Return the consumer group to which that stream mirrors its offsets."""
    return f"tidegate-stream-{name}"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic as it should be; `config` holds Kafka topic settings."""

    name: str
    partitions: int
    config: dict[str, str]


def topic_specs(*, partitions: int, max_record_bytes: int, retention_bytes: int, retention_ms: int) -> list[TopicSpec]:
    """Return every topic of the pipeline.

    Args:
        partitions: of `telemetry.readings`. A later change re-hashes keys and breaks per-device order, so choose once.
        max_record_bytes: largest record of `telemetry.readings`; dead letters take twice that (base64 grows by 4/3).
        retention_bytes: per partition of `telemetry.readings`; the others together keep at most half of it each.
        retention_ms: for the topics that expire.
    """
    common = {"message.timestamp.type": "LogAppendTime"}

    def bounded(record_bytes: int, share: float) -> dict[str, str]:
        kept = int(retention_bytes * share)
        return {
            **common,
            "cleanup.policy": "delete",
            "max.message.bytes": str(record_bytes),
            "retention.bytes": str(kept),
            "retention.ms": str(retention_ms),
            # Kafka deletes only whole closed segments. Small ones keep the size bound accurate.
            "segment.bytes": str(max(1024 * 1024, kept // 8)),
        }

    return [
        TopicSpec(READINGS, partitions, bounded(max_record_bytes, 1.0)),
        TopicSpec(DEAD_LETTERS, 1, bounded(max_record_bytes * 2, 0.5)),
        TopicSpec(OUTCOMES, 1, bounded(max_record_bytes, 0.5)),
        # An erased device's old records must be gone by a date, so Kafka compacts records older than a day.
        TopicSpec(
            GATEWAY_STATE, 1, {**common, "cleanup.policy": "compact", "max.compaction.lag.ms": str(24 * 3600 * 1000)}
        ),
    ]
